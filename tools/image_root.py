# SPDX-License-Identifier: Apache-2.0
"""``python tools/image_root.py FOLDER``: the file system of the image, made in its build stage.

It holds this interpreter, its standard library, gpuscape with the packages that it needs, and
the shared libraries of them all: no shell, no package installer, nothing that only builds need,
and none of the parts below that no program of gpuscape loads. ``tests/node/test_image_parts.py``
starts every command without them.
Two builds of the same sources on the same base give the same bytes, names, modes and times; the
time of every file is ``SOURCE_DATE_EPOCH``, in seconds, or 1970.
"""

from __future__ import annotations

import compileall
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from py_compile import PycInvalidationMode
from typing import Final

from packaging.requirements import Requirement

from base.process.process_signals import OBEYED

STANDARD_LIBRARY_LEFT_OUT: Final[Mapping[str, str]] = {
    "__pycache__": "compiled again, without the time of its source",
    "site-packages": "only what gpuscape needs of it is copied",
    "test": "tests",
    "_test*": "tests",
    "_xx*": "tests",
    "config-*": "for builds",
    "distutils": "for builds",
    "ensurepip": "for builds",
    "venv": "for builds",
    "idlelib": "an editor",
    "turtledemo": "windows with drawings",
    "tkinter": "windows",
    "_tkinter*": "windows",
    "lib2to3": "rewrites programs of Python 2",
    "pydoc_data": "Python's own help texts",
    "unittest": "a framework for tests",
    "sqlite3": "a database",
    "_sqlite3*": "a database, and the system's library of it",
    "dbm": "databases",
    "_dbm*": "databases",
    "_gdbm*": "databases",
    "curses": "gpuscape top writes its screen itself",
    "_curses*": "as curses, with the system's library of it",
    "readline*": "for a prompt with a history, with the system's library of it",
    "nis*": "directories of users, with the system's libraries of Kerberos and RPC",
}
"""Names of files and folders in the standard library that no program loads, and what they are."""

FILES_LEFT_OUT: Final[Mapping[str, str]] = {
    "kubernetes/aio/": "client for asyncio",
    "kubernetes/client/api/": "calls with models",
    "kubernetes/client/api_client.py": "makes models of answers; kube/official.py has the one call",
    "kubernetes/client/apis/": "calls with models",
    "kubernetes/client/models/": "a class for every kind of object; gpuscape reads JSON",
    "kubernetes/dynamic/": "client for kinds that are found at run time",
    "kubernetes/informer/": "kube/informer.py watches",
    "kubernetes/leaderelection/": "kube/lease.py holds Leases",
    "kubernetes/stream/": "exec and attach",
    "kubernetes/watch/": "kube/watch.py watches",
    "cffi/": "compiles bindings; cryptography needs its compiled module alone",
}
"""Beginnings of names of files in packages that no program loads, and what they are."""

PACKAGES_LEFT_OUT: Final[Mapping[str, str]] = {
    "aiohttp": "of kubernetes: client for asyncio",
    "aiohttp-retry": "of kubernetes: client for asyncio",
    "durationpy": "of kubernetes: durations as text",
    "markdown-it-py": "of rich: Markdown on a terminal",
    "pycparser": "of cffi: compiles bindings",
    "pydantic": "of kubernetes: models",
    "pygments": "of rich: source code in colours",
    "python-dateutil": "of kubernetes: models",
    "websocket-client": "of kubernetes: exec and attach",
}
"""Packages that nothing else asks for, and what their packages use them for; what only these need
is left out with them."""

OF_ONE_BUILD = frozenset({"RECORD", "REQUESTED", "INSTALLER", "direct_url.json"})
"""Notes of the installer about itself and about folders of the build."""

ETC = ("debian_version", "os-release", "ld.so.conf", "ld.so.conf.d", "passwd", "group")
"""For NVIDIA's container toolkit, which puts the driver's library where the system would have
it and makes the loader's cache anew; for scanners; and so that user ids have names."""

EMPTY = ("dev", "proc", "run", "sys", "tmp", "var")
"""Folders on which a container's runtime mounts something, or that programs expect."""
EVERYBODYS = 0o1777
"""Mode of /tmp: the image runs as nobody, and a simulated machine is written there."""

BLOCKER = Path("/usr/bin/env")
"""GNU coreutils' own, of version 8.31 or later: it blocks signals and becomes the program."""

START = """\
#!{blocker} -S --block-signal={signals} {python} -I
import sys
from gpuscape.__main__ import main
sys.exit(main())
"""
"""The command: isolated, so that neither variables nor the working folder add code.

Signals wait from its first moment on, not only when Python has started: a container's first
process loses those that it neither blocks nor handles, and SIGTERM comes once.
Source: pid_namespaces(7), signal(7); a signal mask is kept by execve(2).
"""


def build(root: Path) -> None:
    """Fill ``root``, an empty folder. Raises OSError or CalledProcessError where that fails."""
    make_folders(root)
    for name in ("bin", "lib", "lib64", "sbin"):  # as the system has them: links into /usr
        if (target := Path("/", name)).is_symlink():
            (root / name).symlink_to(target.readlink())
            (root / target.readlink()).mkdir(parents=True, exist_ok=True)
    for name in ETC:
        _copy(Path("/etc", name), root)
    python = Path(sys._base_executable).resolve()  # type: ignore[attr-defined] # typeshed lacks it
    library = Path(sysconfig.get_path("stdlib"))
    _copy(python, root)
    _copy(BLOCKER, root)
    _copy(library, root)
    _copy_packages(_below(root, library / "site-packages"))
    for file in _libraries(root):
        _copy(file, root)
    _strip_interpreter(_below(root, Path(sys.base_prefix)))
    compileall.compile_dir(
        _below(root, library),
        quiet=2,
        stripdir=root,
        invalidation_mode=PycInvalidationMode.UNCHECKED_HASH,  # no time of a source in it
    )
    command = _below(root, python.with_name("gpuscape"))
    command.write_text(start_of(python))
    command.chmod(0o755)
    subprocess.run(["/sbin/ldconfig", "-r", str(root)], check=True)
    shutil.rmtree(root / "var/cache/ldconfig", ignore_errors=True)  # it has times and inodes
    settle(root, int(os.environ.get("SOURCE_DATE_EPOCH", "0")))


def _strip_interpreter(prefix: Path) -> None:
    """Take debugging information out of the interpreter, where the base has ``strip``.

    The published base has neither: its interpreter is linked with ``--strip-all``. Packages stay as
    they were published.
    """
    if strip := shutil.which("strip"):
        files = [*prefix.glob("bin/python*"), *prefix.rglob("*.so*")]
        own = [file for file in files if "site-packages" not in file.parts]
        subprocess.run([strip, "--strip-unneeded", *own], check=True)


def settle(root: Path, seconds: int) -> None:
    """Everything at and below ``root`` gets this time, and no rights but those that count.

    A file may be read by all and written by its owner; one that can be executed stays so.
    """
    for path in (root, *root.rglob("*")):
        if not path.is_symlink() and path != root / "tmp":
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
    for path in (root, *root.rglob("*")):
        os.utime(path, (seconds, seconds), follow_symlinks=False)


def start_of(python: Path) -> str:
    """The text of the command that this interpreter runs."""
    signals = ",".join(signal.name.removeprefix("SIG") for signal in OBEYED)
    return START.format(blocker=BLOCKER, signals=signals, python=python)


def make_folders(root: Path) -> None:
    """The empty folders of the image; all may write to /tmp, and nobody removes another's files."""
    for folder in EMPTY:
        (root / folder).mkdir(parents=True)
    (root / "tmp").chmod(EVERYBODYS)


def _copy_packages(site: Path) -> None:
    """gpuscape and what it needs, without the scripts of others."""
    for package in _needed("gpuscape"):
        for file in metadata.files(package) or ():
            if {"..", "__pycache__"}.isdisjoint(file.parts) and not _unused(file):
                target = site / file
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file.locate(), target)


def _unused(file: metadata.PackagePath) -> bool:
    about = file.parts[0].endswith(".dist-info") and file.name in OF_ONE_BUILD
    return about or str(file).startswith(tuple(FILES_LEFT_OUT))


def _needed(package: str) -> set[str]:
    """The package and all that it needs here, extras left out; names normalised."""
    needed: set[str] = set()
    ahead = [package]
    while ahead:
        name = re.sub(r"[-_.]+", "-", ahead.pop()).lower()
        if name not in needed | PACKAGES_LEFT_OUT.keys():
            needed.add(name)
            requirements = [Requirement(line) for line in metadata.requires(name) or ()]
            ahead += [
                requirement.name
                for requirement in requirements
                if requirement.marker is None or requirement.marker.evaluate()
            ]
    return needed


def _libraries(root: Path) -> list[Path]:
    """What the programs and libraries below ``root`` load from outside it, the loader too."""
    libraries: set[str] = set()
    for file in root.rglob("*"):
        if file.is_file() and file.open("rb").read(4) == b"\x7fELF":
            # in status and output it shows only that some load nothing
            done = subprocess.run(
                ["/usr/bin/ldd", str(file)], capture_output=True, text=True, check=False
            )
            libraries |= set(re.findall(r"(/\S+) \(0x", done.stdout))
    return [Path(name) for name in sorted(libraries) if not Path(name).is_relative_to(root)]


def _copy(source: Path, root: Path) -> None:
    """A file, or a folder with what is of use in it, to the same place below ``root``."""
    target = _below(root, source)
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        unused = shutil.ignore_patterns(*STANDARD_LIBRARY_LEFT_OUT)
        shutil.copytree(source, target, symlinks=True, ignore=unused)
    else:
        shutil.copy2(source, target)


def _below(root: Path, path: Path) -> Path:
    return root / path.relative_to("/")


if __name__ == "__main__":
    os.umask(0o022)
    build(Path(sys.argv[1]))
