# SPDX-License-Identifier: Apache-2.0
"""What changes by the second: each family against the reading that it shows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from discovery.sample import (
    EccErrors,
    HeldDown,
    MemoryUse,
    Pcie,
    PowerLimits,
    RetiredPages,
    TemperatureLimits,
)
from discovery.unread import unread_sample
from exporters.gpuscape.gpu_reading_families import FAMILIES
from tests import build
from tests.exporters.gpuscape_series import everything, told, value

USE = MemoryUse(free_bytes=1, used_bytes=2, reserved_bytes=3)

NUMBERS: list[tuple[str, dict[str, Any], float]] = [
    ("power_watts", {"power_watts": 55.5}, 55.5),
    ("energy_joules_total", {"energy_joules": 1234.567}, 1234.567),
    ("temperature_celsius", {"gpu_celsius": 34}, 34),
    ("memory_temperature_celsius", {"memory_celsius": 41}, 41),
    ("sm_clock_hertz", {"sm_clock_hertz": 1_980_000_000}, 1.98e9),
    ("memory_clock_hertz", {"memory_clock_hertz": 2_619_000_000}, 2.619e9),
    ("busy_ratio", {"gpu_busy_ratio": 0.97}, 0.97),
    ("memory_busy_ratio", {"memory_busy_ratio": 0.5}, 0.5),
    ("encoder_busy_ratio", {"encoder_busy_ratio": 0.25}, 0.25),
    ("decoder_busy_ratio", {"decoder_busy_ratio": 1.0}, 1),
    ("memory_used_bytes", {"memory": USE}, 2),
    ("memory_free_bytes", {"memory": USE}, 1),
    ("memory_reserved_bytes", {"memory": USE}, 3),
    ("pcie_replays_total", {"pcie_replays": 7}, 7),
    ("nvlink_received_bytes_total", {"nvlink_received_bytes": 1 << 50}, 1 << 50),
    ("nvlink_sent_bytes_total", {"nvlink_sent_bytes": 12}, 12),
    ("vgpu_licensed", {"vgpu_licensed": True}, 1),
    (
        "temperature_margin_celsius",
        {"temperature_limits": build.only(TemperatureLimits, margin=-3)},
        -3,
    ),
    (
        "temperature_headroom_celsius",
        {"gpu_celsius": 88, "temperature_limits": build.only(TemperatureLimits, gpu_most=85)},
        -3,
    ),
    ("pcie_generation", {"pcie": build.only(Pcie, generation=5)}, 5),
    ("pcie_lanes", {"pcie": build.only(Pcie, width=16)}, 16),
    ("pcie_received_bytes_total", {"pcie": build.only(Pcie, received_bytes=10)}, 10),
    ("pcie_sent_bytes_total", {"pcie": build.only(Pcie, sent_bytes=11)}, 11),
    ("bar1_used_bytes", {"bar1": USE}, 2),
    ("bar1_free_bytes", {"bar1": USE}, 1),
    ("fan_speed_ratio", {"fan_ratio": 0.3}, 0.3),
    ("performance_state", {"performance_state": 8}, 8),
]

PARTS: list[tuple[str, str, dict[str, Any], dict[str, float]]] = [
    (
        "held_down_seconds_total",
        "cause",
        {"held_down": build.only(HeldDown, power=1.5, base_clocks=0.0)},
        {"power": 1.5, "base_clocks": 0},
    ),
    (
        "ecc_errors_total",
        "error",
        {"ecc_errors": build.only(EccErrors, corrected_volatile=1, uncorrected_volatile=2)},
        {"corrected": 1, "uncorrected": 2},
    ),
    (
        "ecc_lifetime_errors_total",
        "error",
        {"ecc_errors": build.only(EccErrors, corrected_volatile=9, uncorrected_aggregate=3)},
        {"uncorrected": 3},
    ),
    (
        "retired_pages_total",
        "error",
        {"retired_pages": build.only(RetiredPages, corrected=4, uncorrected=5, pending=True)},
        {"corrected": 4, "uncorrected": 5},
    ),
    (
        "power_limit_watts",
        "limit",
        {"power_limits": build.only(PowerLimits, current=400.0, highest=700.0)},
        {"current": 400, "highest": 700},
    ),
    (
        "temperature_limit_celsius",
        "limit",
        {"temperature_limits": build.only(TemperatureLimits, slowdown=89, gpu_most=85, margin=50)},
        {"slowdown": 89, "gpu_most": 85},
    ),
]


def test_every_family_of_readings_has_its_case_here() -> None:
    cases = {name for name, *_ in NUMBERS} | {name for name, *_ in PARTS}

    names = {family.name.removeprefix("gpuscape_gpu_") for family in FAMILIES}
    assert names == cases | {"memory_bytes", "clock_event"}


@pytest.mark.parametrize(("name", "reading", "expected"), NUMBERS)
def test_a_reading_is_told_in_base_units(
    name: str, reading: dict[str, Any], expected: float
) -> None:
    gpu = build.gpu()

    sample = replace(unread_sample(gpu.bus_id), **reading)

    assert value(f"gpuscape_gpu_{name}", gpu, sample) == expected


@pytest.mark.parametrize(("name", "label", "reading", "expected"), PARTS)
def test_readings_of_one_kind_are_told_apart_and_those_missing_left_out(
    name: str, label: str, reading: dict[str, Any], expected: dict[str, float]
) -> None:
    gpu = build.gpu()
    sample = replace(unread_sample(gpu.bus_id), **reading)

    found = told(f"gpuscape_gpu_{name}", build.node([gpu]), [sample])

    assert found == {((label, word),): number for word, number in expected.items()}


def test_each_reason_for_lower_clocks_is_yes_or_no() -> None:
    gpu = build.gpu()
    name, node = "gpuscape_gpu_clock_event", build.node([gpu])

    found = told(name, node, [build.sample(gpu, clock_event_reasons=0x4 | 0x40)])

    assert {dict(labels)["reason"]: number for labels, number in found.items()} == {
        "gpu_idle": 0,
        "clocks_setting": 0,
        "power_cap": 1,
        "hw_slowdown": 0,
        "sync_boost": 0,
        "sw_thermal": 0,
        "hw_thermal": 1,
        "hw_power_brake": 0,
        "display_clocks": 0,
    }
    assert told(name, node, [build.sample(gpu)]) == {}


def test_the_memory_of_a_gpu_is_that_of_the_snapshot() -> None:
    assert value("gpuscape_gpu_memory_bytes", build.gpu(memory_bytes=80 << 30)) == 80 << 30


@pytest.mark.parametrize("family", [family.name for family in FAMILIES])
def test_a_gpu_is_told_once_however_many_instances_it_has(family: str) -> None:
    def labels(instances: int) -> object:
        snapshot, samples, about = everything(1, instances)
        return told(family, snapshot, samples, **about)

    assert labels(7) == labels(0)
