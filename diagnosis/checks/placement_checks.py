# SPDX-License-Identifier: Apache-2.0
"""Why a pod that has no node gets none. Pure; the filters are those of scheduler.filters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from api.mig_resources import GPU_RESOURCE, MIG_PREFIX, SHARED_SUFFIX, is_gpu_resource
from base.text import rfc3339
from base.words import first_names
from diagnosis.checks.scheduler_checks import POD_TWO_SCHEDULERS, check_pod_schedulers
from diagnosis.facts.pod_facts import FilteredCluster, PodFacts
from diagnosis.finding import (
    DoctorFinding,
    FindingKind,
    FindingSeverity,
    end_check_unread,
    finding,
    require_fact,
)
from kube.amounts.gpu_amounts import gpu_amounts, gpu_requests
from kube.objects.node import Node
from kube.objects.typed_object import condition_of
from mig.profile_names import profile_hint
from scheduler.filters import node_selection, taints
from scheduler.filters.filter_notes import notes
from scheduler.filters.node_filters import LeftOutNode, NodeFilter
from scheduler.filters.preemption import scheduler_of

SCHEDULER_UNKNOWN: Final = FindingKind(
    name="pod-scheduler-silent",
    severity=FindingSeverity.ERROR,
    cause="No scheduler has handled the pod: the one in its spec.schedulerName does not run.",
    fix="Check spec.schedulerName; default-scheduler and gpuscape are the usual names.",
    page="scheduler.md#install",
)
GATED: Final = FindingKind(
    name="pod-gated",
    severity=FindingSeverity.NOTE,
    cause="The pod has scheduling gates: the program that set them, such as Kueue, has not"
    " admitted it yet.",
    fix="Check the queue that holds it: `kubectl get workloads`.",
    page="doctor.md#pods-that-wait",
)
RESOURCE_UNKNOWN: Final = FindingKind(
    name="pod-resource-unknown",
    severity=FindingSeverity.ERROR,
    cause="No node has the GPU resource that the pod requests: a MIG profile that is in no layout,"
    " or a misspelt name.",
    fix="`gpuscape mig nodes` shows layouts; request one with `gpuscape mig rollout start`, or"
    " correct the name.",
    page="workloads.md#a-mig-device",
)
TOO_LARGE: Final = FindingKind(
    name="pod-too-large",
    severity=FindingSeverity.ERROR,
    cause="The pod requests more GPUs than any node has, so it never runs.",
    fix="Request fewer, and spread the work over several pods.",
    page="workloads.md",
)
GPUS_IN_USE: Final = FindingKind(
    name="pod-waits-for-gpus",
    severity=FindingSeverity.WARNING,
    cause="Nodes with enough GPUs have too few of them free now.",
    fix="Wait; `gpuscape scheduler explain POD` shows each node.",
    page="doctor.md#pods-that-wait",
)
SHORT_OF_OTHERS: Final = FindingKind(
    name="pod-waits-for-resources",
    severity=FindingSeverity.WARNING,
    cause="Nodes with enough free GPUs have too little CPU, memory or other resources free.",
    fix="Request less, or free some; `gpuscape scheduler explain POD` shows each node.",
    page="doctor.md#pods-that-wait",
)
TAINTED: Final = FindingKind(
    name="pod-taint-not-tolerated",
    severity=FindingSeverity.ERROR,
    cause="Nodes that would fit have taints that the pod does not tolerate.",
    fix="Add a toleration for each taint to the pod, such as `{key: KEY, operator: Exists}`, or"
    " remove the taints.",
    page="doctor.md#pods-that-wait",
)
CORDONED: Final = FindingKind(
    name="pod-nodes-cordoned",
    severity=FindingSeverity.WARNING,
    cause="Nodes that would fit are cordoned.",
    fix="Wait for the MIG change or the maintenance to end, or `kubectl uncordon NODE`.",
    page="doctor.md#pods-that-wait",
)
NOT_SELECTED: Final = FindingKind(
    name="pod-selects-no-node",
    severity=FindingSeverity.ERROR,
    cause="The pod's node selector or required node affinity matches none of the nodes that would"
    " fit.",
    fix="Compare it with `kubectl get nodes --show-labels`.",
    page="workloads.md#one-model",
)
TERM_BROKEN: Final = FindingKind(
    name="pod-affinity-broken",
    severity=FindingSeverity.ERROR,
    cause="An expression of the pod's node affinity is written so that it can match no node.",
    fix="Correct the expression that the message names.",
    page="workloads.md#one-model",
)
NO_NODES: Final = FindingKind(
    name="pod-no-nodes",
    severity=FindingSeverity.ERROR,
    cause="The cluster has no nodes.",
    fix="Add one.",
    page="doctor.md#pods-that-wait",
)
ELSEWHERE: Final = FindingKind(
    name="pod-waits-for-other-reasons",
    severity=FindingSeverity.WARNING,
    cause="Nodes pass the filters that are checked here, but the scheduler has placed the pod on"
    " none: because of volumes, affinity to pods or claims, or because it has not handled the pod"
    " yet.",
    fix="`kubectl describe pod POD`: the Event FailedScheduling has the scheduler's own reason.",
    page="doctor.md#pods-that-wait",
)
KINDS: Final = (
    POD_TWO_SCHEDULERS,
    *(SCHEDULER_UNKNOWN, GATED, RESOURCE_UNKNOWN, TOO_LARGE, GPUS_IN_USE, SHORT_OF_OTHERS),
    *(TAINTED, CORDONED, NOT_SELECTED, TERM_BROKEN, NO_NODES, ELSEWHERE),
)
SILENT_SECONDS: Final = 30.0
"""Age of a pod at which a running scheduler has surely looked at it."""
_MOST_NAMED: Final = 5
_OF_FILTER: Final = {
    NodeFilter.TAINTS: TAINTED,
    NodeFilter.UNSCHEDULABLE: CORDONED,
    NodeFilter.AFFINITY: NOT_SELECTED,
    NodeFilter.NODE_NAME: NOT_SELECTED,
}


def check_scheduler(facts: PodFacts) -> Iterator[DoctorFinding]:
    """Whether a scheduler looks at the pod."""
    require_fact(facts.cluster)
    spec = facts.constraints.spec
    gates = [gate.name for gate in spec.scheduling_gates]
    if gates:
        yield finding(GATED, facts.title, f"scheduling gates: {', '.join(gates)}")
    elif not _was_looked_at(facts):
        name = scheduler_of(facts.constraints)
        sentence = f"{name} has not handled it for {_age_seconds(facts):.0f} s"
        yield finding(SCHEDULER_UNKNOWN, facts.title, sentence)


def check_nodes(facts: PodFacts) -> Iterator[DoctorFinding]:
    """Whether a node can take the pod."""
    cluster = require_fact(facts.cluster)
    faults = tuple(node_selection.selection_faults(facts.constraints.spec))
    if not cluster.nodes:
        yield finding(NO_NODES, facts.title, NO_NODES.cause)
    elif faults:
        yield finding(TERM_BROKEN, facts.title, "; ".join(faults))
    elif impossible := tuple(_impossible(facts, cluster)):
        yield from impossible
    elif not cluster.filtered.candidates:
        yield from _left_out(facts, cluster)
    elif _was_refused(facts):
        words = "; ".join(notes(facts.constraints, cluster.filtered))
        names = _named(list(cluster.filtered.candidates))
        yield finding(ELSEWHERE, facts.title, f"{names} could take it. {words}".strip())


CHECKS: Final = (check_scheduler, check_nodes, check_pod_schedulers)


def _impossible(facts: PodFacts, cluster: FilteredCluster) -> Iterator[DoctorFinding]:
    """GPU resources that no node has, or not as many, however idle the cluster is."""
    offered = [_offers(node) for node in cluster.nodes]
    offered_names = sorted({name for amounts in offered for name in amounts})
    for resource, amount in _requested(facts).items():
        largest = max((amounts.get(resource, 0) for amounts in offered), default=0)
        if not largest:
            is_whole = resource.removesuffix(SHARED_SUFFIX) == GPU_RESOURCE
            close = "" if is_whole else profile_hint(resource, offered_names, MIG_PREFIX)
            known_names = f"; nodes have {', '.join(offered_names)}" if offered_names else ""
            sentence = f"no node has {resource}{close or known_names}"
            yield finding(RESOURCE_UNKNOWN, facts.title, sentence)
        elif amount > largest:
            sentence = f"{amount} of {resource}, but no node has more than {largest}"
            yield finding(TOO_LARGE, facts.title, sentence)


def _left_out(facts: PodFacts, cluster: FilteredCluster) -> Iterator[DoctorFinding]:
    """The reasons of nodes that are large enough, one finding for each."""
    gpus = _requested(facts)
    large = {
        node.name
        for node in cluster.nodes
        if all(_offers(node).get(name, 0) >= amount for name, amount in gpus.items())
    }
    fitting = [left_out for left_out in cluster.filtered.left_out if left_out.node in large]
    by_kind: dict[str, tuple[FindingKind, list[LeftOutNode]]] = {}
    for left_out in fitting:
        kind = _OF_FILTER.get(left_out.filter) or _kind_of_shortage(left_out)
        by_kind.setdefault(kind.name, (kind, []))[1].append(left_out)
    if len(by_kind) > 1:  # a node that the pod does not select says nothing of those it does
        by_kind.pop(NOT_SELECTED.name, None)
    for kind, left_outs in by_kind.values():
        whys = Counter(_why(left_out, facts, cluster) for left_out in left_outs)
        names = _named([left_out.node for left_out in left_outs])
        sentence = f"{names}: {whys.most_common(1)[0][0]}"
        yield finding(kind, facts.title, sentence)


def _why(left_out: LeftOutNode, facts: PodFacts, cluster: FilteredCluster) -> str:
    """The scheduler's reason; it names the first taint only, so all taints are named here."""
    if left_out.filter is not NodeFilter.TAINTS:
        return left_out.why
    node = next(candidate for candidate in cluster.nodes if candidate.name == left_out.node)
    untolerated = taints.untolerated(node.spec.taints, facts.constraints.spec.tolerations)
    words = (
        f"{taint.key}={taint.value}".removesuffix("=") + f":{taint.effect}" for taint in untolerated
    )
    return f"taints not tolerated: {', '.join(words)}"


def _kind_of_shortage(node: LeftOutNode) -> FindingKind:
    resources = [reason.removeprefix("Insufficient ") for reason in node.reasons]
    return GPUS_IN_USE if any(map(is_gpu_resource, resources)) else SHORT_OF_OTHERS


def _offers(node: Node) -> dict[str, int]:
    return gpu_amounts(node.status.allocatable)


def _requested(facts: PodFacts) -> dict[str, int]:
    return gpu_requests(facts.constraints.spec)


def _was_looked_at(facts: PodFacts) -> bool:
    """Whether a scheduler has written a condition, or still may because the pod is young."""
    return _condition(facts) is not None or _age_seconds(facts) < SILENT_SECONDS


def _was_refused(facts: PodFacts) -> bool:
    return _condition(facts) == "Unschedulable"


def _condition(facts: PodFacts) -> str | None:
    """Reason of the condition PodScheduled; None without it."""
    condition = condition_of(facts.constraints.status.conditions, "PodScheduled")
    return None if condition is None else condition.reason


def _age_seconds(facts: PodFacts) -> float:
    now = facts.server.info.unix_seconds
    if now is None:
        end_check_unread("the API server's answer has no date, so the pod's age is not known")
    created_at = rfc3339.unix_seconds(facts.constraints.metadata.creation_timestamp)
    return 0.0 if created_at is None else now - created_at


def _named(names: Sequence[str]) -> str:
    return first_names(names, _MOST_NAMED)
