# SPDX-License-Identifier: Apache-2.0
"""Simulated machines as the device reader sees them, read in this process at a fixed time."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

from discovery.driver_errors import DriverAbsent
from discovery.gpu_counts import NO_GPUS, GpuCounts
from discovery.known_node_gpus import KnownGpus
from discovery.mig_state import MigReading
from discovery.model import Driver, GpuSnapshot, NodeSnapshot
from discovery.node_host import NodeHost
from discovery.reader import reader_child
from discovery.reader.protocol import (
    AgentMessage,
    Discover,
    DriverFrame,
    GpuFrame,
    MigFrame,
    ReaderMessage,
    ReadMig,
    RequestRefused,
    Sample,
    SampleFrame,
    Start,
    UnreadMigFrame,
)
from discovery.reader.quarantine import Quarantine
from discovery.reader.reader_child import Channel
from discovery.sample import GpuSample, ReadingGroup
from simulator import simulation
from simulator.library_choice import choose_library

CREATED_SECONDS, READ_SECONDS = 1000.0, 2000.0
"""When every machine is switched on, and when it is read."""
SAMPLED_SECONDS = READ_SECONDS + 10.0
"""When it is sampled a second time: some readings are about the time between two samples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """One machine at one moment."""

    snapshot: NodeSnapshot
    samples: tuple[GpuSample, ...]


class _Conversation(Channel):
    """All requests made beforehand, all answers kept."""

    def __init__(self, *messages: AgentMessage, before: Callable[[], object] | None = None) -> None:
        """``before`` runs before the last request is made."""
        self._left = list(messages)
        self._before = before
        self.answers: list[ReaderMessage] = []

    def send(self, message: ReaderMessage) -> None:
        self.answers.append(message)

    def receive(self) -> AgentMessage | None:
        if len(self._left) == 1 and self._before is not None:
            self._before()
        return self._left.pop(0) if self._left else None

    def may_proceed(self) -> bool:
        return True


@functools.cache
def observed(machine: str) -> Observed:
    """The machine of this name, through pynvml and the device reader's own code: all there is."""
    clock = SimpleNamespace(seconds=CREATED_SECONDS)
    clock.monotonic = lambda: clock.seconds
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(simulation, "time", clock),
        mock.patch.object(reader_child, "time", clock),
    ):
        simulated = simulation.Simulation.create(machine, Path(folder))
        clock.seconds = READ_SECONDS

        def later() -> None:
            clock.seconds = SAMPLED_SECONDS

        everything = tuple(ReadingGroup)
        start = Start(host_root=str(simulated.host_root))
        talk = _Conversation(
            start,
            Discover(request=1),
            Sample(request=2, groups=everything),
            Sample(request=3, groups=everything),
            before=later,
        )
        return _said(simulated, machine, talk)


def look_at(
    simulated: simulation.Simulation, name: str, groups: tuple[ReadingGroup, ...] = ()
) -> Observed:
    """A machine as it is now, with the readings that are always made, and those of ``groups``.

    ``name`` is the node's.
    """
    start = Start(host_root=str(simulated.host_root))
    talk = _Conversation(start, Discover(request=1), Sample(request=2, groups=groups))
    return _said(simulated, name, talk)


def mig_of(simulated: simulation.Simulation) -> tuple[MigReading, ...]:
    """The MIG state of a machine's GPUs as it is now. Raises what the device reader reports."""
    talk = _Conversation(Start(host_root=str(simulated.host_root)), ReadMig(request=1))
    _serve(simulated, talk)
    for answer in talk.answers:
        if isinstance(answer, RequestRefused):
            raise DriverAbsent(answer.text)
    frames = (it for it in talk.answers if isinstance(it, MigFrame | UnreadMigFrame))
    return tuple(it.gpu for it in frames)


class Watcher:
    """What is known of one simulated machine from look to look, as the agent has it."""

    def __init__(self, simulated: simulation.Simulation, name: str = "node-a") -> None:
        self._simulated = simulated
        self._known_gpus = KnownGpus()
        self._place = NodeHost(root=simulated.host_root, name=name)

    def look(self) -> NodeSnapshot:
        """The machine as it is now."""
        return self.heard(_Conversation(self._start, Discover(request=1))).snapshot

    def heard(self, talk: _Conversation) -> Observed:
        """What the device reader's own code answers to these requests."""
        _serve(self._simulated, talk)
        driver, gpus, counts, samples = _sorted(talk.answers, self._known_gpus)
        return Observed(snapshot=self._place.snapshot(driver, gpus, counts), samples=samples)

    @property
    def _start(self) -> Start:
        return Start(host_root=str(self._simulated.host_root))


def _serve(simulated: simulation.Simulation, talk: _Conversation) -> None:
    """Have all of it answered; at the end nobody waits half a second for one more XID."""
    with simulated, mock.patch.object(reader_child, "EVENT_WAIT_MILLISECONDS", 10):
        reader_child.serve(talk, choose_library)


def _said(simulated: simulation.Simulation, name: str, talk: _Conversation) -> Observed:
    return Watcher(simulated, name).heard(talk)


def _sorted(
    answers: list[ReaderMessage], known_gpus: KnownGpus
) -> tuple[Driver, tuple[GpuSnapshot, ...], GpuCounts, tuple[GpuSample, ...]]:
    driver, counts = Driver(), NO_GPUS
    listed: tuple[str, ...] = ()
    for answer in answers:
        match answer:
            case DriverFrame():
                driver, listed = known_gpus.driver(answer.driver), answer.listed
                counts = known_gpus.expect(listed, answer.elsewhere, READ_SECONDS, answer.counts)
            case RequestRefused():
                driver = Driver()
    read = {answer.gpu.bus_id: answer.gpu for answer in answers if isinstance(answer, GpuFrame)}
    gpus = known_gpus.described(listed, read, Quarantine())
    samples = {it.sample.bus_id: it.sample for it in answers if isinstance(it, SampleFrame)}
    return driver, gpus, counts, tuple(samples.values())  # the last of each GPU
