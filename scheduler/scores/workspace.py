# SPDX-License-Identifier: Apache-2.0
"""What computing the outcomes of one topology class may take: bytes that are kept, and steps."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple, ParamSpec, TypeVar, cast

MOST_BYTES: Final = 16 << 20
"""Of all that is kept on the way to the outcomes of one class: twice what one outcome of 16 GPUs
needs at a time. Over it all of it is dropped."""
MOST_STEPS: Final = 5_000_000
"""Of one outcome: some twenty seconds. The longest of 16 GPUs behind NVSwitch takes most of it."""
_CHECKED_EVERY: Final = 4096

_Args = ParamSpec("_Args")
_Value = TypeVar("_Value")


class TooMuchWork(Exception):  # no error of the program: an outcome is given up
    """An outcome takes more steps than it may."""


class _Cache(NamedTuple):
    """One function whose results are kept."""

    bytes: Callable[[], int]
    clear: Callable[[], None]


class Workspace:
    """Caches of one class with a common budget, and the steps of the outcome in work. Thread-safe.

    Its memory goes with it, or at once by :meth:`clear`.
    """

    def __init__(self, most_bytes: int | None = None, most_steps: int | None = None) -> None:
        self._most_bytes = MOST_BYTES if most_bytes is None else most_bytes
        self._most_steps = MOST_STEPS if most_steps is None else most_steps
        self._caches: list[_Cache] = []
        self._thread = threading.local()

    @property
    def bytes(self) -> int:
        """About how much is kept now."""
        return sum(each.bytes() for each in self._caches)

    def cache(
        self, compute: Callable[_Args, _Value], entry_bytes: int = 200
    ) -> Callable[_Args, _Value]:
        """The same with its results kept. ``entry_bytes``: of one result with its key."""
        kept = functools.cache(compute)
        self._caches.append(
            _Cache(lambda: kept.cache_info().currsize * entry_bytes, kept.cache_clear)
        )
        return cast("Callable[_Args, _Value]", kept)

    def cache_by_size(
        self, compute: Callable[_Args, _Value], bytes_of: Callable[[_Value], int]
    ) -> Callable[_Args, _Value]:
        """The same for results of which some are large. It takes no arguments by name."""
        total = [0]

        @functools.cache
        def kept(*args: _Args.args, **kwargs: _Args.kwargs) -> _Value:
            found = compute(*args, **kwargs)
            total[0] += bytes_of(found)
            return found

        def clear() -> None:
            kept.cache_clear()
            total[0] = 0

        self._caches.append(_Cache(lambda: total[0], clear))
        return cast("Callable[_Args, _Value]", kept)

    def spend(self, steps: int = 1) -> None:
        """Count steps of work. Raises TooMuchWork where an outcome has taken all that it may."""
        left = getattr(self._thread, "left", None)
        if left is None:
            return
        self._thread.left = left - steps
        if left // _CHECKED_EVERY != (left - steps) // _CHECKED_EVERY:
            self.trim()
        if left < steps:
            raise TooMuchWork

    @contextmanager
    def counted(self, most_steps: int | None = None) -> Iterator[None]:
        """Count the steps of this thread within, and keep to the budget of bytes.

        ``most_steps``: in place of those of an outcome.
        """
        before = getattr(self._thread, "left", None)
        self._thread.left = self._most_steps if most_steps is None else most_steps
        try:
            yield
        finally:
            self._thread.left = before
            self.trim()

    def trim(self) -> None:
        """Drop all that is kept where it is more than the budget."""
        if self.bytes > self._most_bytes:
            self.clear()

    def clear(self) -> None:
        """Drop all that is kept."""
        for each in self._caches:
            each.clear()
