# SPDX-License-Identifier: Apache-2.0
"""A node as the cache believes it to be, as a value for people and programs."""

from __future__ import annotations

import msgspec

from placement.masks import members
from scheduler.cluster.free_gpus import Bound
from scheduler.cluster.node_cache import CachedNode
from scheduler.cluster.node_views import NoView
from scheduler.score_explanation import REASONS, Chance, chances


class PodOnNode(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that is bound to the node and asks for GPUs."""

    pod: str
    """Namespace and name."""
    gpus: tuple[int, ...] | None
    """GPUs of the pod in the agent's state; None where the state does not name it yet."""
    expected: tuple[Chance, ...]
    """Sets that it may get, likeliest first, until the state names the real one."""


class NodeDetail(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known of one node. GPUs are places in its topology annotation; None: unknown."""

    node: str
    reason: str | None
    """Why it scores 0, a value of the metrics' label ``reason``; None where it is scored."""
    why: str
    """The reason in words."""
    gen: str | None
    """Topology class."""
    clique: str | None
    """NVLink clique across nodes."""
    sure: bool
    """Whether the agent's state agrees with what bound pods ask for."""
    free: tuple[int, ...] | None
    """Believed free: those that pods bound since will have are taken out."""
    ok: tuple[int, ...] | None
    """GPUs that are allocated whole."""
    used: tuple[int, ...] | None
    """GPUs in use, by the agent's state."""
    seq: int | None
    """Number of that state."""
    heard_seconds: float | None
    """Seconds since the last change of the agent's Lease."""
    pods: tuple[PodOnNode, ...]
    """Pods that are bound to the node, in the order of binding."""


def described(node: str, detail: CachedNode) -> NodeDetail:
    """The detail of a cached node, in words and lists."""
    view, state = detail.view, detail.state
    seen = None if isinstance(view, NoView) else view
    return NodeDetail(
        node=node,
        reason=view.value if isinstance(view, NoView) else None,
        why=REASONS[view] if isinstance(view, NoView) else "it is scored",
        gen=detail.gen,
        clique=None if seen is None else seen.clique,
        sure=seen is not None and seen.sure,
        free=None if seen is None else members(seen.free),
        ok=None if state is None else members(state.ok),
        used=None if state is None else members(state.used),
        seq=None if state is None else state.seq,
        heard_seconds=detail.heard_seconds,
        pods=tuple(_pod(pod, detail) for pod in detail.pods),
    )


def _pod(pod: Bound, detail: CachedNode) -> PodOnNode:
    named = None if detail.state is None else detail.state.pods.get(pod.key)
    expected = detail.expected.get(pod.ask.uid)
    return PodOnNode(
        pod=f"{pod.ask.namespace}/{pod.ask.name}",
        gpus=None if named is None else members(named),
        expected=() if expected is None else chances(expected.sets),
    )
