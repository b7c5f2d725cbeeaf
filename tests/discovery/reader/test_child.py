# SPDX-License-Identifier: Apache-2.0
"""A device reader process as the agent holds it: its frames, its deadlines, and how it ended."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from discovery.driver_errors import ProtocolViolation
from discovery.model import Driver
from discovery.reader import child as child_module
from discovery.reader.child import STARTUP_SECONDS, Child, Died, Hung
from discovery.reader.protocol import (
    MAX_FRAME_BYTES,
    Discover,
    Done,
    DriverFrame,
    Event,
    EventsLost,
    Grown,
    ReaderMessage,
    RequestRefused,
    Start,
    Touching,
    XidSeen,
    frame,
)
from tests.discovery.reader.reader_bench import SOON

GPU = "0000:10:00.0"
DRIVER = DriverFrame(request=1, driver=Driver(version="550.54.15"), listed=(GPU,))
AT_DRIVER, AT_GPU = (Touching(request=1, bus_id=bus_id, first=True) for bus_id in (None, GPU))
SCRIPT = """\
import os, pathlib, sys, time
left = memoryview(pathlib.Path(__file__).with_name("frames").read_bytes())
while left:
    left = left[os.write(0, left):]
if pathlib.Path(__file__).with_name("stay").exists():
    time.sleep(600)
"""

Speaks = Callable[..., Child]


@pytest.fixture
def events() -> list[Event | Grown]:
    return []


@pytest.fixture
def speaks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, events: list[Event | Grown]
) -> Iterator[Speaks]:
    """Starts a process that sends this, whatever it is asked for, and ends or stays."""
    started: list[Child] = []
    program = tmp_path / "program.py"
    program.write_text(SCRIPT, "utf-8")

    def start(*said: ReaderMessage | bytes, stays: bool = False) -> Child:
        sent = (it if isinstance(it, bytes) else frame(it) for it in said)
        (tmp_path / "frames").write_bytes(b"".join(sent))
        if stays:
            (tmp_path / "stay").touch()
        monkeypatch.setattr(child_module, "PROGRAM", program)
        started.append(Child(Start(), lambda _child, event: events.append(event)))
        return started[-1]

    yield start
    for child in started:
        child.kill()
        assert child.wait(SOON)


def waits(_call: Touching | None, _waited_seconds: float) -> float:
    return SOON


def test_the_answer_to_a_request_ends_with_its_last_frame(speaks: Speaks) -> None:
    child = speaks(AT_DRIVER, DRIVER, Done(request=1), stays=True)
    assert list(child.ask(Discover(request=1), waits)) == [DRIVER, Done(request=1)]


def test_a_refusal_ends_an_answer_too(speaks: Speaks) -> None:
    refused = RequestRefused(request=1, kind="absent", text="no driver")
    child = speaks(AT_DRIVER, refused, stays=True)
    assert list(child.ask(Discover(request=1), waits)) == [refused]


def test_frames_that_answer_an_earlier_request_are_passed_over(speaks: Speaks) -> None:
    child = speaks(DRIVER, Done(request=1), Done(request=2), stays=True)
    assert list(child.ask(Discover(request=2), waits)) == [Done(request=2)]


def test_what_was_announced_has_returned_with_the_frame_after_it(speaks: Speaks) -> None:
    child = speaks(AT_DRIVER, DRIVER, AT_GPU, stays=True)
    answers = child.ask(Discover(request=1), lambda call, _: 0.0 if call == AT_GPU else SOON)
    assert child.returned == set()
    assert next(answers) == DRIVER
    assert child.returned == {None}
    with pytest.raises(Hung, match="no frame within the deadline") as hung:
        next(answers)
    assert hung.value.call == AT_GPU
    assert child.returned == {None}


def test_the_first_frame_has_time_for_the_interpreter_and_the_others_have_not(
    speaks: Speaks,
) -> None:
    waited: list[tuple[Touching | None, float]] = []

    def patience(call: Touching | None, waited_seconds: float) -> float:
        waited.append((call, waited_seconds))
        return SOON if len(waited) < 3 else 0.0

    child = speaks(AT_DRIVER, DRIVER, stays=True)
    with pytest.raises(Hung):
        list(child.ask(Discover(request=1), patience))
    calls, seconds = zip(*waited, strict=True)
    assert calls == (None, AT_DRIVER, AT_DRIVER)
    assert -STARTUP_SECONDS <= seconds[0] < 0.0
    assert all(it >= 0.0 for it in seconds[1:])


def test_a_process_that_ends_in_a_request_names_what_it_was_doing(speaks: Speaks) -> None:
    child = speaks(AT_GPU)
    how = "it closed its socket|Connection reset by peer"  # by what it has left unread
    with pytest.raises(Died, match=how) as died:
        list(child.ask(Discover(request=1), waits))
    assert died.value.call == AT_GPU


def test_a_process_that_sends_nonsense_is_as_good_as_dead(speaks: Speaks) -> None:
    child = speaks(AT_DRIVER, b"\xff\xff\xff\xff", stays=True)
    with pytest.raises(Died, match=f"frame of 4294967295 bytes, above {MAX_FRAME_BYTES}"):
        list(child.ask(Discover(request=1), waits))


def test_events_come_whenever_they_are_sent(speaks: Speaks, events: list[Event | Grown]) -> None:
    sent: list[Event | Grown] = [XidSeen(bus_id=GPU, code=79), EventsLost(text="waiting fails")]
    child = speaks(sent[0], DRIVER, sent[1], Done(request=1), stays=True)
    assert list(child.ask(Discover(request=1), waits)) == [DRIVER, Done(request=1)]
    assert events == sent


def test_a_frame_that_is_too_large_is_not_sent() -> None:
    with pytest.raises(ProtocolViolation, match="EventsLost of 4194"):
        frame(EventsLost(text="x" * MAX_FRAME_BYTES))


# how it ended


@pytest.fixture
def child() -> Iterator[Child]:
    """A real reader that nobody has asked for anything."""
    child = Child(Start(), lambda _child, _event: None)
    yield child
    child.kill()


def ends(child: Child, caplog: pytest.LogCaptureFixture) -> list[tuple[object, ...]]:
    """What was logged of its end, once the thread that logs it is over."""
    assert child.wait(SOON)
    for thread in threading.enumerate():
        if thread.name == "reader":
            thread.join(SOON)
    return [
        (vars(it)["reader"], vars(it)["how"], vars(it)["stderr"])
        for it in caplog.records
        if it.getMessage() == "device reader ended"
    ]


@pytest.mark.parametrize("end", [Child.stop, Child.terminate])
def test_the_end_that_was_asked_for_is_not_logged(
    child: Child, caplog: pytest.LogCaptureFixture, end: Callable[[Child], None]
) -> None:
    assert not child.ended
    end(child)
    assert ends(child, caplog) == []
    assert child.ended


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_an_end_that_nobody_asked_for_is_logged_with_its_process_id(
    child: Child, caplog: pytest.LogCaptureFixture, number: signal.Signals
) -> None:
    os.kill(child.pid, number)
    assert ends(child, caplog) == [(child.pid, number.name, "empty")]


def test_another_end_than_the_one_that_was_asked_for_is_logged(
    child: Child, caplog: pytest.LogCaptureFixture
) -> None:
    os.kill(child.pid, signal.SIGSTOP)
    child.stop()
    assert not child.wait(0.0)
    child.kill()
    assert ends(child, caplog) == [(child.pid, "SIGKILL", "empty")]


def test_what_a_reader_printed_last_is_logged_with_its_end(
    speaks: Speaks, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    (tmp_path / "program.py").write_text("raise SystemExit('NVRM: assertion failed')", "utf-8")
    child = speaks()
    assert ends(child, caplog) == [(child.pid, "exit status 1", "NVRM: assertion failed")]
