# SPDX-License-Identifier: Apache-2.0
"""Plans which pods leave a node before a MIG change: all that must, or none and the reasons.

Safety rule: where there is a blocker, nothing is evicted. Pods are judged as kubectl drain judges
them, but for two things: what it leaves behind, pods of DaemonSets and mirror pods, holds GPUs
here and so is in the way; and an emptyDir in memory is no data. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from api.mig_request_annotation import MigRequestAnnotation
from fleet.drain.disruption_budgets import budget_blockers
from fleet.drain.drain_blocker import BlockerKind, DrainBlocker, blocker_of, named
from fleet.drain.drain_pod import DrainPod
from fleet.drain.eviction_losses import EvictionLoss, eviction_losses
from fleet.gpu_pod import is_placed
from kube.api import Object


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainSettings:
    """Rules for evictions. Times are seconds."""

    allow_unmanaged: bool = False
    """Whether pods that nobody makes anew may be evicted."""
    ignore_autoscaler_marks: bool = False
    """Whether pods that Karpenter or cluster-autoscaler may not evict may be evicted."""
    allow_local_data: bool = False
    """Whether pods with an emptyDir on disk, which is lost, may be evicted."""
    deadline_seconds: float = 900.0
    """Time from the first eviction to the last pod's end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainPlan:
    """Pods that leave, or the reasons why none does."""

    evict: tuple[DrainPod, ...] = ()
    """Empty where there is a blocker."""
    awaited: tuple[DrainPod, ...] = ()
    """Pods that leave by themselves."""
    blockers: tuple[DrainBlocker, ...] = ()
    evaluated_at: float = 0.0
    """Seconds since 1970, before the reads began; 0 where that is not known."""
    losses: tuple[EvictionLoss, ...] = ()
    """Losses by the pods that would leave, whether or not they may."""

    @property
    def is_done(self) -> bool:
        """Whether no pod has to leave any more."""
        return not (self.evict or self.awaited or self.blockers)

    @property
    def obstacle(self) -> str:
        """The first reason why pods stay, and how many more there are; empty: none."""
        if not self.blockers:
            return ""
        first, more = self.blockers[0], len(self.blockers) - 1
        return f"{first.name}: {first.text}" + (f" And {more} more." if more else "")


def plan_drain(
    pods: Sequence[DrainPod],
    budgets: Iterable[Object],
    request: MigRequestAnnotation,
    terms: DrainSettings,
    *,
    whole_node: bool = False,
    now: float | None = None,
) -> DrainPlan:
    """The pods that must leave for this request; ``now``: seconds since 1970, where known.

    ``pods``: all that are bound to the node and ask for a GPU resource; ``budgets``: the
    PodDisruptionBudgets of their namespaces.

    Those that the agent names as holding what goes; with ``whole_node`` every pod that asks for a
    GPU, but then pods of DaemonSets and mirror pods stay where they are not in the way. The agent
    can name no other pods than these.
    """
    present = [pod for pod in pods if not pod.pod.is_finished]
    in_the_way = frozenset(request.pods)
    must_leave = [pod for pod in present if pod.key in in_the_way]
    if whole_node:
        stays = [pod for pod in present if pod.of_daemon_set or pod.is_mirror]
        must_leave += [pod for pod in present if pod not in must_leave and pod not in stays]
    awaited = [pod for pod in must_leave if pod.pod.is_deleted]
    awaited += [pod for pod in pods if pod.pod.is_finished and pod.key in in_the_way]
    leaving = [pod for pod in must_leave if not pod.pod.is_deleted]
    blockers = (
        *_request_blockers(request, pods, whole_node=whole_node),
        *(blocker for pod in leaving for blocker in _pod_blockers(pod, terms, now)),
        *budget_blockers(
            [pod for pod in leaving if not (pod.is_mirror or pod.of_daemon_set)], budgets
        ),
    )
    return DrainPlan(
        evict=() if blockers else tuple(leaving),
        awaited=tuple(awaited),
        blockers=blockers,
        evaluated_at=now or 0.0,
        losses=eviction_losses(leaving),
    )


def _request_blockers(
    request: MigRequestAnnotation, pods: Sequence[DrainPod], *, whole_node: bool
) -> Iterator[DrainBlocker]:
    """Blockers where the agent and the API disagree, mostly for a moment."""
    known = {pod.key for pod in pods}
    for key in sorted(set(request.pods) - known):
        text = "The agent names a pod with this key, but no such pod of the node requests a"
        yield DrainBlocker(kind=BlockerKind.NOT_FOUND, name=key, text=f"{text} GPU.")
    if request.unlisted:
        text = f"{request.unlisted} pods use GPUs and do not fit into the agent's list."
        yield DrainBlocker(kind=BlockerKind.UNLISTED, name=str(request.unlisted), text=text)
    for program in request.programs:
        text = "This process uses what would be destroyed, and belongs to no pod."
        yield DrainBlocker(kind=BlockerKind.PROGRAM, name=program, text=text)
    listed = {*request.pods, *request.other_pods}
    for pod in pods:
        if whole_node or pod.pod.is_finished or pod.key in request.pods:
            continue
        # the list may have one of its name before it
        if not is_placed(pod.pod) or pod.key not in listed:
            text = "It is bound to the node, but does not have its GPUs yet."
            yield blocker_of(pod, BlockerKind.NOT_PLACED, text)


def _pod_blockers(pod: DrainPod, terms: DrainSettings, now: float | None) -> Iterator[DrainBlocker]:
    """Blockers by the pod itself."""
    if pod.is_mirror:
        text = "The node's kubelet runs a static pod whatever the API server decides."
        yield blocker_of(pod, BlockerKind.MIRROR, text)
        return
    if pod.of_daemon_set:
        text = "Its DaemonSet would create it again on the node at once."
        yield blocker_of(pod, BlockerKind.DAEMON_SET, text)
        return
    if pod.local_volumes and not terms.allow_local_data:
        volumes = named(pod.local_volumes)
        text = f"Its data in emptyDir volumes would be lost: {volumes}."
        yield blocker_of(pod, BlockerKind.LOCAL_DATA, text)
    if pod.meta.controller is None and not terms.allow_unmanaged:
        text = "Nobody would make it anew: it has no controller."
        yield blocker_of(pod, BlockerKind.UNMANAGED, text)
    protected = pod.protected_by(autoscalers=not terms.ignore_autoscaler_marks, now=now)
    if protected:
        text = f"It may not be disturbed: {protected}."
        yield blocker_of(pod, BlockerKind.DO_NOT_DISRUPT, text)
    if pod.grace_seconds > terms.deadline_seconds:
        text = (
            f"Its grace period of {pod.grace_seconds} s is longer than the"
            f" {terms.deadline_seconds:g} s that draining may take."
        )
        yield blocker_of(pod, BlockerKind.GRACE, text)
