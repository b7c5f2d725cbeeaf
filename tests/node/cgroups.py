# SPDX-License-Identifier: Apache-2.0
"""The cgroups of one machine: a folder in each hierarchy, below those of this process.

Version 1 alone, where each controller has a hierarchy of its own. Source: cgroups(7),
cgroup_namespaces(7).
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
"""Controllers without which a kubelet or runc does not start."""
REMOVE_SECONDS: Final = 10.0
"""The last processes of a machine may take a moment to be gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hierarchy:
    """One hierarchy of version 1."""

    controllers: str
    """As the option of a mount, such as ``memory``, ``cpu,cpuacct`` or ``name=systemd``."""
    folder: Path
    """Where this process is in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cgroups:
    """One machine's folders; who made them removes them."""

    folders: Sequence[Path]

    @classmethod
    def create(cls) -> Self:
        """Make one in each hierarchy. Raises OSError."""
        name = f"{PREFIX}{os.getpid()}-{_start_time(os.getpid())}"
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


def hierarchies() -> tuple[Hierarchy, ...]:
    """The hierarchies of version 1 that are mounted here; none where there is version 2 alone."""
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
    """Controllers that a node needs and that have no hierarchy here."""
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
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", ROOT], check=True)
    for controllers in filter(None, every):
        folder = ROOT / controllers.removeprefix("name=")
        folder.mkdir()
        options = f"none,{controllers}" if controllers.startswith("name=") else controllers
        subprocess.run(["mount", "-t", "cgroup", "-o", options, "cgroup", folder], check=True)


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
