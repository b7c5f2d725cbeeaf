# SPDX-License-Identifier: Apache-2.0
"""The safety rules of a MIG change, at each of many thousand states."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import product

from agent.layouts.change_state import ActuatorTask, ChangeState, RequestState
from agent.layouts.desired_layout import DesiredLayout
from agent.layouts.layout_change import StepInputs, next_task
from agent.layouts.retry_times import Retry
from agent.layouts.shown_request import ShownRequest
from api.actuator.actuator_messages import ApplyRequest, RestoreRequest, StateRequest
from api.mig_outcome import Outcome
from api.mig_permit_annotation import PermitPhase
from tests.agent.layouts.played_actuator import wanted

NOW = 100.0
REQUEST, NEXT = "0" * 16, "1" * 16
SHOWN = ShownRequest(request=REQUEST, outcome="applied")


def requests() -> Iterator[RequestState]:
    """No request, and requests for the layout "a" in each state."""
    yield RequestState(requested_at=0.0)
    for outcome in (Outcome.APPLIED, Outcome.STUCK, Outcome.ROLLED_BACK):
        yield RequestState(id=REQUEST, plan="a", outcome=outcome, requested_at=0.0)
    for permit_seen, may_have_begun in product((False, True), repeat=2):
        yield RequestState(
            id=REQUEST,
            plan="a",
            requested_at=0.0,
            permit_seen=permit_seen,
            may_have_begun=may_have_begun,
        )


def states() -> Iterator[ChangeState]:
    """Each request with each state of the actuator."""
    retries = (None, Retry(why="", not_before=NOW + 1))
    actuators = product(
        (None, StateRequest(), ApplyRequest(change=REQUEST, origin="", desired={})),
        (None, "", REQUEST),
        (NOW, NOW + 1),
        (False, True),
        ("", "boot-1"),
    )
    for request, retry, (pending, restore, ask_at, runs, load) in product(
        requests(), retries, tuple(actuators)
    ):
        yield ChangeState(
            request=request,
            pending_task=pending,
            next_restore=restore,
            ask_at=ask_at,
            runs=runs,
            restored_load=load,
            retry=retry,
            changes=1,
        )


def inputs() -> Iterator[StepInputs]:
    """Each permit, with no, a stale and a new evaluation of the layouts "a" and "b"."""
    evaluations = [None] + [
        DesiredLayout(key=plan, change=wanted(plan), unchanged=False, changes=changes, plan=plan)
        for plan, changes in product("ab", (0, 1))
    ]
    for desired, permit, shown in product(
        evaluations, (None, *PermitPhase), (ShownRequest(), SHOWN)
    ):
        yield StepInputs(
            now=NOW, desired=desired, shown=shown, permit=permit, load="boot-1", new_id=NEXT
        )


def test_in_each_state_the_rules_hold_for_what_the_actuator_gets_and_what_is_requested() -> None:
    tasks = Counter[str]()
    for state, step in product(states(), inputs()):
        after = next_task(state, step)
        check_task(state, step, after)
        check_request(state, step, after)
        tasks[type(new_task(state, after)).__name__] += 1
        tasks["request"] += after.request.id == NEXT
    assert min(tasks[name] for name in (*TASKS, "NoneType", "request")) > 20, tasks


TASKS = ("ApplyRequest", "RestoreRequest", "StateRequest")


def new_task(state: ChangeState, after: ChangeState) -> ActuatorTask | None:
    """The task that the step gives the actuator."""
    return after.pending_task if state.pending_task is None else None


def check_task(state: ChangeState, step: StepInputs, after: ChangeState) -> None:
    """A task comes alone; a change is carried out by permit, for its own layouts, if not begun."""
    before, task = state.request, new_task(state, after)
    if state.pending_task is not None:
        assert after == state, "a second task"
        return
    if isinstance(task, ApplyRequest):
        assert before.permit_seen, "the permit is new: an agent before this one may have begun it"
        assert not before.may_have_begun, "begun a second time"
        assert state.next_restore is None, "what was interrupted comes first"
        assert (task.change, before.outcome) == (REQUEST, "")
        assert step.desired is not None
        assert step.desired.plan == before.plan
    if isinstance(task, RestoreRequest | StateRequest):
        is_new_permit = step.permit is PermitPhase.PROCEED and not before.permit_seen
        assert state.ask_at <= NOW or is_new_permit, "asked too soon"
    if isinstance(task, RestoreRequest):
        assert task.change == (state.next_restore or NEXT)


def check_request(state: ChangeState, step: StepInputs, after: ChangeState) -> None:
    """An open request ends only unbegun; the next one begins once the Node shows that end."""
    before, request = state.request, after.request
    if not before.outcome and request.outcome:
        assert request.outcome == Outcome.CANCELLED
        assert not before.may_have_begun, "an outcome without the actuator's answer"
        assert step.desired is not None
        assert step.desired.plan != before.plan
    if request.id == before.id:
        return
    assert new_task(state, after) is None
    assert not before.id or before.outcome, "the open request is lost"
    assert not before.id or (step.shown.request, step.shown.outcome) == (before.id, before.outcome)
    assert step.desired is not None
    assert step.desired.changes == state.changes, "requested by a stale reading"
    assert state.restored_load == step.load, "what a boot took comes first"
    retry = state.retry
    assert retry is None or step.desired.plan != before.plan, "too soon"
