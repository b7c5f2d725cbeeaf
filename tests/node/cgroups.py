# SPDX-License-Identifier: Apache-2.0
"""The cgroups of one machine: a folder in each hierarchy.

Version 1: each controller has a hierarchy of its own, and the folder is below that of this
process. Version 2, if it is there alone: one hierarchy, and the folder is at its top, since only
there may a cgroup have processes as well as others below it that have controllers.
Source: cgroups(7), cgroup_namespaces(7), the kernel's admin-guide/cgroup-v2.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

ROOT: Final = Path("/sys/fs/cgroup")
PREFIX: Final = "gpuscape-machine-"
"""Begins the names of our folders; process id and start time of who made one follow."""
NEEDED: Final = frozenset(("blkio", "cpu", "cpuacct", "cpuset", "devices", "memory", "pids"))
"""Controllers of version 1 without which a kubelet or runc does not start."""
NEEDED_V2: Final = frozenset(("cpu", "memory", "pids"))
"""The same of version 2."""
WANTED_V2: Final = NEEDED_V2 | {"cpuset", "hugetlb", "io"}
"""What a machine gets of those that are there."""
FIRST: Final = "init"
"""On version 2, where a machine's own processes are: beside the cgroups of its containers."""
REMOVE_SECONDS: Final = 10.0
"""The last processes of a machine may take a moment to be gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hierarchy:
    """One hierarchy."""

    controllers: str
    """As the option of a mount, such as ``memory``, ``cpu,cpuacct`` or ``name=systemd``; empty for
    that of version 2."""
    folder: Path
    """Where machines' folders are made in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cgroups:
    """One machine's folders; who made them removes them."""

    folders: Sequence[Path]

    @classmethod
    def create(cls) -> Self:
        """Make one in each hierarchy. Raises OSError."""
        name = f"{PREFIX}{os.getpid()}-{_start_time(os.getpid())}"
        if is_unified():
            _enable(ROOT)
        folders = []
        for hierarchy in hierarchies():
            folder = hierarchy.folder / name
            folder.mkdir()
            folders.append(folder)
            for file in ("cpuset.cpus", "cpuset.mems"):  # which begin empty
                if (folder / file).exists():
                    (folder / file).write_text((hierarchy.folder / file).read_text())
        return cls(folders=tuple(folders))

    def join(self) -> None:
        """Move this process into all of them."""
        for folder in self.folders:
            (folder / "cgroup.procs").write_text("0")

    def remove(self) -> None:
        """Remove them and all below, when the processes in them have ended."""
        for folder in self.folders:
            _remove(folder)


def is_unified() -> bool:
    """Whether version 2 is there alone."""
    return (ROOT / "cgroup.controllers").exists()


def hierarchies() -> tuple[Hierarchy, ...]:
    """Those of version 1 that are mounted here; that of version 2 where it is there alone."""
    if is_unified():
        return (Hierarchy(controllers="", folder=ROOT),)
    mounted = dict(_mounts())
    found = []
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers in mounted:
            at, root = mounted[controllers]
            folder = at / os.path.relpath(path, root)
            found.append(Hierarchy(controllers=controllers, folder=folder))
    return tuple(found)


def lacking() -> frozenset[str]:
    """Controllers that a node needs and that are not here."""
    if is_unified():
        return NEEDED_V2 - set((ROOT / "cgroup.controllers").read_text().split())
    here = {name for it in hierarchies() for name in it.controllers.split(",")}
    return NEEDED - here


def sweep() -> None:
    """Remove what a killed maker of a machine left behind."""
    for hierarchy in hierarchies():
        for folder in hierarchy.folder.glob(f"{PREFIX}*"):
            pid, _, started = folder.name.removeprefix(PREFIX).partition("-")
            if _start_time(int(pid)) != started:
                _remove(folder)


def mount() -> None:
    """Mount all hierarchies below a new /sys, as this process's cgroup namespace shows them."""
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    every = [line.split(":", 2)[1] for line in lines]
    if every == [""]:
        _mount_unified()
        return
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", ROOT], check=True)
    for controllers in filter(None, every):
        folder = ROOT / controllers.removeprefix("name=")
        folder.mkdir()
        options = f"none,{controllers}" if controllers.startswith("name=") else controllers
        subprocess.run(["mount", "-t", "cgroup", "-o", options, "cgroup", folder], check=True)


def _mount_unified() -> None:
    """Mount the one hierarchy, and leave its top to the cgroups of containers."""
    subprocess.run(["mount", "-t", "cgroup2", "cgroup2", ROOT], check=True)
    (ROOT / FIRST).mkdir()
    for pid in (ROOT / "cgroup.procs").read_text().split():
        (ROOT / FIRST / "cgroup.procs").write_text(pid)
    _enable(ROOT)


def _enable(folder: Path) -> None:
    """Have the cgroups below one of version 2 use its controllers. Raises OSError."""
    for name in WANTED_V2 & set((folder / "cgroup.controllers").read_text().split()):
        (folder / "cgroup.subtree_control").write_text(f"+{name}")


def _mounts() -> Iterator[tuple[str, tuple[Path, str]]]:
    """Controllers of each mounted hierarchy, where it is mounted, and the part that is."""
    known = {line.split(":", 2)[1] for line in Path("/proc/self/cgroup").read_text().splitlines()}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        place, _, rest = line.partition(" - ")
        kind, _, options = rest.split(" ", 2)
        if kind == "cgroup":
            root, at = place.split()[3:5]
            mounted = set(options.split(","))
            for controllers in known:
                if controllers and set(controllers.split(",")) <= mounted:
                    yield controllers, (Path(at), root)


def _remove(folder: Path) -> None:
    deadline = time.monotonic() + REMOVE_SECONDS
    while folder.exists():
        try:
            for inner, _, _ in os.walk(folder, topdown=False):
                Path(inner).rmdir()
        except OSError:
            if time.monotonic() > deadline:
                return
            time.sleep(0.05)


def _start_time(pid: int) -> str:
    """In ticks since the boot; empty where it does not run. Source: proc_pid_stat(5)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]
