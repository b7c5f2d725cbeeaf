# SPDX-License-Identifier: Apache-2.0
"""Pods of a node that have ended and are not deleted: the kubelet has removed their cgroups.

The kubelet makes a pod's cgroup before it starts the pod's first container, and keeps it until the
pod has ended for good: while its containers crash and come again, it is there.
Safety: a pod counts as ended only where one of its containers has written its log since the boot,
so that the cgroup has been there, and where the cgroup of another pod is seen.
Source: Kubernetes 1.32.2 and 1.37.1, pkg/kubelet/kubelet.go, SyncPod and SyncTerminatedPod.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from discovery.host.process_pods import pod_in_path

CGROUPS: Final = Path("sys/fs/cgroup")
_TOP: Final = ("*kubepods*", "*/*kubepods*")
"""Cgroups above those of all pods: of version 2, and in each hierarchy of version 1."""
_PODS: Final = ("*pod*", "*/*pod*")
"""Below: pods with guaranteed resources, and those of the other two classes."""


def ended_pods(root: Path, logs: Mapping[str, Path], now: float) -> frozenset[str]:
    """UIDs of the pods that have surely ended; ``logs``: UID to the folder of the pod's logs.

    ``root``: the host's; ``now``: seconds since the epoch. Static pods are never among them: their
    UIDs come again.
    """
    booted = now - time.clock_gettime(time.CLOCK_BOOTTIME)
    # first: a pod that has a log now has a cgroup from then on
    started = {uid for uid, folder in logs.items() if "-" in uid and _written(folder, booted, now)}
    try:
        shown = frozenset(_shown(root / CGROUPS)) if started else frozenset()
    except OSError:  # one was removed just now
        return frozenset()
    return frozenset(started - shown) if shown else frozenset()


def _written(folder: Path, since: float, now: float) -> bool:
    """Whether a container has begun a log, or written to it, since then.

    One of a time to come is of before the boot, and the clock was set back or is not set yet.
    """
    try:
        return any(since <= log.stat().st_mtime <= now for log in folder.glob("*/*.log"))
    except OSError:
        return False


def _shown(cgroups: Path) -> Iterator[str]:
    """UIDs of all pods that have a cgroup. Raises OSError."""
    for top in (found for pattern in _TOP for found in cgroups.glob(pattern)):
        for cgroup in (found for pattern in _PODS for found in top.glob(pattern)):
            if uid := pod_in_path(str(cgroup.relative_to(cgroups))):
                yield uid
