# SPDX-License-Identifier: Apache-2.0
"""State of a node as the watches report it, and its view for scoring."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Protocol

from api import keys, state_annotation, topology_annotation
from api.topology_annotation import TopologyAnnotation
from base.errors import BadInput
from kube.api import Object
from kube.lease import ObservedLease, observe
from kube.objects.typed_object import Metadata
from placement.score_table import PlacementOutcome
from scheduler.cluster.free_gpus import Bound, LikelySets, ReportedState, reckon
from scheduler.cluster.node_views import NoView, ScoringView, View
from scheduler.cluster.predictions import PredictionCheck

log = logging.getLogger(__name__)

LONGEST_LEASE_SECONDS = 600.0
"""No Lease keeps a silent agent alive for longer, whatever somebody wrote into it."""
_NEVER = float("-inf")


class TableLookup(Protocol):
    """The score tables, as far as they are used here."""

    def add(self, annotation: TopologyAnnotation) -> str:
        """Make the table of this topology's class; returns the class's generation."""

    def find(self, gen: str) -> LikelySets | None: ...


@dataclass(slots=True, eq=False)
class NodeRecord:
    """Compact values, never objects of the API; ``view`` and the rest follow every change at once.

    For one thread at a time.
    """

    _name: str
    _tables: TableLookup
    _gen: str | NoView = NoView.NO_TOPOLOGY
    """Generation that the Node carries: what states mean."""
    _n: int = 0
    _released_keys: frozenset[str] = frozenset()
    """Keys of pods that only the state still has."""
    here: bool = False
    """The Node object exists."""
    gen: str = ""
    """Its topology class; empty where there is none."""
    product: str = ""
    """Its product; empty without a topology class or a label."""
    clique: str | None = None
    lease: ObservedLease | None = None
    fresh_until: float = _NEVER
    """Monotonic second from which on the agent counts as silent."""
    state: ReportedState | NoView = NoView.NO_STATE
    bound: dict[str, Bound] = field(default_factory=dict)
    """UID to pod."""
    finished: dict[str, str] = field(default_factory=dict)
    """UID to key of pods that ended and are still there."""
    expected: Mapping[str, PlacementOutcome] = field(default_factory=dict)
    """UID to prediction, of pods that the state does not name yet."""
    view: View = NoView.UNKNOWN_NODE
    """The node's view while its agent renews its Lease; a reason if it cannot be scored."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing is known of the node, so that it can be dropped."""
        return not (self.here or self.lease or self.bound or self.finished)

    def appear(self, topology: str | None, clique: str | None, product: str | None) -> None:
        """The Node is there, with this annotation, NVLink clique and label of its GPUs' model."""
        self.here, self.clique = True, clique or None
        before, self.gen, self.product = self._gen, "", ""
        try:
            annotation = _topology(topology)
        except BadInput as error:
            self._gen = NoView.BAD_TOPOLOGY
            if before is not NoView.BAD_TOPOLOGY:  # once, not at every heartbeat of the Node
                log.warning("node scores 0", extra={"node": self._name, "why": str(error)})
        else:
            if isinstance(annotation, NoView):
                self._gen = annotation
            else:
                self._gen, self._n = annotation.gen, annotation.n
                self.gen = self._tables.add(annotation)
                self.product = sys.intern(f"{product}/{self._n}") if product else ""
        self._work_out()

    def disappear(self) -> None:
        """The Node is there no more."""
        self.here, self.gen, self._gen, self.clique = False, "", NoView.NO_TOPOLOGY, None
        self.product = ""
        self._work_out()

    def renew(self, lease: Object, now: float) -> list[PredictionCheck]:
        """The agent has this Lease, seen at the monotonic second ``now``; returns the pods that it
        names for the first time.

        A Lease that is seen for the first time counts as renewed just now: no wall clock is
        read, for those of two machines differ.
        """
        before = self.state
        self.lease = observe(self.lease, lease, now)
        lasts = min(self.lease.duration_seconds, LONGEST_LEASE_SECONDS)
        self.fresh_until = self.lease.changed_at + lasts if self.lease.holder else _NEVER
        try:
            self.state = _state(lease)
        except BadInput as error:
            self.state = NoView.BAD_STATE
            if before is not NoView.BAD_STATE:  # once, not at every renewal
                log.warning("node scores 0", extra={"node": self._name, "why": str(error)})
        landings = self._landings(before, self.state)
        if isinstance(self.state, ReportedState):
            self._released_keys &= self.state.pods.keys()
        self._work_out()
        return landings

    def fall_silent(self) -> None:
        """The agent has no Lease."""
        self.lease, self.fresh_until, self.state = None, _NEVER, NoView.NO_STATE
        self._work_out()

    def bind(self, pod: Bound, *, is_new: bool) -> PredictionCheck | None:
        """Bind a pod here; ``is_new``: it was bound after the watches began."""
        uid = pod.ask.uid
        self.finished.pop(uid, None)  # it had ended, in a store that was put back since
        self.bound[uid] = pod
        landing = self._landing(pod) if is_new and pod.key not in self._released_keys else None
        # While the state names an earlier pod of the same name, its GPUs count as this pod's:
        # the number is right, and the state will show if the set is another.
        self._released_keys -= {pod.key}
        self._work_out()
        return landing

    def finish(self, uid: str, key: str) -> None:
        """A pod here has ended and is still there."""
        self.bound.pop(uid, None)
        self.finished[uid] = key
        self._work_out()

    def release(self, uid: str) -> None:
        """A pod here is there no more."""
        bound = self.bound.pop(uid, None)
        key = bound.key if bound else self.finished.pop(uid, None)
        if key and isinstance(self.state, ReportedState) and key in self.state.pods:
            self._released_keys |= {key}
        self._work_out()

    def _work_out(self) -> None:
        self.expected = {}
        if not self.here:
            self.view = NoView.UNKNOWN_NODE
        elif isinstance(self._gen, NoView):
            self.view = self._gen
        elif isinstance(self.state, NoView):
            self.view = self.state
        elif self.state.gen != self._gen:
            self.view = NoView.OTHER_GENERATION
        elif (self.state.ok | self.state.used) >> self._n:
            self.view = NoView.BAD_STATE
        else:
            self.view = self._reckoned(self.state)

    def _reckoned(self, state: ReportedState) -> ScoringView:
        ended = self._released_keys.union(self.finished.values())
        now = reckon(state, self.bound.values(), ended, self._tables.find(self.gen))
        self.expected = now.expected
        return _view(self.gen, now.free, state.ok, now.sure, self.clique, self.product)

    def _landings(
        self, before: ReportedState | NoView, now: ReportedState | NoView
    ) -> list[PredictionCheck]:
        """Checks of the pods that this state names and the one before did not."""
        if isinstance(before, NoView) or isinstance(now, NoView):
            return []
        pods = (pod for pod in self.bound.values() if now.names(pod) and not before.names(pod))
        return [landing for pod in pods if (landing := self._landing(pod))]

    def _landing(self, pod: Bound) -> PredictionCheck | None:
        """The prediction compared with the state; None if the state does not name the pod, or is of
        another topology."""
        state = self.state
        if isinstance(state, NoView) or not state.names(pod) or state.gen != self._gen:
            return None
        expected = self.expected.get(pod.ask.uid)
        return PredictionCheck(
            ask=pod.ask,
            node=self._name,
            gen=self.gen,
            predicted=expected.reported if expected else {},
            actual=state.pods[pod.key],
        )


@lru_cache(maxsize=4096)
def _view(
    gen: str, free: int, ok: int, sure: bool, clique: str | None, product: str
) -> ScoringView:
    """A view, the same object for equal values: comparing identities is faster in a call."""
    return ScoringView(gen=gen, free=free, ok=ok, sure=sure, clique=clique, product=product)


def _topology(text: str | None) -> TopologyAnnotation | NoView:
    """The topology in a Node's annotation, or why there is none. Raises BadInput."""
    if text is None:
        return NoView.NO_TOPOLOGY
    annotation = topology_annotation.decode(text)
    if annotation is None:
        return NoView.OTHER_VERSION
    return annotation if annotation.n else NoView.NO_TOPOLOGY


def _state(lease: Object) -> ReportedState | NoView:
    """The node's state in its agent's Lease, or why there is none. Raises BadInput."""
    text = Metadata.from_object(lease["metadata"]).annotations.get(keys.STATE)
    if text is None:
        return NoView.NO_STATE
    state = state_annotation.decode(text)
    if state is None:
        return NoView.OTHER_VERSION
    return ReportedState(
        gen=state.gen,
        seq=state.seq,
        ok=int(state.ok, 16),
        used=int(state.used, 16),
        pods={key: int(mask, 16) for key, mask in state.pods.items()},
    )
