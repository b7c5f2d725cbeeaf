# SPDX-License-Identifier: Apache-2.0
"""What the extender predicts for a pod, against what real kubelets and NVIDIA's plugin hand out."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import pytest

from api.gpu_request import gpu_request
from placement.best_effort import LOST, Odds
from placement.kubelet_model import TopologyManager
from tests.agent.agent_process import until
from tests.conftest import SCALE
from tests.node import numa_nodes, prediction_run
from tests.node.nvidia_plugin import GPU, NvidiaPlugin
from tests.node.predicted_gpus import GivenGpus, misses, page, unexplained
from tests.node.prediction_trial import Trial, trials
from tests.node.real_node import SOON

NONE, SINGLE = TopologyManager.NONE, TopologyManager.SINGLE_NUMA_NODE


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trial]:
    """A DGX A100, whose plugin finds pairs of GPUs on one switch and breaks over some requests."""
    with trials(tmp_path_factory.mktemp("trial"), NONE, "dgx-a100") as (found,):
        yield found


@pytest.mark.cluster
@pytest.mark.timeout(1800)
def test_the_extender_knows_what_a_pod_may_get_and_how_likely_that_is(trial: Trial) -> None:
    """Also of a pod whose init container has more GPUs than its others: it keeps them."""
    found = [trial.come(2), trial.come(1, 2), trial.come(1, first=3)]
    assert [each.published for each in found] == [each.expected for each in found]
    assert misses(found) == []
    assert found[-1].actual.bit_count() == 3
    assert trial.free == 0
    for name in sorted(trial.guests):
        trial.leave(name)
    found = [trial.come(8)]
    assert [each.actual for each in found] == [0xFF]
    trial.leave(*trial.guests)


@pytest.mark.cluster
@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_request_that_breaks_the_plugin_is_foreseen(trial: Trial) -> None:
    """Three of five, of which two are on one switch: where these are what is left over, the plugin
    hands out a set with an empty place, and ends."""
    plugin = NvidiaPlugin(
        plane=trial.scheduling.cluster.plane,
        node=trial.node,
        pod=f"nvidia-device-plugin-{trial.node.name}",
    )
    leave_free(trial, 0b1010111)
    while (found := trial.come(3)).actual != LOST:
        assert found.predicted[LOST]
        assert not found.is_miss
        trial.leave(list(trial.guests)[-1])
    assert found.predicted[LOST]
    assert found.reason == "UnexpectedAdmissionError"
    assert "panic" in plugin.log()
    until(lambda: plugin.allocatable() == {GPU: 8}, SOON)


def leave_free(trial: Trial, gpus: int) -> None:
    """Have pods of one GPU each on all but these."""
    while trial.free:
        trial.come(1)
    for name, guest in list(trial.guests.items()):
        if guest.gpus & gpus:
            trial.leave(name)


@pytest.mark.cluster
@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("policy", [TopologyManager.BEST_EFFORT, SINGLE])
def test_what_no_numa_node_can_serve_alone_is_split_or_refused_as_foreseen(
    policy: TopologyManager, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with trials(tmp_path_factory.mktemp("numa"), policy, "dgx1-v100") as (trial,):
        leave_free(trial, 0b00110011)
        found = trial.come(3)
    assert unexplained([found]) == []
    assert found.reason == ("TopologyAffinityError" if policy is SINGLE else "")


@pytest.mark.cluster
@pytest.mark.long
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("policy", prediction_run.POLICIES)
def test_whatever_comes_was_possible_under_every_policy(policy: TopologyManager) -> None:
    found = [*prediction_run.run(policy, 2 * SCALE)]
    assert len(found) == 2 * SCALE * len(prediction_run.MACHINES)
    assert [str(each) for each in unexplained(found)] == []
    if policy is SINGLE:
        of_one = [each.actual for each in found if len(each.wish.steps) == 1]
        assert all(gpus & ~0x0F == 0 or gpus & ~0xF0 == 0 for gpus in of_one)


def given(actual: int, predicted: Odds, **more: object) -> GivenGpus:
    made = {"machine": "box", "policy": NONE, "free": 0b1111, "wish": gpu_request(2), **more}
    return GivenGpus(actual=actual, predicted=predicted, **made)  # type: ignore[arg-type]


EVEN = {0b0011: Fraction(1, 2), 0b1100: Fraction(1, 2)}


def test_the_page_counts_exact_sets_misses_and_other_odds() -> None:
    found = [
        given(0b0011, EVEN, expected=0.5, published=0.5),
        given(0b1100, EVEN, expected=0.5, published=0.5),
        given(0b0101, EVEN, expected=0.0, published=0.0),
        given(0b0011, {0b0011: Fraction(1)}, expected=1.0, published=0.5, unreported=True),
    ]

    text = page(found)

    assert "| box, none | 4 | 0 | 1.8 | 50% | 62% ± 22% | 1 | 1 |" in text
    assert "- box, none: 2 of f: 5; predicted 3 1/2, c 1/2" in text
    assert unexplained(found) == [found[2]]
    assert unexplained([given(0b0011, EVEN, expected=0.5, published=0.25)])


def test_refusals_are_named_with_their_reason() -> None:
    sure = {LOST: Fraction(1)}
    text = page([given(LOST, sure, policy=SINGLE, reason="TopologyAffinityError")])

    assert "Of 1 refusals (TopologyAffinityError) 1 were predicted as certain." in text
    assert "There was no miss." in text


def test_numa_nodes_share_out_cpus_and_memory() -> None:
    lines = numa_nodes.commands([0, 1, 2], 900, 2)

    written = {line.split(" > ")[1]: line for line in lines if " > " in line}
    assert "echo 0,2 " in written[f"{numa_nodes.PLACE}/node0/cpulist"]
    assert "echo 1 " in written[f"{numa_nodes.PLACE}/node1/cpulist"]
    assert "MemTotal: 450 kB" in written[f"{numa_nodes.PLACE}/node1/meminfo"]
    assert "'21 10'" in written[f"{numa_nodes.PLACE}/node1/distance"]
