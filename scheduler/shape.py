"""What scoring uses of a node's topology: one value for all nodes of a class."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from discovery.model import FabricKind
from labelers.schema import TopologyAnnotation

_PCIE_GBPS = (24.0, 22.0, 20.0, 18.0, 14.0, 10.0)
"""GB/s in one direction to expect over PCIe, by level. Their order is what counts: where NVLink
is there it is taken instead, and every NVLink carries more."""
_POINTS_BY_LEVEL = (60, 50, 40, 30, 20, 10)
_POINTS_PER_NVLINK = 100
_MOST_NVLINKS = 18
"""More than these go-gpuallocator has no word for."""

Number = TypeVar("Number", int, float)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One topology class. Matrices are n x n and symmetric, with a zero diagonal."""

    n: int
    points: tuple[tuple[int, ...], ...]
    """What NVIDIA's device plugin gives each pair. Source: go-gpuallocator 0.5.0."""
    gbps: tuple[tuple[float, ...], ...]
    """Expected GB/s in one direction: of all NVLinks together, else of PCIe."""
    numa: tuple[int, ...]
    """NUMA node of each GPU; -1 where it is not known."""
    nics: tuple[tuple[int, ...], ...]
    """PCIe level of each NIC to each GPU, 0 to 5."""


def shape(annotation: TopologyAnnotation) -> Shape:
    """The shape that an annotation describes."""
    n, rates = annotation.n, annotation.lbw
    gbps = rates if len(rates) == n else rates * n
    visible = annotation.fab is not FabricKind.SWITCH  # the plugin passes over NVSwitch

    def points(i: int, j: int) -> int:
        nvlinks = min(annotation.links(i, j), _MOST_NVLINKS) if visible else 0
        return _POINTS_BY_LEVEL[annotation.level(i, j)] + _POINTS_PER_NVLINK * nvlinks

    def speed(i: int, j: int) -> float:
        nvlink = float(annotation.links(i, j) * min(gbps[i], gbps[j]))
        return nvlink or _PCIE_GBPS[annotation.level(i, j)]

    return Shape(
        n=n,
        points=_matrix(n, points, 0),
        gbps=_matrix(n, speed, 0.0),
        numa=annotation.numa,
        nics=tuple(tuple(int(level) for level in nic.levels) for nic in annotation.nic),
    )


def _matrix(
    n: int, entry: Callable[[int, int], Number], diagonal: Number
) -> tuple[tuple[Number, ...], ...]:
    return tuple(tuple(entry(i, j) if i != j else diagonal for j in range(n)) for i in range(n))
