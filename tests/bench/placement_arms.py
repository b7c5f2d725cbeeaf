# SPDX-License-Identifier: Apache-2.0
"""The schedulers that the placement benchmark compares, and the device plugins under them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Final

from api.gpu_request import GpuRequest
from discovery.model import NodeSnapshot
from placement.best_effort import LOST
from placement.class_tables import ScoreTables
from placement.masks import members, union
from scheduler.simulation import choosers
from scheduler.simulation.fleet_replay import Choose, Give, NodeKind
from tests.bench import placement_reference
from tests.bench.placement_fleets import machine
from tests.bench.placement_reference import Policy
from tests.kubelet_nodes.allocator import AllocationError, Allocator
from tests.kubelet_nodes.device_lists import named
from tests.kubelet_nodes.links import link_types
from tests.scheduler.simulated import seeded

ORDERS: Final = 32
"""In so many orders, drawn as kubelets name GPUs, the policy is asked the same."""
SPREAD, PACK, OTHER_POLICY = "spread", "bin-pack", "another policy"
FASTEST, AHEAD = "fastest", "look-ahead"
OURS: Final[Mapping[str, float]] = {f"lag {lag:g} s": lag for lag in (0.0, 0.5, 2.0, 5.0)}
"""Arm to seconds of lag."""
NOW, LATE = list(OURS)[:2]
JUDGED: Final[Mapping[str, Policy]] = {
    SPREAD: placement_reference.spread,
    PACK: placement_reference.pack,
    FASTEST: placement_reference.fastest,
    AHEAD: placement_reference.look_ahead,
}
"""Arms that are played without any code of the scheduler; the best of them is the reference."""
ARMS: Final = (*JUDGED, *OURS, OTHER_POLICY)
COMPARED: Final = (*JUDGED, NOW)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One scheduler, and what it is up against; it is good for one run."""

    choose: Choose
    give: Give
    lag_seconds: float = 0.0


class Plugin:
    """The device plugin of one machine: go-gpuallocator, its answers kept."""

    def __init__(self, allocator: Allocator, snapshot: NodeSnapshot) -> None:
        self._allocator = allocator
        self._rows = [gpu.uuid or "" for gpu in snapshot.gpus]
        self._links = link_types(snapshot)
        self._orders = seeded()
        self._answers: dict[tuple[int, int], list[int]] = {}

    def give(self, kind: NodeKind, free: int, wish: GpuRequest, chance: Random) -> int:
        """What it hands out when the free GPUs are named in some order."""
        del kind
        asked = free, wish.gpus
        if asked not in self._answers:
            self._answers[asked] = list(self._ask(*asked))
        return chance.choice(self._answers[asked])

    def _ask(self, free: int, size: int) -> Iterator[int]:
        its = [self._rows[place] for place in members(free)]
        for _ in range(ORDERS):
            available = named(self._rows, its, self._orders)
            try:
                chosen = self._allocator.prefer(
                    self._rows, self._links, available=available, size=size
                )
                yield union(tuple(map(self._rows.index, chosen)))
            except AllocationError:
                yield LOST


class Plugins:
    """The device plugins of all machines."""

    def __init__(self, allocator: Allocator) -> None:
        self._allocator = allocator
        self._plugins: dict[str, Plugin] = {}

    def give(self, kind: NodeKind, free: int, wish: GpuRequest, chance: Random) -> int:
        """What that of a node's machine hands out."""
        if kind.name not in self._plugins:
            self._plugins[kind.name] = Plugin(self._allocator, machine(kind.name).snapshot)
        return self._plugins[kind.name].give(kind, free, wish, chance)


def anything(kind: NodeKind, free: int, wish: GpuRequest, chance: Random) -> int:
    """A device plugin that prefers nothing."""
    del kind
    return union(tuple(chance.sample(members(free), wish.gpus)))


def arm(name: str, tables: ScoreTables, give: Give) -> Arm:
    """Ours for one run: one of ARMS that is not JUDGED."""
    if name == OTHER_POLICY:
        return Arm(choose=choosers.ranked(tables), give=anything)
    return Arm(choose=choosers.ranked(tables), give=give, lag_seconds=OURS[name])
