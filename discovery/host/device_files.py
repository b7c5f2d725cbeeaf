# SPDX-License-Identifier: Apache-2.0
"""Which processes have a GPU's device files open, whether or not the driver lists them.

A monitor, or a program between two kernels, is in no list of the driver's, and can be in the way
of a change of the MIG mode. Only the files of root, or of the own user, are seen, and only
processes of this PID namespace. Sources: proc(5) on fd; NVIDIA MIG user guide on
/dev/nvidia-caps and /proc/driver/nvidia-caps/mig-minors.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")

_FILE: Final = r"/dev/(?:nvidia(?P<gpu>\d+)|nvidia-caps/nvidia-cap(?P<capability>\d+))"
_MINORS: Final = Path("proc/driver/nvidia-caps/mig-minors")
_OF_INSTANCE: Final = re.compile(r"gpu(\d+)/gi\d+(?:/ci\d+)?/access (\d+)")


def openers(root: Path, *, simulated: bool = False) -> Mapping[int, frozenset[int]]:
    """Pids by the minor number of the GPU of which they have a device file open, this one not.

    The files are the GPU's own, and those of the capabilities of its MIG instances. ``root``: the
    host's; a simulated machine's files are only those below it.
    """
    where = re.escape(str(root)) if simulated else ".*"  # a container's path may begin elsewhere
    pattern, by_capability = re.compile(where + _FILE), _gpu_by_capability(root)
    found: dict[int, set[int]] = {}
    for pid in _pids():
        for name in _open_files(pid):
            match = pattern.fullmatch(name)
            if match is None:
                continue
            capability = match["capability"]
            gpu = int(match["gpu"]) if capability is None else by_capability.get(int(capability))
            if gpu is not None:
                found.setdefault(gpu, set()).add(pid)
    return {gpu: frozenset(pids) for gpu, pids in found.items()}


def process_name(pid: int) -> str:
    """What a process calls itself, in 15 characters at most.

    Empty for one that ended, or is of another PID namespace.
    """
    try:
        name = (PROC / str(pid) / "comm").read_bytes()
    except OSError:
        return ""
    text = name.decode("utf-8", "replace").strip()
    return "".join(one if one.isprintable() else "?" for one in text)


def _pids() -> Iterator[int]:
    own = os.getpid()
    for entry in PROC.iterdir():
        if entry.name.isdigit() and int(entry.name) != own:
            yield int(entry.name)


def _open_files(pid: int) -> Iterator[str]:
    """Paths of what a process has open; nothing of one that ended, or may not be looked at."""
    try:
        links = list((PROC / str(pid) / "fd").iterdir())
    except OSError:
        return
    for link in links:
        with suppress(OSError):
            yield str(link.readlink())


def _gpu_by_capability(root: Path) -> Mapping[int, int]:
    """Minor number of a capability to that of its GPU; empty where the driver has none."""
    try:
        lines = (root / _MINORS).read_text("ascii", "replace").splitlines()
    except OSError:
        return {}
    matches = filter(None, map(_OF_INSTANCE.fullmatch, lines))
    return {int(match[2]): int(match[1]) for match in matches}
