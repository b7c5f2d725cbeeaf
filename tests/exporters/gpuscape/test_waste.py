# SPDX-License-Identifier: Apache-2.0
"""Seconds held and seconds held in vain, step by step, worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from discovery.gpu_part import GpuPart
from exporters.gpuscape.waste import (
    NOTHING_SEEN,
    RESUME_SECONDS,
    WINDOW_SECONDS,
    GpuUse,
    Held,
    Times,
    Waste,
    WasteRecord,
    step,
)

GPU = GpuPart("0000:10:00.0")
ALICE: Held = frozenset({("team", "alice", "main")})
BOB: Held = frozenset({("team", "bob", "main")})
FREE: Held = frozenset()


def use(at: float | None, held_by: Held | None = ALICE, busy: float | None = 0.0) -> GpuUse:
    return GpuUse(entity=GPU, at_seconds=at, held_by=held_by, busy_ratio=busy)


def times(*uses: GpuUse) -> Times:
    """After these uses one after the other."""
    waste: Waste = NOTHING_SEEN
    for each in uses:
        waste = step(waste, [each])
    return waste[GPU]


def told(found: Times) -> dict[str, Any]:
    return {
        "allocated": found.allocated_seconds,
        "idle": found.idle,
        "idle seconds": found.idle_seconds,
    }


def test_the_first_sight_is_a_start_from_zero() -> None:
    assert told(times(use(1000))) == {"allocated": 0, "idle": False, "idle seconds": 0}


def test_time_held_is_that_between_two_samples_at_which_somebody_held_it() -> None:
    # 10 s held by one, 20 s passed on to another; before and after nobody is seen at one end
    found = times(use(0, FREE), use(5), use(15), use(35, BOB), use(40, FREE), use(50, FREE))

    assert found.allocated_seconds == 10 + 20


def test_it_is_idle_from_the_end_of_the_window_on() -> None:
    last = WINDOW_SECONDS - 10
    before = times(use(0), use(last))
    at_the_end = times(use(0), use(last), use(last + 10))

    assert (before.idle, before.idle_seconds) == (False, 0)
    assert (at_the_end.idle, at_the_end.idle_seconds) == (True, 0)


def test_idle_seconds_leave_the_window_out() -> None:
    # idle for 880 s, then 30 s across the end of the window at 900 s, then 40 s
    found = times(use(0), use(880), use(910), use(950))

    assert told(found) == {"allocated": 950, "idle": True, "idle seconds": 10 + 40}


def test_work_starts_the_window_again_and_keeps_what_was_counted() -> None:
    idle = [use(0), use(1000)]  # 100 s beyond the window
    working = use(1010, busy=0.5)

    assert told(times(*idle, working)) == {"allocated": 1010, "idle": False, "idle seconds": 100}
    again = times(*idle, working, use(1010 + 890), use(1010 + 905))
    assert again.idle_seconds == 100 + 5


@pytest.mark.parametrize(("busy", "idle"), [(0.0, True), (0.0099, True), (0.01, False)])
def test_below_one_percent_counts_as_idle(busy: float, idle: bool) -> None:
    assert times(use(0, busy=busy), use(1000, busy=busy)).idle is idle


def test_somebody_new_starts_the_window_again_and_somebody_leaving_does_not() -> None:
    both = ALICE | BOB

    assert times(use(0), use(1000), use(1010, BOB)).idle is False
    assert times(use(0), use(1000), use(1010, both)).idle is False
    assert times(use(0, both), use(1000, both), use(1010, ALICE)).idle is True


def test_what_nobody_holds_is_neither_idle_nor_in_use() -> None:
    found = times(use(0, FREE), use(2000, FREE))

    assert told(found) == {"allocated": 0, "idle": None, "idle seconds": 0}
    assert not found.unmeasured


def test_where_nothing_tells_how_busy_it_is_nothing_is_said() -> None:
    found = times(use(0, busy=None), use(2000, busy=None))

    assert told(found) == {"allocated": 2000, "idle": None, "idle seconds": None}
    assert found.unmeasured


def test_a_missing_reading_starts_the_window_again() -> None:
    unread = GpuUse(entity=GPU, at_seconds=None, held_by=ALICE, busy_ratio=None)

    assert times(use(0), use(800), use(810, busy=None), use(950)).idle is False
    assert times(use(0), use(800), unread, use(950)).idle is False


def test_time_without_samples_is_no_time_held() -> None:
    unread = GpuUse(entity=GPU, at_seconds=None, held_by=ALICE, busy_ratio=None)

    assert times(use(0), use(10), unread, use(500), use(510)).allocated_seconds == 10 + 10


def test_where_nobody_tells_who_holds_it_neither_time_goes_on() -> None:
    found = times(use(0), use(1000), use(2000, None), use(3000, None))

    assert told(found) == {"allocated": 1000, "idle": None, "idle seconds": 100}


def test_the_same_sample_again_changes_nothing() -> None:
    once = times(use(0), use(1000))

    assert times(use(0), use(1000), use(1000)) == once


def test_a_sample_from_before_takes_nothing_back() -> None:
    found = times(use(0), use(1000), use(500))

    assert (found.allocated_seconds, found.idle_seconds) == (1000, 100)


def test_what_is_not_seen_again_is_forgotten() -> None:
    other = GpuPart("0000:11:00.0", 3)
    waste = step(NOTHING_SEEN, [use(0), replace(use(0), entity=other)])

    assert set(step(waste, [use(10)])) == {GPU}


uses = st.builds(
    use,
    st.none() | st.floats(0, 1e5),
    st.sampled_from([None, FREE, ALICE, BOB, ALICE | BOB]),
    st.sampled_from([None, 0.0, 0.5, 1.0]),
)


@given(st.lists(uses, min_size=2, max_size=20))
def test_seconds_never_fall_and_idle_ones_never_outrun_held_ones(found: list[GpuUse]) -> None:
    waste: Waste = NOTHING_SEEN
    told: list[tuple[float, float]] = []
    for each in found:
        waste = step(waste, [each])
        told.append((waste[GPU].allocated_seconds, waste[GPU].idle_seconds or 0.0))

    assert all(a[0] <= b[0] and a[1] <= b[1] for a, b in pairwise(told))
    assert all(idle <= allocated + 1e-6 for allocated, idle in told)


def _record(*uses: GpuUse, paused: bool = True) -> WasteRecord:
    record = WasteRecord()
    for each in uses:
        record.add([each])
    if paused:
        record.pause()
    return record


def test_a_pause_is_neither_allocated_nor_idle_and_the_window_goes_on_after_it() -> None:
    record = _record(use(0), use(WINDOW_SECONDS))
    for each in (use(None, None, None), use(None), use(1000, ALICE, None), use(1010)):
        record.add([each])
        assert record.times[GPU].allocated_seconds == WINDOW_SECONDS
    for at in (1020, 1030):
        record.add([use(at)])
    found = told(record.times[GPU])
    assert found == {"allocated": WINDOW_SECONDS + 20, "idle": True, "idle seconds": 20}


@pytest.mark.parametrize(("seconds", "idle"), [(RESUME_SECONDS, True), (RESUME_SECONDS + 1, False)])
def test_a_long_pause_begins_the_window_anew_and_keeps_the_seconds(
    seconds: float, idle: bool
) -> None:
    record = _record(use(0), use(WINDOW_SECONDS + 50))
    record.add([use(WINDOW_SECONDS + 50 + seconds)])
    assert told(record.times[GPU]) == {
        "allocated": WINDOW_SECONDS + 50,
        "idle": idle,
        "idle seconds": 50,
    }


def test_somebody_new_after_a_pause_has_not_been_idle() -> None:
    record = _record(use(0), use(WINDOW_SECONDS + 50))
    record.add([use(1000, BOB)])
    assert told(record.times[GPU])["idle"] is False


def test_a_device_that_does_not_come_back_is_forgotten_once_others_have_been_read_for_a_while() -> (
    None
):
    record, other = _record(use(0), use(10)), GpuPart("0000:20:00.0")
    for at in (100.0, 100.0 + RESUME_SECONDS):
        record.add([replace(use(at), entity=other)])
        assert GPU in record.times
    record.add([replace(use(101.0 + RESUME_SECONDS), entity=other)])
    assert GPU not in record.times


def test_a_device_that_was_never_measured_is_held_on_after_a_pause() -> None:
    record = _record(use(0, busy=None), use(10, busy=None))
    for at in (20, 30):
        record.add([use(at, busy=None)])
    assert record.times[GPU].allocated_seconds == 20
