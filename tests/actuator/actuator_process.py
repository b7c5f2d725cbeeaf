# SPDX-License-Identifier: Apache-2.0
"""``gpuscape actuator`` as a process on a simulated node, and what can be sent to its socket."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from api.actuator.actuator_client import ask_actuator
from api.actuator.actuator_messages import (
    ActuatorAnswer,
    ActuatorRequest,
    ApplyRequest,
    ChangeAnswer,
    RequestedInstance,
    RequestedLayout,
    StateAnswer,
    StateRequest,
    decode_answer,
)
from api.mig_outcome import GpuOutcome, Outcome
from tests.actuator.simulated_node import FIVE, SimulatedNode, node
from tests.controlplane.lifetime import end_with_parent

SOON = 60.0
"""For something that is bound to come, even where the machine is busy."""
GPUSCAPE = Path(sys.executable).with_name("gpuscape")

THIRDS = RequestedLayout(
    mig=True, instances=(RequestedInstance(profile="3g.20gb", compute=(3,)),) * 2
)
SEVENTHS = RequestedLayout(
    mig=True, instances=(RequestedInstance(profile="1g.5gb", compute=(1,)),) * 7
)


@dataclass(frozen=True, slots=True)
class ActuatorProcess:
    """The program, its node and its socket."""

    process: subprocess.Popen[str]
    on: SimulatedNode
    path: Path
    """Of the socket."""
    log: Path
    gpu: str
    """UUID of the node's first GPU."""

    def ask(self, request: ActuatorRequest) -> ActuatorAnswer:
        """As the agent does."""
        return ask_actuator(self.path, request, timeout_seconds=SOON)

    def state(self) -> StateAnswer:
        """It answers, whatever was sent to it before."""
        found = self.ask(StateRequest())
        assert isinstance(found, StateAnswer), found
        return found

    def connected(self) -> socket.socket:
        """A connection on which nothing was said."""
        made = socket.socket(socket.AF_UNIX)
        made.connect(str(self.path))  # before the timeout: with one it does not wait for a place
        made.settimeout(SOON)
        return made

    def sent(self, data: bytes) -> ActuatorAnswer:
        """What it answers to these bytes, after which the sender has nothing more to say."""
        with self.connected() as connection:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it has refused
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
            return answered(connection)

    def apply(self, change: str, layout: RequestedLayout, *, asked: str = "a test") -> ApplyRequest:
        """A change of the first GPU."""
        return ApplyRequest(change=change, origin=asked, desired={self.gpu: layout})

    def applied(self, change: str, *, again: bool = False) -> ChangeAnswer:
        """The answer to :meth:`apply` where all went well."""
        done = GpuOutcome(gpu=self.gpu, outcome=Outcome.APPLIED, index=0)
        return ChangeAnswer(change=change, outcome=Outcome.APPLIED, outcomes=(done,), again=again)

    def unchanged(self) -> Callable[[], None]:
        """Asserts, when called, that GPUs and journal are as they were."""
        before = self._truth()

        def check() -> None:
            assert self._truth() == before

        return check

    def logged(self, message: str) -> list[str]:
        """Lines of its log with this message."""
        return [one for one in self.log.read_text("utf-8").splitlines() if message in one]

    def _truth(self) -> object:
        files = sorted(self.on.journal.glob("*")) if self.on.journal.is_dir() else []
        journal = {
            one.name: one.read_bytes() if one.is_file() and not one.is_symlink() else _kind(one)
            for one in files
            if one.name != "lock"
        }
        return self.on.simulation.state.gpus, journal


def _kind(place: Path) -> tuple[int, int, float]:
    """What is there, if it is no file; looking at a link changes the time of its last use."""
    found = place.lstat()
    return found.st_mode, found.st_ino, found.st_mtime


def answered(connection: socket.socket) -> ActuatorAnswer:
    """The answer on a connection, up to its end."""
    data = b""
    with contextlib.suppress(ConnectionResetError):
        while chunk := connection.recv(1 << 16):
            data += chunk
    assert data.endswith(b"\n"), data
    return decode_answer(data)


def until(condition: Callable[[], bool]) -> None:
    """Wait for what is bound to come."""
    end = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


@contextlib.contextmanager
def started(
    on: SimulatedNode,
    socket_path: Path,
    *options: str,
    gpu: str | None = None,
    program: Path = GPUSCAPE,
) -> Iterator[ActuatorProcess]:
    """The program on this node, until the block ends; it is ended by SIGKILL if it still runs.

    ``gpu``: UUID of the first GPU, where the driver cannot be asked. ``program``: another state of
    the project's.
    """
    log = on.folder / "actuator.log"
    with log.open("a") as error:
        process = subprocess.Popen(
            [
                program,
                "actuator",
                *("--simulate", str(on.simulation.state_file)),
                *("--socket", str(socket_path)),
                *("--journal", str(on.journal)),
                *options,
            ],
            stderr=error,
            text=True,
            preexec_fn=end_with_parent(signal.SIGTERM),
        )
    try:
        until(lambda: _answers(socket_path) or process.poll() is not None)
        assert process.poll() is None, log.read_text("utf-8")
        yield ActuatorProcess(process, on, socket_path, log, gpu or on.uuid())
    finally:
        process.kill()
        process.wait()


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as tried:
        try:
            tried.connect(str(path))
        except OSError:
            return False
        return True


@contextlib.contextmanager
def on_a_node(*options: str) -> Iterator[ActuatorProcess]:
    """The program on a full A100, in folders that other users can look into.

    pytest's own are root's alone, and a path in them is too long for a socket.
    """
    with tempfile.TemporaryDirectory(prefix="actuator-") as folder:
        place = Path(folder)
        place.chmod(0o711)
        with started(node(place, *FIVE), place / "run" / "a.sock", *options) as ready:
            yield ready
