# SPDX-License-Identifier: Apache-2.0
"""Signals reach who takes them, in the order in which they came."""

from __future__ import annotations

import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from base.process import process_signals

SOON = 30.0
ROOT = Path(__file__).resolve().parents[3]


def test_signals_that_came_while_another_was_taken_follow_in_their_order() -> None:
    taken: queue.Queue[signal.Signals] = queue.Queue()
    others_came = threading.Event()

    def take(number: signal.Signals) -> None:
        taken.put(number)
        others_came.wait()

    with process_signals.delivered_signals(take):
        signal.raise_signal(signal.SIGHUP)
        assert taken.get(timeout=SOON) is signal.SIGHUP
        for number in (signal.SIGUSR2, signal.SIGUSR1, signal.SIGUSR2):
            signal.raise_signal(number)
        others_came.set()
        found = [taken.get(timeout=SOON) for _ in range(2)]
    assert found == [signal.SIGUSR2, signal.SIGUSR1]


OBEYED = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2}


def in_a_thread(run: Callable[[], object]) -> object:
    """What a thread of its own finds, whose signal mask goes with it."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(run).result(SOON)


def test_held_signals_wait_and_all_others_are_taken_as_before() -> None:
    def held() -> set[int]:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
        process_signals.hold_signals()
        return signal.pthread_sigmask(signal.SIG_BLOCK, []) - before

    assert in_a_thread(held) == OBEYED


def test_released_signals_wait_no_longer() -> None:
    def released() -> set[int]:
        signal.pthread_sigmask(signal.SIG_BLOCK, [*OBEYED, signal.SIGWINCH])
        process_signals.release_signals()
        return set(signal.pthread_sigmask(signal.SIG_BLOCK, []))

    assert in_a_thread(released) == {signal.SIGWINCH}


def test_a_signal_that_came_while_all_were_held_is_delivered() -> None:
    taken: queue.Queue[signal.Signals] = queue.Queue()
    process_signals.hold_signals()
    try:
        signal.raise_signal(signal.SIGHUP)
        assert signal.sigpending() == {signal.SIGHUP}
        with process_signals.delivered_signals(taken.put):
            assert taken.get(timeout=SOON) is signal.SIGHUP
            assert not signal.pthread_sigmask(signal.SIG_BLOCK, []) & OBEYED
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, OBEYED)


@pytest.mark.parametrize("number", sorted(OBEYED))
def test_each_signal_is_delivered_in_a_thread_that_keeps_no_program_alive(
    number: signal.Signals,
) -> None:
    taken: queue.Queue[tuple[signal.Signals, str, bool]] = queue.Queue()

    def take(found: signal.Signals) -> None:
        thread = threading.current_thread()
        taken.put((found, thread.name, thread.daemon))

    with process_signals.delivered_signals(take):
        signal.raise_signal(number)
        assert taken.get(timeout=SOON) == (number, "signals", True)


def test_afterwards_handlers_are_as_before_and_the_thread_ends() -> None:
    threads: queue.Queue[threading.Thread] = queue.Queue()
    before = {number: signal.getsignal(number) for number in OBEYED}

    with process_signals.delivered_signals(lambda _number: threads.put(threading.current_thread())):
        signal.raise_signal(signal.SIGUSR1)
        thread = threads.get(timeout=SOON)
        assert all(signal.getsignal(number) != before[number] for number in OBEYED)
    thread.join(SOON)

    assert {number: signal.getsignal(number) for number in OBEYED} == before
    assert not thread.is_alive()
    wakeup = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(wakeup)
    assert wakeup == -1


SECOND_SIGNAL_WITHIN_WAIT = """
import signal
from base.process import process_signals

ended = process_signals.end_event()
signal.raise_signal(signal.SIGINT)
with ended._cond:  # as wait() has it for a moment when it returns
    signal.raise_signal(signal.SIGTERM)
ended.wait()
signal.raise_signal(signal.SIGTERM)
print("ended")
"""


def test_a_second_signal_while_the_first_one_ends_the_wait_does_not_block_the_end() -> None:
    """Ctrl-C reaches a terminal's programs, and SIGTERM comes from the one that started them."""
    ran = subprocess.run(
        [sys.executable, "-c", SECOND_SIGNAL_WITHIN_WAIT],
        capture_output=True,
        text=True,
        timeout=SOON,
        check=False,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "ended\n", "")


@pytest.mark.parametrize(
    "program",
    [
        "actuator/service/actuator_program.py",
        "fleet/coordinator_program.py",
        "scheduler/certificates/certificates_program.py",
        "scheduler/extender/extender_program.py",
    ],
)
def test_no_program_takes_signals_in_handlers_of_its_own(program: str) -> None:
    assert "signal.signal(" not in (ROOT / program).read_text(encoding="utf-8")
