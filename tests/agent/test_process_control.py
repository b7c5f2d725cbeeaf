# SPDX-License-Identifier: Apache-2.0
"""What signals ask of the process: each once, the end before all else, the readers before that."""

from __future__ import annotations

import signal

import pytest

from agent import process_control
from agent.process_control import EXIT_OK, ProcessControl, SignalRequest
from tests.agent.agent_process import until


@pytest.fixture
def left() -> list[int]:
    """The statuses with which the process was ended."""
    return []


@pytest.fixture
def control(left: list[int], monkeypatch: pytest.MonkeyPatch) -> ProcessControl:
    monkeypatch.setattr(process_control, "END_SECONDS", 0.01)
    return ProcessControl(left.append)


def _waiting(control: ProcessControl) -> list[SignalRequest]:
    found = []
    while (request := control.next(0)) is not None:
        found.append(request)
    return found


def test_requests_are_met_once_and_in_order(control: ProcessControl) -> None:
    for number in (signal.SIGUSR1, signal.SIGHUP, signal.SIGHUP, signal.SIGHUP):
        control.take(number)
    assert _waiting(control) == [SignalRequest.RELEASE, SignalRequest.RELOAD]


def test_of_release_and_resume_the_last_one_holds(control: ProcessControl) -> None:
    for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP, signal.SIGUSR1):
        control.take(number)
    assert _waiting(control) == [SignalRequest.RELOAD, SignalRequest.RELEASE]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_end_goes_first(control: ProcessControl, number: signal.Signals) -> None:
    control.take(signal.SIGHUP)
    assert not control.ending
    control.take(number)
    assert control.ending
    assert control.next(0) is SignalRequest.END


def test_the_end_closes_what_is_open_and_what_is_opened_later(control: ProcessControl) -> None:
    closed = []
    with control.closed_first(lambda: closed.append("before")):
        assert closed == []
        control.take(signal.SIGTERM)
        assert closed == ["before"]
        with control.closed_first(lambda: closed.append("after")):
            assert closed == ["before", "after"]


def test_what_was_closed_is_not_closed_again_by_the_end(control: ProcessControl) -> None:
    closed = []
    with control.closed_first(lambda: closed.append("once")):
        pass
    control.take(signal.SIGTERM)
    assert closed == ["once"]


def test_the_process_is_left_in_time_with_the_status_of_what_began_the_end(
    control: ProcessControl, left: list[int]
) -> None:
    control.end(75)
    control.take(signal.SIGTERM)
    until(lambda: left == [75])
    control.leave(EXIT_OK)
    assert left == [75, 75]


def test_without_an_end_the_process_is_left_with_its_own_status(
    control: ProcessControl, left: list[int]
) -> None:
    control.leave(3)
    assert left == [3]
