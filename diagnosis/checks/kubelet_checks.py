# SPDX-License-Identifier: Apache-2.0
"""The kubelet and the device plugin: what is offered, what is held, and what will go wrong. Pure.

Source of what a kubelet does with its checkpoint: Kubernetes 1.37, pkg/kubelet/cm/devicemanager,
manager.go (readCheckpoint) and topology_hints.go (generateDeviceTopologyHints); tried on 1.37.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from api.device_names import DRA_DRIVER, NameKey, keys, plugin_key
from api.mig_resources import is_gpu_resource
from diagnosis.checks.gpu_checks import gpu_name_in_findings
from diagnosis.checks.version_numbers import kubelet_version
from diagnosis.facts.kubelet_facts import Offered, SilentSocket
from diagnosis.facts.local_facts import LocalFacts, SilentActuator
from diagnosis.finding import (
    DoctorFinding,
    FindingKind,
    FindingSeverity,
    Unread,
    finding,
    require_fact,
)
from discovery.model import GpuState, NodeSnapshot, nvidia_gpus
from health.gpu_health import gpu_verdict
from health.health_verdict import Health
from kube.amounts.gpu_amounts import gpu_amounts
from kube.objects.node import Node
from kubelet.device_resolution import named_parts

POD_RESOURCES_SILENT: Final = FindingKind(
    name="pod-resources-silent",
    severity=FindingSeverity.ERROR,
    cause="The kubelet's pod-resources socket does not answer: it is unknown which pod has which"
    " GPU.",
    fix="Check that the kubelet runs; mount /var/lib/kubelet/pod-resources and run as uid 0.",
    page="runbooks/GpuscapeSourceSilent.md",
)
ACTUATOR_SILENT: Final = FindingKind(
    name="actuator-silent",
    severity=FindingSeverity.ERROR,
    cause="The actuator does not answer on its socket, so no MIG layout is changed.",
    fix="Check that the container actuator runs and shares /run/gpuscape with the agent.",
    page="mig.md#the-actuator",
)
MIG_CHANGE_OPEN: Final = FindingKind(
    name="mig-change-stuck",
    severity=FindingSeverity.ERROR,
    cause="A MIG change was interrupted or is stuck: it was neither applied nor rolled back.",
    fix="Read the reason, remove the cause, then run `gpuscape mig restore`.",
    page="runbooks/GpuscapeMigNodeStuck.md",
)
JOURNAL_DAMAGED: Final = FindingKind(
    name="mig-journal-damaged",
    severity=FindingSeverity.ERROR,
    cause="The actuator cannot read its journal, and changes nothing until it can.",
    fix="Read the actuator's log about the journal's folder.",
    page="mig.md#the-actuator",
)
NO_DEVICE_PLUGIN: Final = FindingKind(
    name="no-device-plugin",
    severity=FindingSeverity.ERROR,
    cause="The kubelet offers no GPU, and no device plugin answers on a socket.",
    fix="Install NVIDIA's device plugin, or read the log of its pod on this node.",
    page="runbooks/GpuscapeMigPluginNotRegistered.md",
)
PLUGIN_NOT_REGISTERED: Final = FindingKind(
    name="plugin-not-registered",
    severity=FindingSeverity.ERROR,
    cause="A device plugin answers on its socket, but the kubelet offers no GPU: the plugin is not"
    " registered, or all its devices are unhealthy.",
    fix="Restart the device plugin's pod on this node; if that does not help, restart the kubelet.",
    page="runbooks/GpuscapeMigPluginNotRegistered.md",
)
ALLOCATABLE_GHOST: Final = FindingKind(
    name="allocatable-ghost",
    severity=FindingSeverity.ERROR,
    cause="The kubelet offers GPUs that no device plugin serves: pods that get one fail. A kubelet"
    " of 1.37 does so after a plugin registered twice on one socket path.",
    fix="Restart the device plugin's pod; if the kubelet refuses it (`device plugin already"
    " connected` in its log), `systemctl restart kubelet`.",
    page="doctor.md#a-kubelet-that-is-wedged",
)
ALLOCATABLE_DIFFERS: Final = FindingKind(
    name="allocatable-differs",
    severity=FindingSeverity.WARNING,
    cause="The Node lists more GPUs than the kubelet has: the kubelet refuses pods that are bound"
    " to this node.",
    fix="Check again after 10 seconds; if it stays, restart the kubelet.",
    page="doctor.md#a-kubelet-that-is-wedged",
)
OFFERED_DEVICE_GONE: Final = FindingKind(
    name="offered-device-gone",
    severity=FindingSeverity.ERROR,
    cause="The device plugin offers a device that this machine does not have, for example after a"
    " MIG change that it has not noticed.",
    fix="Restart the device plugin's pod on this node.",
    page="runbooks/GpuscapeUnknownDevices.md",
)
GPU_NOT_OFFERED: Final = FindingKind(
    name="gpu-not-offered",
    severity=FindingSeverity.WARNING,
    cause="A GPU works, but the device plugin considers it unhealthy and does not offer it. The"
    " plugin does not revise this by itself.",
    fix="Search the kernel log for an XID, then restart the device plugin's pod on this node.",
    page="doctor.md#devices-that-pods-hold",
)
KUBELET_WILL_DIE: Final = FindingKind(
    name="kubelet-will-die",
    severity=FindingSeverity.ERROR,
    cause="A pod holds a device that is gone from this machine, and the kubelet's TopologyManager"
    " is on: from Kubernetes 1.34 on the kubelet panics at its next start and at every later one.",
    fix="Delete the pod before the kubelet or the node restarts: `kubectl delete pod`.",
    page="doctor.md#a-kubelet-that-will-die",
)
HELD_DEVICE_GONE: Final = FindingKind(
    name="held-device-gone",
    severity=FindingSeverity.WARNING,
    cause="A pod holds a device that is gone from this machine: it cannot start a container again,"
    " and with a TopologyManager policy other than none the kubelet dies at its next start.",
    fix="Delete the pod: `kubectl delete pod`.",
    page="doctor.md#devices-that-pods-hold",
)
HELD_DEVICE_UNHEALTHY: Final = FindingKind(
    name="held-device-unhealthy",
    severity=FindingSeverity.WARNING,
    cause="A pod holds a device that exists, but that the device plugin does not offer as healthy.",
    fix="Find out why the plugin considers it unhealthy; delete the pod, so that it gets another"
    " device.",
    page="doctor.md#devices-that-pods-hold",
)
NUMA_LIMIT: Final = FindingKind(
    name="kubelet-numa-limit",
    severity=FindingSeverity.ERROR,
    cause="The host has more NUMA nodes than the kubelet's TopologyManager supports: with its"
    " policy the kubelet does not start.",
    fix="Set max-allowable-numa-nodes in topologyManagerPolicyOptions, or the policy none.",
    page="doctor.md#a-kubelet-that-will-die",
)

KINDS: Final = (
    *(POD_RESOURCES_SILENT, NO_DEVICE_PLUGIN, PLUGIN_NOT_REGISTERED, ALLOCATABLE_GHOST),
    *(ALLOCATABLE_DIFFERS, OFFERED_DEVICE_GONE, GPU_NOT_OFFERED, KUBELET_WILL_DIE),
    *(HELD_DEVICE_GONE, HELD_DEVICE_UNHEALTHY, NUMA_LIMIT),
    *(ACTUATOR_SILENT, MIG_CHANGE_OPEN, JOURNAL_DAMAGED),
)
PANICS: Final = (1, 34)
"""Version from which on a kubelet ends when a held device is gone."""
_NONE: Final = "none"


def check_pod_resources(facts: LocalFacts) -> Iterator[DoctorFinding]:
    """Whether the kubelet says which pod has which device."""
    offered = facts.kubelet.offered
    if isinstance(offered, SilentSocket):
        yield finding(POD_RESOURCES_SILENT, "kubelet", offered.why)
    else:
        require_fact(offered)


def check_device_plugin(facts: LocalFacts) -> Iterator[DoctorFinding]:
    """Whether a device plugin offers the GPUs, and is there."""
    offered = _offered(facts)
    machine_gpus = require_fact(facts.machine).answering
    sockets = require_fact(facts.kubelet.sockets)
    alive = [socket.name for socket in sockets if socket.answers]
    if offered and not alive:
        count = sum(map(len, offered.values()))
        sentence = f"the kubelet offers {count} GPU devices, but no device plugin's socket answers"
        yield finding(ALLOCATABLE_GHOST, "kubelet", sentence)
    elif not offered and machine_gpus and not _by_claims(facts):
        if alive:
            sentence = f"{', '.join(alive)} answers, but the kubelet offers no GPU"
            yield finding(PLUGIN_NOT_REGISTERED, "device plugin", sentence)
        else:
            yield finding(NO_DEVICE_PLUGIN, "device plugin", NO_DEVICE_PLUGIN.cause)


def check_offered_devices(facts: LocalFacts) -> Iterator[DoctorFinding]:
    """Whether what is offered is what the machine has."""
    offered, snapshot = _offered(facts), require_fact(facts.machine)
    here = _names(snapshot)
    ids = {
        device
        for device in frozenset().union(*offered.values())
        if plugin_key(device)[0].is_certain
    }
    for device in sorted(ids):
        if plugin_key(device)[0] not in here and _is_whole(snapshot):
            sentence = f"{device} is offered, but does not exist"
            yield finding(OFFERED_DEVICE_GONE, device, sentence)
    shown = {plugin_key(device)[0] for device in ids}
    for gpu, nvidia in nvidia_gpus(snapshot.answering if ids else ()):
        healthy = gpu_verdict(gpu, snapshot).health < Health.UNHEALTHY
        gpu_keys = {key for key, instance in keys(gpu.uuid, nvidia.minor, ()) if instance is None}
        if healthy and not gpu.mig_enabled and not gpu_keys & shown:
            sentence = f"{gpu.uuid} works, but is not offered"
            yield finding(GPU_NOT_OFFERED, gpu_name_in_findings(gpu), sentence)


def check_held_devices(facts: LocalFacts) -> Iterator[DoctorFinding]:
    """Whether what pods hold is still there."""
    devices, snapshot = require_fact(facts.kubelet.devices), require_fact(facts.machine)
    here = _names(snapshot)
    for name in sorted(devices.gpus - devices.offered):
        pods = ", ".join(sorted(devices.held[name]))
        key, _ = plugin_key(name)
        if key in here:
            sentence = f"{pods} holds {name}, which the device plugin does not offer as healthy"
            yield finding(HELD_DEVICE_UNHEALTHY, pods, sentence)
        elif key.is_certain and _is_whole(snapshot):
            sentence = f"{pods} holds {name}, which no longer exists"
            yield finding(_kind_of_gone(facts), pods, sentence)


def _kind_of_gone(facts: LocalFacts) -> FindingKind:
    """The kind of finding about a held device that is gone, by the kubelet's topology policy.

    Without a known policy it is the milder kind, whose text names both cases.
    """
    configuration, version = facts.kubelet.configuration, _kubelet_version(facts)
    if isinstance(configuration, Unread) or configuration.topology_manager == _NONE:
        return HELD_DEVICE_GONE
    return HELD_DEVICE_GONE if version is not None and version < PANICS else KUBELET_WILL_DIE


def check_numa_nodes(facts: LocalFacts) -> Iterator[DoctorFinding]:
    """Whether the kubelet's TopologyManager takes this host."""
    configuration = require_fact(facts.kubelet.configuration)
    nodes = len(require_fact(facts.machine).host.numa_nodes)
    if configuration.topology_manager != _NONE and nodes > configuration.most_numa_nodes:
        sentence = (
            f"{nodes} NUMA nodes, policy {configuration.topology_manager},"
            f" at most {configuration.most_numa_nodes} allowed"
        )
        yield finding(NUMA_LIMIT, "kubelet", sentence)


def check_node_allocatable(facts: LocalFacts) -> Iterator[DoctorFinding]:
    """Whether the Node lists what the kubelet has."""
    node, offered = require_fact(require_fact(facts.cluster).node), _offered(facts)
    allocatable = Node.from_object(node or {}).status.allocatable
    for resource, amount in gpu_amounts(allocatable).items():
        has = len(offered.get(resource, ()))
        if amount > has:
            sentence = f"the Node lists {amount} of {resource}, the kubelet has {has}"
            yield finding(ALLOCATABLE_DIFFERS, resource, sentence)


def check_actuator(facts: LocalFacts) -> Iterator[DoctorFinding]:
    """Whether MIG layouts can be changed, and no change is open or stuck."""
    if isinstance(facts.actuator, SilentActuator):
        yield finding(ACTUATOR_SILENT, "actuator", facts.actuator.why)
        return
    state = require_fact(facts.actuator)
    if state.problem:
        yield finding(JOURNAL_DAMAGED, "actuator", state.problem)
    if state.open is not None and state.running is None:
        why = f": {state.open.reason}" if state.open.reason else ""
        yield finding(MIG_CHANGE_OPEN, "actuator", f"{state.open.origin} has not ended{why}")


CHECKS: Final = (
    *(
        check_pod_resources,
        check_device_plugin,
        check_offered_devices,
        check_held_devices,
        check_numa_nodes,
    ),
    *(check_node_allocatable, check_actuator),
)


def _offered(facts: LocalFacts) -> Offered:
    """The devices that the kubelet offers, by GPU resource; resources without devices left out."""
    offered = require_fact(facts.kubelet.offered)
    return {name: ids for name, ids in offered.items() if ids and is_gpu_resource(name)}


def _kubelet_version(facts: LocalFacts) -> tuple[int, int] | None:
    """The kubelet's minor version by its Node; None where that is not known."""
    node = None if isinstance(facts.cluster, Unread) else facts.cluster.node
    return None if node is None or isinstance(node, Unread) else kubelet_version(node)


def _is_whole(snapshot: NodeSnapshot) -> bool:
    """Whether all devices of the machine are known, so that no other device exists.

    A container without NVIDIA's capabilities sees GPUs with MIG on, and nothing on them.
    """
    return all(
        gpu.state is GpuState.PRESENT and not gpu.misses("mig_devices") for gpu in snapshot.gpus
    )


def _by_claims(facts: LocalFacts) -> bool:
    """Whether pods get GPUs by claims here, without a device plugin."""
    devices, sockets = facts.kubelet.devices, require_fact(facts.kubelet.sockets)
    has_claims = not isinstance(devices, Unread) and bool(devices.claimed)
    return has_claims or any(DRA_DRIVER in socket.name for socket in sockets)


def _names(snapshot: NodeSnapshot) -> frozenset[NameKey]:
    """Names of the GPUs and MIG devices that are there."""
    return frozenset(key for key, _ in named_parts(snapshot))
