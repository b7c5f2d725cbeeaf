# SPDX-License-Identifier: Apache-2.0
"""Runs of the placement benchmark, each kept as one line of a file, so that one may go on later."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from functools import cache
from pathlib import Path

import msgspec

from api.topology_annotation import TopologyAnnotation
from placement.class_tables import ScoreTables
from placement.score_table import ScoreTable
from placement.shape import shape
from scheduler.simulation.fleet_replay import Give, NodeKind, ReplaySetup, replay
from tests.bench.placement_arms import JUDGED, Plugins, arm
from tests.bench.placement_fleets import WORKLOADS, Machine, best_gbps, fleet_of
from tests.bench.placement_reference import Day, Landed, Pod, Type
from tests.judge.bandwidth import Judge
from tests.kubelet_nodes.allocator import Allocator
from tests.scheduler.simulated import seeded

WARM_UP = 0.2
"""The first pods, of all, come to an emptier fleet: they are not counted."""


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """What one run is of."""

    fleet: str
    """As :func:`tests.bench.placement_fleets.fleet_of` takes it."""
    mix: str
    """One of WORKLOADS."""
    load: float
    arm: str
    seed: int
    """Runs of the same seed have the same pods at the same times."""
    pods: int


class SizeFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of the pods of one size, sums over them."""

    pods: int
    speed: float
    """Bandwidth of their sets by the judge, each to the best of the fleet; 1 for one GPU."""
    best: int
    """Pods whose set is as fast as any of the fleet."""
    wait_seconds: float
    lost: int
    """The device plugin failed over them."""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One run and what came of it."""

    key: Key
    sizes: Mapping[int, SizeFigures]
    took_seconds: float = 0.0

    def speed(self, size: int) -> float:
        """Mean over the pods of a size."""
        return self.sizes[size].speed / self.sizes[size].pods

    @property
    def weighted_speed(self) -> float:
        """The same over all GPUs of pods that have several."""
        several = {size: its for size, its in self.sizes.items() if size > 1}
        gpus = sum(size * its.pods for size, its in several.items())
        return sum(size * its.speed for size, its in several.items()) / gpus

    @property
    def best_part(self) -> float:
        """Part of the pods with several GPUs whose set is as fast as any of the fleet."""
        several = [its for size, its in self.sizes.items() if size > 1]
        return sum(its.best for its in several) / sum(its.pods for its in several)

    def wait_seconds(self, size: int | None = None) -> float:
        """Mean of the pods of a size, or of all."""
        of = [its for each, its in self.sizes.items() if size in (None, each)]
        return sum(its.wait_seconds for its in of) / sum(its.pods for its in of)

    def part(self, size: int) -> float:
        """Part of the GPUs of all pods that those of a size have; each lives as long."""
        gpus = {each: each * its.pods for each, its in self.sizes.items()}
        return gpus.get(size, 0) / sum(gpus.values())

    @property
    def lost(self) -> int:
        """Pods over which the device plugin failed."""
        return sum(its.lost for its in self.sizes.values())


class JudgedTable(ScoreTable):
    """The score table of a machine whose sets are as fast as the judge says."""

    def __init__(self, topology: TopologyAnnotation, judge: Judge) -> None:
        super().__init__(shape(topology))
        self.judge = judge

    def gbps(self, group: int) -> float:
        return self.judge.gbps(group)


tables = ScoreTables()
"""Those of the product, which keep what they worked out from run to run."""


@cache
def kind_of(machine_name: str) -> NodeKind:
    """Nodes of a machine, whose sets are as fast as the judge says."""
    its = fleet_of(f"1*{machine_name}")[0]
    gen = tables.add(its.topology)
    table = JudgedTable(its.topology, its.judge)
    return NodeKind(name=its.name, gen=gen, table=table, product=its.product)


def run(key: Key, give: Give) -> Run:
    """Play it. ``give``: the device plugins. Raises BadInput for a fleet that makes no sense."""
    begin = time.process_time()
    fleet = fleet_of(key.fleet)
    gpus = sum(each.topology.n for each in fleet)
    workload = WORKLOADS[key.mix]
    arrivals = workload.arrivals(gpus, key.load, key.pods, seeded(f"{key.seed} {key.mix}"))
    chance = seeded(f"{key.seed} {key.arm}")
    if key.arm in JUDGED:
        pods = [Pod(each.at_seconds, each.lasts_seconds, each.wish.gpus) for each in arrivals]
        landed = Day(types_of(key.fleet, give), pods, JUDGED[key.arm], chance).play()
    else:
        its = arm(key.arm, tables, give)
        kinds = tuple(kind_of(each.name) for each in fleet)
        setup = ReplaySetup(kinds=kinds, give=its.give, lag_seconds=its.lag_seconds)
        landed = [
            Landed(each.wish.gpus, each.wait_seconds, each.gbps, each.lost)
            for each in replay(setup, arrivals, its.choose, chance)
        ]
    sizes = _figures(fleet, landed[int(key.pods * WARM_UP) :])
    return Run(key=key, sizes=sizes, took_seconds=round(time.process_time() - begin, 3))


@cache
def types_of(spec: str, give: Give) -> tuple[Type, ...]:
    """The nodes of a fleet as the reference plays them. Raises BadInput."""
    fleet = fleet_of(spec)
    types = {each.name: Type(each, kind_of(each.name), give, fleet) for each in set(fleet)}
    return tuple(types[each.name] for each in fleet)


def _figures(fleet: tuple[Machine, ...], landed: Sequence[Landed]) -> dict[int, SizeFigures]:
    found: dict[int, SizeFigures] = {}
    for size in sorted({each.size for each in landed}):
        its = [each for each in landed if each.size == size]
        best = best_gbps(fleet, size)
        found[size] = SizeFigures(
            pods=len(its),
            speed=sum(each.gbps / best if best else 1.0 for each in its),
            best=sum(each.gbps >= best for each in its),
            wait_seconds=sum(each.wait_seconds for each in its),
            lost=sum(each.lost for each in its),
        )
    return found


def read(file: Path) -> list[Run]:
    """The runs of a file; none where it is not there. A line that was cut off is left out."""
    found = []
    for line in file.read_bytes().splitlines() if file.exists() else ():
        try:
            found.append(msgspec.json.decode(line, type=Run))
        except msgspec.DecodeError:
            continue
    return found


def play(
    keys: Iterable[Key],
    file: Path,
    *,
    jobs: int = 1,
    until: float = float("inf"),
    one: Callable[[Key], Run] | None = None,
) -> Iterator[Run]:
    """Play those that the file has not yet, and add a line for each.

    ``until``: on the monotonic clock; no run begins after it. ``one``: plays one, in another
    process; else with go-gpuallocator as the device plugins.
    """
    one = one or _played
    done = {each.key for each in read(file)}
    left = iter([key for key in keys if key not in done])
    with file.open("ab") as lines, ProcessPoolExecutor(jobs) as pool:
        if file.stat().st_size and not file.read_bytes().endswith(b"\n"):
            lines.write(b"\n")
        ahead: set[Future[Run]] = set()
        while True:
            while len(ahead) < 2 * jobs and time.monotonic() < until:
                key = next(left, None)
                if key is None:
                    break
                ahead.add(pool.submit(one, key))
            if not ahead:
                return
            done_one = next(as_completed(ahead))
            ahead.remove(done_one)
            found = done_one.result()
            lines.write(msgspec.json.encode(found) + b"\n")
            lines.flush()
            yield found


def _played(key: Key) -> Run:
    return run(key, _plugins().give)


@cache
def _plugins() -> Plugins:
    """Of this process, whose end ends them."""
    return Plugins(Allocator())
