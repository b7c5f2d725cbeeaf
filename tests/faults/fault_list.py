# SPDX-License-Identifier: Apache-2.0
"""Everything around the agent that may break, one object each."""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final

import grpc
import psutil
from msgspec.structs import replace

from simulator.simulation import Crash, Delay, Hang, Return, Spoil
from simulator.state.machine_state import Action, DriverCondition, XidEvent
from tests.agent.agent_process import until
from tests.fakes.proxy import Mode, Relay
from tests.faults.scene import Scene
from tests.kubelet.podresources_server import Aborted

POWER: Final = "nvmlDeviceGetPowerUsage"
DRIVER_NOT_LOADED, GPU_IS_LOST, LIB_RM_VERSION_MISMATCH = 9, 15, 18
"""NVML_ERROR_* of nvml.h."""
APPLICATION_XID: Final = 31
"""A page fault of the application's: the GPU itself is well."""
ANSWERS_SECONDS: Final = 30.0
"""By then a device reader that was just started has answered, unless something keeps it."""

Blinds = Callable[[Scene], frozenset[str]]
"""The GPUs, by bus id, without readings for as long as a fault lasts."""


def nothing(_scene: Scene) -> frozenset[str]:
    """All GPUs go on to be read."""
    return frozenset()


def everything(scene: Scene) -> frozenset[str]:
    """No GPU can be read."""
    return frozenset(scene.gpus)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something that breaks and is whole again later."""

    name: str
    happens: Callable[[Scene], AbstractContextManager[None]]
    """Begins on entering and ends on leaving."""
    blinds: Blinds = nothing
    """What may not be read meanwhile; everything else must be."""
    meets_a_call: bool = False
    """Whether it may meet a call on some GPU, which then cannot be read either: to the agent that
    GPU hangs."""
    touches: str = ""
    """What two faults cannot have at once."""
    in_cluster: bool = False
    """Whether it takes an API server."""


def _places(*places: int) -> Blinds:
    return lambda scene: frozenset(scene.gpus[at] for at in places)


def _driver(
    name: str, action: Action, entry: str = "*", *, places: tuple[int, ...] | None, blinds: Blinds
) -> Fault:
    """Calls that go wrong: on these GPUs, or with None on all of the driver."""

    @contextlib.contextmanager
    def happens(scene: Scene) -> Iterator[None]:
        on = [None] if places is None else [scene.gpus[at] for at in places]
        numbers = [scene.simulation.fault(action, entry, bus_id=gpu) for gpu in on]
        yield
        for number in numbers:
            scene.simulation.clear(number)

    return Fault(name=name, happens=happens, blinds=blinds)


def _condition(name: str, condition: DriverCondition, code: int) -> Fault:
    """The driver as a whole, for sessions that are open and for new ones."""

    @contextlib.contextmanager
    def happens(scene: Scene) -> Iterator[None]:
        number = scene.simulation.fault(Return(code=code), "nvmlDeviceGet*")
        scene.simulation.set_driver(condition)
        yield
        scene.simulation.set_driver("ok")
        scene.simulation.clear(number)

    return Fault(name=name, happens=happens, blinds=everything, touches="driver")


@contextlib.contextmanager
def _off_the_bus(scene: Scene) -> Iterator[None]:
    gpu = scene.gpus[1]
    scene.simulation.remove_gpu(gpu)
    yield
    scene.simulation.return_gpu(gpu)


@contextlib.contextmanager
def _first_call_hangs(scene: Scene) -> Iterator[None]:
    """For the reader that takes the place of one that was killed."""
    number = scene.simulation.fault(Hang(uninterruptible=True), "nvmlInit*")
    _signal_reader(scene, signal.SIGKILL)
    yield
    scene.simulation.clear(number)


@contextlib.contextmanager
def _reader_killed(scene: Scene) -> Iterator[None]:
    _signal_reader(scene, signal.SIGKILL)
    yield


@contextlib.contextmanager
def _reader_stopped(scene: Scene) -> Iterator[None]:
    """One that has answered: before, it would be like a driver that hangs, and blind all GPUs."""
    since = time.monotonic()
    with contextlib.suppress(AssertionError):  # where another fault keeps it from answering
        until(lambda: bool(scene.truth.fresh(scene.agent.metrics(), since)), ANSWERS_SECONDS)
    reader = _signal_reader(scene, signal.SIGSTOP)
    yield
    with contextlib.suppress(psutil.NoSuchProcess):
        if reader is not None:
            reader.send_signal(signal.SIGCONT)


def _signal_reader(scene: Scene, number: signal.Signals) -> psutil.Process | None:
    """There may be none for a moment, where another fault has just ended it."""
    with contextlib.suppress(ValueError, psutil.NoSuchProcess):
        reader = scene.agent.reader()
        reader.send_signal(number)
        return reader
    return None


@contextlib.contextmanager
def _xid_storm(scene: Scene) -> Iterator[None]:
    gpu = scene.gpus[0]
    events = (XidEvent(bus_id=gpu, code=APPLICATION_XID),) * 2000
    scene.simulation.edit(lambda state: replace(state, events=(*state.events, *events)))
    yield


@contextlib.contextmanager
def _released(scene: Scene) -> Iterator[None]:
    """As for a driver upgrade; only then may the driver be unloaded."""
    scene.agent.signal(signal.SIGUSR1)
    until(lambda: scene.simulation.clients() == 0)
    yield
    scene.agent.signal(signal.SIGUSR2)


@contextlib.contextmanager
def _paused(scene: Scene) -> Iterator[None]:
    scene.agent.signal(signal.SIGSTOP)
    yield
    scene.agent.signal(signal.SIGCONT)


@contextlib.contextmanager
def _no_kubelet(scene: Scene) -> Iterator[None]:
    scene.kubelet.server.stop()
    yield
    scene.kubelet.server.start()


@contextlib.contextmanager
def _kubelet_hangs(scene: Scene) -> Iterator[None]:
    server = scene.kubelet.server
    server.delay_seconds = 3600
    yield
    server.delay_seconds = 0
    server.stop()  # breaks off the answers under way
    server.start()


@contextlib.contextmanager
def _kubelet_refuses(scene: Scene) -> Iterator[None]:
    scene.kubelet.server.refusal = Aborted(grpc.StatusCode.INTERNAL, "no")
    yield
    scene.kubelet.server.refusal = None


@contextlib.contextmanager
def _kubelet_drips(scene: Scene) -> Iterator[None]:
    """A socket where bytes come one by one that are no gRPC."""
    scene.kubelet.server.stop()
    ended = threading.Event()

    def drip(client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            while not ended.wait(0.1):
                client.send(b"x")

    def serve(listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while not ended.is_set():
                client, _ = listener.accept()
                threading.Thread(target=drip, args=(client,), daemon=True).start()

    path = scene.kubelet.server.path
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        thread = threading.Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
    path.unlink()
    scene.kubelet.server.start()


@contextlib.contextmanager
def _broken_settings(scene: Scene) -> Iterator[None]:
    before = scene.settings_file.read_text()
    scene.settings_file.write_text("mig-strategy: [" * 1000)
    scene.agent.signal(signal.SIGHUP)
    yield
    scene.settings_file.write_text(before)


@contextlib.contextmanager
def _settings_read_again(scene: Scene) -> Iterator[None]:
    for _ in range(5):
        reloads = _logged(scene, "settings reloaded")
        scene.agent.signal(signal.SIGHUP)
        until(lambda before=reloads: _logged(scene, "settings reloaded") > before)  # type: ignore[misc]
    yield


def _logged(scene: Scene, message: str) -> int:
    """How often the agent has logged this."""
    return sum(each["message"] == message for each in scene.agent.logged)


@contextlib.contextmanager
def _broken_counters(scene: Scene) -> Iterator[None]:
    before = scene.counters_file.read_text()
    scene.counters_file.write_text('"' * 5000)
    yield
    scene.counters_file.write_text(before)


@contextlib.contextmanager
def _no_feature_folder(scene: Scene) -> Iterator[None]:
    """The folder goes with what is in it, and comes back empty."""
    shutil.rmtree(scene.feature_folder)
    yield
    scene.feature_folder.mkdir()


@contextlib.contextmanager
def _idle_clients(scene: Scene) -> Iterator[None]:
    """More than there are places for, on both ports, some of which had an answer."""
    with contextlib.ExitStack() as clients:
        for server in ("metrics", "probes"):
            host, port = scene.agent.address(server).rsplit(":", 1)
            for at in range(200):
                client = clients.enter_context(socket.create_connection((host, int(port))))
                if at % 2:
                    with contextlib.suppress(ConnectionError):
                        client.sendall(b"GET / HTTP/1.1\r\nHost: node\r\n\r\n")
        yield


@contextlib.contextmanager
def _deaf_clients(scene: Scene) -> Iterator[None]:
    """They ask for the metrics over and over, and read nothing."""
    host, port = scene.agent.address("metrics").rsplit(":", 1)
    with contextlib.ExitStack() as clients:
        for _ in range(20):
            client = clients.enter_context(socket.create_connection((host, int(port))))
            with contextlib.suppress(ConnectionError):
                client.sendall(b"GET /metrics HTTP/1.1\r\nHost: node\r\n\r\n" * 50)
        yield


def _api(scene: Scene) -> tuple[Relay, Callable[[], None]]:
    """The way to the API server, and what somebody does there who reaches it by another."""
    assert scene.relay is not None
    assert scene.spoil_labels is not None
    return scene.relay, scene.spoil_labels


def _to_api(name: str, mode: Mode) -> Fault:
    @contextlib.contextmanager
    def happens(scene: Scene) -> Iterator[None]:
        relay, spoil_labels = _api(scene)
        relay.set(mode)
        spoil_labels()
        yield
        relay.set(Mode.PASS)

    return Fault(name=name, happens=happens, touches="API server", in_cluster=True)


@contextlib.contextmanager
def _no_api(scene: Scene) -> Iterator[None]:
    relay, spoil_labels = _api(scene)
    relay.refuse()
    spoil_labels()
    yield
    relay.accept()


@contextlib.contextmanager
def _api_cut(scene: Scene) -> Iterator[None]:
    relay, spoil_labels = _api(scene)
    spoil_labels()
    relay.cut()
    yield


_HANG = Hang(uninterruptible=True)

FAULTS: Final = (
    _driver("a GPU hangs", _HANG, POWER, places=(0,), blinds=_places(0)),
    _driver("two GPUs hang", _HANG, POWER, places=(1, 2), blinds=_places(1, 2)),
    _driver("the driver hangs", _HANG, places=None, blinds=everything),
    Fault(name="the driver's first call hangs", happens=_first_call_hangs, blinds=everything),
    _driver("a GPU is slow", Delay(seconds=0.3), POWER, places=(3,), blinds=nothing),
    _driver("a GPU is lost", Return(code=GPU_IS_LOST), places=(1,), blinds=_places(1)),
    Fault(name="a GPU is off the bus", happens=_off_the_bus, blinds=_places(1)),
    _driver(
        "a GPU gives garbage",
        Spoil(garbage="max"),
        "nvmlDeviceGet*",
        places=(2,),
        blinds=_places(2),
    ),
    _driver("a call of a GPU kills the reader", Crash(), POWER, places=(3,), blinds=_places(3)),
    Fault(name="the reader is killed", happens=_reader_killed),
    Fault(name="the reader is stopped", happens=_reader_stopped, meets_a_call=True),
    _condition("the driver is unloaded", "not-loaded", DRIVER_NOT_LOADED),
    _condition("the driver is of another version", "mismatch", LIB_RM_VERSION_MISMATCH),
    _condition("the driver's library is missing", "absent", DRIVER_NOT_LOADED),
    Fault(name="the GPUs are released", happens=_released, blinds=everything, touches="signals"),
    Fault(name="2,000 XIDs at once", happens=_xid_storm),
    Fault(name="no kubelet", happens=_no_kubelet, touches="kubelet"),
    Fault(name="the kubelet never answers", happens=_kubelet_hangs, touches="kubelet"),
    Fault(name="the kubelet refuses", happens=_kubelet_refuses, touches="kubelet"),
    Fault(name="the kubelet's socket drips garbage", happens=_kubelet_drips, touches="kubelet"),
    Fault(name="a settings file that is broken, and SIGHUP", happens=_broken_settings),
    Fault(name="five times SIGHUP", happens=_settings_read_again, touches="signals"),
    Fault(name="a counters file that is broken", happens=_broken_counters),
    Fault(name="labels cannot be written", happens=_no_feature_folder),
    Fault(name="400 idle clients", happens=_idle_clients),
    Fault(name="clients that do not read", happens=_deaf_clients),
    Fault(name="the agent is suspended", happens=_paused, blinds=everything, touches="signals"),
    Fault(name="the API server is away", happens=_no_api, touches="API server", in_cluster=True),
    _to_api("the API server never answers", Mode.STALL),
    _to_api("answers of the API server are lost", Mode.LOSE_REPLIES),
    Fault(
        name="connections to the API server are reset",
        happens=_api_cut,
        touches="API server",
        in_cluster=True,
    ),
)
"""The whole list. A machine has at least four GPUs, so that some are always well."""
