# SPDX-License-Identifier: Apache-2.0
"""What a person is told of a change that waits for a boot of its node, and how it is cancelled."""

from __future__ import annotations

import pytest

from fleet.figures.change_steps import ChangeStep, step_of
from fleet.rollout_settings import RolloutSettings
from fleet.slot_lease import slot_of
from fleet.stages.cancellation import CancelVerdict, cancellation
from fleet.stages.stage import StageBlockerKind, StageName, StageState
from fleet.status.node_layout import node_layout
from kube.api import NODES
from kube.objects.node import Node
from tests.fleet.booting_fleet import BootingCluster
from tests.fleet.stages.asked_fleet import beat_agents, deploy_coordinator, facts_of, story_of
from tests.fleet.test_rollouts import assert_clean

TERMS = RolloutSettings(slots=1, canary_seconds=60.0, retry_seconds=10.0)


def waiting() -> BootingCluster:
    """A node whose change waits, where no kured runs."""
    cluster = BootingCluster(nodes=1, terms=TERMS, need_boot=["n0"])
    cluster.kured.is_there = False
    deploy_coordinator(cluster)
    cluster.wish("sevenths")
    cluster.pass_until(lambda: "n0" in cluster.files, within=300)
    cluster.pass_time(TERMS.end_seconds + 60)
    beat_agents(cluster)
    return cluster


def test_why_names_the_boot_that_is_missing() -> None:
    """And does not call the change late after the time of one without a boot."""
    cluster = waiting()
    stage = story_of(cluster, "n0")[StageName.CHANGED]

    assert stage.state is StageState.NOW
    assert [it.kind for it in stage.blockers] == [StageBlockerKind.NODE]
    assert "kured" in stage.blockers[0].text
    assert "late" not in stage.text
    layout = node_layout(Node.from_object(cluster.server.get(NODES, "n0")))
    assert layout is not None
    assert layout.phase == "rebooting"
    [lease] = cluster.open_leases()
    slot = slot_of(lease)
    assert slot.record is not None
    assert step_of(slot, slot.record, None)[0] is ChangeStep.CHANGING


def test_cancelling_removes_what_is_desired_and_the_agent_takes_the_mode_back() -> None:
    cluster = waiting()

    cancel = cancellation(facts_of(cluster, "n0"), cluster.now)

    assert cancel.verdict is CancelVerdict.BEGUN
    assert "the actuator takes the MIG mode back" in cancel.text
    assert cancel.patch is not None
    assert "spec" not in cancel.patch  # the cordon stays until the agent has reported the end
    cluster.edit("n0", dict(cancel.patch))
    cluster.agents["n0"].wish = "whole"
    cluster.pass_until(lambda: not cluster.open_leases(), within=300)
    cluster.pass_time(60)
    assert cluster.agents["n0"].done[-1][1] == "rolled-back"
    assert_clean(cluster)


@pytest.mark.parametrize(
    ("drains", "text", "command"),
    [
        ("", "kured announced at 2026-01-01T00:00:00Z that it boots", "annotate node n0 {}-"),
        ("false", "it is being rebooted", "describe node n0"),
    ],
)
def test_why_tells_an_announced_boot_from_one_that_kured_carries_out(
    drains: str, text: str, command: str
) -> None:
    """kured leaves its announcement where the cause goes before it has its lock."""
    cluster = BootingCluster(nodes=1, terms=TERMS)
    cluster.kured.is_there = False
    deploy_coordinator(cluster)
    announcement = "weave.works/kured-reboot-in-progress"
    notes = {announcement: "2026-01-01T00:00:00Z"}
    if drains:
        notes["kured.dev/node-unschedulable-before-drain"] = drains
    cluster.edit("n0", {"metadata": {"annotations": notes}})
    cluster.wish("sevenths")
    cluster.pass_time(300)
    beat_agents(cluster)

    stage = story_of(cluster, "n0")[StageName.SLOT]

    assert stage.state is StageState.NOW
    assert text in stage.text
    assert stage.command == f"kubectl {command.format(announcement)}"
