# SPDX-License-Identifier: Apache-2.0
"""Scores that are kept from call to call: the same as if they were not."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from api.gpu_request import GpuRequest, gpu_request
from labelers.annotations import topology_of
from placement.class_tables import ScoreTables
from placement.score_table import ScoreTable
from scheduler.cluster.node_views import NoView, ScoringView, View
from scheduler.known_scores import KnownScores, ScoreQuestion
from scheduler.node_ranking import NodeRanker
from scheduler.placement_aims import Aims, ProductAims
from scheduler.pod_request import PodRequest
from tests.observed import observed

PAIRS = topology_of(observed("a100-pcie-pairs").snapshot)
MESH = topology_of(observed("dgx1-v100").snapshot)
BEFORE, NOW = (ScoringView(gen="1" * 10, free=free, ok=0xFF) for free in (1, 3))


class Fleet:
    """A few nodes of two products whose free GPUs, cliques and pods change."""

    def __init__(self, gens: Iterable[str]) -> None:
        self._gens = tuple(gens)
        self.seen: dict[str, View] = {}

    def change(self, chance: random.Random) -> None:
        """All at once, of which most stays as it is often enough."""
        for at in range(12):
            if chance.random() < 0.4:
                self.seen[f"node-{at}"] = self._view(chance)

    def _view(self, chance: random.Random) -> View:
        if chance.random() < 0.1:
            return NoView.STALE
        return ScoringView(
            gen=chance.choice(self._gens),
            free=chance.choice((0, 0b1, 0b11, 0b101, 0xF, 0xFF)),
            ok=0xFF,
            sure=chance.random() < 0.8,
            clique=chance.choice((None, None, "a", "b")),
        )

    def views(self, nodes: Iterable[str]) -> list[View]:
        return [self.seen.get(node, NoView.UNKNOWN_NODE) for node in nodes]

    def nodes_of(self, job: str) -> Iterable[str]:
        assert job == "job"
        return [f"node-{at}" for at in range(3)]


def ask(gpus: int, *, job: str | None = None) -> PodRequest:
    return PodRequest(namespace="ns", name="pod", uid="uid", wish=gpu_request(gpus), job=job)


def test_calls_rank_by_kept_scores_as_a_ranker_does_that_has_none() -> None:
    tables = ScoreTables()
    fleet = Fleet([tables.add(PAIRS), tables.add(MESH)])
    ranker = NodeRanker(fleet, tables)
    chance = random.Random(7)  # noqa: S311 - no secrets
    for _ in range(60):
        fleet.change(chance)
        names = [*fleet.seen, "unknown"]
        for asked in (ask(1), ask(2), ask(2, job="job"), ask(4)):
            anew = NodeRanker(fleet, tables).rank(asked, names)
            assert ranker.rank(asked, names) == anew
            assert anew.ranks == [each.rank for each in ranker.judge(asked, names)]


def test_a_view_that_had_its_score_in_an_earlier_call_needs_no_outcome(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of the views of a call only those are looked at that are new."""
    tables = ScoreTables()
    gen = tables.add(PAIRS)
    fleet = Fleet([gen])
    ranker = NodeRanker(fleet, tables)
    fleet.seen = {f"n{free}": ScoringView(gen=gen, free=free, ok=0xFF) for free in (3, 12, 15)}
    first = ranker.rank(ask(2), list(fleet.seen))
    looked_up: list[int] = []
    kept = ScoreTable.kept

    def counted(table: ScoreTable, free: int, wanted: GpuRequest) -> object:
        looked_up.append(free)
        return kept(table, free, wanted)

    monkeypatch.setattr(ScoreTable, "kept", counted)
    assert ranker.rank(ask(2), list(fleet.seen)) == first
    assert looked_up == []
    fleet.seen["n12"] = ScoringView(gen=gen, free=8, ok=0xFF)
    ranker.rank(ask(2), list(fleet.seen))
    assert set(looked_up) == {8}


def question(*gpus: int) -> ScoreQuestion:
    return ScoreQuestion(
        gpu_request(*gpus), frozenset({("A", ProductAims(1, 7, False, True))}), frozenset()
    )


def test_scores_of_another_question_are_others() -> None:
    known = KnownScores()
    known.add(question(2), {BEFORE: Aims(7)})
    assert known.find(question(2)) == {BEFORE: Aims(7)}
    assert known.find(question(4)) == {}
    assert known.find(question(2)._replace(cliques=frozenset("a"))) == {}
    assert (
        known.find(question(2)._replace(aims=frozenset({("A", ProductAims(1, 6, False, True))})))
        == {}
    )


def test_over_the_bound_all_are_dropped_but_for_a_call_that_reads_them() -> None:
    known = KnownScores(max_scores=2)
    known.add(question(1), {BEFORE: Aims(1)})
    known.add(question(2), {BEFORE: Aims(2)})
    reads = known.find(question(1))
    known.add(question(2), {NOW: Aims(3)})
    assert reads == {BEFORE: Aims(1)}
    assert known.find(question(1)) == {}
    assert known.find(question(2)) == {NOW: Aims(3)}


def test_nothing_is_kept_for_a_pod_of_very_many_containers() -> None:
    known = KnownScores()
    known.add(question(*[1] * 17), {BEFORE: Aims(1)})
    known.add(question(*[1] * 16), {BEFORE: Aims(1)})
    assert known.find(question(*[1] * 17)) == {}
    assert known.find(question(*[1] * 16)) == {BEFORE: Aims(1)}
