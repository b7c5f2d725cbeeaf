# SPDX-License-Identifier: Apache-2.0
"""``gpuscape top`` in a real terminal, which a terminal emulator that is not ours reads."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from select import select

import pyte
import pytest
import yaml

from kubelet.podresources import podresources_pb2 as wire
from simulator.description.machine_catalog import load_machine
from simulator.simulation import Hang, Simulation
from tests.agent.agent_process import GPUSCAPE
from tests.kubelet.podresources_server import message, serving
from tests.observed import observed

MACHINE = "a30-pair"
FIRST, SECOND = (gpu.bus_id for gpu in load_machine(MACHINE).gpus)
WAIT_SECONDS = 60.0
ENVIRONMENT = {"PATH": os.environ.get("PATH", ""), "TERM": "xterm-256color", "HOME": "/nonexistent"}


class Terminal:
    """A terminal of some size with a program in it."""

    def __init__(self, *arguments: str, columns: int = 80, lines: int = 24, **more: str) -> None:
        self._ours, theirs = pty.openpty()
        self.screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self.screen)
        self.written = b""
        self._device = theirs
        self.resize(columns, lines)
        self.modes = termios.tcgetattr(theirs)
        self.process = subprocess.Popen(
            [str(GPUSCAPE), "top", *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=ENVIRONMENT | more,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )

    def resize(self, columns: int, lines: int) -> None:
        """Give the terminal another size; the kernel tells the program."""
        self.screen.resize(lines, columns)
        fcntl.ioctl(self._device, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self._ours, text.encode())

    @property
    def text(self) -> str:
        """What it shows now."""
        return "\n".join(self.screen.display)

    @property
    def last_frame(self) -> str:
        """What a new terminal of this size shows of the last whole frame."""
        frame = self.written.split(b"\x1b[?2026h")[-1]
        assert b"\x1b[?2026l" in frame
        screen = pyte.Screen(self.screen.columns, self.screen.lines)
        pyte.ByteStream(screen).feed(frame)
        return "\n".join(screen.display)

    def until(self, holds: Callable[[], bool]) -> None:
        """Show what comes until this holds."""
        end = time.monotonic() + WAIT_SECONDS
        while not holds():
            assert time.monotonic() < end, self.text
            self._take(0.1)

    def end(self) -> int:
        """Wait for the program's end; its exit code."""
        self.until(lambda: self.process.poll() is not None)
        while self._take(0.2):
            pass
        return self.process.returncode

    def close(self) -> None:
        """End the program, if it has not."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._ours)
        os.close(self._device)

    def _take(self, seconds: float) -> bool:
        if not select([self._ours], [], [], seconds)[0]:
            return False
        read = os.read(self._ours, 1 << 16)
        self.written += read
        self._stream.feed(read)
        return True


@pytest.fixture
def machine(tmp_path: Path) -> Simulation:
    """Two GPUs with a bridge, of which the first is busy."""
    made = Simulation.create(MACHINE, tmp_path)
    made.add_process(FIRST, 4242, name="python3", memory_mib=12288, percent=60)
    return made


@pytest.fixture
def terminal(machine: Simulation) -> Iterator[Terminal]:
    """With the view of that machine."""
    made = Terminal("--simulate", str(machine.state_file), "--interval", "500ms")
    yield made
    made.close()


def test_it_lives_in_a_terminal_and_leaves_it_as_it_was(
    machine: Simulation, terminal: Terminal
) -> None:
    terminal.until(lambda: "60 %" in terminal.text and "4242" in terminal.text)
    assert "12.0/24.0" in terminal.text
    assert not termios.tcgetattr(terminal._device)[3] & termios.ICANON

    machine.add_process(SECOND, 5151, memory_mib=1024, percent=35)
    terminal.until(lambda: "5151" in terminal.text and "35 %" in terminal.text)

    assert "BUS ID" not in terminal.text
    terminal.resize(200, 30)
    terminal.until(lambda: "BUS ID" in terminal.text)
    terminal.resize(60, 20)
    terminal.until(lambda: "BUS ID" not in terminal.text and "5151" in terminal.text)

    machine.remove_process(5151)
    terminal.until(lambda: "5151" not in terminal.text and "4242" in terminal.text)
    assert terminal.text == terminal.last_frame

    terminal.type("q")
    assert terminal.end() == 0
    assert termios.tcgetattr(terminal._device) == terminal.modes
    for begun, ended in ((b"?1049h", b"?1049l"), (b"?25l", b"?25h"), (b"?7l", b"?7h")):
        assert terminal.written.count(begun) == 1
        assert terminal.written.rindex(ended) > terminal.written.rindex(b"\x1b[H")
    assert b"\x1b[2J" not in terminal.written  # what is cleared before it is drawn flickers


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_leave_the_terminal_as_it_was(terminal: Terminal, number: signal.Signals) -> None:
    terminal.until(lambda: "60 %" in terminal.text)
    terminal.process.send_signal(number)
    assert terminal.end() == 0
    assert termios.tcgetattr(terminal._device) == terminal.modes
    assert terminal.written.endswith(b"\x1b[?7h\x1b[?25h\x1b[?1049l")


def test_a_gpu_that_hangs_is_shown_and_the_other_goes_on(machine: Simulation) -> None:
    shown = Terminal(
        *("--simulate", str(machine.state_file), "--interval", "500ms", "--deadline", "1s"),
        columns=120,
    )
    try:
        shown.until(lambda: "60 %" in shown.text)
        fault = machine.fault(Hang(), bus_id=SECOND)
        shown.until(lambda: "hung" in shown.text and "1 not answering" in shown.text)
        machine.set_readings(FIRST, gpu_percent=77)
        shown.until(lambda: "77 %" in shown.text)
        machine.clear(fault)
        shown.type("q")
        assert shown.end() == 0
    finally:
        shown.close()


def test_no_color_is_respected(machine: Simulation) -> None:
    plain = Terminal("--simulate", str(machine.state_file), "--once", NO_COLOR="1")
    coloured = Terminal("--simulate", str(machine.state_file), "--once")
    try:
        assert (plain.end(), coloured.end()) == (0, 0)
        assert b"\x1b" not in plain.written
        assert b"\x1b[" in coloured.written
        assert b"?1049h" not in coloured.written
        assert max(map(len, plain.written.decode().splitlines())) <= 80
    finally:
        plain.close()
        coloured.close()


def test_without_a_terminal_it_is_one_table(machine: Simulation) -> None:
    command = [str(GPUSCAPE), "top", "--simulate", str(machine.state_file)]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=True)
    assert "\x1b" not in done.stdout
    assert "4242" in done.stdout
    document = json.loads(subprocess.check_output([*command, "-o", "json"], env=ENVIRONMENT))
    first, second = document["gpus"]
    assert (first["busy_ratio"], second["busy_ratio"]) == (0.6, 0.0)
    assert first["nvlink_sent_bytes_per_second"] > second["nvlink_sent_bytes_per_second"]
    assert [each["pid"] for each in first["processes"]] == ["4242"]


def test_the_kubelet_names_pods(machine: Simulation, tmp_path: Path) -> None:
    uuid = observed(MACHINE).snapshot.gpus[0].uuid or ""
    gpu = wire.ContainerDevices(resource_name="nvidia.com/gpu", device_ids=[uuid])
    container = wire.ContainerResources(name="main", devices=[gpu])
    pod = wire.PodResources(name="train-0", namespace="team-a", containers=[container])
    socket = tmp_path / "kubelet.sock"
    answers = {
        "List": message(wire.ListPodResourcesResponse(pod_resources=[pod])),
        "GetAllocatableResources": message(wire.AllocatableResourcesResponse(devices=[gpu])),
    }
    command = [str(GPUSCAPE), "top", "--simulate", str(machine.state_file), "-o", "yaml"]
    with serving(socket, answers):
        more = ["--pod-resources-socket", str(socket)]
        document = yaml.safe_load(subprocess.check_output([*command, *more], env=ENVIRONMENT))
    first, second = document["gpus"]
    assert (first["pods"], second["pods"]) == (["team-a/train-0/main"], [])
    assert first["processes"][0]["pod"] == "team-a/train-0/main"
    assert document["notes"] == []


def test_no_driver_is_one_sentence() -> None:
    command = [str(GPUSCAPE), "top", "--simulate", "no-driver"]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (3, "")
    assert len(done.stderr.splitlines()) == 1
