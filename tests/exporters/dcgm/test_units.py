# SPDX-License-Identifier: Apache-2.0
"""What NVML answers on simulated machines, against what is served: every unit and every place.

The raw answers are asked for here by pynvml itself, at the same frozen moment, and put into
DCGM's units by the formulas below, which share nothing with the code under test.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pynvml
import pytest

from discovery.simulator import simulation
from exporters.dcgm.render import Renderer, SeriesIdentity
from tests import exposition, machines
from tests.observed import CREATED_SECONDS, READ_SECONDS, look_at, observed

MACHINES = ("hgx-h100", "hgx-h100-mig-mixed", "dgx-a100-mig-mixed", "dgx1-v100", "t4", "l40s")
ALL_LINKS = 0xFFFFFFFF

COMMON = {
    "SM_CLOCK",
    "MEM_CLOCK",
    "GPU_TEMP",
    "POWER_USAGE",
    "TOTAL_ENERGY_CONSUMPTION",
    "PCIE_REPLAY_COUNTER",
    "XID_ERRORS",
    "FB_FREE",
    "FB_USED",
    "FB_RESERVED",
    "VGPU_LICENSE_STATUS",
}
UTILISATION = {"GPU_UTIL", "MEM_COPY_UTIL", "ENC_UTIL", "DEC_UTIL"}
ROWS = {"UNCORRECTABLE_REMAPPED_ROWS", "CORRECTABLE_REMAPPED_ROWS", "ROW_REMAP_FAILURE"}
HBM, NVLINK = {"MEMORY_TEMP"}, {"NVLINK_BANDWIDTH_TOTAL"}
PRESENT: dict[str, set[str]] = {
    "t4": COMMON | UTILISATION,
    "l40s": COMMON | UTILISATION | ROWS,
    "dgx1-v100": COMMON | UTILISATION | HBM | NVLINK,
    "dgx-a100": COMMON | UTILISATION | ROWS | HBM | NVLINK,
    "hgx-h100": COMMON | UTILISATION | ROWS | HBM | NVLINK,
    "rtx-pro-6000": COMMON | UTILISATION | ROWS,
}
"""By hand from dcgm-exporter's default-counters.csv and what these GPUs are."""

Handle = Any
Raw = Callable[[Handle], float]


def field(number: int, scope: int = 0) -> Raw:
    """A field value as the 64-bit number that it is."""
    return lambda handle: int(
        pynvml.nvmlDeviceGetFieldValues(handle, [(number, scope)])[0].value.ullVal
    )


def memory(part: str) -> Raw:
    return lambda handle: (
        getattr(pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2), part)
        // (1024 * 1024)
    )


OF_THE_GPU: Mapping[str, Raw] = {
    "SM_CLOCK": lambda handle: pynvml.nvmlDeviceGetClockInfo(handle, 1),
    "MEM_CLOCK": lambda handle: pynvml.nvmlDeviceGetClockInfo(handle, 2),
    "MEMORY_TEMP": field(82),
    "GPU_TEMP": lambda handle: pynvml.nvmlDeviceGetTemperature(handle, 0),
    "POWER_USAGE": lambda handle: pynvml.nvmlDeviceGetPowerUsage(handle) / 1000,
    "TOTAL_ENERGY_CONSUMPTION": field(83),
    "PCIE_REPLAY_COUNTER": field(94),
    "GPU_UTIL": lambda handle: pynvml.nvmlDeviceGetUtilizationRates(handle).gpu,
    "MEM_COPY_UTIL": lambda handle: pynvml.nvmlDeviceGetUtilizationRates(handle).memory,
    "ENC_UTIL": lambda handle: pynvml.nvmlDeviceGetEncoderUtilization(handle)[0],
    "DEC_UTIL": lambda handle: pynvml.nvmlDeviceGetDecoderUtilization(handle)[0],
    "CORRECTABLE_REMAPPED_ROWS": lambda handle: pynvml.nvmlDeviceGetRemappedRows(handle)[0],
    "UNCORRECTABLE_REMAPPED_ROWS": lambda handle: pynvml.nvmlDeviceGetRemappedRows(handle)[1],
    "ROW_REMAP_FAILURE": lambda handle: pynvml.nvmlDeviceGetRemappedRows(handle)[3],
}
OF_THE_DEVICE: Mapping[str, Raw] = {
    "FB_FREE": memory("free"),
    "FB_USED": memory("used"),
    "FB_RESERVED": memory("reserved"),
}
"""These tell a GPU instance's own by the handle of its first MIG device."""


@contextmanager
def frozen(name: str) -> Iterator[simulation.Simulation]:
    """The machine, read at one moment however long that takes."""
    clock = SimpleNamespace(monotonic=lambda: CREATED_SECONDS)
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(simulation, "time", clock):
        simulated = simulation.Simulation.create(name, Path(folder))
        clock.monotonic = lambda: READ_SECONDS
        yield simulated


def devices(handle: Handle) -> dict[str | None, Handle]:
    """GPU instance id to the handle of its first MIG device; without MIG the GPU itself."""
    found: dict[str | None, Handle] = {}
    for at in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            mig = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, at)
        except pynvml.NVMLError:
            continue
        found.setdefault(str(pynvml.nvmlDeviceGetGpuInstanceId(mig)), mig)
    return found or {None: handle}


def expected(simulated: simulation.Simulation) -> dict[tuple[str, str, str | None], float]:
    """Family, GPU and instance to the value in DCGM's unit."""
    values: dict[tuple[str, str, str | None], float] = {}
    with machines.session(simulated) as handle_of:
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = handle_of(index)
            for instance, device in devices(handle).items():
                for asked, by in ((OF_THE_GPU, handle), (OF_THE_DEVICE, device)):
                    for family, raw in asked.items():
                        if (value := _answer(raw, by)) is not None:
                            values[family, str(index), instance] = value
    return values


def _answer(raw: Raw, handle: Handle) -> float | None:
    try:
        return raw(handle)
    except pynvml.NVMLError:
        return None


@pytest.mark.parametrize("machine", MACHINES)
def test_what_is_served_is_what_nvml_answers_in_dcgm_s_units(machine: str) -> None:
    with frozen(machine) as simulated:
        seen = look_at(simulated, machine)
        answers = expected(simulated)
    answers = {
        key: value for key, value in answers.items() if key[0] != "MEMORY_TEMP" or 0 < value < 200
    }

    body = Renderer().render(seen.snapshot, seen.samples, (), SeriesIdentity(hostname=machine))

    served = {
        (name.removeprefix("DCGM_FI_DEV_"), found["gpu"], found.get("GPU_I_ID")): value
        for (name, labels), value in exposition.series(body).items()
        for found in [dict(labels)]
    }
    asked = {*OF_THE_GPU, *OF_THE_DEVICE}
    assert {key: value for key, value in served.items() if key[0] in asked} == pytest.approx(
        answers, abs=1e-6
    )


@pytest.mark.parametrize("machine", PRESENT)
def test_a_machine_has_the_default_families_that_its_gpus_can_give(machine: str) -> None:
    seen = observed(machine)

    body = Renderer().render(seen.snapshot, seen.samples, (), SeriesIdentity(hostname=machine))

    names = exposition.parse(body)
    assert {name.removeprefix("DCGM_FI_DEV_") for name in names if "_DEV_" in name} == PRESENT[
        machine
    ]


@pytest.mark.parametrize("machine", ["dgx-a100-mig-mixed", "hgx-h100-mig-mixed"])
def test_gpu_instances_have_every_family_but_those_that_nvml_denies_them(machine: str) -> None:
    seen = observed(machine)

    body = Renderer().render(seen.snapshot, seen.samples, (), SeriesIdentity(hostname=machine))

    names = {name for (name, labels) in exposition.series(body) if "GPU_I_ID" in dict(labels)}
    assert {name.removeprefix("DCGM_FI_DEV_") for name in names if "_DEV_" in name} == (
        COMMON | ROWS | HBM | NVLINK
    )
