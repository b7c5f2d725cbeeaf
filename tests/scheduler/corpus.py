# SPDX-License-Identifier: Apache-2.0
"""Cases that every front of the score tables has to answer alike: what it is asked, and ranks.

The tables are in the corpus, so a front needs nothing else to be judged by it. Seeded: the
same cases each time.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

import msgspec

from api.gpu_request import GpuRequest, Link, wish
from api.score_table_file import ScoreTableFile
from api.topology_annotation import TopologyAnnotation
from labelers.annotations import topology_of
from scheduler.cluster.node_views import NoView, ScoringView
from scheduler.node_ranking import NodeRanker
from scheduler.pod_request import PodRequest
from scheduler.scores.class_tables import ScoreTables
from scheduler.scores.table_file import table_file
from tests.observed import observed

MACHINES = ("a100-pcie-pairs", "dgx1-v100", "hgx-h100-rdma", "mixed", "gb200")
JOB_CLIQUE = "job"
_CASES, _MOST_NODES = 40, 12


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A node as it is seen, and the rank that it has to get."""

    gen: str
    free: int
    sure: bool
    clique: bool
    """Whether it is in the clique of the pod's job."""
    rank: int


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One call."""

    wish: GpuRequest
    nodes: tuple[Node, ...]


class Corpus(msgspec.Struct, frozen=True, kw_only=True):
    """The cases, and all of the tables that they need."""

    v: int = 1
    tables: tuple[ScoreTableFile, ...]
    cases: tuple[Case, ...]


class _Fleet:
    """Nodes by number; the job has one more, in its clique."""

    def __init__(self, views: list[ScoringView]) -> None:
        self._views = {str(number): view for number, view in enumerate(views)}

    def views(self, nodes: Iterable[str]) -> list[ScoringView | NoView]:
        member = ScoringView(gen="", free=0, ok=0, clique=JOB_CLIQUE)
        return [self._views.get(node, member) for node in nodes]

    def nodes_of(self, job: str) -> tuple[str, ...]:
        return (job,)


def corpus() -> Corpus:
    """The corpus, made anew."""
    tables, chance = ScoreTables(), random.Random("corpus")  # noqa: S311 (has to repeat)
    sizes = {tables.add(each): each.n for each in map(_annotation, MACHINES)}
    cases = tuple(_case(tables, sizes, chance) for _ in range(_CASES))
    return Corpus(
        tables=tuple(
            table_file(gen, table.outcomes()) for gen in sizes if (table := tables.find(gen))
        ),
        cases=cases,
    )


def _case(tables: ScoreTables, sizes: dict[str, int], chance: random.Random) -> Case:
    asked = wish(
        *chance.choice([(1,), (2,), (4,), (8,), (1, 1), (2, 1)]),
        link=chance.choice(list(Link)),
        nic=chance.random() < 0.3,
    )
    views = [_view(sizes, chance) for _ in range(chance.randint(1, _MOST_NODES))]
    pod = PodRequest(namespace="default", name="pod", uid="uid", wish=asked, job="its")
    verdicts = NodeRanker(_Fleet(views), tables).judge(pod, [str(at) for at in range(len(views))])
    nodes = (
        Node(gen=view.gen, free=view.free, sure=view.sure, clique=its.clique, rank=its.rank)
        for view, its in zip(views, verdicts, strict=True)
    )
    return Case(wish=asked, nodes=tuple(nodes))


def _view(sizes: dict[str, int], chance: random.Random) -> ScoringView:
    gen = chance.choice(list(sizes))
    everything = (1 << sizes[gen]) - 1
    return ScoringView(
        gen=gen,
        free=chance.randint(0, everything) | chance.randint(0, everything),
        ok=everything,
        sure=chance.random() < 0.8,
        clique=JOB_CLIQUE if chance.random() < 0.2 else None,
    )


def _annotation(machine: str) -> TopologyAnnotation:
    return topology_of(observed(machine).snapshot)
