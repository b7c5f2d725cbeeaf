# SPDX-License-Identifier: Apache-2.0
"""``gpuscape actuator`` as a process: one change at a time, and none is lost however it ends."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from actuator.journal import Journal
from api.actuator.actuator_messages import (
    ActuatorAnswer,
    ActuatorRefusal,
    ApplyRequest,
    RefusalAnswer,
    RestoreRequest,
    encode_message,
)
from api.mig_outcome import Outcome
from simulator.simulation import Crash, Delay
from tests.actuator.actuator_process import (
    GPUSCAPE,
    SEVENTHS,
    THIRDS,
    ActuatorProcess,
    on_a_node,
    started,
    until,
)

CREATE = "nvmlDeviceCreateGpuInstanceWithPlacement"


@pytest.fixture
def actuator() -> Iterator[ActuatorProcess]:
    """On a node of its own."""
    with on_a_node() as ready:
        yield ready


class Asked:
    """A request on its way."""

    def __init__(self, actuator: ActuatorProcess, request: ApplyRequest) -> None:
        self.answer: object = None
        self._thread = threading.Thread(target=self._ask, args=(actuator, request))
        self._thread.start()
        until(lambda: actuator.state().running == request.change)

    def end(self) -> object:
        """The answer to it."""
        self._thread.join()
        return self.answer

    def _ask(self, actuator: ActuatorProcess, request: ApplyRequest) -> None:
        self.answer = actuator.ask(request)


def profiles(actuator: ActuatorProcess) -> list[str]:
    """Of the instances of the first GPU."""
    return sorted(one for one, *_ in actuator.on.found())


def past(actuator: ActuatorProcess) -> list[str]:
    """Names of the changes that have ended."""
    with Journal(actuator.on.journal, lock=False) as journal:
        return [one.change for one in journal.content().ended]


def slow(actuator: ActuatorProcess) -> None:
    """The next instance takes a second to be made."""
    actuator.on.simulation.fault(Delay(seconds=1.0), CREATE, times=1)


def test_of_two_at_once_one_is_told_who_the_other_is(actuator: ActuatorProcess) -> None:
    """The first is carried out, and nothing of the others; its end waits for who asks again."""
    slow(actuator)
    first = Asked(actuator, actuator.apply("the-first-change", THIRDS))

    refused = [
        actuator.ask(actuator.apply("another-change", SEVENTHS)),
        actuator.ask(RestoreRequest(change="another-change")),
        actuator.ask(actuator.apply("the-first-change", THIRDS)),
    ]
    answer = first.end()
    again = actuator.ask(actuator.apply("the-first-change", THIRDS))
    next_one = actuator.ask(actuator.apply("another-change", SEVENTHS))

    for one in refused:
        assert isinstance(one, RefusalAnswer)
        assert (one.refusal, one.change) == (ActuatorRefusal.BUSY, "the-first-change")
    assert answer == actuator.applied("the-first-change")
    assert again == actuator.applied("the-first-change", again=True)
    assert next_one == actuator.applied("another-change")
    assert profiles(actuator) == ["1g.5gb"] * 7


def test_a_change_goes_on_when_the_one_who_asked_for_it_has_gone(
    actuator: ActuatorProcess,
) -> None:
    """Its instances have their device nodes, and the log has no defect."""
    nodes = actuator.on.simulation.host_root / "dev/nvidia-caps"
    before = len(list(nodes.iterdir()))
    slow(actuator)
    with actuator.connected() as connection:
        connection.sendall(_line(actuator.apply("the-first-change", SEVENTHS)))
        until(lambda: actuator.state().running is not None)

    until(lambda: past(actuator) == ["the-first-change"])
    until(lambda: actuator.state().running is None)
    last = actuator.state().last
    assert last is not None
    assert (last.change, last.outcome, last.gpus) == (
        "the-first-change",
        Outcome.APPLIED,
        (actuator.gpu,),
    )
    assert len(list(nodes.iterdir())) > before
    assert actuator.logged("MIG device nodes made")
    assert not actuator.logged("ERROR")


def _line(request: ApplyRequest) -> bytes:
    return encode_message(request) + b"\n"


@pytest.mark.parametrize("remove", [Path.unlink, lambda path: shutil.rmtree(path.parent)])
def test_a_socket_that_somebody_removes_in_the_middle_of_a_change_is_there_again(
    actuator: ActuatorProcess, remove: Callable[[Path], object]
) -> None:
    """The change goes on, and whoever asked for it is answered."""
    slow(actuator)
    change = Asked(actuator, actuator.apply("the-first-change", THIRDS))
    remove(actuator.path)
    until(actuator.path.exists)
    assert actuator.state().v
    assert change.end() == actuator.applied("the-first-change")
    assert len(actuator.logged("actuator socket bound anew")) == 1


def test_what_was_interrupted_is_ended_by_the_one_who_asks_again(
    actuator: ActuatorProcess,
) -> None:
    """Not by another, who is told its name."""
    actuator.on.simulation.fault(Crash(ending="kill"), CREATE, times=1)

    died = actuator.ask(actuator.apply("the-first-change", THIRDS))
    left = actuator.state()
    other = actuator.ask(actuator.apply("another-change", SEVENTHS))
    other_restore = actuator.ask(RestoreRequest(change="another-change"))
    ended = actuator.ask(actuator.apply("the-first-change", THIRDS))

    assert isinstance(died, RefusalAnswer)
    assert (died.refusal, died.change) == (ActuatorRefusal.FAILED, "the-first-change")
    assert left.open is not None
    assert (left.open.change, left.open.outcome, left.running) == ("the-first-change", None, None)
    for one in (other, other_restore):
        assert isinstance(one, RefusalAnswer)
        assert (one.refusal, one.change) == (ActuatorRefusal.CONFLICT, "the-first-change")
    assert ended == actuator.applied("the-first-change")
    assert profiles(actuator) == ["3g.20gb"] * 2


def test_sigterm_waits_for_the_change_and_takes_no_other(actuator: ActuatorProcess) -> None:
    """The one who asked is answered, and the socket is gone."""
    slow(actuator)
    first = Asked(actuator, actuator.apply("the-first-change", THIRDS))
    other = actuator.apply("another-change", SEVENTHS)

    actuator.process.send_signal(signal.SIGTERM)
    until(lambda: _refusal(actuator.ask(other)) is ActuatorRefusal.STOPPING)
    answer = first.end()

    assert actuator.process.wait(60) == 0
    assert answer == actuator.applied("the-first-change")
    assert not actuator.path.exists()
    assert actuator.logged("actuator stopped")


def _refusal(answer: ActuatorAnswer) -> ActuatorRefusal | None:
    return answer.refusal if isinstance(answer, RefusalAnswer) else None


def test_the_next_start_goes_on_with_what_a_killed_one_has_left(
    actuator: ActuatorProcess,
) -> None:
    """Before anybody asks."""
    actuator.on.simulation.fault(Crash(ending="kill"), CREATE, times=1)
    actuator.ask(actuator.apply("the-first-change", THIRDS))
    actuator.process.kill()
    actuator.process.wait()

    with started(actuator.on, actuator.path) as later:
        until(lambda: past(later) == ["the-first-change"])
        until(lambda: later.state().running is None)

    assert profiles(actuator) == ["3g.20gb"] * 2


def test_the_end_does_not_wait_longer_than_it_may() -> None:
    """What runs then is a process of its own, and ends by itself or is gone on with."""
    with on_a_node("--stop-deadline", "0s") as actuator:
        slow(actuator)
        with actuator.connected() as connection:
            connection.sendall(_line(actuator.apply("the-first-change", THIRDS)))
            until(lambda: actuator.state().running is not None)
            actuator.process.send_signal(signal.SIGTERM)
            assert actuator.process.wait(60) == 0
        assert actuator.logged("actuator stopped in the middle of a MIG change")

        with started(actuator.on, actuator.path) as later:
            until(lambda: later.state().open is None and actuator.on.simulation.clients() == 0)
            assert profiles(later) in (["3g.20gb"] * 2, sorted(FULL))


FULL = ["1g.5gb"] * 3 + ["2g.10gb"] * 2


def test_layouts_come_back_at_the_start_after_a_reboot(actuator: ActuatorProcess) -> None:
    """Before anybody asks, and without the API; the device nodes too."""
    actuator.ask(actuator.apply("the-first-change", THIRDS))
    actuator.process.kill()
    actuator.process.wait()
    actuator.on.simulation.reboot()
    for node in (actuator.on.simulation.host_root / "dev/nvidia-caps").iterdir():
        node.unlink()
    assert profiles(actuator) == []

    with started(actuator.on, actuator.path) as later:
        until(lambda: len(profiles(later)) == 2)
        until(lambda: later.state().running is None)
        nodes = list((later.on.simulation.host_root / "dev/nvidia-caps").iterdir())

    assert profiles(actuator) == ["3g.20gb"] * 2
    assert len(nodes) == 4


def test_layouts_come_back_when_the_driver_is_there_at_last(actuator: ActuatorProcess) -> None:
    """It was not yet at the start."""
    actuator.ask(actuator.apply("the-first-change", THIRDS))
    actuator.process.kill()
    actuator.process.wait()
    actuator.on.simulation.reboot()
    actuator.on.simulation.set_driver("not-loaded")

    with started(actuator.on, actuator.path, gpu=actuator.gpu) as later:
        until(lambda: bool(later.logged("MIG restore waits")))
        later.on.simulation.set_driver("ok")
        until(lambda: len(profiles(later)) == 2)
        until(lambda: later.state().running is None)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may leave the network")
def test_it_has_left_the_network(actuator: ActuatorProcess) -> None:
    """Its namespace has the loopback device alone, and that is down."""
    pids = ("self", actuator.process.pid)
    own, its = (Path(f"/proc/{pid}/ns/net").readlink() for pid in pids)
    devices = Path(f"/proc/{actuator.process.pid}/net/dev").read_text("ascii").splitlines()[2:]

    assert own != its
    assert [one.partition(":")[0].strip() for one in devices] == ["lo"]
    assert not actuator.logged("network not left")


def test_a_second_one_on_the_same_socket_does_not_start(actuator: ActuatorProcess) -> None:
    """The first is not disturbed."""
    second = subprocess.run(
        [
            GPUSCAPE,
            "actuator",
            *("--simulate", str(actuator.on.simulation.state_file)),
            *("--socket", str(actuator.path)),
            *("--journal", str(actuator.on.journal.with_name("another"))),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert second.returncode == 3
    assert "another actuator serves it" in second.stderr
    assert actuator.state().problem == ""
