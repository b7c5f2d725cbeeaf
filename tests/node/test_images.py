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

import pytest

from tests.node import images
from tools import image_root


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


@pytest.mark.parametrize("seconds", [0, 1790000000])
def test_the_same_files_give_the_same_bytes_whenever_and_however_they_were_written(
    tmp_path: Path, seconds: int
) -> None:
    """Of what the image's build does last, and of the layer; test_image_twice.py has all of it."""
    files = ["bin/start", "lib/b.py", "lib/a.py", "etc/passwd"]
    written = []
    for name, umask, order in (("one", 0o022, 1), ("in-another-folder", 0o077, -1)):
        root = tmp_path / name / "root"
        before = os.umask(umask)
        try:
            root.mkdir(parents=True)
            image_root.make_folders(root)
            for number, path in enumerate(files[::order]):
                file = root / path
                file.parent.mkdir(exist_ok=True)
                file.write_text(path)
                file.chmod(0o777 & ~umask if path == "bin/start" else 0o666 & ~umask)
                os.utime(file, (number, number))
            (root / "sbin").symlink_to("bin")
            image_root.settle(root, seconds)
        finally:
            os.umask(before)
        file = images.write(tmp_path / name / "image.tar", "example/name:1", root, {})
        written.append(file.read_bytes())
    with tarfile.open(file) as tar:
        layer = tar.extractfile(max(tar, key=lambda it: it.size))
        with tarfile.open(fileobj=layer) as content:
            names = [it.name.split("/") for it in content]

    assert written[0] == written[1]
    assert names == sorted(names)  # and not in a folder's own order, which may be the same here


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
