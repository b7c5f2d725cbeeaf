# SPDX-License-Identifier: Apache-2.0
"""Whether one scheduler places the GPU pods of a node. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from diagnosis.facts.pod_facts import PodFacts
from diagnosis.facts.remote_node_facts import RemoteNodeFacts
from diagnosis.finding import DoctorFinding, FindingKind, FindingSeverity, finding, require_fact
from kube.amounts.gpu_amounts import gpu_requests
from scheduler.filters.preemption import scheduler_of

_CAUSE: Final = (
    "Several schedulers place GPU pods on {}. None sees the latest bindings of the others, so two"
    " may give away the same GPUs, and the kubelet refuses one of the pods. Profiles of one"
    " kube-scheduler are no problem."
)
_FIX: Final = "Give all GPU pods of these nodes one scheduler."
_PAGE: Final = "scheduler.md#one-scheduler-for-gpu-pods"
NODE_TWO_SCHEDULERS: Final = FindingKind(
    name="node-two-schedulers",
    severity=FindingSeverity.WARNING,
    cause=_CAUSE.format("the Node"),
    fix=_FIX,
    page=_PAGE,
)
POD_TWO_SCHEDULERS: Final = FindingKind(
    name="pod-two-schedulers",
    severity=FindingSeverity.WARNING,
    cause=_CAUSE.format("the nodes that the pod may have"),
    fix=_FIX,
    page=_PAGE,
)


def check_node_schedulers(facts: RemoteNodeFacts) -> Iterator[DoctorFinding]:
    """Whether one scheduler has placed all GPU pods of the Node."""
    placed = require_fact(facts.gpu_schedulers)
    if len(placed) > 1:
        counts = (f"{name} {len(pods)} (such as {pods[0]})" for name, pods in placed.items())
        sentence = f"number of GPU pods by scheduler: {', '.join(counts)}"
        yield finding(NODE_TWO_SCHEDULERS, facts.name, sentence)


def check_pod_schedulers(facts: PodFacts) -> Iterator[DoctorFinding]:
    """Whether the pod's scheduler is the only one with GPU pods on the nodes that it may have."""
    placed = require_fact(facts.gpu_schedulers)
    own = scheduler_of(facts.constraints)
    others = [
        f"{len(pods)} of {name} (such as {pods[0]})" for name, pods in placed.items() if name != own
    ]
    if others and gpu_requests(facts.constraints.spec):
        sentence = f"its scheduler is {own}; other GPU pods there: {', '.join(others)}"
        yield finding(POD_TWO_SCHEDULERS, facts.title, sentence)
