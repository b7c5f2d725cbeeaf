# SPDX-License-Identifier: Apache-2.0
"""Verdicts on fleets of a few nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec
import pytest

from api.gpu_request import Link, gpu_request
from labelers.annotations import topology_of
from placement.class_tables import ScoreTables
from placement.kubelet_model import Policies, TopologyManager
from placement.score_table import GIVEN_UP, ScoreTable
from scheduler.cluster.node_views import NoOutcome, NoView, ScoringView
from scheduler.node_ranking import NodeRanker, OutcomeUnknown, RankedNode
from scheduler.placement_aims import IN_CLIQUE, ProductOrder
from scheduler.pod_request import PodRequest
from tests.observed import observed
from tests.scheduler.later import Later

PAIRS = topology_of(observed("a100-pcie-pairs").snapshot)
MESH = topology_of(observed("dgx1-v100").snapshot)
MANY = topology_of(observed("hgx-16").snapshot)
SWITCHED = topology_of(observed("hgx-h100").snapshot)
RDMA = topology_of(observed("hgx-h100-rdma").snapshot)
FOUR = topology_of(observed("gb200").snapshot)
FOUR_SLOW = msgspec.structs.replace(FOUR, lbw=(1,))


class Fleet:
    """Nodes as given; a job's are those whose names begin with its."""

    def __init__(self, views: Mapping[str, ScoringView | NoView]) -> None:
        self._views = views

    def views(self, nodes: Iterable[str]) -> list[ScoringView | NoView]:
        return [self._views.get(node, NoView.UNKNOWN_NODE) for node in nodes]

    def nodes_of(self, job: str) -> Iterable[str]:
        return [node for node in self._views if node.startswith(job)]


def view(
    gen: str, free: int, *, ok: int = 0xFF, sure: bool = True, clique: str | None = None
) -> ScoringView:
    return ScoringView(gen=gen, free=free, ok=ok, sure=sure, clique=clique)


def ask(gpus: int, *, job: str | None = None, link: Link = Link.ANY) -> PodRequest:
    return PodRequest(
        namespace="ns", name="pod", uid="uid", wish=gpu_request(gpus, link=link), job=job
    )


def judged(
    views: Mapping[str, ScoringView | NoView],
    asked: PodRequest,
    tables: ScoreTables,
    order: ProductOrder = ProductOrder.FASTEST,
) -> dict[str, RankedNode]:
    verdicts = NodeRanker(Fleet(views), tables, order).judge(asked, list(views))
    assert [verdict.node for verdict in verdicts] == list(views)
    return {verdict.node: verdict for verdict in verdicts}


def ranks(
    views: Mapping[str, ScoringView | NoView],
    asked: PodRequest,
    tables: ScoreTables,
    order: ProductOrder = ProductOrder.FASTEST,
) -> dict[str, int]:
    return {node: each.rank for node, each in judged(views, asked, tables, order).items()}


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
    assert (verdict.view, verdict.outcome, verdict.aims) == (NoView.STALE, None, None)


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
    assert ranks(views, ask(2), tables) == {"fast": 10, "slow": 3}


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
        "in-a": view(gen, 0x7F, clique="a"),
    }
    verdicts = judged(views, ask(2, job="job"), tables)
    assert {node: verdicts[node].rank for node in ("in-a", "in-b", "in-none")} == {
        "in-a": 10,
        "in-b": 2,
        "in-none": 2,
    }
    assert verdicts["in-a"].aims
    assert verdicts["in-a"].aims.job == IN_CLIQUE
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
    assert {each.aims.job for each in verdicts.values() if each.aims} == {1}
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
    assert [found[node] for node in ("in-a", "in-b", "in-c")] == [10, 10, 2]


def test_the_clique_comes_before_a_fast_set_and_not_before_odds_of_being_refused() -> None:
    tables = ScoreTables(policies=Policies(tm=TopologyManager.SINGLE_NUMA_NODE))
    gen = tables.add(PAIRS)
    views = {
        "job-1": view(gen, 0, clique="a"),
        "halves": view(gen, 0b0101, clique="a"),
        "pair": view(gen, 0b0011),
        "refuses": view(gen, 0b10001, clique="a"),
    }
    found = ranks(views, ask(2, job="job"), tables)
    assert (found["halves"], found["pair"], found["refuses"]) == (10, 2, 0)


def test_pods_of_one_job_stay_on_the_product_of_its_first_pods(tables: ScoreTables) -> None:
    """Four pods of 8 GPUs: the first goes to the faster product, and the others follow it."""
    slow, fast = tables.add(MESH), tables.add(SWITCHED)
    views = {f"v{at}": of("V", view(slow, 0xFF)) for at in range(3)}
    views |= {f"h{at}": of("H", view(fast, 0xFF)) for at in range(3)}
    assert ranks(views, ask(8, job="job"), tables) == dict.fromkeys(views, 4) | {
        f"h{at}": 10 for at in range(3)
    }
    views |= {"job-1": of("V", view(slow, 0)), "job-2": of("V", view(slow, 0))}
    views |= {"job-3": of("H", view(fast, 0)), "job-4": of("V", view(slow, 0b11))}
    found = ranks(views, ask(8, job="job"), tables)
    assert [found[f"v{at}"] for at in range(3)] == [10] * 3
    assert [found[f"h{at}"] for at in range(3)] == [2] * 3


def test_of_two_products_with_as_many_nodes_of_the_job_that_of_its_first_pods_counts(
    tables: ScoreTables,
) -> None:
    slow, fast = tables.add(MESH), tables.add(SWITCHED)
    views = {
        "job-1": of("V", view(slow, 0)),
        "job-2": of("H", view(fast, 0)),
        "v": of("V", view(slow, 0xFF)),
        "h": of("H", view(fast, 0xFF)),
    }
    assert ranks(views, ask(8, job="job"), tables) == {"job-1": 0, "job-2": 0, "v": 10, "h": 2}


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


# products


def of(product: str, seen: ScoringView) -> ScoringView:
    return msgspec.structs.replace(seen, product=product)


def test_a_pod_goes_to_the_fastest_set_that_is_free(tables: ScoreTables) -> None:
    slow, fast = tables.add(MESH), tables.add(SWITCHED)
    views = {
        "poor": of("V", view(slow, 0b0011)),
        "ideal": of("V", view(slow, 0b1001)),
        "fast": of("H", view(fast, 0b0111)),
    }
    found = ranks(views, ask(2), tables)
    assert found == {"poor": 4, "ideal": 4, "fast": 10}
    del views["fast"]
    assert ranks(views, ask(2), tables)["ideal"] == 10


def test_single_gpus_leave_the_faster_product_alone(tables: ScoreTables) -> None:
    slow, fast = tables.add(MESH), tables.add(SWITCHED)
    views = {"v": of("V", view(slow, 0xFF)), "h": of("H", view(fast, 0b1))}
    for order in ProductOrder:
        assert ranks(views, ask(1), tables, order) == {"v": 10, "h": 6}
    views |= {"no label": view(tables.add(PAIRS), 0xFF), "fuller": of("V", view(slow, 0b1))}
    assert ranks(views, ask(1), tables) == {"v": 6, "fuller": 6, "h": 6, "no label": 10}
    del views["no label"]
    assert ranks(views, ask(1), tables) == {"v": 8, "fuller": 10, "h": 6}


def test_the_last_free_nodes_of_a_product_are_kept_for_pods_that_fill_them(
    tables: ScoreTables,
) -> None:
    slow, fast = tables.add(MESH), tables.add(SWITCHED)
    views = {f"h{at}": of("H", view(fast, 0xFF)) for at in range(3)}
    views |= {"v": of("V", view(slow, 0b1111)), "v-whole": of("V", view(slow, 0xFF))}
    found = ranks(views, ask(2), tables)
    assert (found["h0"], found["v"], found["v-whole"]) == (10, 4, 3)
    del views["h0"]
    found = ranks(views, ask(2), tables)
    assert (found["h1"], found["v"], found["v-whole"]) == (3, 10, 3)
    assert ranks(views, ask(8), tables)["h1"] == 10
    del views["v"]
    found = ranks(views, ask(2), tables)
    assert (found["h1"], found["v-whole"]) == (4, 10)


def test_one_free_node_of_a_product_is_kept_while_many_others_are_free(
    tables: ScoreTables,
) -> None:
    slow, fast = tables.add(MESH), tables.add(SWITCHED)
    views = {f"v{at}": of("V", view(slow, 0xFF)) for at in range(6)}
    views |= {f"h{at}": of("H", view(fast, 0xFF)) for at in range(2)}
    views["part"] = of("V", view(slow, 0b1111))
    assert ranks(views, ask(2), tables)["h0"] == 3
    views["cut"] = of("V", view(slow, 0, ok=0))
    assert ranks(views, ask(2), tables)["h0"] == 3
    views["small"] = of("B", view(tables.add(FOUR_SLOW), 0b1111, ok=0b1111))
    assert ranks(views, ask(2), tables)["h0"] == 3
    views["v6"] = of("V", view(slow, 0xFF))
    assert ranks(views, ask(2), tables)["h0"] == 10
    views["v7"] = views["v0"]
    del views["h0"]
    assert ranks(views, ask(2), tables)["h1"] == 3


def test_a_node_is_free_as_a_whole_where_one_of_its_gpus_is_broken(tables: ScoreTables) -> None:
    slow, fast = tables.add(MESH), tables.add(SWITCHED)
    views = {"h": of("H", view(fast, 0x7F, ok=0x7F)), "v": of("V", view(slow, 0b1111))}
    assert ranks(views, ask(2), tables) == {"h": 3, "v": 10}
    views["v"] = of("V", view(slow, 0x7F))
    assert ranks(views, ask(7), tables) == {"h": 10, "v": 4}


def test_nodes_of_one_product_are_broken_up_for_a_faster_set(tables: ScoreTables) -> None:
    """Nothing is kept where there is no other product to go to."""
    gen = tables.add(PAIRS)
    views = {"whole": of("A", view(gen, 0xFF)), "halves": of("A", view(gen, 0b0101))}
    assert ranks(views, ask(2), tables) == {"whole": 10, "halves": 4}
    views["pair"] = of("A", view(gen, 0b0011))
    assert ranks(views, ask(2), tables) == {"whole": 8, "halves": 4, "pair": 10}


def test_a_degraded_node_is_compared_with_the_others_of_its_product(tables: ScoreTables) -> None:
    """All of its pairs are gone but one, whose bridge is half as fast."""
    gen = tables.add(PAIRS)
    broken = tables.add(msgspec.structs.replace(PAIRS, nv="6" + "0" * 27))
    views = {"whole": of("A", view(gen, 0b0111)), "degraded": of("A", view(broken, 0b0111))}
    for order in ProductOrder:
        assert ranks(views, ask(2), tables, order) == {"whole": 10, "degraded": 5}


def test_the_order_of_products_is_a_setting(tables: ScoreTables) -> None:
    """A pair of the slow product is ideal there; that of the fast one is not."""
    slow, fast = tables.add(MESH), tables.add(PAIRS)
    views = {"ideal": of("V", view(slow, 0b1001)), "halves": of("A", view(fast, 0b0101))}
    views |= {f"a{at}": of("A", view(fast, 0xFF)) for at in range(3)}
    assert ranks(views, ask(2), tables)["a0"] == 10
    cheapest = ranks(views, ask(2), tables, ProductOrder.CHEAPEST)
    assert {cheapest[name] for name in ("a0", "a1", "ideal")} == {10, 3}
    off = ranks(views, ask(2), tables, ProductOrder.OFF)
    assert (off["ideal"], off["halves"]) == (8, 4) or off["ideal"] == 10


def test_a_node_close_to_a_nic_goes_first_among_equally_fast_ones() -> None:
    tables = ScoreTables()
    near, far = tables.add(RDMA), tables.add(SWITCHED)
    views = {
        "near": of("R", view(near, 0b1111)),
        "far": of("R", view(far, 0b1111)),
        "other": of("V", view(tables.add(MESH), 0b1111)),
    }
    wanted = PodRequest(namespace="n", name="p", uid="u", wish=gpu_request(4, nic=True))
    assert ranks(views, wanted, tables) == {"near": 10, "far": 7, "other": 4}


# what is not scored is counted


def test_every_node_without_a_score_is_counted_by_reason() -> None:
    tables = ScoreTables(Later())
    gen = tables.add(PAIRS)
    views: dict[str, ScoringView | NoView] = {
        "pending": view(tables.add(MANY), 0xFFFF),
        "huge": ScoringView(gen="9" * 10, free=1, ok=(1 << 17) - 1),
        "dropped": view("8" * 10, 0b11),
        "known": view(gen, 0b11),
        "full": view(gen, 0b1),
    }
    ranking = NodeRanker(Fleet(views), tables).rank(ask(2), list(views))
    assert ranking.ranks == [0, 0, 0, 10, 0]
    assert ranking.unseen == {
        NoOutcome.PENDING: 1,
        NoOutcome.TOO_MANY_GPUS: 1,
        NoOutcome.TOO_MANY_CLASSES: 1,
    }


def test_a_pod_of_too_many_containers_is_counted_for_each_node(tables: ScoreTables) -> None:
    many = PodRequest(namespace="n", name="p", uid="u", wish=gpu_request(*[0] * 20, 1))
    views = {"a": view(tables.add(PAIRS), 0b11), "b": view(tables.add(PAIRS), 0b11)}
    ranking = NodeRanker(Fleet(views), tables).rank(many, list(views))
    assert ranking.unseen == {NoOutcome.TOO_MANY_CONTAINERS: 2}


def test_a_node_whose_outcome_was_given_up_is_in_the_middle(
    tables: ScoreTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    gen = tables.add(PAIRS)
    gone = tables.add(MESH)
    table = tables.find(gone)
    assert table
    monkeypatch.setattr(table, "kept", lambda _free, _wish: GIVEN_UP)
    views = {
        "best": view(gen, 0b0011),
        "given up": view(gone, 0xFF, sure=False),
        "halves": view(gen, 0b0101),
    }
    ranking = NodeRanker(Fleet(views), tables).rank(ask(2), list(views))
    assert ranking.ranks[:2] == [10, 5]
    assert ranking.ranks[2] < 5
    assert ranking.unseen == {NoOutcome.GIVEN_UP: 1}


def test_what_is_worked_out_within_a_call_is_not_put_off_as_well() -> None:
    later = Later()
    tables = ScoreTables(later)
    views = {"a": view(tables.add(PAIRS), 0b111)}
    later.run()
    wanted = PodRequest(namespace="n", name="p", uid="u", wish=gpu_request(1, 1))
    assert ranks(views, wanted, tables) == {"a": 10}
    assert later.run() == 0


def test_a_call_looks_up_each_table_once_however_many_views_there_are() -> None:
    looked_up: Counter[str] = Counter()

    class Counting(ScoreTables):
        def find(self, gen: str) -> ScoreTable | None:
            looked_up[gen] += 1
            return super().find(gen)

    tables = Counting()
    gens = [tables.add(machine) for machine in (PAIRS, MESH, SWITCHED)]
    views = {f"{gen} {free}": view(gen, free) for gen in gens for free in (0b11, 0xF, 0xFF)}
    looked_up.clear()
    NodeRanker(Fleet(views), tables).rank(ask(1), list(views))
    assert looked_up == dict.fromkeys(gens, 1)
