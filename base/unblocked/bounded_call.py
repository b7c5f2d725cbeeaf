# SPDX-License-Identifier: Apache-2.0
"""A call that may never return, such as one to a file system that hangs, with a deadline."""

from __future__ import annotations

import queue
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from base import threads
from base.errors import Transient

Result = TypeVar("Result")


class NoReturn(Transient):
    """The call has not returned in time; its thread is left behind."""


def bounded(call: Callable[[], Result], seconds: float, name: str) -> Result:
    """What the call returns, made in a thread of this name.

    Raises NoReturn when it has not returned by then, NoThread, and what the call raises.
    """
    done: queue.SimpleQueue[Future[Result]] = queue.SimpleQueue()

    def run() -> None:
        future = Future[Result]()
        try:
            future.set_result(call())
        except BaseException as error:  # raised where the result is taken
            future.set_exception(error)
        done.put(future)

    threads.started(run, name)
    try:
        future = done.get(timeout=seconds)
    except queue.Empty:
        raise NoReturn(f"no answer within {seconds:g} s") from None
    return future.result()
