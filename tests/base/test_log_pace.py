# SPDX-License-Identifier: Apache-2.0
"""One line of each subject a minute, and nothing left out unmentioned."""

from __future__ import annotations

from base.log_pace import MOST_SUBJECTS, PACE_SECONDS, LogPace


def test_the_first_is_logged_and_the_rest_of_the_minute_is_counted() -> None:
    pace = LogPace()
    assert [pace.take("a", now) for now in (0.0, 0.1, 59.9)] == [0, None, None]
    assert pace.take("b", 1.0) == 0
    assert pace.take("a", PACE_SECONDS) == 2
    assert pace.take("a", 2 * PACE_SECONDS) == 0


def test_what_was_left_out_at_the_end_is_reported_once() -> None:
    pace = LogPace()
    pace.take("a", 0.0)
    pace.take("a", 1.0)
    pace.take("quiet", 0.0)
    assert list(pace.overdue(PACE_SECONDS - 0.1)) == []
    assert list(pace.overdue(PACE_SECONDS)) == [("a", 1)]
    assert list(pace.overdue(2 * PACE_SECONDS)) == []
    assert pace.take("a", PACE_SECONDS + 1) == 0


def test_subjects_beyond_the_bound_share_one_pace() -> None:
    pace = LogPace()
    for number in range(MOST_SUBJECTS):
        pace.take(number, 0.0)
    assert [pace.take(("more", number), 0.0) for number in range(3)] == [0, None, None]
    assert dict(pace.overdue(PACE_SECONDS)) == {None: 2}
