# SPDX-License-Identifier: Apache-2.0
"""Where pods land: stock schedulers, ours and one that knows what will come, on the same days.

``python -m tests.bench.placement`` writes docs/scheduler-quality.md, in half an hour. Who gives
GPUs out is go-gpuallocator, never our own prediction of it.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

from msgspec.structs import replace

from api.gpu_request import GpuRequest
from discovery.model import NodeSnapshot
from discovery.simulator.description.machine_catalog import load_machine
from discovery.simulator.description.machine_schema import DirectLinks
from discovery.simulator.simulation import Simulation
from labelers.annotations import topology_of
from scheduler.scores.best_effort import LOST
from scheduler.scores.class_tables import ScoreTables
from scheduler.scores.masks import members, union
from scheduler.simulation import choosers
from scheduler.simulation.fleet_replay import (
    Choose,
    Give,
    NodeKind,
    ReplaySetup,
    Summary,
    replay,
    summary,
)
from scheduler.simulation.workload import Mix, drawn
from tests.bench.placement_page import (
    LOADS,
    MACHINES,
    MIXES,
    NODES,
    NOW,
    OTHER_POLICY,
    OURS,
    PACK,
    PODS,
    REFERENCE,
    SEEDS,
    SEEDS_OF_WAITS,
    SPREAD,
    WARM_UP,
    Cell,
    page,
)
from tests.kubelet.allocator import AllocationError, Allocator
from tests.kubelet.links import link_types
from tests.observed import look_at, observed
from tests.scheduler.simulated import seeded

ORDERS: Final = 32
"""In so many random orders the policy is asked the same."""
QUADS: Final = "quads"
PAGE: Final = Path(__file__).parents[2] / "docs" / "scheduler-quality.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One scheduler, and what it is up against."""

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
        available = [self._rows[place] for place in members(free)]
        for _ in range(ORDERS):
            self._orders.shuffle(available)
            try:
                chosen = self._allocator.prefer(
                    self._rows, self._links, available=available, size=size
                )
                yield union(tuple(map(self._rows.index, chosen)))
            except AllocationError:
                yield LOST


def anything(kind: NodeKind, free: int, wish: GpuRequest, chance: Random) -> int:
    """A device plugin that prefers nothing."""
    del kind
    return union(tuple(chance.sample(members(free), wish.gpus)))


def quads(folder: Path) -> NodeSnapshot:
    """Eight GPUs in two groups of four, all joined within: drawn from the machine with pairs."""
    pairs = [(a, b) for first in (0, 4) for a in range(first, first + 4) for b in range(a)]
    direct = tuple(DirectLinks(a=b, b=a, links=4) for a, b in pairs if b // 4 == a // 4)
    machine = replace(load_machine("a100-pcie-pairs"), direct=direct)
    return look_at(Simulation.create(machine, folder), QUADS).snapshot


def snapshot_of(machine: str) -> NodeSnapshot:
    """One of MACHINES, as the agent sees it."""
    if machine != QUADS:
        return observed(machine).snapshot
    with tempfile.TemporaryDirectory() as folder:
        return quads(Path(folder))


def arms(tables: ScoreTables, plugin: Plugin) -> Mapping[str, Arm]:
    """All that are compared, by name."""
    give, ours = plugin.give, choosers.ranked(tables)
    return {
        SPREAD: Arm(choose=choosers.spread, give=give),
        PACK: Arm(choose=choosers.pack, give=give),
        REFERENCE: Arm(choose=choosers.foreseeing(give), give=give),
        **{arm: Arm(choose=ours, give=give, lag_seconds=lag) for arm, lag in OURS.items()},
        OTHER_POLICY: Arm(choose=ours, give=anything),
    }


def measure(
    allocator: Allocator,
    machine: str,
    sizes: Mapping[int, float],
    *,
    loads: Iterable[float] = LOADS,
    nodes: int = NODES,
    pods: int = PODS,
    seeds: int = SEEDS,
    seeds_of_waits: int = SEEDS_OF_WAITS,
) -> Iterator[Cell]:
    """One cell for each load; every arm has the same pods at the same times.

    All arms are played with ``seeds``, those whose waits are compared with ``seeds_of_waits``.
    """
    snapshot = snapshot_of(machine)
    tables = ScoreTables()
    gen = tables.add(topology_of(snapshot))
    scores = tables.find(gen)
    assert scores
    kinds = (NodeKind(name=machine, gen=gen, table=scores),) * nodes
    compared = arms(tables, Plugin(allocator, snapshot))
    for load in loads:
        mix = Mix(sizes=sizes, load=load, pods=pods)
        runs: dict[str, list[Summary]] = {name: [] for name in compared}
        for seed in range(max(seeds, seeds_of_waits)):
            arrivals = drawn(mix, nodes * scores.n, seeded(seed))
            for name in compared if seed < seeds else (PACK, NOW):
                arm = compared[name]
                setup = ReplaySetup(kinds=kinds, give=arm.give, lag_seconds=arm.lag_seconds)
                chance = seeded(f"{seed} {name}")
                placed = replay(setup, arrivals, arm.choose, chance)
                runs[name].append(summary(placed[int(pods * WARM_UP) :]))
        yield Cell(machine=machine, load=load, runs=runs)


def main() -> None:
    """Measure, write the page and show it."""
    with Allocator() as allocator:
        cells = {
            mix: [cell for machine in MACHINES for cell in measure(allocator, machine, sizes)]
            for mix, sizes in MIXES.items()
        }
    text = page(cells)
    PAGE.write_text(text, encoding="utf-8")
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
