# SPDX-License-Identifier: Apache-2.0
"""Log lines as operators search for them: level, message and fields."""

from __future__ import annotations

import logging
from typing import Any

import pytest

_OF_EVERY_RECORD = {*vars(logging.makeLogRecord({})), "message", "asctime"}

LogLine = tuple[str, str, dict[str, Any]]
"""Level, message and fields."""


def log_lines(caplog: pytest.LogCaptureFixture) -> list[LogLine]:
    """All lines so far, from the level on that ``caplog`` has."""
    return [(record.levelname, record.getMessage(), _fields(record)) for record in caplog.records]


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in _OF_EVERY_RECORD}


def whys(caplog: pytest.LogCaptureFixture, message: str) -> list[str]:
    """The field ``why`` of all lines with this message."""
    return [fields["why"] for _, text, fields in log_lines(caplog) if text == message]
