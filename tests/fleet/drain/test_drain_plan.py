# SPDX-License-Identifier: Apache-2.0
"""All pods in the way leave, or none, with every reason named."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.mig_request_annotation import MigRequestAnnotation
from base.text import rfc3339
from fleet.drain.drain_blocker import BlockerKind
from fleet.drain.drain_plan import DrainPlan, DrainSettings, plan_drain
from fleet.drain.drain_pod import DrainPod
from kube.api import Object
from kube.objects.pod import Pod
from tests.fleet.drain.drain_objects import (
    PLACE,
    budget,
    by_uid,
    owned_by,
    owner,
    pod,
    request,
)

TERMS = DrainSettings()
KEEP = "gpuscape.io/do-not-disrupt"
KARPENTER = "karpenter.sh/do-not-disrupt"
CLUSTER_AUTOSCALER = "cluster-autoscaler.kubernetes.io/safe-to-evict"


def planned(
    *pods: Object,
    asked: MigRequestAnnotation | None = None,
    budgets: tuple[Object, ...] = (),
    owners: dict[str, Object] | None = None,
    terms: DrainSettings = TERMS,
    whole_node: bool = False,
    now: float | None = None,
) -> DrainPlan:
    """The plan for pods that all hold what goes, unless ``asked`` says otherwise."""
    asked = asked or request(*(it["metadata"]["name"] for it in pods))
    present = [DrainPod.owned(Pod.from_object(it), owners or {}) for it in pods]
    return plan_drain(present, budgets, asked, terms, whole_node=whole_node, now=now)


def kinds(plan: DrainPlan) -> list[str]:
    return [blocker.kind.value for blocker in plan.blockers]


def names(plan: DrainPlan) -> list[str]:
    return [each.meta.name for each in plan.evict]


def volume(**source: Any) -> Object:
    return {"volumes": [{"name": "scratch", **source}]}


OF_DAEMON_SET = owned_by("DaemonSet", "d", group="apps/v1")
MIRRORED = {"annotations": {"kubernetes.io/config.mirror": "x"}}

# what kubectl drain does with each, and what is done here: the pod holds GPUs that change
FILTERS = {
    "of a ReplicaSet": (pod(), []),
    "of a Job": (pod(owners=owned_by("Job", "j")), []),
    "of a StatefulSet": (pod(owners=owned_by("StatefulSet", "s", group="apps/v1")), []),
    "of a kind that is not known": (pod(owners=owned_by("PyTorchJob", "p", group="k/v1")), []),
    "of nobody": (pod(owners=[]), ["unmanaged"]),
    "of an owner that does not make it anew": (
        pod(owners=[{**owned_by("Job", "j")[0], "controller": False}]),
        ["unmanaged"],
    ),
    "of a DaemonSet": (pod(owners=OF_DAEMON_SET), ["daemon-set"]),
    "of a DaemonSet, with local data": (
        pod(owners=OF_DAEMON_SET, spec=volume(emptyDir={})),
        ["daemon-set"],
    ),
    "mirror pod": (pod(owners=[], metadata=MIRRORED), ["mirror-pod"]),
    "local data": (pod(spec=volume(emptyDir={})), ["local-data"]),
    "local data of a size": (pod(spec=volume(emptyDir={"sizeLimit": "1Gi"})), ["local-data"]),
    "local data in huge pages": (
        pod(spec=volume(emptyDir={"medium": "HugePages"})),
        ["local-data"],
    ),
    "memory": (pod(spec=volume(emptyDir={"medium": "Memory"})), []),
    "a folder of the host": (pod(spec=volume(hostPath={"path": "/x"})), []),
    "of nobody, with local data": (
        pod(owners=[], spec=volume(emptyDir={})),
        ["local-data", "unmanaged"],
    ),
    "long grace": (pod(spec={"terminationGracePeriodSeconds": 901}), ["grace-period"]),
    "grace up to the deadline": (pod(spec={"terminationGracePeriodSeconds": 900}), []),
    "protected": (pod(metadata={"annotations": {KEEP: "true"}}), ["do-not-disrupt"]),
    "protected by a word": (pod(metadata={"annotations": {KEEP: ""}}), ["do-not-disrupt"]),
    "protection taken back": (pod(metadata={"annotations": {KEEP: "False"}}), []),
    "not started": (pod(phase="Pending"), []),
}


@pytest.mark.parametrize(("seen", "wanted"), FILTERS.values(), ids=FILTERS)
def test_a_pod_leaves_or_is_named_with_its_reasons(seen: Object, wanted: list[str]) -> None:
    plan = planned(seen)

    assert kinds(plan) == wanted
    assert names(plan) == ([] if wanted else ["a"])
    for blocker in plan.blockers:
        assert blocker.name == f"{PLACE}/a"
        assert blocker.text.endswith(".")


def test_a_program_that_is_no_pods_keeps_all_pods() -> None:
    asked = MigRequestAnnotation(
        v=2,
        request=f"{1:016x}",
        plan=f"{1:016x}",
        gpus=(0,),
        pods=request("a").pods,
        programs=("4711 x",),
    )
    plan = planned(pod(owners=owned_by("Job", "j")), asked=asked)

    assert (names(plan), kinds(plan)) == ([], ["program"])
    assert plan.blockers[0].name == "4711 x"


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_is_no_reason_and_is_not_evicted(phase: str) -> None:
    plan = planned(pod(phase=phase, owners=[]), asked=request())

    assert plan.is_done


def test_a_pod_that_has_ended_and_still_holds_is_waited_for() -> None:
    plan = planned(pod(phase="Succeeded", owners=[]))

    assert (names(plan), kinds(plan)) == ([], [])
    assert [each.meta.name for each in plan.awaited] == ["a"]


def test_a_pod_that_leaves_already_is_waited_for_whatever_it_has() -> None:
    leaving = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    plan = planned(pod("a", metadata=leaving, owners=[], spec=volume(emptyDir={})), pod("b"))

    assert [each.meta.name for each in plan.awaited] == ["a"]
    assert names(plan) == ["b"]
    assert not plan.is_done


def test_settings_allow_what_is_lost() -> None:
    terms = DrainSettings(allow_unmanaged=True, allow_local_data=True)

    assert names(planned(pod(owners=[], spec=volume(emptyDir={})), terms=terms)) == ["a"]


@pytest.mark.parametrize(
    "owners",
    [
        by_uid(owner("ReplicaSet", "web", metadata={"annotations": {KEEP: "true"}})),
        by_uid(
            owner(
                "ReplicaSet",
                "web",
                spec={"template": {"metadata": {"annotations": {KEEP: "true"}}}},
            )
        ),
        by_uid(
            owner("ReplicaSet", "web", metadata={"ownerReferences": owned_by("JobSet", "far")}),
            owner("JobSet", "far", metadata={"annotations": {KEEP: "true"}}),
        ),
    ],
    ids=["owner", "its template", "owner's owner"],
)
def test_an_owner_protects_its_pods(owners: dict[str, Object]) -> None:
    plan = planned(pod(), owners=owners)

    assert kinds(plan) == ["do-not-disrupt"]


@pytest.mark.parametrize(
    ("annotations", "protects"),
    [
        ({KARPENTER: "true"}, True),
        ({KARPENTER: "false"}, False),
        ({KARPENTER: "True"}, False),
        ({KARPENTER: ""}, False),
        ({KARPENTER: "soon"}, False),
        ({KARPENTER: "1h"}, True),
        ({KARPENTER: "30m"}, False),
        ({KARPENTER: "29m59.5s"}, False),
        ({KARPENTER: "30m1s"}, True),
        ({KARPENTER: ".5h1000ms"}, True),
        ({CLUSTER_AUTOSCALER: "false"}, True),
        ({CLUSTER_AUTOSCALER: "true"}, False),
        ({CLUSTER_AUTOSCALER: "False"}, False),
        ({CLUSTER_AUTOSCALER: "true", KARPENTER: "true"}, True),
    ],
)
def test_what_an_autoscaler_may_not_evict_blocks_as_well_unless_that_is_turned_off(
    annotations: dict[str, str], protects: bool
) -> None:
    """The pod has been there for 30 minutes; each value means what its autoscaler makes of it."""
    start = {"startTime": "2026-11-20T08:00:00Z"}
    now = rfc3339.unix_seconds("2026-11-20T08:30:00Z")
    marked = pod(metadata={"annotations": annotations}, status=start)
    expected = ["do-not-disrupt"] if protects else []

    assert kinds(planned(marked, now=now)) == expected
    ignoring = planned(marked, now=now, terms=replace(TERMS, ignore_autoscaler_marks=True))
    assert kinds(ignoring) == []
    assert names(ignoring) == ["a"]
    owners = by_uid(owner("ReplicaSet", "web", metadata={"annotations": annotations}))
    assert kinds(planned(pod(status=start), owners=owners, now=now)) == expected


def test_a_duration_protects_a_pod_whose_start_or_the_time_is_not_known() -> None:
    marked = pod(metadata={"annotations": {KARPENTER: "1s"}})
    for now in (None, 1e12):
        plan = planned(marked, now=now)
        assert kinds(plan) == ["do-not-disrupt"]
        assert plan.blockers[0].text.endswith(f"the pod has {KARPENTER}: 1s.")


def test_the_own_mark_counts_whatever_is_ignored() -> None:
    marked = pod(metadata={"annotations": {KEEP: "true"}})
    terms = replace(TERMS, ignore_autoscaler_marks=True)
    assert kinds(planned(marked, terms=terms)) == ["do-not-disrupt"]


def test_a_blocker_names_the_job_that_people_know() -> None:
    job = owner("Job", "train-0", metadata={"ownerReferences": owned_by("JobSet", "train")})
    owners = by_uid(job, owner("JobSet", "train"))
    stuck = pod(owners=owned_by("Job", "train-0"), spec=volume(emptyDir={}))

    assert [it.owner for it in planned(stuck, owners=owners).blockers] == [f"JobSet {PLACE}/train"]
    assert [it.owner for it in planned(stuck).blockers] == [f"Job {PLACE}/train-0"]


def test_only_pods_in_the_way_leave() -> None:
    plan = planned(pod("a"), pod("b"), asked=request("a", others=["b"]))

    assert names(plan) == ["a"]


def test_a_pod_without_its_gpus_yet_keeps_all() -> None:
    plan = planned(pod("a"), pod("b"), asked=request("a"))

    assert (names(plan), kinds(plan)) == ([], ["not-placed"])
    assert plan.blockers[0].name == f"{PLACE}/b"


@pytest.mark.parametrize("named", ["pods", "others", "neither"])
def test_a_pod_that_its_kubelet_has_not_taken_has_no_gpus_whoever_had_its_name(named: str) -> None:
    """As the next one of a StatefulSet; one that is to leave anyway is no reason to wait."""
    new = pod("b", phase="Pending")
    asked = request("a", *(["b"] * (named == "pods")), others=["b"] * (named == "others"))
    plan = planned(pod("a"), new, asked=asked)

    assert kinds(plan) == ([] if named == "pods" else ["not-placed"])
    assert names(plan) == (["a", "b"] if named == "pods" else [])
    taken = pod("b", phase="Pending", status={"startTime": "2026-11-20T08:00:00Z"})
    assert kinds(planned(pod("a"), taken, asked=asked)) == (
        ["not-placed"] if named == "neither" else []
    )


def test_a_pod_that_the_api_does_not_show_here_keeps_all() -> None:
    """Which also bounds what an agent can name: pods of its node that ask for a GPU."""
    plan = planned(pod("a"), asked=request("a", "elsewhere"))

    assert (names(plan), kinds(plan)) == ([], ["not-found"])


def test_pods_that_the_list_has_no_room_for_keep_all() -> None:
    plan = planned(pod("a"), asked=request("a", unlisted=3))

    assert (names(plan), kinds(plan)) == ([], ["unlisted"])


def test_with_the_whole_node_other_pods_leave_too_and_daemons_stay() -> None:
    others = [pod("b"), pod("d", owners=OF_DAEMON_SET), pod("m", metadata=MIRRORED, owners=[])]
    asked = request("a", others=["b"])

    assert names(planned(pod("a"), *others, asked=asked, whole_node=True)) == ["a", "b"]
    assert names(planned(pod("a"), pod("new"), asked=asked, whole_node=True)) == ["a", "new"]
    asked = request("a", "d")
    assert kinds(planned(pod("a"), *others, asked=asked, whole_node=True)) == ["daemon-set"]


def test_pods_of_one_budget_that_lets_one_go_stay_together() -> None:
    two = pod("a"), pod("b")

    assert names(planned(two[0], budgets=(budget(1),))) == ["a"]
    plan = planned(*two, budgets=(budget(1),))
    assert (names(plan), kinds(plan)) == ([], ["disruption-budget"])
    (blocker,) = plan.blockers
    assert blocker.name == f"{PLACE}/keep"
    assert f"2 of its pods would have to go, and 1 may: {PLACE}/a, {PLACE}/b." in blocker.text
    assert names(planned(*two, budgets=(budget(2),))) == ["a", "b"]


def test_two_budgets_on_one_pod_are_a_blocker_whatever_they_let_go() -> None:
    plan = planned(pod(), budgets=(budget(5, "one"), budget(5, "two")))

    assert (names(plan), kinds(plan)) == ([], ["several-disruption-budgets"])
    assert f"{PLACE}/one, {PLACE}/two" in plan.blockers[0].text


def test_what_would_be_lost_is_shown_although_nobody_leaves() -> None:
    plan = planned(pod(owners=owned_by("Job", "j"), spec=volume(emptyDir={})))

    assert kinds(plan) == ["local-data"]
    assert [loss.owner for loss in plan.losses] == [f"Job {PLACE}/j"]


PODS = st.lists(
    st.sampled_from([name for name in FILTERS if name != "not started"]), max_size=6
).map(
    lambda chosen: [
        {**seen, "metadata": {**seen["metadata"], "name": f"p{at}", "uid": f"uid-p{at}"}}
        for at, name in enumerate(chosen)
        for seen in [FILTERS[name][0]]
    ]
)


@given(
    PODS,
    st.integers(0, 6),
    st.lists(st.integers(0, 6), max_size=2),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_none_or_all_leave(
    pods: list[Object],
    in_the_way: int,
    allowed: list[int],
    whole_node: bool,
    unmanaged: bool,
    local: bool,
) -> None:
    """Whatever there is: with a blocker nobody leaves, without one everybody who is in the way,
    each budget lets all of its pods go, and nobody else leaves but with the whole node."""
    asked = request(
        *(it["metadata"]["name"] for it in pods[:in_the_way]),
        others=[it["metadata"]["name"] for it in pods[in_the_way:]],
    )
    terms = replace(TERMS, allow_unmanaged=unmanaged, allow_local_data=local)
    budgets = tuple(
        budget(number, f"b{at}", selector={"matchLabels": {"app": "a"}} if at == 0 else {})
        for at, number in enumerate(allowed)
    )
    plan = planned(*pods, asked=asked, budgets=budgets, terms=terms, whole_node=whole_node)

    wanted = {it["metadata"]["name"] for it in pods[:in_the_way]}
    left = set(names(plan))
    if plan.blockers:
        assert left == set()
    else:
        assert left >= wanted
        assert whole_node or left == wanted
        assert all(len(left) <= number for number in allowed[:1])
        assert not left or len(budgets) < 2
    for each in plan.evict:
        assert (
            each.of_daemon_set,
            each.is_mirror,
            each.protected_by(autoscalers=True, now=None),
        ) == (
            False,
            False,
            "",
        )
        assert unmanaged or each.meta.controller is not None
        assert local or not each.local_volumes


def test_every_kind_of_blocker_is_tried_here_or_on_an_api_server() -> None:
    tried = {kind for _, wanted in FILTERS.values() for kind in wanted}
    tried |= {"not-placed", "not-found", "unlisted", "program", "disruption-budget"}

    assert {kind.value for kind in BlockerKind} - tried == {"several-disruption-budgets", "refused"}
