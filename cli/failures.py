"""Exit codes, and how errors become one sentence on standard error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from discovery.errors import DriverAbsent, GpuscapeError, Transient

UNEXPECTED = 1
BAD_INPUT = 2
NO_DRIVER = 3

WITHOUT_HARDWARE = "look at a simulated machine with --simulate dgx-a100"


class Failure(click.ClickException):
    """An error with its exit code, shown as one sentence."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]  # click reads it from the instance


@contextmanager
def one_sentence(debug: bool) -> Iterator[None]:
    """Turn what goes wrong inside into a Failure; with ``debug`` let it through with its trace."""
    try:
        yield
    except GpuscapeError as error:
        if debug:
            raise
        hint = f", or {WITHOUT_HARDWARE}" if isinstance(error, DriverAbsent) else ""
        code = NO_DRIVER if isinstance(error, Transient) else BAD_INPUT
        raise Failure(f"{error}{hint}", code) from error
    except (click.ClickException, click.Abort, click.exceptions.Exit, BrokenPipeError):
        raise
    except Exception as error:
        if debug:
            raise
        raise Failure(
            f"unexpected {type(error).__name__}: {error} (gpuscape --debug shows where)", UNEXPECTED
        ) from error
