# SPDX-License-Identifier: Apache-2.0
"""Carries out the desired layouts of a Node: the thin edge around :func:`next_task`.

Here are the state, the log, the time of day, and the thread that waits for the actuator, which
takes minutes.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from agent.layouts.actuator_answers import after_answer
from agent.layouts.change_state import ActuatorTask, ChangeState, first_state
from agent.layouts.change_status import state_label, status_with_change
from agent.layouts.change_times import ChangeTimes, RequestPace
from agent.layouts.desired_layout import DesiredLayout
from agent.layouts.layout_change import StepInputs, next_task
from agent.layouts.shown_request import ShownRequest, permit_phase, shown_request
from api import keys, mig_request_annotation
from api.actuator.actuator_messages import ActuatorAnswer, StateRequest
from api.mig_request_annotation import new_request_id
from api.mig_status_annotation import MigStatusAnnotation
from base import threads
from base.errors import GpuscapeError
from labelers.decision import Absent, Decisions, Value

log = logging.getLogger(__name__)

CLOSE_SECONDS: Final = 10.0
"""Longest wait until the agent's NVML handles are closed; then the actuator is asked anyway."""
CAUSE: Final = "MIG change by the actuator"


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
        self._new_id = new_id
        self._lock = threading.RLock()
        self._state = first_state(ShownRequest(), now=clock())
        self._node_seen = False
        self._metadata: Mapping[str, Any] = {}
        self._shown = ShownRequest()
        self._answer: ActuatorAnswer | str | None = None
        self._closed_before = False
        self._times = ChangeTimes(clock, wall)
        self._pace = RequestPace()

    def observe(self, metadata: Mapping[str, Any], status: MigStatusAnnotation | None) -> None:
        """Take the Node's metadata; ``status``: what it shows, None where it shows none."""
        with self._lock:
            self._metadata = metadata
            self._shown = shown_request(metadata, status)
            if not self._node_seen:
                self._node_seen = True
                self._state = first_state(
                    self._shown,
                    now=self._clock(),
                    failed_for_seconds=self._times.seconds_since(status.since if status else ""),
                    open_for_seconds=self._times.seconds_since(self._shown.since),
                )

    @property
    def causes(self) -> tuple[str, ...]:
        """Why the agent's handles of NVML are to be closed; empty where they need not be."""
        with self._lock:
            return (CAUSE,) if self._state.needs_closed_handles else ()

    @property
    def changes(self) -> int:
        """Number of times that the GPUs may have changed: readings made with fewer are stale."""
        with self._lock:
            return self._state.changes

    def is_of(self, plan: str) -> bool:
        """Whether the newest request is, or was, for these layouts."""
        with self._lock:
            return self._state.request.is_of(plan)

    def take(self, now: float) -> None:
        """Take the actuator's answer, if there is one."""
        with self._lock:
            answer, self._answer = self._answer, None
            if answer is not None:
                self._go_on(self._state, after_answer(self._state, answer, now))

    def step(self, now: float, desired: DesiredLayout | None) -> None:
        """Take the next step of the change; ``desired`` None: the desired layout is not known."""
        with self._lock:
            state = self._state
            if not self._node_seen:
                return
            inputs = StepInputs(
                now=now,
                desired=desired,
                shown=self._shown,
                permit=permit_phase(self._metadata, state.request.id),
                load=self._ports.load(),
                new_id=self._new_id(),
                wait_seconds=self._ports.wait_seconds,
            )
            after = next_task(state, inputs)
            self._go_on(state, after)
            before, self._closed_before = self._closed_before, after.needs_closed_handles
        if after.pending_task is not None and state.pending_task is None:
            self._start(after.pending_task)
        if before != after.needs_closed_handles:
            self._ports.wake()

    def status(
        self, evaluated: MigStatusAnnotation | None, shown: MigStatusAnnotation | None
    ) -> MigStatusAnnotation | None:
        """The status to show: that of the evaluation, with the state of the request.

        ``evaluated`` None: there is none yet. None where the status that is ``shown`` may stay.
        """
        with self._lock:
            return status_with_change(self._state, evaluated, shown, self._times.of_retry)

    def annotations(self) -> Decisions:
        """The request that the Node is to show; empty where it may stay as it is."""
        with self._lock:
            if not self._node_seen:
                return {}
            request = self._state.request
            if not request.is_open:
                return {keys.MIG_REQUEST: Absent(reason="no change waits")}
            if request.change is None:
                return {}
            since = self._times.of_request(request, self._shown)
            annotation = request.change.annotation(request.id, drift=request.drift, since=since)
            paced = self._pace.paced(annotation, self._clock())
            return {keys.MIG_REQUEST: Value(text=mig_request_annotation.encode(paced))}

    def labels(self, status: MigStatusAnnotation | None) -> Decisions:
        """The state in the words of NVIDIA's MIG manager; of a status without one it stays."""
        with self._lock:
            return {} if status is None else state_label(status, self._metadata)

    # parts

    def _go_on(self, before: ChangeState, after: ChangeState) -> None:
        self._state = after
        log_progress(before, after)

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


def log_progress(before: ChangeState, after: ChangeState) -> None:
    """Log what has happened between two states."""
    ended, request = before.request, after.request
    if after.drifts > (before.drifts if after.key == before.key else 0):
        log.warning("MIG layout drifted", extra={"request": ended.id})
    if request.id != ended.id and request.change is not None:
        facts = {"desired": request.change.request_text, "plan": request.plan}
        log.info("MIG change requested", extra=facts)
    elif request.outcome != ended.outcome:
        facts = {"request": request.id, "plan": request.plan}
        facts |= {"outcome": str(request.outcome), "why": request.reason}
        log.info("MIG request ended", extra=facts)
