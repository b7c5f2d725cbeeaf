# SPDX-License-Identifier: Apache-2.0
"""Facts about a process by its pid: its name, and the pod it runs in by its cgroup."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

MOST_NAME_CHARACTERS: Final = 64
_MOST_CGROUP_BYTES: Final = 64 << 10

_UID = r"[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32}"
"""The second is that of a pod from a file on the node. Slices write ``_``: their ``-`` nests."""
_POD = re.compile(rf"(?:^|[/-])pod({_UID})(?=\.slice|[/:]|$)")
"""A folder ``pod<uid>``, or systemd's ``kubepods-burstable-pod<uid>.slice``, whatever the runtime
has below it; ``…slice:cri-containerd:<id>`` where runtime and kubelet disagree on the driver.
Source: Kubernetes, pkg/kubelet/cm: cgroup_manager_linux.go, pod_container_manager_linux.go."""
_FIRST_NAMESPACE: Final = "pid:[4026531836]"
"""PID namespace of a machine, which is nobody's container. Source: Linux, proc_ns.h."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessOwner:
    """Name and pod of one process, as far as they are known."""

    name: str | None = None
    """Name that the process has given itself, in valid Unicode."""
    pod_uid: str | None = None


def process_owner(proc: Path, pid: int) -> ProcessOwner:
    """The process with this pid; nothing of one that ended. Only where :func:`missing` is None."""
    return ProcessOwner(name=_name(pid), pod_uid=pod_of(proc, pid))


def pod_of(proc: Path, pid: int) -> str | None:
    """UID of the pod that a process runs in; only where :func:`missing` is None."""
    return pod_uid(_start_of(proc / str(pid) / "cgroup"))


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
    first = _start_of(proc / "1/cgroup")
    if namespace != _FIRST_NAMESPACE and first in ("", _start_of(proc / "self/cgroup")):
        return "no process outside the agent's container is seen: run it with hostPID: true"
    return None


def pod_uid(cgroup: str) -> str | None:
    """UID of the pod in the text of a ``/proc/PID/cgroup``; None where it names none.

    One line for each hierarchy of version 1, and one for version 2: ``7:memory:/path``. Seen
    from a cgroup namespace the path begins with ``/..`` for each level above, and what is left
    still names the pod. The outermost name counts: a container may make cgroups below its own
    and call them as it likes. Source: cgroups(7), cgroup_namespaces(7).
    """
    for line in cgroup.splitlines():
        if match := _POD.search(line.split(":", 2)[-1]):
            return match[1].replace("_", "-")
    return None


def _name(pid: int) -> str | None:
    # psutil reads the agent's own /proc, which has the same pids
    try:
        name = psutil.Process(pid).name()
    except (psutil.Error, OSError):
        return None
    return name[:MOST_NAME_CHARACTERS].encode("utf-8", "replace").decode()


def _start_of(file: Path) -> str:
    """The text of a file that is never long; empty where it cannot be read."""
    try:
        with file.open("rb") as opened:
            return opened.read(_MOST_CGROUP_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
