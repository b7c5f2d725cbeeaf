# SPDX-License-Identifier: Apache-2.0
"""``gpuscape doctor node``: what is wrong with a Node is found by its name, from outside."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from agent.cluster.confinement import CORE
from api import keys, mig_permit_annotation, mig_status_annotation, names, topology_annotation
from api.mig_permit_annotation import MigPermitAnnotation, PermitPhase
from api.mig_status_annotation import MigPhase, MigStatusAnnotation
from base.errors import BadInput
from base.settings.version_skew import VARIABLE
from diagnosis.facts.cluster_facts import STOPPED_WRITES
from diagnosis.facts.remote_node_facts import COMPONENT, read_remote_node
from diagnosis.finding import Examination, examine
from diagnosis.finding_catalog import CATALOG, NODE_CHECKS
from kube.api import ADMISSION_BINDINGS, ADMISSION_POLICIES, DAEMON_SETS, LEASES, NODES, PODS
from kube.api_errors import Forbidden
from kube.lease import micro_time
from labelers.annotations import topology_of
from labelers.compose import decide_labels
from labelers.label_settings import LabelSettings
from tests.diagnosis.examined_node import MACHINE, NAME, node_object, snapshot_of
from tests.fakes.api import FakeApi
from tests.kubelet_nodes.offer import GPU

IMAGE = "gpuscape:0.1.0"
REQUEST = "0123456789abcdef"


class ShownNode:
    """A Node with an agent, a coordinator and the admission policies."""

    def __init__(self) -> None:
        self.api = FakeApi()
        server, snapshot = self.api.server, snapshot_of(MACHINE)
        node = node_object(decide_labels(snapshot, LabelSettings()).values, 8)
        topology = topology_annotation.encode(topology_of(snapshot))
        node["metadata"]["annotations"] = {keys.TOPOLOGY: topology}
        server.create(NODES, node)
        self.renews(names.agent_lease(NAME), "uid-of-agent", 5)
        self.renews(names.COORDINATOR_LEASE, "coordinator-0", 5)
        container = {"name": "agent", "image": IMAGE}
        template = {"spec": {"containers": [container]}}
        daemon_set = {"metadata": {"name": names.AGENT_DAEMON_SET}, "spec": {"template": template}}
        server.create(DAEMON_SETS, daemon_set, names.NAMESPACE)
        pod = {
            "metadata": {"name": "gpuscape-agent-1", "labels": {COMPONENT: "agent"}},
            "spec": {"nodeName": NAME, "containers": [container]},
            "status": {"phase": "Running", "containerStatuses": [{"name": "agent", "state": {}}]},
        }
        server.create(PODS, pod, names.NAMESPACE)
        for policy in CORE:
            server.create(ADMISSION_POLICIES, {"metadata": {"name": policy}})
            server.create(ADMISSION_BINDINGS, {"metadata": {"name": policy}})
        self.api.refuse(names.MIG_PERMIT, lambda call: keys.MIG_PERMIT in str(call.body))

    def renews(self, name: str, holder: str, age_seconds: float) -> None:
        at = micro_time(datetime.fromtimestamp(time.time() - age_seconds, UTC))
        spec = {"holderIdentity": holder, "renewTime": at}
        try:
            self.api.server.patch(LEASES, name, {"spec": spec}, names.NAMESPACE)
        except Exception:
            lease = {"metadata": {"name": name}, "spec": spec}
            self.api.server.create(LEASES, lease, names.NAMESPACE)

    def patches(self, **metadata: Mapping[str, str | None]) -> None:
        self.api.server.patch(NODES, NAME, {"metadata": metadata})

    def reports(self, **status: Any) -> None:
        self.api.server.patch(NODES, NAME, {"status": status}, status=True)

    def cordons(self) -> None:
        self.api.server.patch(NODES, NAME, {"spec": {"unschedulable": True}})

    def says_of_mig(self, phase: MigPhase, reason: str) -> None:
        status = MigStatusAnnotation(v=2, phase=phase, since="2026-11-20T08:00:00Z", reason=reason)
        self.patches(annotations={keys.MIG_STATUS: mig_status_annotation.encode(status)})

    def agent(self, **status: Any) -> None:
        self.api.server.patch(
            PODS, "gpuscape-agent-1", {"status": status}, names.NAMESPACE, status=True
        )

    def runs(self, image: str, manifests: str) -> None:
        """Its DaemonSet, and so its agent, has this image and these manifests' version."""
        env = [{"name": VARIABLE, "value": manifests}]
        pod = {"spec": {"containers": [{"name": "agent", "image": image, "env": env}]}}
        server = self.api.server
        server.patch(PODS, "gpuscape-agent-1", pod, names.NAMESPACE)
        server.patch(
            DAEMON_SETS, names.AGENT_DAEMON_SET, {"spec": {"template": pod}}, names.NAMESPACE
        )

    def has_pod(self, name: str, scheduler: str, gpus: int, phase: str = "Running") -> None:
        """Another pod, placed by this scheduler."""
        resources = {"limits": {GPU: str(gpus)}}
        containers = [{"name": "main", "resources": resources}]
        spec = {"nodeName": NAME, "schedulerName": scheduler, "containers": containers}
        pod = {"metadata": {"name": name}, "spec": spec, "status": {"phase": phase}}
        self.api.server.create(PODS, pod, "default")

    def no_coordinator(self) -> None:
        self.api.server.delete(LEASES, names.COORDINATOR_LEASE, names.NAMESPACE)

    def examined(self) -> Examination:
        return examine(NODE_CHECKS, read_remote_node(self.api, NAME, names.NAMESPACE))


Plant = Callable[[ShownNode], object]


@pytest.fixture
def node() -> ShownNode:
    """A healthy one."""
    return ShownNode()


def no_agent(node: ShownNode) -> None:
    server = node.api.server
    server.delete(PODS, "gpuscape-agent-1", names.NAMESPACE)
    server.delete(LEASES, names.agent_lease(NAME), names.NAMESPACE)
    node.patches(annotations={keys.TOPOLOGY: None})


def of_two_schedulers(node: ShownNode) -> None:
    node.has_pod("a", "gpuscape", 1)
    node.has_pod("b", "default-scheduler", 2)


def failing_agent(node: ShownNode) -> None:
    waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}
    node.agent(phase="Running", containerStatuses=[{"name": "agent", "state": waiting}])


def old_agent(node: ShownNode) -> None:
    pod = {"spec": {"template": {"spec": {"containers": [{"name": "agent", "image": "new:2"}]}}}}
    node.api.server.patch(DAEMON_SETS, names.AGENT_DAEMON_SET, pod, names.NAMESPACE)


def permitted(node: ShownNode, *, cordoned: bool) -> None:
    """The node has a slot, and is cordoned: by the coordinator, or by an admin before."""
    permit = MigPermitAnnotation(
        v=2, request=REQUEST, phase=PermitPhase.CORDONED, owns_cordon=cordoned
    )
    node.patches(annotations={keys.MIG_PERMIT: mig_permit_annotation.encode(permit)})
    node.cordons()


def cordon_left(node: ShownNode) -> None:
    permitted(node, cordoned=True)
    node.no_coordinator()


def waits_for_nobody(node: ShownNode) -> None:
    node.says_of_mig(MigPhase.WAITING, "for leave")
    node.no_coordinator()


def mig(phase: MigPhase) -> Plant:
    return lambda node: node.says_of_mig(phase, "GPU 3 is in use")


FAULTS: Mapping[str, Plant] = {
    "node-not-ready": lambda node: node.reports(
        conditions=[{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]
    ),
    "node-two-schedulers": of_two_schedulers,
    "agent-pod-missing": no_agent,
    "agent-pod-failing": failing_agent,
    "agent-image-old": old_agent,
    "version-skew": lambda node: node.runs("gpuscape:0.2.0", "0.1.0"),
    "lease-missing": lambda node: node.api.server.delete(
        LEASES, names.agent_lease(NAME), names.NAMESPACE
    ),
    "lease-released": lambda node: node.renews(names.agent_lease(NAME), "", 5),
    "lease-stale": lambda node: node.renews(names.agent_lease(NAME), "uid-of-agent", 500),
    "gpus-released": lambda node: node.patches(
        labels={"nvidia.com/gpu.deploy.driver": "paused-for-driver-upgrade"}
    ),
    "policy-missing": lambda node: node.api.server.delete(ADMISSION_BINDINGS, names.AGENT_NODE),
    "permit-policy-not-in-force": lambda node: node.api.heal(),
    "second-installation": lambda node: node.api.server.create(
        ADMISSION_BINDINGS, {"metadata": {"name": f"{names.AGENT_NODE}.labels-only"}}
    ),
    "writes-stopped": lambda node: node.api.server.create(
        ADMISSION_BINDINGS, {"metadata": {"name": STOPPED_WRITES}}
    ),
    "topology-missing": lambda node: node.patches(annotations={keys.TOPOLOGY: None}),
    "topology-unreadable": lambda node: node.patches(annotations={keys.TOPOLOGY: '{"v":1'}),
    "gpu-missing": lambda node: node.patches(labels={keys.FOUND: "7", keys.HEALTH: "unhealthy"}),
    "node-gpus-unhealthy": lambda node: node.patches(
        labels={keys.HEALTH: "degraded", keys.HEALTH_REASON: "row-remap-pending"}
    ),
    "node-offers-no-gpu": lambda node: node.reports(allocatable={GPU: "0"}),
    "node-offers-less": lambda node: node.reports(allocatable={GPU: "6"}),
    "node-offers-more": lambda node: node.reports(allocatable={GPU: "9"}, capacity={GPU: "9"}),
    "node-cordoned": ShownNode.cordons,
    "cordon-left": cordon_left,
    "mig-node-stuck": mig(MigPhase.STUCK),
    "mig-change-failed": mig(MigPhase.FAILED),
    "mig-layout-refused": mig(MigPhase.REFUSED),
    "coordinator-absent": waits_for_nobody,
}


def test_a_healthy_node_has_no_finding(node: ShownNode) -> None:
    made = node.examined()

    assert made.findings == ()
    assert made.missed_checks == ()


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_by_its_name_and_nothing_else_is(node: ShownNode, name: str) -> None:
    FAULTS[name](node)

    made = node.examined()

    assert {each.name for each in made.findings} == {name}
    assert all(each.cause and each.fix for each in made.findings)
    assert [each for each in made.checks if "bug" in each.why] == []


@pytest.mark.parametrize(
    ("image", "manifests"),
    [
        ("r.example:5000/team/gpuscape:0.1.4", "0.1.0"),
        ("r.example:5000/team/gpuscape", "0.1.0"),
        ("gpuscape:nightly", "0.1.0"),
        (f"gpuscape@sha256:{'0' * 64}", "0.1.0"),
        ("gpuscape:0.2.0", ""),
    ],
)
def test_an_image_whose_tag_fits_or_says_nothing_is_no_fault(
    node: ShownNode, image: str, manifests: str
) -> None:
    node.runs(image, manifests)

    assert node.examined().findings == ()


def test_pods_without_gpus_and_pods_that_have_ended_may_have_other_schedulers(
    node: ShownNode,
) -> None:
    node.has_pod("a", "gpuscape", 1)
    node.has_pod("b", "default-scheduler", 0)
    node.has_pod("c", "default-scheduler", 1, phase="Succeeded")

    assert node.examined().findings == ()


def test_every_kind_of_finding_on_a_node_from_outside_is_planted() -> None:
    seen_on_the_node_alone = {"lease-held-by-other"}

    of_both = {"version-skew", "permit-policy-not-in-force"}

    assert {kind.name for kind in CATALOG["node"]} == set(FAULTS) - of_both | seen_on_the_node_alone


def test_what_the_account_may_not_read_is_not_taken_for_well(node: ShownNode) -> None:
    for resource in (ADMISSION_POLICIES, PODS):
        node.api.fail("get", Forbidden("not allowed"), times=None, resource=resource)
        node.api.fail("watch", Forbidden("not allowed"), times=None, resource=resource)

    made = node.examined()

    assert made.findings == ()
    assert {each.check for each in made.missed_checks} == {
        "agent-pod",
        "node-schedulers",
        "policy-objects",
    }


def test_a_policy_on_permits_that_could_not_be_tried_is_not_taken_for_well(node: ShownNode) -> None:
    node.api.heal()
    node.api.fail("patch", Forbidden("not allowed"), times=None, resource=NODES)

    made = node.examined()

    assert made.findings == ()
    assert [each.check for each in made.missed_checks] == ["permits"]


def test_the_other_installations_namespace_is_named(node: ShownNode) -> None:
    other = {"metadata": {"name": f"{names.AGENT_NODE}.labels-only"}}
    node.api.server.create(ADMISSION_BINDINGS, other)
    node.api.server.create(ADMISSION_BINDINGS, {"metadata": {"name": f"{names.AGENT_NODE}-x"}})

    assert [each.about for each in node.examined().findings] == ["labels-only"]


def test_where_no_coordinator_acts_nobody_tries_the_policy_on_permits(node: ShownNode) -> None:
    node.api.heal()
    node.no_coordinator()

    assert node.examined().findings == ()


def test_a_cordon_of_a_change_under_way_is_no_fault(node: ShownNode) -> None:
    permitted(node, cordoned=True)

    assert node.examined().findings == ()


def test_our_cordon_is_known_where_somebody_removed_the_permit(node: ShownNode) -> None:
    node.patches(annotations={keys.MIG_CORDON: REQUEST})
    node.cordons()

    assert node.examined().findings == ()

    node.no_coordinator()
    assert [each.name for each in node.examined().findings] == ["cordon-left"]


def test_a_cordon_from_before_is_the_admins(node: ShownNode) -> None:
    permitted(node, cordoned=False)
    node.no_coordinator()

    assert [each.name for each in node.examined().findings] == ["node-cordoned"]


def test_shared_gpus_are_no_ghosts(node: ShownNode) -> None:
    node.reports(allocatable={GPU: "32"}, capacity={GPU: "32"})

    assert node.examined().findings == ()


def test_mig_devices_that_are_offered_as_gpus_are_no_ghosts(node: ShownNode) -> None:
    """With the strategy single."""
    node.patches(labels={"nvidia.com/gpu.count": "56"})
    node.reports(allocatable={GPU: "56"}, capacity={GPU: "56"})

    assert node.examined().findings == ()


def test_a_node_that_is_not_there_is_an_error_that_names_it(node: ShownNode) -> None:
    with pytest.raises(BadInput, match="no-such-node"):
        read_remote_node(node.api, "no-such-node", names.NAMESPACE)
