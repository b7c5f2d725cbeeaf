# SPDX-License-Identifier: Apache-2.0
"""Calls that may each take long, made at once."""

from __future__ import annotations

import functools
import queue
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import TypeVar

from base import threads

Result = TypeVar("Result")


def concurrently(calls: Iterable[Callable[[], Result]], name: str) -> Iterator[Result]:
    """Make each call in a thread of this name; results in the order in which they come.

    Raises what a call raises. A call for which there is no thread is made by the caller's own.
    """
    done: queue.SimpleQueue[Future[Result]] = queue.SimpleQueue()

    def make(call: Callable[[], Result]) -> None:
        future = Future[Result]()
        try:
            future.set_result(call())
        except BaseException as error:  # raised where the result is taken
            future.set_exception(error)
        done.put(future)

    count = 0
    for call in calls:
        count += 1
        try:
            threads.started(functools.partial(make, call), name)
        except threads.NoThread:
            make(call)
    for _ in range(count):
        yield done.get().result()
