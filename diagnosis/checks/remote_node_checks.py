# SPDX-License-Identifier: Apache-2.0
"""A Node as the cluster shows it: its agent, its Lease, what it offers, its MIG layout. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from agent.cluster.confinement import PolicyVerdict
from api import keys, topology_annotation
from api.mig_resources import GPU_RESOURCE
from api.mig_status_annotation import MigPhase
from api.topology_annotation import TopologyAnnotation
from base.errors import BadInput
from diagnosis.checks import heartbeat_checks
from diagnosis.checks.cluster_checks import PERMIT_OPEN
from diagnosis.checks.heartbeat_checks import WRITES_STOPPED, lease_findings, released_findings
from diagnosis.checks.image_checks import image_skew, skew_findings
from diagnosis.checks.scheduler_checks import NODE_TWO_SCHEDULERS, check_node_schedulers
from diagnosis.facts.remote_node_facts import RemoteNodeFacts
from diagnosis.finding import (
    DoctorFinding,
    FindingKind,
    FindingSeverity,
    end_check_not_needed,
    end_check_unread,
    finding,
    require_fact,
)
from fleet.status.node_layout import NodeLayout, node_layout
from kube.amounts.gpu_amounts import gpu_amounts
from kube.objects.pod import Pod
from kube.objects.typed_object import condition_of

NODE_NOT_READY: Final = FindingKind(
    name="node-not-ready",
    severity=FindingSeverity.ERROR,
    cause="The kubelet does not report the Node as ready.",
    fix="`kubectl describe node`, then the kubelet's log on it.",
    page="doctor.md#a-kubelet-that-will-die",
)
NODE_CORDONED: Final = FindingKind(
    name="node-cordoned",
    severity=FindingSeverity.NOTE,
    cause="The Node is cordoned: it gets no new pods.",
    fix="`kubectl uncordon NODE`, once the reason is gone.",
    page="mig-fleet.md",
)
CORDON_LEFT: Final = FindingKind(
    name="cordon-left",
    severity=FindingSeverity.ERROR,
    cause="The Node is cordoned for a MIG change, and no coordinator acts that would lift it.",
    fix="Have the coordinator run; it undoes what is open. Without one: `kubectl uncordon NODE`,"
    " and remove the annotations gpuscape.io/mig-permit and gpuscape.io/mig-cordon.",
    page="runbooks/GpuscapeMigSlotStuck.md",
)
AGENT_MISSING: Final = FindingKind(
    name="agent-pod-missing",
    severity=FindingSeverity.ERROR,
    cause="The Node has no pod of gpuscape's agent.",
    fix="Check that the DaemonSet's node selector and tolerations match the Node: it needs the"
    " label nvidia.com/gpu.present=true or Node Feature Discovery's.",
    page="runbooks/GpuscapeNodeWithoutAgent.md",
)
AGENT_FAILING: Final = FindingKind(
    name="agent-pod-failing",
    severity=FindingSeverity.ERROR,
    cause="The agent's pod does not run.",
    fix="`kubectl -n gpuscape describe pod POD` and `kubectl -n gpuscape logs POD --previous`.",
    page="runbooks/GpuscapeAgentDown.md",
)
AGENT_OLD: Final = FindingKind(
    name="agent-image-old",
    severity=FindingSeverity.NOTE,
    cause="The agent's pod runs another image than its DaemonSet: an update has not reached this"
    " Node yet.",
    fix="`kubectl -n gpuscape rollout status daemonset/gpuscape-agent`.",
    page="upgrade.md",
)
TOPOLOGY_MISSING: Final = FindingKind(
    name="topology-missing",
    severity=FindingSeverity.ERROR,
    cause="The Node has no annotation gpuscape.io/topology: the scheduler knows nothing about its"
    " links.",
    fix="Read the agent's log: the agent writes the annotation once it could read all GPUs.",
    page="runbooks/GpuscapeNodeWithoutAgent.md",
)
TOPOLOGY_UNREADABLE: Final = FindingKind(
    name="topology-unreadable",
    severity=FindingSeverity.ERROR,
    cause="The annotation gpuscape.io/topology cannot be read.",
    fix="Remove it: `kubectl annotate node NODE gpuscape.io/topology-`; the agent writes it again.",
    page="labels.md",
)
GPUS_UNHEALTHY: Final = FindingKind(
    name="node-gpus-unhealthy",
    severity=FindingSeverity.ERROR,
    cause="The agent reports that a GPU of the Node is not healthy.",
    fix="Run `gpuscape doctor` on the node: it names the GPU.",
    page="operation.md#when-something-is-wrong-with-a-gpu",
)
GPU_MISSING: Final = FindingKind(
    name="gpu-missing",
    severity=FindingSeverity.ERROR,
    cause="Fewer GPUs answer than the agent expects on the Node.",
    fix="Run `gpuscape doctor` on the node.",
    page="runbooks/GpuMissing.md",
)
NODE_OFFERS_NO_GPU: Final = FindingKind(
    name="node-offers-no-gpu",
    severity=FindingSeverity.ERROR,
    cause="The Node has GPUs but offers none to pods: no device plugin is registered there.",
    fix="Check the device plugin's pod on the Node, and restart it.",
    page="runbooks/GpuscapeMigPluginNotRegistered.md",
)
OFFERS_LESS: Final = FindingKind(
    name="node-offers-less",
    severity=FindingSeverity.WARNING,
    cause="The device plugin considers some of the Node's devices unhealthy, or is gone: fewer"
    " devices can be allocated than exist.",
    fix="Read the device plugin's log on the Node, and restart its pod.",
    page="doctor.md#devices-that-pods-hold",
)
OFFERS_MORE: Final = FindingKind(
    name="node-offers-more",
    severity=FindingSeverity.ERROR,
    cause="The Node offers more GPUs than it has, without sharing: the kubelet still counts a"
    " device plugin that is gone.",
    fix="Restart the device plugin's pod on the Node, then the kubelet.",
    page="doctor.md#a-kubelet-that-is-wedged",
)
MIG_STUCK: Final = FindingKind(
    name="mig-node-stuck",
    severity=FindingSeverity.ERROR,
    cause="A MIG change of the Node is stuck: it was neither applied nor rolled back.",
    fix="Read the reason, remove the cause on the node, then run `gpuscape mig restore`.",
    page="runbooks/GpuscapeMigNodeStuck.md",
)
MIG_FAILED: Final = FindingKind(
    name="mig-change-failed",
    severity=FindingSeverity.ERROR,
    cause="A MIG change failed and was rolled back; the GPUs have the previous layouts.",
    fix="Remove the cause; the agent tries again.",
    page="runbooks/GpuscapeMigChangeFailed.md",
)
MIG_REFUSED: Final = FindingKind(
    name="mig-layout-refused",
    severity=FindingSeverity.ERROR,
    cause="The agent refuses the desired MIG layout of the Node.",
    fix="Write another layout; `gpuscape mig plan` on the node shows whether it is possible.",
    page="runbooks/GpuscapeMigLayoutRefused.md",
)
NO_COORDINATOR: Final = FindingKind(
    name="coordinator-absent",
    severity=FindingSeverity.ERROR,
    cause="The Node waits for a permit to change its MIG layout, and no coordinator acts.",
    fix="Install deploy/coordinator, or see why its pods do not run.",
    page="runbooks/GpuscapeCoordinatorNoLeader.md",
)
POLICY_MISSING: Final = FindingKind(
    name="policy-missing",
    severity=FindingSeverity.ERROR,
    cause="An admission policy of the agent, or its binding, is not in the cluster: agents write"
    " no object that it checks.",
    fix="`kubectl apply -f deploy/base/access.yaml`, generated for the agent's namespace.",
    page="runbooks/GpuscapeConfinementNotEnforced.md",
)
SECOND_INSTALLATION: Final = FindingKind(
    name="second-installation",
    severity=FindingSeverity.WARNING,
    cause="Policies of gpuscape are in the cluster for another namespace too: two installations"
    " write the same Nodes, and of two coordinators neither permits MIG changes.",
    fix="Keep one: remove the other's programs, then `gpuscape uninstall --namespace NAMESPACE`,"
    " which names its policies.",
    page="install.md#one-installation-in-a-cluster",
)
KINDS: Final = (
    NODE_TWO_SCHEDULERS,
    *heartbeat_checks.KINDS,
    *(NODE_NOT_READY, NODE_CORDONED, CORDON_LEFT, AGENT_MISSING, AGENT_FAILING, AGENT_OLD),
    *(TOPOLOGY_MISSING, TOPOLOGY_UNREADABLE, GPUS_UNHEALTHY, GPU_MISSING),
    *(NODE_OFFERS_NO_GPU, OFFERS_LESS, OFFERS_MORE),
    *(MIG_STUCK, MIG_FAILED, MIG_REFUSED, NO_COORDINATOR, POLICY_MISSING, SECOND_INSTALLATION),
)
_UNHEALTHY: Final = ("unhealthy", "degraded")
_MIG_KINDS: Final[Mapping[str, FindingKind]] = {
    MigPhase.STUCK: MIG_STUCK,
    MigPhase.FAILED: MIG_FAILED,
    MigPhase.REFUSED: MIG_REFUSED,
}


def check_kubelet_ready(facts: RemoteNodeFacts) -> Iterator[DoctorFinding]:
    """Whether the kubelet reports the Node as ready."""
    condition = condition_of(facts.node.status.conditions, "Ready")
    if condition is not None and condition.status != "True":
        why = condition.message or condition.reason or "no reason given"
        yield finding(NODE_NOT_READY, facts.name, why)


def check_agent_pod(facts: RemoteNodeFacts) -> Iterator[DoctorFinding]:
    """Whether the agent's pod is there and runs, and has the image that belongs there."""
    pods = require_fact(facts.agent_pods)
    if not pods:
        yield finding(AGENT_MISSING, facts.name, f"no pod of the agent is on {facts.name}")
    for written in pods:
        pod = Pod.from_object(written)
        name = pod.metadata.full_name
        if why := _failing(pod):
            yield finding(AGENT_FAILING, name, why)
        expected_image = facts.agent_image
        images = [container.image for container in pod.spec.containers]
        if expected_image and expected_image not in images:
            yield finding(
                AGENT_OLD, name, f"{images[0] if images else 'none'}, not {expected_image}"
            )
        yield from skew_findings(name, image_skew(written))


def check_lease(facts: RemoteNodeFacts) -> Iterator[DoctorFinding]:
    """Whether the agent renews its Lease."""
    if isinstance(facts.agent_pods, tuple) and not facts.agent_pods:
        end_check_not_needed("there is no agent on the Node")
    yield from lease_findings(facts.name, require_fact(facts.lease), facts.server_now, None)


def check_release(facts: RemoteNodeFacts) -> Iterator[DoctorFinding]:
    """Whether somebody asks for the GPUs to be left alone."""
    yield from released_findings(facts.written_node)


def check_policy_objects(facts: RemoteNodeFacts) -> Iterator[DoctorFinding]:
    """Whether the agent's admission policies and their bindings are in the cluster."""
    for missing in require_fact(facts.missing_policies):
        yield finding(POLICY_MISSING, missing, f"there is no {missing}")


def check_installations(facts: RemoteNodeFacts) -> Iterator[DoctorFinding]:
    """Whether gpuscape is installed once."""
    for namespace in require_fact(facts.other_namespaces):
        yield finding(SECOND_INSTALLATION, namespace, f"policies for the namespace {namespace}")


def check_permits(facts: RemoteNodeFacts) -> Iterator[DoctorFinding]:
    """Whether nobody but the coordinator can permit a MIG change, seen by a dry run."""
    if facts.permits is None:
        end_check_not_needed("no coordinator acts")
    trial = require_fact(facts.permits)
    if trial.verdict is PolicyVerdict.OPEN:
        yield finding(PERMIT_OPEN, trial.policy, trial.reason)
    elif trial.verdict is PolicyVerdict.UNKNOWN:
        end_check_unread(trial.reason)


def check_writes(facts: RemoteNodeFacts) -> Iterator[DoctorFinding]:
    """Whether gpuscape may write to the cluster at all."""
    policy = require_fact(facts.stopping_policy)
    if policy is not None:
        yield finding(WRITES_STOPPED, policy, f"{policy} is in force")


def check_topology(facts: RemoteNodeFacts) -> Iterator[DoctorFinding]:
    """Whether the Node says how its GPUs are linked."""
    text = _annotations(facts).get(keys.TOPOLOGY)
    if text is None:
        if isinstance(facts.agent_pods, tuple) and not facts.agent_pods:
            end_check_not_needed("there is no agent on the Node")
        yield finding(TOPOLOGY_MISSING, facts.name, f"{facts.name} has no {keys.TOPOLOGY}")
        return
    try:
        topology_annotation.decode(text)
    except BadInput as error:
        yield finding(TOPOLOGY_UNREADABLE, facts.name, str(error))


def check_gpu_health(facts: RemoteNodeFacts) -> Iterator[DoctorFinding]:
    """Whether all GPUs are there and well, by the agent's labels."""
    labels = facts.node.metadata.labels
    health, reason = labels.get(keys.HEALTH), labels.get(keys.HEALTH_REASON)
    expected, seen = labels.get(keys.EXPECTED), labels.get(keys.FOUND)
    if expected and seen and expected.isdigit() and seen.isdigit() and int(seen) < int(expected):
        yield finding(
            GPU_MISSING, facts.name, f"{seen} of {expected} GPUs answer: {reason or health}"
        )
    elif health in _UNHEALTHY:
        yield finding(GPUS_UNHEALTHY, facts.name, f"{health}: {reason or 'no reason given'}")


def check_offers(facts: RemoteNodeFacts) -> Iterator[DoctorFinding]:
    """Whether the Node offers as many GPUs as it has."""
    status = facts.node.status
    allocatable, capacity = gpu_amounts(status.allocatable), gpu_amounts(status.capacity)
    shown = _topology(facts)
    for resource, total in sorted(capacity.items()):
        if 0 < allocatable.get(resource, 0) < total:
            sentence = f"{allocatable.get(resource, 0)} of {total} {resource} can be allocated"
            yield finding(OFFERS_LESS, resource, sentence)
    if shown is None or not shown.n:
        return
    count, labelled = allocatable.get(GPU_RESOURCE, 0), _labelled_count(facts, shown.n)
    if not sum(allocatable.values()):
        yield finding(NODE_OFFERS_NO_GPU, facts.name, f"{shown.n} GPUs, but none can be allocated")
    elif labelled and count > labelled and count % labelled:  # a multiple is shared out
        sentence = f"{count} {GPU_RESOURCE} can be allocated, but only {labelled} exist"
        yield finding(OFFERS_MORE, facts.name, sentence)


def check_mig_layout(facts: RemoteNodeFacts) -> Iterator[DoctorFinding]:
    """Whether the Node has its desired MIG layout."""
    layout = _layout(facts)
    kind = _MIG_KINDS.get(layout.phase)
    if kind is not None:
        yield finding(kind, facts.name, layout.why or f"the layout is {layout.phase}")
    elif layout.phase == MigPhase.WAITING and not require_fact(facts.coordinator).holder:
        yield finding(NO_COORDINATOR, facts.name, layout.why or NO_COORDINATOR.cause)


def check_cordon(facts: RemoteNodeFacts) -> Iterator[DoctorFinding]:
    """Whether the Node takes pods, and a cordon of ours was lifted."""
    if not facts.node.spec.unschedulable:
        return
    layout = node_layout(facts.node)
    permit = None if layout is None else layout.permit
    request = _annotations(facts).get(keys.MIG_CORDON)
    if request is None and permit is not None and permit.owns_cordon:
        request = permit.request
    if request is None:
        yield finding(NODE_CORDONED, facts.name, f"{facts.name} is cordoned, but not by gpuscape")
    elif not require_fact(facts.coordinator).holder:
        sentence = f"cordoned for request {request}, but no coordinator acts"
        yield finding(CORDON_LEFT, facts.name, sentence)


CHECKS: Final = (
    *(
        check_kubelet_ready,
        check_node_schedulers,
        check_agent_pod,
        check_lease,
        check_release,
        check_policy_objects,
        check_installations,
        check_permits,
    ),
    *(check_writes, check_topology),
    *(check_gpu_health, check_offers, check_mig_layout, check_cordon),
)


def _layout(facts: RemoteNodeFacts) -> NodeLayout:
    layout = node_layout(facts.node)
    if layout is None:
        end_check_not_needed("the Node has no desired MIG layout")
    return layout


def _failing(pod: Pod) -> str:
    """The reason why a pod does not run; empty where it runs."""
    status = pod.status
    for container in status.container_statuses:
        if (waiting := container.state.waiting) is not None:
            message = f": {waiting.message}" if waiting.message else ""
            return f"container {container.name}: {waiting.reason or 'waiting'}{message}"
    if status.phase not in ("", "Running"):
        return f"it is {status.phase}: {status.message or status.reason or '?'}"
    return ""


def _labelled_count(facts: RemoteNodeFacts, otherwise: int) -> int:
    """The agent's count of devices of the GPU resource: MIG devices with strategy single."""
    text = facts.node.metadata.labels.get(f"{GPU_RESOURCE}.{keys.COUNT}", "")
    return int(text) if text.isdigit() else otherwise


def _annotations(facts: RemoteNodeFacts) -> Mapping[str, str]:
    return facts.node.metadata.annotations


def _topology(facts: RemoteNodeFacts) -> TopologyAnnotation | None:
    text = _annotations(facts).get(keys.TOPOLOGY)
    try:
        return None if text is None else topology_annotation.decode(text)
    except BadInput:
        return None
