# SPDX-License-Identifier: Apache-2.0
"""Why a pod was refused, or does not run though it has a node. Pure.

Source of the kubelet's words: Kubernetes 1.37, pkg/kubelet/lifecycle/predicate.go and
pkg/kubelet/cm (devicemanager/manager.go, topologymanager/topology_manager.go).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from api import keys
from api.gpu_request import Link
from base.words import did_you_mean
from diagnosis.facts.pod_facts import PodFacts
from diagnosis.finding import (
    DoctorFinding,
    FindingKind,
    FindingSeverity,
    end_check_not_needed,
    finding,
    require_fact,
)
from kube.amounts.gpu_amounts import gpu_amounts
from kube.amounts.pod_requests import container_requests
from kube.objects.pod import ContainerStatus, Pod, WaitingContainer

REFUSED_ADMISSION: Final = FindingKind(
    name="pod-refused-by-devices",
    severity=FindingSeverity.ERROR,
    cause="The kubelet refused the pod for good (UnexpectedAdmissionError): the device plugin"
    " returned an error, or had fewer healthy devices than the scheduler assumed.",
    fix="Delete the pod, so that it is created again; `gpuscape doctor` on its node checks the"
    " plugin.",
    page="doctor.md#pods-that-were-refused",
)
REFUSED_TOPOLOGY: Final = FindingKind(
    name="pod-refused-by-topology",
    severity=FindingSeverity.ERROR,
    cause="The kubelet refused the pod for good (TopologyAffinityError): its TopologyManager"
    " policy requires all resources on one NUMA node, and no NUMA node has enough free.",
    fix="Delete the pod; ask for fewer GPUs or CPUs, or relax topologyManagerPolicy to"
    " best-effort.",
    page="doctor.md#pods-that-were-refused",
)
REFUSED_RESOURCES: Final = FindingKind(
    name="pod-refused-by-node",
    severity=FindingSeverity.ERROR,
    cause="The kubelet refused the pod for good: its resources were taken meanwhile, or it no"
    " longer fits the node.",
    fix="Delete the pod, so that it is scheduled again.",
    page="doctor.md#pods-that-were-refused",
)
EVICTED: Final = FindingKind(
    name="pod-evicted",
    severity=FindingSeverity.ERROR,
    cause="The pod was evicted from its node, or preempted, and has ended.",
    fix="Read the message; a Job or Deployment creates another pod by itself.",
    page="doctor.md#pods-that-were-refused",
)
QUOTA: Final = FindingKind(
    name="pod-quota-exceeded",
    severity=FindingSeverity.ERROR,
    cause="The pod is not created: it would exceed a ResourceQuota of the namespace.",
    fix="`kubectl -n NAMESPACE describe resourcequota`; a limit for GPUs is called"
    " requests.nvidia.com/gpu.",
    page="doctor.md#pods-that-are-not-made",
)
NOT_MADE: Final = FindingKind(
    name="pod-not-made",
    severity=FindingSeverity.ERROR,
    cause="The pod is not created: the API server refuses it.",
    fix="Correct what the message names.",
    page="doctor.md#pods-that-are-not-made",
)
IMAGE: Final = FindingKind(
    name="pod-image-unavailable",
    severity=FindingSeverity.ERROR,
    cause="An image of the pod cannot be pulled.",
    fix="Check its name, the registry and imagePullSecrets.",
    page="doctor.md#pods-that-do-not-start",
)
CRASHES: Final = FindingKind(
    name="pod-crashes",
    severity=FindingSeverity.ERROR,
    cause="A container ends again and again.",
    fix="`kubectl logs POD --previous` shows its last output.",
    page="doctor.md#pods-that-do-not-start",
)
PLUGIN_AWAY: Final = FindingKind(
    name="pod-plugin-away",
    severity=FindingSeverity.ERROR,
    cause="A container cannot start again, since the device plugin has not been registered for"
    " five minutes or more.",
    fix="Restart the device plugin's pod on the node.",
    page="doctor.md#pods-that-do-not-start",
)
RUNTIME_MISSING: Final = FindingKind(
    name="pod-runtime-missing",
    severity=FindingSeverity.ERROR,
    cause="The node's container runtime does not know the pod's RuntimeClass.",
    fix="Install the NVIDIA container toolkit on the node and configure the runtime: `nvidia-ctk"
    " runtime configure`.",
    page="install.md#without-the-runtimeclass",
)
INJECTION_FAILED: Final = FindingKind(
    name="pod-gpu-not-injected",
    severity=FindingSeverity.ERROR,
    cause="The runtime could not put the GPU into the container: it is gone, or its CDI file is"
    " old.",
    fix="Restart the device plugin's pod; `nvidia-ctk cdi generate` after a change of MIG.",
    page="doctor.md#pods-that-do-not-start",
)
MIXED_RESOURCES: Final = FindingKind(
    name="pod-mixes-gpu-resources",
    severity=FindingSeverity.WARNING,
    cause="A container requests two kinds of GPU resources; with the plugin's usual strategy it"
    " sees the devices of only one, at random.",
    fix="Give each kind a container of its own.",
    page="workloads.md#a-mig-device",
)
LINK_UNKNOWN: Final = FindingKind(
    name="pod-link-unknown",
    severity=FindingSeverity.WARNING,
    cause="The annotation gpuscape.io/link has an unknown value, so it counts as any.",
    fix="Write any, numa or nvlink.",
    page="scheduler.md#what-a-pod-may-ask-for",
)

KINDS: Final = (
    *(REFUSED_ADMISSION, REFUSED_TOPOLOGY, REFUSED_RESOURCES, EVICTED, QUOTA, NOT_MADE),
    *(IMAGE, CRASHES, PLUGIN_AWAY, RUNTIME_MISSING, INJECTION_FAILED),
    *(MIXED_RESOURCES, LINK_UNKNOWN),
)
_REASONS: Final[Mapping[str, FindingKind]] = {
    "UnexpectedAdmissionError": REFUSED_ADMISSION,
    "TopologyAffinityError": REFUSED_TOPOLOGY,
    "NodeAffinity": REFUSED_RESOURCES,
    "NodePorts": REFUSED_RESOURCES,
    "Evicted": EVICTED,
    "Preempting": EVICTED,
    "Terminated": EVICTED,
    "NodeShutdown": EVICTED,
}
"""Kinds of findings by the reason of a failed pod."""
_OUT_OF: Final = "OutOf"
_IMAGE_REASONS: Final = (
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
)
_NO_ENDPOINT: Final = "endpoint not found in cache for a registered resource"
_NO_RUNTIME: Final = re.compile(r"no runtime for|RuntimeHandler|RuntimeClass.* not found")
_NOT_INJECTED: Final = re.compile(r"nvidia-container-cli|unresolvable CDI devices|libnvidia-ml")
_QUOTA_WORDS: Final = "exceeded quota"


def check_refusal(facts: PodFacts) -> Iterator[DoctorFinding]:
    """Whether the kubelet refused the pod, or it was evicted."""
    status = _pod(facts).status
    reason = status.reason
    if status.phase != "Failed" or not reason:
        return
    kind = REFUSED_RESOURCES if reason.startswith(_OUT_OF) else _REASONS.get(reason)
    if kind is not None:
        yield finding(kind, facts.title, f"{reason}: {status.message or 'no message'}")


def check_creation(facts: PodFacts) -> Iterator[DoctorFinding]:
    """Whether what should make pods may make them."""
    if facts.pod is not None:
        end_check_not_needed("the pod is there")
    failures = [event for event in require_fact(facts.events) if event.reason == "FailedCreate"]
    if failures:
        kind = QUOTA if _QUOTA_WORDS in failures[-1].note else NOT_MADE
        yield finding(kind, f"{facts.maker} {facts.title}", failures[-1].note)


def check_containers(facts: PodFacts) -> Iterator[DoctorFinding]:
    """Whether its containers start."""
    status = _pod(facts).status
    for container in (*status.init_container_statuses, *status.container_statuses):
        waiting = container.state.waiting or WaitingContainer()
        reason, message = waiting.reason, waiting.message
        sentence = f"container {container.name}: {reason}: {message}"
        if _NO_ENDPOINT in message:
            yield finding(PLUGIN_AWAY, facts.title, sentence)
        elif _NOT_INJECTED.search(message) or _NOT_INJECTED.search(_last_words(container)):
            yield finding(INJECTION_FAILED, facts.title, sentence)
        elif reason in _IMAGE_REASONS:
            yield finding(IMAGE, facts.title, sentence)
        elif reason == "CrashLoopBackOff":
            yield finding(CRASHES, facts.title, f"{sentence} {_last_words(container)}".strip())


def check_sandbox(facts: PodFacts) -> Iterator[DoctorFinding]:
    """Whether the node's runtime takes the pod at all."""
    pod = _pod(facts)
    if pod.status.phase != "Pending" or not pod.is_bound:
        end_check_not_needed("the pod waits for no runtime")
    notes = [
        event.note
        for event in require_fact(facts.events)
        if event.reason == "FailedCreatePodSandBox"
    ]
    if notes and _NO_RUNTIME.search(notes[-1]):
        yield finding(RUNTIME_MISSING, facts.title, notes[-1])


def check_resources(facts: PodFacts) -> Iterator[DoctorFinding]:
    """Whether a container asks for GPUs of one kind alone."""
    _pod(facts)
    spec = facts.constraints.spec
    for container in (*spec.containers, *spec.init_containers):
        kinds = gpu_amounts(container_requests(container, container.name))
        if len(kinds) > 1:
            sentence = f"container {container.name} asks for {' and '.join(kinds)}"
            yield finding(MIXED_RESOURCES, facts.title, sentence)


def check_wish(facts: PodFacts) -> Iterator[DoctorFinding]:
    """Whether its wish for links can be read."""
    link = _pod(facts).metadata.annotations.get(keys.LINK)
    if link is not None and link not in tuple(Link):
        sentence = f"{keys.LINK} is {link!r}{did_you_mean(link, tuple(Link))}"
        yield finding(LINK_UNKNOWN, facts.title, sentence)


CHECKS: Final = (
    check_refusal,
    check_creation,
    check_containers,
    check_sandbox,
    check_resources,
    check_wish,
)


def _pod(facts: PodFacts) -> Pod:
    if facts.pod is None:
        end_check_not_needed("there is no pod")
    return facts.pod


def _last_words(container: ContainerStatus) -> str:
    """The message that the container's last run left at its end."""
    terminated = container.last_state.terminated
    return "" if terminated is None else terminated.message
