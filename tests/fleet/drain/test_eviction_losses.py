# SPDX-License-Identifier: Apache-2.0
"""What jobs and gangs lose is said before it is lost."""

from __future__ import annotations

from typing import Any

import pytest

from fleet.drain.drain_pod import DrainPod
from fleet.drain.eviction_losses import EvictionLoss, eviction_losses
from kube.api import Object
from kube.objects.pod import Pod
from tests.fleet.drain.drain_objects import PLACE, by_uid, owned_by, owner, pod

JOB = owned_by("Job", "j")
SET_LABEL = {"labels": {"jobset.sigs.k8s.io/jobset-name": "s"}}
IGNORE: dict[str, Any] = {
    "podFailurePolicy": {
        "rules": [
            {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}},
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]},
        ]
    }
}


def lost(*pods: Object, owners: dict[str, Object] | None = None) -> dict[str, EvictionLoss]:
    """By owner."""
    found = eviction_losses([DrainPod.owned(Pod.from_object(it), owners or {}) for it in pods])
    return {loss.owner: loss for loss in found}


def job(failed: int = 0, **spec: Any) -> Object:
    return owner(
        "Job",
        "j",
        metadata={"ownerReferences": owned_by("JobSet", "s")},
        spec=spec,
        status={"failed": failed},
    )


@pytest.mark.parametrize(
    ("failed", "limit", "fails"), [(0, 6, False), (4, 6, False), (5, 6, True), (0, 0, True)]
)
def test_a_job_loses_a_try_for_each_pod(failed: int, limit: int, fails: bool) -> None:
    pods = pod("a", owners=JOB), pod("b", owners=JOB)
    loss = lost(*pods, owners=by_uid(job(failed, backoffLimit=limit)))[f"Job {PLACE}/j"]

    assert loss.pods == (f"{PLACE}/a", f"{PLACE}/b")
    assert f"{failed} of {limit} so far, 2 more now" in loss.text
    assert loss.fails is fails
    assert ("fail for good" in loss.text) is fails


def test_without_a_limit_a_job_has_six_tries() -> None:
    sixth = lost(pod(owners=JOB), owners=by_uid(job(5)))[f"Job {PLACE}/j"]
    seventh = lost(pod(owners=JOB), owners=by_uid(job(6)))[f"Job {PLACE}/j"]

    assert "5 of 6 so far" in sixth.text
    assert (sixth.fails, seventh.fails) == (False, True)


@pytest.mark.parametrize(
    ("condition", "ignored"),
    [
        ({"type": "DisruptionTarget"}, True),
        ({"type": "DisruptionTarget", "status": "True"}, True),
        ({"type": "DisruptionTarget", "status": "False"}, False),
        ({"type": "ConfigIssue"}, False),
    ],
)
def test_a_job_that_ignores_disruptions_loses_nothing(
    condition: dict[str, str], ignored: bool
) -> None:
    rule = {"action": "Ignore", "onPodConditions": [condition]}
    one = job(backoffLimit=0, podFailurePolicy={"rules": [rule]})

    assert (lost(pod(owners=JOB), owners=by_uid(one)) == {}) is ignored
    counted = job(podFailurePolicy={"rules": [{**rule, "action": "Count"}]})
    assert lost(pod(owners=JOB), owners=by_uid(counted))


def test_a_job_that_counts_for_each_index_says_so() -> None:
    loss = lost(pod(owners=JOB), owners=by_uid(job(9, backoffLimitPerIndex=1)))

    assert "its index" in loss[f"Job {PLACE}/j"].text


def test_a_job_that_could_not_be_read_is_named() -> None:
    assert "could not be read" in lost(pod(owners=JOB))[f"Job {PLACE}/j"].text


@pytest.mark.parametrize(("done", "most", "fails"), [(0, 3, False), (3, 3, True), (0, 0, True)])
def test_a_job_set_starts_anew(done: int, most: int, fails: bool) -> None:
    policy = {"failurePolicy": {"maxRestarts": most}}
    job_set = owner("JobSet", "s", spec=policy, status={"restarts": done})
    member = pod(owners=JOB, metadata=SET_LABEL)

    loss = lost(member, owners=by_uid(job(), job_set))[f"JobSet {PLACE}/s"]

    assert f"{done} of {most} restarts so far" in loss.text
    assert loss.fails is fails
    assert lost(member, owners=by_uid(job(**IGNORE), job_set)) == {}
    assert "could not be read" in lost(member)[f"JobSet {PLACE}/s"].text


def test_what_kueue_admitted_is_named() -> None:
    admitted = pod("a", metadata={"annotations": {"kueue.x-k8s.io/workload": "job-x"}})
    plain = pod("b", metadata={"labels": {"kueue.x-k8s.io/queue-name": "q"}}, owners=[])
    of_job = pod("c", owners=JOB)
    queued = owner("Job", "j", metadata={"labels": {"kueue.x-k8s.io/queue-name": "q"}}, spec=IGNORE)

    assert set(lost(admitted, plain, of_job, owners=by_uid(queued))) == {
        f"Kueue Workload {PLACE}/job-x",
        f"Kueue Pod {PLACE}/b in the queue q",
        f"Kueue Job {PLACE}/j in the queue q",
    }


def test_who_has_nothing_to_lose_is_not_named() -> None:
    assert lost(pod(), pod("b", owners=[])) == {}
