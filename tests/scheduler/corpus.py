# SPDX-License-Identifier: Apache-2.0
"""Cases that every front of the score tables has to answer alike: what it is asked, and ranks.

The tables are in the corpus, so a front needs nothing else to be judged by it. Seeded: the
same cases each time.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Mapping

import msgspec

from api.gpu_request import GpuRequest, Link, gpu_request
from api.topology_annotation import TopologyAnnotation
from labelers.annotations import topology_of
from placement.class_tables import ScoreTables
from scheduler.cluster.node_views import NoView, ScoringView
from scheduler.fleet_products import FleetProducts
from scheduler.node_ranking import NodeRanker
from scheduler.pod_request import PodRequest
from tests.observed import observed
from tests.placement.score_table_file import ScoreTableFile
from tests.placement.table_file import table_file

MACHINES = ("a100-pcie-pairs", "dgx1-v100", "hgx-h100-rdma", "mixed", "gb200")
DEGRADED = "a100-pcie-pairs"
"""Also there with a bridge down."""
JOB_CLIQUE = "job"
_COMPARED = (2, 4, 8)
_CASES, _MOST_NODES = 60, 12


class HeldProduct(msgspec.Struct, frozen=True, kw_only=True):
    """A product of the fleet: its nodes by class, and the GPUs that pods of each size hold."""

    name: str
    gpus: int
    classes: dict[str, int]
    held: dict[int, int]


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A node as it is seen, and the rank that it has to get."""

    gen: str
    product: str
    free: int
    sure: bool
    clique: bool
    """Whether it is in the clique of the pod's job."""
    rank: int


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One call."""

    wish: GpuRequest
    nodes: tuple[Node, ...]
    products: tuple[HeldProduct, ...]


class Corpus(msgspec.Struct, frozen=True, kw_only=True):
    """The cases, and all of the tables that they need."""

    v: int = 2
    sizes: dict[str, int]
    """Class to number of GPUs."""
    tables: tuple[ScoreTableFile, ...]
    cases: tuple[Case, ...]


class _Fleet:
    """Nodes by number; the job has one more, in its clique."""

    def __init__(self, views: list[ScoringView], products: FleetProducts) -> None:
        self._views = {str(number): view for number, view in enumerate(views)}
        self.products = products

    def views(self, nodes: Iterable[str]) -> list[ScoringView | NoView]:
        member = ScoringView(gen="", free=0, ok=0, clique=JOB_CLIQUE)
        return [self._views.get(node, member) for node in nodes]

    def nodes_of(self, job: str) -> tuple[str, ...]:
        return (job,)


def corpus() -> Corpus:
    """The corpus, made anew."""
    tables, chance = ScoreTables(), random.Random("corpus")  # noqa: S311 (has to repeat)
    machines = [*map(_annotation, MACHINES), degraded(_annotation(DEGRADED))]
    sizes = {tables.add(each): each.n for each in machines}
    cases = tuple(_case(tables, sizes, chance) for _ in range(_CASES))
    return Corpus(
        sizes=sizes,
        tables=tuple(
            table_file(gen, table.outcomes(), table.best_speed)
            for gen in sizes
            if (table := tables.find(gen))
        ),
        cases=cases,
    )


def _case(tables: ScoreTables, sizes: dict[str, int], chance: random.Random) -> Case:
    asked = gpu_request(
        *chance.choice([(1,), (2,), (4,), (8,), (1, 1), (2, 1)]),
        link=chance.choice(list(Link)),
        nic=chance.random() < 0.3,
    )
    for size, table in itertools.product(_COMPARED, map(tables.find, sizes)):
        if table is not None and size <= table.n:
            table.outcome((1 << table.n) - 1, gpu_request(size))  # a front orders products by these
    views = [_view(sizes, chance) for _ in range(chance.randint(1, _MOST_NODES))]
    products = [_held(name, sizes, chance) for name in sorted({view.product for view in views})]
    pod = PodRequest(namespace="default", name="pod", uid="uid", wish=asked, job="its")
    fleet = _Fleet(views, counted(products, sizes))
    verdicts = NodeRanker(fleet, tables).judge(pod, [str(at) for at in range(len(views))])
    nodes = (
        Node(
            gen=view.gen,
            product=view.product,
            free=view.free,
            sure=view.sure,
            clique=its.clique,
            rank=its.rank,
        )
        for view, its in zip(views, verdicts, strict=True)
    )
    return Case(wish=asked, nodes=tuple(nodes), products=tuple(products))


def counted(products: Iterable[HeldProduct], sizes: Mapping[str, int]) -> FleetProducts:
    """The counts that a front keeps of these products."""
    fleet = FleetProducts()
    for its in products:
        for gen, nodes in its.classes.items():
            for _ in range(nodes):
                fleet.add_node(its.name, gen, sizes[gen], {})
        for size, gpus in its.held.items():
            for _ in range(gpus // size):
                fleet.add_pod(its.name, size)
    return fleet


def _held(name: str, sizes: Mapping[str, int], chance: random.Random) -> HeldProduct:
    """Of two or three nodes; the classes of one product are the machine and its degraded one."""
    classes = {gen: chance.randint(1, 2) for gen in sizes if _product(sizes, gen) == name}
    gpus = sum(sizes[gen] * nodes for gen, nodes in classes.items())
    held = {size: size * chance.randint(0, gpus // size // 2) for size in (2, 3, 4, 8)}
    return HeldProduct(name=name, gpus=gpus, classes=classes, held=held)


def _product(sizes: Mapping[str, int], gen: str) -> str:
    """The last class is the second one with a broken link."""
    machines = dict(zip(sizes, (*MACHINES, DEGRADED), strict=True))
    return machines[gen]


def _view(sizes: dict[str, int], chance: random.Random) -> ScoringView:
    gen = chance.choice(list(sizes))
    everything = (1 << sizes[gen]) - 1
    return ScoringView(
        gen=gen,
        free=chance.randint(0, everything) | chance.randint(0, everything),
        ok=everything,
        sure=chance.random() < 0.8,
        clique=JOB_CLIQUE if chance.random() < 0.2 else None,
        product=_product(sizes, gen),
    )


def degraded(annotation: TopologyAnnotation) -> TopologyAnnotation:
    """The same machine with the links between its first two linked GPUs down."""
    at = next(place for place, count in enumerate(annotation.nv) if count != "0")
    return msgspec.structs.replace(
        annotation, nv=annotation.nv[:at] + "0" + annotation.nv[at + 1 :]
    )


def _annotation(machine: str) -> TopologyAnnotation:
    return topology_of(observed(machine).snapshot)
