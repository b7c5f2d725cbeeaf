# SPDX-License-Identifier: Apache-2.0
"""Maintenance windows: what is written, and when they are open."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.rollout_settings import WINDOWS, parse_windows

MONDAY = datetime(2026, 11, 23, tzinfo=UTC)


def open_at(text: str, day: int, time: str) -> bool:
    """Whether any of the windows is open so many days after a Monday."""
    hour, minute = map(int, time.split(":"))
    at = MONDAY + timedelta(days=day, hours=hour, minutes=minute)
    return any(window.is_open(at.timestamp()) for window in parse_windows(text))


@pytest.mark.parametrize(
    ("text", "day", "time", "is_open"),
    [
        ("22:00-23:00", 0, "22:00", True),
        ("22:00-23:00", 6, "22:59", True),
        ("22:00-23:00", 0, "23:00", False),
        ("22:00-23:00", 0, "21:59", False),
        ("mon 10:00-11:00", 1, "10:30", False),
        ("sat-sun 00:00-24:00", 5, "00:00", True),
        ("sat-sun 00:00-24:00", 6, "23:59", True),
        ("sat-sun 00:00-24:00", 0, "00:00", False),
        ("fri-mon 10:00-11:00", 0, "10:00", True),
        ("fri-mon 10:00-11:00", 3, "10:00", False),
        ("fri 22:00-05:00", 5, "04:59", True),
        ("fri 22:00-05:00", 4, "04:59", False),
        ("sun 22:00-05:00", 7, "04:00", True),
        ("mon 01:00-02:00, Tue 03:00-04:00", 1, "03:30", True),
        ("00:00-00:00", 2, "12:00", True),
    ],
)
def test_a_window_is_open_on_its_days_between_its_times(
    text: str, day: int, time: str, is_open: bool
) -> None:
    assert open_at(text, day, time) is is_open


@pytest.mark.parametrize(
    "text", ["22-23", "24:00-25:00", "10:60-11:00", "mo 10:00-11:00", "10:00-11:00-", "mon,tue"]
)
def test_what_is_no_window_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="expected days and times such as 'mon-fri 22:00-05:00'"):
        WINDOWS.read(text)


@given(
    opens=st.integers(0, 24 * 60 - 1),
    closes=st.integers(0, 24 * 60),
    minutes=st.integers(0, 7 * 24 * 60 - 1),
    day=st.integers(0, 6),
)
def test_a_window_is_open_for_its_whole_length_and_no_longer(
    opens: int, closes: int, minutes: int, day: int
) -> None:
    name = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")[day]
    text = f"{name} {opens // 60:02}:{opens % 60:02}-{closes // 60:02}:{closes % 60:02}"
    (window,) = parse_windows(text)
    length = closes - opens if closes > opens else closes - opens + 24 * 60
    into = (minutes - (day * 24 * 60 + opens)) % (7 * 24 * 60)
    assert window.is_open((MONDAY + timedelta(minutes=minutes)).timestamp()) is (into < length)
    assert parse_windows(WINDOWS.show((window,))) == (window,)
