# SPDX-License-Identifier: Apache-2.0
"""Clocks, temperature, power, utilisation, PCIe: what changes by the second."""

from __future__ import annotations

import pynvml

from discovery.nvml_abi.argument_kinds import Nvml
from simulator.answers.registry import (
    INVALID_ARGUMENT,
    NOT_SUPPORTED,
    answers_on_gpu,
    gpu_facts,
    need,
)
from simulator.machine_view import SimulatedGpu
from simulator.sensor_values import Sensors

_GRAPHICS, _SM, _MEMORY, _VIDEO = 0, 1, 2, 3  # NVML_CLOCK_*
_VIDEO_SHARE = 0.85
"""Video clock as a share of the SM clock: invented, since no published output says it."""
_APPLICATION_SHARE = 0.78
"""Application clock as a share of the highest SM clock, as on an A100: 1095 of 1410 MHz."""
_GPU_SENSOR = 0  # NVML_TEMPERATURE_GPU
_SHUTDOWN, _SLOWDOWN, _MEMORY_MAX, _GPU_MAX = 0, 1, 2, 3  # NVML_TEMPERATURE_THRESHOLD_*
_THRESHOLDS_CELSIUS = {_SHUTDOWN: 92, _SLOWDOWN: 89, _MEMORY_MAX: 95, _GPU_MAX: 85}
_LOWEST_LIMIT = 0.5
"""Lowest power limit as a share of the default one."""
_SAMPLING_MICROSECONDS = 167_000
_POLICIES = 12  # NVML_PERF_POLICY_COUNT
_POWER_POLICY = 0  # NVML_PERF_POLICY_POWER
_GPU_IDLE = 0x1  # nvmlClocksEventReasonGpuIdle
_ALL_REASONS = 0x1FF
_PCIE_GENERATION_BY_ARCHITECTURE = {5: 3, 6: 3, 7: 4, 8: 4, 9: 5, 10: 5}
_SLOW_STATE = 8  # NVML_PSTATE_8


def sensors(gpu: SimulatedGpu) -> Sensors:
    """The GPU's sensors now."""
    return Sensors(gpu=gpu, now=gpu.view.now)


@answers_on_gpu("nvmlDeviceGetClockInfo")
def current_clock(gpu: SimulatedGpu, kind: int) -> int:
    """Megahertz."""
    return _clock(kind, sensors(gpu).sm_clock_mhz(), sensors(gpu).memory_clock_mhz())


@answers_on_gpu("nvmlDeviceGetMaxClockInfo")
def max_clock(gpu: SimulatedGpu, kind: int) -> int:
    """Megahertz."""
    memory = gpu.model.max_memory_clock_mhz or gpu.model.memory_clock_mhz
    return _clock(kind, gpu.model.max_sm_clock_mhz, memory)


@answers_on_gpu("nvmlDeviceGetApplicationsClock")
def application_clock(gpu: SimulatedGpu, kind: int) -> int:
    """Megahertz, as they are after a start. There are two kinds."""
    if kind not in (_GRAPHICS, _MEMORY):
        raise Nvml(INVALID_ARGUMENT)
    highest = max_clock(gpu, kind)
    return highest if kind == _MEMORY else round(highest * _APPLICATION_SHARE)


def _clock(kind: int, sm: int, memory: int | None) -> int:
    clocks = {_GRAPHICS: sm, _SM: sm, _MEMORY: memory, _VIDEO: round(sm * _VIDEO_SHARE)}
    if kind not in clocks:
        raise Nvml(INVALID_ARGUMENT)
    clock = clocks[kind]
    if clock is None:
        raise Nvml(NOT_SUPPORTED)
    return clock


@answers_on_gpu("nvmlDeviceGetTemperature")
def temperature(gpu: SimulatedGpu, sensor: int) -> int:
    """Degrees Celsius; there is one sensor."""
    need(gpu.model.sensors)
    if sensor != _GPU_SENSOR:
        raise Nvml(INVALID_ARGUMENT)
    return sensors(gpu).gpu_celsius()


@answers_on_gpu("nvmlDeviceGetTemperatureV")
def temperature_v(gpu: SimulatedGpu, request: dict[str, int]) -> dict[str, int]:
    """Temperature in a struct."""
    return {"temperature": temperature(gpu, request["sensorType"])}


@answers_on_gpu("nvmlDeviceGetTemperatureThreshold")
def threshold(gpu: SimulatedGpu, kind: int) -> int:
    """Degrees Celsius; round figures, the same for all models."""
    need(gpu.model.sensors)
    if kind >= pynvml.NVML_TEMPERATURE_THRESHOLD_COUNT:
        raise Nvml(INVALID_ARGUMENT)
    if kind not in _THRESHOLDS_CELSIUS or (
        kind == _MEMORY_MAX and not gpu.model.memory_temperature
    ):
        raise Nvml(NOT_SUPPORTED)
    return _THRESHOLDS_CELSIUS[kind]


def power_milliwatts(gpu: SimulatedGpu) -> int:
    """Power drawn now."""
    need(gpu.model.sensors)
    return sensors(gpu).power_milliwatts()


def energy_millijoules(gpu: SimulatedGpu) -> int:
    """Energy used since the driver was loaded."""
    need(gpu.model.sensors)
    return sensors(gpu).energy_millijoules()


def default_power_limit_milliwatts(gpu: SimulatedGpu) -> int:
    """Power limit after the driver was loaded."""
    need(gpu.model.sensors and gpu.model.power_limits)
    return gpu.model.power_limit_watts * 1000


def power_limit_milliwatts(gpu: SimulatedGpu) -> int:
    """Power limit that was set, else the default."""
    default = default_power_limit_milliwatts(gpu)
    configured = gpu.state.readings.power_limit_milliwatts
    return default if configured is None else configured


def _enforced_limit(gpu: SimulatedGpu) -> int:
    """Power limit that was set, unless something else holds the GPU lower."""
    limit = power_limit_milliwatts(gpu)
    configured = gpu.state.readings.enforced_power_limit_milliwatts
    return limit if configured is None else configured


def power_limits_milliwatts(gpu: SimulatedGpu) -> tuple[int, int]:
    """Lowest and highest power limit that may be set."""
    highest = default_power_limit_milliwatts(gpu)
    return round(highest * _LOWEST_LIMIT), highest


@answers_on_gpu("nvmlDeviceGetPcieThroughput")
def pcie_throughput(gpu: SimulatedGpu, counter: int) -> int:
    """KB/s over the last 20 ms: a little in both directions, nothing with MIG on."""
    need(not gpu.state.mig)
    if counter > 1:
        raise Nvml(INVALID_ARGUMENT)
    return 400 + 100 * counter


@answers_on_gpu("nvmlDeviceGetMarginTemperature")
def margin(gpu: SimulatedGpu, version: dict[str, int]) -> dict[str, int]:
    """Degrees Celsius to the slowdown; [inf] from Ada on, where nvidia-smi shows T.Limit."""
    del version  # there is one
    need(gpu.model.sensors and gpu.model.architecture >= pynvml.NVML_DEVICE_ARCH_ADA)
    configured = gpu.state.readings.margin_celsius
    headroom = _THRESHOLDS_CELSIUS[_SLOWDOWN] - sensors(gpu).gpu_celsius()
    return {"marginTemperature": headroom if configured is None else configured}


@answers_on_gpu("nvmlDeviceGetViolationStatus")
def violation(gpu: SimulatedGpu, policy: int) -> dict[str, int]:
    """Microseconds of uptime, nanoseconds of violation."""
    if policy >= _POLICIES:
        raise Nvml(INVALID_ARGUMENT)
    uptime = round(1e6 * sensors(gpu).uptime)
    return {"referenceTime": uptime, "violationTime": violation_nanoseconds(gpu, policy)}


def violation_nanoseconds(gpu: SimulatedGpu, policy: int) -> int:
    """Time for which a policy held clocks down: only that of power does, under load."""
    need(gpu.model.sensors)
    return sensors(gpu).held_down_by_power_nanoseconds() if policy == _POWER_POLICY else 0


def _rates(gpu: SimulatedGpu) -> dict[str, int]:
    """Per cent; hardware has no figure with MIG on."""
    need(not gpu.state.mig)
    return {"gpu": sensors(gpu).gpu_percent(), "memory": sensors(gpu).memory_percent()}


def _engine(gpu: SimulatedGpu, percent: int | None) -> tuple[int, int]:
    need(not gpu.state.mig)
    return percent or 0, _SAMPLING_MICROSECONDS


def _encoder(gpu: SimulatedGpu) -> tuple[int, int]:
    need(gpu.model.encoder)
    return _engine(gpu, gpu.state.readings.encoder_percent)


def _turing_engine(gpu: SimulatedGpu) -> tuple[int, int]:
    """JPEG and optical flow engines. Source: nvml.h, "for Turing or newer" on both calls."""
    need(gpu.model.architecture >= pynvml.NVML_DEVICE_ARCH_TURING)
    return _engine(gpu, None)


def _fan(gpu: SimulatedGpu) -> int:
    """Per cent: as fast as the GPU is warm."""
    need(gpu.model.fan)
    configured = gpu.state.readings.fan_percent
    return sensors(gpu).gpu_celsius() if configured is None else configured


def _reasons(gpu: SimulatedGpu) -> int:
    configured = gpu.state.readings.event_reasons
    if configured is not None:
        return configured
    return 0 if sensors(gpu).busy else _GPU_IDLE


def _max_pcie_generation(gpu: SimulatedGpu) -> int:
    """Highest generation that GPU and slot have in common."""
    own = _PCIE_GENERATION_BY_ARCHITECTURE.get(gpu.model.architecture, 5)
    return min(own, gpu.spec.pcie_generation or own)


def _pcie_generation(gpu: SimulatedGpu) -> int:
    """Generation of the link now: the first one in a slow P-state, as on boards that have one."""
    configured = gpu.state.readings.pcie_generation
    slow = sensors(gpu).performance_state() >= _SLOW_STATE
    return (1 if slow else _max_pcie_generation(gpu)) if configured is None else configured


def _pcie_lanes(gpu: SimulatedGpu) -> int:
    """Lanes of the slot, unless some failed to train."""
    configured = gpu.state.readings.pcie_lanes
    return gpu.spec.pcie_lanes if configured is None else configured


gpu_facts(
    {
        "nvmlDeviceGetPowerUsage": power_milliwatts,
        "nvmlDeviceGetTotalEnergyConsumption": energy_millijoules,
        "nvmlDeviceGetEnforcedPowerLimit": _enforced_limit,
        "nvmlDeviceGetPowerManagementLimit": power_limit_milliwatts,
        "nvmlDeviceGetPowerManagementDefaultLimit": default_power_limit_milliwatts,
        "nvmlDeviceGetPowerManagementLimitConstraints": power_limits_milliwatts,
        "nvmlDeviceGetPowerManagementMode": lambda gpu: int(
            gpu.model.sensors and gpu.model.power_limits
        ),
        "nvmlDeviceGetUtilizationRates": _rates,
        "nvmlDeviceGetEncoderUtilization": _encoder,
        "nvmlDeviceGetDecoderUtilization": lambda gpu: _engine(
            gpu, gpu.state.readings.decoder_percent
        ),
        "nvmlDeviceGetJpgUtilization": _turing_engine,
        "nvmlDeviceGetOfaUtilization": _turing_engine,
        "nvmlDeviceGetPcieReplayCounter": lambda gpu: gpu.state.readings.pcie_replays,
        "nvmlDeviceGetCurrPcieLinkGeneration": _pcie_generation,
        "nvmlDeviceGetMaxPcieLinkGeneration": _max_pcie_generation,
        "nvmlDeviceGetCurrPcieLinkWidth": _pcie_lanes,
        "nvmlDeviceGetMaxPcieLinkWidth": lambda gpu: gpu.spec.pcie_lanes,
        "nvmlDeviceGetPerformanceState": lambda gpu: sensors(gpu).performance_state(),
        "nvmlDeviceGetPowerState": lambda gpu: sensors(gpu).performance_state(),
        "nvmlDeviceGetFanSpeed": _fan,
        "nvmlDeviceGetCurrentClocksEventReasons": _reasons,
        "nvmlDeviceGetCurrentClocksThrottleReasons": _reasons,
        "nvmlDeviceGetSupportedClocksEventReasons": lambda _: _ALL_REASONS,
        "nvmlDeviceGetSupportedEventTypes": lambda _: 0x1F,  # up to nvmlEventTypeClock
    },
    mig_devices=False,
)
