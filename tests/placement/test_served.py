# SPDX-License-Identifier: Apache-2.0
"""What pods of several containers get, and what the TopologyManager leaves to the device plugin."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from api.gpu_request import ContainerRequest, GpuRequest, gpu_request
from placement.best_effort import LOST, Odds
from placement.device_order import first_named
from placement.kubelet_model import (
    DevicePluginPolicy,
    KubeletModel,
    Policies,
    Scope,
    TopologyManager,
)
from placement.shape import Shape
from placement.speed import SetSpeeds
from tests.scheduler.shapes import drawn

PAIRS = drawn(4, {(0, 1): 300, (2, 3): 300})
SURE = Fraction(1)

NONE, BEST_EFFORT = TopologyManager.NONE, TopologyManager.BEST_EFFORT
RESTRICTED, SINGLE = TopologyManager.RESTRICTED, TopologyManager.SINGLE_NUMA_NODE


def sets(
    shape: Shape,
    free: int,
    asked: GpuRequest,
    tm: TopologyManager = NONE,
    al: DevicePluginPolicy = DevicePluginPolicy.BEST_EFFORT,
    scope: Scope = Scope.CONTAINER,
) -> Odds:
    """All GPUs of the pod to their odds."""
    policies = Policies(tm=tm, scope=scope, al=al)
    kubelet = KubeletModel(shape, policies, SetSpeeds(shape))
    found: dict[int, Fraction] = {}
    for given, odds in kubelet.serve(free, asked).items():
        found[given.taken] = found.get(given.taken, Fraction()) + odds
    return found


def on_numa(*numa: int) -> Shape:
    """GPUs on these NUMA nodes, otherwise all alike."""
    return replace(drawn(len(numa), {}), numa=numa)


def containers(*steps: tuple[int, bool]) -> GpuRequest:
    return GpuRequest(steps=tuple(ContainerRequest(gpus=gpus, ends=ends) for gpus, ends in steps))


def test_containers_are_served_one_after_the_other() -> None:
    """Either pair, then either GPU of the other."""
    assert set(sets(PAIRS, 0b1111, gpu_request(2, 1))) == {0b0111, 0b1011, 0b1101, 0b1110}


def test_containers_that_need_more_than_is_free_together_get_nothing() -> None:
    assert sets(PAIRS, 0b0111, gpu_request(2, 2)) == {}


def test_an_app_gets_what_an_init_container_had() -> None:
    """One of the pair, if that was the first one that was named."""
    both, first = containers((1, True), (2, False)), first_named(0b0111, 4)
    assert sets(PAIRS, 0b0111, both)[0b0011] == first[0] + first[1]


def test_an_app_that_needs_less_gets_any_of_what_an_init_container_had() -> None:
    assert sets(PAIRS, 0b1111, containers((4, True), (2, False))) == {0b1111: SURE}


def test_a_sidecar_keeps_what_it_has() -> None:
    assert sets(PAIRS, 0b0011, containers((1, False), (2, False))) == {}


def test_gpus_go_back_from_an_init_container_to_one_app_only() -> None:
    """Two apps of one GPU each beside an init container of one need two."""
    three = containers((1, True), (1, False), (1, False))
    assert set(sets(PAIRS, 0b0011, three)) == {0b0011}


def test_without_a_preference_of_the_plugin_any_set_may_come() -> None:
    odds = sets(PAIRS, 0b1111, gpu_request(2), al=DevicePluginPolicy.RANDOM)
    assert len(odds) == 6
    assert set(odds.values()) == {Fraction(1, 6)}


def test_without_a_preference_an_app_has_what_its_init_container_had_and_any_others() -> None:
    both = containers((2, True), (3, False))
    odds = sets(PAIRS, 0b1111, both, al=DevicePluginPolicy.RANDOM)
    assert odds == dict.fromkeys((0b0111, 0b1011, 0b1101, 0b1110), Fraction(1, 4))


# Kubernetes 1.37, pkg/kubelet/cm/devicemanager/topology_hints_test.go: getCommonTestCases.
@pytest.mark.parametrize(
    ("numa", "free", "size", "narrowed"),
    [
        pytest.param((-1, -1, -1, -1), 0b1111, 1, 0b1111, id="no alignment"),
        pytest.param((-1, 1), 0b11, 1, 0b10, id="only one with alignment"),
        pytest.param((0, 1), 0b11, 1, 0b01, id="one device per socket: the lower node"),
        pytest.param((0, 1), 0b11, 2, 0b11, id="request for 2, one device per socket"),
        pytest.param((0, 1, 0, 1), 0b1111, 2, 0b0101, id="request for 2, 2 devices per socket"),
        pytest.param((0, 1, 0, 1), 0b1110, 2, 0b1010, id="the node that has enough left"),
        pytest.param((0, 1, 0, 1), 0b1100, 2, 0b1100, id="forced cross-NUMA"),
    ],
)
def test_best_effort_narrows_to_the_fewest_numa_nodes_that_serve(
    numa: tuple[int, ...], free: int, size: int, narrowed: int
) -> None:
    union_of_sets = 0
    for each in sets(on_numa(*numa), free, gpu_request(size), BEST_EFFORT):
        union_of_sets |= each
    assert union_of_sets == narrowed


@pytest.mark.parametrize(
    ("numa", "free", "size", "taken"),
    [
        pytest.param((0, 0, 1, 1), 0b1111, 2, {RESTRICTED, SINGLE}, id="one node serves"),
        pytest.param((0, 0, 1, 1), 0b1001, 2, set(), id="one node could have served"),
        pytest.param((0, 0, 1, 1), 0b0111, 3, {RESTRICTED}, id="one node never serves"),
        pytest.param((-1, -1), 0b11, 2, {RESTRICTED, SINGLE}, id="nodes are not known"),
        pytest.param((0, 0, -1, -1), 0b1111, 3, set(), id="too few are known"),
        pytest.param((0, 0), 0b11, 2, {RESTRICTED, SINGLE}, id="there is one node only"),
        pytest.param((0, 1, 2, 3), 0b1111, 2, {RESTRICTED}, id="two nodes of one device each"),
    ],
)
def test_strict_policies_refuse_pods_that_are_not_aligned(
    numa: tuple[int, ...], free: int, size: int, taken: set[TopologyManager]
) -> None:
    """Kubernetes 1.37, topologymanager/policy_{restricted,single_numa_node}.go."""
    for policy in (RESTRICTED, SINGLE):
        refused = sets(on_numa(*numa), free, gpu_request(size), policy) == {LOST: SURE}
        assert refused == (policy not in taken), policy
    assert LOST not in sets(on_numa(*numa), free, gpu_request(size), BEST_EFFORT)


def test_a_pod_is_refused_where_its_first_container_leaves_the_second_apart() -> None:
    apart = on_numa(0, 0, 1)
    assert sets(apart, 0b111, gpu_request(1, 2), SINGLE) == {LOST: SURE}
    assert sets(apart, 0b111, gpu_request(2, 1), SINGLE) == {0b111: SURE}


def test_with_more_numa_nodes_than_the_kubelet_takes_no_policy_holds() -> None:
    """It would not start; the policy that was told is of some other time."""
    assert len(sets(on_numa(*range(8)), 0xFF, gpu_request(1), SINGLE)) == 1
    assert len(sets(on_numa(*range(9)), 0x1FF, gpu_request(1), SINGLE)) == 9


def test_where_the_known_nodes_are_not_enough_their_gpus_come_with_the_best_of_the_rest() -> None:
    shape = replace(drawn(4, {(1, 3): 400, (2, 3): 900}), numa=(0, 0, -1, -1))
    assert sets(shape, 0b1111, gpu_request(3), BEST_EFFORT) == {0b1011: SURE}


def test_the_plugin_chooses_among_the_gpus_of_the_nodes_alone() -> None:
    """0 and 3 have the best link, and are on two nodes."""
    shape = replace(drawn(6, {(0, 3): 900, (1, 2): 400}), numa=(0, 0, 0, 1, 1, 1))
    assert sets(shape, 0b111111, gpu_request(2), BEST_EFFORT) == {0b000110: SURE}


def test_hints_keep_to_the_nodes_of_what_is_reused() -> None:
    """An init container takes a GPU of the lower node, which has no second one for the app."""
    both = containers((1, True), (2, False))
    shape = on_numa(0, 0, 1, 1)
    assert sets(shape, 0b1101, both, SINGLE) == {LOST: SURE}
    assert set(sets(shape, 0b1101, both, BEST_EFFORT)) == {0b0101, 0b1001}


def test_an_app_is_refused_where_what_it_takes_over_lies_on_more_nodes_than_it_needs() -> None:
    """It would be served from that alone; its hints are asked for all the same."""
    both = containers((3, True), (1, False))
    shape = on_numa(0, 0, 1, 1)
    assert sets(shape, 0b1111, both, RESTRICTED) == {LOST: SURE}
    assert LOST not in sets(shape, 0b1111, both, BEST_EFFORT)


@pytest.mark.parametrize(
    ("free", "policy", "by_container", "by_pod"),
    [
        pytest.param(0b1101, SINGLE, {0b0101, 0b1001}, {0b1100}, id="one node serves the pod"),
        pytest.param(0b0101, SINGLE, {0b0101}, {LOST}, id="no one node serves the pod"),
        pytest.param(0b0101, RESTRICTED, {0b0101}, {LOST}, id="one node could have served it"),
        pytest.param(0b0101, BEST_EFFORT, {0b0101}, {0b0101}, id="as good as it gets"),
        pytest.param(0b1101, NONE, {0b0101, 0b1001, 0b1100}, {0b0101, 0b1001, 0b1100}, id="none"),
    ],
)
def test_the_scope_is_each_container_or_the_whole_pod(
    free: int, policy: TopologyManager, by_container: set[int], by_pod: set[int]
) -> None:
    """Kubernetes 1.37, topologymanager/scope_pod.go: one hint for all containers."""
    shape = on_numa(0, 0, 1, 1)
    assert set(sets(shape, free, gpu_request(1, 1), policy)) == by_container
    assert set(sets(shape, free, gpu_request(1, 1), policy, scope=Scope.POD)) == by_pod


def test_a_pod_counts_as_what_it_holds_at_most() -> None:
    """The app has the init container's GPUs: together they need two, and one node has them."""
    both = containers((2, True), (2, False))
    shape = on_numa(0, 0, 1, 1)
    assert sets(shape, 0b1100, both, SINGLE, scope=Scope.POD) == {0b1100: SURE}
    assert sets(shape, 0b0111, gpu_request(2, 2), SINGLE, scope=Scope.POD) == {}
