# SPDX-License-Identifier: Apache-2.0
"""Kinds of nodes to simulate, and device plugins that can be foretold."""

from __future__ import annotations

from functools import cache
from random import Random

from api.gpu_request import GpuRequest, gpu_request
from api.topology_annotation import TopologyAnnotation
from labelers.annotations import topology_of
from placement.best_effort import LOST
from placement.class_tables import ScoreTables
from placement.masks import members, union
from scheduler.simulation.fleet_replay import NodeKind
from scheduler.simulation.workload import Arrival
from tests.observed import observed
from tests.scheduler import fleets


@cache
def annotation(machine: str = fleets.MACHINE) -> TopologyAnnotation:
    """Of a simulated machine."""
    return topology_of(observed(machine).snapshot)


def kind(tables: ScoreTables, machine: str = fleets.MACHINE) -> NodeKind:
    """Nodes with GPUs like these."""
    gen = tables.add(annotation(machine))
    table = tables.find(gen)
    assert table
    return NodeKind(name=machine, gen=gen, table=table)


def seeded(seed: int | str = 1) -> Random:
    """Chance that repeats."""
    return Random(seed)  # noqa: S311  # it has to


def lowest(kind: NodeKind, free: int, wish: GpuRequest, chance: Random) -> int:
    """Gives the lowest free GPUs out."""
    del kind, chance
    return union(members(free)[: wish.gpus])


def crashing(kind: NodeKind, free: int, wish: GpuRequest, chance: Random) -> int:
    """Fails over every pod."""
    del kind, free, wish, chance
    return LOST


def arrival(gpus: int, at: float = 0.0, lasts: float = 10.0, *, job: str | None = None) -> Arrival:
    """One pod."""
    return Arrival(at_seconds=at, lasts_seconds=lasts, wish=gpu_request(gpus), job=job)
