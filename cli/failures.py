# SPDX-License-Identifier: Apache-2.0
"""Exit codes, and how errors become one sentence on standard error."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

import click

from base.errors import GpuscapeError, Transient, Unreadable
from base.files import ONLY_WRITING, cannot_write
from base.settings.version_skew import of_this_process
from base.text.safe_text import safe_line
from cli import terminal
from discovery.driver_errors import DriverAbsent
from kube.api_errors import ApiError

UNEXPECTED = 1
BAD_INPUT = 2
NO_DRIVER = 3
UNREADABLE = 4
"""An endpoint, or the cluster's API server."""
REFUSED = 5
"""The request cannot be carried out, and nothing was changed."""
UNDONE = 6
"""A change failed; everything is as before."""
UNFINISHED = 7
"""A change is stuck, or was stopped before its end: another command continues it."""
CLOSED_PIPE = 141
"""A closed pipe ended the command, as it ends any program: 128 and the number of SIGPIPE."""

WITHOUT_HARDWARE = "read a simulated machine with --simulate dgx-a100"


class CommandFailure(click.ClickException):
    """An error with its exit code, shown as one sentence, and a line for each of the details."""

    def __init__(self, message: str, exit_code: int, details: Sequence[str] = ()) -> None:
        super().__init__("\n  ".join(map(safe_line, (message, *details))))
        self.details = tuple(details)
        self.exit_code = exit_code  # type: ignore[misc]  # click reads it from the instance


@contextmanager
def one_sentence(debug: bool) -> Iterator[None]:
    """Turn what goes wrong inside into a CommandFailure.

    With ``debug`` Python's trace comes before it. The program ends quietly where whoever
    reads standard output has gone.
    """
    try:
        yield
    except CommandFailure:
        raise
    except click.ClickException as error:
        hint = _version_hint() if isinstance(error, click.UsageError) else ""
        message = safe_line(error.message) + hint
        error.message = message  # type: ignore[misc]  # click reads it from the instance
        raise
    except (click.Abort, click.exceptions.Exit):
        raise
    except Exception as error:
        if isinstance(error, BrokenPipeError) and _is_closed(sys.stdout):
            _drop_output()
            raise click.exceptions.Exit(CLOSED_PIPE) from error
        if debug:
            terminal.note(*_trace(error), err=True)
        raise _failure(error) from error


def _trace(error: Exception) -> list[str]:
    return "".join(traceback.format_exception(error)).splitlines()


def _failure(error: Exception) -> CommandFailure:
    if isinstance(error, GpuscapeError):
        code = _code(error)
        hint = f", or {WITHOUT_HARDWARE}" if isinstance(error, DriverAbsent) else ""
        if code == BAD_INPUT:
            hint += _version_hint()
        return CommandFailure(f"{error}{hint}", code)
    if isinstance(error, OSError) and error.errno in ONLY_WRITING:
        _drop_output()
        return CommandFailure(cannot_write(error.filename or "standard output", error), BAD_INPUT)
    return CommandFailure(
        f"unexpected {type(error).__name__}: {error} (gpuscape --debug shows where)", UNEXPECTED
    )


def _version_hint() -> str:
    """The hint that chart or manifests are of another version; empty where they are not."""
    skew = of_this_process()
    return f"; perhaps because {skew.cause}: {skew.action}" if skew.is_there else ""


def _code(error: GpuscapeError) -> int:
    if not isinstance(error, Transient):
        return BAD_INPUT
    return UNREADABLE if isinstance(error, (ApiError, Unreadable)) else NO_DRIVER


def _is_closed(stream: TextIO) -> bool:
    """Whether the other end of this pipe has been closed."""
    with contextlib.suppress(OSError, ValueError):
        poll = select.poll()
        poll.register(stream.fileno(), 0)
        return bool(poll.poll(0))
    return False


def _drop_output() -> None:
    """Discard output that is still buffered: Python would report an error for it at exit."""
    with contextlib.suppress(OSError, ValueError):
        sink = os.open(os.devnull, os.O_WRONLY)
        os.dup2(sink, sys.stdout.fileno())
        os.close(sink)
