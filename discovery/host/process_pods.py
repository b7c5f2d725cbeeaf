# SPDX-License-Identifier: Apache-2.0
"""The pod that a process runs in, by its cgroup: the kubelet puts a pod's UID into the name.

A reader in a cgroup namespace of its own sees paths from its own container: ``/`` is that
container, ``/..`` is one level above. The kernel does not name the reader's own pod then, so its
UID has to come from the downward API. containerd, CRI-O and Docker make such namespaces on cgroup
version 2; Docker also for privileged containers.
Sources: cgroups(7), cgroup_namespaces(7); Kubernetes, pkg/kubelet/cm: cgroup_manager_linux.go,
pod_container_manager_linux.go.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_MOST_BYTES: Final = 64 << 10
_INITIAL_NAMESPACE: Final = "cgroup:[4026531835]"
"""Cgroup namespace of the machine itself. Source: Linux, proc_ns.h, PROC_CGROUP_INIT_INO."""

_UID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32}")
"""The second is a static pod's: a hash of its manifest."""
_CLASSES: Final = frozenset({"burstable", "besteffort"})
_SLICE: Final = re.compile(
    r"(?P<parent>(?:.+-)?kubepods(?:-burstable|-besteffort)?)-pod(?P<uid>[0-9a-f_]+)\.slice"
    r"(?P<flat>:[^:]+:[^:]+)?"
)
"""A pod's slice, in which ``_`` stands for ``-``; with ``flat`` a container's own group, where the
runtime writes systemd's names into folders: ``….slice:cri-containerd:<id>``."""
_CONTAINER: Final = re.compile(r"(?:[a-z]+-)*[0-9a-f]{64}(?:\.scope)?")
"""A container's group below its pod's, whatever the runtime calls it."""


def pod_of_process(proc: Path, pid: int, own_pod: str | None = None) -> str | None:
    """UID of the pod that a process runs in; None if it is in none, or has ended.

    ``proc``: a process file system; ``own_pod`` as from :func:`hidden_own_pod`.
    """
    return pod_in_cgroups(cgroups_of(proc, pid), own_pod)


def hidden_own_pod(proc: Path, pod_uid: str | None) -> str | None:
    """``pod_uid``, if a cgroup namespace hides this process's own pod; else None.

    ``pod_uid``: from the downward API, None outside of a pod. Where nothing is hidden, the cgroups
    name the own pod too, and a path without ``/..`` is a program of the host.
    """
    try:
        namespace = str((proc / "self/ns/cgroup").readlink())
    except OSError:
        return None
    paths = list(_paths(cgroups_of(proc, "self")))
    is_hidden = namespace != _INITIAL_NAMESPACE and bool(paths) and set(paths) == {"/"}
    return pod_uid if is_hidden else None


def cgroups_of(proc: Path, pid: int | str) -> str:
    """Text of ``/proc/PID/cgroup``, its first 64 KiB; empty if it cannot be read."""
    try:
        with (proc / str(pid) / "cgroup").open("rb") as opened:
            return opened.read(_MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


def pod_in_cgroups(text: str, own_pod: str | None = None) -> str | None:
    """UID of the pod in the text of a ``/proc/PID/cgroup``; None where it is of no pod. Pure.

    One line for each hierarchy of version 1, and one for version 2: ``7:memory:/path``. The first
    line that names a pod counts. ``own_pod``: UID of the reader's own pod, if a cgroup namespace
    hides it; the process is in that pod if all its groups are below the reader's container or
    below another container next to it.
    """
    paths = list(_paths(text))
    named = next(filter(None, map(pod_in_path, paths)), None)
    if named is None and own_pod is not None and paths and all(map(_is_in_own_pod, paths)):
        return own_pod
    return named


def pod_in_path(path: str) -> str | None:
    """UID of the pod that the path of a cgroup names; None where it names none. Pure.

    The outermost name counts, since a container may make groups below its own and name them as it
    likes. So may a user's systemd manager: nothing below it is a pod.
    """
    groups = path.removesuffix(" (deleted)").split("/")
    for depth, group in enumerate(groups):
        if group == "user.slice" or group.startswith("user@"):
            return None
        if uid := _pod_of_group(group, groups[:depth]):
            return uid
    return None


def _pod_of_group(group: str, above: list[str]) -> str | None:
    """UID of the pod whose group this is: only below the groups in which a kubelet makes pods'."""
    parent = above[-1] if above else ""
    if match := _SLICE.fullmatch(group):
        uid = match["uid"].replace("_", "-")
        # systemd puts a-b.slice into a.slice
        is_placed = match["flat"] or parent in ("..", f"{match['parent']}.slice")
    else:
        uid = group.removeprefix("pod")
        top = above[-2] if parent in _CLASSES and len(above) > 1 else parent
        is_placed = group.startswith("pod") and top in ("kubepods", "..")
    return uid if is_placed and _UID.fullmatch(uid) else None


def _is_in_own_pod(path: str) -> bool:
    """Whether a path, as seen from a container, is of that container or of one next to it.

    crun runs a container's programs in ``<container>/container``, so the next is two levels up.
    """
    match path.removesuffix(" (deleted)").split("/")[1:]:
        case ["..", "..", str(group), "container", *_]:
            return group.endswith(".scope") and _CONTAINER.fullmatch(group) is not None
        case ["..", str(group), *_]:
            return _CONTAINER.fullmatch(group) is not None
        case [str(group), *_]:
            return group != ".."
        case _:
            return False


def _paths(text: str) -> Iterator[str]:
    for line in text.splitlines():
        _, _, path = line.split(":", 2) if line.count(":") > 1 else ("", "", "")
        if path:
            yield path
