# SPDX-License-Identifier: Apache-2.0
"""What a rollout means for pods, workloads, quotas and autoscalers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from api import keys, mig_request_annotation, mig_status_annotation
from api.mig_request_annotation import MigRequestAnnotation
from api.mig_status_annotation import (
    MigPhase,
    MigStatusAnnotation,
    RequestSource,
    desired_digest,
)
from api.state_annotation import pod_key
from fleet.drain.drain_plan import DrainSettings
from forecast.autoscaler_warnings import NODE_POOL
from forecast.cluster_picture import ClusterPicture
from forecast.gpu_requests import pod_templates
from forecast.places_for_pods import PodImpactKind
from forecast.quota_findings import QuotaFault
from forecast.rollout_preview import RolloutPreview, rollout_preview
from kube.api import Object
from kube.objects.pod import Pod
from tests.forecast.preview_objects import (
    GPU,
    TEAM,
    asked,
    gpu_spec,
    made,
    mig,
    node,
    pod,
    template,
)

SMALL = mig("1g.10gb")
ALL_SMALL = "all-1g.10gb"


def plan(
    layout: str = ALL_SMALL, *, nodes: Any = (), drain: str = "", **more: Any
) -> RolloutPreview:
    """A rollout to the node ``n`` of a cluster."""
    there = nodes or (node(),)
    evictions = more.pop("evictions", DrainSettings())
    pods = tuple(map(Pod.from_object, more.pop("pods", ())))
    picture = ClusterPicture(nodes=tuple(there), pods=pods, **more)
    return rollout_preview(
        picture,
        asked(layout, drain=drain),
        lambda it: it["metadata"]["name"] == "n",
        evictions=evictions,
    )


def of(kind: str, spec: Mapping[str, Any], **more: Any) -> Any:
    """What an object of this kind makes."""
    return tuple(pod_templates(kind, made(kind, "it", spec, **more)))


# pods that leave


def budget(allowed: int) -> Object:
    return {
        "metadata": {"name": "keep", "namespace": TEAM, "generation": 1},
        "spec": {"selector": {}},
        "status": {"observedGeneration": 1, "disruptionsAllowed": allowed},
    }


OWNED = [{"kind": "ReplicaSet", "name": "r", "uid": "u", "controller": True}]


def test_pods_with_gpus_on_a_node_that_changes_are_in_the_way_at_most() -> None:
    pods = (
        pod("a", {GPU: 1}, on="n", ownerReferences=OWNED),
        pod("b", {GPU: 1}, on="n", ownerReferences=OWNED),
        pod("elsewhere", {GPU: 1}, on="m"),
        pod("plain", {}, on="n"),
        pod("for-cpus", {GPU: 0, mig("1g.10gb"): 0}, on="n"),
        pod("over", {GPU: 1}, on="n", phase="Succeeded"),
    )
    (found,) = plan(pods=pods).leaving
    assert (found.pods, found.exact) == (("team/a", "team/b"), False)
    assert (found.may_go, found.is_blocked) == (2, False)
    (kept,) = plan(pods=pods, budgets=(budget(1),)).leaving
    assert (kept.may_go, kept.is_blocked) == (0, True)
    assert "2 of its pods would have to go, and 1 may" in kept.plan.blockers[0].text


def test_an_agent_that_was_asked_names_the_pods_in_the_way() -> None:
    request = MigRequestAnnotation(
        v=2,
        request="0" * 16,
        plan="0" * 16,
        gpus=(0,),
        pods=(pod_key(TEAM, "a"),),
        allocatable={SMALL: 56},
    )
    wish = desired_digest(RequestSource.ANNOTATION, ALL_SMALL)
    status = MigStatusAnnotation(v=2, phase=MigPhase.WAITING, desired_digest=wish)
    notes = {
        keys.MIG_LAYOUT: ALL_SMALL,
        keys.MIG_STATUS: mig_status_annotation.encode(status),
        keys.MIG_REQUEST: mig_request_annotation.encode(request),
    }
    pods = tuple(pod(name, {GPU: 1}, on="n", ownerReferences=OWNED) for name in ("a", "b"))
    (found,) = plan(nodes=(node(annotations=notes),), pods=pods).leaving
    assert (found.pods, found.exact, found.may_go) == (("team/a",), True, 1)


def test_what_the_agents_lease_says_narrows_who_is_in_the_way() -> None:
    """Of a part of the GPUs; a pod that is not in it yet may have any of them."""
    first = '{"0-3": {"1g.10gb": 7}, "7": "off"}'
    pods = tuple(pod(name, {GPU: 1}, on="n", ownerReferences=OWNED) for name in ("a", "b", "c"))
    masks = {pod_key(TEAM, "a"): 0b1001, pod_key(TEAM, "b"): 0b10010000}

    def found(layout: str, *which: str, held: Any = masks, **more: Any) -> tuple[Any, bool]:
        there = tuple(it for it in pods if it["metadata"]["name"] in which)
        (one,) = plan(layout, pods=there, holders={"n": held}, **more).leaving
        return one.pods, one.exact

    assert found(first, "a", "b") == (("team/a",), True)
    assert found(first, "a", "b", "c") == (("team/a", "team/c"), False)
    assert found(ALL_SMALL, "a", "b") == (("team/a", "team/b"), True)
    cut = (node(offers={mig("3g.40gb"): 16}),)
    assert found(ALL_SMALL, "a", "b", nodes=cut) == (("team/a", "team/b"), False)
    assert found("all-disabled", "a", "b", nodes=cut) == (("team/a", "team/b"), True)


def test_what_an_autoscaler_may_not_evict_keeps_all_as_the_coordinator_has_it() -> None:
    notes = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
    pods = (pod("kept", {GPU: 1}, on="n", ownerReferences=OWNED, annotations=notes),)
    (kept,) = plan(pods=pods, drain="evict").leaving
    assert [it.kind for it in kept.plan.blockers] == ["do-not-disrupt"]
    ignoring = DrainSettings(ignore_autoscaler_marks=True)
    (goes,) = plan(pods=pods, drain="evict", evictions=ignoring).leaving
    assert goes.may_go == 1


def test_a_pod_that_nobody_makes_anew_keeps_all_where_pods_are_evicted() -> None:
    found = plan(pods=(pod("alone", {GPU: 1}, on="n"),), drain="evict")
    assert [it.kind for it in found.leaving[0].plan.blockers] == ["unmanaged"]
    assert found.needs_a_look
    waits = plan(pods=(pod("alone", {GPU: 1}, on="n"),), nodes=(node(), node("m")))
    assert not waits.needs_a_look


# workloads


@pytest.mark.parametrize(
    ("kind", "spec", "count"),
    [
        ("Deployment", {"replicas": 3, "template": template({GPU: 4})}, 3),
        ("StatefulSet", {"template": template({GPU: 4})}, 1),
        (
            "CronJob",
            {"jobTemplate": {"spec": {"parallelism": 2, "template": template({GPU: 4})}}},
            2,
        ),
        ("Job", {"suspend": True, "parallelism": 5, "template": template({GPU: 4})}, 5),
        ("Job", {"suspend": True, "parallelism": None, "template": template({GPU: 4})}, 1),
        ("Job", {"suspend": True, "template": template({GPU: 4})}, 1),
        (
            "JobSet",
            {
                "replicatedJobs": [
                    {
                        "replicas": 2,
                        "template": {"spec": {"parallelism": 3, "template": template({GPU: 4})}},
                    }
                ]
            },
            6,
        ),
        ("Workload", {"podSets": [{"count": 4, "template": template({GPU: 4})}]}, 4),
    ],
)
def test_what_makes_pods_that_need_what_goes_is_named(
    kind: str, spec: Mapping[str, Any], count: int
) -> None:
    (found,) = plan(templates=of(kind, spec)).workloads
    assert (found.owner, found.pods, found.asks) == (f"{kind} team/it", count, {GPU: 4})
    assert (found.places_now, found.places_then) == (2, 0)
    assert found.rests is (kind in ("Job", "Workload"))


def test_what_finds_its_places_elsewhere_is_not_named() -> None:
    several = of("Deployment", {"replicas": 2, "template": template({GPU: 4})})
    more = of("Deployment", {"replicas": 3, "template": template({GPU: 4})})
    nodes = (node(), node("m"))
    assert plan(nodes=nodes, templates=several).workloads == ()
    (short,) = plan(nodes=nodes, templates=more).workloads
    assert (short.places_now, short.places_then) == (4, 2)
    pinned = of(
        "Deployment",
        {"template": template({GPU: 1}, nodeSelector={"nvidia.com/gpu.machine": "none"})},
    )
    assert plan(templates=pinned).workloads == ()  # it finds no place now either
    here = of("Deployment", {"template": template({GPU: 1}, nodeSelector={"only": "n"})})
    nodes = (node(labels={"only": "n"}), node("m"))
    assert [it.owner for it in plan(nodes=nodes, templates=here).workloads] == [
        "Deployment team/it"
    ]


@pytest.mark.parametrize(
    ("kind", "spec", "more"),
    [
        (
            "Job",
            {"template": template({GPU: 1})},
            {"status": {"conditions": [{"type": "Complete", "status": "True"}]}},
        ),
        (
            "Job",
            {"template": template({GPU: 1})},
            {"metadata": {"ownerReferences": [{"kind": "CronJob", "controller": True}]}},
        ),
        (
            "JobSet",
            {"replicatedJobs": [{"template": {"spec": {"template": template({GPU: 1})}}}]},
            {"status": {"terminalState": "Completed"}},
        ),
        (
            "Workload",
            {"podSets": [{"template": template({GPU: 1})}]},
            {"metadata": {"ownerReferences": [{"kind": "Job", "controller": True}]}},
        ),
        ("Deployment", {"template": template({})}, {}),
    ],
)
def test_what_has_ended_or_is_looked_at_otherwise_is_passed_over(
    kind: str, spec: Mapping[str, Any], more: Mapping[str, Any]
) -> None:
    assert of(kind, spec, **more) == ()


# pending pods


def chances(found: RolloutPreview) -> dict[str, PodImpactKind]:
    return {it.pod.removeprefix("team/"): it.chance for it in found.pods}


def test_pods_that_would_fit_then_and_those_that_never_will_are_told_apart() -> None:
    taint = {"key": "t", "value": "v", "effect": "NoSchedule"}
    pods = (
        pod("small", {SMALL: 2}),
        pod("much", {SMALL: 57}),
        pod("whole", {GPU: 8}),
        pod("else", {"nvidia.com/mig-7g.80gb": 1}),
        pod("pinned", {SMALL: 1}, spec={"nodeSelector": {"zone": "z"}}),
        pod("gated", {SMALL: 1}, spec={"schedulingGates": [{"name": "g"}]}),
        pod("plain", {}),
        pod("for-cpus", {GPU: 0}),
    )
    found = plan(pods=pods)
    assert chances(found) == {"small": PodImpactKind.FITS_THEN, "whole": PodImpactKind.NEVER_THEN}
    tainted = plan(nodes=(node(spec={"taints": [taint]}),), pods=pods)
    assert chances(tainted) == {}
    kept = plan(nodes=(node(), node("m")), pods=pods)
    assert chances(kept) == {"small": PodImpactKind.FITS_THEN}


def test_a_node_that_is_away_comes_back_and_is_no_free_place_now() -> None:
    sick = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
    away = node("m", spec={"unschedulable": True, "taints": [sick]})
    pods = (pod("whole", {GPU: 8}), pod("goes", {GPU: 1}, on="n"))
    assert chances(plan(nodes=(node(), away), pods=pods)) == {}
    serving = of("Deployment", {"template": template({GPU: 8})})
    assert plan(nodes=(node(), away), templates=serving).workloads == ()
    small = (pod("small", {SMALL: 1}),)
    cut = node("m", offers={SMALL: 56}, spec={"unschedulable": True})
    assert chances(plan(nodes=(node(), cut), pods=small)) == {"small": PodImpactKind.FITS_THEN}


def test_a_node_that_fits_is_found_behind_many_that_do_not() -> None:
    many = [node(f"m{at}", labels={"zone": "a"}) for at in range(20)]
    last = node("z", labels={"zone": "b"})
    picky = pod("picky", {GPU: 8}, spec={"nodeSelector": {"zone": "b"}})
    alone = node(labels={"zone": "b"})
    assert chances(plan(nodes=(alone, *many, last), pods=(picky,))) == {}
    found = chances(plan(nodes=(alone, *many), pods=(picky,)))
    assert found == {"picky": PodImpactKind.NEVER_THEN}


def test_what_stays_on_a_node_takes_its_room_and_what_leaves_gives_it() -> None:
    """CPUs: a pod without GPUs stays there; one with GPUs has to go before the change."""
    busy = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "60"}}}]}
    stays = pod("stays", {}, on="n", spec=busy)
    wants = gpu_spec({SMALL: 1})
    wants["containers"][0]["resources"]["requests"] = {"cpu": "10"}
    waits = pod("waits", {}, spec=wants)
    assert chances(plan(pods=(stays, waits))) == {}
    holder = gpu_spec({GPU: 1})
    holder["containers"][0]["resources"]["requests"] = {"cpu": "60"}
    goes = pod("goes", {}, on="n", spec=holder)
    assert chances(plan(pods=(goes, waits))) == {
        "waits": PodImpactKind.FITS_THEN,
        "goes": PodImpactKind.NO_WAY_BACK,
    }


# quotas


def quota(**hard: str) -> Object:
    spec = {"hard": {f"requests.nvidia.com/{k.replace('__', '.')}": v for k, v in hard.items()}}
    return {"metadata": {"name": "q", "namespace": TEAM}, "spec": spec}


def queue(**covered: str) -> Object:
    names = {f"nvidia.com/{key}": count for key, count in covered.items()}
    resources = [{"name": name, "nominalQuota": count} for name, count in names.items()]
    group = {
        "coveredResources": list(names),
        "flavors": [{"name": "f", "resources": resources}],
    }
    return {"metadata": {"name": "cq"}, "spec": {"resourceGroups": [group]}}


def test_quotas_that_lack_what_appears_or_count_what_goes_are_named() -> None:
    found = {(it.quota, it.resource): it.fault for it in plan(quotas=(quota(gpu="4"),)).quotas}
    assert found == {
        ("Namespace team", SMALL): QuotaFault.NOT_LIMITED,
        ("ResourceQuota team/q", GPU): QuotaFault.TOO_MUCH,
    }
    hard = {"requests.nvidia.com/mig-1g.10gb": "0"}
    none = {"metadata": {"name": "q", "namespace": TEAM}, "spec": {"hard": hard}}
    assert [it.fault for it in plan(quotas=(none,)).quotas] == [QuotaFault.NONE_ALLOWED]
    cpu = {"metadata": {"name": "q", "namespace": TEAM}, "spec": {"hard": {"cpu": "4"}}}
    assert plan(quotas=(cpu,)).quotas == ()
    elsewhere = plan(nodes=(node(), node("m")), quotas=(quota(gpu="8"),)).quotas
    assert [it.fault for it in elsewhere] == [QuotaFault.NOT_LIMITED]


def test_cluster_queues_are_judged_by_what_they_cover() -> None:
    found = plan(cluster_queues=(queue(gpu="8"),)).quotas
    assert {(it.quota, it.fault) for it in found} == {
        ("ClusterQueue cq", QuotaFault.NOT_COVERED),
        ("ClusterQueue cq", QuotaFault.TOO_MUCH),
    }
    both = queue(gpu="0") | {}
    group = both["spec"]["resourceGroups"][0]
    group["coveredResources"].append(SMALL)
    group["flavors"][0]["resources"].append({"name": SMALL, "nominalQuota": 0})
    assert [it.fault for it in plan(cluster_queues=(both,)).quotas] == [QuotaFault.NONE_ALLOWED]


def test_quotas_of_all_flavors_of_a_cluster_queue_count_together() -> None:
    """As Kueue admits: a workload that does not fit into one flavor gets another one."""
    nodes = (node(), node("m"))
    for second, said in [
        ("5", []),
        ("6", ["it lets 9 of nvidia.com/gpu through; the cluster would offer 8"]),
    ]:
        both = queue(gpu="3")
        [other] = queue(gpu=second)["spec"]["resourceGroups"]
        both["spec"]["resourceGroups"][0]["flavors"] += other["flavors"]
        found = plan(nodes=nodes, cluster_queues=(both,)).quotas
        assert [it.text for it in found if it.fault is QuotaFault.TOO_MUCH] == said


# autoscalers


def texts(found: RolloutPreview) -> str:
    return "\n".join(f"{it.autoscaler}: {it.text} {it.nodes}" for it in found.autoscalers)


def test_a_gpu_node_without_gpus_is_not_ready_for_cluster_autoscaler() -> None:
    marked = node(labels={"cloud.google.com/gke-accelerator": "nvidia-h100-80gb"})
    found = texts(plan(nodes=(marked,), autoscaler_status=True))
    assert "offers no nvidia.com/gpu for not ready" in found
    assert "it may add nodes" in found
    part = plan('{"0-3": {"1g.10gb": 7}}', nodes=(marked,), autoscaler_status=True)
    assert "not ready" not in texts(part)
    assert "not ready" not in texts(plan(nodes=(node(),), autoscaler_status=True))


def test_cluster_autoscaler_is_seen_by_its_deployment_too() -> None:
    image = {"containers": [{"name": "c", "image": "registry/cluster-autoscaler:v1.32.0"}]}
    deployment = made("Deployment", "scaler", {"template": {"spec": image}})
    assert "it may add nodes" in texts(plan(deployments=(deployment,)))
    assert texts(plan()) == ""


def test_karpenters_nodes_lose_their_layout_when_they_are_replaced() -> None:
    pooled = node(labels={NODE_POOL: "gpu"})
    pool = {
        "metadata": {"name": "gpu"},
        "spec": {
            "disruption": {"consolidationPolicy": "WhenEmpty"},
            "template": {"spec": {"expireAfter": "720h"}},
        },
    }
    found = texts(plan(nodes=(pooled,), node_pools=(pool,)))
    assert "new ones have the layout where the fleet policy selects them alone" in found
    assert "gpu: consolidationPolicy WhenEmpty, expireAfter 720h" in found
    assert "counts them as unfinished" in found
    assert f"request {SMALL}, without a NodeOverlay" in found
    done = node(labels={NODE_POOL: "gpu", "karpenter.sh/initialized": "true"})
    assert "unfinished" not in texts(plan(nodes=(done,)))
