# SPDX-License-Identifier: Apache-2.0
"""When a sink may write."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.cluster.write_pace import BURST, DEBOUNCE_SECONDS, GAP_SECONDS, WritePace, borrowed
from api import keys
from kube.api_errors import (
    AdmissionRefused,
    ApiError,
    Busy,
    Forbidden,
    Invalid,
    NotConnected,
    NotFound,
    Unreachable,
)


def upper(_: float, most: float) -> float:
    """The longest wait that chance may give."""
    return most


def lower(least: float, _: float) -> float:
    """The shortest."""
    return least


def calm() -> WritePace:
    """A pace of a sink that has written before, long ago."""
    pace = WritePace(uniform=lower)
    pace.settled()
    return pace


def test_the_first_write_is_sent_at_once() -> None:
    assert WritePace().wait(1000) == 0


def test_later_ones_gather_what_changes_within_ten_seconds() -> None:
    pace = calm()

    waits = [pace.wait(1000), pace.wait(1004), pace.wait(1010)]

    assert waits == [DEBOUNCE_SECONDS, DEBOUNCE_SECONDS - 4, 0]


def test_what_went_away_by_itself_starts_no_clock() -> None:
    pace = calm()
    pace.wait(1000)
    pace.settled()

    assert pace.wait(1009) == DEBOUNCE_SECONDS


def test_the_first_write_that_failed_is_still_the_first() -> None:
    pace = WritePace(uniform=lower)
    pace.wait(1000)
    pace.sent(1000)
    pace.failed(1000, Unreachable("lost"))

    assert pace.wait(1000) == 0


@pytest.mark.parametrize(
    ("error", "wait"), [(NotConnected("refused"), 0), (Unreachable("no answer"), GAP_SECONDS)]
)
def test_a_request_that_could_not_be_sent_costs_none_of_those_in_a_row(
    error: ApiError, wait: float
) -> None:
    """So labels are back soon after an outage, however many tries it has cost."""
    pace = WritePace(uniform=lower)
    for _ in range(BURST):
        pace.sent(1000)
        pace.failed(1000, error)

    assert pace.wait(1000) == wait


def test_what_is_urgent_does_not_gather() -> None:
    assert calm().wait(1000, borrowed=1) == 0


def writes(pace: WritePace, seconds: int, *, urgent: bool) -> list[float]:
    """When a sink that always has something to write sends it."""
    now, end, sent = 1000.0, 1000.0 + seconds, []
    while now < end:
        if (wait := pace.wait(now, borrowed=int(urgent))) > 0:
            now += wait
            continue
        pace.sent(now)
        pace.succeeded()
        sent.append(now - 1000)
        now += 0.01
    return sent


def test_three_writes_in_a_row_then_one_a_minute() -> None:
    sent = writes(WritePace(), 600, urgent=False)

    assert sent[:BURST] == pytest.approx([0, 10, 20], abs=0.1)
    assert sent[BURST:] == pytest.approx([60, 120, 180, 240, 300, 360, 420, 480, 540], abs=0.1)


def test_what_is_urgent_borrows_one_write_and_no_more() -> None:
    sent = writes(WritePace(), 300, urgent=True)

    assert sent == pytest.approx([0, 0, 0, 0, 60, 120, 180, 240], abs=0.1)


def test_a_new_object_is_written_at_once_after_failures_too_but_within_the_budget() -> None:
    pace = calm()
    pace.failed(1000, Forbidden("no"))
    pace.restart()
    fresh = pace.wait(1000)
    for _ in range(BURST):
        pace.sent(1000)
    pace.restart()

    assert fresh == 0
    assert pace.wait(1000) == GAP_SECONDS


@pytest.mark.parametrize(
    ("error", "wait"),
    [
        (Unreachable("lost"), 1),
        (Busy("later", retry_after_seconds=30), 31),
        (Forbidden("no"), 450),
        (AdmissionRefused("no", policy="p"), 450),
        (Invalid("no"), 450),
    ],
)
def test_after_a_failure_nothing_is_sent_for_a_while(error: ApiError, wait: float) -> None:
    pace = WritePace(uniform=upper)

    told = pace.failed(1000, error)

    assert told == wait
    assert pace.held(1000) == wait
    assert pace.wait(1000, borrowed=1) == wait
    assert pace.held(1000 + wait) == 0


def test_failures_in_a_row_wait_longer_up_to_a_minute_until_one_succeeds() -> None:
    pace = WritePace(uniform=upper)
    lost = Unreachable("lost")

    waits = [pace.failed(1000, lost) for _ in range(8)]
    pace.succeeded()

    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]
    assert pace.failed(1000, lost) == 1


def test_where_only_a_person_can_help_the_wait_is_long_and_spread() -> None:
    assert WritePace(uniform=lower).failed(0, NotFound("no kind"), slowly=True) == 150
    assert WritePace(uniform=upper).failed(0, NotFound("no kind"), slowly=True) == 450


@given(st.lists(st.tuples(st.floats(0, 100), st.booleans(), st.booleans()), max_size=60))
def test_no_sequence_of_events_sends_more_than_the_budget(
    events: list[tuple[float, bool, bool]],
) -> None:
    """Four requests at most, and one for each minute that went by."""
    pace, now, sent = WritePace(), 0.0, []
    for pause, urgent, fails in events:
        now += pause
        if pace.wait(now, borrowed=int(urgent)) > 0:
            continue
        pace.sent(now)
        sent.append(now)
        if fails:
            pace.failed(now, Unreachable("lost"))
        else:
            pace.succeeded()

    for first, at in enumerate(sent):
        since = [then for then in sent[first:] if then <= at + 600]
        assert len(since) <= BURST + 1 + 600 / GAP_SECONDS


def test_health_and_a_mig_change_are_urgent_and_nothing_else() -> None:
    assert borrowed([keys.HEALTH]) == 1
    assert borrowed([keys.FOUND, keys.MODE]) == 1
    assert borrowed({keys.HEALTH_REASON: "xid"}) == 1
    assert borrowed([keys.MIG_STATUS, keys.MIG_REQUEST]) == 3
    assert borrowed([keys.MODE, keys.EXPECTED, keys.MIG_STATUS]) == 0


def test_a_mig_change_borrows_three_writes_and_no_more() -> None:
    """Asked, idle, changing and ended are told in one minute; then it is one a minute again."""
    pace, sent = WritePace(), []
    pace.settled()
    for now in range(1000, 1300):
        if pace.wait(now, borrowed=3) == 0:
            pace.sent(now)
            pace.succeeded()
            sent.append(now)
    assert len([at for at in sent if at < 1060]) == BURST + 3
    assert len(sent) <= BURST + 3 + 300 // GAP_SECONDS
