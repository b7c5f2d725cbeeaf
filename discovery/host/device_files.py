# SPDX-License-Identifier: Apache-2.0
"""Processes that have device files of a GPU open, whether or not the driver lists them.

A monitor, or a program between two kernels, is in no list of the driver's, and can be in the way
of a change of the MIG mode. A container sees those of its own PID namespace, or with the host's
root mounted those of the host; files of other users take the right to look at them (root, and in a
container CAP_SYS_PTRACE). Sources: proc(5) on fd and stat; NVIDIA MIG user guide on
/dev/nvidia-caps and /proc/driver/nvidia-caps/mig-minors.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from base.text.safe_text import is_safe, safe_line

PROC: Final = Path("/proc")
HARMLESS: Final = frozenset({"nvidia-persiste", "nv-fabricmanage"})
"""nvidia-persistenced and nv-fabricmanager, by the 15 characters that the kernel keeps of a name.
They have GPUs open all the time, and NVIDIA's MIG manager leaves them running for a change of the
mode; Fabric Manager has to run for it. Where the driver finds one in its way, it says so itself.
Sources: mig-parted, default-gpu-clients; Fabric Manager User Guide, "Interoperability With
Multi-Instance GPUs"."""

_FILE: Final = r"/dev/(?:nvidia(?P<gpu>\d+)|nvidia-caps/nvidia-cap(?P<capability>\d+))"
_MINORS: Final = Path("proc/driver/nvidia-caps/mig-minors")
_OF_INSTANCE: Final = re.compile(r"gpu(\d+)/gi\d+(?:/ci\d+)?/access (\d+)")


def openers(root: Path, *, simulated: bool = False) -> Mapping[int, frozenset[int]]:
    """Minor number of a GPU to the pids of other processes that have a device file of it open.

    The files are the GPU's own, and those of the capabilities of its MIG instances. ``root``: the
    host's; a simulated machine's files are only those below it. Pids are those of
    :func:`proc_folder`.
    """
    proc = proc_folder(root)
    prefix = re.escape(str(root)) if simulated else ".*"  # a container's path may begin elsewhere
    pattern, by_capability = re.compile(prefix + _FILE), _gpu_by_capability(root)
    pids_by_gpu: dict[int, set[int]] = {}
    for pid in _pids(proc):
        for name in _open_files(proc, pid):
            match = pattern.fullmatch(name)
            if match is None:
                continue
            capability = match["capability"]
            gpu = int(match["gpu"]) if capability is None else by_capability.get(int(capability))
            if gpu is not None:
                pids_by_gpu.setdefault(gpu, set()).add(pid)
    return {gpu: frozenset(pids) for gpu, pids in pids_by_gpu.items()}


def proc_folder(root: Path) -> Path:
    """The host's /proc, where ``root`` is the host's and has it; else that of this process."""
    proc = root / "proc"
    return proc if (proc / "1" / "stat").exists() else PROC


def process_name(pid: int, proc: Path = PROC) -> str:
    """Name that a process gives itself: 15 characters at most, where none of them is escaped.

    Empty for one that ended, or is of another PID namespace.
    """
    try:
        name = (proc / str(pid) / "comm").read_bytes()
    except OSError:
        return ""
    return safe_line(name.decode("utf-8", "replace").strip())


def whole_process_name(pid: int, proc: Path = PROC) -> str:
    """Name of a process, longer than 15 characters where the command line begins with all of it.

    It stays cut where a process has written over its command line. Source: proc(5), cmdline.
    """
    cut = process_name(pid, proc)
    try:
        first = (proc / str(pid) / "cmdline").read_bytes().partition(b"\0")[0]
    except OSError:
        return cut
    whole = first.decode("utf-8", "replace").rpartition("/")[2]
    return whole if cut and whole.startswith(cut) and is_safe(whole) else cut


def ancestors(pid: int, proc: Path = PROC) -> Iterator[int]:
    """Pids of a process's ancestors: its parent first, then the parent's parent, and so on."""
    seen = {pid}
    while True:
        try:
            # behind the name, which may have any character: state, and pid of the parent
            fields = (proc / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
            pid = int(fields[1])
        except (OSError, IndexError, ValueError):
            return
        if pid in seen or not pid:
            return
        seen.add(pid)
        yield pid


def _pids(proc: Path) -> Iterator[int]:
    try:
        own = (proc / "self").readlink().name
    except OSError:
        own = str(os.getpid())
    for folder in proc.iterdir():
        if folder.name.isdigit() and folder.name != own:
            yield int(folder.name)


def _open_files(proc: Path, pid: int) -> Iterator[str]:
    """Paths of the files that a process has open; none where it ended or may not be read."""
    try:
        links = list((proc / str(pid) / "fd").iterdir())
    except OSError:
        return
    for link in links:
        with suppress(OSError):
            yield str(link.readlink())


def _gpu_by_capability(root: Path) -> Mapping[int, int]:
    """Capability's minor number to that of its GPU; empty where the driver has no capabilities."""
    try:
        lines = (root / _MINORS).read_text("ascii", "replace").splitlines()
    except OSError:
        return {}
    matches = filter(None, map(_OF_INSTANCE.fullmatch, lines))
    return {int(match[2]): int(match[1]) for match in matches}
