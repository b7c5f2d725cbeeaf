# SPDX-License-Identifier: Apache-2.0
"""How long pods may take to leave a node before a change of it is undone, and which judgement of
its pods still counts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from api.mig_status_annotation import MigStatusAnnotation
from fleet.change_effects import EvaluateDrain, EvictDeviceUsers, NodeWrite, PatchNode, WriteRecord
from fleet.drain.drain_plan import DrainPlan
from fleet.drain.drain_pod import DrainPod
from fleet.drain.gpu_usage import GpuUsage
from fleet.mig_change import ChangeView, next_effect
from fleet.rollout_settings import USAGE_SECONDS, RolloutSettings
from kube.objects.pod import Pod
from kube.objects.typed_object import Metadata
from tests.fleet.cordoned_node import NOW, REQUEST, cordoned_view

TERMS = RolloutSettings()
DEADLINE = int(TERMS.evictions.deadline_seconds)
USER = DrainPod.owned(Pod(metadata=Metadata(namespace="d", name="h", uid="h")), {})
EVICTS = EvictDeviceUsers(pods=(USER,))


def view(
    *,
    drained_for: int,
    evaluated_for: float = 1,
    drain_plan: DrainPlan | None = None,
    held_for: int = 0,
) -> ChangeView:
    """A cordoned node of which one pod is to leave. All times are seconds before now."""
    plan = DrainPlan(evict=(USER,)) if drain_plan is None else drain_plan
    return cordoned_view(
        request={"pods": ("aaaa",)},
        node={"status": MigStatusAnnotation(v=2, phase="waiting", request=REQUEST)},
        record={
            "taken_at": NOW - 2000,
            "drain": "evict",
            "cordoned_at": NOW - (held_for or drained_for + 10),
            "drain_at": NOW - drained_for if drained_for else 0,
        },
        usage=GpuUsage(read_at=NOW - 1, held=frozenset({"aaaa"})),
        drain_plan=replace(plan, evaluated_at=NOW - evaluated_for),
    )


def test_pods_are_evicted_until_the_deadline_which_counts_from_the_first_eviction() -> None:
    for seconds in (1, DEADLINE - 1, DEADLINE):
        assert next_effect(view(drained_for=seconds), TERMS, NOW) == EVICTS


def test_a_change_whose_pods_have_not_left_by_the_deadline_is_undone() -> None:
    effect = next_effect(view(drained_for=DEADLINE + 1), TERMS, NOW)

    assert isinstance(effect, PatchNode)
    assert (effect.purpose, effect.why) == (NodeWrite.ROLL_BACK, "pods did not leave in time")
    assert effect.patch["spec"] == {"unschedulable": None}


def test_where_no_pod_is_left_to_evict_the_change_waits_for_those_that_are_leaving() -> None:
    leaving = view(drained_for=1, drain_plan=DrainPlan(awaited=(USER,)))
    assert next_effect(leaving, TERMS, NOW) is None


def test_the_first_eviction_is_recorded_before_it_is_made() -> None:
    effect = next_effect(view(drained_for=0, held_for=10), TERMS, NOW)

    assert isinstance(effect, WriteRecord)
    assert effect.record.drain_at == NOW


@pytest.mark.parametrize(
    ("evaluated_for", "counts"),
    [
        (USAGE_SECONDS - 1, True),
        (USAGE_SECONDS, True),
        (USAGE_SECONDS + 0.5, False),
    ],
)
def test_a_judgement_of_the_pods_counts_for_as_long_as_a_look_at_them(
    evaluated_for: float, *, counts: bool
) -> None:
    found = next_effect(view(drained_for=100, evaluated_for=evaluated_for), TERMS, NOW)
    assert found == (EVICTS if counts else EvaluateDrain())


@pytest.mark.parametrize(("evaluated_for", "counts"), [(4.5, True), (5, True), (5.5, False)])
def test_a_judgement_counts_from_the_second_in_which_draining_began(
    evaluated_for: float, *, counts: bool
) -> None:
    """Records have whole seconds, rounded down."""
    found = next_effect(view(drained_for=5, evaluated_for=evaluated_for), TERMS, NOW)
    assert found == (EVICTS if counts else EvaluateDrain())
