"""Who holds which GPU, asked of the kubelet and shown on the agent's Lease."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from agent.cluster.heartbeat import State
from agent.device_names import DeviceNames, Resolve
from agent.devices import Allocation, allocation
from agent.podresources.model import PodDevices, ResourceDevices
from discovery.errors import BadInput, Transient
from discovery.model import NodeSnapshot
from exporters.own import OwnMetrics
from labelers import keys, schema, state
from labelers.annotations import node_annotations
from labelers.decision import Value

log = logging.getLogger(__name__)

ASK_SECONDS = 5.0
SOURCE = "pod-resources"


class Kubelet(Protocol):
    """The pod-resources socket, as far as the agent uses it. Raises Transient."""

    def list(self) -> tuple[PodDevices, ...]: ...
    def allocatable(self) -> tuple[ResourceDevices, ...]: ...


class Lease(Protocol):
    """Where the state is shown."""

    @property
    def holds(self) -> bool: ...
    @property
    def shown(self) -> str | None: ...
    def show(self, state: State) -> None: ...


class PodState:
    """Keeps the state on the Lease true; what cannot be asked stays as it was."""

    def __init__(
        self,
        kubelet: Kubelet,
        lease: Lease,
        *,
        node: str,
        resolve: Resolve,
        topology: Callable[[], str | None],
        snapshot: Callable[[], NodeSnapshot | None],
        tell: Callable[[Callable[[OwnMetrics], None]], None],
        wall: Callable[[], float],
        changed: Callable[[], None],
    ) -> None:
        """``resolve`` names devices of DRA claims. ``topology``: the annotation on the Node.

        ``snapshot`` gives the newest; ``tell`` takes what to say of the socket; ``changed``
        runs when there is another state to write.
        """
        self._kubelet = kubelet
        self._lease = lease
        self._node = node
        self._resolve = resolve
        self._topology = topology
        self._snapshot = snapshot
        self._tell = tell
        self._wall = wall
        self._changed = changed
        self._gen: str | None = None
        self._told = ""

    def ask(self, _now: float) -> float:
        """Ask the kubelet once; the seconds until the next time."""
        snapshot = self._snapshot()
        if snapshot is None:
            return ASK_SECONDS
        try:
            given = self._allocation(snapshot)
        except Transient as error:
            self._tell(lambda own: own.source_failed(SOURCE))
            self._say(str(error))
            return ASK_SECONDS
        at = self._wall()
        self._tell(lambda own: own.source_answered(SOURCE, at))
        unknown = sorted(f"{each.resource} {each.id}" for each in given.unknown)
        self._say(f"devices that this node does not have: {', '.join(unknown)}" if unknown else "")
        self._show(snapshot, given)
        return ASK_SECONDS

    def _allocation(self, snapshot: NodeSnapshot) -> Allocation:
        names = DeviceNames(snapshot, pool=self._node, resolve=self._resolve)
        return allocation(self._kubelet.list(), self._kubelet.allocatable(), names)

    def _show(self, snapshot: NodeSnapshot, given: Allocation) -> None:
        gen = self._generation(snapshot)
        if gen is None:
            return

        def following(shown: str | None) -> str:
            before = _decoded(shown)
            now = state.state(
                snapshot, gen=gen, whole=given.whole, pods=given.by_pod, before=before
            )
            return state.encode(now)

        self._lease.show(following)
        shown = self._lease.shown
        if self._lease.holds and following(shown) != shown:
            self._changed()

    def _generation(self, snapshot: NodeSnapshot) -> str | None:
        """Of the topology whose order the masks follow: this one, else what was shown last."""
        if isinstance(node_annotations(snapshot)[keys.TOPOLOGY], Value):
            self._gen = schema.annotation(snapshot).gen
        elif self._gen is None:  # this agent began while a GPU did not answer
            self._gen = _shown_generation(self._topology(), snapshot)
        return self._gen

    def _say(self, what: str) -> None:
        if what and what != self._told:  # once, not at every question
            log.warning("which pod holds which GPU is not known in full", extra={"why": what})
        self._told = what


def _decoded(text: str | None) -> state.StateAnnotation | None:
    """What stands on the Lease, if it can be read: ``seq`` goes on from there."""
    try:
        return None if text is None else state.decode(text)
    except BadInput:
        return None


def _shown_generation(topology: str | None, snapshot: NodeSnapshot) -> str | None:
    """Of the annotation that an agent before this one wrote, if it is about the same GPUs."""
    try:
        shown = None if topology is None else schema.decode(topology)
    except BadInput:
        return None
    if shown is None or list(shown.bus) != [gpu.bus_id for gpu in snapshot.gpus]:
        return None
    return schema.generation(shown)
