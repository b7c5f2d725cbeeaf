# SPDX-License-Identifier: Apache-2.0
"""Publishes which pod holds which GPU on the agent's Lease."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from agent.cluster.heartbeat import State
from api import keys, state_annotation, topology_annotation
from base.errors import BadInput
from discovery.model import NodeSnapshot
from kubelet.allocated_devices import NodeAllocation
from labelers.annotations import node_annotations, state_of, topology_of
from labelers.decision import Value


class StateLease(Protocol):
    """The agent's Lease, on which the state is shown."""

    @property
    def holds(self) -> bool: ...
    @property
    def shown(self) -> str | None: ...
    def show(self, state: State) -> None: ...


class PodState:
    """Keeps the state on the Lease up to date; while the kubelet does not answer it stays."""

    def __init__(
        self, lease: StateLease, *, topology: Callable[[], str | None], changed: Callable[[], None]
    ) -> None:
        """``topology``: the annotation on the Node; ``changed`` runs when there is another state
        to write.
        """
        self._lease = lease
        self._topology = topology
        self._changed = changed
        self._gen: str | None = None

    def show(self, snapshot: NodeSnapshot, allocated: NodeAllocation) -> None:
        """Publish the kubelet's allocation of the devices of this snapshot."""
        gen = self._generation(snapshot)
        if gen is None:
            return

        def following(shown: str | None) -> str:
            before = _decoded(shown)
            now = state_of(
                snapshot, gen=gen, whole=allocated.whole, pods=allocated.by_pod, before=before
            )
            return state_annotation.encode(now)

        self._lease.show(following)
        shown = self._lease.shown
        if self._lease.holds and following(shown) != shown:
            self._changed()

    def _generation(self, snapshot: NodeSnapshot) -> str | None:
        """Generation of the topology whose order the masks follow.

        It is the Node's topology, which stays there, while something is not known; None where
        that is about other GPUs, or there is none yet.
        """
        if isinstance(node_annotations(snapshot)[keys.TOPOLOGY], Value):
            self._gen = topology_of(snapshot).gen
        else:
            self._gen = _shown_generation(self._topology(), snapshot) or self._gen
        return self._gen


def _decoded(text: str | None) -> state_annotation.StateAnnotation | None:
    """The state on the Lease, if it can be read: ``seq`` goes on from there."""
    try:
        return None if text is None else state_annotation.decode(text)
    except BadInput:
        return None


def _shown_generation(topology: str | None, snapshot: NodeSnapshot) -> str | None:
    """Generation of an earlier agent's topology annotation; None unless it has the same GPUs."""
    try:
        shown = None if topology is None else topology_annotation.decode(topology)
    except BadInput:
        return None
    if shown is None or list(shown.bus) != [gpu.bus_id for gpu in snapshot.gpus]:
        return None
    return topology_annotation.generation(shown)
