# SPDX-License-Identifier: Apache-2.0
"""What is read of a node before it is drained, and the API server's own judgement as dry runs."""

from __future__ import annotations

import pytest

from fleet.drain.drain_plan import DrainPlan, DrainSettings
from fleet.drain.drain_view import evaluate_drain, read_pods
from kube.api import (
    JOB_SETS,
    JOBS,
    POD_DISRUPTION_BUDGETS,
    PODS,
    REPLICA_SETS,
    ApiResource,
    Object,
)
from kube.api_errors import Busy, Forbidden, Invalid, SeveralBudgets, Unreachable
from tests.fakes.api import Call, FakeApi
from tests.fleet.drain.drain_objects import PLACE, budget, owned_by, owner, pod, request, store

KEEP = "gpuscape.io/do-not-disrupt"


@pytest.fixture
def api() -> FakeApi:
    fake = FakeApi(manager="gpuscape-coordinator")
    fake.server.add_namespace(PLACE)
    fake.server.add_namespace("team-b")
    return fake


def owned(api: FakeApi, resource: ApiResource, thing: Object) -> list[Object]:
    """Have an owner; a reference to it."""
    store(api, resource, thing)
    meta = thing["metadata"]
    made = api.server.get(resource, meta["name"], meta["namespace"])
    group = {"ReplicaSet": "apps/v1", "JobSet": "jobset.x-k8s.io/v1alpha2"}
    (reference,) = owned_by(thing["kind"], meta["name"], group=group.get(thing["kind"], "batch/v1"))
    return [{**reference, "uid": made["metadata"]["uid"]}]


def judged(api: FakeApi, pods: list[tuple[str, str]]) -> DrainPlan:
    return evaluate_drain(api, pods, request(*(name for _, name in pods)), DrainSettings())


def test_the_view_has_pods_their_owners_and_the_budgets_of_their_namespaces(api: FakeApi) -> None:
    of_set = owned(api, JOB_SETS, owner("JobSet", "s"))
    of_job = owned(api, JOBS, owner("Job", "j", metadata={"ownerReferences": of_set}))
    pods = store(api, PODS, pod("a", owners=of_job), pod("b", owners=of_job))
    store(api, POD_DISRUPTION_BUDGETS, budget(1), budget(0, "other", namespace="team-b"))

    present, budgets = read_pods(api, [*pods, (PLACE, "gone")])

    assert [it.meta.name for it in present] == ["a", "b"]
    assert [[it["kind"] for it in pod.owners] for pod in present] == [["Job", "JobSet"]] * 2
    assert [it["metadata"]["name"] for it in budgets] == ["keep"]
    assert not api._watches, "the watch of the budgets stays open"
    assert [call.verb for call in api.calls if call.resource == JOBS] == ["get"]


def test_an_owner_that_is_gone_was_made_anew_or_may_not_be_read_is_left_out(api: FakeApi) -> None:
    references = owned(api, REPLICA_SETS, owner("ReplicaSet", "web"))
    store(api, PODS, pod("a"), pod("b", owners=references))

    def owners(name: str) -> int:
        ((only,), _) = read_pods(api, [(PLACE, name)])
        return len(only.owners)

    assert owners("a") == 0
    api.fail("get", Forbidden("not yours"), resource=REPLICA_SETS)
    assert owners("b") == 0
    assert owners("b") == 1


def test_what_an_owner_says_counts(api: FakeApi) -> None:
    protected = owner("ReplicaSet", "web", metadata={"annotations": {KEEP: "true"}})
    pods = store(api, PODS, pod("a", owners=owned(api, REPLICA_SETS, protected)))

    plan = judged(api, pods)

    assert [it.kind.value for it in plan.blockers] == ["do-not-disrupt"]
    assert [call for call in api.calls if call.verb == "evict"] == []


def test_every_pod_is_tried_before_any_leaves(api: FakeApi) -> None:
    pods = store(api, PODS, pod("a"), pod("b"), pod("c"))

    plan = judged(api, pods)

    assert [each.meta.name for each in plan.evict] == ["a", "b", "c"]
    assert [call.name for call in api.calls if call.dry_run] == ["a", "b", "c"]
    assert api.evictions() == []


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (SeveralBudgets("two"), "several-disruption-budgets"),
        (Forbidden("not yours"), "refused"),
        (Invalid("no"), "refused"),
    ],
)
def test_one_pod_that_the_server_refuses_keeps_all(
    api: FakeApi, error: Exception, kind: str
) -> None:
    pods = store(api, PODS, pod("a"), pod("b"))
    api.before("evict", lambda call: _raise(error) if call.name == "b" else None)

    plan = judged(api, pods)

    assert (plan.evict, [(it.kind.value, it.name) for it in plan.blockers]) == (
        (),
        [(kind, f"{PLACE}/b")],
    )


def test_a_budget_that_the_server_knows_better_keeps_all(api: FakeApi) -> None:
    """One that took its last disruption after it was read."""
    pods = store(api, PODS, pod("a"), pod("b"))
    store(api, POD_DISRUPTION_BUDGETS, budget(2))
    status = {"status": {"disruptionsAllowed": 0}}

    def take(_: Call) -> None:
        api.server.patch(POD_DISRUPTION_BUDGETS, "keep", status, PLACE, status=True)

    api.before("evict", take, times=1)

    plan = judged(api, pods)

    assert (plan.evict, {it.kind.value for it in plan.blockers}) == ((), {"disruption-budget"})


def test_a_pod_that_goes_meanwhile_is_no_blocker(api: FakeApi) -> None:
    pods = store(api, PODS, pod("a"), pod("b"))

    def end(_: Call) -> None:
        api.server.delete(PODS, "a", PLACE)

    api.before("evict", end, times=1)

    assert judged(api, pods).blockers == ()


@pytest.mark.parametrize("error", [Busy("too many"), Unreachable("reset")])
def test_without_an_answer_there_is_no_plan(api: FakeApi, error: Exception) -> None:
    pods = store(api, PODS, pod("a"))
    api.before("evict", lambda _: _raise(error))

    with pytest.raises(type(error)):
        judged(api, pods)


def _raise(error: Exception) -> None:
    raise error
