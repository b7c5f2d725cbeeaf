# SPDX-License-Identifier: Apache-2.0
"""The log while it is set up anew."""

from __future__ import annotations

import io
import json
import logging
import re
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import FrameType
from typing import Any

import pytest

from base import log as logs


@pytest.fixture(autouse=True)
def plain_log() -> Iterator[None]:
    """Afterwards the log is set up as before."""
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    yield
    root.setLevel(level)
    root.handlers[:] = handlers


def test_a_line_arrives_once_however_far_the_log_is_set_up_again() -> None:
    """Other threads log while the settings are read again; here between any two steps of it."""
    stream, logged = io.StringIO(), 0

    def step(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal logged
        if frame.f_code is not logs.configure.__code__:
            return None
        if event == "line":
            logging.getLogger("other").info("line-%d.", logged)
            logged += 1
        return step

    logs.configure("info", "text", stream)
    before = sys.gettrace()
    sys.settrace(step)
    try:
        logs.configure("info", "text", stream)
    finally:
        sys.settrace(before)

    assert [stream.getvalue().count(f"line-{number}.") for number in range(logged)] == [1] * logged
    assert logged


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_times_have_a_zone_and_are_the_same_everywhere(
    form: str, zone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RFC 3339: collectors read them, and lines of two nodes can be put in order."""
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    stream = io.StringIO()
    logs.configure("info", form, stream)
    before = datetime.now(UTC)

    logging.getLogger("any").info("something", extra={"key": "value"})

    (line,) = stream.getvalue().splitlines()
    found = json.loads(line)["time"] if form == "json" else line.split()[0]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", found)
    assert timedelta(0) <= datetime.fromisoformat(found) - before + timedelta(milliseconds=1)
    monkeypatch.undo()
    time.tzset()
