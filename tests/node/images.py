# SPDX-License-Identifier: Apache-2.0
"""Container images without a container engine: files that ``ctr images import`` reads.

Source: OCI image layout 1.0.0 and image specification 1.1; the image's name is in containerd's
own annotation.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from simulator.clibrary.compiler import compiler
from tests.controlplane.builds import binaries, cache
from tests.controlplane.families import PAUSE as PAUSE_FAMILY
from tests.deploy.daemonset import container, daemonset
from tests.deploy.dockerfile import REPOSITORY, copied, instructions
from tests.node.node_files import PAUSE
from tools.image_size import build_root

ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
KEPT: Final = 3
"""How many images of some 300 MB stay: those that were used last."""

_C_FLAGS: Final = ("-O1", "-std=gnu11", "-Wall", "-Wextra", "-Werror")
_TYPES: Final = "application/vnd.oci.image"


def pause_image(folder: Path) -> Path:
    """The image of a pod's sandbox."""
    root = folder / "pause"
    root.mkdir()
    shutil.copy2(binaries(PAUSE_FAMILY) / "pause", root)
    return write(folder / "pause.tar", PAUSE, root, {"Entrypoint": ["/pause"]})


def our_image() -> Path:
    """gpuscape's own, as the Dockerfile makes it of the code that is here; kept by content.

    The packages of others are those of this environment, which the same lock file pins.
    """
    kept = cache().parent / "images"
    kept.mkdir(parents=True, exist_ok=True)
    file = kept / f"gpuscape-{_content()}.tar"
    with (kept / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not file.exists():
            with tempfile.TemporaryDirectory(dir=kept) as scratch:
                _make(Path(scratch)).rename(file)
        os.utime(file)
        by_use = sorted(kept.glob("gpuscape-*.tar"), key=lambda it: it.stat().st_mtime)
        for unused in by_use[:-KEPT]:
            unused.unlink()
    return file


def place_program(source: Path, root: Path, place: str, *options: str) -> Path:
    """Compile a program in C for an image's ``root``, next to the libraries that it loads; it.

    The compiler is the one that builds the simulator's library. Raises CalledProcessError.
    """
    program = root / place.lstrip("/")
    program.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([*compiler(), *_C_FLAGS, "-o", program, source, *options], check=True)
    place_libraries(program, root)
    return program


def place_libraries(program: Path, root: Path) -> None:
    """Copy what a program loads into an image's ``root``; nothing for one that loads nothing."""
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
    for word in listed.split():
        if word.startswith("/"):
            library = root / word.lstrip("/")
            library.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(word, library)


def write(file: Path, name: str, root: Path, config: Mapping[str, Any]) -> Path:
    """Write the image ``name`` with one layer, all that is below ``root`` and root's; the file.

    Of the same files with the same times it writes the same bytes, wherever and whenever.

    ``config`` is what a container starts with: Entrypoint, User, Env.
    """
    layer = file.with_suffix(".layer")
    with tarfile.open(layer, "w") as tar:  # in the order of names
        tar.add(root, arcname=".", filter=_of_root)
    _write(file, layer, {name: config})
    layer.unlink()
    return file


def write_variants(file: Path, configs: Mapping[str, Mapping[str, Any]]) -> Path:
    """Write images that differ from ours in name and start alone, all in one file; the file."""
    layer = file.with_suffix(".layer")
    with tarfile.open(our_image()) as tar:
        content = tar.extractfile(max(tar, key=lambda it: it.size))
        assert content is not None
        with layer.open("wb") as target:
            shutil.copyfileobj(content, target)
    _write(file, layer, configs)
    layer.unlink()
    return file


def _write(file: Path, layer: Path, configs: Mapping[str, Mapping[str, Any]]) -> None:
    """Images of one layer in a file: each name with what a container of it starts with."""
    with layer.open("rb") as content:
        digest = f"sha256:{hashlib.file_digest(content, 'sha256').hexdigest()}"
    layer_type, size = f"{_TYPES}.layer.v1.tar", layer.stat().st_size
    manifests, blobs = [], []
    for name, config in configs.items():
        image = {
            "architecture": ARCHITECTURES[platform.machine()],
            "os": "linux",
            "config": dict(config),
            "rootfs": {"type": "layers", "diff_ids": [digest]},
        }
        image_blob = json.dumps(image).encode()
        manifest = {
            "schemaVersion": 2,
            "mediaType": f"{_TYPES}.manifest.v1+json",
            "config": _described(f"{_TYPES}.config.v1+json", image_blob),
            "layers": [{"mediaType": layer_type, "digest": digest, "size": size}],
        }
        manifest_blob = json.dumps(manifest).encode()
        named = {"annotations": {"io.containerd.image.name": name}}
        manifests.append(_described(f"{_TYPES}.manifest.v1+json", manifest_blob) | named)
        blobs += [image_blob, manifest_blob]
    index = {"schemaVersion": 2, "manifests": manifests}
    with tarfile.open(file, "w") as tar:
        _add(tar, "oci-layout", json.dumps({"imageLayoutVersion": "1.0.0"}).encode())
        _add(tar, "index.json", json.dumps(index).encode())
        for blob in blobs:
            _add(tar, f"blobs/sha256/{hashlib.sha256(blob).hexdigest()}", blob)
        tar.add(layer, arcname=f"blobs/{digest.replace(':', '/')}", filter=_without_time)


def _make(scratch: Path) -> Path:
    root = build_root(scratch)
    (command,) = root.rglob("bin/gpuscape")
    last = {it.word: it.arguments for it in instructions()}
    config = {
        "Entrypoint": last["ENTRYPOINT"],
        "User": last["USER"][0],
        "Env": [f"PATH=/{command.parent.relative_to(root)}"],
    }
    name = f"docker.io/library/{container(daemonset())['image']}"
    return write(scratch / "image.tar", name, root, config)


def _content() -> str:
    """A hash of all that decides what is in the image."""
    hashed = hashlib.sha256(f"{sys.version} {sys.base_prefix} {platform.machine()}".encode())
    sources = [REPOSITORY / source for it in copied() for source in it.arguments[:-1]]
    for file in _files(
        [*sources, REPOSITORY / "deploy/image", REPOSITORY / "tools/image_size.py", Path(__file__)]
    ):
        name = file.relative_to(REPOSITORY)
        hashed.update(f"{name}\0".encode() + file.read_bytes() + b"\0")
    return hashed.hexdigest()[:16]


def _files(paths: Iterable[Path]) -> list[Path]:
    found = [
        file
        for path in paths
        for file in (path.rglob("*") if path.is_dir() else (path,))
        if file.is_file() and "__pycache__" not in file.parts
    ]
    return sorted(found)


def _described(kind: str, blob: bytes) -> dict[str, Any]:
    digest = f"sha256:{hashlib.sha256(blob).hexdigest()}"
    return {"mediaType": kind, "digest": digest, "size": len(blob)}


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    tar.addfile(entry, io.BytesIO(content))


def _of_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def _without_time(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.mtime, entry.mode = 0, 0o644
    return _of_root(entry)
