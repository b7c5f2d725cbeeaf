# SPDX-License-Identifier: Apache-2.0
"""Notes on filters that are not covered here, and on what else decides about candidates. Pure.

Source: kube-scheduler, pkg/scheduler/schedule_one.go of 1.37 (schedulePod, findNodesThatFitPod,
numFeasibleNodesToFind), with the same meaning in 1.32.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from base.words import first_names
from kube.objects.pod import Pod, PodSpec
from scheduler.filters import node_selection
from scheduler.filters.node_filters import FilteredNodes
from scheduler.filters.preemption import PreemptionOutlook

NOT_APPLIED: Final = (
    "The scheduler's filters are not applied: it ranks only the nodes that pass them."
)
NO_CANDIDATE: Final = "No node is left: the pod stays pending, and no extender is asked."
PRIORITY_UNKNOWN: Final = (
    "No node is left, and no extender is asked. Whether the scheduler deletes other pods for this"
    " one is not known: the cluster's PriorityClasses cannot be read, or lack the pod's."
)
ONE_CANDIDATE: Final = "One node is left: the scheduler takes it, and asks no extender."
_VOLUMES: Final = (
    *("persistentVolumeClaim", "ephemeral", "csi"),
    *("awsElasticBlockStore", "azureDisk", "cinder", "gcePersistentDisk", "iscsi", "rbd"),
)
"""Kinds of volumes for which the scheduler may leave nodes out."""

_MOST_NAMED: Final = 5
_listed = partial(first_names, most=_MOST_NAMED)
_ALWAYS_ALL: Final = 100
"""Nodes of a cluster in which the scheduler looks at all of them."""
_LEAST_PERCENT: Final = 5


def notes(pod: Pod, filtered: FilteredNodes) -> Iterator[str]:
    """Sentences about the pod's candidates, the weightiest first; none where nothing is special."""
    spec = pod.spec
    count = len(filtered.candidates)
    if count < 2:
        yield _no_candidate(pod, filtered.outlook) if not count else ONE_CANDIDATE
    yield from (
        f"{fault}. No node matches its term." for fault in node_selection.selection_faults(spec)
    )
    if spec.scheduling_gates:
        yield "The pod is not scheduled as long as it has a scheduling gate."
    for node, names in sorted(filtered.outlook.reserved.items())[:_MOST_NAMED]:
        yield f"Room on {node} is reserved for {_listed(names)}: nominated, and not bound yet."
    if pod.status.nominated_node_name and count:
        name = pod.status.nominated_node_name
        yield f"Preemption makes room on {name}: the scheduler tries it before all others."
    if missing := tuple(_not_covered(spec)):
        yield (
            "The scheduler may leave out more of these nodes. Not evaluated here: "
            f"{', '.join(missing)}."
        )
    looked_at = _looked_at(count + len(filtered.left_out))
    if count > looked_at:
        yield (
            f"Where percentageOfNodesToScore is not 100 the scheduler stops at about {looked_at} "
            f"of these {count} nodes: a rank depends on which they are."
        )


def _no_candidate(pod: Pod, outlook: PreemptionOutlook) -> str:
    """What the scheduler does with a pod that no node has room for."""
    if not outlook.is_known:
        return PRIORITY_UNKNOWN
    if outlook.ending:
        node = pod.status.nominated_node_name
        ending = _listed(outlook.ending)
        return f"No node is left now. Preemption makes room on {node}: the pod waits for {ending}."
    if not outlook.choices:
        return NO_CANDIDATE
    first, *others = outlook.choices
    victims = [f"{victim.name} (priority {victim.priority})" for victim in first.victims]
    nodes = f", or pods on {_listed([choice.node for choice in others])}" if others else ""
    return (
        "No node is left, so the scheduler preempts: it deletes "
        f"{_listed(victims)} on {first.node}{nodes}. No extender is asked."
    )


def _not_covered(spec: PodSpec) -> Iterator[str]:
    """Features of the pod that the scheduler's other filters judge."""
    for words, rules in (
        ("inter-pod affinity", spec.affinity.pod_affinity),
        ("inter-pod anti-affinity", spec.affinity.pod_anti_affinity),
    ):
        if rules.required_during_scheduling_ignored_during_execution:
            yield words
    if any(
        spread.when_unsatisfiable == "DoNotSchedule" for spread in spec.topology_spread_constraints
    ):
        yield "topology spread constraints"
    if any(kind in volume for volume in spec.volumes for kind in _VOLUMES):
        yield "volumes"
    if spec.resource_claims:
        yield "resource claims"
    if any(port.host_port for container in spec.all_containers for port in container.ports):
        yield "host ports"


def _looked_at(nodes: int) -> int:
    """Candidates at which the scheduler stops where nothing else is configured."""
    if nodes < _ALWAYS_ALL:
        return nodes
    percent = max(50 - nodes // 125, _LEAST_PERCENT)
    return max(nodes * percent // 100, _ALWAYS_ALL)
