# SPDX-License-Identifier: Apache-2.0
"""Pods, programs and failed GPUs that keep a Node's GPUs from being changed. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from api.mig_status_annotation import MigStatusAnnotation, failed_gpus
from fleet.drain.drain_blocker import BlockerKind as DrainBlockerKind
from fleet.drain.drain_blocker import DrainBlocker
from fleet.gpu_pod import GpuPod
from fleet.stages.node_change_facts import NodeChangeFacts
from fleet.stages.stage import StageBlocker, StageBlockerKind

_NOT_PODS = {
    DrainBlockerKind.BUDGET: StageBlockerKind.BUDGET,
    DrainBlockerKind.PROGRAM: StageBlockerKind.PROGRAM,
}


def users_in_the_way(facts: NodeChangeFacts) -> tuple[StageBlocker, ...]:
    """Device users by which the node is not idle, as :func:`fleet.drain.gpu_usage.is_idle`.

    Where pods are to be evicted, those that may not leave come first, with the reason.
    """
    refused = tuple(_refused(facts))
    named = {blocker.name for blocker in refused}
    return (
        *refused,
        *(blocker for blocker in (*_programs(facts), *_pods(facts)) if blocker.name not in named),
    )


def drain_command(facts: NodeChangeFacts) -> str:
    """Command that shows the first pod or budget in the way; empty where none is named."""
    for blocker in users_in_the_way(facts):
        namespace, slash, name = blocker.name.partition("/")
        if blocker.kind is StageBlockerKind.BUDGET and slash:
            return f"kubectl -n {namespace} get poddisruptionbudget {name}"
        if blocker.kind is StageBlockerKind.POD and slash:
            return f"kubectl -n {namespace} describe pod {name}"
    return ""


def _refused(facts: NodeChangeFacts) -> Iterator[StageBlocker]:
    for blocker in () if facts.drain_plan is None else facts.drain_plan.blockers:
        yield StageBlocker(
            kind=_NOT_PODS.get(blocker.kind, StageBlockerKind.POD),
            name=_blocker_name(facts, blocker),
            text=blocker.text,
        )


def failed_gpus_in_the_way(status: MigStatusAnnotation | None) -> tuple[StageBlocker, ...]:
    """The GPUs that failed, by index; one without a name where the agent names none."""
    gpus = () if status is None else failed_gpus(status)
    if not gpus:
        reason = "" if status is None else status.reason
        return (StageBlocker(kind=StageBlockerKind.GPU, name="", text=reason),)
    return tuple(
        StageBlocker(
            kind=StageBlockerKind.GPU,
            name=str(gpu.gpu),
            text=": ".join(filter(None, (gpu.outcome, gpu.reason))),
        )
        for gpu in gpus
    )


def _blocker_name(facts: NodeChangeFacts, blocker: DrainBlocker) -> str:
    is_key = blocker.kind is DrainBlockerKind.NOT_FOUND
    return facts.pod_name(blocker.name) if is_key else blocker.name


def _programs(facts: NodeChangeFacts) -> Iterator[StageBlocker]:
    for program in () if facts.node.request is None else facts.node.request.programs:
        text = "It uses what would be destroyed, and belongs to no pod."
        yield StageBlocker(kind=StageBlockerKind.PROGRAM, name=program, text=text)


def _pods(facts: NodeChangeFacts) -> Iterator[StageBlocker]:
    """Pods of the agent's list, then those that the API server has and the list does not."""
    request, status = facts.node.request, facts.node.status
    if request is None:
        return
    by_key = {pod.key: pod for pod in facts.pods}
    named = dict.fromkeys(facts.pod_name(key) for key in request.pods)
    if status is not None and len(status.pods) >= len(named):
        named = dict.fromkeys(status.pods)  # the API server may not show its pods to us
    texts = {f"{pod.namespace}/{pod.name}": _pod_text(pod) for pod in by_key.values()}
    for name in named:
        yield StageBlocker(kind=StageBlockerKind.POD, name=name, text=texts.get(name, ""))
    listed = {*request.pods, *request.other_pods}
    for pod in by_key.values():
        name = f"{pod.namespace}/{pod.name}"
        if pod.holds and name not in named and not (pod.is_placed and pod.key in listed):
            yield StageBlocker(kind=StageBlockerKind.POD, name=name, text=_unlisted_text(pod))
    if request.unlisted:
        text = "They use GPUs and do not fit into the agent's list."
        yield StageBlocker(
            kind=StageBlockerKind.POD, name=f"{request.unlisted} more pods", text=text
        )


def _pod_text(pod: GpuPod) -> str:
    return "It was deleted, and has not ended yet." if pod.is_leaving else ""


def _unlisted_text(pod: GpuPod) -> str:
    if not pod.is_placed:
        return "It is bound to the node, and its kubelet has not given it its devices yet."
    return _pod_text(pod) or "The agent does not say yet which GPUs it has."
