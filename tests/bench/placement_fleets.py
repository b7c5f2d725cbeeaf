# SPDX-License-Identifier: Apache-2.0
"""Fleets and workloads of the placement benchmark, and who judges the sets that pods get."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Final

import msgspec

from api.topology_annotation import TopologyAnnotation
from base.errors import BadInput
from discovery.model import NodeSnapshot
from discovery.simulator.description.machine_catalog import load_machine
from discovery.simulator.description.machine_schema import DirectLinks
from discovery.simulator.simulation import Simulation
from labelers.annotations import topology_of
from scheduler.simulation.workload import PUBLISHED, USUAL, USUAL_SECONDS, Arrival, Mix, drawn
from tests.judge.bandwidth import AMPERE, HOPPER, VOLTA, Judge
from tests.judge.links import links_of
from tests.observed import look_at, observed

QUADS: Final = "quads"
GENERATIONS: Final = MappingProxyType({
    "dgx1-v100": VOLTA,
    "a100-pcie-pairs": AMPERE,
    QUADS: AMPERE,
    "dgx-a100": AMPERE,
    "hgx-h100": HOPPER,
})  # fmt: skip
"""Machines that fleets are made of, and what the judge reckons their links with."""

_SPREAD_OF_LIVES: Final = 1.5
"""Sigma of lognormal lives: the median is a third of the mean, one of a hundred is ten times it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What pods ask for and how long they live."""

    words: str
    sizes: Mapping[int, float]
    """Number of GPUs to how often it is requested, in any unit."""
    is_lognormal: bool = False
    """Lives are lognormal, and not exponential."""

    def arrivals(self, gpus: int, load: float, pods: int, chance: Random) -> tuple[Arrival, ...]:
        """Pods for a fleet with so many GPUs."""
        found = drawn(Mix(sizes=self.sizes, load=load, pods=pods), gpus, chance)
        if not self.is_lognormal:
            return found
        middle = math.log(USUAL_SECONDS) - _SPREAD_OF_LIVES**2 / 2
        return tuple(
            Arrival(
                at_seconds=each.at_seconds,
                lasts_seconds=chance.lognormvariate(middle, _SPREAD_OF_LIVES),
                wish=each.wish,
            )
            for each in found
        )


WORKLOADS: Final[Mapping[str, Workload]] = MappingProxyType({
    "usual": Workload(words="assumed sizes", sizes=USUAL),
    "trace": Workload(words="sizes of a trace", sizes=PUBLISHED),
    "threes": Workload(
        words="with 3 and 6 GPUs",
        sizes={1: 0.4, 2: 0.2, 3: 0.15, 4: 0.1, 6: 0.1, 8: 0.05},
    ),
    "fours": Workload(words="mostly 4 GPUs", sizes={1: 0.3, 2: 0.1, 4: 0.5, 8: 0.1}),
    "lognormal": Workload(words="lognormal lives", sizes=USUAL, is_lognormal=True),
})  # fmt: skip
"""The aims were tried with the first two alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One kind of node."""

    name: str
    snapshot: NodeSnapshot
    topology: TopologyAnnotation
    judge: Judge


@cache
def machine(name: str) -> Machine:
    """One of GENERATIONS. Raises BadInput for another."""
    if name not in GENERATIONS:
        raise BadInput(f"no machine {name!r}; there are {', '.join(GENERATIONS)}")
    snapshot = observed(name).snapshot if name != QUADS else _quads()
    topology = topology_of(snapshot)
    judge = Judge(links_of(topology), GENERATIONS[name])
    return Machine(name=name, snapshot=snapshot, topology=topology, judge=judge)


def _quads() -> NodeSnapshot:
    with tempfile.TemporaryDirectory() as folder:
        return quads(Path(folder))


def quads(folder: Path) -> NodeSnapshot:
    """Eight GPUs in two groups of four, all joined within: drawn from the machine with pairs."""
    pairs = [(a, b) for first in (0, 4) for a in range(first, first + 4) for b in range(a)]
    direct = tuple(DirectLinks(a=b, b=a, links=4) for a, b in pairs if b // 4 == a // 4)
    described = msgspec.structs.replace(load_machine("a100-pcie-pairs"), direct=direct)
    return look_at(Simulation.create(described, folder), QUADS).snapshot


def fleet_of(spec: str) -> tuple[Machine, ...]:
    """The nodes of ``24*dgx1-v100+8*hgx-h100``. Raises BadInput."""
    found: list[Machine] = []
    for part in spec.split("+"):
        count, star, name = part.partition("*")
        if not (star and count.isdecimal() and int(count)):
            raise BadInput(f"fleet {spec!r}: {part!r} is not COUNT*MACHINE")
        found += [machine(name)] * int(count)
    return tuple(found)


def best_gbps(fleet: tuple[Machine, ...], size: int) -> float:
    """The judge's bandwidth of the fastest set of so many GPUs in the fleet."""
    return max(each.judge.best(size) for each in {it.name: it for it in fleet}.values())
