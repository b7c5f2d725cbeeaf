# SPDX-License-Identifier: Apache-2.0
"""Verdicts on fleets of a few nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest

from api.gpu_request import Link, wish
from labelers.annotations import topology_of
from scheduler.cluster.node_views import NoView, ScoringView
from scheduler.node_ranking import NodeRanker, OutcomeUnknown, RankedNode
from scheduler.pod_request import PodRequest
from scheduler.scores.class_tables import ScoreTables
from tests.observed import observed
from tests.scheduler.later import Later

PAIRS = topology_of(observed("a100-pcie-pairs").snapshot)
MESH = topology_of(observed("dgx1-v100").snapshot)
MANY = topology_of(observed("hgx-16").snapshot)


class Fleet:
    """Nodes as given; a job's are those whose names begin with its."""

    def __init__(self, views: Mapping[str, ScoringView | NoView]) -> None:
        self._views = views

    def views(self, nodes: Iterable[str]) -> list[ScoringView | NoView]:
        return [self._views.get(node, NoView.UNKNOWN_NODE) for node in nodes]

    def nodes_of(self, job: str) -> Iterable[str]:
        return [node for node in self._views if node.startswith(job)]


def view(gen: str, free: int, *, sure: bool = True, clique: str | None = None) -> ScoringView:
    return ScoringView(gen=gen, free=free, ok=0xFF, sure=sure, clique=clique)


def ask(gpus: int, *, job: str | None = None, link: Link = Link.ANY) -> PodRequest:
    return PodRequest(namespace="ns", name="pod", uid="uid", wish=wish(gpus, link=link), job=job)


def judged(
    views: Mapping[str, ScoringView | NoView], asked: PodRequest, tables: ScoreTables
) -> dict[str, RankedNode]:
    verdicts = NodeRanker(Fleet(views), tables).judge(asked, list(views))
    assert [verdict.node for verdict in verdicts] == list(views)
    return {verdict.node: verdict for verdict in verdicts}


def ranks(
    views: Mapping[str, ScoringView | NoView], asked: PodRequest, tables: ScoreTables
) -> dict[str, int]:
    return {node: verdict.rank for node, verdict in judged(views, asked, tables).items()}


@pytest.fixture
def tables() -> ScoreTables:
    return ScoreTables()


def test_the_node_with_a_whole_pair_comes_before_one_with_two_halves(tables: ScoreTables) -> None:
    gen = tables.add(PAIRS)
    found = ranks({"halves": view(gen, 0b0101), "pair": view(gen, 0b0011)}, ask(2), tables)
    assert found["pair"] == 10
    assert 0 < found["halves"] < 6


def test_a_node_of_which_nothing_is_known_is_neutral(tables: ScoreTables) -> None:
    gen = tables.add(PAIRS)
    views: dict[str, ScoringView | NoView] = {
        "stale": NoView.STALE,
        "known": view(gen, 0b0011),
        "other": view("0123456789", 0b11),
    }
    assert ranks(views, ask(2), tables) == {"stale": 0, "known": 10, "other": 0}


def test_the_verdict_says_why_nothing_is_known(tables: ScoreTables) -> None:
    verdict = judged({"stale": NoView.STALE}, ask(2), tables)["stale"]
    assert (verdict.view, verdict.outcome, verdict.score) == (NoView.STALE, None, 0)


def test_a_node_whose_free_gpus_are_too_few_is_neutral(tables: ScoreTables) -> None:
    gen = tables.add(PAIRS)
    assert ranks({"full": view(gen, 0b1), "free": view(gen, 0b11)}, ask(2), tables)["full"] == 0


def test_a_node_whose_gpus_and_pods_do_not_agree_is_one_less(tables: ScoreTables) -> None:
    gen = tables.add(PAIRS)
    views = {"sure": view(gen, 0b0011), "unsure": view(gen, 0b0011, sure=False)}
    assert ranks(views, ask(2), tables) == {"sure": 10, "unsure": 9}


def test_such_a_node_is_never_taken_for_one_of_which_nothing_is_known(tables: ScoreTables) -> None:
    gen = tables.add(PAIRS)
    views = {"fast": view(gen, 0b0011), "slow": view(gen, 0b010001, sure=False)}
    assert ranks(views, ask(2), tables) == {"fast": 10, "slow": 1}


def test_a_name_that_comes_twice_is_judged_twice(tables: ScoreTables) -> None:
    gen = tables.add(PAIRS)
    verdicts = NodeRanker(Fleet({"a": view(gen, 0b11)}), tables).judge(ask(2), ["a", "b", "a"])
    assert [verdict.rank for verdict in verdicts] == [10, 0, 10]


def test_no_nodes_are_no_verdicts(tables: ScoreTables) -> None:
    assert NodeRanker(Fleet({}), tables).judge(ask(2), []) == []


def test_pods_of_one_job_like_the_clique_that_has_most_of_its_nodes(tables: ScoreTables) -> None:
    gen = tables.add(PAIRS)
    views = {
        "job-1": view(gen, 0, clique="a"),
        "job-2": view(gen, 0, clique="a"),
        "job-3": view(gen, 0, clique="b"),
        "in-b": view(gen, 0b0011, clique="b"),
        "in-none": view(gen, 0b0011),
        "in-a": view(gen, 0xFF, clique="a"),
    }
    verdicts = judged(views, ask(2, job="job"), tables)
    assert {node: verdicts[node].rank for node in ("in-a", "in-b", "in-none")} == {
        "in-a": 10,
        "in-b": 6,
        "in-none": 6,
    }
    assert verdicts["in-a"].clique
    assert ranks(views, ask(2), tables)["in-a"] < 10


def test_where_no_node_of_the_job_is_in_a_clique_none_is_preferred(tables: ScoreTables) -> None:
    gen = tables.add(PAIRS)
    views: dict[str, ScoringView | NoView] = {
        "job-1": view(gen, 0),
        "job-2": NoView.STALE,
        "in-none": view(gen, 0b0011),
        "in-a": view(gen, 0b0011, clique="a"),
    }
    verdicts = judged(views, ask(2, job="job"), tables)
    assert {each.node for each in verdicts.values() if each.clique} == set()
    assert verdicts["in-none"].rank == verdicts["in-a"].rank == 10


def test_of_two_cliques_with_as_many_nodes_of_the_job_both_count(tables: ScoreTables) -> None:
    gen = tables.add(PAIRS)
    views: dict[str, ScoringView | NoView] = {
        "job-1": view(gen, 0, clique="a"),
        "job-2": view(gen, 0, clique="b"),
        "in-a": view(gen, 0b0011, clique="a"),
        "in-b": view(gen, 0b0011, clique="b"),
        "in-c": view(gen, 0b0011, clique="c"),
    }
    found = ranks(views, ask(2, job="job"), tables)
    assert [found[node] for node in ("in-a", "in-b", "in-c")] == [10, 10, 6]


def test_a_fast_set_comes_before_the_clique(tables: ScoreTables) -> None:
    gen = tables.add(PAIRS)
    views = {
        "job-1": view(gen, 0, clique="a"),
        "halves": view(gen, 0b0101, clique="a"),
        "pair": view(gen, 0b0011),
    }
    found = ranks(views, ask(2, job="job"), tables)
    assert found["pair"] > found["halves"]


def test_the_clique_is_no_reason_for_a_node_that_cannot_serve(tables: ScoreTables) -> None:
    gen = tables.add(PAIRS)
    views = {"job-1": view(gen, 0b1, clique="a"), "out": view(gen, 0b0101)}
    assert ranks(views, ask(2, job="job"), tables) == {"job-1": 0, "out": 10}


def test_the_same_is_answered_to_the_same(tables: ScoreTables) -> None:
    gens = [tables.add(PAIRS), tables.add(MESH)]
    views = {f"{gen}-{free}": view(gen, free) for gen in gens for free in range(256)}
    again = ScoreTables()
    for each in (MESH, PAIRS):
        again.add(each)
    assert ranks(views, ask(3), tables) == ranks(views, ask(3), tables)
    assert ranks(views, ask(3), tables) == ranks(views, ask(3), again)


def test_only_a_few_new_outcomes_are_worked_out_within_a_call() -> None:
    """The rest comes later, and is neutral until then."""
    later = Later()
    tables = ScoreTables(later)
    gen = tables.add(PAIRS)
    views = {str(free): view(gen, free) for free in range(1, 256)}
    known = [verdict.outcome is not None for verdict in judged(views, ask(2), tables).values()]
    assert sum(known) == 16
    later.run()
    assert all(verdict.outcome for verdict in judged(views, ask(2), tables).values())


def test_who_asks_for_what_is_known_is_told_where_something_is_not() -> None:
    tables = ScoreTables(Later())
    judge = NodeRanker(Fleet({"a": view(tables.add(PAIRS), 0xFF)}), tables)
    with pytest.raises(OutcomeUnknown):
        judge.rank(ask(2), ["a"], only_known=True)
    patient = judge.rank(ask(2), ["a"])
    assert judge.rank(ask(2), ["a"], only_known=True) == patient


def test_what_is_worked_out_in_no_call_is_not_waited_for() -> None:
    tables = ScoreTables(Later())
    judge = NodeRanker(Fleet({"a": view(tables.add(MANY), 0xFFFF)}), tables)
    assert judge.rank(ask(2), ["a"], only_known=True).ranks == [0]


def test_nothing_of_a_large_class_is_worked_out_within_a_call() -> None:
    later = Later()
    tables = ScoreTables(later)
    views = {"many": view(tables.add(MANY), 0b11)}
    assert ranks(views, ask(2), tables) == {"many": 0}
    later.run()
    assert ranks(views, ask(2), tables) == {"many": 10}


def test_a_ranking_is_the_verdicts_ranks_and_counts_what_is_not_seen() -> None:
    tables = ScoreTables()
    gen = tables.add(PAIRS)
    masks = (0b11, 0b111, 0b11, 0b1, 0xFF, 0b111)
    views: dict[str, ScoringView | NoView] = {
        f"n{at}": view(gen, mask, sure=at != 2) for at, mask in enumerate(masks)
    }
    views |= {"old": NoView.STALE, "older": NoView.STALE, "new": NoView.NO_STATE}
    judge = NodeRanker(Fleet(views), tables)

    ranking = judge.rank(ask(2), list(views))

    assert ranking.ranks == [verdict.rank for verdict in judge.judge(ask(2), list(views))]
    assert len(set(ranking.ranks)) > 2
    assert ranking.unseen == {NoView.STALE: 2, NoView.NO_STATE: 1}
