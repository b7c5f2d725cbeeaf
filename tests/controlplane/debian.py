# SPDX-License-Identifier: Apache-2.0
"""Debian's packages, pinned by their hash: C libraries that a build links, and whole programs.

No root is needed: apt fetches a package, and it is unpacked into the cache. A library is the
machine's own where it has one; it is linked statically, so what is built runs where the package is
not installed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

LISTS = (
    "Dir::State::Lists={folder}/lists",
    "Dir::Cache={folder}/cache",
    "Debug::NoLocking=true",
)
"""Options that let apt read the archives' lists into a folder of ours, without root."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """A C library with its headers."""

    name: str
    """What pkg-config calls it."""
    archive: str
    """The static library's file name."""
    package: str
    """Debian's package with headers and static library."""
    version: str
    hashes: Mapping[str, str] = field(hash=False)
    """SHA-256 of the package by Debian's name of the architecture."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A package with programs, or with libraries that those load."""

    package: str
    version: str
    hashes: Mapping[str, str] = field(hash=False)
    """As those of a library."""


class NoPackageError(Exception):
    """A package could not be had; the text has its name and the reason."""


class NoLibraryError(Exception):
    """A library is missing, and could not be brought; the text says what to do."""


def unpack(packages: Sequence[Package], to: Path) -> None:
    """Unpack packages into one folder, which is made; nothing is configured. Raises NoPackageError.

    A program of theirs finds its libraries by LD_LIBRARY_PATH alone.
    """
    for package in packages:
        with tempfile.TemporaryDirectory(dir=to.parent) as scratch:
            try:
                _run(["dpkg-deb", "-x", _fetched(package, Path(scratch)), to], Path(scratch))
            except (OSError, subprocess.CalledProcessError) as error:
                named = f"Debian's package {package.package} {package.version}"
                raise NoPackageError(f"{named} could not be had ({_reason(error)})") from error


def compiler_settings(
    library: Library, cache: Path, say: Callable[[str], None]
) -> Mapping[str, str]:
    """The environment in which Go finds headers and library; empty where the machine has them.

    Raises NoLibraryError.
    """
    if _is_installed(library):
        return {}
    unpacked = cache / f"{library.package}-{library.version}"
    if not unpacked.exists():
        say(f"no headers of {library.name} on this machine: unpacking Debian's package")
        _bring(library, unpacked)
    (archive,) = unpacked.rglob(library.archive)
    return {
        "CGO_CFLAGS": f"-O2 -I{unpacked / 'usr/include'}",
        "CGO_LDFLAGS": str(archive),
        "PKG_CONFIG": "true",  # a program that says nothing: all is said above
    }


def _is_installed(library: Library) -> bool:
    if not shutil.which("pkg-config"):
        return False
    return subprocess.run(["pkg-config", "--exists", library.name], check=False).returncode == 0


def _bring(library: Library, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=to.parent) as scratch:
        try:
            file = _fetched(library, Path(scratch))
            unpacked = Path(scratch) / "unpacked"
            _run(["dpkg-deb", "-x", file, unpacked], Path(scratch))
        except (OSError, subprocess.CalledProcessError) as error:
            raise NoLibraryError(
                f"no headers of {library.name}, and Debian's package {library.package} "
                f"{library.version} could not be had ({_reason(error)}): install {library.package} "
                f"and pkg-config, or what your system calls them"
            ) from error
        unpacked.rename(to)


def _reason(error: OSError | subprocess.CalledProcessError) -> str:
    output = getattr(error, "stderr", None) or str(error)
    return str(output).strip().splitlines()[-1]


def _fetched(package: Package | Library, folder: Path) -> Path:
    """The package's file, whole and the one that is pinned. Raises OSError, CalledProcessError."""
    wanted = f"{package.package}={package.version}"
    try:
        _run(["apt-get", "download", wanted], folder)
    except subprocess.CalledProcessError:
        # no lists of the archives here, as in fresh containers, or old ones
        (folder / "lists" / "partial").mkdir(parents=True)
        (folder / "cache" / "archives" / "partial").mkdir(parents=True)
        options = [f"-o{option.format(folder=folder)}" for option in LISTS]
        _run(["apt-get", *options, "update"], folder)
        _run(["apt-get", *options, "download", wanted], folder)
    (file,) = folder.glob("*.deb")
    found = hashlib.sha256(file.read_bytes()).hexdigest()
    architecture = file.stem.rpartition("_")[2]
    if found != package.hashes.get(architecture):
        raise OSError(f"{file.name} is not the pinned one: its SHA-256 is {found}")
    return file


def _run(command: Sequence[str | Path], folder: Path) -> None:
    subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "LC_ALL": "C"},
        capture_output=True,
        text=True,
        check=True,
    )
