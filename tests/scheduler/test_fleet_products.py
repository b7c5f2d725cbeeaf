# SPDX-License-Identifier: Apache-2.0
"""Products of a fleet: who holds their GPUs, and their best speeds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.gpu_request import ContainerRequest, GpuRequest, gpu_request
from scheduler.fleet_products import best_speed, counted_size, product_name
from scheduler.pod_request import PodRequest
from tests.scheduler.products import TWO, Tables, V, fleet


def pod(wish: GpuRequest, *, pinned: bool = False) -> PodRequest:
    return PodRequest(namespace="n", name="p", uid="u", wish=wish, pinned=pinned)


def test_a_product_is_a_model_and_a_number_of_gpus() -> None:
    assert product_name("V100", 8, "gen") != product_name("V100", 4, "gen")
    assert product_name("V100", 8, "gen") == product_name("V100", 8, "other")
    assert product_name(None, 8, "gen") == product_name("", 8, "gen") == "gen"


@pytest.mark.parametrize(
    ("wished", "pinned", "size"),
    [
        (gpu_request(4), False, 4),
        (gpu_request(2, 1), False, 3),
        (gpu_request(4), True, 0),
        (gpu_request(1), False, 0),
        (gpu_request(1, 1), False, 0),
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


def test_a_best_speed_is_kept_until_the_classes_change() -> None:
    bests: dict[int, int | None] = {4: None}
    products, tables = fleet(V=1), Tables(v=bests, better={4: 70})
    assert best_speed("V", "v", gpu_request(4), products, tables) == 0  # not known yet
    bests[4] = 50
    assert best_speed("V", "v", gpu_request(4), products, tables) == 50
    assert best_speed("V", "better", gpu_request(4), products, tables) == 50  # none of its classes
    products.add_node("V", "better", 8, {})
    assert best_speed("V", "v", gpu_request(4), products, tables) == 70
    products.add_node("V", "better", 8, {}, sign=-1)
    assert best_speed("V", "v", gpu_request(4), products, tables) == 50


def test_a_product_goes_with_its_last_node_and_what_pods_held_of_it_too() -> None:
    products = fleet(V=1)
    products.add_node("V", "degraded", 8, {2: 2, 4: 4})
    products.add_node("V", "v", 8, {}, sign=-1)
    assert products.find("V") is not None
    products.add_node("V", "degraded", 8, {2: 2, 4: 4}, sign=-1)
    assert products.find("V") is None
    products.add_pod("V", 4)  # of a node that is gone
    assert products.find("V") is None
    products.add_node("V", "v", 8, {2: 2})
    again = products.find("V")
    assert again is not None
    assert (again.gpus, dict(again.held), dict(again.classes)) == (8, {2: 2}, {"v": 1})


def test_few_best_speeds_are_kept_and_none_of_a_pod_with_many_containers() -> None:
    products = fleet(V=1)
    found = products.find("V")
    assert found is not None
    best_speed("V", "v", gpu_request(*[1] * 9), products, TWO)
    assert not found.best_speeds
    for gpus in range(1, 200):
        best_speed("V", "v", gpu_request(gpus), products, TWO)
    assert len(found.best_speeds) == 64


def test_the_best_speed_is_that_of_any_class_of_the_product() -> None:
    products = fleet(V=2)
    products.add_node("V", "degraded", 8, {})
    tables = Tables(v=V, degraded={2: 50, 4: 50, 8: None}, lone={2: 20})
    assert best_speed("V", "degraded", gpu_request(4), products, tables) == 100
    assert best_speed("V", "degraded", gpu_request(8), products, tables) == 150
    products.add_node("V", "v", 8, {}, sign=-1)
    products.add_node("V", "v", 8, {}, sign=-1)
    assert best_speed("V", "degraded", gpu_request(4), products, tables) == 50
    assert best_speed("L", "lone", gpu_request(2), products, tables) == 20


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
            products.add_pod(name, size, sign=-1)
    for name in "ab":
        found = products.find(name)
        assert found is not None
        for size in (2, 4):
            stays = [its for its in changes if its[:2] == (name, size) and not its[2]]
            assert found.held[size] == size * len(stays)
