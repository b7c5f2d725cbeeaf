# SPDX-License-Identifier: Apache-2.0
"""Sensors are a function of GPU, time and processes: smooth, bounded, and counters only grow."""

from __future__ import annotations

import functools
import math
from pathlib import Path

import pynvml as nv
import pytest

from simulator.machine_view import MachineView, SimulatedGpu
from simulator.sensor_values import Sensors
from simulator.simulation import Return
from simulator.state.machine_state import MachineState
from tests import machines

FIRST = machines.gpu(0).bus_id
DAY = 86400


def gpu_of(state: MachineState, at: int = 0) -> SimulatedGpu:
    assert state.machine is not None
    return MachineView(state, state.machine, lambda: 0.0).gpus[at]


def sensors(state: MachineState, seconds: float, at: int = 0) -> Sensors:
    """The sensors so long after the driver was loaded."""
    return Sensors(gpu=gpu_of(state, at), now=state.started + seconds)


def test_the_same_moment_gives_the_same_readings(tmp_path: Path) -> None:
    """There is no randomness that a test could meet."""
    state = machines.simulation(tmp_path).state

    seen = {(s.power_milliwatts(), s.gpu_celsius()) for s in [sensors(state, 1234.5)] * 3}

    assert len(seen) == 1


def test_an_idle_gpu_varies_a_little(tmp_path: Path) -> None:
    """Power by some per cent, temperature by some degrees; not all GPUs at once."""
    state = machines.simulation(tmp_path).state
    idle = gpu_of(state).model.idle_watts

    moments = [sensors(state, second) for second in range(0, 200, 3)]
    watts = {moment.power_milliwatts() / 1000 for moment in moments}
    celsius = {moment.gpu_celsius() for moment in moments}

    assert len(watts) > 10
    assert 0.9 * idle < min(watts) < max(watts) < 1.1 * idle
    assert 1 < len(celsius) < 6
    assert sensors(state, 50).power_milliwatts() != sensors(state, 50, at=1).power_milliwatts()


def test_a_busy_gpu_is_warmer_faster_and_draws_more(tmp_path: Path) -> None:
    """Up to the limits of its model, however many processes there are."""
    simulation = machines.simulation(tmp_path)
    idle = sensors(simulation.state, 100)
    for pid in range(3):
        simulation.add_process(FIRST, pid, percent=60)
    busy = sensors(simulation.state, 100)
    model = busy.gpu.model

    assert (idle.gpu_percent(), busy.gpu_percent(), busy.memory_percent()) == (0, 100, 50)
    assert (idle.sm_clock_mhz(), busy.sm_clock_mhz()) == (
        model.sm_clock_mhz,
        model.max_sm_clock_mhz,
    )
    assert busy.power_milliwatts() == pytest.approx(1000 * model.power_limit_watts, rel=0.01)
    assert busy.gpu_celsius() > idle.gpu_celsius() + 20


def test_energy_never_falls_when_processes_come_and_go(tmp_path: Path) -> None:
    """What an ended process cost stays counted."""
    simulation = machines.simulation(tmp_path)
    state = simulation.state
    spent = [sensors(state, 0).energy_millijoules()]
    simulation.add_process(FIRST, 71, percent=100)
    busy = simulation.state
    spent += [sensors(busy, DAY).energy_millijoules(), sensors(busy, 2 * DAY).energy_millijoules()]
    simulation.remove_process(71)
    ended = simulation.state
    spent.append(sensors(ended, 2 * DAY).energy_millijoules())

    idle_joules = gpu_of(ended).model.idle_watts * 2 * DAY
    assert spent[0] < spent[1] < spent[2]
    assert spent[3] / 1000 > idle_joules
    assert math.isclose(spent[3] / 1000, idle_joules + ended.gpus[FIRST].spent_joules)


def test_energy_is_idle_power_over_time(tmp_path: Path) -> None:
    """Joules since the driver was loaded."""
    state = machines.simulation(tmp_path).state

    assert sensors(state, 10).energy_millijoules() == 10_000 * gpu_of(state).model.idle_watts


def test_readings_that_are_set_stay_until_they_are_freed(tmp_path: Path) -> None:
    """Whatever the GPU does."""
    simulation = machines.simulation(tmp_path)
    simulation.set_readings(FIRST, gpu_celsius=0, power_milliwatts=1)
    fixed = sensors(simulation.state, 100)
    simulation.set_readings(FIRST, gpu_celsius=None)
    freed = sensors(simulation.state, 100)

    assert (fixed.gpu_celsius(), fixed.power_milliwatts()) == (0, 1)
    assert freed.gpu_celsius() > 20
    assert freed.power_milliwatts() == 1


def test_a_call_of_one_number_answers_what_is_set_though_the_simulator_does_not_know_it(
    tmp_path: Path,
) -> None:
    """So a new reading needs no change of the simulator."""
    unknown, known = "nvmlDeviceGetNumGpuCores", "nvmlDeviceGetMaxPcieLinkWidth"
    simulation = machines.simulation(tmp_path)
    with machines.session(simulation) as handle:
        cores = functools.partial(nv.nvmlDeviceGetNumGpuCores, handle(0))
        assert machines.code_of(cores) == nv.NVML_ERROR_FUNCTION_NOT_FOUND

        simulation.set_readings(FIRST, numbers={unknown: 6912, known: 2})
        assert cores() == 6912
        assert nv.nvmlDeviceGetMaxPcieLinkWidth(handle(0)) == 2
        others = functools.partial(nv.nvmlDeviceGetNumGpuCores, handle(1))
        assert machines.code_of(others) == nv.NVML_ERROR_NOT_SUPPORTED

        simulation.fault(Return(code=nv.NVML_ERROR_GPU_IS_LOST), unknown)
        assert machines.code_of(cores) == nv.NVML_ERROR_GPU_IS_LOST
