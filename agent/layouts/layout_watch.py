# SPDX-License-Identifier: Apache-2.0
"""Watches the desired MIG layout of the Node, and shows its phase on the Node.

Nothing is changed here: each request gets a plan or a refusal, again whenever the request, the
configurations, the GPUs or their device users change. Where layouts are enforced, the plan is
handed on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from agent.layouts.desired_layout import DesiredLayout
from agent.layouts.layout_evaluator import Evaluation, LayoutEvaluator, LayoutInputs, NodeFacts
from agent.layouts.layout_events import LayoutEvent, LayoutEvents
from agent.layouts.layout_request import (
    Adoption,
    LayoutRequest,
    StatedLayout,
    as_adopted,
    stated_layout,
    unadopted_label,
)
from agent.layouts.outcome_counts import OutcomeCounts
from agent.layouts.status_times import PODS_SECONDS, StatusTimes, is_equal
from api import keys, mig_status_annotation
from api.mig_status_annotation import VERSION, MigPhase, MigStatusAnnotation
from base.errors import BadInput
from exporters.desired_layout_metrics import DesiredLayoutState
from kubelet.allocated_devices import NodeAllocation
from labelers.decision import Absent, Decisions, Value

if TYPE_CHECKING:
    from agent.layouts.enforced_layouts import EnforcedLayouts

CHECK_SECONDS: Final = 5.0
"""Time between two checks of what a plan rests on."""
SETTLE_SECONDS: Final = 10.0
"""How long a request has to stay the same, so that an edit in several steps counts as one."""
UNSETTLED_SECONDS: Final = 60.0
"""A request that has not stayed the same for long enough by then is refused until it does."""
_IDLE_SECONDS: Final = 30.0


class LayoutWatch:
    """Shows the status of the Node's request. One thread runs the tick, any may call the rest."""

    def __init__(
        self,
        inputs: LayoutInputs,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """``clock`` is the one of the ticks; ``wall`` is Unix time, only shown."""
        self._inputs = inputs
        self._clock = clock
        self._wall = wall
        self._lock = threading.Lock()
        self._metadata: Mapping[str, Any] | None = None
        self._shown: MigStatusAnnotation | None = None
        self._stated = StatedLayout()
        self._requested_at = self._unsettled_since = clock()
        self._allocation: NodeAllocation | None = None
        self._evaluated: MigStatusAnnotation | None = None
        """Status of the present request, without time; None before its evaluation."""
        self._reported_at = clock()
        self._events = LayoutEvents()
        self._times = StatusTimes(wall, restarts_plugin=inputs.enforce is not None)
        self._evaluator = LayoutEvaluator(inputs)
        self._desired: DesiredLayout | None = None
        """Desired layout of the present request; None while it is not known."""
        self._counts = OutcomeCounts(enforced=inputs.enforce is not None)
        self._node_seen = False
        """The Node has been seen."""
        self._enforced: EnforcedLayouts | None = None
        if inputs.enforce is not None:
            from agent.layouts.enforced_layouts import EnforcedLayouts

            self._enforced = EnforcedLayouts(inputs.enforce, clock=clock, wall=wall)

    @property
    def desired_layout(self) -> DesiredLayoutState | None:
        """The requested layout as metrics show it; None where none is requested."""
        return self._counts.desired_layout

    @property
    def enforces(self) -> bool:
        """Whether layouts are changed here, where the Node's permit says proceed."""
        return self._enforced is not None

    @property
    def release_causes(self) -> tuple[str, ...]:
        """Why the GPUs are to be left alone for a change; empty where they need not be."""
        return () if self._enforced is None else self._enforced.causes

    def observe(self, metadata: Mapping[str, Any] | None) -> None:
        """Take the Node's metadata as the watch of it shows them; None where there is no Node."""
        with self._lock:
            before, self._metadata = self._metadata, metadata
            if metadata is None:
                return
            if _permit(before) != _permit(metadata):
                self._evaluator.forget()  # who is on the GPUs is read anew behind the cordon
            self._shown = _shown(metadata)
            if not self._node_seen and self._shown is not None:
                self._counts.go_on_from(self._shown)
            self._node_seen = True
            stated = stated_layout(metadata, self._shown)
            if stated.request != self._stated.request:
                now = self._clock()
                if now - self._requested_at >= SETTLE_SECONDS:
                    self._unsettled_since = now
                self._requested_at, self._evaluated, self._desired = now, None, None
                self._evaluator.forget()
            elif stated.adopting != self._stated.adopting:
                self._evaluator.forget()
            self._stated = stated
            if self._enforced is not None:
                self._enforced.observe(metadata, self._shown)
                if self._shown is not None:
                    self._events.go_on_from(self._shown)

    def allocated(self, allocation: NodeAllocation) -> None:
        """Take the kubelet's allocation of devices to pods."""
        with self._lock:
            self._allocation = allocation

    def annotations(self) -> Decisions:
        """Annotations for the Node; empty where they are not known yet."""
        snapshot = self._inputs.snapshot()
        with self._lock:
            if snapshot is None or self._metadata is None:
                return {}
            if not any(gpu.mig_capable for gpu in snapshot.gpus):
                known = snapshot.driver.present and len(snapshot.answering) == len(snapshot.gpus)
                nothing = Absent(reason="no GPU with MIG")
                return {keys.MIG_STATUS: nothing, keys.MIG_REQUEST: nothing} if known else {}
            status = self._status()
        if self._enforced is None:
            request: Decisions = {keys.MIG_REQUEST: Absent(reason="layouts are not enforced")}
        else:
            request = self._enforced.annotations()
        if status is None:
            return request
        return {keys.MIG_STATUS: Value(text=mig_status_annotation.encode(status)), **request}

    def labels(self) -> Decisions:
        """The state that the Node is to show for NVIDIA's tools; empty where it may stay."""
        if self._enforced is None or self._inputs.snapshot() is None:
            return {}
        with self._lock:
            metadata, allocation, status = self._metadata, self._allocation, self._status()
        if metadata is None or allocation is None:
            return {}
        if self._evaluator.foreign_managers(metadata, allocation):
            return {}  # the state may be another program's
        return self._enforced.labels(status)

    def tick(self, now: float) -> float:
        """Evaluate the request when that is due, and go on; the seconds until the next time."""
        enforced = self._enforced
        if enforced is not None:
            enforced.take(now)
        wait = self._evaluate_when_due(now)
        if enforced is not None:
            with self._lock:
                desired, evaluated = self._desired, self._evaluated
                ignored = evaluated is not None and evaluated.phase == MigPhase.UNADOPTED
                if self._metadata is not None and (self._stated.request is None or ignored):
                    desired = DesiredLayout(key=None, changes=enforced.changes)
            enforced.step(now, desired)
            wait = min(wait, CHECK_SECONDS)
        with self._lock:
            status = self._status()
            if status is not None:
                self._count(status)
                self._events.changing(status)
        return wait

    def _count(self, status: MigStatusAnnotation) -> None:
        """Count this status for metrics; the lock is held."""
        if self._metadata is None:
            return
        own = self._enforced is not None and self._enforced.is_of(status.plan)
        self._counts.take(status, self._wall(), is_of_request=own)

    def _evaluate_when_due(self, now: float) -> float:
        with self._lock:
            request, metadata = self._stated.request, self._metadata
            settles_at, since = self._requested_at + SETTLE_SECONDS, self._unsettled_since
            allocation = self._allocation
        snapshot = self._inputs.snapshot()
        if request is None or metadata is None or snapshot is None:
            return _IDLE_SECONDS
        if not any(gpu.mig_capable for gpu in snapshot.gpus):
            return _IDLE_SECONDS
        changes = 0 if self._enforced is None else self._enforced.changes
        if now < settles_at:
            if now - since >= UNSETTLED_SECONDS:  # an earlier request is no longer desired
                nothing = DesiredLayout(key=_UNSETTLED.phase, changes=changes)
                self._take(request, Evaluation(status=_UNSETTLED, desired=nothing), now)
            return settles_at - now
        facts = NodeFacts(
            metadata=metadata, snapshot=snapshot, allocation=allocation, changes=changes
        )
        evaluation = self._evaluator.evaluate(request, facts, now)
        if evaluation is not None:
            self._take(request, evaluation, now)
        return CHECK_SECONDS

    def take_events(self) -> list[LayoutEvent]:
        """Events since the last call; for the thread of the tick."""
        return self._events.take()

    # parts

    def _take(self, request: LayoutRequest, evaluation: Evaluation, now: float) -> None:
        """Show an evaluation, unless there is another request by now, or nothing has changed."""
        with self._lock:
            if request != self._stated.request:
                return
            self._desired, before = evaluation.desired, self._evaluated
            evaluated = as_adopted(self._stated, evaluation.status, foreign=evaluation.foreign)
            if evaluated == before:
                return
            if before is not None and _without_pods(evaluated) == _without_pods(before):
                if now - self._reported_at < PODS_SECONDS:
                    self._evaluator.evaluate_by(self._reported_at + PODS_SECONDS)
                    return
                is_reported = True
            else:
                status = replace(evaluated, unadopted=unadopted_label(self._stated, evaluated))
                is_reported = self._shown is not None and is_equal(status, self._shown)
            self._evaluated, self._reported_at = evaluated, now
        if not is_reported and (self._enforced is None or evaluated.phase != MigPhase.PLANNED):
            self._events.evaluated(evaluated)

    def _status(self) -> MigStatusAnnotation | None:
        """The status with its time; None before the evaluation. The lock is held."""
        stated, status = self._stated, self._evaluated
        if stated.request is None:
            phase = MigPhase.UNADOPTED if stated.unadopted else MigPhase.IDLE
            why = _UNADOPTED.format(value=stated.unadopted) if stated.unadopted else ""
            status = MigStatusAnnotation(v=VERSION, phase=phase, reason=why)
        if self._enforced is not None:
            status = self._enforced.status(status, self._shown)
        if status is None:
            return None
        status = replace(status, unadopted=unadopted_label(stated, self._evaluated))
        return self._times.timed(status, self._shown)


_UNSETTLED: Final = MigStatusAnnotation(
    v=VERSION,
    phase=MigPhase.REFUSED,
    reason="the desired layout keeps changing: it is evaluated after it has stayed the same for"
    f" {SETTLE_SECONDS:.0f} s",
)
_UNADOPTED: Final = (
    f"the label {keys.MIG_CONFIG}={{value}} was here before, or is another program's: it is obeyed"
    f" once it changes, or where the Node's label {keys.MIG_ADOPT} is {Adoption.MATCHING} and the"
    f" GPUs have that layout; {Adoption.ANY} has them changed for it"
)


def _permit(metadata: Mapping[str, Any] | None) -> object:
    return ((metadata or {}).get("annotations") or {}).get(keys.MIG_PERMIT)


def _shown(metadata: Mapping[str, Any]) -> MigStatusAnnotation | None:
    """The status that the Node shows; one that cannot be read is there all the same."""
    text = (metadata.get("annotations") or {}).get(keys.MIG_STATUS)
    if text is None:
        return None
    try:
        status = mig_status_annotation.decode(str(text))
    except BadInput:
        status = None
    return status or MigStatusAnnotation(v=VERSION, phase="unknown")


def _without_pods(status: MigStatusAnnotation) -> MigStatusAnnotation:
    return replace(status, pods=(), more_pods=0)
