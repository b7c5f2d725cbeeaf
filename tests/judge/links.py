# SPDX-License-Identifier: Apache-2.0
"""The links between the GPUs of one machine, as the judge reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from api.fabric_kind import FabricKind
from api.topology_annotation import TopologyAnnotation

FARTHEST = 5
"""PCIe level of GPUs on different sockets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """Links of one machine: NVLinks and PCIe levels of each pair, symmetric, zero diagonal."""

    nvlinks: tuple[tuple[int, ...], ...]
    """How many NVLinks join two GPUs; with an NVSwitch, how many a GPU has to the switch."""
    levels: tuple[tuple[int, ...], ...]
    """PCIe level: 0 same board, 1 one switch, 2 several, 3 same host bridge, 4 same NUMA node,
    5 across sockets."""
    is_switched: bool = False
    """All NVLinks lead to NVSwitches, so that any GPU reaches any other at the full rate."""

    @property
    def n(self) -> int:
        """Number of GPUs."""
        return len(self.nvlinks)


def links_of(annotation: TopologyAnnotation) -> Links:
    """The links that a Node's topology annotation describes."""
    places = range(annotation.n)
    return Links(
        nvlinks=tuple(tuple(annotation.links(i, j) for j in places) for i in places),
        levels=tuple(tuple(annotation.level(i, j) for j in places) for i in places),
        is_switched=annotation.fab is FabricKind.SWITCH,
    )


def drawn(n: int, nvlinks: Mapping[tuple[int, int], int], level: int = FARTHEST) -> Links:
    """Links by hand: NVLinks of the pairs that have some, one PCIe level for all pairs."""
    both = {**nvlinks, **{(j, i): count for (i, j), count in nvlinks.items()}}
    return Links(
        nvlinks=tuple(tuple(both.get((i, j), 0) for j in range(n)) for i in range(n)),
        levels=tuple(tuple(level if i != j else 0 for j in range(n)) for i in range(n)),
    )
