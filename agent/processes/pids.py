# SPDX-License-Identifier: Apache-2.0
"""Facts about a process by its pid: its name, and the pod it runs in by its cgroup."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from discovery.host.process_pods import (
    cgroups_of,
    hidden_own_pod,
    pod_in_cgroups,
    pod_of_process,
)

MOST_NAME_CHARACTERS: Final = 64
_FIRST_NAMESPACE: Final = "pid:[4026531836]"
"""PID namespace of a machine, which is nobody's container. Source: Linux, proc_ns.h."""
_OWN: Final = "own"
"""Stands for the UID of the agent's own pod, which is not needed to compare."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessOwner:
    """Name and pod of one process, as far as they are known."""

    name: str | None = None
    """Name that the process has given itself, in valid Unicode."""
    pod_uid: str | None = None


def process_owner(proc: Path, pid: int, own_pod: str | None = None) -> ProcessOwner:
    """The process with this pid; nothing of one that ended. Only where :func:`missing` is None.

    ``own_pod`` as for :func:`pod_of_process`.
    """
    return ProcessOwner(name=_name(pid), pod_uid=pod_of_process(proc, pid, own_pod))


def missing(proc: Path) -> str | None:
    """Why the pids there are not those of the driver and the host; None where they are."""
    try:
        own = str((proc / "self").readlink())
        namespace = str((proc / "self/ns/pid").readlink())
    except OSError as error:
        return f"{proc} is no process file system: {error.strerror or error}"
    if own != str(os.getpid()):
        return f"{proc} has other pids than this agent: run it with hostPID: true"
    # a node may be a container itself: there the first process is init, not one next to the agent
    groups, first = cgroups_of(proc, "self"), cgroups_of(proc, 1)
    # the containers of a pod may share their processes: then the first is one of the pod's
    hidden = hidden_own_pod(proc, _OWN)
    pod = pod_in_cgroups(groups, hidden)
    is_of_own_pod = pod is not None and pod == pod_in_cgroups(first, hidden)
    if namespace != _FIRST_NAMESPACE and (first in ("", groups) or is_of_own_pod):
        return "no process outside the agent's pod is seen: run it with hostPID: true"
    return None


def _name(pid: int) -> str | None:
    # psutil reads the agent's own /proc, which has the same pids
    try:
        name = psutil.Process(pid).name()
    except (psutil.Error, OSError):
        return None
    return name[:MOST_NAME_CHARACTERS].encode("utf-8", "replace").decode()
