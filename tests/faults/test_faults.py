# SPDX-License-Identifier: Apache-2.0
"""Faults one by one and two at once: no scrape is lost, nothing untrue shown, all is well soon."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.agents import Site
from tests.controlplane.plane import Plane
from tests.faults import fault_run
from tests.faults.fault_list import FAULTS
from tests.faults.fault_run import FaultRun
from tests.faults.scene import QUICK, in_cluster, standalone
from tests.faults.trial import Outcome, composed, trial

MACHINE = "t4"
"""Four GPUs."""
SMALL = (
    "two GPUs hang",
    "the driver hangs",
    "a GPU gives garbage",
    "the reader is stopped",
    "the kubelet's socket drips garbage",
    "labels cannot be written",
)
"""One of each kind; ``make long`` has the whole list."""
PAIRS, MORE_PAIRS, MANY_PAIRS = 2, 5, 60


@pytest.mark.timeout(600)
def test_an_agent_stands_one_fault_after_the_other(tmp_path: Path) -> None:
    faults = {fault.name: fault for fault in FAULTS}
    with standalone(MACHINE, QUICK, tmp_path) as scene:
        outcomes = tuple(trial(scene, [faults[name]]) for name in SMALL)
    run = FaultRun(python="3", outcomes=outcomes)
    assert run.failures == ()
    assert min(outcome.scrapes for outcome in outcomes) > 0


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(seed, marks=pytest.mark.long if seed >= PAIRS else ())
        for seed in range(MORE_PAIRS)
    ],
)
def test_an_agent_stands_two_faults_at_once(tmp_path: Path, seed: int) -> None:
    faults, chance = composed(seed, in_cluster=False)
    with standalone(MACHINE, QUICK, tmp_path) as scene:
        outcome = trial(scene, faults, chance)
    assert outcome.failures == (), outcome.faults


@pytest.mark.long
@pytest.mark.cluster
@pytest.mark.timeout(3600)
def test_agents_in_a_cluster_stand_two_faults_at_once(tmp_path: Path) -> None:
    """Each pair has an agent of its own, which has its three quick writes of the Node yet."""
    broken = []
    with Plane.start(tmp_path / "plane", controller_manager=False) as plane:
        site = Site.create(plane, "gpuscape")
        for seed in range(MANY_PAIRS):
            folder = tmp_path / f"node-{seed}"
            folder.mkdir()
            faults, chance = composed(seed, in_cluster=True)
            with in_cluster(site, MACHINE, QUICK, folder) as scene:
                outcome = trial(scene, faults, chance)
            broken += [f"{seed}, {outcome.faults}: {failure}" for failure in outcome.failures]
    assert broken == []


def test_no_two_faults_have_one_name() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)


def outcome(**changed: object) -> Outcome:
    """A fault that did no harm, but for what is changed."""
    well = {"faults": ("x",), "scrapes": 9, "lost": (), "untrue": (), "broken": ()}
    return Outcome(**{**well, "recovery_seconds": 5.0, **changed})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changed",
    [
        {"lost": ("metrics 503",)},
        {"untrue": ("0000:3b:00.0 never measured 1",)},
        {"broken": ("it takes more",)},
        {"recovery_seconds": 60.5},
    ],
)
def test_each_broken_promise_is_a_failure_and_counted_on_the_page(
    changed: dict[str, object],
) -> None:
    run = FaultRun(python="3.11.7", outcomes=(outcome(), outcome(**changed)))
    assert len(run.failures) == 1
    assert run.failures[0].startswith("Python 3.11.7: x: ")
    well = FaultRun(python="3.11.7", outcomes=(outcome(), outcome()))
    assert fault_run.page([run], "") != fault_run.page([well], "")
    assert "| faults | 2 |" in fault_run.page([well], "")
    assert "| scrapes lost | 0 |" in fault_run.page([well], "")
