# SPDX-License-Identifier: Apache-2.0
"""Errors are logged at a pace, and none is left out without being counted in a line."""

from __future__ import annotations

import pytest

from agent.gpu_errors.error_log import ErrorLog
from agent.gpu_errors.kernel_records import SxidSeen
from base.log_pace import MOST_SUBJECTS, PACE_SECONDS
from discovery.reader.protocol import Event, EventsLost, XidSeen
from exporters.gpuscape.switch_errors import Severity
from tests.log_lines import log_lines


def test_errors_of_more_kinds_than_have_a_pace_of_their_own_are_counted_too(
    caplog: pytest.LogCaptureFixture,
) -> None:
    errors = ErrorLog()
    for code in range(1, MOST_SUBJECTS + 4):
        errors.add(XidSeen(bus_id="0000:10:00.0", code=code), 0.0)
    caplog.clear()
    errors.end_minutes(PACE_SECONDS)
    found = [vars(record) for record in caplog.records]
    assert [(it["message"], it["gpu"], it["left_out"]) for it in found] == [
        ("XID error", "various", 2)
    ]


def test_what_was_left_out_is_logged_with_its_own_kind_once_its_minute_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    errors = ErrorLog()
    events: tuple[Event | SxidSeen, ...] = (
        XidSeen(bus_id="0000:10:00.0", code=79),
        SxidSeen(bus_id="0000:c5:00.0", code=79, severity=Severity.FATAL),
        SxidSeen(bus_id="0000:c5:00.0", code=80, severity=Severity.FATAL),
        EventsLost(text="full"),
    )
    for at, event in enumerate(events):
        for _ in range(at + 1):
            errors.add(event, 0.0)
    errors.end_minutes(PACE_SECONDS - 1)
    caplog.clear()
    errors.end_minutes(PACE_SECONDS)
    assert log_lines(caplog) == [
        ("WARNING", "SXid error", {"switch": "0000:c5:00.0", "sxid": 79, "left_out": 1}),
        ("WARNING", "SXid error", {"switch": "0000:c5:00.0", "sxid": 80, "left_out": 2}),
        ("WARNING", "XID events incomplete", {"reason": "full", "left_out": 3}),
    ]
    caplog.clear()
    for _ in range(2):
        errors.add(events[0], PACE_SECONDS)
    errors.add(events[0], 2 * PACE_SECONDS)
    assert log_lines(caplog) == [
        ("WARNING", "XID error", {"gpu": "0000:10:00.0", "xid": 79}),
        ("WARNING", "XID error", {"gpu": "0000:10:00.0", "xid": 79, "left_out": 1}),
    ]
