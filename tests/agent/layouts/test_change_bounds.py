# SPDX-License-Identifier: Apache-2.0
"""Exactly when a change begins, waits and ends, and what is said of it."""

from __future__ import annotations

import math

import pytest

from agent.layouts.change_state import ActuatorTask
from agent.layouts.desired_layout import DesiredLayout
from agent.layouts.shown_request import ShownRequest
from api.actuator.actuator_messages import (
    ActuatorRefusal,
    ApplyRequest,
    ChangeAnswer,
    KnownChange,
    RefusalAnswer,
    RestoreRequest,
    StateAnswer,
    StateRequest,
)
from api.mig_outcome import Outcome
from tests.agent.layouts.change_steps import Steps
from tests.agent.layouts.played_actuator import NOBODY, wanted
from tests.log_lines import log_lines

EARLIER = "00000000000000ff"
HOUR, DAY = 3600.0, 86400.0


def shown(end: str = "", reached: str = "") -> ShownRequest:
    """A request for the layout "a" that the Node shows when the agent starts."""
    return ShownRequest(request=EARLIER, plan="a", outcome=end, reached=reached)


def known(change: str, end: Outcome | None = None, reason: str = "") -> KnownChange:
    return KnownChange(change=change, origin="", started="", gpus=(), outcome=end, reason=reason)


def opened(node: Steps) -> Steps:
    """The same once its request waits for a permit."""
    node.permitted = False
    for _ in range(10):
        match node.step():
            case None:
                break
            case StateRequest():
                node.change.answered(StateAnswer(), node.now)
            case RestoreRequest(change=change):
                answer = ChangeAnswer(change=change, outcome=Outcome.UNCHANGED)
                node.change.answered(answer, node.now)
    assert node.change.is_open
    return node


@pytest.mark.parametrize("asked_for", [0.0, 50.0])
def test_a_change_waits_for_leave_exactly_as_long_as_it_may_restarts_included(
    asked_for: float,
) -> None:
    if asked_for:
        node = opened(Steps(shown(), wait_seconds=60.0, open_for_seconds=asked_for))
    else:
        node = opened(Steps(wait_seconds=60.0))
    node.now = 60.0 - asked_for
    node.step()
    assert node.change.outcome == ""

    node.now += 0.001
    node.step()

    assert (node.change.outcome, node.waits) == ("expired", math.inf)
    assert "no permit in time" in node.change.outcome_reason


def test_what_waits_without_a_limit_is_never_given_up() -> None:
    node = opened(Steps())
    node.now = 400 * DAY
    node.step()
    assert node.change.is_open


@pytest.mark.parametrize(
    ("end", "passed", "waits", "next_waits"),
    [
        ("rolled-back", 0.0, HOUR, 2 * HOUR),
        ("rolled-back", 1800.0, 1800.0, 2 * HOUR),
        ("rolled-back", HOUR, 0.0, 2 * HOUR),
        ("rolled-back", 9 * HOUR, 0.0, 2 * HOUR),
        ("refused", 0.0, 60.0, HOUR),
        ("refused", 1800.0, 60.0, HOUR),
        ("expired", 0.0, math.inf, None),
        ("cancelled", 0.0, None, HOUR),
        ("applied", 0.0, None, HOUR),
        ("stuck", 0.0, None, None),
    ],
)
def test_what_the_node_shows_at_the_start_waits_as_if_the_agent_had_never_died(
    end: str, passed: float, waits: float | None, next_waits: float | None
) -> None:
    """``next_waits``: after one more failure of the change itself."""
    node = Steps(shown(end), failed_for_seconds=passed)
    assert (None if node.change.retry is None else node.waits) == waits
    if next_waits is None:
        node.step()
        assert not node.change.is_open
        return
    node.now += waits or 0.0

    node.run(Outcome.ROLLED_BACK)

    assert node.waits == next_waits


def test_a_refusal_that_the_node_shows_counts_for_the_next_one() -> None:
    node = Steps(shown("refused"))
    node.now = 60.0
    node.run(Outcome.REFUSED)
    assert node.waits == 120.0


def test_each_wait_is_twice_the_one_before_up_to_the_longest() -> None:
    for end, first, longest in (
        (Outcome.ROLLED_BACK, HOUR, DAY),
        (Outcome.REFUSED, 60.0, HOUR),
    ):
        node, waits = Steps(), []
        for _ in range(8):
            node.run(end)
            waits.append(node.waits)
            node.now += node.waits
        assert waits == [min(first * 2**at, longest) for at in range(8)]


def test_it_begins_at_the_time_that_it_was_to_wait_for_and_not_before() -> None:
    node = Steps()
    node.run(Outcome.ROLLED_BACK)
    ended, at = node.change.request, node.change.retry
    assert at is not None
    node.now = at.not_before - 0.001
    assert node.step() is None
    assert node.change.request == ended

    node.now = at.not_before
    node.begin()

    assert node.change.request != ended


def test_a_layout_that_somebody_changes_back_is_repaired_at_once_then_less_and_less_often() -> None:
    node, waits = Steps(), []
    for _ in range(10):
        node.run(Outcome.APPLIED)
        node.drift()
        node.step()
        waits.append(0.0 if node.change.is_open else node.waits)
        if node.change.retry is not None:
            assert node.change.retry.why == "another program changed the layout"
            node.now += node.waits
    assert waits == [0.0, *(min(60.0 * 2**at, HOUR) for at in range(9))]


def test_a_layout_that_is_applied_and_never_there_is_tried_less_and_less_often() -> None:
    """As with a driver that reads back something else than it was given."""
    node, waits = Steps(), []
    for _ in range(7):
        node.begin()
        applied = ChangeAnswer(change=node.change.request, outcome=Outcome.APPLIED)
        node.change.answered(applied, node.now)
        assert node.step() is None
        assert node.change.retry is not None
        assert node.change.retry.why == "the layout was applied, and the GPUs do not have it"
        waits.append(node.waits)
        node.now += node.waits
    assert waits == [min(HOUR * 2**at, DAY) for at in range(7)]


def test_another_wish_is_asked_for_at_once_whatever_the_one_before_waits_for() -> None:
    for end in (Outcome.ROLLED_BACK, Outcome.REFUSED):
        node = Steps()
        for _ in range(3):
            node.run(end)
            node.now += node.waits
        node.run(end)
        node.desired = "b"
        node.run(end)
        assert node.waits == (HOUR if end is Outcome.ROLLED_BACK else 60.0)


def test_a_layout_that_was_changed_while_no_agent_ran_is_repaired_at_once() -> None:
    """It had been there, by what the Node shows."""
    node = Steps(shown("applied", reached="a"))
    node.begin()
    assert (node.now, node.change.drift) == (0.0, True)


def test_a_change_that_runs_is_looked_at_every_five_seconds_with_closed_handles() -> None:
    node = Steps()
    node.begin()
    request = node.change.request
    node.seconds_until_asked(NOBODY)
    for _ in range(3):
        assert node.seconds_until_asked(StateAnswer(running=request)) == 5.0
        assert node.change.wants_gpus
    node.seconds_until_asked(StateAnswer(named=known(request)))
    assert node.change.wants_gpus, "it is asked to bring the change to its end"


def test_a_layout_without_a_request_is_of_none() -> None:
    """As where it was there from the start: a status is then of no change of ours."""
    for plan in ("", "a"):
        there = ShownRequest(plan=plan, reached=plan)
        assert not Steps(there).change.is_of(plan)
    of = Steps(shown("applied")).change
    assert (of.is_of("a"), of.is_of("b"), of.is_of("")) == (True, False, False)


def test_an_answer_to_another_question_is_no_answer() -> None:
    node = Steps()
    assert isinstance(node.step(), StateRequest)
    strange = ChangeAnswer(change=EARLIER, outcome=Outcome.APPLIED)
    assert node.seconds_until_asked(strange) == 2.0
    assert node.change.problem == "the actuator sent the answer to another request"
    assert node.change.request == ""


def test_a_journal_that_cannot_be_read_is_the_reason_until_it_can() -> None:
    node = Steps()
    node.step()
    assert [node.seconds_until_asked(StateAnswer(problem="damaged")) for _ in range(3)] == [
        2.0,
        4.0,
        8.0,
    ]
    assert node.change.problem == "damaged"
    node.change.answered(StateAnswer(), node.now)
    assert node.change.problem == ""


def interrupted() -> Steps:
    """The actuator is asked to bring the change of the open request to its end."""
    node = Steps()
    node.begin()
    node.seconds_until_asked(NOBODY)
    node.change.answered(StateAnswer(named=known(node.change.request)), node.now)
    assert node.step() == RestoreRequest(change=node.change.request)
    return node


@pytest.mark.parametrize("end", Outcome)
def test_a_change_that_is_brought_to_its_end_ends_so_unless_nothing_was_done(
    end: Outcome,
) -> None:
    node = interrupted()
    answer = ChangeAnswer(change=node.change.request, outcome=end, reason="why")

    node.change.answered(answer, node.now)

    if end in (Outcome.REFUSED, Outcome.UNCHANGED):
        assert (node.change.outcome, node.change.problem) == ("", "why")
        assert node.step() is None
        node.now += 2.0
        assert node.step() == StateRequest(change=node.change.request)
    else:
        assert (node.change.outcome, node.change.outcome_reason) == (str(end), "why")


def test_a_restore_that_is_refused_is_asked_for_later() -> None:
    node = interrupted()
    refusal = RefusalAnswer(refusal=ActuatorRefusal.BUSY, reason="busy")
    assert node.seconds_until_asked(refusal) == 2.0
    assert (node.change.is_open, node.change.problem) == (True, "busy")


@pytest.mark.parametrize(
    ("reason", "said"), [("GPU was exchanged", "ended by hand: GPU was exchanged"), ("", "")]
)
def test_the_end_that_a_person_gives_a_held_change_is_shown_as_that(reason: str, said: str) -> None:
    node = Steps()
    node.run(Outcome.STUCK)
    request = node.change.request
    assert node.step() == StateRequest(change=request)
    held = known(request, Outcome.STUCK, "lost again")
    node.change.answered(StateAnswer(open=held, named=held), node.now)
    assert (node.change.outcome, node.change.outcome_reason) == ("stuck", "lost again")
    node.now += 30.0
    assert node.step() == StateRequest(change=request)

    ended = known(request, Outcome.APPLIED, reason)
    node.change.answered(StateAnswer(last=ended, named=ended), node.now)

    assert (node.change.outcome, node.change.outcome_reason) == ("applied", said)


def test_an_open_request_that_the_node_shows_at_the_start_ends_as_the_journal_has_it() -> None:
    """Also where its permit is gone and another layout is desired: it may have begun before."""
    node = Steps(shown())
    node.permitted, node.desired = False, "b"
    assert node.step() == StateRequest(change=EARLIER)

    ended = known(EARLIER, Outcome.APPLIED)
    node.change.answered(StateAnswer(last=ended, named=ended), node.now)

    assert (node.change.request, node.change.outcome) == (EARLIER, "applied")


def judged(node: Steps, *, behind: int = 0, unchanged: bool = False) -> DesiredLayout:
    """The wish by GPUs that were read so many changes ago."""
    change = None if unchanged else wanted("a")
    changes = node.change.changes - behind
    return DesiredLayout(key="a", change=change, unchanged=unchanged, changes=changes, plan="a")


def stepped(
    node: Steps, judgement: DesiredLayout | None, seen: ShownRequest | None = None
) -> ActuatorTask | None:
    change = node.change
    seen = seen or ShownRequest(request=change.request, outcome=change.outcome)
    return change.step(node.now, judgement, shown=seen, permit=None, load="boot-1")


def test_what_was_read_before_the_gpus_changed_begins_nothing() -> None:
    node = Steps()
    node.run(Outcome.ROLLED_BACK)
    node.now += HOUR
    ended = node.change.request
    for _ in range(3):
        assert stepped(node, judged(node, behind=1)) is None
    assert node.change.request == ended
    stepped(node, judged(node))
    assert node.change.request != ended


def test_the_next_request_begins_once_the_node_shows_the_end_of_the_one_before() -> None:
    node = Steps()
    node.run(Outcome.ROLLED_BACK)
    node.now += HOUR
    ended = node.change.request
    for seen in (
        ShownRequest(),
        ShownRequest(request=ended),
        ShownRequest(request=ended, outcome="applied"),
        ShownRequest(request=EARLIER, outcome="rolled-back"),
    ):
        stepped(node, judged(node), seen)
        assert node.change.request == ended
    stepped(node, judged(node), ShownRequest(request=ended, outcome="rolled-back"))
    assert node.change.request != ended


def test_the_actuators_word_for_a_layout_counts_until_somebody_has_read_the_gpus() -> None:
    node = Steps()
    node.begin()
    assert not node.change.is_believed
    applied = ChangeAnswer(change=node.change.request, outcome=Outcome.APPLIED)
    node.change.answered(applied, node.now)
    assert node.change.is_believed
    stepped(node, None)
    stepped(node, judged(node, behind=1, unchanged=True))
    assert node.change.is_believed
    stepped(node, judged(node, unchanged=True))
    assert not node.change.is_believed


def test_each_task_that_may_change_the_gpus_makes_what_was_read_stale() -> None:
    node, counted = Steps(), []
    for _ in range(20):
        task, before = node.step(), node.change.changes
        match task:
            case ApplyRequest():
                node.change.answered(NOBODY, node.now)
            case StateRequest():
                node.change.answered(StateAnswer(), node.now)
            case RestoreRequest(change=change):
                answer = ChangeAnswer(change=change, outcome=Outcome.UNCHANGED)
                node.change.answered(answer, node.now)
            case None:
                continue
        counted.append((type(task).__name__, node.change.changes - before))
        if isinstance(task, ApplyRequest):
            break
    assert dict(counted) == {"StateRequest": 0, "RestoreRequest": 1, "ApplyRequest": 1}


def test_an_outcome_that_the_journal_has_makes_what_was_read_stale() -> None:
    """The GPUs may have been read while the actuator went on without an answer."""
    node = Steps()
    node.begin()
    node.change.answered(NOBODY, node.now)
    node.now += 10.0
    assert isinstance(node.step(), StateRequest)
    before = node.change.changes
    ended = known(node.change.request, Outcome.APPLIED)
    node.change.answered(StateAnswer(named=ended), node.now)
    assert (node.change.outcome, node.change.changes) == (Outcome.APPLIED, before + 1)


def test_before_the_first_request_of_each_load_of_the_driver_what_a_boot_took_comes_back() -> None:
    node, asked = Steps(), []
    for load in ("boot-1", "boot-1", "boot-2", "boot-2"):
        node.load = load
        for _ in range(10):
            task = node.step()
            match task:
                case RestoreRequest(change=change):
                    asked.append(load)
                    answer = ChangeAnswer(change=change, outcome=Outcome.UNCHANGED)
                    node.change.answered(answer, node.now)
                case StateRequest():
                    node.change.answered(StateAnswer(), node.now)
                case ApplyRequest():
                    answer = ChangeAnswer(change=task.change, outcome=Outcome.ROLLED_BACK)
                    node.change.answered(answer, node.now)
                    break
        node.now += DAY
    assert asked == ["boot-1", "boot-2"]


@pytest.mark.parametrize("end", [None, *Outcome])
def test_a_change_of_the_journal_that_has_not_ended_is_what_is_restored_first(
    end: Outcome | None,
) -> None:
    """One that has ended, held too, is not begun again: what comes back has a name of its own."""
    node = Steps()
    node.step()
    node.change.answered(StateAnswer(open=known(EARLIER, end)), node.now)
    task = node.step()
    assert isinstance(task, RestoreRequest)
    assert (task.change == EARLIER) is (end is None)


def test_the_log_has_the_request_its_layouts_and_its_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    node = Steps()
    node.begin()
    refused = ChangeAnswer(change=node.change.request, outcome=Outcome.REFUSED, reason="in use")
    node.change.answered(refused, node.now)
    (_, began, first), (_, ended, last) = log_lines(caplog)
    assert (began, first["desired"], first["plan"]) == ("MIG change requested", "a", "a")
    assert ended == "MIG request ended"
    assert (last["request"], last["plan"]) == (node.change.request, "a")
    assert (last["outcome"], last["why"]) == ("refused", "in use")
