# SPDX-License-Identifier: Apache-2.0
"""Fields come as whatever type the driver says, and are the same readings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pynvml as nv
import pytest

from discovery.model import Reason
from discovery.nvml.calls import field_value
from tests import machines
from tests.discovery.sampling import Sampler, leaves, small

FIRST = machines.gpu(0).bus_id
WIDE = {
    nv.NVML_VALUE_TYPE_DOUBLE: "double",
    nv.NVML_VALUE_TYPE_UNSIGNED_LONG: "unsigned long",
    nv.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "unsigned long long",
    nv.NVML_VALUE_TYPE_SIGNED_LONG_LONG: "signed long long",
}
NARROW = {
    nv.NVML_VALUE_TYPE_UNSIGNED_INT: "unsigned int",
    nv.NVML_VALUE_TYPE_SIGNED_INT: "signed int",
    nv.NVML_VALUE_TYPE_UNSIGNED_SHORT: "unsigned short",
}


@pytest.fixture
def taken(tmp_path: Path) -> Iterator[Sampler]:
    with small(tmp_path, profiling=True, pcie_counters=True) as taken:
        taken.simulation.add_process(FIRST, 71, percent=50)
        yield taken


def fields_of(taken: Sampler, **how: int | None) -> dict[str, Any]:
    """All readings, with fields of some type, at one moment."""
    taken.simulation.set_readings(FIRST, memory_celsius=47, energy_millijoules=3, **how)
    return leaves(taken.sample(FIRST, after=0.0))


@pytest.mark.parametrize("kind", WIDE, ids=WIDE.values())
def test_a_field_of_another_type_is_the_same_reading(taken: Sampler, kind: int) -> None:
    usual = fields_of(taken, field_type=nv.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG)
    assert usual["memory_celsius"] == 47
    assert usual["nvlink_sent_bytes"] > 0
    assert usual["pcie.sent_bytes"] > 0
    assert fields_of(taken, field_type=kind) == usual


@pytest.mark.parametrize("kind", NARROW, ids=NARROW.values())
def test_small_numbers_fit_into_narrow_types(taken: Sampler, kind: int) -> None:
    found = fields_of(taken, field_type=kind)
    assert found["memory_celsius"] == 47


@pytest.mark.parametrize("kind", NARROW, ids=NARROW.values())
def test_pcie_counters_of_narrow_types_are_no_reading(taken: Sampler, kind: int) -> None:
    """Of 32 bits, as an H100 has them, they start again within a tenth of a second."""
    taken.simulation.set_readings(FIRST, field_type=kind)
    sample = taken.sample(FIRST)
    assert {"pcie.sent_bytes", "pcie.received_bytes"}.isdisjoint(leaves(sample))
    (gap,) = [it for it in sample.gaps if it.what == "pcie.sent_bytes"]
    assert (gap.reason, gap.source) == (Reason.UNSUPPORTED, "nvmlDeviceGetFieldValues(197)")
    assert gap.detail == "a counter of 32 bits or less, which starts again too often"


@pytest.mark.parametrize("claimed", [nv.NVML_VALUE_TYPE_DOUBLE, 99])
def test_memory_temperature_is_read_though_its_type_is_wrong(taken: Sampler, claimed: int) -> None:
    found = fields_of(taken, field_type=nv.NVML_VALUE_TYPE_UNSIGNED_INT, field_type_claimed=claimed)
    assert found["memory_celsius"] == 47


@pytest.mark.parametrize("kind", [7, 99])  # nvmlValueType_t of nvml.h ends with 6
def test_a_field_of_a_type_that_nvml_does_not_define_is_garbage(taken: Sampler, kind: int) -> None:
    taken.simulation.set_readings(FIRST, field_type_claimed=kind)
    gap = next(it for it in taken.sample(FIRST).gaps if it.what == "nvlink_sent_bytes")
    assert (gap.reason, gap.detail) == (Reason.GARBAGE, f"value type {kind}")


def test_a_field_that_failed_is_its_error_and_no_number() -> None:
    value = nv.c_nvmlFieldValue_t()
    value.nvmlReturn = nv.NVML_ERROR_NOT_SUPPORTED
    with pytest.raises(nv.NVMLError_NotSupported):
        field_value(value, "uiVal")
