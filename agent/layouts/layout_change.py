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
    ChangeEvent,
    ChangeState,
    LayoutDrifted,
    RequestMade,
    RequestState,
    RetryState,
    Transition,
    after_outcome,
)
from agent.layouts.desired_change import DesiredChange, DesiredLayout
from agent.layouts.retry_times import FAILED_SECONDS, GIVEN_UP, REFUSED_SECONDS, Retry, ladder
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


def next_task(state: ChangeState, inputs: StepInputs) -> Transition:
    """The next state, with the actuator's next task; nothing while an answer is outstanding.

    Readings that are made while the actuator works are left for the step after its answer.
    """
    if state.actuator.pending_task is not None:
        return Transition(state=state)
    transition = _next(_with_permit(_with_evaluation(state, inputs.desired), inputs), inputs)
    actuator = replace(transition.state.actuator, pending_task=transition.task)
    return replace(transition, state=replace(transition.state, actuator=actuator))


def _with_permit(state: ChangeState, inputs: StepInputs) -> ChangeState:
    request = state.request
    if inputs.permit is not PermitPhase.PROCEED or not request.is_open or request.permit_seen:
        return state
    return replace(  # the agent before this one may have begun it
        state,
        request=replace(request, permit_seen=True, may_have_begun=True),
        actuator=replace(state.actuator, ask_at=inputs.now),
    )


def _with_evaluation(state: ChangeState, desired: DesiredLayout | None) -> ChangeState:
    """Take the newest evaluation; a new desired layout begins without failures and retries."""
    if desired is None:
        return state
    retries, gpus = state.retries, state.gpus
    if gpus.key is not NOT_EVALUATED and desired.key != gpus.key:
        retries = RetryState()
    is_reached = desired.key is not None and desired.plan in ("", gpus.reached)
    gpus = replace(gpus, key=desired.key, reached=gpus.reached if is_reached else "")
    if desired.unchanged and desired.changes == gpus.changes:
        retries = replace(retries, failures=0, refusals=0)
        gpus = replace(gpus, seen_unchanged=True, reached=desired.plan)
    return replace(state, retries=retries, gpus=gpus)


def _next(state: ChangeState, inputs: StepInputs) -> Transition:
    request, actuator, desired = state.request, state.actuator, inputs.desired
    if request.is_open and not request.may_have_begun and actuator.next_restore is None:
        return _open(state, inputs)
    if inputs.now < actuator.ask_at:
        return Transition(state=state)
    if actuator.next_restore is not None:
        task = RestoreRequest(change=actuator.next_restore or inputs.new_id)
        actuator = replace(actuator, next_restore=None)
        return Transition(state=replace(state, actuator=actuator), task=task)
    if request.awaits_boot and desired is not None and _needs_no_boot(state, desired):
        return Transition(state=state, task=RestoreRequest(change=request.id))
    if request.may_have_begun or actuator.runs:
        return Transition(state=state, task=StateRequest(change=request.id or None))
    if desired is None or desired.change is None or desired.changes != state.gpus.changes:
        return _check_stuck(state, inputs.now)
    if request.outcome == Outcome.STUCK and request.is_of(desired.change.plan):
        return _check_stuck(state, inputs.now)
    return _begin(state, desired.change, inputs)


def _needs_no_boot(state: ChangeState, desired: DesiredLayout) -> bool:
    """Whether the actuator is to go on before the boot: forward with the mode, else back.

    Nobody desires the layout any more; or no mode waits, since it would refuse a plan: a person has
    reset the GPU, or taken the mode back.
    """
    is_planned = desired.change is not None or desired.unchanged
    is_newer = desired.changes == state.gpus.changes
    return desired.plan != state.request.plan or (is_planned and is_newer)


def _open(state: ChangeState, inputs: StepInputs) -> Transition:
    """The open request, which has not begun: it is cancelled, expires, waits or is carried out."""
    request, desired = state.request, inputs.desired
    change = None if desired is None else desired.change
    if desired is not None:
        if change is None or change.plan != request.plan:
            return after_outcome(state, Outcome.CANCELLED, "another layout is desired", inputs.now)
        state = replace(state, request=replace(request, change=change))
    if not request.permit_seen and inputs.now - request.requested_at > inputs.wait_seconds:
        return after_outcome(state, Outcome.EXPIRED, GIVEN_UP.why, inputs.now)
    if change is None or not request.permit_seen:
        return Transition(state=state)
    return Transition(state=state, task=change.apply_request(request.id))


def _check_stuck(state: ChangeState, now: float) -> Transition:
    """Ask for the state of stuck changes from time to time: a person may have ended them."""
    if state.request.outcome != Outcome.STUCK and not state.actuator.stuck:
        return Transition(state=state)
    actuator = replace(state.actuator, ask_at=now + STUCK_SECONDS)
    return Transition(  # only the journal has it: the driver shows nothing
        state=replace(state, actuator=actuator),
        task=StateRequest(change=state.request.id or None),
    )


def _begin(state: ChangeState, change: DesiredChange, inputs: StepInputs) -> Transition:
    """Make the next request, if it is time for it; what a boot took comes back first."""
    request, now = state.request, inputs.now
    if request.id and (inputs.shown.request, inputs.shown.outcome) != (request.id, request.outcome):
        return Transition(state=state)
    events: tuple[ChangeEvent, ...] = ()
    is_retry = request.is_of(change.plan)
    if request.outcome == Outcome.APPLIED and is_retry and state.retries.retry is None:
        events = (LayoutDrifted(request=request.id),) if state.gpus.seen_unchanged else ()
        state = replace(state, retries=_not_there(state, now))
    retry = state.retries.retry
    if retry is not None and now < retry.not_before and is_retry:
        return replace(_check_stuck(state, now), events=events)
    if state.actuator.restored_load != inputs.load:
        actuator = replace(state.actuator, restoring_load=inputs.load)
        return Transition(
            state=replace(state, actuator=actuator),
            task=StateRequest(change=request.id or None),
            events=events,
        )
    if change.resets and state.actuator.no_reboot:  # else pods would leave for nothing
        why, ask_at = state.actuator.no_reboot, now + STUCK_SECONDS
        actuator = replace(state.actuator, refused=why, ask_at=ask_at)
        task = StateRequest(change=request.id or None)
        return Transition(state=replace(state, actuator=actuator), task=task, events=events)
    return Transition(
        state=ChangeState(
            request=RequestState(
                id=inputs.new_id,
                plan=change.plan,
                drift=change.plan == state.gpus.reached,
                requested_at=now,
                change=change,
            ),
            actuator=replace(state.actuator, problem="", refused=""),
            retries=replace(state.retries, retry=None),
            gpus=replace(state.gpus, seen_unchanged=False),
        ),
        events=(*events, RequestMade(change=change)),
    )


def _not_there(state: ChangeState, now: float) -> RetryState:
    """Retry of an applied layout that is not there; drift where the GPUs were seen with it."""
    retries = state.retries
    if state.gpus.seen_unchanged:
        wait = ladder(REFUSED_SECONDS, retries.drifts)
        retry = Retry(why="another program changed the layout", not_before=now + wait)
        return replace(retries, drifts=retries.drifts + 1, retry=retry)
    failures = retries.failures + 1
    why = "the layout was applied, and the GPUs do not have it"
    retry = Retry(why=why, not_before=now + ladder(FAILED_SECONDS, failures))
    return replace(retries, failures=failures, retry=retry)
