# SPDX-License-Identifier: Apache-2.0
"""``python -m tools.image_size``: builds the image's file system and writes docs/image.md.

It takes the sources of this checkout, the packages of this environment, and this interpreter in
place of the image's base. No container engine is needed.
"""

from __future__ import annotations

import gzip
import io
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path, PurePath
from typing import Final

from tools import image_root
from tools.markdown import table

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs/image.md"
LIMIT_MEGABYTES: Final = 45
MEGABYTE: Final = 1_000_000
GZIP_LEVEL: Final = 6
"""The default of gzip, and of what writes layers of images."""
SMALL_MEGABYTES: Final = 0.15
"""Parts below that size are one row of the table."""

_TOTAL: Final = re.compile(r"^\*\*(\d+\.\d) MB\*\*", re.MULTILINE)
_BUILD: Final = """
import os, sys
from pathlib import Path
wheel, tools, root = sys.argv[1:]
sys.path[:0] = [wheel, tools]
import image_root
os.umask(0o022)
image_root.build(Path(root))
"""
"""Last step of the image's build stage, with gpuscape from a wheel, not from this folder."""
_TEXT: Final = """\
# What the image consists of

Written by `make image-size`. It builds the image's file system without a container engine, and
packs each part as one layer. Sizes are in MB, 1,000,000 bytes. Interpreter, standard library and
the system's libraries are those of the machine that measured: {system},
Python {python}. The published base may differ by a few MB.

**{total:.1f} MB** is the whole image, as gzip packs it. The limit is {limit} MB: a test builds the
image and fails above that.

{parts}

## What is left out

No program of gpuscape loads these. Tests import every module and start every command in the image,
and run its programs in pods. An installation by pip has all packages.

{left_out}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Part of the image's file system, with its size."""

    name: str
    size_bytes: int
    compressed_bytes: int


def build_root(folder: Path) -> Path:
    """The image's file system below an empty folder. Raises OSError where a step fails."""
    wheels, unpacked, root = folder / "wheels", folder / "unpacked", folder / "root"
    options = ("--quiet", "--no-deps", "--no-build-isolation", "--no-cache-dir")
    _run(sys.executable, "-m", "pip", "wheel", *options, "-w", wheels, ROOT)
    (wheel,) = wheels.iterdir()
    shutil.unpack_archive(wheel, unpacked, "zip")
    _run(sys.executable, "-c", _BUILD, unpacked, ROOT / "tools", root)
    return root


def compressed_bytes(root: Path, files: Iterable[Path]) -> int:
    """Size of one layer with these files and folders below ``root``."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for file in sorted(files):
            tar.add(file, arcname=str(file.relative_to(root)), recursive=False)
    return len(gzip.compress(layer.getvalue(), GZIP_LEVEL, mtime=0))


def parts(root: Path, distributions: Mapping[str, Sequence[str]]) -> list[Part]:
    """Parts of the file system, the largest first; each file is in one of them.

    ``distributions`` has the packages that install each name in ``site-packages``.
    """
    files: dict[str, list[Path]] = {}
    for file in root.rglob("*"):
        if file.is_symlink() or file.is_file():
            files.setdefault(part_name(file.relative_to(root), distributions), []).append(file)
    measured = [
        Part(
            name=name,
            size_bytes=sum(file.lstat().st_size for file in members),
            compressed_bytes=compressed_bytes(root, members),
        )
        for name, members in files.items()
    ]
    return sorted(measured, key=lambda part: -part.compressed_bytes)


def part_name(file: PurePath, distributions: Mapping[str, Sequence[str]]) -> str:
    """Part that a file belongs to, by its path below the root."""
    if "site-packages" in file.parts:
        return _distribution(
            PurePath(*file.parts[file.parts.index("site-packages") + 1 :]), distributions
        )
    if any(folder.startswith("python3") for folder in file.parts[:-1]):
        return "standard library"
    if file.name.startswith(("python3", "libpython3")):
        return "interpreter"
    return f"system: {file.name}" if ".so" in file.name else "others"


def _distribution(file: PurePath, distributions: Mapping[str, Sequence[str]]) -> str:
    """Package of a file in ``site-packages``; gpuscape's own folders are in no other one."""
    top = file.name if file.parts[0] == "__pycache__" else file.parts[0]
    if top.endswith(".dist-info"):
        name = top.partition("-")[0]
    else:
        name = distributions.get(top.partition(".")[0], ["gpuscape"])[0]
    return name.lower().replace("_", "-")


def page(measured: Sequence[Part], total_bytes: int) -> str:
    """Text of docs/image.md."""
    shown = [part for part in measured if part.compressed_bytes >= SMALL_MEGABYTES * MEGABYTE]
    small = measured[len(shown) :]
    rest = Part(
        name=f"{len(small)} smaller parts",
        size_bytes=sum(part.size_bytes for part in small),
        compressed_bytes=sum(part.compressed_bytes for part in small),
    )
    left_out = {
        **image_root.PACKAGES_LEFT_OUT,
        **image_root.FILES_LEFT_OUT,
        **{f"{name} (standard library)": why for name, why in _standard_library()},
    }
    return _TEXT.format(
        system=_system(),
        python=".".join(map(str, sys.version_info[:3])),
        total=total_bytes / MEGABYTE,
        limit=LIMIT_MEGABYTES,
        parts=table(
            ("part", "MB", "MB packed"),
            (
                (part.name, _megabytes(part.size_bytes), _megabytes(part.compressed_bytes))
                for part in (*shown, rest)
            ),
        ),
        left_out=table(
            ("left out", "what it is"), ((f"`{name}`", why) for name, why in left_out.items())
        ),
    )


def written() -> float:
    """Size of the whole image in MB as docs/image.md has it."""
    return float(_TOTAL.findall(PAGE.read_text("utf-8"))[0])


def _standard_library() -> Iterable[tuple[str, str]]:
    copied_otherwise = {"__pycache__", "site-packages"}
    for name, why in image_root.STANDARD_LIBRARY_LEFT_OUT.items():
        if name not in copied_otherwise:
            yield name, why


def _megabytes(number: int) -> str:
    return f"{number / MEGABYTE:.2f}"


def _system() -> str:
    lines = Path("/etc/os-release").read_text("utf-8").splitlines()
    (name,) = (line.partition("=")[2] for line in lines if line.startswith("PRETTY_NAME="))
    return name.strip('"')


def _run(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(map(str, command[:4]))} …: {done.stderr.strip()[-2000:]}")


def main() -> int:
    """The number of the exit: 1 where the image is larger than its limit."""
    with tempfile.TemporaryDirectory() as scratch:
        root = build_root(Path(scratch))
        measured = parts(root, metadata.packages_distributions())
        total_bytes = compressed_bytes(root, root.rglob("*"))
    PAGE.write_text(page(measured, total_bytes), "utf-8")
    print(f"{total_bytes / MEGABYTE:.1f} MB packed, at most {LIMIT_MEGABYTES}: {PAGE}")
    return int(total_bytes > LIMIT_MEGABYTES * MEGABYTE)


if __name__ == "__main__":
    sys.exit(main())
