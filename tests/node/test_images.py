# SPDX-License-Identifier: Apache-2.0
"""Image files: that what they say of their parts is true."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from pathlib import Path
from typing import Any

from tests.node import images


def test_an_image_has_its_name_its_start_and_one_layer_with_all_files_of_root(
    tmp_path: Path,
) -> None:
    root = tmp_path / "root"
    (root / "bin").mkdir(parents=True)
    (root / "bin" / "start").write_text("program")
    (root / "bin" / "start").chmod(0o755)
    if not os.geteuid():  # or it would be root's anyway
        os.chown(root / "bin" / "start", 1234, 1234)

    file = images.write(tmp_path / "a.tar", "example/name:1", root, {"Entrypoint": ["/bin/start"]})

    with tarfile.open(file) as tar:
        parts = {it.name: _read(tar, it) for it in tar}
    blobs = {name.rpartition("/")[2]: content for name, content in parts.items() if "/" in name}
    assert all(hashlib.sha256(content).hexdigest() == name for name, content in blobs.items())
    (manifest,) = json.loads(parts["index.json"])["manifests"]
    assert manifest["annotations"] == {"io.containerd.image.name": "example/name:1"}
    described = json.loads(_blob(blobs, manifest))
    config = json.loads(_blob(blobs, described["config"]))
    (layer,) = described["layers"]
    assert config["config"] == {"Entrypoint": ["/bin/start"]}
    assert config["rootfs"]["diff_ids"] == [layer["digest"]]
    with tarfile.open(fileobj=io.BytesIO(_blob(blobs, layer))) as tar:
        start = tar.getmember("./bin/start")
        assert (start.uid, start.gid, start.mode) == (0, 0, 0o755)
        assert _read(tar, start) == b"program"
    assert [it.name for it in tmp_path.iterdir() if it != root] == ["a.tar"]


def test_our_image_starts_the_program_in_it_and_is_made_once() -> None:
    """Before the nodes need it: half of the processes of a run would wait for it."""
    file = images.our_image()
    made = file.stat().st_ino

    with tarfile.open(file) as tar:
        (manifest,) = json.loads(_named(tar, "index.json"))["manifests"]
        described = json.loads(_named(tar, _place(manifest)))
        config = json.loads(_named(tar, _place(described["config"])))["config"]
        (layer,) = described["layers"]
        with tarfile.open(fileobj=tar.extractfile(_place(layer))) as root:
            files = {it.name: it for it in root}

    assert config["Entrypoint"][-1] == "gpuscape"
    assert config["User"] not in {"", "0", "0:0"}
    command = files[f".{config['Env'][0].removeprefix('PATH=')}/gpuscape"]
    assert command.mode & 0o111
    assert not [name for name in files if name.startswith("./tests") or "/pip/" in name]
    assert images.our_image().stat().st_ino == made


def _place(described: dict[str, Any]) -> str:
    return f"blobs/{described['digest'].replace(':', '/')}"


def _named(tar: tarfile.TarFile, name: str) -> bytes:
    return _read(tar, tar.getmember(name))


def _blob(blobs: dict[str, bytes], described: dict[str, Any]) -> bytes:
    content = blobs[described["digest"].removeprefix("sha256:")]
    assert described["size"] == len(content)
    return content


def _read(tar: tarfile.TarFile, entry: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(entry)
    return file.read() if file else b""
