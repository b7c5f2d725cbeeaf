# SPDX-License-Identifier: Apache-2.0
"""User Mode Linux: a kernel that is a process, from Debian's package, and what it needs here.

The package is unpacked into the cache, without root; nothing is installed.
"""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from tests.controlplane.builds import NotPreparedError, cache
from tests.controlplane.debian import NoPackageError, Package, unpack

PACKAGE: Final = Package(
    package="user-mode-linux",
    version="6.1um4+b13",
    hashes={"amd64": "0ce700f835c385ab09860ad33137817402403a29e424177510244bd75a81c687"},
)
PROGRAM: Final = "usr/bin/linux.uml"
MEMORY: Final = Path("/dev/shm")  # noqa: S108 - the kernel makes a file without a name there
"""Where the guest's memory is."""
GIB: Final = 1 << 30


def unpacked() -> Path:
    """The package's root in the cache, fetched once (41 MB). Raises NotPreparedError."""
    root = cache() / f"{PACKAGE.package}-{PACKAGE.version}"
    if not root.exists():
        root.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=root.parent) as scratch:
            made = Path(scratch) / "root"
            try:
                unpack([PACKAGE], made)
            except NoPackageError as error:
                raise NotPreparedError(f"{_NONE}: {error}") from error
            with suppress(OSError):  # another run was faster
                made.rename(root)
    return root


def modules(root: Path) -> Path:
    """The folder of the kernel's modules."""
    (folder,) = (root / "usr/lib/uml/modules").iterdir()
    return folder


def demand(memory_gib: int) -> None:
    """Raise NotPreparedError, with the reason, where no guest of this size can run."""
    if reason := why_not(memory_gib):
        raise NotPreparedError(f"{_NONE}: {reason}")


def why_not(memory_gib: int, memory: Path = MEMORY) -> str:
    """What is missing and what to do, in words; empty where nothing is."""
    if platform.machine() != "x86_64":
        return f"Debian has {PACKAGE.package} for x86_64 alone: take such a machine"
    if not shutil.which("mkfs.ext4"):
        return "no program mkfs.ext4: install e2fsprogs"
    try:
        status = os.statvfs(memory)
    except OSError as error:
        return f"no {memory} ({error.strerror}): mount a tmpfs there"
    if status.f_flag & (os.ST_NOEXEC | os.ST_RDONLY):
        return f"{memory} is mounted noexec or read-only: mount it without that"
    free = min(status.f_bavail * status.f_frsize, _available_bytes())
    if free < memory_gib * GIB:
        has = f"{free / GIB:.1f} GiB of memory are free in {memory}"
        return f"{has}, the guest takes {memory_gib}: end other programs or make it larger"
    return ""


def _available_bytes() -> int:
    """Of the host's memory. Source: proc_meminfo(5), in KiB."""
    lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
    (line,) = [it for it in lines if it.startswith("MemAvailable:")]
    return int(line.split()[1]) << 10


_NONE: Final = "no User Mode Linux can run here"
