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
from placement.score import FULL_SPEED, aims
from placement.score_table import GIVEN_UP, ScoreTable
from scheduler.cluster.node_views import NoOutcome, NoView, ScoringView
from scheduler.fleet_products import FleetProducts
from scheduler.node_ranking import NodeRanker, OutcomeUnknown, RankedNode
from scheduler.pod_request import PodRequest
from tests.observed import observed
from tests.scheduler.later import Later

PAIRS = topology_of(observed("a100-pcie-pairs").snapshot)
MESH = topology_of(observed("dgx1-v100").snapshot)
MANY = topology_of(observed("hgx-16").snapshot)
SWITCHED = topology_of(observed("hgx-h100").snapshot)
RDMA = topology_of(observed("hgx-h100-rdma").snapshot)
FOUR = topology_of(observed("gb200").snapshot)


class Fleet:
    """Nodes as given; a job's are those whose names begin with its."""

    def __init__(
        self, views: Mapping[str, ScoringView | NoView], products: FleetProducts | None = None
    ) -> None:
        self._views = views
        self._products = products or FleetProducts()

    def views(self, nodes: Iterable[str]) -> list[ScoringView | NoView]:
        return [self._views.get(node, NoView.UNKNOWN_NODE) for node in nodes]

    @property
    def products(self) -> FleetProducts:
        return self._products

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
    products: FleetProducts | None = None,
) -> dict[str, RankedNode]:
    verdicts = NodeRanker(Fleet(views, products), tables).judge(asked, list(views))
    assert [verdict.node for verdict in verdicts] == list(views)
    return {verdict.node: verdict for verdict in verdicts}


def ranks(
    views: Mapping[str, ScoringView | NoView],
    asked: PodRequest,
    tables: ScoreTables,
    products: FleetProducts | None = None,
) -> dict[str, int]:
    return {node: each.rank for node, each in judged(views, asked, tables, products).items()}


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
        "in-a": view(gen, 0x7F, clique="a"),
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


# products


def of(product: str, seen: ScoringView) -> ScoringView:
    return msgspec.structs.replace(seen, product=product)


def fleet_of(*nodes: tuple[str, str], n: int = 8) -> FleetProducts:
    """One node of each product and class."""
    products = FleetProducts()
    for product, gen in nodes:
        products.add_node(product, gen, n, {})
    return products


def test_a_pod_goes_to_the_product_whose_turn_it_is_and_not_to_the_fastest(
    tables: ScoreTables,
) -> None:
    slow, fast = tables.add(MESH), tables.add(SWITCHED)
    views = {"v": of("V", view(slow, 0b1111)), "h": of("H", view(fast, 0b1111))}
    products = fleet_of(("V", slow), ("H", fast))
    for product in "VVVVHHHHH":
        products.add_pod(product, 4)
    assert ranks(views, ask(4), tables, products) == {"v": 10, "h": 5}
    products.add_pod("V", 4)
    products.add_pod("V", 4)
    assert ranks(views, ask(4), tables, products) == {"v": 5, "h": 10}


def test_single_gpus_leave_the_faster_product_alone(tables: ScoreTables) -> None:
    slow, fast = tables.add(MESH), tables.add(SWITCHED)
    views = {"v": of("V", view(slow, 0b1111)), "h": of("H", view(fast, 0b11))}
    products = fleet_of(("V", slow), ("H", fast))
    assert ranks(views, ask(1), tables, products) == {"v": 10, "h": 5}


def test_a_node_that_the_pod_fills_goes_before_the_product_whose_turn_it_is(
    tables: ScoreTables,
) -> None:
    slow, fast = tables.add(MESH), tables.add(SWITCHED)
    views = {
        "filled": of("H", view(fast, 0b11)),
        "turn": of("V", view(slow, 0b1001)),
        "whole": of("V", view(slow, 0xFF)),
    }
    products = fleet_of(("V", slow), ("H", fast))
    for product in "VVVVHHHHH":
        products.add_pod(product, 2)
    assert ranks(views, ask(2), tables, products) == {"filled": 5, "turn": 10, "whole": 4}
    views["turn"] = of("V", view(slow, 0b11001))
    assert ranks(views, ask(2), tables, products) == {"filled": 10, "turn": 4, "whole": 4}
    for _ in range(2):
        products.add_pod("H", 2)
    assert ranks(views, ask(2), tables, products) == {"filled": 5, "turn": 10, "whole": 4}
    del views["filled"]
    assert ranks(views, ask(2), tables, products) == {"turn": 10, "whole": 4}


def test_a_single_gpu_breaks_up_a_small_node_before_it_joins_others_on_a_large_one() -> None:
    tables = ScoreTables()
    four = tables.add(msgspec.structs.replace(FOUR, lbw=(25,)))
    eight = tables.add(SWITCHED)
    views = {
        "small": of("B", view(four, 0b1111)),
        "joined": of("H", view(eight, 0b111)),
        "large": of("H", view(eight, 0xFF)),
    }
    products = FleetProducts()
    products.add_node("B", four, 4, {})
    products.add_node("H", eight, 8, {})
    assert ranks(views, ask(1), tables, products) == {"small": 10, "joined": 5, "large": 4}


def test_a_class_of_no_product_is_one_of_its_own(tables: ScoreTables) -> None:
    slow, fast = tables.add(MESH), tables.add(SWITCHED)
    views = {"v": view(slow, 0b1111), "h": view(fast, 0b11)}
    assert ranks(views, ask(1), tables, fleet_of((slow, slow), (fast, fast))) == {"v": 10, "h": 5}


def test_an_ideal_set_of_a_slow_product_goes_before_a_poor_one_of_a_fast_product(
    tables: ScoreTables,
) -> None:
    """By the part of what its product can be: all of 50 GB/s before a third of 300."""
    slow, fast = tables.add(MESH), tables.add(PAIRS)
    views = {"ideal": of("V", view(slow, 0b1001)), "halves": of("A", view(fast, 0b0101))}
    products = fleet_of(("V", slow), ("A", fast))
    products.add_pod("V", 2)
    assert ranks(views, ask(2), tables, products)["ideal"] == 10


def test_a_degraded_node_counts_by_the_best_of_its_product(tables: ScoreTables) -> None:
    """All of its pairs are gone but one, whose bridge is half as fast."""
    gen = tables.add(PAIRS)
    broken = tables.add(msgspec.structs.replace(PAIRS, nv="6" + "0" * 27))
    views = {"whole": of("A", view(gen, 0b0111)), "degraded": of("A", view(broken, 0b0111))}
    products = fleet_of(("A", gen), ("A", broken))
    assert ranks(views, ask(2), tables, products) == {"whole": 10, "degraded": 2}
    alone = {"first": of("", views["degraded"]), "second": of("", view(broken, 0b0110))}
    found = judged(alone, ask(2), tables, FleetProducts())
    assert found["first"].rank == 10
    assert aims(found["first"].score).speed == FULL_SPEED


def test_pods_that_a_small_node_serves_as_fast_go_to_the_fullest_node() -> None:
    """Three of 4 GPUs in use are less than fifteen of 16, whatever pods of that size hold."""
    tables = ScoreTables()
    four, sixteen = tables.add(FOUR), tables.add(MANY)
    views = {
        "four": of("B", view(four, 0b0011, ok=0xF)),
        "whole": of("B", view(four, 0b1111, ok=0xF)),
        "sixteen": of("M", view(sixteen, 0b11, ok=0xFFFF)),
        "free": of("M", view(sixteen, 0xFFFF, ok=0xFFFF)),
    }
    products = FleetProducts()
    products.add_node("B", four, 4, {2: 2})
    products.add_node("M", sixteen, 16, {2: 2})
    found = {"sixteen": 10, "four": 10, "whole": 8, "free": 8}
    assert ranks(views, ask(2), tables, products) == found
    views["sixteen"] = of("M", view(sixteen, 0b111, ok=0xFFFF))
    assert ranks(views, ask(2), tables, products) == found | {"sixteen": 8}
    views["four"] = of("B", view(four, 0b0111, ok=0xF))
    found = {"sixteen": 10, "four": 8, "whole": 8, "free": 8}
    for _ in range(4):
        products.add_pod("M", 2)
        assert ranks(views, ask(2), tables, products) == found
    scored = {
        name: aims(its.score).kept for name, its in judged(views, ask(2), tables, products).items()
    }
    assert scored["four"] > scored["whole"] > scored["free"]


def test_fullness_is_of_the_gpus_that_work() -> None:
    """One of 4 is broken: with the pod two of three are in use, which is more than five of 8."""
    tables = ScoreTables()
    four, eight = tables.add(FOUR), tables.add(SWITCHED)
    views = {"four": of("B", view(four, 0b110, ok=0b111)), "eight": of("M", view(eight, 0b11111))}
    products = FleetProducts()
    products.add_node("B", four, 4, {})
    products.add_node("M", eight, 8, {})
    assert ranks(views, ask(2), tables, products)["four"] == 10


def test_a_node_close_to_a_nic_goes_first_within_the_product_whose_turn_it_is() -> None:
    tables = ScoreTables()
    near, far = tables.add(RDMA), tables.add(SWITCHED)
    views = {
        "near": of("R", view(near, 0b1111)),
        "far": of("R", view(far, 0b1111)),
        "other": of("V", view(tables.add(MESH), 0b1111)),
    }
    products = fleet_of(("R", near), ("R", far), ("V", MESH.gen))
    wanted = PodRequest(namespace="n", name="p", uid="u", wish=gpu_request(4, nic=True))
    for product in "VVVVRRRRRRR":
        products.add_pod(product, 4)
    assert ranks(views, wanted, tables, products) == {"near": 10, "far": 7, "other": 5}
    for _ in range(2):
        products.add_pod("R", 4)
    assert ranks(views, wanted, tables, products) == {"other": 10, "near": 5, "far": 5}


def test_pods_of_a_job_share_a_clique_among_equals_only(tables: ScoreTables) -> None:
    """A member that would break a free node up goes elsewhere, and so does one out of turn."""
    gen = tables.add(FOUR)
    views = {
        "job-1": view(gen, 0, clique="a"),
        "free": view(gen, 0b1111, clique="a"),
        "part": view(gen, 0b0111, clique="a"),
        "out": view(gen, 0b0111, clique="b"),
    }
    found = ranks(views, ask(2, job="job"), tables)
    assert (found["part"], found["out"], found["free"]) == (10, 6, 4)


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
