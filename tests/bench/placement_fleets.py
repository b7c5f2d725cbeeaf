# SPDX-License-Identifier: Apache-2.0
"""Fleets and workloads of the placement benchmark, and who judges the sets that pods get."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Final

import msgspec

from api.topology_annotation import TopologyAnnotation
from base.errors import BadInput
from discovery.model import NodeSnapshot
from labelers.annotations import topology_of
from scheduler.simulation.workload import (
    PUBLISHED,
    USUAL,
    USUAL_SECONDS,
    Arrival,
    Mix,
    drawn_arrivals,
)
from simulator.description.machine_catalog import load_machine
from simulator.description.machine_schema import DirectLinks, MachineDescription
from simulator.simulation import Simulation
from tests.judge.bandwidth import AMPERE, HOPPER, VOLTA, Judge
from tests.judge.links import links_of
from tests.observed import look_at, observed

QUADS: Final = "quads"
FOUR: Final = "four-a100"
BROKEN: Final = "dgx1-broken"
GENERATIONS: Final = MappingProxyType({
    "dgx1-v100": VOLTA,
    BROKEN: VOLTA,
    "a100-pcie-pairs": AMPERE,
    QUADS: AMPERE,
    FOUR: AMPERE,
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
        found = drawn_arrivals(Mix(sizes=self.sizes, load=load, pods=pods), gpus, chance)
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

    @property
    def product(self) -> str:
        """Nodes that were bought alike are of one product, also where links are broken since."""
        return "dgx1-v100" if self.name == BROKEN else self.name


@cache
def machine(name: str) -> Machine:
    """One of GENERATIONS. Raises BadInput for another."""
    if name not in GENERATIONS:
        raise BadInput(f"no machine {name!r}; there are {', '.join(GENERATIONS)}")
    snapshot = _made(name) if name in _DRAWN else observed(name).snapshot
    topology = topology_of(snapshot)
    judge = Judge(links_of(topology), GENERATIONS[name])
    return Machine(name=name, snapshot=snapshot, topology=topology, judge=judge)


def _made(name: str) -> NodeSnapshot:
    with tempfile.TemporaryDirectory() as folder:
        return look_at(Simulation.create(_DRAWN[name](), Path(folder)), name).snapshot


def _quads() -> MachineDescription:
    """Eight GPUs in two groups of four, all joined within: drawn from the machine with pairs."""
    pairs = load_machine("a100-pcie-pairs")
    return msgspec.structs.replace(pairs, direct=_all_joined(0) + _all_joined(4))


def _four() -> MachineDescription:
    """Four GPUs that are all joined, as on NVIDIA's board of four A100: a group of the same."""
    pairs = load_machine("a100-pcie-pairs")
    return msgspec.structs.replace(pairs, gpus=pairs.gpus[:4], direct=_all_joined(0))


def _all_joined(first: int) -> tuple[DirectLinks, ...]:
    """Four GPUs, each two by four of the twelve NVLinks of each."""
    group = range(first, first + 4)
    return tuple(DirectLinks(a=a, b=b, links=4) for a, b in combinations(group, 2))


def _broken() -> MachineDescription:
    """A DGX-1 whose GPUs 0 and 3 have lost the two NVLinks between them."""
    whole = load_machine("dgx1-v100")
    direct = tuple(each for each in whole.direct if (each.a, each.b) != (0, 3))
    return msgspec.structs.replace(whole, direct=direct)


_DRAWN: Final = MappingProxyType({QUADS: _quads, FOUR: _four, BROKEN: _broken})
"""Machines that the catalog has not."""


def fleet_of(spec: str) -> tuple[Machine, ...]:
    """The nodes of ``24*dgx1-v100+8*hgx-h100``. Raises BadInput."""
    found: list[Machine] = []
    for part in spec.split("+"):
        count, star, name = part.partition("*")
        if not (star and count.isdecimal() and int(count)):
            raise BadInput(f"fleet {spec!r}: {part!r} is not COUNT*MACHINE")
        found += [machine(name)] * int(count)
    return tuple(found)


def best_gbps(fleet: Iterable[Machine], size: int) -> float:
    """The judge's bandwidth of the fastest set of so many GPUs in the fleet."""
    fitting = {each.name: each for each in fleet if each.topology.n >= size}
    return max(each.judge.best(size) for each in fitting.values())
