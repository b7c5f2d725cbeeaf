# SPDX-License-Identifier: Apache-2.0
"""How go-gpuallocator sees the links between a node's GPUs: its link types, by its numbers.

Source: go-gpuallocator v0.5.0, internal/links/device.go and gpuallocator/device.go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from discovery.model import GpuSnapshot, NodeSnapshot

LinkTypes = Sequence[Sequence[tuple[int, ...]]]
"""``[i][j]``: types of the links from GPU i to GPU j; empty on the diagonal."""

SAME_BOARD = 6
"""Less by one for each PCIe ancestor level: 1 is across CPUs."""
MOST_NVLINKS = 18
"""The library's types end there."""


def link_types(snapshot: NodeSnapshot) -> LinkTypes:
    """Between all GPUs of the node, in bus order.

    A type for the PCIe path, where it is known, and one for all NVLinks together. Only
    those that name the other GPU as their far end count: the library passes over
    NVSwitch. Each direction is as its own end sees it, and may differ from the other.
    """
    direct = [_direct(gpu) for gpu in snapshot.gpus]
    return types_between([gpu.bus_id for gpu in snapshot.gpus], direct, snapshot.topology.pcie)


def types_between(
    bus_ids: Sequence[str],
    direct: Sequence[Mapping[str | None, int]],
    pcie: Sequence[Sequence[int | None]],
) -> LinkTypes:
    """The same from its parts: each GPU's bus id, its active NVLinks by far end, PCIe levels."""
    return tuple(
        tuple(
            _types(pcie[i][j], direct[i].get(other, 0)) if i != j else ()
            for j, other in enumerate(bus_ids)
        )
        for i in range(len(bus_ids))
    )


def _direct(gpu: GpuSnapshot) -> Counter[str | None]:
    """Far end's bus id to active NVLinks."""
    return Counter(
        link.peer_bus_id for link in (gpu.nvidia.links if gpu.nvidia else ()) if link.active
    )


def _types(level: int | None, nvlinks: int) -> tuple[int, ...]:
    pcie = () if level is None else (SAME_BOARD - level,)
    return pcie + ((SAME_BOARD + min(nvlinks, MOST_NVLINKS),) if nvlinks else ())
