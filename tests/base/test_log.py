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


FACTS = {"plain": "word", "spaced": "two words", "empty": "", "number": 7, "tabbed": "a\tb"}


def test_a_line_of_text_has_time_level_message_and_the_facts_in_their_order() -> None:
    stream = io.StringIO()
    logs.configure("info", "text", stream)

    logging.getLogger("any.module").warning("watch %s", "lost", extra=FACTS)

    (line,) = stream.getvalue().splitlines()
    _, _, rest = line.partition(" ")
    assert rest == (
        "WARNING watch lost plain=word spaced='two words' empty='' number=7 tabbed='a\\tb'"
    )


def test_levels_are_padded_so_that_messages_stand_below_each_other() -> None:
    stream = io.StringIO()
    logs.configure("info", "text", stream)
    for log in (logging.getLogger("any").info, logging.getLogger("any").error):
        log("x")
    assert [line.partition(" ")[2] for line in stream.getvalue().splitlines()] == [
        "INFO    x",
        "ERROR   x",
    ]


def test_a_line_of_json_has_time_level_logger_message_and_the_facts() -> None:
    stream = io.StringIO()
    logs.configure("info", "json", stream)

    logging.getLogger("any.module").warning("watch %s", "lost", extra=FACTS)

    found = json.loads(stream.getvalue())
    del found["time"]
    assert found == {"level": "WARNING", "logger": "any.module", "message": "watch lost", **FACTS}


@pytest.mark.parametrize("form", ["text", "json"])
def test_only_lines_of_the_level_and_above_are_written_and_of_the_scheduler_warnings(
    form: str,
) -> None:
    stream = io.StringIO()
    logs.configure("debug", form, stream)
    for name in ("any", "apscheduler.executors"):
        for level in (logging.DEBUG, logging.INFO, logging.WARNING):
            logging.getLogger(name).log(level, "%s %s.", name, level)
    logs.configure("warning", form, stream)
    logging.getLogger("any").info("not written")

    written = [name for name in ("any", "apscheduler.executors") for level in (10, 20, 30)
               if f"{name} {level}." in stream.getvalue()]  # fmt: skip
    assert written == ["any", "any", "any", "apscheduler.executors"]
    assert "not written" not in stream.getvalue()


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_traceback_is_written_with_its_line(form: str) -> None:
    stream = io.StringIO()
    logs.configure("info", form, stream)
    logging.getLogger("any").error("internal error", exc_info=ValueError("odd"))
    assert "ValueError: odd" in stream.getvalue()


HOSTILE = "\x1b]52;c;aGk=\x07\x9b2J\u202e\u2066\u2028\x7f\ninjected line\r"


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("value", [HOSTILE, HOSTILE.replace(" ", "").replace("\n", "").strip()])
def test_what_others_write_stays_in_its_line_and_no_terminal_obeys_it(
    form: str, value: str
) -> None:
    """A value without blanks is not quoted, and is escaped all the same."""
    stream = io.StringIO()
    logs.configure("info", form, stream)

    logging.getLogger("any").info("rollout %s", value, extra={"node": value, "other": [value]})

    line = stream.getvalue().removesuffix("\n")
    assert line.isascii()
    assert line.isprintable()


def test_a_traceback_has_lines_and_no_terminal_obeys_them() -> None:
    stream = io.StringIO()
    logs.configure("info", "text", stream)

    logging.getLogger("any").error("internal error", exc_info=ValueError(HOSTILE), stack_info=True)

    lines = stream.getvalue().splitlines()
    assert len(lines) > 3
    assert all(line.isascii() and line.isprintable() for line in lines)
