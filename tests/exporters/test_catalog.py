"""The catalog: every default metric of dcgm-exporter that NVML gives, with its unit."""

from __future__ import annotations

import math
from typing import Any

import pytest

from discovery.model import RemappedRows
from discovery.sample import MemoryUse
from exporters.catalog import CATALOG
from exporters.family import Family, Kind, Reading, UnderMig
from tests import build

GAUGE, COUNTER = Kind.GAUGE, Kind.COUNTER
REPEATED, OWN, ABSENT = UnderMig.REPEATED, UnderMig.OWN, UnderMig.ABSENT

# By hand from dcgm-exporter's default-counters.csv, without the profiling fields.
DEFAULTS = {
    "DCGM_FI_DEV_SM_CLOCK": (GAUGE, REPEATED),
    "DCGM_FI_DEV_MEM_CLOCK": (GAUGE, REPEATED),
    "DCGM_FI_DEV_MEMORY_TEMP": (GAUGE, REPEATED),
    "DCGM_FI_DEV_GPU_TEMP": (GAUGE, REPEATED),
    "DCGM_FI_DEV_POWER_USAGE": (GAUGE, REPEATED),
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": (COUNTER, REPEATED),
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": (COUNTER, REPEATED),
    "DCGM_FI_DEV_GPU_UTIL": (GAUGE, ABSENT),
    "DCGM_FI_DEV_MEM_COPY_UTIL": (GAUGE, ABSENT),
    "DCGM_FI_DEV_ENC_UTIL": (GAUGE, ABSENT),
    "DCGM_FI_DEV_DEC_UTIL": (GAUGE, ABSENT),
    "DCGM_FI_DEV_XID_ERRORS": (GAUGE, OWN),
    "DCGM_FI_DEV_FB_FREE": (GAUGE, OWN),
    "DCGM_FI_DEV_FB_USED": (GAUGE, OWN),
    "DCGM_FI_DEV_FB_RESERVED": (GAUGE, OWN),
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": (COUNTER, REPEATED),
    "DCGM_FI_DEV_VGPU_LICENSE_STATUS": (GAUGE, REPEATED),
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": (COUNTER, REPEATED),
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": (COUNTER, REPEATED),
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": (GAUGE, REPEATED),
}

FAMILIES = {family.name.removeprefix("DCGM_FI_DEV_"): family for family in CATALOG}


def reading(**readings: Any) -> Reading:
    sample = build.sample(build.gpu(), **readings)
    return Reading(sample=sample, memory=sample.memory)


def text(family: str, of: Reading) -> str | None:
    (only,) = FAMILIES[family].texts([of])
    return only


def nvlink(before: dict[str, Any], now: dict[str, Any]) -> str | None:
    both = Reading(
        sample=build.sample(build.gpu(), **now), before=build.sample(build.gpu(), **before)
    )
    return text("NVLINK_BANDWIDTH_TOTAL", both)


def test_the_catalog_is_the_default_list() -> None:
    assert {family.name: (family.kind, family.under_mig) for family in CATALOG} == DEFAULTS


def test_families_are_declared_in_the_order_of_their_field_ids() -> None:
    fields = [family.field for family in CATALOG]

    assert fields == sorted(set(fields))


@pytest.mark.parametrize(
    ("family", "readings", "expected"),
    [
        ("SM_CLOCK", {"sm_clock_hertz": 1_980_000_000}, "1980"),
        ("MEM_CLOCK", {"memory_clock_hertz": 2_619_000_000}, "2619"),
        ("MEMORY_TEMP", {"memory_celsius": 62}, "62"),
        ("GPU_TEMP", {"gpu_celsius": 0}, "0"),
        ("POWER_USAGE", {"power_watts": 700.25}, "700.250000"),
        ("TOTAL_ENERGY_CONSUMPTION", {"energy_joules": 57585.599}, "57585599"),
        ("PCIE_REPLAY_COUNTER", {"pcie_replays": 4294967294}, "4294967294"),
        ("GPU_UTIL", {"gpu_busy_ratio": 0.57}, "57"),
        ("MEM_COPY_UTIL", {"memory_busy_ratio": 0.29}, "29"),
        ("ENC_UTIL", {"encoder_busy_ratio": 1.0}, "100"),
        ("DEC_UTIL", {"decoder_busy_ratio": 0.0}, "0"),
        ("VGPU_LICENSE_STATUS", {"vgpu_licensed": True}, "1"),
        ("VGPU_LICENSE_STATUS", {"vgpu_licensed": False}, "0"),
    ],
)
def test_a_reading_is_written_in_dcgm_s_unit(
    family: str, readings: dict[str, Any], expected: str
) -> None:
    assert text(family, reading(**readings)) == expected


def test_memory_is_whole_mebibytes_rounded_down() -> None:
    use = MemoryUse(free_bytes=3 * build.MIB - 1, used_bytes=build.MIB, reserved_bytes=None)

    texts = [text(name, reading(memory=use)) for name in ("FB_FREE", "FB_USED", "FB_RESERVED")]

    assert texts == ["2", "1", None]


def test_remapped_rows_are_counts_and_a_flag() -> None:
    rows = RemappedRows(correctable=3, uncorrectable=2, pending=False, failed=True)
    names = ("UNCORRECTABLE_REMAPPED_ROWS", "CORRECTABLE_REMAPPED_ROWS", "ROW_REMAP_FAILURE")

    texts = [text(name, reading(remapped_rows=rows)) for name in names]

    assert texts == ["2", "3", "1"]


@pytest.mark.parametrize("family", CATALOG, ids=lambda family: family.name)
def test_a_reading_that_a_device_does_not_give_is_no_value(family: Family) -> None:
    nothing = Reading(
        sample=build.sample(
            build.gpu(),
            **{
                name: None
                for name in build.sample(build.gpu()).__slots__
                if name not in ("bus_id", "at_seconds", "mig_memory", "gaps")
            },
        )
    )

    assert family.texts([nothing]) == ["0" if family.name == "DCGM_FI_DEV_XID_ERRORS" else None]


@pytest.mark.parametrize(
    ("family", "readings"),
    [
        ("SM_CLOCK", {"sm_clock_hertz": 0xFFFFFFFF * 1_000_000}),
        ("GPU_TEMP", {"gpu_celsius": 0xFFFFFFFF}),
        ("MEMORY_TEMP", {"memory_celsius": 201}),
        ("GPU_TEMP", {"gpu_celsius": -1}),
        ("POWER_USAGE", {"power_watts": 0xFFFFFFFF / 1000}),
        ("POWER_USAGE", {"power_watts": math.nan}),
        ("POWER_USAGE", {"power_watts": math.inf}),
        ("TOTAL_ENERGY_CONSUMPTION", {"energy_joules": 0xFFFFFFFFFFFFFFFF / 1000}),
        ("TOTAL_ENERGY_CONSUMPTION", {"energy_joules": 0x7FFFFFFFFFFFFFF0 / 1000}),
        ("PCIE_REPLAY_COUNTER", {"pcie_replays": 0xFFFFFFFF}),
        ("GPU_UTIL", {"gpu_busy_ratio": 1.01}),
        ("GPU_UTIL", {"gpu_busy_ratio": math.nan}),
        ("FB_USED", {"memory": MemoryUse(free_bytes=0, used_bytes=0xFFFFFFFFFFFFFFFF)}),
    ],
)
def test_an_impossible_reading_is_no_value(family: str, readings: dict[str, Any]) -> None:
    assert text(family, reading(**readings)) is None


def test_nvlink_bandwidth_is_thousands_of_kibibytes_a_second_over_both_directions() -> None:
    before = {"at_seconds": 10.0, "nvlink_received_bytes": 500, "nvlink_sent_bytes": 500}
    now = {
        "at_seconds": 12.0,
        "nvlink_received_bytes": 500 + 1024 * 1000 * 2 * 30,
        "nvlink_sent_bytes": 500 + 1024 * 1000 * 2 * 12 + 1024 * 1999,
    }

    assert nvlink(before, now) == "42"


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ({"nvlink_sent_bytes": None}, {"at_seconds": 110.0, "nvlink_sent_bytes": 10**12}),
        ({"nvlink_sent_bytes": 10**12}, {"at_seconds": 110.0, "nvlink_sent_bytes": 10**11}),
        ({}, {"nvlink_sent_bytes": 10**12}),
    ],
    ids=["counters were not known", "counters began again", "no time went by"],
)
def test_nvlink_bandwidth_is_zero_where_there_is_nothing_to_compare(
    before: dict[str, Any], now: dict[str, Any]
) -> None:
    assert nvlink(before, now) == "0"


def test_nvlink_bandwidth_is_zero_with_the_first_sample() -> None:
    assert text("NVLINK_BANDWIDTH_TOTAL", reading()) == "0"
