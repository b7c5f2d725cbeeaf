# SPDX-License-Identifier: Apache-2.0
"""The most and the least that GPUs answer is a reading; what no GPU can answer is garbage."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from discovery.model import Reason
from discovery.sample import GpuSample
from tests import machines
from tests.discovery.sampling import Sampler, leaves, small

FIRST = machines.gpu(0).bus_id
INSTANT_POWER, NOT_AVAILABLE = 186, 0xFFFFFFFF

POSSIBLE: tuple[tuple[str, dict[str, Any], float], ...] = (
    ("power_watts", {"power_milliwatts": 1_400_000}, 1400),  # B300
    ("instant_power_watts", {"fields": {INSTANT_POWER: 1_400_000}}, 1400),
    ("power_limits.current", {"power_limit_milliwatts": 1_400_000}, 1400),
    ("power_limits.enforced", {"enforced_power_limit_milliwatts": 1_400_000}, 1400),
    ("power_watts", {"power_milliwatts": 3_000_000}, 3000),  # a peak, or a superchip's module
    ("power_watts", {"power_milliwatts": 0}, 0),
    ("gpu_celsius", {"gpu_celsius": 0}, 0),
    ("gpu_celsius", {"gpu_celsius": 105}, 105),  # past the shutdown of most boards
    ("memory_celsius", {"memory_celsius": 110}, 110),  # GDDR6X and GDDR7
    ("memory_clock_hertz", {"memory_clock_mhz": 14_001}, 14_001_000_000),  # GDDR7 at 28 Gbit/s
    ("sm_clock_hertz", {"sm_clock_mhz": 3_090}, 3_090_000_000),
    ("fan_ratio", {"fan_percent": 105}, 1.05),  # nvml.h: may be more than 100
    ("pcie.generation", {"pcie_generation": 6}, 6),
    ("pcie.width", {"pcie_lanes": 32}, 32),
    ("temperature_limits.margin", {"margin_celsius": -20}, -20),
    ("performance_state", {"performance_state": 15}, 15),
    ("gpu_busy_ratio", {"gpu_percent": 100}, 1),
)
"""Reading, what the machine is made to say, and the value. Sources: datasheets; nvml.h."""

IMPOSSIBLE: tuple[tuple[str, dict[str, Any]], ...] = (
    ("power_watts", {"power_milliwatts": 10_000_001}),
    ("power_watts", {"power_milliwatts": NOT_AVAILABLE}),
    ("instant_power_watts", {"fields": {INSTANT_POWER: NOT_AVAILABLE}}),
    ("gpu_celsius", {"gpu_celsius": 201}),
    ("memory_celsius", {"memory_celsius": 255}),
    ("memory_clock_hertz", {"memory_clock_mhz": 20_001}),
    ("fan_ratio", {"fan_percent": 201}),
    ("pcie.generation", {"pcie_generation": 16}),
    ("pcie.width", {"pcie_lanes": 65}),
    ("temperature_limits.margin", {"margin_celsius": -201}),
    ("performance_state", {"performance_state": 32}),  # NVML_PSTATE_UNKNOWN
    ("gpu_busy_ratio", {"gpu_percent": 101}),
)


@pytest.fixture
def taken(tmp_path: Path) -> Iterator[Sampler]:
    with small(tmp_path) as taken:
        yield taken


def sample_of(taken: Sampler, readings: dict[str, Any]) -> GpuSample:
    taken.simulation.set_readings(FIRST, **readings)
    return taken.sample(FIRST)


@pytest.mark.parametrize(
    ("path", "readings", "value"), POSSIBLE, ids=[f"{it[0]}={it[2]:g}" for it in POSSIBLE]
)
def test_the_most_and_the_least_of_real_gpus_is_a_reading(
    taken: Sampler, path: str, readings: dict[str, Any], value: float
) -> None:
    sample = sample_of(taken, readings)
    assert leaves(sample)[path] == pytest.approx(value)
    assert path not in {gap.what for gap in sample.gaps}


@pytest.mark.parametrize(
    ("path", "readings"), IMPOSSIBLE, ids=[f"{it[0]}-{next(iter(it[1]))}" for it in IMPOSSIBLE]
)
def test_what_no_gpu_can_answer_is_garbage(
    taken: Sampler, path: str, readings: dict[str, Any]
) -> None:
    sample = sample_of(taken, readings)
    assert path not in leaves(sample)
    assert [gap.reason for gap in sample.gaps if gap.what == path] == [Reason.GARBAGE]
