# SPDX-License-Identifier: Apache-2.0
"""Pods that a rollout waits for or would evict, and what blocks their eviction. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from api.mig_request_annotation import VERSION, MigRequestAnnotation
from api.state_annotation import pod_key
from fleet.drain.drain_blocker import DrainBlocker
from fleet.drain.drain_plan import DrainPlan, DrainSettings, plan_drain
from fleet.drain.drain_pod import DrainPod
from fleet.mig_node import DrainMode
from forecast.node_preview import NodeImpact, NodePreview
from kube.amounts.gpu_amounts import asks_gpus
from kube.api import Object
from kube.objects.pod import Pod

_NO_ID = "0" * 16


@dataclass(frozen=True, slots=True, kw_only=True)
class LeavingPods:
    """Pods of a Node that changes, which have to leave it."""

    node: str
    drain: str
    """Drain mode of the Node; empty where it is the coordinator's, and not known."""
    exact: bool
    """Whether all of the pods block the change, from the node's agent; else some may not."""
    pods: tuple[str, ...]
    """``namespace/name``, sorted."""
    plan: DrainPlan
    """Decision of the coordinator where it may evict pods, with its defaults."""

    @property
    def may_go(self) -> int:
        """Number of pods that would be evicted; 0 where a single pod blocks the eviction of all."""
        return len(self.plan.evict)

    @property
    def is_blocked(self) -> bool:
        """Whether a pod blocks the eviction of all."""
        return bool(self.plan.blockers)


def leaving_pods(
    previews: Sequence[NodePreview],
    pods: Sequence[Pod],
    budgets: Sequence[Object],
    owners: Mapping[str, Object],
    holders: Mapping[str, Mapping[str, int]],
    *,
    terms: DrainSettings,
    now: float | None,
) -> tuple[LeavingPods, ...]:
    """Pods that leave each Node that changes; ``pods``: all of the cluster; ``owners``: by UID.

    ``holders``: Node to key of a pod to the mask of its GPUs, where the Node's agent reports it;
    ``terms``: pods that the coordinator may evict; ``now``: seconds since 1970, where known.
    """
    bound: dict[str, list[Pod]] = {}
    for pod in pods:
        if pod.is_bound and asks_gpus(pod.spec):
            bound.setdefault(pod.spec.node_name, []).append(pod)
    return tuple(
        _leaving(
            preview,
            bound.get(preview.node, []),
            budgets,
            owners,
            holders.get(preview.node),
            terms,
            now,
        )
        for preview in previews
        if preview.fate is NodeImpact.CHANGES
    )


def with_refusals(leaving: LeavingPods, refusals: Iterable[DrainBlocker]) -> LeavingPods:
    """Add evictions that the API server refused in a dry run; then no pod is evicted."""
    blockers = tuple(refusals)
    if not blockers:
        return leaving
    return replace(leaving, plan=replace(leaving.plan, evict=(), blockers=blockers))


def evictable_pods(leaving: Iterable[LeavingPods]) -> list[DrainPod]:
    """Pods whose eviction can be tried in a dry run."""
    return [pod for node_pods in leaving for pod in node_pods.plan.evict]


def _leaving(
    preview: NodePreview,
    pods: Sequence[Pod],
    budgets: Sequence[Object],
    owners: Mapping[str, Object],
    gpu_masks: Mapping[str, int] | None,
    terms: DrainSettings,
    now: float | None,
) -> LeavingPods:
    present = [pod for pod in pods if not pod.is_finished]
    names = {
        pod.metadata.full_name: pod_key(pod.metadata.namespace, pod.metadata.name)
        for pod in present
    }
    in_the_way, exact = _in_the_way(preview, frozenset(names.values()), gpu_masks)
    names_in_the_way = sorted(name for name, key in names.items() if key in in_the_way)
    request = MigRequestAnnotation(
        v=VERSION,
        request=_NO_ID,
        plan=_NO_ID,
        gpus=(0,),
        pods=tuple(sorted(names[name] for name in names_in_the_way)),
        other_pods=tuple(sorted(key for key in names.values() if key not in in_the_way)),
    )
    plan = plan_drain(
        [DrainPod.owned(pod, owners) for pod in present],
        budgets,
        request,
        terms,
        whole_node=preview.drain == DrainMode.NODE,
        now=now,
    )
    return LeavingPods(
        node=preview.node,
        drain=preview.drain,
        exact=exact,
        pods=tuple(names_in_the_way),
        plan=plan,
    )


def _in_the_way(
    preview: NodePreview, present: frozenset[str], gpu_masks: Mapping[str, int] | None
) -> tuple[frozenset[str], bool]:
    """Keys of the pods that block the change or may block it; and whether all of them do.

    A pod that the agent does not report yet may have any GPU.
    """
    if preview.pods is not None:
        return preview.pods, True
    if gpu_masks is None or preview.gpus is None:
        return present, False
    changing = sum(1 << place for place in preview.gpus)
    blocking = frozenset(
        key for key in present if key not in gpu_masks or gpu_masks[key] & changing
    )
    return blocking, preview.sets_modes and present <= gpu_masks.keys()
