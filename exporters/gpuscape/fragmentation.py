# SPDX-License-Identifier: Apache-2.0
"""Whether the free GPUs of a node still make sets that NVLink joins. Pure.

An island is a set of GPUs in which every pair has NVLinks. Of n free GPUs the best would be one
island of n, or of the node's largest where that is smaller; fragmentation is what is missing
of that. It is 0 on nodes without NVLink: no allocation made them so.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from discovery.model import Topology
from discovery.topology import largest_island


@dataclass(frozen=True, slots=True, kw_only=True)
class Free:
    """The free GPUs of a node as a set to choose from."""

    gpus: int
    island: int
    """Size of the largest island among them; 1 where none is linked, 0 without free GPUs."""
    best: int
    """Size of the largest island that so many free GPUs could have here."""

    @property
    def fragmentation(self) -> float | None:
        """0: as well linked as they could be; towards 1: scattered. None without free GPUs."""
        return None if self.best == 0 else 1 - self.island / self.best


def free(topology: Topology, bus_ids: Collection[str]) -> Free:
    """The GPUs with these bus ids as free ones; those not in the topology count as unlinked."""
    among = largest_island(_only(topology, bus_ids))
    return Free(
        gpus=len(bus_ids),
        island=max(among, min(1, len(bus_ids))),
        best=min(len(bus_ids), max(1, largest_island(topology))),
    )


def _only(topology: Topology, bus_ids: Collection[str]) -> Topology:
    rows = [row for row, bus_id in enumerate(topology.gpus) if bus_id in bus_ids]
    return Topology(
        gpus=tuple(topology.gpus[row] for row in rows),
        nvlinks=tuple(tuple(topology.nvlinks[i][j] for j in rows) for i in rows),
    )
