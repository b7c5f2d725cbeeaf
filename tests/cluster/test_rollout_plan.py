# SPDX-License-Identifier: Apache-2.0
"""``gpuscape mig rollout plan`` on a real API server: what an admin learns, and that reading it all
writes nothing. Kueue and Karpenter are there as the kinds that they bring."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from click.testing import CliRunner

from api import keys, names, state_annotation, topology_annotation
from api.state_annotation import StateAnnotation, pod_key
from cli.main import main
from tests.controlplane.definitions import wait_until_served
from tests.controlplane.plane import MERGE_PATCH, Object, Plane
from tests.forecast.preview_objects import GPU, gpu_spec, node, template
from tests.forecast.test_agent_terms import with_setting

pytestmark = pytest.mark.cluster

SMALL = "nvidia.com/mig-1g.10gb"
LAYOUT = "all-1g.10gb"
KINDS = (
    ("kueue.x-k8s.io", "v1beta1", "ClusterQueue", "clusterqueues", "Cluster"),
    ("kueue.x-k8s.io", "v1beta1", "Workload", "workloads", "Namespaced"),
    ("karpenter.sh", "v1", "NodePool", "nodepools", "Cluster"),
)
READER = "reader"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """A control plane with nodes of 8 GPUs, and whoever plans a rollout there."""

    plane: Plane
    team: str

    def planned(self, *arguments: str, token: str | None = None, code: int = 0) -> str:
        """What the command prints."""
        kubeconfig = str(self.plane.kubeconfig(token=token))
        words = ("mig", "rollout", "plan", LAYOUT, *arguments, "--kubeconfig", kubeconfig)
        result = CliRunner().invoke(main, words)
        assert result.exit_code == code, result.output
        return result.output

    def document(self, *arguments: str, token: str | None = None) -> dict[str, Any]:
        """The same as data."""
        found: dict[str, Any] = json.loads(self.planned(*arguments, "-o", "json", token=token))
        return found


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with Plane.start(tmp_path_factory.mktemp("plane"), controller_manager=False) as plane:
        team = plane.namespace("team")
        _add_nodes(plane)
        _add_kinds(plane)
        _add_objects(plane, team, plane.namespace("quota"))
        _add_lease(plane, names.agent_lease("h2"), _state("h2", f"{team}/train"))
        _add_lease(plane, names.COORDINATOR_LEASE, {}, holderIdentity="coordinator-0")
        yield Fleet(plane=plane, team=team)


def test_an_admin_sees_what_a_rollout_would_do_and_nothing_is_written(fleet: Fleet) -> None:
    since = fleet.plane.mark()

    found = fleet.document("-l", "pool=h100", "--drain", "evict")

    team = fleet.team
    fates = {it["node"]: it["fate"] for it in found["nodes"]}
    assert fates == {"h1": "changes", "h2": "changes", "h3": "left-out"}
    assert {it["resource"]: it["change"] for it in found["resources"]} == {GPU: -16, SMALL: 112}
    h1, h2, _ = (it["pods"] for it in found["nodes"])
    assert h1["in_the_way"] == [f"{team}/web-0", f"{team}/web-1"]
    assert [it["kind"] for it in h1["eviction"]["blockers"]] == ["disruption-budget"]
    assert h2["eviction"]["evicted"] == [f"{team}/train"]
    assert (h1["exact"], h2["exact"]) == (False, True)
    assert {(it["quota"], it["fault"]) for it in found["quotas"]} == {
        ("ClusterQueue gpus", "not-covered"),
        ("ClusterQueue gpus", "too-much"),
        (f"Namespace {_quota_namespace(fleet)}", "not-limited"),
        (f"ResourceQuota {_quota_namespace(fleet)}/gpus", "too-much"),
    }
    assert [it["owner"] for it in found["workloads"]] == [
        f"CronJob {team}/nightly",
        f"Deployment {team}/serving",
        f"Job {team}/later",
        f"Workload {team}/ray",
    ]
    assert {it["pod"]: it["chance"] for it in found["pods"]} == {
        f"{team}/small": "fits-then",
        f"{team}/whole": "never-then",
        f"{team}/web-0": "no-way-back",
        f"{team}/web-1": "no-way-back",
        f"{team}/train": "no-way-back",
    }
    assert {it["autoscaler"] for it in found["autoscalers"]} == {"cluster-autoscaler", "Karpenter"}
    assert [it["what"] for it in found["not_looked_at"]] == ["jobsets.jobset.x-k8s.io"]
    assert (found["writes_refused"], found["coordinator"]) == (None, [])
    assert found["needs_a_look"]
    written = [
        (event["verb"], event["objectRef"]["resource"])
        for event in fleet.plane.audit(since=since)
        if event["verb"] not in ("get", "list", "watch") and "dryRun=All" not in event["requestURI"]
    ]
    assert written == []


def test_who_may_read_nodes_alone_is_told_what_he_does_not_see(fleet: Fleet) -> None:
    plane = fleet.plane
    rules = [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]}]
    plane.cluster_account(fleet.team, READER, rules)

    token = plane.token(fleet.team, READER)
    found = fleet.document("--node", "h1", token=token)

    assert found["nodes"][0]["fate"] == "unknown"
    assert "no DaemonSet of gpuscape's agent is seen" in found["nodes"][0]["why"]
    missed = {it["what"] for it in found["not_looked_at"] if it["matters"]}
    assert {"pods", "deployments.apps", "resourcequotas", "clusterqueues.kueue.x-k8s.io"} <= missed
    assert found["writes_refused"].startswith("h1: patch Node h1: 403")
    assert "coordinator not known" in found["coordinator"][0]
    default = fleet.document("--node", "h1", "--configs", "default", token=token)["nodes"][0]
    assert (default["fate"], default["pods"]) == ("changes", None)
    text = fleet.planned("--node", "h1", "--exit-code", token=token, code=1)
    assert "pods: you may not list them" in text


def _quota_namespace(fleet: Fleet) -> str:
    (quota,) = fleet.plane.demand("GET", "/api/v1/resourcequotas")["items"]
    namespace: str = quota["metadata"]["namespace"]
    return namespace


def _add_nodes(plane: Plane) -> None:
    """Three of a pool, of which one is away; agents that enforce."""
    for name, more in (
        ("h1", {"cloud.google.com/gke-accelerator": "nvidia-h100-80gb"}),
        ("h2", {"karpenter.sh/nodepool": "gpu"}),
        ("h3", {}),
    ):
        meta = node(name, labels={"pool": "h100", **more})["metadata"]
        plane.make_node(
            name,
            labels=meta["labels"],
            annotations=meta["annotations"],
            capacity={GPU: "8"} if name != "h3" else {},
            ready=name != "h3",
        )
    plane.account("gpuscape", "gpuscape-agent")
    agents = with_setting("--mig-mode", "enforce")
    plane.demand("POST", "/apis/apps/v1/namespaces/gpuscape/daemonsets", agents)


def _state(name: str, pod: str) -> dict[str, str]:
    """What the node's agent says on its Lease of the one pod that is there."""
    topology = topology_annotation.decode(node(name)["metadata"]["annotations"][keys.TOPOLOGY])
    assert topology is not None
    state = StateAnnotation(
        v=1, gen=topology.gen, seq=1, ok="ff", used="01", pods={pod_key(*pod.split("/")): "01"}
    )
    return {keys.STATE: state_annotation.encode(state)}


def _add_lease(plane: Plane, name: str, notes: Mapping[str, str], **spec: str) -> None:
    lease = {"metadata": {"name": name, "annotations": dict(notes)}, "spec": spec}
    path = f"/apis/coordination.k8s.io/v1/namespaces/{names.NAMESPACE}/leases"
    plane.demand("POST", path, lease)


def _add_kinds(plane: Plane) -> None:
    for group, version, kind, plural, scope in KINDS:
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        definition = {
            "metadata": {"name": f"{plural}.{group}", "annotations": _APPROVED},
            "spec": {
                "group": group,
                "scope": scope,
                "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
                "versions": [
                    {
                        "name": version,
                        "served": True,
                        "storage": True,
                        "schema": {"openAPIV3Schema": schema},
                    }
                ],
            },
        }
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        plane.demand("POST", path, definition)
    wait_until_served(plane, "crd", "--all")


_APPROVED = {"api-approved.kubernetes.io": "unapproved, for a test"}
"""The API server wants it of groups that end in k8s.io."""


def _add_objects(plane: Plane, team: str, limited: str) -> None:
    """What runs, waits, and would run."""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "controller": True}
    for name, on in (("web-0", "h1"), ("web-1", "h1"), ("train", "h2")):
        labels = {"app": name.partition("-")[0]}
        meta = {
            "name": name,
            "labels": labels,
            "ownerReferences": [{**owner, "uid": "00000000-0000-4000-8000-000000000001"}],
        }
        _add_pod(plane, team, {"metadata": meta, "spec": gpu_spec({GPU: 1}) | {"nodeName": on}})
        _run(plane, team, name)
    for name, asks in (("small", {SMALL: 1}), ("whole", {GPU: 8})):
        _add_pod(plane, team, {"metadata": {"name": name}, "spec": gpu_spec(asks)})
    budget = {
        "metadata": {"name": "web"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    }
    budgets = f"/apis/policy/v1/namespaces/{team}/poddisruptionbudgets"
    plane.demand("POST", budgets, budget)
    allowed = {
        "observedGeneration": 1,
        "disruptionsAllowed": 1,
        "currentHealthy": 2,
        "desiredHealthy": 1,
        "expectedPods": 2,
    }
    _patch(plane, f"{budgets}/web/status", {"status": allowed})
    labels = {"app": "a"}
    pods = {"selector": {"matchLabels": labels}, "template": template({GPU: 1})}
    _add(plane, f"apps/v1/namespaces/{team}/deployments", "serving", pods)
    job = {"template": template({GPU: 2}, restartPolicy="Never")}
    cron = {"schedule": "0 3 * * *", "jobTemplate": {"spec": job}}
    _add(plane, f"batch/v1/namespaces/{team}/cronjobs", "nightly", cron)
    _add(plane, f"batch/v1/namespaces/{team}/jobs", "later", job | {"suspend": True})
    quota: Object = {"metadata": {"name": "gpus"}, "spec": {"hard": {f"requests.{GPU}": "12"}}}
    plane.demand("POST", f"/api/v1/namespaces/{limited}/resourcequotas", quota)
    group = {
        "coveredResources": [GPU],
        "flavors": [{"name": "h100", "resources": [{"name": GPU, "nominalQuota": 24}]}],
    }
    _add(plane, "kueue.x-k8s.io/v1beta1/clusterqueues", "gpus", {"resourceGroups": [group]})
    workload = {"podSets": [{"name": "main", "count": 2, "template": template({GPU: 4})}]}
    _add(plane, f"kueue.x-k8s.io/v1beta1/namespaces/{team}/workloads", "ray", workload)
    _add(plane, "karpenter.sh/v1/nodepools", "gpu", {"disruption": {}})


def _add(plane: Plane, where: str, name: str, spec: Object) -> None:
    group, version, *_ = where.split("/")
    kinds = {"deployments": "Deployment", "cronjobs": "CronJob", "jobs": "Job"}
    kinds |= {plural: kind for _, _, kind, plural, _ in KINDS}
    body = {
        "apiVersion": f"{group}/{version}",
        "kind": kinds[where.rpartition("/")[2]],
        "metadata": {"name": name},
        "spec": spec,
    }
    plane.demand("POST", f"/apis/{where}", body)


def _add_pod(plane: Plane, namespace: str, body: Object) -> None:
    plane.demand("POST", f"/api/v1/namespaces/{namespace}/pods", body)


def _run(plane: Plane, namespace: str, name: str) -> None:
    ready = [{"type": "Ready", "status": "True"}]
    path = f"/api/v1/namespaces/{namespace}/pods/{name}/status"
    _patch(plane, path, {"status": {"phase": "Running", "conditions": ready}})


def _patch(plane: Plane, path: str, body: Object) -> None:
    plane.demand("PATCH", path, body, content_type=MERGE_PATCH)
