# SPDX-License-Identifier: Apache-2.0
"""What metrics count of a node's statuses: each end once, and what was asked for once more."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from agent.layouts.outcome_counts import OutcomeCounts
from api.mig_outcome import Outcome
from api.mig_status_annotation import MigPhase, MigStatusAnnotation
from exporters.desired_layout_metrics import DesiredLayoutState

ONE, TWO = "1" * 16, "2" * 16
THIS, OTHER = "a" * 16, "b" * 16
BEGAN = 1_700_000_000.0


def status(
    phase: str, request: str = ONE, *, end: str = "", plan: str = THIS, since: str = ""
) -> MigStatusAnnotation:
    return MigStatusAnnotation(
        v=2,
        phase=phase,
        request=request,
        outcome=end,
        plan=plan,
        since=since,
        desired="all-1g.10gb",
    )


def seen(
    *statuses: MigStatusAnnotation,
    shown: MigStatusAnnotation | None = None,
    is_of_request: bool = True,
) -> DesiredLayoutState:
    """What comes of these, a second after each other."""
    record = OutcomeCounts(enforced=True)
    if shown is not None:
        record.go_on_from(shown)
    for at, one in enumerate(statuses):
        record.take(one, BEGAN + at, is_of_request=is_of_request)
    assert record.desired_layout is not None
    return record.desired_layout


def test_an_end_is_counted_once_however_long_it_is_shown() -> None:
    ended = status(MigPhase.UNCHANGED, end=Outcome.APPLIED)

    assert seen(status(MigPhase.WAITING), ended, ended).ends == {"applied": 1}


def test_what_the_node_showed_before_the_agent_started_is_not_counted_again() -> None:
    ended = status(MigPhase.FAILED, end=Outcome.ROLLED_BACK)

    assert seen(ended, shown=ended).ends == {}
    assert seen(ended, shown=status(MigPhase.CHANGING)).ends == {"rolled-back": 1}


def test_a_held_request_that_a_person_ends_has_both_ends() -> None:
    held = status(MigPhase.STUCK, end=Outcome.STUCK)

    found = seen(held, status(MigPhase.UNCHANGED, end=Outcome.APPLIED))

    assert found.ends == {"stuck": 1, "applied": 1}


@pytest.mark.parametrize(
    ("end", "plan", "retries"),
    [
        (Outcome.ROLLED_BACK, THIS, {"rolled-back": 1}),
        (Outcome.REFUSED, THIS, {"refused": 1}),
        (Outcome.APPLIED, THIS, {"applied": 1}),
        (Outcome.CANCELLED, THIS, {}),
        (Outcome.EXPIRED, THIS, {}),
        (Outcome.ROLLED_BACK, OTHER, {}),
    ],
)
def test_the_same_layouts_asked_for_once_more_are_a_retry(
    end: Outcome, plan: str, retries: dict[str, int]
) -> None:
    again = status(MigPhase.WAITING, TWO, plan=plan)

    assert seen(status(MigPhase.FAILED, end=end), again, again).retries == retries
    assert seen(again, shown=status(MigPhase.FAILED, end=end)).retries == retries


@pytest.mark.parametrize("plan", ["", THIS])
def test_a_request_whose_layouts_are_not_known_is_no_retry(plan: str) -> None:
    """Nor is one behind an end whose layouts were not known."""
    ended = status(MigPhase.FAILED, end=Outcome.ROLLED_BACK, plan=plan)

    found = seen(ended, status(MigPhase.WAITING, TWO, plan=""))
    unknown = seen(ended, status(MigPhase.WAITING, TWO, plan=""), is_of_request=False)

    assert (found.ends, found.retries, unknown.retries) == ({"rolled-back": 1}, {}, {})


def test_another_wish_during_a_change_is_no_retry_of_it() -> None:
    """The status has the plan of the newer wish by then."""
    ended = status(MigPhase.PLANNED, end=Outcome.APPLIED, plan=OTHER)

    found = seen(ended, status(MigPhase.WAITING, TWO, plan=OTHER), is_of_request=False)

    assert (found.ends, found.retries) == ({"applied": 1}, {})


def test_a_phase_has_the_time_at_which_it_began_and_pods_do_not_count() -> None:
    waits = status(MigPhase.WAITING)

    assert seen(waits, waits, waits).since_seconds == BEGAN
    assert seen(waits, status(MigPhase.CHANGING)).since_seconds == BEGAN + 1


def test_a_phase_from_before_a_restart_goes_on() -> None:
    at = datetime(2026, 11, 20, tzinfo=UTC)
    shown = status(MigPhase.WAITING, since=at.strftime("%Y-%m-%dT%H:%M:%SZ"))

    assert seen(status(MigPhase.WAITING), shown=shown).since_seconds == at.timestamp()
    assert seen(status(MigPhase.CHANGING), shown=shown).since_seconds == BEGAN
    damaged = status(MigPhase.WAITING, since="yesterday")
    assert seen(status(MigPhase.WAITING), shown=damaged).since_seconds == BEGAN


@pytest.mark.parametrize("phase", [MigPhase.IDLE, MigPhase.UNADOPTED])
def test_where_nothing_is_asked_for_there_is_no_wish_and_what_was_counted_stays(
    phase: MigPhase,
) -> None:
    record = OutcomeCounts(enforced=True)
    record.take(status(MigPhase.WAITING), BEGAN, is_of_request=True)
    record.take(status(phase, end=Outcome.CANCELLED), BEGAN, is_of_request=True)
    assert record.desired_layout is None

    record.take(status(MigPhase.WAITING, TWO), BEGAN, is_of_request=True)
    assert record.desired_layout is not None
    assert record.desired_layout.ends == {"cancelled": 1}
