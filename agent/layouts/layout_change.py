# SPDX-License-Identifier: Apache-2.0
"""The life of a request for a change of MIG layouts: decides the actuator's next task. Pure.

Everything follows from the state and from what the Node and the GPUs show. Safety:

- the actuator gets a change only with a permit for the present request, and after its answer that
  this request has not begun;
- a request that may have begun is brought to its end, whatever is desired by then; only the
  actuator's answer gives its outcome (:mod:`agent.layouts.actuator_answers`);
- what a boot took comes back, and what was interrupted ends, before a new request is made;
- a request ends once (a stuck one may get another outcome later), and the next one begins when the
  Node shows that outcome;
- a request is made only by a reading of the GPUs that is newer than their last change.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from agent.layouts.change_state import (
    NOT_EVALUATED,
    ChangeState,
    RequestState,
    after_outcome,
    with_failure,
)
from agent.layouts.desired_change import DesiredChange
from agent.layouts.desired_layout import DesiredLayout
from agent.layouts.retry_times import GIVEN_UP, REFUSED_SECONDS, Retry, ladder
from agent.layouts.shown_request import ShownRequest
from api.actuator.actuator_messages import RestoreRequest, StateRequest
from api.mig_outcome import Outcome
from api.mig_permit_annotation import PermitPhase

STUCK_SECONDS: Final = 30.0
"""Time between two checks whether a person has ended a change that is stuck."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepInputs:
    """What the Node, the GPUs and the driver show at one step."""

    now: float
    """Time by the clock of the steps."""
    desired: DesiredLayout | None
    """None: it is not known which layout is desired, or what the GPUs have."""
    shown: ShownRequest
    """The newest request, as the Node shows it."""
    permit: PermitPhase | None
    """Phase of the permit for the state's request."""
    load: str
    """The boot, and the load of the driver."""
    new_id: str
    """An id that no request has yet."""
    wait_seconds: float = math.inf
    """Longest wait of a request for a permit."""


def next_task(state: ChangeState, inputs: StepInputs) -> ChangeState:
    """The next state, with the actuator's next task; the same while an answer is outstanding.

    Readings that are made while the actuator works are left for the step after its answer.
    """
    if state.pending_task is not None:
        return state
    return _next(_with_permit(_with_evaluation(state, inputs.desired), inputs), inputs)


def _with_permit(state: ChangeState, inputs: StepInputs) -> ChangeState:
    request = state.request
    if inputs.permit is not PermitPhase.PROCEED or not request.is_open or request.permit_seen:
        return state
    # the agent before this one may have begun it
    state = state.with_request(permit_seen=True, may_have_begun=True)
    return replace(state, ask_at=inputs.now)


def _with_evaluation(state: ChangeState, desired: DesiredLayout | None) -> ChangeState:
    """Take the newest evaluation; a new desired layout begins without failures and retries."""
    if desired is None:
        return state
    if state.key is not NOT_EVALUATED and desired.key != state.key:
        state = replace(state, failures=0, refusals=0, drifts=0, retry=None)
    is_reached = desired.key is not None and desired.plan in ("", state.reached)
    state = replace(state, key=desired.key, reached=state.reached if is_reached else "")
    if desired.unchanged and desired.changes == state.changes:
        return replace(state, failures=0, refusals=0, seen_unchanged=True, reached=desired.plan)
    return state


def _next(state: ChangeState, inputs: StepInputs) -> ChangeState:
    request, desired = state.request, inputs.desired
    if request.is_open and not request.may_have_begun and state.next_restore is None:
        return _open(state, inputs)
    if inputs.now < state.ask_at:
        return state
    if state.next_restore is not None:
        restore = RestoreRequest(change=state.next_restore or inputs.new_id)
        return replace(state, next_restore=None, pending_task=restore)
    if request.awaits_boot and desired is not None and _needs_no_boot(state, desired):
        return replace(state, pending_task=RestoreRequest(change=request.id))
    if request.may_have_begun or state.runs:
        return _asked(state)
    if desired is None or desired.change is None or desired.changes != state.changes:
        return _check_stuck(state, inputs.now)
    if request.outcome == Outcome.STUCK and request.is_of(desired.change.plan):
        return _check_stuck(state, inputs.now)
    return _begin(state, desired.change, inputs)


def _asked(state: ChangeState) -> ChangeState:
    """The actuator is asked for its state."""
    return replace(state, pending_task=StateRequest(change=state.request.id or None))


def _needs_no_boot(state: ChangeState, desired: DesiredLayout) -> bool:
    """Whether the actuator is to go on before the boot: forward with the mode, else back.

    Nobody desires the layout any more; or no mode waits, since it would refuse a plan: a person has
    reset the GPU, or taken the mode back.
    """
    is_planned = desired.change is not None or desired.unchanged
    is_newer = desired.changes == state.changes
    return desired.plan != state.request.plan or (is_planned and is_newer)


def _open(state: ChangeState, inputs: StepInputs) -> ChangeState:
    """The open request, which has not begun: it is cancelled, expires, waits or is carried out."""
    request, desired = state.request, inputs.desired
    change = None if desired is None else desired.change
    if desired is not None:
        if change is None or change.plan != request.plan:
            return after_outcome(state, Outcome.CANCELLED, "another layout is desired", inputs.now)
        state = state.with_request(change=change)
    if not request.permit_seen and inputs.now - request.requested_at > inputs.wait_seconds:
        return after_outcome(state, Outcome.EXPIRED, GIVEN_UP.why, inputs.now)
    if change is None or not request.permit_seen:
        return state
    return replace(state, pending_task=change.apply_request(request.id))


def _check_stuck(state: ChangeState, now: float) -> ChangeState:
    """Ask for the state of stuck changes from time to time: a person may have ended them."""
    if state.request.outcome != Outcome.STUCK and not state.stuck:
        return state
    # only the journal has it: the driver shows nothing
    return _asked(replace(state, ask_at=now + STUCK_SECONDS))


def _begin(state: ChangeState, change: DesiredChange, inputs: StepInputs) -> ChangeState:
    """Make the next request, if it is time for it; what a boot took comes back first."""
    request, now = state.request, inputs.now
    if request.id and (inputs.shown.request, inputs.shown.outcome) != (request.id, request.outcome):
        return state
    is_retry = request.is_of(change.plan)
    if request.outcome == Outcome.APPLIED and is_retry and state.retry is None:
        state = _not_there(state, now)
    if state.retry is not None and now < state.retry.not_before and is_retry:
        return _check_stuck(state, now)
    if state.restored_load != inputs.load:
        return _asked(replace(state, restoring_load=inputs.load))
    if change.resets and state.no_reboot:  # else pods would leave for nothing
        return _asked(replace(state, refused=state.no_reboot, ask_at=now + STUCK_SECONDS))
    is_drift = change.plan == state.reached
    request = RequestState(
        id=inputs.new_id, plan=change.plan, drift=is_drift, requested_at=now, change=change
    )
    return replace(state, request=request, problem="", refused="", retry=None, seen_unchanged=False)


def _not_there(state: ChangeState, now: float) -> ChangeState:
    """An applied layout is not there: it has drifted where the GPUs were seen with it."""
    if not state.seen_unchanged:
        return with_failure(state, "the layout was applied, and the GPUs do not have it", now)
    wait = ladder(REFUSED_SECONDS, state.drifts)
    retry = Retry(why="another program changed the layout", not_before=now + wait)
    return replace(state, drifts=state.drifts + 1, retry=retry)
