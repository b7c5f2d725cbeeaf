# SPDX-License-Identifier: Apache-2.0
"""Programs on the node that do the same work as gpuscape. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from agent.layouts.layout_request import other_managers
from diagnosis.facts.cluster_facts import ClusterFacts
from diagnosis.facts.local_facts import LocalFacts
from diagnosis.facts.machine_facts import kernel_cut_name
from diagnosis.finding import (
    DoctorFinding,
    FindingKind,
    FindingSeverity,
    Unread,
    end_check_not_needed,
    end_check_unread,
    finding,
)

RIVAL_FEATURE_DISCOVERY: Final = FindingKind(
    name="rival-feature-discovery",
    severity=FindingSeverity.WARNING,
    cause="gpu-feature-discovery runs on this node too: both write the same labels.",
    fix="Switch it off (the GPU operator's gfd.enabled=false), or set the agent's sink to none.",
    page="install.md#taking-over-from-gpu-feature-discovery",
)
OTHER_EXPORTER: Final = FindingKind(
    name="other-dcgm-exporter",
    severity=FindingSeverity.NOTE,
    cause="dcgm-exporter runs on this node too: the same GPUs are read twice.",
    fix="Keep it while you compare, then remove it.",
    page="shadow-mode.md",
)
RIVAL_MIG_MANAGER: Final = FindingKind(
    name="rival-mig-manager",
    severity=FindingSeverity.ERROR,
    cause="Another program manages MIG layouts on this node, so the agent does not change them,"
    " although mig-mode is enforce.",
    fix="Switch the other program off on this node (nvidia.com/gpu.deploy.mig-manager=false), or"
    " set mig-mode to observe.",
    page="mig-manager.md",
)
OTHER_MIG_MANAGER: Final = FindingKind(
    name="other-mig-manager",
    severity=FindingSeverity.NOTE,
    cause="Another program manages MIG layouts on this node; the agent only shows them.",
    fix="No action, unless gpuscape should change layouts here.",
    page="mig-manager.md",
)

KINDS: Final = (RIVAL_FEATURE_DISCOVERY, OTHER_EXPORTER, RIVAL_MIG_MANAGER, OTHER_MIG_MANAGER)
FEATURE_DISCOVERY: Final = "gpu-feature-discovery"
EXPORTER: Final = "dcgm-exporter"
MIG_MANAGER: Final = "nvidia-mig-manager"
_KERNEL_THREAD: Final = "kthreadd"
"""A process that is seen where processes are the host's, and not a container's own."""


def check_feature_discovery(facts: LocalFacts) -> Iterator[DoctorFinding]:
    """Whether gpu-feature-discovery runs here."""
    if facts.settings.sink == "none":
        end_check_not_needed("the agent writes no labels (sink none)")
    for place in _seen(facts, FEATURE_DISCOVERY):
        yield finding(RIVAL_FEATURE_DISCOVERY, FEATURE_DISCOVERY, f"{place} runs here")


def check_dcgm_exporter(facts: LocalFacts) -> Iterator[DoctorFinding]:
    """Whether dcgm-exporter runs here."""
    for place in _seen(facts, EXPORTER):
        yield finding(OTHER_EXPORTER, EXPORTER, f"{place} runs here")


def check_mig_managers(facts: LocalFacts) -> Iterator[DoctorFinding]:
    """Whether another program owns MIG layouts here."""
    if facts.settings.mig_mode == "off":
        end_check_not_needed("the agent does not manage MIG (mig-mode off)")
    cluster = facts.cluster if isinstance(facts.cluster, ClusterFacts) else None
    node = None if cluster is None or isinstance(cluster.node, Unread) else cluster.node
    pods = _pods(facts)
    managers = other_managers(
        {} if node is None else node["metadata"],
        pods=() if isinstance(pods, Unread) else pods,
        service_enabled=facts.mig_manager_service,
    )
    kind = RIVAL_MIG_MANAGER if facts.settings.mig_mode == "enforce" else OTHER_MIG_MANAGER
    for manager in managers:
        yield finding(kind, "MIG layouts", manager)
    if not managers:
        for place in _seen(facts, MIG_MANAGER):
            yield finding(kind, "MIG layouts", f"NVIDIA's MIG manager ({place})")


CHECKS: Final = (check_feature_discovery, check_dcgm_exporter, check_mig_managers)


def _seen(facts: LocalFacts, program: str) -> Iterator[str]:
    """The place where a program runs, at most one: a pod, else a process.

    Raises FactMissing where neither the node's pods nor its processes are seen.
    """
    pods = _pods(facts)
    if not isinstance(pods, Unread):
        running = sorted(pod for pod in pods if program in pod.partition("/")[2])
        if running:
            yield f"pod {running[0]}"
            return
    seen = next(
        (name for name in (program, kernel_cut_name(program)) if name in facts.programs), None
    )
    if seen is not None:
        yield f"process {seen}"
    elif isinstance(pods, Unread) and _KERNEL_THREAD not in facts.programs:
        end_check_unread(f"the node's pods ({pods.why}) and the host's processes cannot be read")


def _pods(facts: LocalFacts) -> frozenset[str] | Unread:
    """The node's pods: by the API server, else by the kubelet, as in the agent's own pod."""
    cluster, by_kubelet = facts.cluster, facts.kubelet.pods
    listed = cluster.pods if isinstance(cluster, ClusterFacts) else Unread("no cluster is there")
    if not isinstance(listed, Unread):
        return listed
    return (
        Unread(f"{listed.why}; {by_kubelet.why}") if isinstance(by_kubelet, Unread) else by_kubelet
    )
