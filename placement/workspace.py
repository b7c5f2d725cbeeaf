# SPDX-License-Identifier: Apache-2.0
"""Limits of computing the outcomes of one topology class: bytes that are kept, and steps."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, ParamSpec, TypeVar, cast

MOST_BYTES: Final = 16 << 20
"""Bytes kept on the way to the outcomes of one class: twice what one outcome of 16 GPUs needs at a
time. With more, all of it is dropped."""
MOST_STEPS: Final = 5_000_000
"""Steps of one outcome: some twenty seconds. The longest of 16 GPUs behind NVSwitch takes most."""
_CHECKED_EVERY: Final = 4096

_Args = ParamSpec("_Args")
_Value = TypeVar("_Value")


class TooMuchWork(Exception):  # no error of the program: an outcome is given up
    """An outcome takes more steps than it may."""


class Workspace:
    """Caches of one class with a common budget, and the steps of the outcome in work. Thread-safe.

    Its memory goes with it, or at once by :meth:`clear`.
    """

    def __init__(self, most_bytes: int | None = None, most_steps: int | None = None) -> None:
        self._most_bytes = MOST_BYTES if most_bytes is None else most_bytes
        self._most_steps = MOST_STEPS if most_steps is None else most_steps
        self.bytes = 0
        """About how much is kept now."""
        self._clears: list[Callable[[], None]] = []
        self._thread = threading.local()

    def cache(
        self,
        compute: Callable[_Args, _Value],
        entry_bytes: int | Callable[[_Value], int] = 200,
    ) -> Callable[_Args, _Value]:
        """The function with its results kept. It takes no arguments by name.

        ``entry_bytes``: bytes of a result with its key, or what tells them of a result.
        """

        @functools.cache
        def kept(*args: _Args.args, **kwargs: _Args.kwargs) -> _Value:
            value = compute(*args, **kwargs)
            self.bytes += entry_bytes if isinstance(entry_bytes, int) else entry_bytes(value)
            return value

        self._clears.append(kept.cache_clear)
        return cast("Callable[_Args, _Value]", kept)

    def spend(self, steps: int = 1) -> None:
        """Count steps of work. Raises TooMuchWork where an outcome has taken all that it may."""
        remaining = getattr(self._thread, "remaining_steps", None)
        if remaining is None:
            return
        self._thread.remaining_steps = remaining - steps
        if remaining // _CHECKED_EVERY != (remaining - steps) // _CHECKED_EVERY:
            self.trim()
        if remaining < steps:
            raise TooMuchWork

    @contextmanager
    def counted(self, most_steps: int | None = None) -> Iterator[None]:
        """Count the steps of this thread within, and keep to the budget of bytes.

        ``most_steps``: limit for this work; else the one of an outcome.
        """
        before = getattr(self._thread, "remaining_steps", None)
        self._thread.remaining_steps = self._most_steps if most_steps is None else most_steps
        try:
            yield
        finally:
            self._thread.remaining_steps = before
            self.trim()

    def trim(self) -> None:
        """Drop all that is kept where it is more than the budget."""
        if self.bytes > self._most_bytes:
            self.clear()

    def clear(self) -> None:
        """Drop all that is kept."""
        for clear in self._clears:
            clear()
        self.bytes = 0
