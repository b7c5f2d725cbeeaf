# SPDX-License-Identifier: Apache-2.0
"""How long a request for a MIG change waits after what has failed, and where waits begin anew."""

from __future__ import annotations

import pytest

from agent.layouts.change_state import ActuatorTask
from agent.layouts.layout_change import STUCK_SECONDS
from agent.layouts.retry_times import ASK_SECONDS, FAILED_SECONDS, REFUSED_SECONDS
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


@pytest.mark.parametrize(
    ("end", "seconds"),
    [(Outcome.ROLLED_BACK, FAILED_SECONDS), (Outcome.REFUSED, REFUSED_SECONDS)],
)
def test_after_a_success_the_next_failure_waits_as_long_as_the_first(
    end: Outcome, seconds: tuple[float, float]
) -> None:
    """Without one in between each waits twice as long as the one before, up to the longest."""
    node = Steps()
    for wait in (seconds[0], 2 * seconds[0], 4 * seconds[0]):
        node.run(end)
        assert node.waits == wait
        node.now += wait
    node.run(Outcome.APPLIED)
    node.drift()

    node.run(end)

    assert node.waits == seconds[0]


def test_an_actuator_that_does_not_answer_is_asked_less_and_less_until_it_has_answered() -> None:
    node = Steps()
    first, longest = ASK_SECONDS
    node.begin()
    assert [node.seconds_until_asked(NOBODY) for _ in range(9)] == [
        min(first * 2**times, longest) for times in range(9)
    ]
    ended = KnownChange(
        change=node.change.request, origin="", started="", gpus=(), outcome=Outcome.APPLIED
    )
    node.change.answered(StateAnswer(last=ended, named=ended), node.now)
    assert node.change.outcome == "applied"
    node.layout = node.desired
    node.drift()
    node.begin()

    assert node.seconds_until_asked(NOBODY) == first


def test_once_a_person_has_ended_a_held_change_another_layout_is_asked_for_at_once() -> None:
    node = Steps()
    node.run(Outcome.STUCK)
    assert node.step() == StateRequest(change=node.change.request)
    held = KnownChange(change=node.change.request, origin="", started="", gpus=())
    for end in (Outcome.STUCK, Outcome.ROLLED_BACK):
        known = KnownChange(change=held.change, origin="", started="", gpus=(), outcome=end)
        if end is Outcome.STUCK:
            assert node.seconds_until_asked(StateAnswer(open=known, named=known)) == STUCK_SECONDS
        else:
            node.change.answered(StateAnswer(last=known, named=known), node.now)
    assert node.change.outcome == "rolled-back"
    node.desired = "b"

    node.begin()

    assert node.change.request != held.change


PASSING = {
    ActuatorRefusal.BUSY,
    ActuatorRefusal.STOPPING,
    ActuatorRefusal.CROWDED,
    ActuatorRefusal.SLOW,
}


@pytest.mark.parametrize("refusal", ActuatorRefusal)
def test_a_refusal_ends_the_request_unless_the_actuator_only_has_no_time(
    refusal: ActuatorRefusal,
) -> None:
    node = Steps()
    node.begin()
    waited = node.seconds_until_asked(RefusalAnswer(refusal=refusal, reason="why"))
    node.change.answered(StateAnswer(), node.now)

    if refusal in PASSING:
        assert (waited, node.change.outcome) == (ASK_SECONDS[0], "")
        assert isinstance(node.step(), ApplyRequest)
    else:
        assert (waited, node.change.outcome, node.change.outcome_reason) == (0.0, "refused", "why")


def test_each_change_of_somebody_else_is_brought_to_its_end_once_before_ours() -> None:
    """One that does not end stands in the way, and is named."""
    node = Steps()
    node.begin()
    first, second = (
        KnownChange(change=f"{at:016x}", origin="", started="", gpus=(), reason="lost")
        for at in (8, 9)
    )
    node.seconds_until_asked(NOBODY)
    for other in (first, second):
        node.change.answered(StateAnswer(open=other), node.now)
        assert node.step() == RestoreRequest(change=other.change)
        ended = ChangeAnswer(change=other.change, outcome=Outcome.ROLLED_BACK)
        node.change.answered(ended, node.now)
        assert node.step() == StateRequest(change=node.change.request)
    assert node.change.is_open

    node.change.answered(StateAnswer(open=second), node.now)

    assert node.change.outcome == "refused"
    assert node.change.outcome_reason == f"the change {second.change} has not ended: lost"


@pytest.mark.parametrize("is_of_this_gpu", [False, True])
def test_a_held_change_is_in_the_way_of_its_own_gpus_alone(*, is_of_this_gpu: bool) -> None:
    """One of other GPUs waits for a person, who may take weeks."""
    node = Steps()
    (gpu,) = wanted("a").layouts
    held = KnownChange(
        change="an-earlier-one",
        origin="",
        started="",
        gpus=(gpu if is_of_this_gpu else "GPU-9",),
        outcome=Outcome.STUCK,
        reason="lost",
    )
    asked: list[ActuatorTask] = []
    for _ in range(12):
        task = node.step()
        if task is None:
            continue
        asked.append(task)
        match task:
            case ApplyRequest():
                break
            case StateRequest():
                node.change.answered(StateAnswer(open=held), node.now)
            case RestoreRequest(change=change):
                answer = ChangeAnswer(change=change, outcome=Outcome.STUCK)
                node.change.answered(answer, node.now)

    named = [task.change for task in asked if isinstance(task, RestoreRequest)]
    assert isinstance(asked[-1], ApplyRequest) != is_of_this_gpu
    assert (held.change in named) == is_of_this_gpu
    assert named[0] != held.change, "what a boot took comes back first, whatever is held"
    if is_of_this_gpu:
        assert node.change.outcome == "refused"
