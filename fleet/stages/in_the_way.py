# SPDX-License-Identifier: Apache-2.0
"""Pods, programs and failed GPUs that keep a Node's GPUs from being changed. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from api.mig_status_annotation import MigStatusAnnotation, failed_gpus
from fleet.drain.drain_blocker import BlockerKind as DrainBlockerKind
from fleet.gpu_pod import GpuPod
from fleet.stages.node_change_facts import NodeChangeFacts
from fleet.stages.stage import Stage, StageBlocker, StageBlockerKind, StageName, standing_at

_NOT_PODS = {
    DrainBlockerKind.BUDGET: StageBlockerKind.BUDGET,
    DrainBlockerKind.PROGRAM: StageBlockerKind.PROGRAM,
}


def waits_for_a_person(facts: NodeChangeFacts, text: str) -> Stage:
    """The standing of a change that is stuck: a person has to go on, or to give GPUs up."""
    blockers = failed_gpus_in_the_way(facts.node.status)
    text, command = f"stuck: {text}", facts.restore_command
    return standing_at(StageName.CHANGED, text, *blockers, command=command)


def waits_for_pods(
    stage: StageName, text: str, pods: Collection[GpuPod], why: str, verb: str = "logs"
) -> Stage:
    """The standing of a change that waits for pods of the GPU operator; ``verb``: kubectl's."""
    blockers = [StageBlocker(StageBlockerKind.POD, pod.full_name, why) for pod in pods]
    first = next(iter(pods), None)
    command = "" if first is None else f"kubectl -n {first.namespace} {verb} {first.name}"
    return standing_at(stage, text, *blockers, command=command)


def users_in_the_way(facts: NodeChangeFacts) -> tuple[StageBlocker, ...]:
    """Device users by which the node is not idle, as :func:`fleet.drain.gpu_usage.is_idle`.

    Where pods are to be evicted, those that may not leave come first, with the reason.
    """
    refused = tuple(_refused(facts))
    named = {blocker.name for blocker in refused}
    users = (*_programs(facts), *_pods(facts))
    return (*refused, *(blocker for blocker in users if blocker.name not in named))


def drain_command(users: Iterable[StageBlocker]) -> str:
    """Command that shows the first pod or budget in the way; empty where none is named."""
    for blocker in users:
        namespace, slash, name = blocker.name.partition("/")
        if blocker.kind is StageBlockerKind.BUDGET and slash:
            return f"kubectl -n {namespace} get poddisruptionbudget {name}"
        if blocker.kind is StageBlockerKind.POD and slash:
            return f"kubectl -n {namespace} describe pod {name}"
    return ""


def _refused(facts: NodeChangeFacts) -> Iterator[StageBlocker]:
    for blocker in () if facts.drain_plan is None else facts.drain_plan.blockers:
        is_key = blocker.kind is DrainBlockerKind.NOT_FOUND
        name = facts.pod_name(blocker.name) if is_key else blocker.name
        kind = _NOT_PODS.get(blocker.kind, StageBlockerKind.POD)
        yield StageBlocker(kind, name, blocker.text)


def failed_gpus_in_the_way(status: MigStatusAnnotation | None) -> tuple[StageBlocker, ...]:
    """The GPUs that failed, by index; one without a name where the agent names none."""
    gpus = () if status is None else failed_gpus(status)
    if not gpus:
        reason = "" if status is None else status.reason
        return (StageBlocker(StageBlockerKind.GPU, text=reason),)
    texts = {str(gpu.gpu): ": ".join(filter(None, (gpu.outcome, gpu.reason))) for gpu in gpus}
    return tuple(StageBlocker(StageBlockerKind.GPU, gpu, text) for gpu, text in texts.items())


def _programs(facts: NodeChangeFacts) -> Iterator[StageBlocker]:
    for program in () if facts.node.request is None else facts.node.request.programs:
        text = "It uses what would be destroyed, and belongs to no pod."
        yield StageBlocker(StageBlockerKind.PROGRAM, program, text)


def _pods(facts: NodeChangeFacts) -> Iterator[StageBlocker]:
    """Pods of the agent's list, then those that the API server has and the list does not."""
    request, status = facts.node.request, facts.node.status
    if request is None:
        return
    named = dict.fromkeys(facts.pod_name(key) for key in request.pods)
    if status is not None and len(status.pods) >= len(named):
        named = dict.fromkeys(status.pods)  # the API server may not show its pods to us
    texts = {pod.full_name: _pod_text(pod) for pod in facts.pods}
    for name in named:
        yield StageBlocker(StageBlockerKind.POD, name, texts.get(name, ""))
    listed = {*request.pods, *request.other_pods}
    for pod in facts.pods:
        is_listed = pod.full_name in named or (pod.is_placed and pod.key in listed)
        if pod.holds and not is_listed:
            yield StageBlocker(StageBlockerKind.POD, pod.full_name, _unlisted_text(pod))
    if request.unlisted:
        text = "They use GPUs and do not fit into the agent's list."
        yield StageBlocker(StageBlockerKind.POD, f"{request.unlisted} more pods", text)


def _pod_text(pod: GpuPod) -> str:
    return "It was deleted, and has not ended yet." if pod.is_leaving else ""


def _unlisted_text(pod: GpuPod) -> str:
    if not pod.is_placed:
        return "It is bound to the node, and its kubelet has not given it its devices yet."
    return _pod_text(pod) or "The agent does not say yet which GPUs it has."
