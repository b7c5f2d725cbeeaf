# SPDX-License-Identifier: Apache-2.0
"""Counts within a sliding window: what comes in, what falls out, what was never looked at."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from discovery.gpu_part import GpuPart
from discovery.model import NodeSnapshot, Xid
from exporters.dcgm.windows import CLOCK_EVENTS, PARTS, Event, EventCounts, Span, Windows
from tests import build

BUS = build.gpu().bus_id
GPU: GpuPart = GpuPart(BUS)


def node(*xids: Xid) -> NodeSnapshot:
    return build.node([build.gpu(xids=xids)])


def xids(windows: Windows, at: float, entity: GpuPart = GPU) -> dict[str, int] | None:
    counts = windows.counts(at)[Event.XID, Span.WINDOW].of(entity)
    return None if counts is None else dict(counts)


def total(windows: Windows, event: Event) -> dict[str, int] | None:
    counts = windows.counts(1000.0)[event, Span.TOTAL].of(GPU)
    return None if counts is None else dict(counts)


def clock_events(windows: Windows, at: float, entity: GpuPart = GPU) -> dict[str, int] | None:
    counts = windows.counts(at)[Event.CLOCK_EVENT, Span.WINDOW].of(entity)
    return None if counts is None else dict(counts)


def test_an_xid_counts_until_its_window_is_over() -> None:
    windows = Windows(xid_seconds=300)
    windows.show_snapshot(node(Xid(code=79, count=2)), now=1000)
    windows.show_snapshot(node(Xid(code=79, count=5)), now=1200)
    windows.show_snapshot(node(Xid(code=79, count=5)), now=1490)

    assert [xids(windows, at) for at in (1299.5, 1301, 1498)] == [{"79": 5}, {"79": 3}, {"79": 3}]
    windows.show_snapshot(node(Xid(code=79, count=5)), now=1502)
    assert xids(windows, 1502) == {}


def test_a_count_that_began_again_counts_as_a_whole() -> None:
    windows = Windows()
    windows.show_snapshot(node(Xid(code=79, count=5)), now=0)

    windows.show_snapshot(node(Xid(code=79, count=2)), now=10)

    assert xids(windows, 10) == {"79": 7}


def test_two_gpus_with_the_same_error_each_count_their_own() -> None:
    windows, other = Windows(), build.gpu(1, xids=(Xid(code=79, count=3),))

    windows.show_snapshot(build.node([build.gpu(xids=(Xid(code=79, count=2),)), other]), now=0)

    assert [xids(windows, 0, GpuPart(bus)) for bus in (BUS, other.bus_id)] == [
        {"79": 2},
        {"79": 3},
    ]


def test_an_error_that_is_seen_again_later_does_not_count_again() -> None:
    windows = Windows()
    windows.show_snapshot(node(Xid(code=79, count=2, last_seen_seconds=5)), now=0)

    windows.show_snapshot(node(Xid(code=79, count=3, last_seen_seconds=9)), now=10)

    assert xids(windows, 10) == {"79": 3}


def test_what_came_a_whole_window_ago_is_out_of_it() -> None:
    windows = Windows(xid_seconds=300)
    windows.show_snapshot(node(Xid(code=79, count=2)), now=100)
    windows.show_snapshot(node(Xid(code=79, count=2)), now=300)

    assert [xids(windows, at) for at in (399.9, 400)] == [{"79": 2}, {}]


def test_errors_of_compute_instances_of_one_instance_add_up() -> None:
    windows = Windows()

    windows.show_snapshot(
        node(
            Xid(code=31, count=1, gpu_instance_id=3, compute_instance_id=0),
            Xid(code=31, count=2, gpu_instance_id=3, compute_instance_id=1),
        ),
        now=0,
    )

    assert xids(windows, 0, GpuPart(BUS, 3)) == {"31": 3}


def test_an_instance_has_its_own_and_those_of_its_gpu_and_the_gpu_has_all() -> None:
    windows = Windows()
    windows.show_snapshot(
        node(
            Xid(code=31, count=1, gpu_instance_id=3),
            Xid(code=43, count=2, gpu_instance_id=7),
            Xid(code=63, count=4),
        ),
        now=0,
    )

    found = [xids(windows, 0, GpuPart(BUS, instance)) for instance in (3, 7, 9, None)]

    assert found == [{"31": 1, "63": 4}, {"43": 2, "63": 4}, {"63": 4}, {"31": 1, "43": 2, "63": 4}]


def test_a_gpu_that_nobody_looked_at_in_the_window_has_no_counts() -> None:
    windows = Windows(xid_seconds=60)
    windows.show_snapshot(node(), now=0)

    assert xids(windows, 59) == {}
    assert xids(windows, 60) is None
    assert xids(windows, 59, GpuPart("0000:99:00.0")) is None


def test_every_sample_in_which_clocks_are_held_down_counts_by_reason() -> None:
    windows, gpu = Windows(clock_event_seconds=100), build.gpu()

    for at, reasons in ((0, 0x104), (50, 0x004), (90, 0)):
        windows.show_samples([build.sample(gpu, at_seconds=float(at), clock_event_reasons=reasons)])

    assert clock_events(windows, 99) == {"power_cap": 2, "display_clocks": 1}
    assert clock_events(windows, 101, GpuPart(BUS, 5)) == {"power_cap": 1}
    assert clock_events(windows, 180) == {}


def test_reasons_that_a_gpu_does_not_tell_are_no_counts() -> None:
    windows = Windows()

    windows.show_samples([build.sample(build.gpu(), clock_event_reasons=None)])

    assert clock_events(windows, 100) is None


def test_all_bits_have_dcgm_exporter_s_words_and_other_bits_none() -> None:
    windows = Windows()

    windows.show_samples([build.sample(build.gpu(), clock_event_reasons=2**20 - 1)])

    assert list(CLOCK_EVENTS) == [1 << bit for bit in range(9)]
    assert clock_events(windows, 100) == dict.fromkeys(CLOCK_EVENTS.values(), 1)


def test_xids_are_counted_since_the_start_by_code_though_a_window_forgot_them() -> None:
    """Those of before the start are none, and 0 is no error. Source: dcgm-exporter's README."""
    before = Xid(code=79, count=3)
    windows = Windows(xid_seconds=10, counted=[(BUS, before)])

    for at, more in ((0.0, 0), (1.0, 1), (50.0, 3)):
        windows.show_snapshot(node(replace(before, count=3 + more), Xid(code=0, count=9)), at)

    assert total(windows, Event.XID) == {"79": 3}
    assert xids(windows, 100) is None


def test_a_reason_counts_in_all_when_it_sets_in() -> None:
    """One that is there at the start does not. Source: dcgm-exporter's README."""
    windows, gpu = Windows(clock_event_seconds=1), build.gpu()

    for at, reasons in enumerate((0x004, 0x004, 0x044, None, 0x044, 0x040, 0x044, 0)):
        windows.show_samples([build.sample(gpu, at_seconds=float(at), clock_event_reasons=reasons)])

    assert total(windows, Event.CLOCK_EVENT) == {"hw_thermal": 1, "power_cap": 1}


def test_what_never_came_is_in_no_total() -> None:
    windows = Windows()
    windows.show_snapshot(node(), 0.0)

    assert total(windows, Event.XID) == {}
    assert total(windows, Event.CLOCK_EVENT) is None


def test_the_windows_tell_their_lengths() -> None:
    counts = Windows(xid_seconds=300, clock_event_seconds=0.5).counts(0)

    assert counts == {
        (Event.XID, Span.WINDOW): EventCounts(milliseconds=300_000),
        (Event.CLOCK_EVENT, Span.WINDOW): EventCounts(milliseconds=500),
        (Event.XID, Span.TOTAL): EventCounts(),
        (Event.CLOCK_EVENT, Span.TOTAL): EventCounts(),
    }


@given(times=st.lists(st.floats(0, 1000), min_size=1, max_size=50), seconds=st.floats(1, 500))
def test_a_window_is_right_to_within_one_part_of_it(times: list[float], seconds: float) -> None:
    windows, gpu = Windows(clock_event_seconds=seconds), build.gpu()
    times.sort()

    for at in times:
        windows.show_samples([build.sample(gpu, at_seconds=at, clock_event_reasons=1)])
    found = (clock_events(windows, times[-1]) or {})["gpu_idle"]

    part = seconds / PARTS
    least = sum(times[-1] - seconds + 2 * part < at for at in times)
    most = sum(times[-1] - seconds - 2 * part < at for at in times)
    assert least <= found <= most


@pytest.mark.parametrize("seconds", [1.0, 300.0, 86_400.0])
def test_memory_does_not_grow_with_what_happens_though_nobody_asks(seconds: float) -> None:
    windows, gpu = Windows(clock_event_seconds=seconds), build.gpu()

    for step in range(3000):
        at = step * seconds / 1000
        windows.show_samples([build.sample(gpu, at_seconds=at, clock_event_reasons=1)])

    assert len(windows._clock_events._parts) <= PARTS + 1
