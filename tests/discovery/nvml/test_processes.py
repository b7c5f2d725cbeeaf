# SPDX-License-Identifier: Apache-2.0
"""Processes as the driver lists them, and how busy they are by its own samples."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pynvml
import pytest

from discovery.model import Reason
from discovery.nvml.calls import Calls
from discovery.nvml.processes import Utilization
from discovery.sample import ReadingGroup
from simulator.description.machine_schema import MigInstanceSpec
from tests import machines
from tests.discovery.sampling import Sampler, small

FIRST = machines.gpu(0).bus_id


def sample(pid: int, at: int, percent: int) -> pynvml.c_nvmlProcessUtilizationSample_t:
    """One of the driver's, which come in no order."""
    made = pynvml.c_nvmlProcessUtilizationSample_t()
    made.pid, made.timeStamp, made.smUtil = pid, at, percent
    return made


def test_the_driver_is_asked_for_what_is_newer_than_all_that_was_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And of two samples of one process the newer one counts."""
    asked = []

    def answer(_handle: object, since: int) -> list[object]:
        asked.append(since)
        return [
            sample(71, since + 300, 50),
            sample(71, since + 100, 10),
            sample(72, since + 200, 5),
        ]

    monkeypatch.setattr(pynvml, "nvmlDeviceGetProcessUtilization", answer)
    utilization = Utilization()

    first, second = (utilization.busy(Calls(), FIRST, None) for _ in range(2))
    utilization.busy(Calls(), FIRST, None)

    assert asked == [0, 300, 600]
    assert (first, second) == (({}, False), ({71: 0.5, 72: 0.05}, True))


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Sampler]:
    split = machines.gpu(1, mig=True, instances=(
        MigInstanceSpec(profile="3g.20gb", start=0, id=1),
        MigInstanceSpec(profile="3g.20gb", start=4, id=2),
    ))  # fmt: skip
    with small(tmp_path, machines.gpu(0), split) as machine:
        yield machine


SPLIT = machines.gpu(1).bus_id
ASKED = (ReadingGroup.PROCESSES,)


def test_processes_come_by_pid_with_or_without_mig(machine: Sampler) -> None:
    for pid in (300, 7, 42):
        machine.simulation.add_process(FIRST, pid, memory_mib=pid, percent=10)
    for pid, instance in ((300, 1), (7, 2), (7, 1)):
        ids = {"gpu_instance_id": instance, "compute_instance_id": 0}
        machine.simulation.add_process(SPLIT, pid, memory_mib=1, percent=10, **ids)
    machine.sample(FIRST, ASKED)
    whole, split = (machine.sample(bus_id, ASKED).processes for bus_id in (FIRST, SPLIT))
    assert [(it.pid, it.gpu_instance_id, it.compute_instance_id) for it in whole] == [
        (pid, None, None) for pid in (7, 42, 300)
    ]
    assert [it.memory_bytes for it in whole] == [7 << 20, 42 << 20, 300 << 20]
    assert [it.busy_ratio for it in whole] == pytest.approx([0.1] * 3)
    assert [(it.pid, it.gpu_instance_id, it.compute_instance_id) for it in split] == [
        (7, 1, 0),
        (7, 2, 0),
        (300, 1, 0),
    ]
    assert {it.busy_ratio for it in split} == {None}


@pytest.mark.parametrize(
    ("pid", "memory"), [(1 << 31, 1), (71, (1 << 50) + 1)], ids=["its pid", "its memory"]
)
def test_a_row_that_makes_no_sense_is_a_gap_with_its_call(
    machine: Sampler, monkeypatch: pytest.MonkeyPatch, pid: int, memory: int
) -> None:
    """Without its pid it is nobody's; without its memory it is still there."""
    row = pynvml.c_nvmlProcessInfo_v2_t()
    row.pid, row.usedGpuMemory, row.gpuInstanceId = pid, memory, 0xFFFFFFFF
    row.computeInstanceId = 0xFFFFFFFF
    call = "nvmlDeviceGetComputeRunningProcesses_v3"
    monkeypatch.setattr(pynvml, call, lambda _handle: [row])
    sample = machine.sample(FIRST, ASKED)
    assert [(it.pid, it.memory_bytes) for it in sample.processes] == [(71, None)] * (pid == 71)
    (gap,) = (gap for gap in sample.gaps if gap.what == "processes")
    assert (gap.reason, gap.source) == (Reason.GARBAGE, call)
