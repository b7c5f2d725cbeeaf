# SPDX-License-Identifier: Apache-2.0
"""Errors are logged at a pace, and none is left out without being counted in a line."""

from __future__ import annotations

import pytest

from agent.gpu_errors.error_log import ErrorLog
from base.log_pace import MOST_SUBJECTS, PACE_SECONDS
from discovery.reader.protocol import XidSeen


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
