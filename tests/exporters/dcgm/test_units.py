# SPDX-License-Identifier: Apache-2.0
"""What NVML answers on simulated machines, against what is served: every unit and every place.

The raw answers are asked for here by pynvml itself, at the same frozen moment, and put into
DCGM's units by the formulas below, which share nothing with the code under test.
"""

from __future__ import annotations

import ctypes
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar
from unittest import mock

import pynvml
import pytest

from discovery.sample import ReadingGroup
from exporters.dcgm.catalog import DEFAULT_FAMILIES
from exporters.dcgm.counters_format import read_counters
from exporters.dcgm.render import Renderer, SeriesIdentity
from simulator import simulation
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
Answer = TypeVar("Answer")
Raw = Callable[[Handle], float]


def field(number: int, scope: int = 0) -> Raw:
    """A field value as the 64-bit number that it is."""

    def read(handle: Handle) -> int:
        (answer,) = pynvml.nvmlDeviceGetFieldValues(handle, [(number, scope)])
        if answer.nvmlReturn:
            raise pynvml.NVMLError(answer.nvmlReturn)
        return int(answer.value.ullVal)

    return read


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


def rows_left(name: str) -> Raw:
    return lambda handle: getattr(pynvml.nvmlDeviceGetRowRemapperHistogram(handle), name)


def fabric_summary(handle: Handle) -> int:
    info = pynvml.c_nvmlGpuFabricInfo_v3_t()
    pynvml.nvmlDeviceGetGpuFabricInfoV(handle, ctypes.byref(info))
    return int(info.healthSummary)


def capability(handle: Handle) -> int:
    major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
    return int(major * 65536 + minor)


def sram_exceeded(handle: Handle) -> int:
    status = pynvml.c_nvmlEccSramErrorStatus_v1_t()
    pynvml.nvmlDeviceGetSramEccErrorStatus(handle, ctypes.byref(status))
    return int(status.bThresholdExceeded)


def platform(handle: Handle) -> bytes:
    """All 44 bytes; in nvml.h the GUID begins at 4, the serial number at 20, the numbers at 36."""
    info = pynvml.c_nvmlPlatformInfo_v2_t()
    pynvml.nvmlDeviceGetPlatformInfo(handle, ctypes.byref(info))
    return bytes(info)


def platform_number(offset: int) -> Raw:
    return lambda handle: platform(handle)[offset]


def infiniband_guid(handle: Handle) -> str:
    return "0x" + platform(handle)[4:12][::-1].hex()


def chassis_serial(handle: Handle) -> str:
    return platform(handle)[20:36].rstrip(b"\0").decode()


def signed(word: int) -> int:
    return ctypes.c_int64(word).value


def nvlink_peers(handle: Handle) -> int:
    bits = 0
    for index in range(pynvml.nvmlDeviceGetCount()):
        other = pynvml.nvmlDeviceGetHandleByIndex(index)
        if pynvml.nvmlDeviceGetUUID(other) != pynvml.nvmlDeviceGetUUID(handle):
            bits |= (pynvml.nvmlDeviceGetP2PStatus(handle, other, 2) == 0) << index
    return bits


def cpu_word(place: int) -> Raw:
    return lambda handle: float(signed(pynvml.nvmlDeviceGetCpuAffinity(handle, 4)[place]))


def cpu_word_text(place: int) -> Callable[[Handle], str]:
    """All its digits: a label is no double."""
    return lambda handle: str(signed(pynvml.nvmlDeviceGetCpuAffinity(handle, 4)[place]))


def memory_word(place: int) -> Raw:
    return lambda handle: float(signed(pynvml.nvmlDeviceGetMemoryAffinity(handle, 4, 0)[place]))


OPTIONAL: Mapping[str, Raw] = {
    "P2P_NVLINK_STATUS": nvlink_peers,
    **{f"CPU_AFFINITY_{place}": cpu_word(place) for place in range(4)},
    **{f"MEM_AFFINITY_{place}": memory_word(place) for place in range(4)},
    "INFOROM_CONFIG_CHECK": pynvml.nvmlDeviceGetInforomConfigurationChecksum,
    "THRESHOLD_SRM": sram_exceeded,
    "MEMORY_UNREPAIRABLE_FLAG": pynvml.nvmlDeviceGetUnrepairableMemoryFlag_v1,
    "PLATFORM_CHASSIS_SLOT_NUMBER": platform_number(36),
    "PLATFORM_TRAY_INDEX": platform_number(37),
    "PLATFORM_HOST_ID": platform_number(38),
    "PLATFORM_PEER_TYPE": platform_number(39),
    "PLATFORM_MODULE_ID": platform_number(40),
    "COUNT": lambda _: pynvml.nvmlDeviceGetCount(),
    "NVML_INDEX": pynvml.nvmlDeviceGetIndex,
    "MINOR_NUMBER": pynvml.nvmlDeviceGetMinorNumber,
    "PCI_COMBINED_ID": lambda handle: pynvml.nvmlDeviceGetPciInfo(handle).pciDeviceId,
    "PCI_SUBSYS_ID": lambda handle: pynvml.nvmlDeviceGetPciInfo(handle).pciSubSystemId,
    "CUDA_COMPUTE_CAPABILITY": capability,
    "COMPUTE_MODE": pynvml.nvmlDeviceGetComputeMode,  # the simulator's is the default, 0 for both
    "PERSISTENCE_MODE": pynvml.nvmlDeviceGetPersistenceMode,
    "CC_MODE": lambda _: pynvml.nvmlSystemGetConfComputeState().ccFeature,
    "VIRTUAL_MODE": pynvml.nvmlDeviceGetVirtualizationMode,
    "ECC_CURRENT": lambda handle: pynvml.nvmlDeviceGetEccMode(handle)[0],
    "ECC_PENDING": lambda handle: pynvml.nvmlDeviceGetEccMode(handle)[1],
    "PCIE_MAX_LINK_GEN": pynvml.nvmlDeviceGetMaxPcieLinkGeneration,
    "PCIE_MAX_LINK_WIDTH": pynvml.nvmlDeviceGetMaxPcieLinkWidth,
    "BANKS_REMAP_ROWS_AVAIL_MAX": rows_left("max"),
    "BANKS_REMAP_ROWS_AVAIL_HIGH": rows_left("high"),
    "BANKS_REMAP_ROWS_AVAIL_PARTIAL": rows_left("partial"),
    "BANKS_REMAP_ROWS_AVAIL_LOW": rows_left("low"),
    "BANKS_REMAP_ROWS_AVAIL_NONE": rows_left("none"),
    "CLOCKS_EVENT_REASON_SW_POWER_CAP_NS": field(74),
    "CLOCKS_EVENT_REASON_SYNC_BOOST_NS": field(76),
    "CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN_NS": field(269),
    "CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN_NS": field(270),
    "CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN_NS": field(271),
    "FABRIC_HEALTH_SUMMARY": fabric_summary,
}
"""Of what a counters file can ask for. Field numbers are those of nvml.h."""
LABELS: Mapping[str, Callable[[Handle], str]] = {
    "DEV_OEM_INFOROM_VER": lambda handle: pynvml.nvmlDeviceGetInforomVersion(handle, 0),
    "DEV_ECC_INFOROM_VER": lambda handle: pynvml.nvmlDeviceGetInforomVersion(handle, 1),
    "DEV_POWER_INFOROM_VER": lambda handle: pynvml.nvmlDeviceGetInforomVersion(handle, 2),
    "DEV_INFOROM_IMAGE_VER": pynvml.nvmlDeviceGetInforomImageVersion,
    "DEV_PCI_BUSID": lambda handle: pynvml.nvmlDeviceGetPciInfo(handle).busId,
    **{f"DEV_CPU_AFFINITY_{place}": cpu_word_text(place) for place in range(4)},
    "DEV_PLATFORM_INFINIBAND_GUID": infiniband_guid,
    "DEV_PLATFORM_CHASSIS_SERIAL_NUMBER": chassis_serial,
    "DEV_BRAND": lambda handle: {2: "Tesla", 14: "NVIDIA"}[pynvml.nvmlDeviceGetBrand(handle)],
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


def expected(
    simulated: simulation.Simulation, *, optional: bool = False
) -> dict[tuple[str, str, str | None], float]:
    """Family, GPU and instance to the value in DCGM's unit."""
    of_gpu, of_device = (OPTIONAL, {}) if optional else (OF_THE_GPU, OF_THE_DEVICE)
    values: dict[tuple[str, str, str | None], float] = {}
    with machines.session(simulated) as handle_of:
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = handle_of(index)
            for instance, device in devices(handle).items():
                for asked, by in ((of_gpu, handle), (of_device, device)):
                    for family, raw in asked.items():
                        if (value := _answer(raw, by)) is not None:
                            values[family, str(index), instance] = value
    return values


def _answer(raw: Callable[[Handle], Answer], handle: Handle) -> Answer | None:
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


@pytest.mark.parametrize("machine", [*MACHINES, "gb200", "vgpu-guest"])
def test_what_is_asked_for_in_addition_is_what_nvml_answers(machine: str) -> None:
    with frozen(machine) as simulated:
        seen = look_at(simulated, machine, tuple(ReadingGroup))
        answers = expected(simulated, optional=True)
    asked = read_counters("".join(f"DCGM_FI_DEV_{it}, gauge, x.\n" for it in OPTIONAL), "asked")

    body = Renderer(asked.families).render(
        seen.snapshot, seen.samples, (), SeriesIdentity(hostname=machine)
    )

    assert asked.skipped == ()
    assert {
        (name.removeprefix("DCGM_FI_DEV_"), found["gpu"], found.get("GPU_I_ID")): value
        for (name, labels), value in exposition.series(body).items()
        for found in [dict(labels)]
    } == answers


@pytest.mark.parametrize("machine", [*MACHINES, "gb200"])
def test_labels_that_are_asked_for_are_what_nvml_answers(machine: str) -> None:
    with frozen(machine) as simulated:
        seen = look_at(simulated, machine, tuple(ReadingGroup))
        with machines.session(simulated) as handle_of:
            answers = {
                str(at): {name: _answer(raw, handle_of(at)) for name, raw in LABELS.items()}
                for at in range(pynvml.nvmlDeviceGetCount())
            }
    asked = read_counters("".join(f"DCGM_FI_{it}, label, x.\n" for it in LABELS), "asked")

    body = Renderer(DEFAULT_FAMILIES, asked.labels).render(
        seen.snapshot, seen.samples, (), SeriesIdentity(hostname=machine)
    )

    for _, labels in exposition.series(body):
        found = dict(labels)
        assert {name: found.get(f"DCGM_FI_{name}") for name in LABELS} == answers[found["gpu"]]


@pytest.mark.parametrize("machine", ["t4", "hgx-h100-mig-mixed"])
def test_visible_devices_are_the_uuid_and_on_an_instance_its_number_too(machine: str) -> None:
    with frozen(machine) as simulated:
        seen = look_at(simulated, machine)
        with machines.session(simulated) as handle_of:
            handles = [handle_of(index) for index in range(pynvml.nvmlDeviceGetCount())]
            answers = {
                pynvml.nvmlDeviceGetUUID(handle)
                if instance is None
                else f"MIG-{pynvml.nvmlDeviceGetUUID(handle)}/{instance}"
                for handle in handles
                for instance in devices(handle)
            }
    name = "DCGM_FI_DEV_CUDA_VISIBLE_DEVICES_STR"
    selected = read_counters(f"{name}, label, x.\n", "selected")

    body = Renderer(DEFAULT_FAMILIES, selected.labels).render(
        seen.snapshot, seen.samples, (), SeriesIdentity(hostname=machine)
    )

    assert {dict(labels)[name] for _, labels in exposition.series(body)} == answers


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
