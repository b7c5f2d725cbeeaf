# SPDX-License-Identifier: Apache-2.0
"""Whose turn it is: shares of products by the pods that hold their GPUs."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.gpu_request import ContainerRequest, GpuRequest, wish
from scheduler.fleet_products import (
    FleetProducts,
    best_speed,
    counted_size,
    product_aims,
    product_name,
)
from scheduler.pod_request import PodRequest
from scheduler.scores.score import MOST_SHARE


class Table:
    """A class with these best speeds, by size."""

    def __init__(self, best: Mapping[int, int | None]) -> None:
        self._best = best

    def known_best_speed(self, wish: GpuRequest) -> int | None:
        return self._best.get(min(wish.several), 0) if wish.several else 0


class Tables:
    """Those of all classes."""

    def __init__(self, **tables: Mapping[int, int | None]) -> None:
        self._tables = {gen: Table(best) for gen, best in tables.items()}

    def find(self, gen: str) -> Table | None:
        return self._tables.get(gen)


V, H = {2: 50, 4: 100, 8: 150}, {2: 450, 4: 450, 8: 450}
TWO = Tables(v=V, h=H)
BOTH = {"V": "v", "H": "h"}


def fleet(**nodes: int) -> FleetProducts:
    """So many nodes of 8 GPUs of each product; its class has its name in small letters."""
    products = FleetProducts()
    for product, count in nodes.items():
        for _ in range(count):
            products.add_node(product, product.lower(), 8, {})
    return products


def shares(
    wish: GpuRequest, products: Mapping[str, str], fleet: FleetProducts, tables: Tables
) -> dict[str, int]:
    found = product_aims(wish, products, fleet, tables)
    return {name: its.share for name, its in found.items()}


def filled(
    wish: GpuRequest, products: Mapping[str, str], fleet: FleetProducts, tables: Tables
) -> set[str]:
    """The products of whose nodes it counts that they are filled."""
    found = product_aims(wish, products, fleet, tables)
    return {name for name, its in found.items() if its.fills}


def spared(
    wish: GpuRequest, products: Mapping[str, str], fleet: FleetProducts, tables: Tables
) -> set[str]:
    """The products of which nodes that are entirely free are left so."""
    found = product_aims(wish, products, fleet, tables)
    return {name for name, its in found.items() if its.spares}


def pod(wish: GpuRequest, *, pinned: bool = False) -> PodRequest:
    return PodRequest(namespace="n", name="p", uid="u", wish=wish, pinned=pinned)


def test_a_product_is_a_model_and_a_number_of_gpus() -> None:
    assert product_name("V100", 8, "gen") != product_name("V100", 4, "gen")
    assert product_name("V100", 8, "gen") == product_name("V100", 8, "other")
    assert product_name(None, 8, "gen") == product_name("", 8, "gen") == "gen"


@pytest.mark.parametrize(
    ("wished", "pinned", "size"),
    [
        (wish(4), False, 4),
        (wish(2, 1), False, 3),
        (wish(4), True, 0),
        (wish(1), False, 0),
        (wish(1, 1), False, 0),
        (
            GpuRequest(steps=(ContainerRequest(gpus=4, ends=True), ContainerRequest(gpus=1))),
            False,
            0,
        ),
    ],
)
def test_pods_count_by_their_gpus_if_they_gain_from_a_fast_set(
    wished: GpuRequest, pinned: bool, size: int
) -> None:
    assert counted_size(pod(wished, pinned=pinned)) == size


def test_the_product_goes_first_of_which_pods_of_the_size_hold_the_least_part() -> None:
    """Four GPUs of 24 are less than two of 8."""
    products = fleet(V=3, H=1)
    products.add_pod("V", 2)
    products.add_pod("V", 2)
    products.add_pod("H", 2)
    assert shares(wish(2), BOTH, products, TWO) == {"V": MOST_SHARE, "H": MOST_SHARE - 1}
    products.add_pod("V", 2)
    assert shares(wish(2), BOTH, products, TWO) == {"V": MOST_SHARE, "H": MOST_SHARE}
    products.add_pod("V", 2)
    assert shares(wish(2), BOTH, products, TWO) == {"V": MOST_SHARE - 1, "H": MOST_SHARE}


def test_pods_of_other_sizes_count_for_nothing() -> None:
    products = fleet(V=1, H=1)
    products.add_pod("V", 8)
    assert shares(wish(2), BOTH, products, TWO) == {"V": MOST_SHARE, "H": MOST_SHARE}


def test_what_pods_give_back_counts_no_more() -> None:
    products = fleet(V=1, H=1)
    products.add_pod("V", 4)
    products.add_pod("V", 4, by=-1)
    assert shares(wish(4), BOTH, products, TWO) == {"V": MOST_SHARE, "H": MOST_SHARE}


def test_single_gpus_go_to_the_product_that_is_slowest_where_it_matters() -> None:
    products = fleet(V=1, H=1)
    for wished in (wish(1), wish(1, 1)):
        assert shares(wished, BOTH, products, TWO) == {"V": MOST_SHARE, "H": MOST_SHARE - 1}


def test_pods_that_are_as_fast_on_each_product_leave_the_one_that_is_faster_for_others() -> None:
    """Whatever they hold: H is no faster for 4 GPUs than FOUR, and is for 2."""
    tables = Tables(h=H, four={2: 150, 4: 450})
    products = fleet(H=1, FOUR=1)
    products.add_pod("FOUR", 4)
    both = {"H": "h", "FOUR": "four"}
    assert shares(wish(4), both, products, tables) == {"FOUR": MOST_SHARE, "H": MOST_SHARE - 1}
    products.add_pod("FOUR", 2)
    assert shares(wish(2), both, products, tables) == {"FOUR": MOST_SHARE - 1, "H": MOST_SHARE}


def test_a_smaller_node_is_compared_by_the_sizes_that_fit_on_it() -> None:
    tables = Tables(v=V, h=H, four={2: 450, 4: 450}, one={})
    products = {"V": "v", "H": "h", "FOUR": "four", "ONE": "one"}
    assert shares(wish(1), products, fleet(V=1, H=1, FOUR=1, ONE=1), tables) == {
        "ONE": MOST_SHARE,
        "V": MOST_SHARE - 1,
        "H": MOST_SHARE - 2,
        "FOUR": MOST_SHARE - 2,
    }


def test_of_small_and_large_nodes_the_large_ones_are_filled_by_pods_that_are_faster_there() -> None:
    """Others fill the small ones, so that they leave the large ones alone."""
    tables = Tables(v=V, h=H, four={2: 450, 4: 450})
    found = fleet(V=1, H=1)
    found.add_node("FOUR", "four", 4, {})
    three = {"V": "v", "H": "h", "FOUR": "four"}
    assert filled(wish(2), three, found, tables) == {"V", "H"}
    assert filled(wish(1), three, found, tables) == {"FOUR"}
    as_fast = {"H": "h", "FOUR": "four"}
    assert filled(wish(4), as_fast, found, tables) == {"FOUR"}
    assert filled(wish(1), BOTH, found, tables) == {"V", "H"}


def test_small_nodes_are_not_spared_from_pods_that_gain_nothing_on_large_ones() -> None:
    tables = Tables(v=V, h=H, four={2: 150, 4: 450})
    found = fleet(V=1, H=1)
    found.add_node("FOUR", "four", 4, {})
    both = {"H": "h", "FOUR": "four"}
    for wished in (wish(1), wish(4)):
        assert spared(wished, both, found, tables) == {"H"}
    assert spared(wish(2), both, found, tables) == {"H", "FOUR"}
    assert spared(wish(1), BOTH, found, TWO) == {"V", "H"}
    assert spared(wish(1), {"FOUR": "four"}, found, tables) == {"FOUR"}


def test_the_fastest_large_nodes_go_first_up_to_their_part_or_hardly_more() -> None:
    """Eight GPUs of sixteen: their part is half, so that five of eight pods are hardly more and six
    of nine are more. Then neither goes first."""
    tables = Tables(h=H, four={2: 150, 4: 450})
    products = fleet(H=1)
    products.add_node("FOUR", "four", 4, {2: 6})
    products.add_node("FOUR", "four", 4, {})
    both = {"H": "h", "FOUR": "four"}
    for _ in range(5):
        products.add_pod("H", 2)
    assert shares(wish(2), both, products, tables) == {"H": MOST_SHARE, "FOUR": MOST_SHARE - 1}
    products.add_pod("H", 2)
    assert shares(wish(2), both, products, tables) == {"H": MOST_SHARE, "FOUR": MOST_SHARE}
    for _ in range(9):
        products.add_pod("FOUR", 2)
    assert shares(wish(2), both, products, tables) == {"H": MOST_SHARE, "FOUR": MOST_SHARE - 1}


def test_large_nodes_that_are_slower_than_small_ones_do_not_go_first() -> None:
    tables = Tables(v=V, four={2: 150, 4: 450})
    products = fleet(V=1)
    products.add_node("FOUR", "four", 4, {})
    both = {"V": "v", "FOUR": "four"}
    products.add_pod("V", 2)
    assert shares(wish(2), both, products, tables) == {"V": MOST_SHARE - 1, "FOUR": MOST_SHARE}


def test_turns_are_among_nodes_of_one_size() -> None:
    """Two products of small nodes, of which one is ahead, and two of large ones."""
    tables = Tables(v=V, h=H, four={2: 150, 4: 450}, other={2: 100, 4: 200})
    products = fleet(V=1, H=1)
    products.add_node("FOUR", "four", 4, {2: 2})
    products.add_node("OTHER", "other", 4, {})
    names = {"V": "v", "H": "h", "FOUR": "four", "OTHER": "other"}
    for _ in range(9):
        products.add_pod("H", 2)
    products.add_pod("V", 2)
    assert shares(wish(2), names, products, tables) == {
        "V": MOST_SHARE,
        "H": MOST_SHARE - 1,
        "FOUR": MOST_SHARE - 1,
        "OTHER": MOST_SHARE,
    }


def test_pods_that_hold_far_more_than_their_part_of_a_product_do_not_fill_it_before_turns() -> None:
    """A quarter of the GPUs is fast: one pod of five is less than that, two of six far more."""
    products = fleet(V=3, H=1)
    for product in ("V", "V", "V", "H"):
        products.add_pod(product, 2)
    assert filled(wish(2), BOTH, products, TWO) == {"V", "H"}
    products.add_pod("V", 2)
    products.add_pod("H", 4)
    assert filled(wish(2), BOTH, products, TWO) == {"V", "H"}
    products.add_pod("H", 2)
    assert filled(wish(2), BOTH, products, TWO) == {"V"}
    assert filled(wish(1), BOTH, products, TWO) == {"V", "H"}


def test_their_part_is_that_of_the_largest_nodes_alone() -> None:
    """Where one product alone has nodes that large, it is all of it."""
    tables = Tables(v=V, h=H, four={2: 150, 4: 450})
    products = fleet(H=1)
    products.add_node("FOUR", "four", 4, {})
    products.add_pod("H", 2)
    assert filled(wish(2), {"H": "h", "FOUR": "four"}, products, tables) == {"H"}
    products = fleet(V=1, H=1)
    products.add_node("FOUR", "four", 4, {2: 4})
    for product in "VH":
        products.add_pod(product, 2)
    three = {"V": "v", "H": "h", "FOUR": "four"}
    assert filled(wish(2), three, products, tables) == {"V", "H"}
    products.add_pod("H", 2)
    assert filled(wish(2), three, products, tables) == {"V"}


def test_pods_that_are_as_fast_everywhere_fill_any_product_whatever_they_hold() -> None:
    tables = Tables(h=H, x=H)
    products = fleet(H=1, X=1)
    products.add_pod("H", 4)
    assert filled(wish(4), {"H": "h", "X": "x"}, products, tables) == {"H", "X"}


def test_a_quarter_more_than_their_part_is_not_far_more() -> None:
    """Of two equal products five of eight pods, and then six of nine."""
    products = fleet(V=1, H=1)
    for product in "VVVHHHHH":
        products.add_pod(product, 2)
    assert filled(wish(2), BOTH, products, TWO) == {"V", "H"}
    products.add_pod("H", 2)
    assert filled(wish(2), BOTH, products, TWO) == {"V"}


def test_a_fleet_of_one_product_has_no_turns() -> None:
    products = fleet(V=2)
    products.add_pod("V", 2)
    assert shares(wish(2), {"V": "v"}, products, TWO) == {"V": MOST_SHARE}
    assert shares(wish(2), {}, products, TWO) == {}
    assert filled(wish(2), {"V": "v"}, products, TWO) == set()


def test_of_very_many_products_the_last_ones_are_alike() -> None:
    names = [chr(ord("A") + at) for at in range(12)]
    tables = Tables(a={2: 1})
    products = fleet(**dict.fromkeys(names, 1))
    for at, name in enumerate(names):
        for _ in range(at):
            products.add_pod(name, 2)
    found = shares(wish(2), {name: name.lower() for name in names}, products, tables)
    assert [found[name] for name in names] == [7, 6, 5, 4, 3, 2, 1, 0, 0, 0, 0, 0]


def test_a_best_speed_is_kept_until_the_classes_change() -> None:
    bests: dict[int, int | None] = {4: None}
    products, tables = fleet(V=1), Tables(v=bests, better={4: 70})
    assert best_speed("V", "v", wish(4), products, tables) == 0  # not known yet
    bests[4] = 50
    assert best_speed("V", "v", wish(4), products, tables) == 50
    assert best_speed("V", "better", wish(4), products, tables) == 50  # none of its classes
    products.add_node("V", "better", 8, {})
    assert best_speed("V", "v", wish(4), products, tables) == 70
    products.add_node("V", "better", 8, {}, by=-1)
    assert best_speed("V", "v", wish(4), products, tables) == 50


def test_few_best_speeds_are_kept_and_none_of_a_pod_with_many_containers() -> None:
    products = fleet(V=1)
    found = products.find("V")
    assert found is not None
    best_speed("V", "v", wish(*[1] * 9), products, TWO)
    assert not found.best_speeds
    for gpus in range(1, 200):
        best_speed("V", "v", wish(gpus), products, TWO)
    assert len(found.best_speeds) == 64


def test_the_best_speed_is_that_of_any_class_of_the_product() -> None:
    products = fleet(V=2)
    products.add_node("V", "degraded", 8, {})
    tables = Tables(v=V, degraded={2: 50, 4: 50, 8: None}, lone={2: 20})
    assert best_speed("V", "degraded", wish(4), products, tables) == 100
    assert best_speed("V", "degraded", wish(8), products, tables) == 150
    products.add_node("V", "v", 8, {}, by=-1)
    products.add_node("V", "v", 8, {}, by=-1)
    assert best_speed("V", "degraded", wish(4), products, tables) == 50
    assert best_speed("L", "lone", wish(2), products, tables) == 20


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from([2, 4]), st.booleans()), max_size=30)
)
def test_counts_that_follow_each_change_are_those_of_the_end(
    changes: list[tuple[str, int, bool]],
) -> None:
    """Pods come; every other one goes again; nodes come before and after them."""
    products = fleet(a=1, b=1)
    for name, size, goes in changes:
        products.add_pod(name, size)
        if goes:
            products.add_pod(name, size, by=-1)
    for name in "ab":
        found = products.find(name)
        assert found is not None
        for size in (2, 4):
            stays = [its for its in changes if its[:2] == (name, size) and not its[2]]
            assert found.held[size] == size * len(stays)
