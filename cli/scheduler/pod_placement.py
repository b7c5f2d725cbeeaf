# SPDX-License-Identifier: Apache-2.0
"""The node that a pod is bound to, and its GPUs there, as the node's agent published them."""

from __future__ import annotations

from contextlib import suppress

import msgspec

from api import keys, names, state_annotation, topology_annotation
from api.state_annotation import StateAnnotation
from base.errors import GpuscapeError
from base.text.rfc3339 import unix_seconds
from kube.api import LEASES, NODES, Api, Object
from kube.objects.pod import Pod
from placement.masks import members
from placement.score_table import ScoreTable
from placement.shape import shape
from scheduler.explanation_source import ExplainedPod


class PodPlacement(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that is bound to a node."""

    node: str
    ended: bool
    """The pod will never run again; other pods may have its GPUs by now."""
    gpus: tuple[int, ...] | None = None
    """GPUs that it has wholly or in part, as places in the topology annotation; None where the
    agent has not published them."""
    linked: bool | None = None
    """Whether NVLinks alone join the GPUs; None for less than two, and where it is not known."""


def read_placement(api: Api, explained: ExplainedPod, namespace: str) -> PodPlacement | None:
    """The node and GPUs of a pod; None for a pod that is on no node.

    ``namespace`` is that of the agents' Leases.

    GPUs that cannot be read, as without rights for Leases, are not known: nothing is raised.
    """
    pod = Pod.from_object(explained.manifest)
    node = pod.spec.node_name
    if not node or not explained.is_there:
        return None
    placed = PodPlacement(node=node, ended=pod.is_finished)
    if pod.is_finished:
        return placed
    with suppress(GpuscapeError):
        state = _published(api.get(LEASES, names.agent_lease(node), namespace=namespace), pod)
        if state is None:
            return placed
        mask = int(state.pods[_key(pod)], 16)
        placed = msgspec.structs.replace(placed, gpus=members(mask))
        linked = _linked(api.get(NODES, node), state, mask)
        return msgspec.structs.replace(placed, linked=linked)
    return placed


def placement_text(placed: PodPlacement, pod: str, *, whole: bool) -> str:
    """The placement as a sentence. ``whole``: the pod asks for whole GPUs."""
    if placed.ended:
        return f"Pod {pod} has ended on {placed.node}."
    if placed.gpus is None:
        return f"Pod {pod} is on {placed.node}."
    gpus_text = f"{'GPU' if len(placed.gpus) == 1 else 'GPUs'} {','.join(map(str, placed.gpus))}"
    if not whole:
        return f"Pod {pod} is on {placed.node} and has a part of {gpus_text}."
    joined = {None: "", True: ", joined by NVLink", False: ", not joined by NVLink"}[placed.linked]
    return f"Pod {pod} is on {placed.node} and has {gpus_text}{joined}."


def _published(lease: Object, pod: Pod) -> StateAnnotation | None:
    """The node's state in the agent's Lease; None where it does not name this pod.

    A Lease that was last renewed before the pod was bound may name an earlier pod of its name.
    """
    renewed, bound = unix_seconds(lease["spec"].get("renewTime")), unix_seconds(pod.bound_at)
    if renewed is not None and bound is not None and renewed < bound:
        return None
    state = state_annotation.decode(_annotation(lease, keys.STATE))
    return state if state and _key(pod) in state.pods else None


def _linked(node: Object, state: StateAnnotation, mask: int) -> bool | None:
    """Whether NVLinks join the pod's GPUs.

    None for less than two GPUs, and where the Node's topology is not the one of the state.
    """
    topology = topology_annotation.decode(_annotation(node, keys.TOPOLOGY))
    if mask.bit_count() < 2 or topology is None or topology.gen != state.gen:
        return None
    return ScoreTable(shape(topology)).is_linked(mask)


def _annotation(owner: Object, key: str) -> str:
    return str((owner["metadata"].get("annotations") or {}).get(key, ""))


def _key(pod: Pod) -> str:
    return state_annotation.pod_key(pod.metadata.namespace, pod.metadata.name)
