# SPDX-License-Identifier: Apache-2.0
"""The steps of one node's agent in the change of a layout, and what the actuator answers."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import count

from agent.layouts.actuator_answers import after_answer
from agent.layouts.change_state import ActuatorTask, ChangeState, first_state
from agent.layouts.desired_change import DesiredChange
from agent.layouts.desired_layout import DesiredLayout
from agent.layouts.enforced_layouts import log_progress
from agent.layouts.layout_change import StepInputs, next_task
from agent.layouts.retry_times import Retry
from agent.layouts.shown_request import ShownRequest
from api.actuator.actuator_messages import (
    ActuatorAnswer,
    ApplyRequest,
    ChangeAnswer,
    RestoreRequest,
    StateAnswer,
    StateRequest,
)
from api.mig_outcome import Outcome
from api.mig_permit_annotation import PermitPhase
from tests.agent.layouts.played_actuator import wanted


class PlayedChange:
    """The newest request of one node: the state after each step and answer, and its log."""

    def __init__(
        self,
        shown: ShownRequest,
        *,
        new_id: Callable[[], str],
        now: float,
        wait_seconds: float = math.inf,
        **passed: float,
    ) -> None:
        self.state = first_state(shown, now=now, **passed)
        self._new_id = new_id
        self._wait_seconds = wait_seconds

    def step(
        self,
        now: float,
        desired: DesiredLayout | None,
        *,
        shown: ShownRequest,
        permit: PermitPhase | None,
        load: str,
    ) -> ActuatorTask | None:
        """The actuator's next task."""
        inputs = StepInputs(
            now=now,
            desired=desired,
            shown=shown,
            permit=permit,
            load=load,
            new_id=self._new_id(),
            wait_seconds=self._wait_seconds,
        )
        return self._take(next_task(self.state, inputs))

    def answered(self, answer: ActuatorAnswer | str, now: float) -> None:
        """Take an answer, which brings no task at once."""
        self._take(after_answer(self.state, answer, now))
        assert self.state.pending_task is None

    def _take(self, after: ChangeState) -> ActuatorTask | None:
        before, self.state = self.state, after
        log_progress(before, after)
        return after.pending_task if before.pending_task is None else None

    @property
    def request(self) -> str:
        return self.state.request.id

    @property
    def outcome(self) -> str:
        return self.state.request.outcome

    @property
    def outcome_reason(self) -> str:
        return self.state.request.reason

    @property
    def drift(self) -> bool:
        return self.state.request.drift

    @property
    def open_change(self) -> DesiredChange | None:
        return self.state.request.change

    @property
    def is_open(self) -> bool:
        return self.state.request.is_open

    def is_of(self, plan: str) -> bool:
        return self.state.request.is_of(plan)

    @property
    def reached(self) -> str:
        return self.state.reached

    @property
    def changes(self) -> int:
        return self.state.changes

    @property
    def problem(self) -> str:
        return self.state.problem

    @property
    def runs(self) -> bool:
        return self.state.runs

    @property
    def wants_gpus(self) -> bool:
        return self.state.needs_closed_handles

    @property
    def is_believed(self) -> bool:
        return self.state.is_believed

    @property
    def retry(self) -> Retry | None:
        return self.state.retry


class Steps:
    """The steps of one node's agent. The Node shows at once what it is to show."""

    def __init__(
        self, shown: ShownRequest | None = None, *, wait_seconds: float = math.inf, **passed: float
    ) -> None:
        """``shown``: by the Node at the start; ``passed``: seconds since what it shows."""
        self.now = 0.0
        self.load = "boot-1"
        self.permitted = True
        """Each request has a permit at once."""
        self.layout = "none"
        """What the GPU has."""
        self.desired = "a"
        ids = count(1)
        self.change = PlayedChange(
            shown or ShownRequest(),
            new_id=lambda: f"{next(ids):016x}",
            now=0.0,
            wait_seconds=wait_seconds,
            **passed,
        )

    def step(self) -> ActuatorTask | None:
        """What is asked of the actuator now."""
        change, is_there = self.change, self.desired == self.layout
        judged = DesiredLayout(
            key=self.desired,
            change=None if is_there else wanted(self.desired),
            unchanged=is_there,
            changes=change.changes,
            plan=self.desired,
        )
        shown = ShownRequest(request=change.request, outcome=change.outcome)
        permit = PermitPhase.PROCEED if change.is_open and self.permitted else None
        return change.step(self.now, judged, shown=shown, permit=permit, load=self.load)

    def begin(self) -> None:
        """Go on until the actuator is asked to change the GPU."""
        for _ in range(20):
            match self.step():
                case ApplyRequest():
                    return
                case StateRequest():
                    self.change.answered(StateAnswer(), self.now)
                case RestoreRequest(change=change):
                    unchanged = ChangeAnswer(change=change, outcome=Outcome.UNCHANGED)
                    self.change.answered(unchanged, self.now)
        raise AssertionError(f"nothing begins: {self.change.retry}")

    def run(self, end: Outcome) -> None:
        """A whole request that ends so."""
        self.begin()
        if end is Outcome.APPLIED:
            self.layout = self.desired
        self.change.answered(ChangeAnswer(change=self.change.request, outcome=end), self.now)

    def drift(self) -> None:
        """Another program changes the layout after the agent saw it."""
        self.step()
        self.layout = "other"

    @property
    def waits(self) -> float:
        """Seconds until the next request may begin."""
        assert self.change.retry is not None
        return self.change.retry.not_before - self.now

    def seconds_until_asked(self, answer: ActuatorAnswer | str) -> float:
        """How long after this answer something is asked again."""
        self.change.answered(answer, self.now)
        since = self.now
        while self.step() is None:
            self.now += 0.5
            assert self.now < since + 1000
        return self.now - since
