# SPDX-License-Identifier: Apache-2.0
"""``gpuscape doctor pod``: each reason why a pod does not run is found by its name."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from api import keys
from base.errors import BadInput
from diagnosis.facts.pod_facts import read_pod
from diagnosis.finding import Examination, examine
from diagnosis.finding_catalog import CATALOG, POD_CHECKS
from kube.api import EVENTS, JOBS, NODES, PODS
from kube.api_errors import Forbidden
from kube.lease import micro_time
from tests.fakes.api import FakeApi

GPU = "nvidia.com/gpu"
MIG = "nvidia.com/mig-1g.5gb"
NODES_HAVE = "; nodes have nvidia.com/gpu, nvidia.com/mig-1g.10gb, nvidia.com/mig-1g.20gb"
SPACE = "team-a"
TAINT = {"key": "team", "value": "b", "effect": "NoSchedule"}
UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}


@dataclass
class Cluster:
    """Nodes, and one pod that is to be explained."""

    api: FakeApi = field(default_factory=FakeApi)
    asked: dict[str, str] = field(default_factory=lambda: {GPU: "2", "cpu": "1"})
    spec: dict[str, Any] = field(default_factory=dict)
    meta: dict[str, Any] = field(default_factory=dict)
    status: dict[str, Any] = field(
        default_factory=lambda: {"phase": "Pending", "conditions": [UNSCHEDULABLE]}
    )
    age_seconds: float = 600.0

    def __post_init__(self) -> None:
        self.api.server.add_namespace(SPACE)

    def node(self, name: str, gpus: int = 8, *, cpu: str = "64", **more: Any) -> None:
        amounts = {"cpu": cpu, "memory": "512Gi", "pods": "110", GPU: str(gpus)}
        amounts |= more.pop("offers", {})
        spec = {key: more.pop(key) for key in ("taints", "unschedulable") if key in more}
        metadata = {"name": name, **more}
        status = {"allocatable": amounts}
        self.api.server.create(NODES, {"metadata": metadata, "spec": spec, "status": status})

    def other(self, node: str, gpus: int, cpu: str = "1", scheduler: str | None = None) -> None:
        """A pod that is bound, by this scheduler or by the default one."""
        resources = {"requests": {GPU: str(gpus), "cpu": cpu}}
        spec = {"nodeName": node, "containers": [{"name": "c", "resources": resources}]}
        spec |= {"schedulerName": scheduler} if scheduler else {}
        self.api.server.create(PODS, {"metadata": {"name": f"on-{node}"}, "spec": spec}, "default")

    def event(self, reason: str, note: str, *, age_seconds: float = 0.0) -> None:
        at = datetime.fromtimestamp(time.time() - age_seconds, UTC)
        regarding = {"apiVersion": "v1", "kind": "Pod", "name": "train", "namespace": SPACE}
        event = {
            "metadata": {"name": f"event-{age_seconds:.0f}"},
            "eventTime": micro_time(at),
            "reportingController": "kubelet",
            "reportingInstance": "node-a",
            "regarding": regarding,
            "reason": reason,
            "action": "Try",
            "type": "Warning",
            "note": note,
        }
        self.api.server.create(EVENTS, event, SPACE)

    def runs(self, node: str = "a", **status: Any) -> None:
        """The pod has a node."""
        self.spec["nodeName"] = node
        self.status = {"phase": "Running", **status}

    def waits(self, reason: str, message: str) -> None:
        """Its container does not start."""
        waiting = {"reason": reason, "message": message}
        self.runs(
            phase="Pending", containerStatuses=[{"name": "main", "state": {"waiting": waiting}}]
        )

    def examined(self) -> Examination:
        container = {"name": "main", "resources": {"requests": self.asked, "limits": self.asked}}
        pod = {
            "metadata": {"name": "train", **self.meta},
            "spec": {"containers": [container], **self.spec},
            "status": self.status,
        }
        at = datetime.fromtimestamp(time.time() - self.age_seconds, UTC)
        self.api.server.now = at.strftime("%Y-%m-%dT%H:%M:%SZ")
        self.api.server.create(PODS, pod, SPACE)
        return examine(POD_CHECKS, read_pod(self.api, SPACE, "train", 10.0))


Plant = Callable[[Cluster], object]


@pytest.fixture
def cluster() -> Cluster:
    """Two nodes with eight GPUs each, of which one is full, and one without GPUs."""
    made = Cluster()
    made.node("a")
    made.node("without", 0, taints=[TAINT])
    made.node("full")
    made.other("full", 8)
    return made


def failed(reason: str, message: str) -> Plant:
    def plant(cluster: Cluster) -> None:
        cluster.runs()
        cluster.status = {"phase": "Failed", "reason": reason, "message": message}

    return plant


def waits(reason: str, message: str) -> Plant:
    return lambda cluster: cluster.waits(reason, message)


def in_use(cluster: Cluster) -> None:
    cluster.other("a", 7)


def no_cpu(cluster: Cluster) -> None:
    cluster.other("a", 0, cpu="64")


def tainted(cluster: Cluster) -> None:
    cluster.api.server.patch(NODES, "a", {"spec": {"taints": [TAINT]}})


def cordoned(cluster: Cluster) -> None:
    cluster.api.server.patch(NODES, "a", {"spec": {"unschedulable": True}})


def selects_nothing(cluster: Cluster) -> None:
    cluster.spec["nodeSelector"] = {"nvidia.com/gpu.product": "H100"}


def broken_term(cluster: Cluster) -> None:
    term = {"matchExpressions": [{"key": "zone", "operator": "Inn", "values": ["a"]}]}
    nodes = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    cluster.spec["affinity"] = {"nodeAffinity": nodes}


def no_nodes(cluster: Cluster) -> None:
    for name in ("a", "full", "without"):
        cluster.api.server.delete(NODES, name)


def silent_scheduler(cluster: Cluster) -> None:
    cluster.spec["schedulerName"] = "no-such-scheduler"
    cluster.status = {"phase": "Pending"}


def of_two_schedulers(cluster: Cluster) -> None:
    cluster.runs()
    cluster.other("a", 1, scheduler="volcano")


def gated(cluster: Cluster) -> None:
    cluster.spec["schedulingGates"] = [{"name": "kueue.x-k8s.io/admission"}]
    cluster.status = {
        "phase": "Pending",
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}],
    }


def no_runtime(cluster: Cluster) -> None:
    cluster.runs(phase="Pending")
    cluster.event("FailedCreatePodSandBox", 'rpc error: no runtime for "nvidia" is configured')


def mixed(cluster: Cluster) -> None:
    cluster.runs()
    cluster.asked = {GPU: "1", MIG: "1"}


def misspelt_link(cluster: Cluster) -> None:
    cluster.runs()
    cluster.meta["annotations"] = {keys.LINK: "nvlnk"}


ADMISSION = "Allocate failed due to no healthy devices present; cannot allocate nvidia.com/gpu"
TOPOLOGY = "Resources cannot be allocated with Topology locality"
AWAY = "endpoint not found in cache for a registered resource: nvidia.com/gpu"
INJECTION = "nvidia-container-cli: device error: GPU-1: unknown device"

FAULTS: Mapping[str, Plant] = {
    "pod-refused-by-devices": failed("UnexpectedAdmissionError", ADMISSION),
    "pod-refused-by-topology": failed("TopologyAffinityError", TOPOLOGY),
    "pod-refused-by-node": failed("OutOfnvidia.com/gpu", "Node didn't have enough resource"),
    "pod-evicted": failed("Evicted", "The node was low on resource: memory"),
    "pod-image-unavailable": waits("ImagePullBackOff", "Back-off pulling image"),
    "pod-crashes": waits("CrashLoopBackOff", "back-off 5m0s restarting"),
    "pod-plugin-away": waits("CreateContainerConfigError", AWAY),
    "pod-gpu-not-injected": waits("RunContainerError", INJECTION),
    "pod-runtime-missing": no_runtime,
    "pod-mixes-gpu-resources": mixed,
    "pod-link-unknown": misspelt_link,
    "pod-scheduler-silent": silent_scheduler,
    "pod-two-schedulers": of_two_schedulers,
    "pod-gated": gated,
    "pod-resource-unknown": lambda cluster: setattr(cluster, "asked", {MIG: "1"}),
    "pod-too-large": lambda cluster: setattr(cluster, "asked", {GPU: "16"}),
    "pod-waits-for-gpus": in_use,
    "pod-waits-for-resources": no_cpu,
    "pod-taint-not-tolerated": tainted,
    "pod-nodes-cordoned": cordoned,
    "pod-selects-no-node": selects_nothing,
    "pod-affinity-broken": broken_term,
    "pod-no-nodes": no_nodes,
    "pod-waits-for-other-reasons": lambda _: None,
}
FOLLOWING: Mapping[str, frozenset[str]] = {
    # the other node is full, whatever is wrong with this one
    "pod-taint-not-tolerated": frozenset({"pod-waits-for-gpus"}),
    "pod-nodes-cordoned": frozenset({"pod-waits-for-gpus"}),
    "pod-waits-for-resources": frozenset({"pod-waits-for-gpus"}),
    # the pod on the full node has the default scheduler
    "pod-scheduler-silent": frozenset({"pod-two-schedulers"}),
}


def test_all_taints_are_named_and_not_only_the_first_that_the_scheduler_meets(
    cluster: Cluster,
) -> None:
    others = [
        {"key": "nvidia.com/gpu", "effect": "NoSchedule"},
        {"key": "soft", "effect": "PreferNoSchedule"},
    ]
    cluster.api.server.patch(NODES, "a", {"spec": {"taints": [TAINT, *others]}})

    finding = next(it for it in cluster.examined().findings if it.name == "pod-taint-not-tolerated")

    assert finding.cause == "a: taints not tolerated: team=b:NoSchedule, nvidia.com/gpu:NoSchedule"


def test_a_pod_that_runs_has_no_finding(cluster: Cluster) -> None:
    cluster.runs()

    assert cluster.examined().findings == ()


def test_a_young_pod_that_no_scheduler_has_seen_has_none(cluster: Cluster) -> None:
    cluster.status = {"phase": "Pending"}
    cluster.age_seconds = 5.0

    assert cluster.examined().findings == ()


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_by_its_name_and_nothing_else_is(cluster: Cluster, name: str) -> None:
    FAULTS[name](cluster)

    made = cluster.examined()

    assert {each.name for each in made.findings} == {name} | FOLLOWING.get(name, frozenset())
    assert all(each.cause and each.fix for each in made.findings)
    assert [each for each in made.checks if "bug" in each.why] == []


def test_a_container_that_asks_for_0_of_another_kind_mixes_nothing(cluster: Cluster) -> None:
    cluster.runs()
    cluster.asked = {GPU: "1", MIG: "0"}
    assert cluster.examined().findings == ()


def test_every_kind_of_finding_on_a_pod_is_planted() -> None:
    made_elsewhere = {"pod-quota-exceeded", "pod-not-made"}

    assert {kind.name for kind in CATALOG["pod"]} == set(FAULTS) | made_elsewhere


@pytest.mark.parametrize(
    ("note", "name"),
    [
        ('pods "train-x" is forbidden: exceeded quota: gpus, requested: 8', "pod-quota-exceeded"),
        ("admission webhook denied the request: no team label", "pod-not-made"),
    ],
)
def test_a_job_whose_pods_are_refused_is_explained_by_its_events(
    cluster: Cluster, note: str, name: str
) -> None:
    cluster.api.server.create(JOBS, {"metadata": {"name": "train"}}, SPACE)
    cluster.event("FailedCreate", note)

    made = examine(POD_CHECKS, read_pod(cluster.api, SPACE, "train", 10.0))

    (found,) = made.findings
    assert (found.name, found.about) == (name, f"Job {SPACE}/train")
    assert note in found.cause


@pytest.mark.parametrize(
    ("node", "gpus", "is_found"), [("a", 1, True), ("full", 0, False), ("tainted", 1, False)]
)
def test_a_waiting_pod_is_compared_with_gpu_pods_where_it_may_go(
    cluster: Cluster, node: str, gpus: int, is_found: bool
) -> None:
    """Also on nodes that have no room for it now, and not with pods without GPUs."""
    cluster.node("tainted", taints=[TAINT])
    cluster.api.server.delete(PODS, "on-full", "default")
    cluster.other(node, gpus, scheduler="volcano")

    found = [it for it in cluster.examined().findings if it.name == "pod-two-schedulers"]

    assert [it.cause for it in found] == is_found * [
        f"its scheduler is default-scheduler; other GPU pods there: 1 of volcano (such as "
        f"default/on-{node})"
    ]


def test_a_pod_without_gpus_may_have_any_scheduler(cluster: Cluster) -> None:
    of_two_schedulers(cluster)
    cluster.asked = {"cpu": "1"}

    assert cluster.examined().findings == ()


def test_the_newest_event_says_why(cluster: Cluster) -> None:
    cluster.api.server.create(JOBS, {"metadata": {"name": "train"}}, SPACE)
    cluster.event("FailedCreate", "webhook denied the request", age_seconds=1)
    cluster.event("FailedCreate", "exceeded quota: gpus", age_seconds=60)

    made = examine(POD_CHECKS, read_pod(cluster.api, SPACE, "train", 10.0))

    assert [each.name for each in made.findings] == ["pod-not-made"]


def test_a_pod_that_fits_an_idle_node_exactly_is_not_too_large(cluster: Cluster) -> None:
    cluster.asked = {GPU: "8"}

    assert [each.name for each in cluster.examined().findings] == ["pod-waits-for-other-reasons"]


def test_nodes_that_a_pod_does_not_select_are_no_reason_where_others_are_full(
    cluster: Cluster,
) -> None:
    cluster.api.server.patch(NODES, "full", {"metadata": {"labels": {"pool": "b"}}})
    cluster.spec["nodeSelector"] = {"pool": "b"}

    assert [each.name for each in cluster.examined().findings] == ["pod-waits-for-gpus"]


def test_a_resource_that_no_node_has_is_named_with_those_that_nodes_have(cluster: Cluster) -> None:
    cluster.node("cut", 0, offers={"nvidia.com/mig-2g.10gb": "3"})
    cluster.asked = {"nvidia.com/mig-2g.10g": "1"}

    (found,) = cluster.examined().findings

    assert found.cause == (
        "no node has nvidia.com/mig-2g.10g: did you mean nvidia.com/mig-2g.10gb?"
    )


@pytest.mark.parametrize(
    ("resource", "end"),
    [
        (f"{GPU}.shared", NODES_HAVE),
        (MIG, ": did you mean nvidia.com/mig-1g.10gb?"),
        ("nvidia.com/mig-3g.20gb", NODES_HAVE),
    ],
)
def test_a_resource_leads_to_the_same_slices_and_never_to_what_only_looks_alike(
    cluster: Cluster, resource: str, end: str
) -> None:
    offers = {"nvidia.com/mig-1g.10gb": "3", "nvidia.com/mig-1g.20gb": "2"}
    cluster.node("cut", 0, offers=offers)
    cluster.asked = {resource: "1"}

    (found,) = cluster.examined().findings

    assert found.cause == f"no node has {resource}{end}"


def test_a_pod_that_is_not_there_is_an_error_that_names_it(cluster: Cluster) -> None:
    with pytest.raises(BadInput, match=f"{SPACE}/train"):
        read_pod(cluster.api, SPACE, "train", 10.0)


def test_events_that_may_not_be_read_leave_out_their_checks_alone(cluster: Cluster) -> None:
    in_use(cluster)
    cluster.api.fail("watch", Forbidden("no right to events"), times=None, resource=EVENTS)
    cluster.runs(phase="Pending")

    made = cluster.examined()

    assert [each.check for each in made.missed_checks] == ["sandbox"]
