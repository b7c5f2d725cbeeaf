# SPDX-License-Identifier: Apache-2.0
"""Which pods a rollout waits for, or would evict, and what eviction would say of each. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from api.mig_request_annotation import VERSION, MigRequestAnnotation
from api.state_annotation import pod_key
from cli.mig.preview.node_preview import NodeFate, NodePreview
from fleet.drain.drain_plan import DrainBlocker, DrainPlan, DrainTerms, DrainView, plan_drain
from fleet.drain.drain_pod import DrainPod
from fleet.mig_node import DrainMode
from kube.amounts.gpu_amounts import asks_gpus
from kube.api import Object

_NO_ID = "0" * 16
_ENDED = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class LeavingPods:
    """The pods of one Node that changes."""

    node: str
    drain: str
    """How they leave; empty: not known, as the coordinator has it."""
    exact: bool
    """They are those in the way, by the node's agent; else some of them may not be in the way."""
    pods: tuple[str, ...]
    """``namespace/name``, sorted."""
    plan: DrainPlan
    """What the coordinator would decide where it may evict, with its defaults."""

    @property
    def may_go(self) -> int:
        """How many eviction would take; 0 where one of them keeps all."""
        return len(self.plan.evict)

    @property
    def is_blocked(self) -> bool:
        """Eviction would take none of them."""
        return bool(self.plan.blockers)


def leaving_pods(
    previews: Sequence[NodePreview],
    pods: Sequence[Object],
    budgets: Sequence[Object],
    owners: Mapping[str, Object],
    holders: Mapping[str, Mapping[str, int]],
    *,
    terms: DrainTerms,
    now: float | None,
) -> tuple[LeavingPods, ...]:
    """One for each Node that changes; ``pods``: all of the cluster; ``owners``: by UID.

    ``holders``: of Nodes whose agent says so, key of a pod to the mask of the GPUs that it has;
    ``terms``: what the coordinator may evict; ``now``: seconds since 1970, where known.
    """
    bound: dict[str, list[Object]] = {}
    for pod in pods:
        node = (pod.get("spec") or {}).get("nodeName")
        if node and asks_gpus(pod.get("spec") or {}):
            bound.setdefault(node, []).append(pod)
    return tuple(
        _leaving(one, bound.get(one.node, []), budgets, owners, holders.get(one.node), terms, now)
        for one in previews
        if one.fate is NodeFate.CHANGES
    )


def with_refusals(found: LeavingPods, refused: Iterable[DrainBlocker]) -> LeavingPods:
    """The same, where the API server has refused evictions in a dry run: then none may go."""
    blockers = tuple(refused)
    if not blockers:
        return found
    return replace(found, plan=replace(found.plan, evict=(), blockers=blockers))


def evictable(found: Iterable[LeavingPods]) -> list[DrainPod]:
    """Pods whose eviction the API server can be asked about."""
    return [pod for one in found for pod in one.plan.evict]


def _leaving(
    preview: NodePreview,
    pods: Sequence[Object],
    budgets: Sequence[Object],
    owners: Mapping[str, Object],
    held: Mapping[str, int] | None,
    terms: DrainTerms,
    now: float | None,
) -> LeavingPods:
    present = [pod for pod in pods if (pod.get("status") or {}).get("phase") not in _ENDED]
    names = {_name(pod): _key(pod) for pod in present}
    in_the_way, exact = _in_the_way(preview, frozenset(names.values()), held)
    wanted = sorted(name for name, key in names.items() if key in in_the_way)
    request = MigRequestAnnotation(
        v=VERSION,
        request=_NO_ID,
        plan=_NO_ID,
        gpus=(0,),
        pods=tuple(sorted(names[name] for name in wanted)),
        others=tuple(sorted(key for key in names.values() if key not in in_the_way)),
    )
    plan = plan_drain(
        DrainView(pods=tuple(present), budgets=tuple(budgets), owners=owners),
        request,
        terms,
        whole_node=preview.drain == DrainMode.NODE,
        now=now,
    )
    return LeavingPods(
        node=preview.node,
        drain=preview.drain,
        exact=exact,
        pods=tuple(wanted),
        plan=plan,
    )


def _in_the_way(
    preview: NodePreview, present: frozenset[str], held: Mapping[str, int] | None
) -> tuple[frozenset[str], bool]:
    """Keys of those that are, or may be, in the way; and whether all of them are.

    A pod of which the agent does not say yet what it has may have anything.
    """
    if preview.pods is not None:
        return preview.pods, True
    if held is None or preview.gpus is None:
        return present, False
    changing = sum(1 << place for place in preview.gpus)
    found = frozenset(key for key in present if key not in held or held[key] & changing)
    return found, preview.sets_modes and present <= held.keys()


def _name(pod: Object) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def _key(pod: Object) -> str:
    return pod_key(pod["metadata"]["namespace"], pod["metadata"]["name"])
