# SPDX-License-Identifier: Apache-2.0
"""Signals reach who takes them, in the order in which they came."""

from __future__ import annotations

import queue
import signal
import threading

from base import process_signals

SOON = 30.0


def test_signals_that_came_while_another_was_taken_follow_in_their_order() -> None:
    taken: queue.Queue[signal.Signals] = queue.Queue()
    others_came = threading.Event()

    def take(number: signal.Signals) -> None:
        taken.put(number)
        others_came.wait()

    with process_signals.delivered(take):
        signal.raise_signal(signal.SIGHUP)
        assert taken.get(timeout=SOON) is signal.SIGHUP
        for number in (signal.SIGUSR2, signal.SIGUSR1, signal.SIGUSR2):
            signal.raise_signal(number)
        others_came.set()
        found = [taken.get(timeout=SOON) for _ in range(2)]
    assert found == [signal.SIGUSR2, signal.SIGUSR1]
