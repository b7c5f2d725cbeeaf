# SPDX-License-Identifier: Apache-2.0
"""Which GPUs are free: the last state, and what happened since."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.gpu_request import ContainerRequest, GpuRequest, gpu_request
from placement.kubelet_model import Policies, TopologyManager
from placement.score_table import PlacementOutcome, ScoreTable
from scheduler.cluster.free_gpus import (
    Bound,
    FreeGpus,
    LikelySets,
    ReportedState,
    reckon,
)
from scheduler.pod_request import PodRequest
from tests.scheduler.fleets import ALL, LowestFirst, Unknown
from tests.scheduler.later import Later
from tests.scheduler.shapes import machine

TABLE = LowestFirst()


def state(
    pods: Mapping[str, int] | None = None, *, ok: int = ALL, used: int | None = None
) -> ReportedState:
    """What the agent says; in use is what pods have, unless said otherwise."""
    taken = 0
    for mask in (pods or {}).values():
        taken |= mask
    in_use = taken if used is None else used
    return ReportedState(gen="0" * 10, seq=1, ok=ok, used=in_use, pods=pods or {})


def bound(key: str, *gpus: int, at: str = "") -> Bound:
    """A pod, which is its key."""
    return bound_as(key, gpu_request(*gpus), at=at)


def bound_as(key: str, wish: GpuRequest, at: str = "") -> Bound:
    """A pod with this wish, which is its key."""
    ask = PodRequest(namespace="default", name=key, uid=key, wish=wish)
    return Bound(key=key, ask=ask, order=(at, 0))


def reckoned(
    state: ReportedState,
    *pods: Bound,
    ended: tuple[str, ...] = (),
    table: LikelySets | None = TABLE,
) -> FreeGpus:
    """The node now."""
    return reckon(state, pods, ended, table)


def test_without_pods_all_is_free_that_works() -> None:
    assert reckoned(state(ok=0b1110)) == FreeGpus(free=0b1110, sure=True, expected={})


def test_what_the_state_names_is_counted_once() -> None:
    found = reckoned(state({"a": 0b11}), bound("a", 2))

    assert found == FreeGpus(free=0b11111100, sure=True, expected={})


def test_a_new_pod_is_expected_at_once_where_that_takes_no_time_to_work_out() -> None:
    """Whatever is for later is not done yet."""
    table = ScoreTable(machine("dgx1-v100"), later=Later())
    assert set(reckoned(state(), bound("a", 1, 2), table=table).expected) == {"a"}


def test_a_pod_that_is_named_with_one_of_its_containers_takes_the_rest_too() -> None:
    """It is still expected, from what was free before."""
    found = reckoned(state({"a": 0b1}), bound("a", 1, 2))

    assert (found.free, found.sure) == (0b11111000, True)
    assert set(found.expected["a"].sets) == {0b111}


def test_fewer_gpus_than_any_of_its_containers_has_are_all_that_a_pod_has() -> None:
    """Shared ones, of which two are one GPU."""
    found = reckoned(state({"a": 0b1}), bound("a", 2))

    assert found == FreeGpus(free=0b11111110, sure=False, expected={})


def test_what_others_use_is_not_free() -> None:
    assert reckoned(state(used=0b1)).free == 0b11111110


def test_a_new_pod_takes_the_set_that_it_will_probably_get() -> None:
    found = reckoned(state({"a": 0b11}), bound("a", 2), bound("new", 2))

    assert (found.free, found.sure) == (0b11110000, True)
    assert found.expected["new"].sets == {0b1100: 1}


def test_new_pods_choose_in_the_order_of_their_binding() -> None:
    found = reckoned(state(), bound("second", 1, at="2"), bound("first", 4, at="1"))

    assert {uid: set(each.sets) for uid, each in found.expected.items()} == {
        "first": {0b1111},
        "second": {0b10000},
    }


def test_ended_pods_give_back_what_the_state_still_counts() -> None:
    found = reckoned(state({"old": 0b11, "a": 0b1100}), bound("a", 2), ended=("old", "x"))

    assert (found.free, found.sure) == (0b11110011, True)


def test_what_an_ended_pod_shared_stays_taken() -> None:
    found = reckoned(state({"old": 0b11, "a": 0b10}), bound("a", 1), ended=("old",))

    assert found.free == 0b11111101


def test_a_gpu_that_works_no_more_is_not_given_back() -> None:
    assert reckoned(state({"old": 0b11}, ok=0b10), ended=("old",)).free == 0b10


@pytest.mark.parametrize(("named", "sure"), [(0b1, False), (0b11, True), (0b111, False)])
def test_other_numbers_than_asked_for_are_not_sure(named: int, sure: bool) -> None:
    assert reckoned(state({"a": named}), bound("a", 2)).sure is sure


def test_one_pod_that_does_not_agree_is_enough() -> None:
    found = reckoned(state({"a": 0b1, "b": 0b110}), bound("a", 2, at="1"), bound("b", 2, at="2"))

    assert not found.sure


def test_a_new_pod_without_enough_free_gpus_is_not_sure() -> None:
    assert not reckoned(state(ok=0b1), bound("new", 2)).sure


def test_without_a_table_a_new_pod_takes_nothing_and_nothing_is_sure() -> None:
    found = reckoned(state(), bound("new", 2), table=None)

    assert found == FreeGpus(free=ALL, sure=False, expected={})


def test_where_the_sets_are_not_known_yet_the_number_is() -> None:
    found = reckoned(state(), bound("new", 2), table=Unknown())

    assert found == FreeGpus(free=0b11111100, sure=True, expected={})


def test_a_prediction_chooses_from_what_earlier_ones_left() -> None:
    found = reckoned(state(), bound("a", 2, at="1"), bound("b", 4, at="2"), bound("c", 4, at="3"))

    sets = {0b11000000: Fraction(1)}
    assert found.expected["c"] == PlacementOutcome(sets=sets, reported=sets, taken=100)
    assert not found.sure


def test_a_pod_keeps_the_gpus_of_ended_init_containers_which_the_state_does_not_name() -> None:
    """The policy takes four for the init container, and the app has one of them."""
    more_first = GpuRequest(
        steps=(ContainerRequest(gpus=4, ends=True), ContainerRequest(gpus=1)),
    )
    table = ScoreTable(machine("a100-pcie-pairs"), Policies(tm=TopologyManager.SINGLE_NUMA_NODE))

    found = reckoned(state({"a": 0b0100}), bound_as("a", more_first), table=table)

    assert found == FreeGpus(free=0b11110000, sure=True, expected={})


def test_where_the_prediction_for_it_is_another_or_none_their_number_is_right() -> None:
    more_first = GpuRequest(
        steps=(ContainerRequest(gpus=3, ends=True), ContainerRequest(gpus=1)),
    )
    for table in (TABLE, Unknown()):
        found = reckoned(state({"a": 0b10000}), bound_as("a", more_first), table=table)
        assert found == FreeGpus(free=0b11101100, sure=True, expected={})


def test_a_state_that_names_other_numbers_is_taken_at_its_word() -> None:
    """Not the one that stays, nor all three."""
    more_first = GpuRequest(
        steps=(ContainerRequest(gpus=3, ends=True), ContainerRequest(gpus=1)),
    )
    found = reckoned(state({"a": 0b11}), bound_as("a", more_first))

    assert found == FreeGpus(free=0b11111100, sure=False, expected={})


_MASKS = st.integers(0, ALL)
_KEYS = st.sampled_from("abcdef")


@given(
    said=st.dictionaries(_KEYS, _MASKS),
    ok=_MASKS,
    used=_MASKS,
    pods=st.dictionaries(_KEYS, st.integers(1, 8)),
    ended=st.sets(_KEYS),
)
def test_whatever_is_told_only_working_gpus_are_free_and_none_that_a_pod_has(
    said: dict[str, int], ok: int, used: int, pods: dict[str, int], ended: set[str]
) -> None:
    in_use = used
    for mask in said.values():
        in_use |= mask

    found = reckon(
        state(said, ok=ok, used=in_use),
        [bound(key, gpus) for key, gpus in pods.items()],
        ended,
        TABLE,
    )

    assert not found.free & ~ok
    for key, mask in said.items():
        if key not in ended:
            assert not found.free & mask
