# SPDX-License-Identifier: Apache-2.0
"""State of a node's change after an answer of the actuator, or after a task without one. Pure.

A request whose task got no answer may have begun: its outcome is the one in the actuator's journal.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, assert_never

from agent.layouts import gpu_outcomes
from agent.layouts.change_state import ChangeState, after_outcome
from agent.layouts.desired_change import is_in_the_way
from agent.layouts.retry_times import ASK_SECONDS, ladder
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

RUNNING_SECONDS: Final = 5.0
"""Time between two checks of a change that another agent began."""
_TEMPORARY: Final = frozenset(
    {ActuatorRefusal.BUSY, ActuatorRefusal.STOPPING, ActuatorRefusal.CROWDED, ActuatorRefusal.SLOW}
)


def after_answer(state: ChangeState, answer: ActuatorAnswer | str, now: float) -> ChangeState:
    """The state after the answer to the pending task; a text is the reason why there was none."""
    task = state.pending_task
    state = replace(state, pending_task=None)
    if isinstance(task, ApplyRequest | RestoreRequest):
        # without an answer as well: it may have been lost after the change
        state = replace(state, changes=state.changes + 1)
    match task, answer:
        case _, str():
            return _later(replace(_may_have_begun(state), runs=False), answer, now)
        case StateRequest(), StateAnswer():
            return _after_state(state, answer, now)
        case ApplyRequest(), StateAnswer(named=KnownChange(awaits_boot=file)) if file:
            return _after_state(state, answer, now)
        case ApplyRequest(), ChangeAnswer():
            outcome = _of_request(answer.outcome)
            return after_outcome(state, outcome, answer.reason, now, answer.outcomes)
        case ApplyRequest(), RefusalAnswer():
            return _after_refusal(_may_have_begun(state), answer, now)
        case RestoreRequest(), RefusalAnswer():
            return _later(state, answer.reason, now)
        case RestoreRequest(), ChangeAnswer():
            return _after_restore(_answering(state), task, answer, now)
        case _, RefusalAnswer():
            return _later(replace(state, runs=False), answer.reason, now)
        case _, StateAnswer() | UseAnswer() | ChangeAnswer():
            return _later(state, "the actuator sent the answer to another request", now)
        case _:
            assert_never(answer)


def _after_refusal(state: ChangeState, refusal: RefusalAnswer, now: float) -> ChangeState:
    """The actuator did not begin the request, at least not at this task."""
    if refusal.refusal in _TEMPORARY:
        return _later(state, refusal.reason, now)
    return replace(state.with_request(refusal=refusal.reason), ask_at=now)


def _after_state(state: ChangeState, answer: StateAnswer, now: float) -> ChangeState:
    if answer.problem:
        return _later(state, answer.problem, now)
    is_running = answer.running is not None
    awaits_boot = "" if is_running or answer.named is None else answer.named.awaits_boot
    is_open = state.request.is_open
    state = _answering(state.with_request(awaits_boot=awaits_boot, may_have_begun=is_open))
    stuck = gpu_outcomes.stuck(gpu_outcomes.of_request(answer.stuck))
    if state.refused and not answer.no_reboot:
        state = replace(state, refused="", ask_at=now)
    if is_running or awaits_boot:
        state = replace(state, ask_at=now + RUNNING_SECONDS)
    state = replace(state, runs=is_running, stuck=stuck, no_reboot=answer.no_reboot)
    if is_running:
        return state
    if is_open:
        return _after_state_of_open(state, answer, now)
    if state.request.outcome == Outcome.STUCK and answer.named is not None:
        return _after_state_of_stuck(state, answer.named, now)
    if state.restored_load != state.restoring_load:
        return replace(state, next_restore=_interrupted(answer.open))
    return state


def _after_state_of_open(state: ChangeState, answer: StateAnswer, now: float) -> ChangeState:
    """The open request ends as the journal shows, or what keeps it ends first."""
    request, named, other = state.request, answer.named, answer.open
    if named is not None and named.outcome is not None:
        outcome = _of_request(named.outcome)
        return after_outcome(state, outcome, named.reason, now, named.outcomes)
    if named is not None:
        return state if request.awaits_boot else replace(state, next_restore=request.id)
    if request.refusal:
        return after_outcome(state, Outcome.REFUSED, request.refusal, now)
    if other is None or not request.permit_seen or not is_in_the_way(other, request.change):
        return state.with_request(may_have_begun=False)
    if request.blocking_change == other.change:  # asked once already: it does not end
        how = "has not ended" if other.outcome is None else "is stuck"
        why = f"the change {other.change} {how}: {other.reason}"
        return after_outcome(state, Outcome.REFUSED, why, now)
    return replace(state.with_request(blocking_change=other.change), next_restore=other.change)


def _after_state_of_stuck(state: ChangeState, named: KnownChange, now: float) -> ChangeState:
    """Take over the outcome of a stuck change that a person has ended; retries are as usual."""
    if named.outcome is None or named.outcome is Outcome.STUCK:
        outcomes = gpu_outcomes.of_request(named.outcomes) or state.request.outcomes
        return state.with_request(reason=named.reason, outcomes=outcomes)
    why = f"ended by hand: {named.reason}" if named.reason else ""
    return after_outcome(state, _of_request(named.outcome), why, now, named.outcomes)


def _after_restore(
    state: ChangeState, restore: RestoreRequest, answer: ChangeAnswer, now: float
) -> ChangeState:
    if not state.request.is_open:
        return replace(state, restored_load=state.restoring_load)
    if restore.change != state.request.id:
        return _may_have_begun(state)
    if answer.outcome in (Outcome.REFUSED, Outcome.UNCHANGED):
        return _later(state, answer.reason, now)
    return after_outcome(state, answer.outcome, answer.reason, now, answer.outcomes)


def _interrupted(change: KnownChange | None) -> str:
    """Id of the change that a restore ends; empty where none is interrupted."""
    return "" if change is None or change.outcome is not None else change.change


def _of_request(outcome: Outcome) -> Outcome:
    """Outcome of a request; GPUs that had the layouts already count as changed for it."""
    return Outcome.APPLIED if outcome is Outcome.UNCHANGED else outcome


def _later(state: ChangeState, why: str, now: float) -> ChangeState:
    """The actuator does not answer, or is busy: the wait doubles with each time."""
    failed = state.failed_asks + 1
    return replace(state, failed_asks=failed, problem=why, ask_at=now + ladder(ASK_SECONDS, failed))


def _answering(state: ChangeState) -> ChangeState:
    return replace(state, failed_asks=0, problem="")


def _may_have_begun(state: ChangeState) -> ChangeState:
    """An open request may have begun; a request that has ended stays as it is."""
    return state.with_request(may_have_begun=state.request.is_open)
