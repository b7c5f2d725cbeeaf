# SPDX-License-Identifier: Apache-2.0
"""Readings of a GPU that change by the second, once for each GPU, in base units. Pure."""

from __future__ import annotations

from collections.abc import Callable

from discovery.sample import GpuSample, MemoryUse, ReadingGroup
from exporters.dcgm.windows import CLOCK_EVENTS
from exporters.gpuscape.gpuscape_family import (
    GpuscapeFamily,
    of_gpu_parts,
    of_gpus,
    part_reading,
    part_readings,
)
from exporters.gpuscape.node_view import GpuView


def _memory(read: Callable[[MemoryUse], int | None]) -> Callable[[GpuView], float | None]:
    return part_reading(lambda sample: sample.memory, read)


def _clock_events(gpu: GpuView) -> dict[str, float | None]:
    bits = gpu.sample.clock_event_reasons
    return {} if bits is None else {word: bits & bit != 0 for bit, word in CLOCK_EVENTS.items()}


def _volatile_ecc(gpu: GpuView) -> dict[str, float | None]:
    errors = gpu.sample.ecc_errors
    if errors is None:
        return {}
    return {"corrected": errors.corrected_volatile, "uncorrected": errors.uncorrected_volatile}


def _aggregate_ecc(gpu: GpuView) -> dict[str, float | None]:
    errors = gpu.sample.ecc_errors
    if errors is None:
        return {}
    return {"corrected": errors.corrected_aggregate, "uncorrected": errors.uncorrected_aggregate}


def _headroom(gpu: GpuView) -> int | None:
    limits, celsius = gpu.sample.temperature_limits, gpu.sample.gpu_celsius
    if limits is None or limits.gpu_most is None or celsius is None:
        return None
    return limits.gpu_most - celsius


def _plain(
    name: str,
    text: str,
    read: Callable[[GpuSample], float | None],
    source: str,
) -> GpuscapeFamily:
    return of_gpus(name, text, lambda gpu: read(gpu.sample), source=source)


_UTILISATION = "not available while MIG is on"
_USE = "nvmlDeviceGetMemoryInfo"
_DATA = "field NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_{} over all links"

_Plain = tuple[str, str, Callable[[GpuSample], float | None], str]
"""Name, in words, where it is read, the source for the docs."""

_MEASURED: tuple[_Plain, ...] = (
    ("gpuscape_gpu_power_watts", "Power that the board draws.",
     lambda sample: sample.power_watts,
     "nvmlDeviceGetPowerUsage; an average over a second on most GPUs since Ampere"),
    ("gpuscape_gpu_energy_joules_total", "Energy that the board used since the driver was loaded.",
     lambda sample: sample.energy_joules, "nvmlDeviceGetTotalEnergyConsumption"),
    ("gpuscape_gpu_temperature_celsius", "Temperature of the GPU.",
     lambda sample: sample.gpu_celsius, "nvmlDeviceGetTemperature"),
    ("gpuscape_gpu_memory_temperature_celsius", "Temperature of the memory.",
     lambda sample: sample.memory_celsius, "field NVML_FI_DEV_MEMORY_TEMP; GPUs with HBM"),
    ("gpuscape_gpu_sm_clock_hertz", "Clock of the streaming multiprocessors.",
     lambda sample: sample.sm_clock_hertz, "nvmlDeviceGetClockInfo"),
    ("gpuscape_gpu_memory_clock_hertz", "Clock of the memory.",
     lambda sample: sample.memory_clock_hertz, "nvmlDeviceGetClockInfo"),
    ("gpuscape_gpu_busy_ratio", "Share of the time for which a kernel ran.",
     lambda sample: sample.gpu_busy_ratio, f"nvmlDeviceGetUtilizationRates; {_UTILISATION}"),
    ("gpuscape_gpu_memory_busy_ratio", "Share of the time for which memory was read or written.",
     lambda sample: sample.memory_busy_ratio, f"nvmlDeviceGetUtilizationRates; {_UTILISATION}"),
    ("gpuscape_gpu_encoder_busy_ratio", "Use of the video encoders.",
     lambda sample: sample.encoder_busy_ratio, f"nvmlDeviceGetEncoderUtilization; {_UTILISATION}"),
    ("gpuscape_gpu_decoder_busy_ratio", "Use of the video decoders.",
     lambda sample: sample.decoder_busy_ratio, f"nvmlDeviceGetDecoderUtilization; {_UTILISATION}"),
)  # fmt: skip
_OTHER_READINGS: tuple[_Plain, ...] = (
    ("gpuscape_gpu_pcie_replays_total", "PCIe packets that had to be sent again.",
     lambda sample: sample.pcie_replays, "nvmlDeviceGetPcieReplayCounter"),
    ("gpuscape_gpu_nvlink_received_bytes_total",
     "Data that came over all NVLinks since the driver was loaded.",
     lambda sample: sample.nvlink_received_bytes, _DATA.format("RX")),
    ("gpuscape_gpu_nvlink_sent_bytes_total",
     "Data that went over all NVLinks since the driver was loaded.",
     lambda sample: sample.nvlink_sent_bytes, _DATA.format("TX")),
    ("gpuscape_gpu_vgpu_licensed", "1 if the GPU has a vGPU licence, else 0.",
     lambda sample: sample.vgpu_licensed, "nvmlDeviceGetGridLicensableFeatures"),
)  # fmt: skip

FAMILIES: tuple[GpuscapeFamily, ...] = (
    *(_plain(*row) for row in _MEASURED),
    of_gpus(
        "gpuscape_gpu_memory_bytes",
        "Frame buffer of the GPU: free, used and reserved together.",
        lambda gpu: gpu.gpu.memory_bytes,
        source=f"{_USE}, at discovery",
    ),
    of_gpus(
        "gpuscape_gpu_memory_used_bytes",
        "Frame buffer in use, that of all its GPU instances included.",
        _memory(lambda use: use.used_bytes),
        source=f"{_USE}; includes what is reserved before driver 510",
    ),
    of_gpus(
        "gpuscape_gpu_memory_free_bytes",
        "Frame buffer that is free.",
        _memory(lambda use: use.free_bytes),
        source=_USE,
    ),
    of_gpus(
        "gpuscape_gpu_memory_reserved_bytes",
        "Frame buffer that the driver keeps for itself.",
        _memory(lambda use: use.reserved_bytes),
        source=f"{_USE}; driver 510 and later",
    ),
    *(_plain(*row) for row in _OTHER_READINGS),
    of_gpu_parts(
        "gpuscape_gpu_clock_event",
        "1 if clocks are limited now for this reason, else 0.",
        "reason",
        _clock_events,
        groups=(ReadingGroup.CLOCK_EVENTS,),
        source="nvmlDeviceGetCurrentClocksEventReasons, one bit for each reason",
    ),
    of_gpu_parts(
        "gpuscape_gpu_held_down_seconds_total",
        "Time for which clocks were limited since the driver was loaded, by cause.",
        "cause",
        part_readings(lambda sample: sample.held_down),
        groups=(ReadingGroup.HELD_DOWN,),
        source="fields NVML_FI_DEV_PERF_POLICY_*; causes overlap, so their sum means nothing",
    ),
    of_gpu_parts(
        "gpuscape_gpu_ecc_errors_total",
        "Memory errors since the driver was loaded.",
        "error",
        _volatile_ecc,
        groups=(ReadingGroup.ECC,),
        source="fields NVML_FI_DEV_ECC_*_VOL_TOTAL",
    ),
    of_gpu_parts(
        "gpuscape_gpu_ecc_lifetime_errors_total",
        "Memory errors in the life of the GPU.",
        "error",
        _aggregate_ecc,
        groups=(ReadingGroup.ECC,),
        source="fields NVML_FI_DEV_ECC_*_AGG_TOTAL",
    ),
    of_gpu_parts(
        "gpuscape_gpu_retired_pages_total",
        "Memory pages out of use, by the errors they had; before Ampere.",
        "error",
        part_readings(lambda sample: sample.retired_pages, "pending"),
        groups=(ReadingGroup.ECC,),
        source="fields NVML_FI_DEV_RETIRED_*",
    ),
    of_gpu_parts(
        "gpuscape_gpu_power_limit_watts",
        "Limits of the power that the board may draw.",
        "limit",
        part_readings(lambda sample: sample.power_limits),
        groups=(ReadingGroup.LIMITS,),
        source="nvmlDeviceGetPowerManagementLimit and its like, nvmlDeviceGetEnforcedPowerLimit",
    ),
    of_gpu_parts(
        "gpuscape_gpu_temperature_limit_celsius",
        "Temperatures at which the GPU slows down, shuts down, or leaves its working range.",
        "limit",
        part_readings(lambda sample: sample.temperature_limits, "margin"),
        groups=(ReadingGroup.LIMITS,),
        source="nvmlDeviceGetTemperatureThreshold",
    ),
    of_gpus(
        "gpuscape_gpu_temperature_margin_celsius",
        "Degrees between the GPU and the temperature at which it slows down; negative above it.",
        part_reading(
            lambda sample: sample.temperature_limits,
            lambda temperature_limits: temperature_limits.margin,
        ),
        groups=(ReadingGroup.LIMITS,),
        source="nvmlDeviceGetMarginTemperature",
        least=-1000,
    ),
    of_gpus(
        "gpuscape_gpu_temperature_headroom_celsius",
        "Degrees between the GPU and its highest working temperature; negative above it.",
        _headroom,
        groups=(ReadingGroup.WORKING_LIMIT,),
        source="nvmlDeviceGetTemperatureThreshold of NVML_TEMPERATURE_THRESHOLD_GPU_MAX, less"
        " nvmlDeviceGetTemperature",
        least=-1000,
    ),
    of_gpus(
        "gpuscape_gpu_pcie_generation",
        "Generation of PCIe that the link runs at now; it falls while the GPU is idle.",
        part_reading(lambda sample: sample.pcie, lambda pcie: pcie.generation),
        groups=(ReadingGroup.PCIE,),
        source="nvmlDeviceGetCurrPcieLinkGeneration",
    ),
    of_gpus(
        "gpuscape_gpu_pcie_lanes",
        "Lanes that the PCIe link uses now.",
        part_reading(lambda sample: sample.pcie, lambda pcie: pcie.width),
        groups=(ReadingGroup.PCIE,),
        source="nvmlDeviceGetCurrPcieLinkWidth",
    ),
    of_gpus(
        "gpuscape_gpu_pcie_received_bytes_total",
        "Bytes that came over PCIe since the driver was loaded.",
        part_reading(lambda sample: sample.pcie, lambda pcie: pcie.received_bytes),
        groups=(ReadingGroup.PCIE,),
        source="field NVML_FI_DEV_PCIE_COUNT_RX_BYTES",
    ),
    of_gpus(
        "gpuscape_gpu_pcie_sent_bytes_total",
        "Bytes that went over PCIe since the driver was loaded.",
        part_reading(lambda sample: sample.pcie, lambda pcie: pcie.sent_bytes),
        groups=(ReadingGroup.PCIE,),
        source="field NVML_FI_DEV_PCIE_COUNT_TX_BYTES",
    ),
    of_gpus(
        "gpuscape_gpu_bar1_used_bytes",
        "Address space of BAR1 in use.",
        part_reading(lambda sample: sample.bar1, lambda bar1: bar1.used_bytes),
        groups=(ReadingGroup.BAR1,),
        source="nvmlDeviceGetBAR1MemoryInfo",
    ),
    of_gpus(
        "gpuscape_gpu_bar1_free_bytes",
        "Address space of BAR1 that is free.",
        part_reading(lambda sample: sample.bar1, lambda bar1: bar1.free_bytes),
        groups=(ReadingGroup.BAR1,),
        source="nvmlDeviceGetBAR1MemoryInfo",
    ),
    of_gpus(
        "gpuscape_gpu_fan_speed_ratio",
        "Fan speed as a share of its maximum; absent if the chassis cools the GPU.",
        lambda gpu: gpu.sample.fan_ratio,
        groups=(ReadingGroup.FAN,),
        source="nvmlDeviceGetFanSpeed",
    ),
    of_gpus(
        "gpuscape_gpu_performance_state",
        "P-state: 0 is the fastest, 15 the slowest.",
        lambda gpu: gpu.sample.performance_state,
        groups=(ReadingGroup.FAN,),
        source="nvmlDeviceGetPerformanceState",
    ),
)
