# SPDX-License-Identifier: Apache-2.0
"""Shapes by hand, and those of simulated machines."""

from __future__ import annotations

from collections.abc import Mapping

from labelers.annotations import topology_of
from placement.shape import Shape, shape
from tests.observed import observed

FAR = 10
"""Points, and GB/s, of a pair that has nothing but PCIe across CPUs."""

Links = Mapping[tuple[int, int], int]


def drawn(n: int, links: Links) -> Shape:
    """A shape with these points for pairs, which are GB/s of an NVLink too; FAR for the others."""
    entries = tuple(
        tuple(0 if i == j else links.get((min(i, j), max(i, j)), FAR) for j in range(n))
        for i in range(n)
    )
    nvlinks = tuple(tuple(int(entry > FAR) for entry in row) for row in entries)
    return Shape(n=n, points=entries, gbps=entries, nvlinks=nvlinks, numa=(0,) * n, nics=())


def machine(name: str) -> Shape:
    """That of a simulated machine."""
    return shape(topology_of(observed(name).snapshot))
