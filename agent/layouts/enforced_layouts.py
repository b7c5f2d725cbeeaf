# SPDX-License-Identifier: Apache-2.0
"""Carries out the layouts that a Node asks for: its annotations, and the calls of the actuator.

:mod:`agent.layouts.layout_change` decides; here are the Node's annotations, the time of day, and
the thread that waits for the actuator, which takes minutes.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from msgspec.structs import replace

from agent.layouts.desired_change import DesiredLayout
from agent.layouts.layout_change import STUCK_COMMAND, ActuatorTask, LayoutChange
from agent.layouts.retry_times import Retry
from agent.layouts.shown_request import ShownRequest, permit_phase, shown_request
from api import keys, mig_request_annotation, names
from api.actuator.actuator_messages import ActuatorAnswer, StateRequest
from api.key_kinds import KeyLocation
from api.mig_outcome import Outcome
from api.mig_request_annotation import MigRequestAnnotation, new_request_id
from api.mig_status_annotation import MOST_REASON, MigPhase, MigStatusAnnotation
from base import threads
from base.errors import GpuscapeError
from base.text import rfc3339
from base.text.safe_text import short_line
from labelers.decision import Absent, Decision, Decisions, Keep, Value
from labelers.node_patch import writers

CLOSE_SECONDS: Final = 10.0
"""Longest wait until the agent's NVML handles are closed; then the actuator is asked anyway."""
PODS_SECONDS: Final = 60.0
"""Least time between two requests that differ in the pods alone, while pods are in the way."""
CAUSE: Final = "MIG change by the actuator"

_STATES: Final[Mapping[str, str]] = {
    MigPhase.WAITING: "pending",
    MigPhase.CHANGING: "pending",
    MigPhase.UNCHANGED: "success",
    MigPhase.FAILED: "failed",
    MigPhase.STUCK: "failed",
    MigPhase.REFUSED: "failed",
}
_BY_OUTCOME: Final[Mapping[str, MigPhase]] = {
    Outcome.ROLLED_BACK: MigPhase.FAILED,
    Outcome.REFUSED: MigPhase.REFUSED,
    Outcome.EXPIRED: MigPhase.REFUSED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EnforcePorts:
    """Calls by which layouts are changed."""

    ask: Callable[[ActuatorTask], ActuatorAnswer]
    """Asks the actuator; a change takes minutes. Raises GpuscapeError."""
    closed: Callable[[], bool]
    """Whether all handles of NVML are closed that were to be closed."""
    load: Callable[[], str]
    """The boot, and the load of the driver."""
    wait_seconds: float = math.inf
    """Longest wait of a change for a permit; then it is given up."""
    wake: Callable[[], None] = lambda: None
    """Has the tick, and the check of the release causes, run soon."""
    start: Callable[[Callable[[], None]], object] = lambda job: threads.started(job, "actuator")
    """Runs what waits for the actuator. Raises NoThread."""


class EnforcedLayouts:
    """Carries out the node's changes. One thread calls :meth:`take` and :meth:`step`."""

    def __init__(
        self,
        ports: EnforcePorts,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        new_id: Callable[[], str] = new_request_id,
    ) -> None:
        """``clock`` is the one of the ticks; ``wall`` is Unix time."""
        self._ports = ports
        self._clock = clock
        self._wall = wall
        self._new_id = new_id
        self._lock = threading.RLock()
        self._change: LayoutChange | None = None
        self._metadata: Mapping[str, Any] = {}
        self._shown = ShownRequest()
        self._answer: ActuatorAnswer | str | None = None
        self._is_asking = False
        self._wanted_gpus_before = False
        self._retry: tuple[Retry, str] | None = None
        self._request_since: tuple[str, str] | None = None
        """A request's id, and when the change was first requested."""
        self._annotation: tuple[MigRequestAnnotation, float] | None = None

    def observe(self, metadata: Mapping[str, Any], status: MigStatusAnnotation | None) -> None:
        """Take the Node's metadata; ``status``: what it shows, None where it shows none."""
        with self._lock:
            self._metadata = metadata
            self._shown = shown_request(metadata, status)
            if self._change is None:
                self._change = LayoutChange(
                    self._shown,
                    new_id=self._new_id,
                    now=self._clock(),
                    failed_for_seconds=self._passed("" if status is None else status.since),
                    open_for_seconds=self._passed(self._shown.since),
                    wait_seconds=self._ports.wait_seconds,
                )

    @property
    def causes(self) -> tuple[str, ...]:
        """Why the agent's handles of NVML are to be closed; empty where they need not be."""
        with self._lock:
            return (CAUSE,) if self._change is not None and self._change.wants_gpus else ()

    @property
    def changes(self) -> int:
        """Number of times that the GPUs may have changed: readings made with fewer are stale."""
        with self._lock:
            return 0 if self._change is None else self._change.changes

    def is_of(self, plan: str) -> bool:
        """Whether the newest request is, or was, for these layouts."""
        with self._lock:
            return self._change is not None and self._change.is_of(plan)

    def take(self, now: float) -> None:
        """Take the actuator's answer, if there is one."""
        with self._lock:
            answer, self._answer = self._answer, None
            if answer is not None and self._change is not None:
                self._is_asking = False
                self._change.answered(answer, now)

    def step(self, now: float, desired: DesiredLayout | None) -> None:
        """Take the next step of the change; ``desired`` None: the desired layout is not known."""
        with self._lock:
            change = self._change
            if change is None or self._is_asking:
                return
            permit = permit_phase(self._metadata, change.request)
            task = change.step(
                now, desired, shown=self._shown, permit=permit, load=self._ports.load()
            )
            before, self._wanted_gpus_before = self._wanted_gpus_before, change.wants_gpus
            self._is_asking = task is not None
        if task is not None:
            self._start(task)
        if before != change.wants_gpus:
            self._ports.wake()

    def status(
        self, verdict: MigStatusAnnotation | None, shown: MigStatusAnnotation | None
    ) -> MigStatusAnnotation | None:
        """The status to show: that of the verdict, with the state of the request.

        ``verdict`` None: there is none yet. None where the status that is ``shown`` may stay.
        """
        with self._lock:
            change = self._change
            if change is None:
                return verdict
            if verdict is None:
                if shown is None or (shown.request, shown.outcome) == (
                    change.request,
                    change.outcome,
                ):
                    return None
                return replace(
                    shown,
                    since="",
                    request=change.request,
                    outcome=change.outcome,
                    reached=_lost(change, shown.phase),
                )
            if (
                verdict.phase == MigPhase.PLANNED
                and change.is_believed
                and change.is_of(verdict.plan)
            ):
                verdict = replace(
                    verdict, phase=MigPhase.UNCHANGED, reason="", gpus=(), pods=(), more_pods=0
                )
            phase, reason = self._phase(change, verdict)
            return replace(
                verdict,
                phase=phase,
                reason=short_line(reason, MOST_REASON),
                request=change.request,
                outcome=change.outcome,
                reached=_lost(change, phase),
            )

    def annotations(self) -> Decisions:
        """The request that the Node is to show; empty where it may stay as it is."""
        with self._lock:
            change = self._change
            if change is None:
                return {}
            if not change.is_open:
                return {keys.MIG_REQUEST: Absent(reason="no change waits")}
            if change.open_change is None:
                return {}
            annotation = change.open_change.annotation(
                change.request, drift=change.drift, since=self._since(change)
            )
            text = mig_request_annotation.encode(self._paced(annotation))
            return {keys.MIG_REQUEST: Value(text=text)}

    def labels(self, status: MigStatusAnnotation | None) -> Decisions:
        """The state in the words of NVIDIA's MIG manager; of a status without one it stays."""
        if status is None:
            return {}
        if status.phase in (MigPhase.IDLE, MigPhase.UNADOPTED):
            with self._lock:
                return {keys.MIG_CONFIG_STATE: _own_state_gone(self._metadata)}
        state = _STATES.get(status.phase)
        return {} if state is None else {keys.MIG_CONFIG_STATE: Value(text=state)}

    # parts

    def _start(self, task: ActuatorTask) -> None:
        def run() -> None:
            if not isinstance(task, StateRequest):
                self._wait_until_closed()
            answer: ActuatorAnswer | str
            try:
                answer = self._ports.ask(task)
            except GpuscapeError as error:
                answer = str(error)
            except Exception as error:  # or the handles would stay closed for ever
                answer = f"a defect: {type(error).__name__}"
                self._answered(answer)
                raise
            self._answered(answer)

        try:
            self._ports.start(run)
        except threads.NoThread as error:
            self._answered(str(error))

    def _answered(self, answer: ActuatorAnswer | str) -> None:
        with self._lock:
            self._answer = answer
        self._ports.wake()

    def _wait_until_closed(self) -> None:
        self._ports.wake()
        last = time.monotonic() + CLOSE_SECONDS
        while not self._ports.closed() and time.monotonic() < last:
            time.sleep(0.1)

    def _phase(self, change: LayoutChange, verdict: MigStatusAnnotation) -> tuple[str, str]:
        planned = verdict.phase == MigPhase.PLANNED
        if change.is_open:
            if change.wants_gpus:
                return MigPhase.CHANGING, change.problem
            if planned:
                return MigPhase.WAITING, change.problem or _waits_for(change, verdict)
            return verdict.phase, verdict.reason
        if change.outcome == Outcome.STUCK and change.is_of(verdict.plan):
            return MigPhase.STUCK, (
                f"{change.outcome_reason or 'neither layout could be reached'}: remove the"
                f" cause, then run {STUCK_COMMAND}"
            )
        if not planned:
            return verdict.phase, verdict.reason
        if change.retry is not None and change.is_of(verdict.plan):
            phase = _BY_OUTCOME.get(change.outcome, MigPhase.FAILED)
            if math.isinf(change.retry.not_before):
                return phase, change.retry.why
            return phase, f"{change.retry.why}; tried again at {self._time(change.retry)}"
        if change.wants_gpus:
            return MigPhase.PLANNED, _RESTORING
        return MigPhase.PLANNED, change.problem or verdict.reason

    def _time(self, retry: Retry) -> str:
        """Time of the retry as RFC 3339; it stays with the retry."""
        if self._retry is None or self._retry[0] is not retry:
            self._retry = retry, self._day_time(retry.not_before)
        return self._retry[1]

    def _since(self, change: LayoutChange) -> str:
        """When the change was first requested, as RFC 3339; it stays with the request."""
        if self._request_since is None or self._request_since[0] != change.request:
            shown = self._shown
            known = shown.since if shown.request == change.request else ""
            self._request_since = change.request, known or self._day_time(change.requested_at)
        return self._request_since[1]

    def _day_time(self, moment: float) -> str:
        """RFC 3339 of a time by the clock of the steps."""
        return rfc3339.whole_seconds(self._wall() + moment - self._clock())

    def _passed(self, since: str) -> float:
        """Seconds since a time of day; 0 where that is not known, or to come."""
        start = rfc3339.unix_seconds(since)
        return 0.0 if start is None else max(self._wall() - start, 0.0)

    def _paced(self, annotation: MigRequestAnnotation) -> MigRequestAnnotation:
        """The request, or the one before where nobody needs to know the difference yet."""
        now = self._clock()
        if self._annotation is not None:
            before, changed_at = self._annotation
            same = _without_pods(before) == _without_pods(annotation)
            if before == annotation or (
                same
                and _is_held(before)
                and _is_held(annotation)
                and now - changed_at < PODS_SECONDS
            ):
                return before
        self._annotation = annotation, now
        return annotation


_RESTORING: Final = (
    "before the change the actuator restores what a boot took, and ends what was interrupted"
)


def _own_state_gone(metadata: Mapping[str, Any]) -> Decision:
    """The state's label is removed, and left alone where it is another manager's."""
    owners = writers(metadata, KeyLocation.NODE_LABEL, keys.MIG_CONFIG_STATE)
    if names.AGENT in owners:
        return Absent(reason="no layout is desired")
    return Keep(reason="another program has written it")


def _waits_for(change: LayoutChange, verdict: MigStatusAnnotation) -> str:
    why = "another program changed the layout, so no pod is evicted: " if change.drift else ""
    if change.open_change is not None and change.open_change.programs:
        from agent.layouts.planned_request import in_use

        return f"{why}{in_use(change.open_change.programs)}"
    if verdict.pods:
        return f"{why}it waits until the pods that use what would be destroyed have ended"
    return f"{why}it waits for the coordinator"


def _lost(change: LayoutChange, phase: str) -> str:
    """Digest of layouts that the GPUs have lost; empty where the phase says that they are there."""
    is_lost = phase not in (MigPhase.UNCHANGED, MigPhase.IDLE, MigPhase.UNADOPTED)
    return change.reached if is_lost else ""


def _without_pods(request: MigRequestAnnotation) -> MigRequestAnnotation:
    return replace(request, pods=(), other_pods=(), unlisted=0, programs=())


def _is_held(request: MigRequestAnnotation) -> bool:
    return bool(request.pods or request.programs)
