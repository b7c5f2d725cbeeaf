# SPDX-License-Identifier: Apache-2.0
"""Several NUMA nodes for the kubelet of a machine that has fewer.

The kubelet knows NUMA nodes from /sys/devices/system/node alone, and passes over those of
devices that it does not know. Source: google/cadvisor, machine/topology_linux.go and
utils/sysfs/sysfs.go, as vendored by Kubernetes 1.37; the kernel's ABI/stable/sysfs-devices-node.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.node.real_node import RealNode

PLACE: Final = "/sys/devices/system/node"
_CPUS: Final = "/sys/devices/system/cpu"
_NEAR, _FAR = "10", "21"
"""Distances within a node and to another, as firmware reports them for two sockets."""


def show(node: RealNode, numas: int = 2) -> None:
    """Have what runs on a machine see so many, with its CPUs and memory dealt out to them.

    A kubelet that runs already does not look again.
    """
    memory_kb = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 1024
    node.run("sh", "-ec", "\n".join(commands(sorted(_online()), memory_kb, numas)))


def commands(cpus: list[int], memory_kb: int, numas: int) -> Iterator[str]:
    """What a shell has to do. Pure."""
    yield f"mount -t tmpfs -o mode=755 tmpfs {PLACE}"
    every = f"0-{numas - 1}"
    for file in ("online", "possible", "has_cpu", "has_memory"):
        yield f"echo {every} > {PLACE}/{file}"
    for numa in range(numas):
        folder = f"{PLACE}/node{numa}"
        its = cpus[numa::numas]
        distances = " ".join(_NEAR if other == numa else _FAR for other in range(numas))
        yield f"mkdir -p {folder}/hugepages"
        yield f"echo {','.join(map(str, its))} > {folder}/cpulist"
        yield f"echo 'Node {numa} MemTotal: {memory_kb // numas} kB' > {folder}/meminfo"
        yield f"echo '{distances}' > {folder}/distance"
        for cpu in its:
            yield f"mkdir {folder}/cpu{cpu}"
            yield f"ln -s {_CPUS}/cpu{cpu}/topology {_CPUS}/cpu{cpu}/cache {folder}/cpu{cpu}/"


def _online() -> Iterator[int]:
    for part in Path(_CPUS, "online").read_text(encoding="utf-8").strip().split(","):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)
