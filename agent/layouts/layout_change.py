# SPDX-License-Identifier: Apache-2.0
"""The life of a request for a change of MIG layouts, from the desired layout to its outcome.

What the Node shows outlives an agent, and the actuator's journal outlives both; the rest is worked
out anew at each step. Safety: the actuator gets a change only with a permit for the present
request, and after its answer that this one has not begun; what has begun is brought to its end,
whatever is desired by then. Its other task is ``restore``: it brings back what a boot took, and
ends what was interrupted. A request ends once, but a stuck one may get another outcome later. The
next request begins when the Node shows the outcome of the one before.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Final, assert_never

from agent.layouts.desired_change import DesiredChange, DesiredLayout, is_in_the_way
from agent.layouts.retry_times import (
    ASK_SECONDS,
    FAILED_SECONDS,
    GIVEN_UP,
    REFUSED_SECONDS,
    Retry,
    ladder,
    retry_of,
)
from agent.layouts.shown_request import ShownRequest
from api.actuator.actuator_messages import (
    ActuatorAnswer,
    ActuatorRefusal,
    ApplyRequest,
    ChangeAnswer,
    KnownChange,
    RefusalAnswer,
    RestoreRequest,
    StateAnswer,
    StateRequest,
    UseAnswer,
)
from api.mig_outcome import Outcome
from api.mig_permit_annotation import PermitPhase

log = logging.getLogger(__name__)

RUNNING_SECONDS: Final = 5.0
"""Time between two checks of a change that another agent began."""
STUCK_SECONDS: Final = 30.0
"""Time between two checks whether a person has ended a stuck change."""
STUCK_COMMAND: Final = "kubectl exec POD -c actuator -- gpuscape mig restore"

_TEMPORARY: Final = frozenset(
    {
        ActuatorRefusal.BUSY,
        ActuatorRefusal.STOPPING,
        ActuatorRefusal.CROWDED,
        ActuatorRefusal.SLOW,
    }
)

_NO_KEY: Final = object()

ActuatorTask = StateRequest | RestoreRequest | ApplyRequest


class LayoutChange:
    """The newest request of one node, and the actuator's next task for it."""

    def __init__(
        self,
        shown: ShownRequest,
        *,
        new_id: Callable[[], str],
        now: float,
        failed_for_seconds: float = 0.0,
        open_for_seconds: float = 0.0,
        wait_seconds: float = math.inf,
    ) -> None:
        """Go on from what the Node shows; ``now`` is by the clock of the steps.

        ``failed_for_seconds``: how long ago a change has failed, where the Node shows that, and
        ``open_for_seconds`` how long ago an open one was requested; ``wait_seconds``: for a permit.
        """
        self.request = shown.request
        self.outcome = shown.outcome
        self.outcome_reason = ""
        self.drift = shown.drift
        """Whether the open request repairs what somebody else has changed."""
        self.reached = shown.reached
        """Layouts that the GPUs have had: to have them again is a repair."""
        self.requested_at = now - open_for_seconds
        """When the newest request was first made."""
        self._wait_seconds = wait_seconds
        self._plan = shown.plan
        self._new_id = new_id
        self.open_change: DesiredChange | None = None
        """The open request's change as it was judged last; None where that is not known yet."""
        self.problem = ""
        """Why the actuator cannot be asked."""
        self.runs = False
        """The actuator changes the GPUs for this request, or restores them."""
        self._actuator_state_unknown = bool(shown.request) and not shown.outcome
        self._permit_seen = False
        self._pending_task: ActuatorTask | None = None
        self._next_task: RestoreRequest | None = None
        self._blocking_change = ""
        """Id of another change that the actuator was asked to end first."""
        self._last_refusal = ""
        """Reason that the actuator gave for not beginning the open request."""
        self._ask_at = now
        self._failed_asks = 0
        self._restored = self._restoring = ""
        self.changes = 0
        """Number of times that the GPUs may have changed: readings made with fewer are stale."""
        self._key: object = _NO_KEY
        self._drifts = 0
        self._seen_unchanged = shown.outcome == Outcome.APPLIED
        self._failures = int(shown.outcome == Outcome.ROLLED_BACK)
        self._refusals = int(shown.outcome == Outcome.REFUSED)
        self.retry = retry_of(shown.outcome, now, failed_for_seconds)

    @property
    def is_open(self) -> bool:
        """There is a request that has not ended."""
        return bool(self.request) and not self.outcome

    @property
    def wants_gpus(self) -> bool:
        """The agent's handles of NVML have to be closed."""
        return self.runs or isinstance(self._pending_task, ApplyRequest | RestoreRequest)

    @property
    def is_believed(self) -> bool:
        """The actuator has read the layout back, and nobody has read the GPUs since."""
        return self.outcome == Outcome.APPLIED and not self._seen_unchanged and self.retry is None

    def is_of(self, plan: str) -> bool:
        """Whether the newest request is, or was, for these layouts."""
        return bool(self.request) and self._plan == plan

    def step(
        self,
        now: float,
        desired: DesiredLayout | None,
        *,
        shown: ShownRequest,
        permit: PermitPhase | None,
        load: str,
    ) -> ActuatorTask | None:
        """The actuator's next task; None where there is none, or while an answer is waited for.

        ``desired`` None: it is not known which layout is desired, or what the GPUs have.
        ``shown``: what the Node shows; ``permit``: of this request; ``load``: of the driver.
        """
        self._observe(desired)
        if permit is PermitPhase.PROCEED and self.is_open and not self._permit_seen:
            self._permit_seen = self._actuator_state_unknown = True  # a former agent may have begun
            self._ask_at = now
        if self._pending_task is None:
            self._pending_task = self._next(now, desired, shown, load)
        else:
            return None
        return self._pending_task

    def answered(self, answer: ActuatorAnswer | str, now: float) -> None:
        """Take the answer to the pending task; a text is the reason why there was none."""
        task, self._pending_task = self._pending_task, None
        if isinstance(task, ApplyRequest | RestoreRequest):
            self.changes += 1  # without an answer as well: it may have been lost after the change
        match task, answer:
            case _, str():
                self._actuator_state_unknown = self._actuator_state_unknown or self.is_open
                self.runs = False
                self._ask_later(answer, now)
            case StateRequest(), StateAnswer():
                self._take_state(answer, now)
            case ApplyRequest(), ChangeAnswer():
                self._finish(_of_request(answer.outcome), answer.reason, now)
            case ApplyRequest(), RefusalAnswer():
                self._actuator_state_unknown = True
                if answer.refusal not in _TEMPORARY:
                    self._last_refusal = answer.reason
                    self._ask_at = now
                else:
                    self._ask_later(answer.reason, now)
            case RestoreRequest(), ChangeAnswer() | RefusalAnswer():
                self._take_restored(task, answer, now)
            case _, RefusalAnswer():
                self.runs = False
                self._ask_later(answer.reason, now)
            case _, StateAnswer() | UseAnswer() | ChangeAnswer():
                self._ask_later("the actuator sent the answer to another request", now)
            case _:
                assert_never(answer)

    # what comes next

    def _next(
        self, now: float, desired: DesiredLayout | None, shown: ShownRequest, load: str
    ) -> ActuatorTask | None:
        if self.is_open and not self._actuator_state_unknown and self._next_task is None:
            if desired is not None and not self._still_desired(desired):
                self._finish(Outcome.CANCELLED, "another layout is desired", now)
                return None
            if not self._permit_seen and now - self.requested_at > self._wait_seconds:
                self._finish(Outcome.EXPIRED, GIVEN_UP.why, now)
                return None
            if desired is not None and self._permit_seen and desired.change is not None:
                return desired.change.apply_request(self.request)
            return None
        if now < self._ask_at:
            return None
        if self._next_task is not None:
            task, self._next_task = self._next_task, None
            return task
        if self._actuator_state_unknown or self.runs:
            return StateRequest(change=self.request or None)
        if desired is None or desired.changes != self.changes:
            return self._check_stuck(now)
        if desired.change is None or (
            self.outcome == Outcome.STUCK and self.is_of(desired.change.plan)
        ):
            return self._check_stuck(now)
        return self._begin(now, desired.change, shown, load)

    def _still_desired(self, desired: DesiredLayout) -> bool:
        """Whether the open request's layouts are desired; then its newest evaluation is kept."""
        if desired.change is None or desired.change.plan != self._plan:
            return False
        self.open_change = desired.change
        return True

    def _check_stuck(self, now: float) -> ActuatorTask | None:
        """Ask for the state of a stuck change from time to time: a person may have ended it."""
        if self.outcome != Outcome.STUCK:
            return None
        self._ask_at = now + STUCK_SECONDS  # only the journal knows: the driver shows nothing
        return StateRequest(change=self.request)

    def _begin(
        self, now: float, change: DesiredChange, shown: ShownRequest, load: str
    ) -> ActuatorTask | None:
        """The next request, if it is time for it; what a boot took comes back first."""
        if self.request and (shown.request, shown.outcome) != (self.request, self.outcome):
            return None
        if self.outcome == Outcome.APPLIED and self.is_of(change.plan) and self.retry is None:
            self._drifted(now)
        if self.retry is not None and now < self.retry.not_before and self.is_of(change.plan):
            return None
        if self._restored != load:
            self._restoring = load
            return StateRequest(change=self.request or None)
        log.info(
            "MIG change requested", extra={"desired": change.request_text, "plan": change.plan}
        )
        self.request, self.outcome, self.outcome_reason = self._new_id(), "", ""
        self._plan, self.open_change, self.retry = change.plan, change, None
        self.drift, self.requested_at = change.plan == self.reached, now
        self._permit_seen = self._actuator_state_unknown = False
        self._blocking_change = self._last_refusal = self.problem = ""
        self._seen_unchanged = False
        return None

    def _drifted(self, now: float) -> None:
        """The applied layout is not there: if it was seen before, somebody has changed it since."""
        if self._seen_unchanged:
            log.warning("MIG layout drifted", extra={"request": self.request})
            why, wait = "another program changed the layout", ladder(REFUSED_SECONDS, self._drifts)
            self._drifts += 1
        else:
            self._failures += 1
            why = "the layout was applied, and the GPUs do not have it"
            wait = ladder(FAILED_SECONDS, self._failures)
        self.retry = Retry(why=why, not_before=now + wait)

    def _observe(self, desired: DesiredLayout | None) -> None:
        """Take the newest evaluation; a new desired layout begins without failures and retries."""
        if desired is None:
            return
        if self._key is not _NO_KEY and desired.key != self._key:
            self._failures = self._refusals = self._drifts = 0
            self.retry = None
        self._key = desired.key
        if desired.key is None or (desired.plan and desired.plan != self.reached):
            self.reached = ""
        if desired.unchanged and desired.changes == self.changes:
            self._seen_unchanged = True
            self._failures = self._refusals = 0
            self.reached = desired.plan

    # answers of the actuator

    def _take_state(self, state: StateAnswer, now: float) -> None:
        if state.problem:
            self._ask_later(state.problem, now)
            return
        self._failed_asks, self.problem = 0, ""
        self.runs = state.running is not None
        if state.running is not None:
            self._ask_at = now + RUNNING_SECONDS
            return
        if self.is_open:
            self._take_open(state, now)
        elif self.outcome == Outcome.STUCK and state.named is not None:
            self._take_stuck(state.named, now)
        elif self._restored != self._restoring:
            self._next_task = self._restore_of(state.open)

    def _take_open(self, state: StateAnswer, now: float) -> None:
        """End the open request as the state shows, or find out what keeps it."""
        outcome, other = _known_outcome(state.named), state.open
        if outcome is not None:
            self._finish(outcome, "" if state.named is None else state.named.reason, now)
        elif state.named is not None:
            self._next_task = RestoreRequest(change=self.request)
        elif self._last_refusal:
            self._finish(Outcome.REFUSED, self._last_refusal, now)
        elif other is not None and self._permit_seen and is_in_the_way(other, self.open_change):
            if self._blocking_change == other.change:  # asked once already: it does not end
                why = f"the change {other.change} has not ended: {other.reason}"
                self._finish(Outcome.REFUSED, why, now)
            else:
                self._blocking_change = other.change
                self._next_task = RestoreRequest(change=other.change)
        else:
            self._actuator_state_unknown = False

    def _restore_of(self, open_change: KnownChange | None) -> RestoreRequest:
        """Before a request: what is interrupted ends, what a boot took comes back."""
        if open_change is None or open_change.outcome is not None:
            return RestoreRequest(change=self._new_id())
        return RestoreRequest(change=open_change.change)

    def _take_restored(
        self, restore: RestoreRequest, answer: ChangeAnswer | RefusalAnswer, now: float
    ) -> None:
        if isinstance(answer, RefusalAnswer):
            self._ask_later(answer.reason, now)
            return
        self._failed_asks, self.problem = 0, ""
        if not self.is_open:
            self._restored = self._restoring
        elif restore.change == self.request and answer.outcome not in (
            Outcome.REFUSED,
            Outcome.UNCHANGED,
        ):
            self._finish(_of_request(answer.outcome), answer.reason, now)
        elif restore.change == self.request:
            self._ask_later(answer.reason, now)
        else:
            self._actuator_state_unknown = True

    # ends

    def _finish(self, outcome: Outcome, reason: str, now: float) -> None:
        log.info("MIG request ended", extra=self._facts(outcome) | {"why": reason})
        self.outcome, self.outcome_reason, self.open_change = outcome, reason, None
        self._permit_seen = self._actuator_state_unknown = self.runs = False
        self._next_task, self._last_refusal, self.problem = None, "", ""
        self._ask_at = now
        self.changes += 1
        self.retry = None
        if outcome is Outcome.ROLLED_BACK:
            self._failures += 1
            self.retry = Retry(why=reason, not_before=now + ladder(FAILED_SECONDS, self._failures))
        elif outcome is Outcome.REFUSED:
            self._refusals += 1
            self.retry = Retry(why=reason, not_before=now + ladder(REFUSED_SECONDS, self._refusals))
        elif outcome is Outcome.EXPIRED:
            self.retry = GIVEN_UP
        elif outcome is Outcome.APPLIED:
            self._seen_unchanged = False
            self.reached = self.reached or self._plan  # a late change for earlier layouts keeps it

    def _take_stuck(self, named: KnownChange, now: float) -> None:
        """Take over the outcome of a stuck change that a person has ended; retries are as usual."""
        outcome = _known_outcome(named)
        if outcome is not None and outcome is not Outcome.STUCK:
            self._finish(outcome, f"ended by hand: {named.reason}" if named.reason else "", now)
        else:
            self.outcome_reason = named.reason

    def _ask_later(self, why: str, now: float) -> None:
        self._failed_asks += 1
        self.problem = why
        self._ask_at = now + ladder(ASK_SECONDS, self._failed_asks)

    def _facts(self, outcome: str) -> dict[str, object]:
        return {"request": self.request, "plan": self._plan, "outcome": str(outcome)}


def _known_outcome(known: KnownChange | None) -> Outcome | None:
    return None if known is None or known.outcome is None else _of_request(known.outcome)


def _of_request(outcome: Outcome) -> Outcome:
    """Outcome of a request; GPUs that had the layouts already count as changed for it."""
    return Outcome.APPLIED if outcome is Outcome.UNCHANGED else outcome
