# SPDX-License-Identifier: Apache-2.0
"""What is shown between two readings of a machine."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent.processes.pids import ProcessOwner
from cli.top.machine_watch import KubeletAnswer, MachineWatch, ProcessOwners
from discovery.driver_errors import DriverAbsent, ReaderStuck
from discovery.model import GpuState
from tests import build

GPUS = (build.gpu(0), build.gpu(1))


class Reader:
    """A device reader that answers at once; what hangs and fails is set."""

    def __init__(self) -> None:
        self.quarantined: tuple[str, ...] = ()
        self.fails: Exception | None = None
        self.at = 100.0

    def discover(self) -> Any:
        if self.fails is not None:
            raise self.fails
        node = build.node(GPUS)
        return SimpleNamespace(driver=node.driver, gpus=node.gpus)

    def sample(self, _groups: object) -> Any:
        self.at += 1
        return tuple(build.sample(gpu, at_seconds=self.at) for gpu in GPUS)

    def health(self) -> Any:
        return SimpleNamespace(quarantined=self.quarantined, initialising=None)


@pytest.fixture
def reader() -> Reader:
    return Reader()


def watch(reader: Reader, clock: list[float]) -> MachineWatch:
    host = SimpleNamespace(snapshot=lambda _driver, gpus: build.node(gpus))
    return MachineWatch(
        cast(Any, reader),
        cast(Any, host),
        owners=ProcessOwners(owner_of=lambda _pid: ProcessOwner()),
        kubelet=lambda _snapshot: KubeletAnswer(note="pods: none"),
        interval_seconds=2.0,
        clock=lambda: clock[0],
    )


def test_a_gpu_that_hangs_is_marked_before_the_next_reading(reader: Reader) -> None:
    shown = watch(reader, [0.0])
    assert shown.latest is None
    shown.read()
    reader.quarantined = (GPUS[1].bus_id,)
    assert shown.latest is not None
    states = [gpu.state for gpu in shown.latest.snapshot.gpus]
    assert states == [GpuState.PRESENT, GpuState.HUNG]


def test_rates_are_measured_from_the_samples_before(reader: Reader) -> None:
    shown = watch(reader, [0.0])
    first, second = shown.read(), shown.read()
    assert first.before == ()
    assert second.before == first.samples
    assert second.notes == ("pods: none",)


def test_a_reading_is_late_after_two_intervals_and_a_second(reader: Reader) -> None:
    clock = [0.0]
    shown = watch(reader, clock)
    shown.read()
    clock[0] = 5.0
    assert shown.late_seconds is None
    clock[0] = 5.5
    assert shown.late_seconds == 5.5


@pytest.mark.parametrize("failure", [DriverAbsent("no driver"), ReaderStuck("it hangs")])
def test_a_driver_that_fails_is_raised(reader: Reader, failure: Exception) -> None:
    reader.fails = failure
    with pytest.raises(type(failure)):
        watch(reader, [0.0]).read()
