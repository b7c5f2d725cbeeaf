# SPDX-License-Identifier: Apache-2.0
"""MIG state through the device reader's process: the same values, and a hang costs one GPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from discovery.driver_errors import DriverAbsent
from discovery.mig_state import MigGpu, UnreadMigGpu
from discovery.model import Reason
from discovery.nvml.mig_gpu import read_mig_gpu
from discovery.nvml.session import close_session, open_session
from discovery.reader.mig_reading import read_mig
from simulator.simulation import Crash, Hang, Return, Simulation
from tests.discovery.reader.reader_bench import ReaderBench


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[ReaderBench]:
    bench = ReaderBench(Simulation.create("dgx-a100-mig-mixed", tmp_path))
    yield bench
    bench.close()


def test_all_that_is_read_crosses_to_the_agent(bench: ReaderBench) -> None:
    bench.simulation.add_process(bench.bus_ids[4], 4242, gpu_instance_id=2, compute_instance_id=0)
    bench.simulation.fault(Return(code=4), "nvmlDeviceGetGpuInstances", bus_id=bench.bus_ids[5])
    with bench.simulation:
        open_session()
        here = tuple(read_mig_gpu(bus_id) for bus_id in bench.bus_ids)
        close_session()

    assert read_mig(bench.reader) == here
    assert [gpu.bus_id for gpu in here if isinstance(gpu, UnreadMigGpu)] == [bench.bus_ids[5]]
    assert sum(len(gpu.instances) for gpu in here if isinstance(gpu, MigGpu)) == 7


@pytest.mark.parametrize(
    ("fault", "reason"), [(Hang(), Reason.HUNG), (Crash(), Reason.FAILED)], ids=["hang", "crash"]
)
def test_a_gpu_that_hangs_or_kills_its_reader_is_unread_and_the_others_are_not(
    bench: ReaderBench, fault: Hang | Crash, reason: Reason
) -> None:
    bench.simulation.fault(fault, "nvmlDeviceGetGpuInstances", bus_id=bench.bus_ids[4])
    gpus = read_mig(bench.reader)

    assert [gpu.bus_id for gpu in gpus] == list(bench.bus_ids)
    sick = [gpu for gpu in gpus if isinstance(gpu, UnreadMigGpu)]
    assert [(gpu.bus_id, gpu.gaps[0].reason) for gpu in sick] == [(bench.bus_ids[4], reason)]


def test_a_gpu_that_answered_and_hangs_when_it_is_read_once_more_is_unread(
    bench: ReaderBench,
) -> None:
    """Another GPU hangs behind it, so that a second reader reads it again."""
    first, second = bench.bus_ids[4:6]
    entry = "nvmlDeviceGetMigMode"
    bench.simulation.fault(Hang(), entry, bus_id=first, after=1)
    bench.simulation.fault(Hang(), entry, bus_id=second)

    sick = [gpu.bus_id for gpu in read_mig(bench.reader) if isinstance(gpu, UnreadMigGpu)]

    assert sick == [first, second]


def test_without_a_driver_there_is_no_answer(bench: ReaderBench) -> None:
    bench.simulation.set_driver("not-loaded")
    bench.reader.release()
    bench.reader.resume()
    with pytest.raises(DriverAbsent):
        read_mig(bench.reader)
