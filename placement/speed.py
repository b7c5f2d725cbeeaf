# SPDX-License-Identifier: Apache-2.0
"""Speed of communication between the GPUs of a set."""

from __future__ import annotations

from functools import cached_property

from placement import rings
from placement.masks import members, pairs, subsets, union
from placement.shape import Shape
from placement.workspace import Workspace

HUNDREDTHS = 100
"""Parts of a GB/s: the unit of ``SetSpeeds.speed``, so that speeds are whole numbers."""


class SetSpeeds:
    """Speeds of sets of GPUs of one shape; keeps what it computed in the class's workspace."""

    def __init__(self, shape: Shape, workspace: Workspace | None = None) -> None:
        self._shape = shape
        self._workspace = workspace or Workspace()
        self.speed = self._workspace.cache(self._speed)
        self._ideals: dict[int, int] = {}

    def gbps(self, group: int) -> float:
        """GB/s of all-reduce: what all rings through the set that share no NVLink carry together.

        Two GPUs have all links between them, and GPUs behind NVSwitch all of theirs. Where no
        ring of NVLinks closes, its steps may go by way of a third GPU of the set. Where that
        does not help it is the slowest PCIe path of the best ring; 0 for one GPU alone.
        """
        return self.speed(group) / HUNDREDTHS

    def is_linked(self, group: int) -> bool:
        """Whether NVLinks alone lead around the set; a GPU alone needs none."""
        places, links = members(group), self._shape.nvlinks
        if len(places) < 3 or self._shape.switched:
            return all(links[i][j] for i, j in pairs(group))
        return rings.has_ring(lambda i, j: links[i][j] > 0, places, self._workspace.spend)

    @cached_property
    def are_gpus_alike(self) -> bool:
        """Whether NVSwitch joins all GPUs at one rate: then all sets of a size are alike."""
        gbps, everything = self._shape.gbps, (1 << self._shape.n) - 1
        return self._shape.switched and len({gbps[i][j] for i, j in pairs(everything)}) == 1

    def fastest(self, size: int) -> tuple[int, ...]:
        """All sets of a size that are as fast as any of the shape; none where all are alike."""
        if self.are_gpus_alike:
            return ()  # without trying all
        groups = tuple(subsets((1 << self._shape.n) - 1, size))
        best = max(map(self.speed, groups), default=0)
        fastest = tuple(group for group in groups if self.speed(group) == best)
        return () if len(fastest) == len(groups) else fastest

    def ideal(self, size: int) -> int:
        """The best ``speed`` of a set of a size; 0 where the shape has none, and for one GPU."""
        if not self.knows_ideal(size):
            gbps, places = self._shape.gbps, range(self._shape.n)
            sets = subsets((1 << self._shape.n) - 1, size)
            if self._shape.switched:  # the set of the GPUs that have most links, without trying all
                sets = iter([union(sorted(places, key=lambda place: -max(gbps[place]))[:size])])
            self._ideals[size] = max(map(self.speed, sets))
        return self._ideals.get(size, 0)

    def knows_ideal(self, size: int) -> bool:
        """Whether the best ``speed`` of a set of a size needs no computing any more."""
        return size in self._ideals or not 1 < size <= self._shape.n

    def _speed(self, group: int) -> int:
        """Speed of a set, in hundredths of a GB/s."""
        places, gbps = members(group), self._shape.gbps
        self._workspace.spend()
        if len(places) < 2:
            return 0
        if len(places) == 2 or self._shape.switched:
            return HUNDREDTHS * min(gbps[i][j] for i, j in pairs(group))
        return self._over_nvlink(places) or HUNDREDTHS * self._pcie_gbps(places)

    def _over_nvlink(self, places: tuple[int, ...]) -> int:
        """Speed over rings of NVLinks; 0 where no ring closes, with third GPUs or without.

        All-reduce may also run at half the rate of a link, twice over it. A ring uses a link both
        ways, but with third GPUs each of its steps one way.
        """
        spend, half = self._workspace.spend, HUNDREDTHS // 2
        rates = {self._rate(i, j) for i in places for j in places} - {0}
        links = {rate: self._links(places, rate) for rate in rates}
        direct = [2 * half * rate * rings.most_rings(links[rate], spend) for rate in rates]
        return max(direct, default=0) or max(
            (half * rate * rings.most_relayed_rings(links[rate], spend) for rate in rates),
            default=0,
        )

    def _pcie_gbps(self, places: tuple[int, ...]) -> int:
        gbps = self._shape.gbps
        speeds = sorted({gbps[i][j] for i in places for j in places if i != j}, reverse=True)
        spend = self._workspace.spend

        def has_ring(least_gbps: int) -> bool:
            return rings.has_ring(lambda i, j: gbps[i][j] >= least_gbps, places, spend)

        return next(filter(has_ring, speeds), 0)

    def _links(self, places: tuple[int, ...], rate: int) -> list[list[int]]:
        """NVLinks of the pairs of a set that are at least so fast, each counted twice."""
        links = self._shape.nvlinks
        return [[2 * links[i][j] * (self._rate(i, j) >= rate) for j in places] for i in places]

    def _rate(self, i: int, j: int) -> int:
        """GB/s of one NVLink between two GPUs; 0 where there is none."""
        links = self._shape.nvlinks[i][j]
        return self._shape.gbps[i][j] // links if links else 0
