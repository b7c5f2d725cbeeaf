# SPDX-License-Identifier: Apache-2.0
"""Where a pod is already, and which GPUs of that node it has by what the node's agent published."""

from __future__ import annotations

from contextlib import suppress

import msgspec

from api import keys, names, state_annotation, topology_annotation
from api.state_annotation import StateAnnotation
from base.errors import GpuscapeError
from base.text.rfc3339 import unix_seconds
from cli.scheduler.explanation_source import ExplainedPod
from kube.api import LEASES, NODES, Api, Object
from scheduler.cluster.pod_objects import Pod
from scheduler.scores.masks import members
from scheduler.scores.score_table import ScoreTable
from scheduler.scores.shape import shape


class PodPlacement(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that is bound to a node."""

    node: str
    ended: bool
    """It will never run again; its GPUs are others' by now."""
    gpus: tuple[int, ...] | None = None
    """GPUs that it has wholly or in part, as places in the topology annotation; None where the
    agent has not published them."""
    linked: bool | None = None
    """Whether NVLinks alone lead around them; None for less than two, and where it is not known."""


def placement(api: Api, explained: ExplainedPod, namespace: str) -> PodPlacement | None:
    """Where the pod is; None for one that is on no node. ``namespace``: of the agents' Leases.

    GPUs that cannot be read, as without rights for Leases, are not known: nothing is raised.
    """
    pod = msgspec.convert(explained.manifest, Pod)
    node = pod.spec.node_name
    if not node or not explained.is_there:
        return None
    found = PodPlacement(node=node, ended=pod.ended)
    if pod.ended:
        return found
    with suppress(GpuscapeError):
        state = _published(api.get(LEASES, names.lease(node), namespace=namespace), pod)
        if state is None:
            return found
        mask = int(state.pods[_key(pod)], 16)
        found = msgspec.structs.replace(found, gpus=members(mask))
        linked = _linked(api.get(NODES, node), state, mask)
        return msgspec.structs.replace(found, linked=linked)
    return found


def words(found: PodPlacement, pod: str, *, whole: bool) -> str:
    """In a sentence. ``whole``: it asks for whole GPUs."""
    if found.ended:
        return f"Pod {pod} has ended on {found.node}."
    if found.gpus is None:
        return f"Pod {pod} is on {found.node}."
    which = f"{'GPU' if len(found.gpus) == 1 else 'GPUs'} {','.join(map(str, found.gpus))}"
    if not whole:
        return f"Pod {pod} is on {found.node} and has a part of {which}."
    joined = {None: "", True: ", joined by NVLink", False: ", not joined by NVLink"}[found.linked]
    return f"Pod {pod} is on {found.node} and has {which}{joined}."


def _published(lease: Object, pod: Pod) -> StateAnnotation | None:
    """What the agent's Lease has of its node; None where it says nothing of this pod.

    A Lease that was last renewed before the pod was bound may name an earlier pod of its name.
    """
    renewed, bound = unix_seconds(lease["spec"].get("renewTime")), unix_seconds(pod.bound_at)
    if renewed is not None and bound is not None and renewed < bound:
        return None
    state = state_annotation.decode(_annotation(lease, keys.STATE))
    return state if state and _key(pod) in state.pods else None


def _linked(node: Object, state: StateAnnotation, mask: int) -> bool | None:
    """None for less than two GPUs, or where the Node has another topology than the state is of."""
    topology = topology_annotation.decode(_annotation(node, keys.TOPOLOGY))
    if mask.bit_count() < 2 or topology is None or topology.gen != state.gen:
        return None
    return ScoreTable(shape(topology)).is_linked(mask)


def _annotation(of: Object, key: str) -> str:
    return str((of["metadata"].get("annotations") or {}).get(key, ""))


def _key(pod: Pod) -> str:
    return state_annotation.pod_key(pod.metadata.namespace, pod.metadata.name)
