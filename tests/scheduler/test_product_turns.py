# SPDX-License-Identifier: Apache-2.0
"""Which product of a fleet pods of one kind go to first."""

from __future__ import annotations

from collections.abc import Mapping

from api.gpu_request import GpuRequest, gpu_request
from placement.score import MOST_SHARE
from scheduler.fleet_products import FleetProducts
from scheduler.product_turns import product_aims
from tests.scheduler.products import BOTH, TWO, H, Tables, V, fleet


def aims(
    wish: GpuRequest, products: Mapping[str, str], fleet: FleetProducts, tables: Tables
) -> dict[str, dict[str, object]]:
    """All but the best speed."""
    found = product_aims(wish, products, fleet, tables)
    without = {"best_speed"}
    return {
        name: {key: value for key, value in its._asdict().items() if key not in without}
        for name, its in found.items()
    }


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


def test_the_product_goes_first_of_which_pods_of_the_size_hold_the_least_part() -> None:
    """Four GPUs of 24 are less than two of 8."""
    products = fleet(V=3, H=1)
    products.add_pod("V", 2)
    products.add_pod("V", 2)
    products.add_pod("H", 2)
    assert shares(gpu_request(2), BOTH, products, TWO) == {"V": MOST_SHARE, "H": MOST_SHARE - 1}
    products.add_pod("V", 2)
    assert shares(gpu_request(2), BOTH, products, TWO) == {"V": MOST_SHARE, "H": MOST_SHARE}
    products.add_pod("V", 2)
    assert shares(gpu_request(2), BOTH, products, TWO) == {"V": MOST_SHARE - 1, "H": MOST_SHARE}


def test_pods_of_other_sizes_count_for_nothing() -> None:
    products = fleet(V=1, H=1)
    products.add_pod("V", 8)
    assert shares(gpu_request(2), BOTH, products, TWO) == {"V": MOST_SHARE, "H": MOST_SHARE}


def test_what_pods_give_back_counts_no_more() -> None:
    products = fleet(V=1, H=1)
    products.add_pod("V", 4)
    products.add_pod("V", 4, sign=-1)
    assert shares(gpu_request(4), BOTH, products, TWO) == {"V": MOST_SHARE, "H": MOST_SHARE}


def test_single_gpus_go_to_the_product_that_is_slowest_where_it_matters() -> None:
    products = fleet(V=1, H=1)
    for wished in (gpu_request(1), gpu_request(1, 1)):
        assert shares(wished, BOTH, products, TWO) == {"V": MOST_SHARE, "H": MOST_SHARE - 1}


def test_pods_that_are_as_fast_on_each_product_leave_the_one_that_is_faster_for_others() -> None:
    """Whatever they hold: H is no faster for 4 GPUs than FOUR, and is for 2."""
    tables = Tables(h=H, four={2: 150, 4: 450})
    products = fleet(H=1, FOUR=1)
    products.add_pod("FOUR", 4)
    both = {"H": "h", "FOUR": "four"}
    assert shares(gpu_request(4), both, products, tables) == {
        "FOUR": MOST_SHARE,
        "H": MOST_SHARE - 1,
    }
    products.add_pod("FOUR", 2)
    assert shares(gpu_request(2), both, products, tables) == {
        "FOUR": MOST_SHARE - 1,
        "H": MOST_SHARE,
    }


def test_a_smaller_node_is_compared_by_the_sizes_that_fit_on_it() -> None:
    tables = Tables(v=V, h=H, four={2: 450, 4: 450}, one={})
    products = {"V": "v", "H": "h", "FOUR": "four", "ONE": "one"}
    assert shares(gpu_request(1), products, fleet(V=1, H=1, FOUR=1, ONE=1), tables) == {
        "ONE": MOST_SHARE,
        "V": MOST_SHARE - 1,
        "H": MOST_SHARE - 2,
        "FOUR": MOST_SHARE - 2,
    }


SLOW_FOUR, FAST_FOUR = {2: 150, 4: 300}, {2: 450, 4: 450}
"""Nodes of 4 GPUs that are slower than H, and that are as fast."""
SMALL = Tables(v=V, h=H, four=SLOW_FOUR, other={2: 100, 4: 200}, fast=FAST_FOUR)
WITH_FOUR = {"H": "h", "FOUR": "four"}


def small_and_large(
    four: int = 1, held: Mapping[int, int] | None = None, **large: int
) -> FleetProducts:
    """So many nodes of 4 GPUs, of which pods of these sizes hold some, and others of 8."""
    products = fleet(**(large or {"H": 1}))
    for at in range(four):
        products.add_node("FOUR", "four", 4, (held or {}) if at == 0 else {})
    return products


def test_of_small_and_large_nodes_the_large_ones_are_filled_by_pods_that_are_faster_there() -> None:
    """Others fill the small ones, so that they leave the large ones alone."""
    found = small_and_large(V=1, H=1)
    assert filled(gpu_request(2), {"V": "v", **WITH_FOUR}, found, SMALL) == {"V", "H"}
    assert filled(gpu_request(1), WITH_FOUR, found, SMALL) == {"FOUR"}
    assert filled(gpu_request(1), BOTH, found, SMALL) == {"V", "H"}


def test_small_nodes_are_not_spared_from_pods_that_gain_nothing_on_large_ones() -> None:
    tables = Tables(v=V, h=H, four={2: 150, 4: 450})
    found = small_and_large(V=1, H=1)
    for wished in (gpu_request(1), gpu_request(4)):
        assert spared(wished, WITH_FOUR, found, tables) == {"H"}
    assert spared(gpu_request(2), WITH_FOUR, found, tables) == {"H", "FOUR"}
    assert spared(gpu_request(1), BOTH, found, TWO) == {"V", "H"}
    assert spared(gpu_request(1), {"FOUR": "four"}, found, tables) == {"FOUR"}


def test_the_fastest_large_nodes_go_first_up_to_their_part_or_hardly_more() -> None:
    """Sixteen GPUs of 32: their part is half, so that five of eight pods are hardly more and six of
    nine are more. Then neither goes first."""
    products = small_and_large(four=4, held={2: 6}, H=2)
    for _ in range(5):
        products.add_pod("H", 2)
    first = {"H": MOST_SHARE, "FOUR": MOST_SHARE - 1}
    assert shares(gpu_request(2), WITH_FOUR, products, SMALL) == first
    products.add_pod("H", 2)
    assert shares(gpu_request(2), WITH_FOUR, products, SMALL) == dict.fromkeys(
        WITH_FOUR, MOST_SHARE
    )
    for _ in range(3):
        products.add_pod("FOUR", 2)
    assert shares(gpu_request(2), WITH_FOUR, products, SMALL) == first


def test_turns_are_among_nodes_of_one_size() -> None:
    """Two products of small nodes, of which one is ahead, and two of large ones."""
    products = small_and_large(four=20, held={2: 4}, V=1, H=2)
    products.add_node("OTHER", "other", 4, {})
    names = {"V": "v", "OTHER": "other", **WITH_FOUR}
    for _ in range(7):
        products.add_pod("H", 2)
    products.add_pod("V", 2)
    assert shares(gpu_request(2), names, products, SMALL) == {
        "V": MOST_SHARE,
        "H": MOST_SHARE - 1,
        "FOUR": MOST_SHARE - 1,
        "OTHER": MOST_SHARE,
    }


FULLEST = dict.fromkeys(("fills", "spares"), False) | {"share": MOST_SHARE, "fullest": True}


def fast_small(*pods: int, nodes: int = 1) -> FleetProducts:
    """So many nodes of V and of H, on V's pods of these sizes, and one of 4 as fast as H's."""
    products = fleet(V=nodes, H=nodes)
    products.add_node("FAST", "fast", 4, {2: 4})
    for size in pods:
        products.add_pod("V", size)
    return products


def test_pods_that_smaller_nodes_serve_as_fast_as_any_go_to_the_fullest() -> None:
    """Whatever they hold; also where the small nodes are faster. Larger pods have their turns."""
    products = fast_small()
    for names in ({"V": "v", "FAST": "fast"}, {**BOTH, "FAST": "fast"}):
        found = aims(gpu_request(2), names, products, SMALL)
        assert all(its == FULLEST for its in found.values())
    assert not any(its["fullest"] for its in aims(gpu_request(2), BOTH, products, SMALL).values())


def test_single_gpus_go_to_the_fullest_where_the_smallest_nodes_are_not_the_slowest() -> None:
    """Where no room is left on the largest nodes, and of these first to the slowest product."""
    products = fast_small(8)
    found = aims(gpu_request(1), {"V": "v", "FAST": "fast"}, products, SMALL)
    assert all(its == FULLEST for its in found.values())
    found = aims(gpu_request(1), {**BOTH, "FAST": "fast"}, products, SMALL)
    assert found["V"] == found["FAST"] == FULLEST
    assert found["H"] == FULLEST | {"share": MOST_SHARE - 1}
    found = aims(gpu_request(1), WITH_FOUR, small_and_large(), SMALL)
    assert not any(its["fullest"] for its in found.values())


def test_where_large_nodes_have_room_small_ones_are_left_to_pods_that_are_faster_there() -> None:
    found = aims(gpu_request(1), {"V": "v", "FAST": "fast"}, fast_small(), SMALL)
    assert not any(its["fullest"] or its["fills"] for its in found.values())
    assert (found["V"]["share"], found["FAST"]["share"]) == (MOST_SHARE, MOST_SHARE - 1)
    assert (found["V"]["spares"], found["FAST"]["spares"]) == (True, False)


def test_single_gpus_leave_larger_pods_three_times_what_these_hold() -> None:
    """Ten nodes of 8 GPUs, of which pods of 8 hold two: 80 less 48 is 32 GPUs, of whatever pods fit
    on smaller nodes."""
    for pods, is_left in (((8, 8, *[1] * 28, 4), True), ((8, 8, *[1] * 29, 4), False)):
        products = fast_small(*pods, nodes=10)
        found = aims(gpu_request(1), {"V": "v", "FAST": "fast"}, products, SMALL)
        assert {its["fullest"] for its in found.values()} == {not is_left}


def test_what_is_smaller_is_said_by_the_largest_of_the_smaller_nodes() -> None:
    """Pods of 4 fit on nodes of 4, though not on those of 2."""
    products = fast_small(*[4] * 10, nodes=10)
    products.add_node("TWO", "fast", 2, {})
    names = {"V": "v", "FAST": "fast", "TWO": "fast"}
    assert not any(its["fullest"] for its in aims(gpu_request(1), names, products, SMALL).values())


def test_single_gpus_have_no_part_of_large_nodes_whatever_larger_pods_hold() -> None:
    """Unlike pods that gain there."""
    products = fast_small(*[8] * 9, 1, nodes=10)
    found = aims(gpu_request(1), {"V": "v", "FAST": "fast"}, products, SMALL)
    assert all(its["fullest"] for its in found.values())


def is_short_of_room(products: FleetProducts, tables: Tables = SMALL) -> bool:
    """Whether pods of 2, which gain on large nodes, go to the fullest node."""
    found = aims(gpu_request(2), WITH_FOUR, products, tables)
    assert len({its["fullest"] for its in found.values()}) == 1
    return all(its == FULLEST for its in found.values())


def hold(products: FleetProducts, size: int, times: int) -> None:
    """So many pods of a size more hold GPUs of H."""
    for _ in range(times):
        products.add_pod("H", size)


def test_pods_that_gain_leave_larger_ones_three_times_what_these_hold() -> None:
    """Ten nodes of 8 GPUs, of which pods of 8 hold two: 80 less 48 is 32 GPUs."""
    products = small_and_large(H=10)
    hold(products, 8, times=2)
    hold(products, 2, times=16)
    assert not is_short_of_room(products)
    products.add_pod("H", 2)
    assert is_short_of_room(products)
    products.add_pod("H", 8, sign=-1)
    assert not is_short_of_room(products)


def test_pods_that_gain_may_have_fifteen_parts_of_a_hundred_whatever_larger_ones_hold() -> None:
    products = small_and_large(H=10)
    hold(products, 8, times=9)
    hold(products, 2, times=6)
    assert not is_short_of_room(products)  # 12 of 80
    products.add_pod("H", 2)
    assert is_short_of_room(products)


def test_where_there_are_no_larger_pods_nothing_is_kept_for_them() -> None:
    products = small_and_large(H=1)
    hold(products, 2, times=4)
    assert not is_short_of_room(products)


def test_all_sizes_that_gain_share_the_room_and_others_take_none_of_it() -> None:
    """Fourteen GPUs of 80 in all. Pods of 4 are as fast on nodes of 4 in one of the fleets."""
    for four, is_short in ((SLOW_FOUR, True), ({2: 150, 4: 450}, False)):
        products = small_and_large(H=10)
        for size in (*[8] * 8, 4, 4, 2, 2, 2):
            products.add_pod("H", size)
        assert is_short_of_room(products, Tables(h=H, four=four)) == is_short


def test_a_node_that_lost_a_gpu_is_no_smaller_node() -> None:
    """Seven GPUs count as eight: their fleet goes by turns as before."""
    products = fleet(V=3, H=1)
    products.add_node("SEVEN", "v", 7, {})
    names = {**BOTH, "SEVEN": "v"}
    for wished in (gpu_request(1), gpu_request(2), gpu_request(4)):
        found = aims(wished, names, products, TWO)
        assert not any(its["fullest"] for its in found.values())
        assert {its["spares"] for its in found.values()} == {True}
    products.add_node("HALF", "h", 4, {})
    assert aims(gpu_request(2), {**BOTH, "HALF": "h"}, products, TWO)["HALF"] == FULLEST


def test_pods_that_hold_far_more_than_their_part_of_a_product_do_not_fill_it_before_turns() -> None:
    """A quarter of the GPUs is fast: one pod of five is less than that, two of six far more."""
    products = fleet(V=3, H=1)
    for product in ("V", "V", "V", "H"):
        products.add_pod(product, 2)
    assert filled(gpu_request(2), BOTH, products, TWO) == {"V", "H"}
    products.add_pod("V", 2)
    products.add_pod("H", 4)
    assert filled(gpu_request(2), BOTH, products, TWO) == {"V", "H"}
    products.add_pod("H", 2)
    assert filled(gpu_request(2), BOTH, products, TWO) == {"V"}
    assert filled(gpu_request(1), BOTH, products, TWO) == {"V", "H"}


def test_their_part_is_that_of_the_largest_nodes_alone() -> None:
    """Where one product alone has nodes that large, it is all of it."""
    products = small_and_large()
    products.add_pod("H", 2)
    assert filled(gpu_request(2), WITH_FOUR, products, SMALL) == {"H"}
    products = small_and_large(held={2: 4}, V=1, H=1)
    for product in "VH":
        products.add_pod(product, 2)
    three = {"V": "v", **WITH_FOUR}
    assert filled(gpu_request(2), three, products, SMALL) == {"V", "H"}
    products.add_pod("H", 2)
    assert filled(gpu_request(2), three, products, SMALL) == {"V"}


def test_pods_that_are_as_fast_everywhere_fill_any_product_whatever_they_hold() -> None:
    tables = Tables(h=H, x=H)
    products = fleet(H=1, X=1)
    products.add_pod("H", 4)
    assert filled(gpu_request(4), {"H": "h", "X": "x"}, products, tables) == {"H", "X"}


def test_a_quarter_more_than_their_part_is_not_far_more() -> None:
    """Of two equal products five of eight pods, and then six of nine."""
    products = fleet(V=1, H=1)
    for product in "VVVHHHHH":
        products.add_pod(product, 2)
    assert filled(gpu_request(2), BOTH, products, TWO) == {"V", "H"}
    products.add_pod("H", 2)
    assert filled(gpu_request(2), BOTH, products, TWO) == {"V"}


def test_a_fleet_of_one_product_has_no_turns() -> None:
    products = fleet(V=2)
    products.add_pod("V", 2)
    assert shares(gpu_request(2), {"V": "v"}, products, TWO) == {"V": MOST_SHARE}
    assert shares(gpu_request(2), {}, products, TWO) == {}
    assert filled(gpu_request(2), {"V": "v"}, products, TWO) == set()


def test_of_very_many_products_the_last_ones_are_alike() -> None:
    names = [chr(ord("A") + at) for at in range(12)]
    tables = Tables(a={2: 1})
    products = fleet(**dict.fromkeys(names, 1))
    for at, name in enumerate(names):
        for _ in range(at):
            products.add_pod(name, 2)
    found = shares(gpu_request(2), {name: name.lower() for name in names}, products, tables)
    assert [found[name] for name in names] == [7, 6, 5, 4, 3, 2, 1, 0, 0, 0, 0, 0]
