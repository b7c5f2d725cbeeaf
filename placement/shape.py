# SPDX-License-Identifier: Apache-2.0
"""The part of a node's topology that scoring uses: one value for all nodes of a class."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from api.fabric_kind import FabricKind
from api.topology_annotation import TopologyAnnotation

Matrix = tuple[tuple[int, ...], ...]
"""n x n and symmetric, with a zero diagonal."""

_PCIE_GBPS = (24, 22, 20, 18, 14, 10)
"""GB/s in one direction to expect over PCIe, by level. Their order is what counts: where NVLink
is there it is taken instead, and every NVLink carries more."""
_NVLINK_GBPS = 25
"""Rate of one NVLink where the node does not report it: that of Volta to Hopper."""
_POINTS_BY_LEVEL = (60, 50, 40, 30, 20, 10)
_POINTS_PER_NVLINK = 100
_MOST_NVLINKS = 18
"""Most NVLinks between two GPUs that go-gpuallocator tells apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Links of one topology class: what scoring uses of the topology annotation."""

    n: int
    points: Matrix
    """Points of each pair in NVIDIA's device plugin. Source: go-gpuallocator 0.5.0."""
    gbps: Matrix
    """Expected GB/s in one direction: of all NVLinks together, else of PCIe."""
    nvlinks: Matrix
    """NVLinks of each pair; through NVSwitch all those of a GPU."""
    switched: bool = False
    """NVSwitch joins the GPUs, so that a set's GPUs have all their NVLinks among each other."""
    numa: tuple[int, ...]
    """NUMA node of each GPU; -1 where it is not known."""
    nics: tuple[tuple[int, ...], ...]
    """PCIe level of each NIC to each GPU, 0 to 5."""


def shape(annotation: TopologyAnnotation) -> Shape:
    """The shape that an annotation describes."""
    n, rates = annotation.n, annotation.lbw
    rates_gbps = [
        reported or _NVLINK_GBPS for reported in (rates if len(rates) == n else rates * n)
    ]
    visible = annotation.fab is not FabricKind.SWITCH  # the plugin passes over NVSwitch

    def points(i: int, j: int) -> int:
        nvlinks = min(annotation.links(i, j), _MOST_NVLINKS) if visible else 0
        return _POINTS_BY_LEVEL[annotation.level(i, j)] + _POINTS_PER_NVLINK * nvlinks

    def gbps(i: int, j: int) -> int:
        nvlink = annotation.links(i, j) * min(rates_gbps[i], rates_gbps[j])
        return nvlink or _PCIE_GBPS[annotation.level(i, j)]

    return Shape(
        n=n,
        points=_matrix(n, points),
        gbps=_matrix(n, gbps),
        nvlinks=_matrix(n, annotation.links),
        switched=annotation.fab is FabricKind.SWITCH,
        numa=annotation.numa,
        nics=tuple(tuple(int(level) for level in nic.levels) for nic in annotation.nic),
    )


def _matrix(n: int, entry: Callable[[int, int], int]) -> Matrix:
    return tuple(tuple(entry(i, j) if i != j else 0 for j in range(n)) for i in range(n))
