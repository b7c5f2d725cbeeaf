"""The agent at ten times its rate for a while: nothing of it grows."""

from __future__ import annotations

import time
from pathlib import Path

import psutil
import pytest

from discovery.simulator.simulation import Simulation
from tests.agent.processes import running, until
from tests.bench.memory import pss_mib
from tests.conftest import SCALE

WARM_UP_SECONDS = 30.0
SOAK_SECONDS = 60.0 * SCALE
GROWTH_MIB = 2.0
"""More than the allocator's own noise, far less than what a leak at this rate comes to."""

OFTEN = ("--discover-interval", "1s", "--sample-interval", "100ms")


@pytest.mark.long
def test_memory_descriptors_and_threads_stay_as_they_are(tmp_path: Path) -> None:
    with running(Simulation.create("dgx-a100-mig-single", tmp_path), *OFTEN) as agent:
        until(lambda: agent.gpus("present") == 8)
        process = psutil.Process(agent.process.pid)

        def size() -> tuple[float, int, int]:
            return pss_mib(process.pid), process.num_fds(), process.num_threads()

        time.sleep(WARM_UP_SECONDS)
        memory, descriptors, threads = size()
        end = time.monotonic() + SOAK_SECONDS
        while time.monotonic() < end:
            agent.metrics()
            time.sleep(0.1)
        memory_after, descriptors_after, threads_after = size()
    assert memory_after - memory < GROWTH_MIB
    assert (descriptors_after, threads_after) == (descriptors, threads)
