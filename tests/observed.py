"""Simulated machines as the device reader sees them, read in this process at a fixed time."""

from __future__ import annotations

import functools
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

from discovery.model import Driver, GpuSnapshot, NodeSnapshot
from discovery.node import Place
from discovery.protocol import (
    AgentMessage,
    Discover,
    DriverFrame,
    GpuFrame,
    ReaderMessage,
    Refused,
    Sample,
    SampleFrame,
    Start,
    frame,
)
from discovery.reader_child import Channel, serve
from discovery.sample import GpuSample
from discovery.simulator import simulation

CREATED_SECONDS, READ_SECONDS = 1000.0, 2000.0
"""When every machine is switched on, and when it is read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """One machine at one moment."""

    snapshot: NodeSnapshot
    samples: tuple[GpuSample, ...]


class _Conversation(Channel):
    """All requests made beforehand, all answers kept."""

    def __init__(self, *messages: AgentMessage) -> None:
        self._left = [frame(message) for message in messages]
        self.answers: list[ReaderMessage] = []

    def send(self, message: ReaderMessage) -> None:
        self.answers.append(message)

    def receive(self) -> bytes:
        return self._left.pop(0) if self._left else b""


@functools.cache
def observed(machine: str) -> Observed:
    """The machine of this name, through pynvml and the device reader's own code."""
    clock = SimpleNamespace(monotonic=lambda: CREATED_SECONDS)
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(simulation, "time", clock):
        simulated = simulation.Simulation.create(machine, Path(folder))
        clock.monotonic = lambda: READ_SECONDS
        return look_at(simulated, machine)


def look_at(simulated: simulation.Simulation, name: str) -> Observed:
    """A machine as it is now, read in the same way; ``name`` is the node's."""
    start = Start(host_root=str(simulated.host_root))
    talk = _Conversation(start, Discover(request=1), Sample(request=2))
    with simulated:
        serve(talk)
    driver, gpus, samples = _sorted(talk.answers)
    place = Place(root=simulated.host_root, name=name)
    return Observed(snapshot=place.snapshot(driver, gpus), samples=samples)


def _sorted(
    answers: list[ReaderMessage],
) -> tuple[Driver, tuple[GpuSnapshot, ...], tuple[GpuSample, ...]]:
    driver = Driver()
    for answer in answers:
        match answer:
            case DriverFrame():
                driver = answer.driver
            case Refused():
                driver = Driver()
    gpus = tuple(answer.gpu for answer in answers if isinstance(answer, GpuFrame))
    samples = tuple(answer.sample for answer in answers if isinstance(answer, SampleFrame))
    return driver, gpus, samples
