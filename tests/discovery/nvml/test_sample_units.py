# SPDX-License-Identifier: Apache-2.0
"""Every reading of a sample comes from the call that it is said to come from, in its unit."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any

import pynvml as nv
import pytest

from discovery.sample import GpuSample, LinkError, ProcessKind, ReadingGroup
from simulator.description.machine_schema import MigInstanceSpec
from tests import machines
from tests.discovery.sampling import Sampler, leaves, small

WHOLE, SPLIT = machines.gpu(0), machines.gpu(1, mig=True, instances=(
    MigInstanceSpec(profile="3g.20gb", start=4, id=2),
))  # fmt: skip
MHZ, MILLI, PERCENT, KIB, MIB, NANO = 10**6, 1e-3, 1e-2, 2**10, 2**20, 1e-9
ALL_LINKS = 0xFFFFFFFF
OF_LINKS = (201, 202, 203, 204, 220, 222, *range(235, 251))
MEMORY_ERRORS = tuple(product(range(2), range(2), range(8)))
LINK_ERRORS = tuple(product(range(2), range(4)))
OF_GPU = (160, 170, 171, 172, 173, *range(231, 235), *range(251, 269))

READINGS: dict[str, Any] = {
    "numbers": {
        **{
            f"nvmlDeviceGetMemoryErrorCounter({a},{b},{c})": 9000 + 100 * a + 10 * b + c
            for a, b, c in MEMORY_ERRORS
        },
        **{f"nvmlDeviceGetNvLinkErrorCounter({a},{b})": 9500 + 10 * a + b for a, b in LINK_ERRORS},
    },
    "energy_millijoules": 123_456_789,
    "encoder_percent": 11,
    "decoder_percent": 13,
    "gpu_percent": 17,
    "memory_percent": 19,
    "memory_celsius": 61,
    "memory_clock_mhz": 399,
    "pcie_replays": 23,
    "remapped_correctable": 3,
    "remapped_uncorrectable": 2,
    "remap_pending": True,
    "event_reasons": 0x24,
    "power_limit_milliwatts": 270_000,
    "enforced_power_limit_milliwatts": 260_000,
    "fan_percent": 37,
    "performance_state": 2,
    "margin_celsius": -3,
    "nvlink_received_kib": 1_001,
    "nvlink_sent_kib": 2_003,
    "field_type": nv.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG,
    "fields": {
        **{number: 1000 + number for number in (3, 4, 5, 6)},
        **dict(zip((29, 30, 31), (29, 30, 1), strict=True)),
        **{number: 10**12 + number for number in range(74, 82)},
        **{number: 2**40 + number for number in (197, 198)},
        **{number: 10**12 + number for number in range(269, 272)},
        **{number: 3 * 10**9 + number for number in (*OF_LINKS, *OF_GPU)},
        186: 151_000,
        **{number: 500 + number for number in (38, 45, 52, 59, *range(206, 222))},
    },
}
"""What the machine is made to say, no two of a kind alike."""

Raw = Callable[[Any], float]


def _field(number: int, scope: int = 0) -> Raw:
    """A field value, as the driver gives it. All here are counts or whole numbers."""

    def raw(handle: Any) -> float:
        (value,) = nv.nvmlDeviceGetFieldValues(handle, [(number, scope)])
        assert value.nvmlReturn == 0
        return int(value.value.ullVal)

    return raw


def _count(call: Callable[..., int], key: tuple[int, ...], handle: Any) -> int:
    return call(handle, *key)


def _gpm(metric: int, *, unit: float) -> tuple[str, Raw, float]:
    """Between two samples taken right around the reader's own."""
    return f"profiling.{metric}", lambda _: GPM[metric], unit


GPM: dict[int, float] = {}
"""Metric to value, as the driver computes it for the same time."""

ROWS: tuple[tuple[str, Raw, float], ...] = (
    ("sm_clock_hertz", lambda h: nv.nvmlDeviceGetClockInfo(h, 1), MHZ),
    ("memory_clock_hertz", lambda h: nv.nvmlDeviceGetClockInfo(h, 2), MHZ),
    ("gpu_celsius", lambda h: nv.nvmlDeviceGetTemperature(h, 0), 1),
    ("memory_celsius", _field(82), 1),
    ("power_watts", lambda h: nv.nvmlDeviceGetPowerUsage(h), MILLI),
    ("instant_power_watts", _field(186), MILLI),
    ("clocks.video", lambda h: nv.nvmlDeviceGetClockInfo(h, 3), MHZ),
    ("clocks.application_sm", lambda h: nv.nvmlDeviceGetApplicationsClock(h, 0), MHZ),
    ("clocks.application_memory", lambda h: nv.nvmlDeviceGetApplicationsClock(h, 2), MHZ),
    ("clocks.highest_sm", lambda h: nv.nvmlDeviceGetMaxClockInfo(h, 1), MHZ),
    ("clocks.highest_memory", lambda h: nv.nvmlDeviceGetMaxClockInfo(h, 2), MHZ),
    ("clocks.highest_video", lambda h: nv.nvmlDeviceGetMaxClockInfo(h, 3), MHZ),
    ("energy_joules", lambda h: nv.nvmlDeviceGetTotalEnergyConsumption(h), MILLI),
    ("pcie_replays", lambda h: nv.nvmlDeviceGetPcieReplayCounter(h), 1),
    ("gpu_busy_ratio", lambda h: nv.nvmlDeviceGetUtilizationRates(h).gpu, PERCENT),
    ("memory_busy_ratio", lambda h: nv.nvmlDeviceGetUtilizationRates(h).memory, PERCENT),
    ("encoder_busy_ratio", lambda h: nv.nvmlDeviceGetEncoderUtilization(h)[0], PERCENT),
    ("decoder_busy_ratio", lambda h: nv.nvmlDeviceGetDecoderUtilization(h)[0], PERCENT),
    ("memory.free_bytes", lambda h: nv.nvmlDeviceGetMemoryInfo(h, nv.nvmlMemory_v2).free, 1),
    ("memory.used_bytes", lambda h: nv.nvmlDeviceGetMemoryInfo(h, nv.nvmlMemory_v2).used, 1),
    (
        "memory.reserved_bytes",
        lambda h: nv.nvmlDeviceGetMemoryInfo(h, nv.nvmlMemory_v2).reserved,
        1,
    ),
    ("nvlink_received_bytes", _field(139, ALL_LINKS), KIB),
    ("nvlink_sent_bytes", _field(138, ALL_LINKS), KIB),
    ("remapped_rows.correctable", lambda h: nv.nvmlDeviceGetRemappedRows(h)[0], 1),
    ("remapped_rows.uncorrectable", lambda h: nv.nvmlDeviceGetRemappedRows(h)[1], 1),
    ("remapped_rows.pending", lambda h: nv.nvmlDeviceGetRemappedRows(h)[2], 1),
    ("remapped_rows.failed", lambda h: nv.nvmlDeviceGetRemappedRows(h)[3], 1),
    ("vgpu_licensed", lambda h: nv.nvmlDeviceGetGridLicensableFeatures_v4(h)
        .isGridLicenseSupported, 1),
    ("clock_event_reasons", lambda h: nv.nvmlDeviceGetCurrentClocksEventReasons(h), 1),
    ("held_down.power", _field(74), NANO),
    ("held_down.thermal", _field(75), NANO),
    ("held_down.sync_boost", _field(76), NANO),
    ("held_down.board_limit", _field(77), NANO),
    ("held_down.low_utilization", _field(78), NANO),
    ("held_down.reliability", _field(79), NANO),
    ("held_down.application_clocks", _field(80), NANO),
    ("held_down.base_clocks", _field(81), NANO),
    ("held_down.software_thermal", _field(269), NANO),
    ("held_down.hardware_thermal", _field(270), NANO),
    ("held_down.power_brake", _field(271), NANO),
    ("ecc_errors.corrected_volatile", _field(3), 1),
    ("ecc_errors.uncorrected_volatile", _field(4), 1),
    ("ecc_errors.corrected_aggregate", _field(5), 1),
    ("ecc_errors.uncorrected_aggregate", _field(6), 1),
    ("retired_pages.corrected", _field(29), 1),
    ("retired_pages.uncorrected", _field(30), 1),
    ("retired_pages.pending", _field(31), 1),
    ("power_limits.current", lambda h: nv.nvmlDeviceGetPowerManagementLimit(h), MILLI),
    ("power_limits.enforced", lambda h: nv.nvmlDeviceGetEnforcedPowerLimit(h), MILLI),
    ("power_limits.default", lambda h: nv.nvmlDeviceGetPowerManagementDefaultLimit(h), MILLI),
    (
        "power_limits.lowest",
        lambda h: nv.nvmlDeviceGetPowerManagementLimitConstraints(h)[0],
        MILLI,
    ),
    (
        "power_limits.highest",
        lambda h: nv.nvmlDeviceGetPowerManagementLimitConstraints(h)[1],
        MILLI,
    ),
    ("temperature_limits.shutdown", lambda h: nv.nvmlDeviceGetTemperatureThreshold(h, 0), 1),
    ("temperature_limits.slowdown", lambda h: nv.nvmlDeviceGetTemperatureThreshold(h, 1), 1),
    ("temperature_limits.memory_most", lambda h: nv.nvmlDeviceGetTemperatureThreshold(h, 2), 1),
    ("temperature_limits.gpu_most", lambda h: nv.nvmlDeviceGetTemperatureThreshold(h, 3), 1),
    ("temperature_limits.margin", lambda h: nv.nvmlDeviceGetMarginTemperature(h), 1),
    ("pcie.generation", lambda h: nv.nvmlDeviceGetCurrPcieLinkGeneration(h), 1),
    ("pcie.width", lambda h: nv.nvmlDeviceGetCurrPcieLinkWidth(h), 1),
    ("pcie.sent_bytes", _field(197), 1),
    ("pcie.received_bytes", _field(198), 1),
    ("bar1.free_bytes", lambda h: nv.nvmlDeviceGetBAR1MemoryInfo(h).bar1Free, 1),
    ("bar1.used_bytes", lambda h: nv.nvmlDeviceGetBAR1MemoryInfo(h).bar1Used, 1),
    ("fan_ratio", lambda h: nv.nvmlDeviceGetFanSpeed(h), PERCENT),
    ("performance_state", lambda h: nv.nvmlDeviceGetPerformanceState(h), 1),
    ("nvlink_errors.crc_flit", _field(38), 1),
    ("nvlink_errors.crc_data", _field(45), 1),
    ("nvlink_errors.replay", _field(52), 1),
    ("nvlink_errors.recovery", _field(59), 1),
    *((f"numbers.{number}", _field(number, ALL_LINKS), 1) for number in OF_LINKS),
    *((f"numbers.{number}", _field(number), 1) for number in OF_GPU),
    *(
        (f"memory_errors.{key}", partial(_count, nv.nvmlDeviceGetMemoryErrorCounter, key), 1)
        for key in MEMORY_ERRORS
    ),
    *(
        (f"link_errors.{key}", partial(_count, nv.nvmlDeviceGetNvLinkErrorCounter, key), 1)
        for key in LINK_ERRORS
    ),
    ("links.0.received_bytes", _field(139, 0), KIB),
    ("links.0.sent_bytes", _field(138, 0), KIB),
    ("links.1.received_bytes", _field(139, 1), KIB),
    ("links.1.sent_bytes", _field(138, 1), KIB),
    *(
        (f"links.{link}.errors.{error}", _field(number, link), 1)
        for link in (0, 1)
        for error, number in {
            LinkError.MALFORMED_PACKETS: 206,
            LinkError.BUFFER_OVERRUNS: 207,
            LinkError.RECEIVE: 208,
            LinkError.RECEIVE_REMOTE: 209,
            LinkError.RECEIVE_GENERAL: 210,
            LinkError.INTEGRITY: 211,
            LinkError.DISCARDED: 212,
            LinkError.RECOVERIES: 213,
            LinkError.RECOVERIES_FAILED: 214,
            LinkError.EFFECTIVE: 219,
            LinkError.SYMBOL: 221,
        }.items()
    ),
    (
        f"nvlink_p2p.{SPLIT.bus_id}",
        lambda h: nv.nvmlDeviceGetP2PStatus(h, nv.nvmlDeviceGetHandleByPciBusId(SPLIT.bus_id), 2),
        1,
    ),
    (
        "processes.71-compute.memory_bytes",
        lambda h: nv.nvmlDeviceGetComputeRunningProcesses(h)[0].usedGpuMemory,
        1,
    ),
    (
        "processes.71-compute.busy_ratio",
        lambda h: nv.nvmlDeviceGetProcessUtilization(h, 0)[0].smUtil,
        PERCENT,
    ),
    *(_gpm(metric, unit=PERCENT) for metric in (*range(1, 14), 30, 31, *range(160, 164))),
    *(_gpm(metric, unit=1) for metric in range(248, 261)),
    *(_gpm(metric, unit=MIB) for metric in (20, 21, 60, 61, 62, 63, 64, 65)),
)  # fmt: skip
"""Path of a reading, where the driver tells it, and the driver's unit in base units.

Numbers of fields and metrics are nvml.h's, written out, so that a mix-up of names shows.
"""

OF_INSTANCES = ("mig_memory", "mig_profiling")
"""Tests of their own below."""
LASTING = ("board", "spare_rows")
"""What a board is, and texts: tests/exporters/dcgm/test_units.py has each as the driver has it."""


@pytest.fixture(scope="module")
def taken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sampler]:
    directory = tmp_path_factory.mktemp("machine")
    with small(directory, WHOLE, SPLIT) as taken:
        for gpu in (WHOLE, SPLIT):
            taken.simulation.set_readings(gpu.bus_id, **READINGS)
        taken.simulation.add_process(WHOLE.bus_id, 71, percent=40, memory_mib=77)
        for pid, kind in ((72, "graphics"), (73, "mps")):
            taken.simulation.add_process(WHOLE.bus_id, pid, kind=kind)
        ids = {"gpu_instance_id": 2, "compute_instance_id": 0}
        taken.simulation.add_process(SPLIT.bus_id, 74, percent=20, **ids)
        yield taken


@pytest.fixture(scope="module")
def sample(taken: Sampler) -> GpuSample:
    """The second one, between two of the test's own at the same times."""
    metrics = [*range(1, 14), 20, 21, 30, 31, *range(60, 66), *range(160, 164), *range(248, 261)]
    question = nv.c_nvmlGpmMetricsGet_t(version=1, numMetrics=len(metrics))
    question.sample1, question.sample2 = nv.nvmlGpmSampleAlloc(), nv.nvmlGpmSampleAlloc()
    for place, metric in enumerate(metrics):
        question.metrics[place].metricId = metric
    handle = nv.nvmlDeviceGetHandleByPciBusId(WHOLE.bus_id)
    taken.sample(WHOLE.bus_id)
    nv.nvmlGpmSampleGet(handle, question.sample1)
    sample = taken.sample(WHOLE.bus_id)
    nv.nvmlGpmSampleGet(handle, question.sample2)
    nv.nvmlGpmMetricsGet(question)
    GPM.update((one.metricId, one.value) for one in question.metrics[: len(metrics)])
    return sample


@pytest.mark.parametrize(("path", "raw", "unit"), ROWS, ids=[path for path, *_ in ROWS])
def test_a_reading_is_the_drivers_own_number_in_its_base_unit(
    sample: GpuSample, path: str, raw: Raw, unit: float
) -> None:
    handle = nv.nvmlDeviceGetHandleByPciBusId(WHOLE.bus_id)

    assert leaves(sample)[path] == pytest.approx(raw(handle) * unit, rel=1e-12)


def test_nothing_is_read_that_is_not_checked_here(sample: GpuSample) -> None:
    """Nor is anything left out of what a sample may hold."""
    told = set(leaves(sample))
    identities = {path for path in told if path.endswith((".pid", ".kind", ".link"))}
    others = {path for path in told if path.startswith(("processes.72", "processes.73"))}
    lasting = {path for path in told if path.startswith(LASTING)}
    assert told - identities - others - lasting == {path for path, *_ in ROWS}
    heads = {path.partition(".")[0] for path, *_ in ROWS}
    places = {"bus_id", "at_seconds", "gaps"}
    assert heads | {*OF_INSTANCES, *LASTING} | places == set(GpuSample.__slots__)
    empty = {path for path in _empty(sample) if not path.startswith(LASTING)}
    assert empty <= {"bar1.reserved_bytes"}


def test_no_two_readings_could_be_mixed_up(sample: GpuSample) -> None:
    """A number tells what it is: else a row above could not fail. Flags are 1 in one place each.

    The highest limit of power is that after the start, on every board; memory has one clock to
    work at; engines are all alike; a pair's status is one of seven numbers.
    """
    flags = ("remapped_rows", "vgpu_licensed", "retired_pages.pending", "nvlink_p2p")
    alike = (
        *("power_limits.highest", "clocks.application_memory", "processes", "links.1.errors"),
        *("profiling.30", "profiling.31"),
    )
    told = [
        (round(leaves(sample)[path] / unit, 3), unit)
        for path, _, unit in ROWS
        if not path.startswith((*flags, *alike))
    ]
    assert len(told) == len(set(told))


def test_kinds_of_processes_are_told_apart(sample: GpuSample) -> None:
    assert [(it.pid, it.kind) for it in sample.processes] == [
        (71, ProcessKind.COMPUTE),
        (72, ProcessKind.GRAPHICS),
        (73, ProcessKind.MPS),
    ]


def test_a_gpu_instance_has_its_own_memory_metrics_and_processes(taken: Sampler) -> None:
    """Its share of time is of its own; here it is as large as any can be."""
    groups = (ReadingGroup.PROFILING, ReadingGroup.PROCESSES)
    taken.sample(SPLIT.bus_id, groups)
    sample = taken.sample(SPLIT.bus_id, groups)

    ((instance, memory),) = sample.mig_memory
    ((same, metrics),) = sample.mig_profiling
    (process,) = sample.processes
    assert (instance, same) == (2, 2)
    assert (memory.used_bytes, memory.free_bytes) == (512 * MIB, (19968 - 512) * MIB)
    assert dict(metrics)[1] == pytest.approx(0.2)
    assert dict(sample.profiling)[20] > 0
    assert not {20, 21, 60, 61} & dict(metrics).keys()
    assert (process.gpu_instance_id, process.compute_instance_id) == (2, 0)
    assert process.busy_ratio is None


def _empty(value: Any, path: str = "") -> Iterator[str]:
    """Paths of what a value could hold and does not."""
    for field in dataclasses.fields(value):
        part = getattr(value, field.name)
        if part is None:
            yield f"{path}{field.name}"
        elif dataclasses.is_dataclass(part):
            yield from _empty(part, f"{path}{field.name}.")
