# SPDX-License-Identifier: Apache-2.0
"""Structured logs: one line per decision, for people (text) or for programs (json)."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Any, Final, TextIO

from pythonjsonlogger.core import RESERVED_ATTRS
from pythonjsonlogger.json import JsonFormatter

from base.text.safe_text import safe_json, safe_line, safe_lines
from base.unblocked.line_writer import LineWriter

log = logging.getLogger(__name__)

FLUSH_SECONDS: Final = 0.5
"""Time to wait, at the end of a program, for lines that are not written yet."""

_RESERVED = {*RESERVED_ATTRS, "message", "asctime", "taskName"}


class _TimeInUtc(logging.Formatter):
    """Times as RFC 3339 has them, in UTC: ``2026-01-31T23:59:59.000Z``."""

    def formatTime(  # noqa: N802  # logging's name
        self, record: logging.LogRecord, datefmt: str | None = None
    ) -> str:
        del datefmt
        time = datetime.fromtimestamp(record.created, UTC)
        return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class _Json(_TimeInUtc, JsonFormatter):
    """Log records as JSON objects, each on a line, in ASCII."""

    def format(self, record: logging.LogRecord) -> str:
        """The line; JSON itself lets U+007F stand."""
        return safe_json(super().format(record))


class TextFormatter(_TimeInUtc):
    """``time level message key=value …``; values with blanks are quoted.

    Whoever writes a value, such as a node's agent, cannot make a terminal obey it, nor begin a
    line: only a traceback has lines of its own.
    """

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # logging's name
        """The line, with the record's extra facts behind the message."""
        facts = [f"{name}={_quoted(value)}" for name, value in extra_facts(record).items()]
        return safe_line(" ".join([super().formatMessage(record), *facts]))

    def formatException(self, ei: Any) -> str:  # noqa: N802  # logging's name
        """The traceback."""
        return safe_lines(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:  # noqa: N802  # logging's name
        """The stack."""
        return safe_lines(super().formatStack(stack_info))


def extra_facts(record: logging.LogRecord) -> dict[str, object]:
    """The values that were logged as ``extra``, by name."""
    return {name: value for name, value in record.__dict__.items() if name not in _RESERVED}


def _quoted(value: object) -> str:
    text = str(value)
    return repr(text) if not text or any(c.isspace() for c in text) else text


class _Lines(logging.Handler):
    """Hands each line to the writer of its descriptor."""

    def __init__(self, writer: LineWriter) -> None:
        super().__init__()
        self._writer = writer

    def emit(self, record: logging.LogRecord) -> None:
        """Format the record and hand its line to the writer, without waiting."""
        try:
            line = self.format(record) + "\n"
        except Exception:  # what StreamHandler does too
            self.handleError(record)
        else:
            self._writer.put(line.encode("utf-8", "backslashreplace"))

    def flush(self) -> None:
        """Wait a moment for lines under way; logging calls this at the end of the program."""
        self._writer.flush(FLUSH_SECONDS)


_writers: dict[int, LineWriter] = {}


def _handler(stream: TextIO) -> logging.Handler:
    try:
        descriptor = stream.fileno()
    except OSError:  # it is in memory, and keeps nobody waiting
        return logging.StreamHandler(stream)
    if descriptor not in _writers:
        _writers[descriptor] = LineWriter(descriptor, written_again=_report_dropped)
    return _Lines(_writers[descriptor])


def _report_dropped(lines: int) -> None:
    log.warning("log lines dropped", extra={"lines": lines})


def dropped_lines() -> int:
    """How many lines of the log were not written, since the start."""
    return sum(writer.dropped for writer in _writers.values())


def flush() -> None:
    """Wait a moment for lines under way; for a program that ends at once."""
    for handler in logging.getLogger().handlers:
        handler.flush()


def configure(level: str, form: str, stream: TextIO = sys.stderr) -> None:
    """Send all logs of this level and above to ``stream``; ``form`` is text or json.

    Nobody who logs waits for a file, a pipe or a terminal: lines that cannot be written are
    dropped and counted. Raises NoThread. apscheduler logs every run at info level, so only its
    warnings and errors are kept.
    """
    handler = _handler(stream)
    if form == "json":
        names = {"asctime": "time", "levelname": "level", "name": "logger"}
        handler.setFormatter(
            _Json("%(asctime)s %(levelname)s %(name)s %(message)s", rename_fields=names)
        )
    else:
        handler.setFormatter(TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]  # at once: a line that another thread logs meanwhile is not lost
    root.setLevel(level.upper())
    logging.getLogger("apscheduler").setLevel(logging.WARNING)
