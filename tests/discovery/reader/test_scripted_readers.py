# SPDX-License-Identifier: Apache-2.0
"""What the agent makes of what reader processes say, hang at and die of: each step is scripted."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from base.errors import Transient
from discovery.driver_errors import DriverAbsent, DriverMismatch, ReaderGone, ReaderStuck
from discovery.model import Driver, GpuState
from discovery.reader import child as child_module
from discovery.reader.device_reader import DeviceReader
from discovery.reader.protocol import (
    Done,
    DriverFrame,
    GpuFrame,
    ReaderMessage,
    RequestRefused,
    SampleFrame,
    Start,
    Touching,
    XidSeen,
)
from discovery.reader.reader_events import EVENTS_KEPT
from discovery.sample import ReadingGroup
from discovery.unread import unread_sample
from tests import build
from tests.discovery.reader.reader_bench import until

PROGRAM = """\
import json, os, pathlib, struct, sys, time
here = pathlib.Path(__file__).parent
number = len(list(here.glob("received-*")))
received = (here / f"received-{number}").open("w")
scripts = json.loads((here / "scripts").read_text())
script = scripts[min(number, len(scripts) - 1)]
def receive():
    (length,) = struct.unpack(">I", os.read(0, 4))
    message = os.read(0, length).decode()
    print(message, file=received, flush=True)
    return json.loads(message)
def send(step, request):
    if "request" in step:
        step["request"] = request
    body = json.dumps(step).encode()
    left = struct.pack(">I", len(body)) + body
    while left:
        left = left[os.write(0, left):]
receive()
while True:
    message = receive()
    if message["type"] == "Stop":
        break
    for step in script.pop(0):
        if step == "hang":
            time.sleep(600)
        if step == "die":
            os._exit(70)
        send(step, message["request"])
"""
DEADLINE_SECONDS = 0.3
A, B = build.gpu(0), build.gpu(1)
HEAD = DriverFrame(request=0, driver=Driver(version="550.54.15"), listed=(A.bus_id, B.bus_id))
DONE = Done(request=0)
AT_DRIVER = Touching(request=0, bus_id=None)
AT_A, AT_B = (Touching(request=0, bus_id=gpu.bus_id) for gpu in (A, B))
FOUND_A, FOUND_B = (GpuFrame(request=0, gpu=gpu) for gpu in (A, B))
READ_A, READ_B = (SampleFrame(request=0, sample=unread_sample(gpu.bus_id)) for gpu in (A, B))
ALL = [AT_DRIVER, HEAD, AT_A, FOUND_A, AT_B, FOUND_B, DONE]
SAMPLES = [AT_DRIVER, AT_A, READ_A, AT_B, READ_B, DONE]

Step = ReaderMessage | str
Script = Sequence[Sequence[Step]]
"""The steps that answer each request of one process."""


Starts = Callable[..., "closing[Scripted]"]


class Scripted:
    """A reader whose processes follow scripts, and a clock that the test sets."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, *scripts: Script) -> None:
        self._folder = folder
        (folder / "program.py").write_text(PROGRAM, "utf-8")
        (folder / "scripts").write_bytes(msgspec.json.encode(scripts))
        monkeypatch.setattr(child_module, "PROGRAM", folder / "program.py")
        self.now = 1000.0
        self.news = 0
        self.reader = DeviceReader(
            Start(),
            deadline_seconds=DEADLINE_SECONDS,
            init_seconds=DEADLINE_SECONDS,
            on_news=self._on_news,
            clock=lambda: self.now,
        )

    def _on_news(self) -> None:
        self.news += 1

    def close(self) -> None:
        self.reader.close()

    def received(self, process: int) -> list[dict[str, Any]]:
        """What one of the processes was sent."""
        lines = (self._folder / f"received-{process}").read_text("utf-8").splitlines()
        return [json.loads(line) for line in lines]

    def states(self) -> list[str]:
        return [gpu.state.value for gpu in self.reader.discover().gpus]


@pytest.fixture
def scripted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Starts:
    """Makes a reader whose first process follows the first script and so on, the last for ever."""
    return lambda *scripts: closing(Scripted(tmp_path, monkeypatch, *scripts))


def test_requests_are_numbered_and_answered_by_one_process(scripted: Starts) -> None:
    with scripted([ALL, SAMPLES, ALL]) as one:
        assert one.states() == ["present", "present"]
        samples = one.reader.sample((ReadingGroup.ECC,))
        assert [it.bus_id for it in samples] == [A.bus_id, B.bus_id]
        assert one.states() == ["present", "present"]
        start, *requests = one.received(0)
        assert (start["skip"], start.get("only")) == ([], None)
        assert requests == [
            {"type": "Discover", "request": 1},
            {"type": "Sample", "request": 2, "groups": ["ecc"]},
            {"type": "Discover", "request": 3},
        ]
        health = one.reader.health()
        assert (health.starts, health.hangs, health.deaths, health.event_losses) == (1, 0, 0, 0)


def test_a_gpu_that_hangs_is_skipped_by_the_process_that_goes_on(scripted: Starts) -> None:
    hangs = [AT_DRIVER, HEAD, AT_A, "hang"]
    with scripted([hangs], [[AT_DRIVER, HEAD, AT_B, FOUND_B, DONE]]) as one:
        hung, well = one.reader.discover().gpus
        gap = hung.gap("state")
        assert (hung.state, well.state) == (GpuState.HUNG, GpuState.PRESENT)
        assert gap is not None
        assert gap.detail == "no answer within 0.3 s"
        assert one.received(1)[0]["skip"] == [A.bus_id]
        health = one.reader.health()
        assert (health.starts, health.hangs, health.deaths, health.event_losses) == (2, 1, 0, 1)
        assert health.quarantined == (A.bus_id,)
        assert health.missed_once == {A.bus_id}
        assert (health.stuck, one.news) == (0, 1)


def test_a_process_that_hangs_unannounced_blames_no_gpu(scripted: Starts) -> None:
    with scripted([[HEAD, "hang"]], [ALL]) as one:
        assert one.states() == ["present", "present"]
        assert (one.reader.health().hangs, one.reader.health().quarantined) == (1, ())


def test_a_driver_that_hangs_as_a_whole_is_said_to(scripted: Starts) -> None:
    with scripted([[AT_DRIVER, "hang"]], [ALL]) as one:
        with pytest.raises(ReaderStuck) as stuck:
            one.reader.discover()
        assert str(stuck.value) == "the NVIDIA driver as a whole: no answer within 0.3 s"
        assert one.reader.health().quarantined == ()
        assert one.states() == ["present", "present"]  # it has ended, so another may start


def test_two_deaths_in_a_row_on_a_gpu_isolate_it(scripted: Starts) -> None:
    dies = [AT_DRIVER, HEAD, AT_A, FOUND_A, AT_B, "die"]
    with scripted([dies], [dies], [[AT_DRIVER, HEAD, AT_A, FOUND_A, DONE]]) as one:
        well, dead = one.reader.discover().gpus
        gap = dead.gap("state")
        assert (well.state, dead.state) == (GpuState.PRESENT, GpuState.UNREADABLE)
        assert gap is not None
        assert gap.detail.startswith("the device reader died on it: ")
        health = one.reader.health()
        assert (health.starts, health.hangs, health.deaths, health.event_losses) == (3, 0, 2, 2)
        assert one.received(2)[0]["skip"] == [B.bus_id]


def test_four_processes_that_die_one_after_the_other_are_enough(scripted: Starts) -> None:
    with scripted([["die"]]) as one:
        with pytest.raises(ReaderGone, match="the device reader ended 4 times in a row"):
            one.reader.discover()
        assert one.reader.health().starts == 4


def test_a_gpu_that_is_isolated_starts_the_count_again(scripted: Starts) -> None:
    dies = [AT_DRIVER, HEAD, AT_A, "die"]
    with scripted(*[[dies]] * 2, *[[["die"]]] * 3, [[AT_DRIVER, HEAD, AT_B, FOUND_B, DONE]]) as one:
        assert one.states() == ["unreadable", "present"]
        assert one.reader.health().deaths == 5


@pytest.mark.parametrize(
    ("kind", "error"),
    [("absent", DriverAbsent), ("mismatch", DriverMismatch), ("failed", Transient)],
)
def test_a_refusal_is_raised_and_the_next_process_asked_anew(
    scripted: Starts, kind: Any, error: type[Transient]
) -> None:
    refused = RequestRefused(request=0, kind=kind, text="what to do")
    with scripted([ALL, [AT_DRIVER, refused], SAMPLES], [SAMPLES]) as one:
        one.reader.discover()
        with pytest.raises(Transient) as caught:
            one.reader.sample()
        assert (type(caught.value), str(caught.value)) == (error, "what to do")
        assert len(one.reader.sample()) == 2
        assert one.reader.health().starts == 2
        until(lambda: one.received(0)[-1] == {"type": "Stop"})


def test_an_answer_without_a_driver_is_none(scripted: Starts) -> None:
    with (
        scripted([[AT_DRIVER, DONE]]) as one,
        pytest.raises(ReaderGone, match="ended its answer without naming a driver"),
    ):
        one.reader.discover()


def test_while_a_gpu_does_not_answer_each_discovery_has_a_new_session(scripted: Starts) -> None:
    """NVML counts GPUs when a session begins."""
    lost = GpuFrame(request=0, gpu=build.silent(0))
    silent = [AT_DRIVER, HEAD, AT_A, lost, AT_B, FOUND_B, DONE]
    with scripted([silent, SAMPLES], [ALL, ALL]) as one:
        assert one.states()[1:] == ["present"]
        one.reader.sample()
        assert one.reader.health().starts == 1
        assert one.states() == one.states() == ["present", "present"]
        assert one.reader.health().starts == 2


def test_readings_made_before_all_goes_wrong_are_kept_and_none_is_an_error(
    scripted: Starts,
) -> None:
    with scripted([[AT_DRIVER, AT_A, READ_A, AT_DRIVER, "hang"]], [[AT_DRIVER, "hang"]]) as one:
        assert [it.bus_id for it in one.reader.sample()] == [A.bus_id]
        with pytest.raises(ReaderStuck):
            one.reader.sample()


def test_events_are_given_once_and_the_oldest_are_lost(scripted: Starts) -> None:
    seen = [XidSeen(bus_id=A.bus_id, code=code) for code in range(EVENTS_KEPT + 2)]
    with scripted([[AT_DRIVER, *seen, HEAD, DONE]]) as one:
        one.reader.discover()
        assert one.reader.events() == tuple(seen[2:])
        assert one.reader.events() == ()
        assert (one.reader.health().event_losses, one.news) == (2, EVENTS_KEPT + 2)


def test_a_probe_reads_its_gpu_alone_and_all_that_was_asked_for_last(scripted: Starts) -> None:
    rest = [AT_DRIVER, AT_B, READ_B, DONE]
    answers = [[AT_DRIVER, HEAD, AT_A, FOUND_A, DONE], [AT_DRIVER, AT_A, READ_A, DONE]]
    with scripted([[AT_A, "hang"]], [rest], answers) as one:
        one.reader.sample((ReadingGroup.BAR1,))
        assert tuple(one.reader.probe()) == ()  # not due yet
        one.now += 5.0
        assert tuple(one.reader.probe()) == (A.bus_id,)
        start, *requests = one.received(2)[:3]
        assert (start["only"], start["skip"]) == ([A.bus_id], [])
        assert [it["type"] for it in requests] == ["Discover", "Sample"]
        assert requests[1]["groups"] == ["bar1"]
        assert one.reader.health().quarantined == ()


@pytest.mark.parametrize("failure", ["hang", "die", None])
def test_a_probe_without_an_answer_leaves_its_gpu_alone(
    scripted: Starts, failure: str | None
) -> None:
    """Also where the reader lists other GPUs alone."""
    rest = [AT_DRIVER, AT_B, READ_B, DONE]
    probe = [AT_DRIVER, HEAD, DONE] if failure is None else [AT_DRIVER, HEAD, AT_A, failure]
    with scripted([[AT_A, "hang"]], [rest], [probe, [DONE]]) as one:
        one.reader.sample()
        one.now += 5.0
        assert tuple(one.reader.probe()) == ()
        health = one.reader.health()
        assert health.quarantined == (A.bus_id,)
        assert (A.bus_id in health.missed_once) is (failure is None)
        assert (health.hangs, health.deaths) == (1, 0)  # a probe is nobody's reader
