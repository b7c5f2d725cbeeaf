# SPDX-License-Identifier: Apache-2.0
"""Families of the GPU itself: temperatures, power, utilisation, memory, fabric, licence."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from discovery.model import Fabric, NvidiaFacts
from discovery.sample import MemoryUse, PowerLimits, ReadingGroup
from exporters.dcgm.dcgm_family import (
    CELSIUS_MOST,
    COUNT_MOST,
    MIB_MOST,
    PERCENT_MOST,
    TOTAL_MOST,
    WATTS_MOST,
    DcgmFamily,
    UnderMig,
)
from exporters.dcgm.family_values import (
    MIB,
    MILLIJOULE,
    PERCENT,
    of_bar1,
    of_memory,
    of_nvidia,
    of_part,
    of_pod,
    of_sample,
    total_bytes,
    used_ratio,
)
from exporters.prometheus_text import MetricType

_temperature = partial(DcgmFamily, most=CELSIUS_MOST)
_temperature_limit = partial(
    _temperature, group=ReadingGroup.LIMITS, gpus="where the driver reports the limit"
)
_power_limit = partial(
    DcgmFamily,
    most=WATTS_MOST,
    decimals=True,
    group=ReadingGroup.LIMITS,
    gpus="where the driver reports the limit",
)
_utilisation = partial(DcgmFamily, most=PERCENT_MOST, under_mig=UnderMig.ABSENT)
_frame_buffer = partial(DcgmFamily, most=MIB_MOST, under_mig=UnderMig.OWN)
# NVML has an instance's own, which nobody reads here; the GPU's would be wrong on it
_bar1 = partial(DcgmFamily, most=MIB_MOST, under_mig=UnderMig.ABSENT, group=ReadingGroup.BAR1)
_BAR1_BYTES: tuple[tuple[int, str, str, Callable[[MemoryUse], int]], ...] = (
    (1600, "CAPACITY", "Window through which the CPU reaches the GPU's memory", total_bytes),
    (
        1601,
        "USED",
        "Part in use of the CPU's window to the GPU's memory",
        lambda bar1: bar1.used_bytes,
    ),
    (
        1602,
        "FREE",
        "Free part of the CPU's window to the GPU's memory",
        lambda bar1: bar1.free_bytes,
    ),
)
"""DCGM's field, name, in words, which part."""
_fabric = partial(DcgmFamily, most=COUNT_MOST, gpus="Hopper and later, in an NVLink fabric")

_POWER_LIMITS: tuple[tuple[int, str, str, str, Callable[[PowerLimits], float | None]], ...] = (
    (160, "POWER_MGMT_LIMIT", "REQUESTED", "Power limit that was set",
     lambda limits: limits.current),
    (161, "POWER_MGMT_LIMIT_MIN", "MIN", "Lowest power limit that can be set",
     lambda limits: limits.lowest),
    (162, "POWER_MGMT_LIMIT_MAX", "MAX", "Highest power limit that can be set",
     lambda limits: limits.highest),
    (163, "POWER_MGMT_LIMIT_DEF", "DEFAULT", "Power limit after start",
     lambda limits: limits.default),
    (164, "ENFORCED_POWER_LIMIT", "ENFORCED", "Power limit in force, the lowest of all that apply",
     lambda limits: limits.enforced),
)  # fmt: skip
"""Field, name, the name since DCGM 4.6, in words, where it is read."""

FAMILIES: tuple[DcgmFamily, ...] = (
    _temperature(
        field=140,
        name="DCGM_FI_DEV_MEMORY_TEMP",
        renamed="DCGM_FI_DEV_MEMORY_TEMP_CELSIUS",
        help="Temperature of the memory in degrees Celsius.",
        value=of_sample(lambda sample: sample.memory_celsius),
        gpus="with HBM",
    ),
    _temperature(
        field=150,
        name="DCGM_FI_DEV_GPU_TEMP",
        renamed="DCGM_FI_DEV_GPU_TEMP_CELSIUS",
        help="Temperature of the GPU in degrees Celsius.",
        value=of_sample(lambda sample: sample.gpu_celsius),
    ),
    _temperature_limit(
        field=151,
        name="DCGM_FI_DEV_MEM_MAX_OP_TEMP",
        renamed="DCGM_FI_DEV_MEMORY_MAX_OP_TEMP_CELSIUS",
        help="Highest temperature at which the memory may work, in degrees Celsius.",
        value=of_part(lambda sample: sample.temperature_limits, lambda limits: limits.memory_most),
    ),
    _temperature_limit(
        field=152,
        name="DCGM_FI_DEV_GPU_MAX_OP_TEMP",
        renamed="DCGM_FI_DEV_GPU_MAX_OP_TEMP_CELSIUS",
        help="Highest temperature at which the GPU may work, in degrees Celsius.",
        value=of_part(lambda sample: sample.temperature_limits, lambda limits: limits.gpu_most),
    ),
    _temperature_limit(
        field=153,
        name="DCGM_FI_DEV_GPU_TEMP_LIMIT",
        renamed="DCGM_FI_DEV_GPU_TEMP_MARGIN_CELSIUS",
        help="Degrees Celsius left until the GPU slows down; below 0 where it is hotter.",
        value=of_part(lambda sample: sample.temperature_limits, lambda limits: limits.margin),
        least=-CELSIUS_MOST,
    ),
    DcgmFamily(
        field=155,
        name="DCGM_FI_DEV_POWER_USAGE",
        renamed="DCGM_FI_DEV_BOARD_POWER_WATTS",
        help="Power the board draws in watts.",
        value=of_sample(lambda sample: sample.power_watts),
        most=WATTS_MOST,
        decimals=True,
    ),
    DcgmFamily(
        field=156,
        name="DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
        kind=MetricType.COUNTER,
        help="Energy used since the driver was loaded in millijoules.",
        value=of_sample(lambda sample: sample.energy_joules, MILLIJOULE),
        most=TOTAL_MOST,
        gpus="Volta and later",
    ),
    DcgmFamily(
        field=1611,
        name="DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL",
        kind=MetricType.COUNTER,
        help="Energy used since the driver was loaded in joules.",
        value=of_sample(lambda sample: sample.energy_joules),
        most=TOTAL_MOST,
        decimals=True,
        gpus="Volta and later",
    ),
    DcgmFamily(
        field=157,
        name="DCGM_FI_DEV_POWER_USAGE_INSTANT",
        renamed="DCGM_FI_DEV_BOARD_POWER_RAW_WATTS",
        help="Power the board draws at the moment, not averaged, in watts.",
        value=of_sample(lambda sample: sample.instant_power_watts),
        most=WATTS_MOST,
        decimals=True,
        group=ReadingGroup.INSTANT_POWER,
        gpus="where the driver reports it",
    ),
    _temperature_limit(
        field=158,
        name="DCGM_FI_DEV_SLOWDOWN_TEMP",
        renamed="DCGM_FI_DEV_GPU_TEMP_SLOWDOWN_CELSIUS",
        help="Temperature at which the GPU slows itself down, in degrees Celsius.",
        value=of_part(lambda sample: sample.temperature_limits, lambda limits: limits.slowdown),
    ),
    _temperature_limit(
        field=159,
        name="DCGM_FI_DEV_SHUTDOWN_TEMP",
        renamed="DCGM_FI_DEV_GPU_TEMP_SHUTDOWN_CELSIUS",
        help="Temperature at which the GPU switches itself off, in degrees Celsius.",
        value=of_part(lambda sample: sample.temperature_limits, lambda limits: limits.shutdown),
    ),
    *(
        _power_limit(
            field=field,
            name=f"DCGM_FI_DEV_{name}",
            renamed=f"DCGM_FI_DEV_BOARD_POWER_LIMIT_{renamed}_WATTS",
            help=f"{words}, in watts.",
            value=of_part(lambda sample: sample.power_limits, read),
        )
        for field, name, renamed, words, read in _POWER_LIMITS
    ),
    _fabric(
        field=170,
        name="DCGM_FI_DEV_FABRIC_MANAGER_STATUS",
        help="NVLink fabric: 0 not supported, 1 not started, 2 in progress, 3 done, 4 failed.",
        value=of_nvidia(lambda gpu: None if gpu.fabric is None else _fabric_status(gpu.fabric)),
        most=4,
    ),
    _fabric(
        field=173,
        name="DCGM_FI_DEV_FABRIC_CLIQUE_ID",
        help="Number of the clique within the NVLink fabric.",
        value=of_nvidia(lambda gpu: None if (fabric := _joined(gpu)) is None else fabric.clique_id),
    ),
    _fabric(
        field=174,
        name="DCGM_FI_DEV_FABRIC_HEALTH_MASK",
        help="Bits that tell how well the NVLink fabric is.",
        value=of_nvidia(
            lambda gpu: None if (fabric := _joined(gpu)) is None else fabric.health_mask
        ),
    ),
    _fabric(
        field=175,
        name="DCGM_FI_DEV_FABRIC_HEALTH_SUMMARY",
        help="NVLink fabric: 0 not supported, 1 healthy, 2 unhealthy, 3 with limited capacity.",
        value=of_nvidia(lambda gpu: None if gpu.fabric is None else gpu.fabric.health_summary),
    ),
    DcgmFamily(
        field=190,
        name="DCGM_FI_DEV_PSTATE",
        renamed="DCGM_FI_DEV_GPU_PSTATE",
        help="Performance state: 0 is the fastest, 15 the slowest.",
        value=of_sample(lambda sample: sample.performance_state),
        most=15,
        group=ReadingGroup.FAN,
    ),
    DcgmFamily(
        field=191,
        name="DCGM_FI_DEV_FAN_SPEED",
        help="Speed of the fan in percent of its highest.",
        value=of_sample(lambda sample: sample.fan_ratio, PERCENT),
        most=2 * PERCENT_MOST,  # some fans may run faster than they should
        group=ReadingGroup.FAN,
        gpus="with a fan of their own",
    ),
    DcgmFamily(
        field=1612,
        name="DCGM_FI_DEV_FAN_SPEED_RATIO",
        help="Speed of the fan as a share of its highest.",
        value=of_sample(lambda sample: sample.fan_ratio),
        most=2,
        decimals=True,
        group=ReadingGroup.FAN,
        gpus="with a fan of their own",
    ),
    _utilisation(
        field=203,
        name="DCGM_FI_DEV_GPU_UTIL",
        renamed="DCGM_FI_DEV_GPU_UTIL_RATIO",
        help="Share of time in which a kernel ran, in percent.",
        value=of_sample(lambda sample: sample.gpu_busy_ratio, PERCENT),
        of_pod=of_pod(lambda use: use.busy_ratio, PERCENT),
    ),
    _utilisation(
        field=204,
        name="DCGM_FI_DEV_MEM_COPY_UTIL",
        help="Share of time in which memory was read or written, in percent.",
        value=of_sample(lambda sample: sample.memory_busy_ratio, PERCENT),
    ),
    _utilisation(
        field=206,
        name="DCGM_FI_DEV_ENC_UTIL",
        help="Use of the video encoders in percent.",
        value=of_sample(lambda sample: sample.encoder_busy_ratio, PERCENT),
    ),
    _utilisation(
        field=207,
        name="DCGM_FI_DEV_DEC_UTIL",
        help="Use of the video decoders in percent.",
        value=of_sample(lambda sample: sample.decoder_busy_ratio, PERCENT),
    ),
    _bar1(
        field=90,
        name="DCGM_FI_DEV_BAR1_TOTAL",
        help="Window through which the CPU reaches the GPU's memory, in MiB.",
        value=of_bar1(total_bytes),
    ),
    _bar1(
        field=92,
        name="DCGM_FI_DEV_BAR1_USED",
        help="Part in use of the CPU's window to the GPU's memory, in MiB.",
        value=of_bar1(lambda bar1: bar1.used_bytes),
    ),
    _bar1(
        field=93,
        name="DCGM_FI_DEV_BAR1_FREE",
        help="Free part of the CPU's window to the GPU's memory, in MiB.",
        value=of_bar1(lambda bar1: bar1.free_bytes),
    ),
    *(
        _bar1(
            field=field,
            name=f"DCGM_FI_DEV_BAR1_{name}_BYTES",
            help=f"{words} in bytes.",
            value=of_part(lambda sample: sample.bar1, read),
            most=TOTAL_MOST,
        )
        for field, name, words, read in _BAR1_BYTES
    ),
    _frame_buffer(
        field=250,
        name="DCGM_FI_DEV_FB_TOTAL",
        help="Frame buffer as a whole in MiB.",
        value=of_memory(total_bytes),
    ),
    _frame_buffer(
        field=251,
        name="DCGM_FI_DEV_FB_FREE",
        help="Frame buffer that is free in MiB.",
        value=of_memory(lambda memory: memory.free_bytes),
    ),
    _frame_buffer(
        field=252,
        name="DCGM_FI_DEV_FB_USED",
        help="Frame buffer in use, without what the driver reserves, in MiB.",
        value=of_memory(lambda memory: memory.used_bytes),
        of_pod=of_pod(lambda use: use.memory_bytes, MIB),
    ),
    _frame_buffer(
        field=253,
        name="DCGM_FI_DEV_FB_RESERVED",
        help="Frame buffer that the driver reserves in MiB.",
        value=of_memory(lambda memory: memory.reserved_bytes),
        gpus="driver 510 and later",
    ),
    DcgmFamily(
        field=254,
        name="DCGM_FI_DEV_FB_USED_PERCENT",
        renamed="DCGM_FI_DEV_FB_USED_RATIO",
        help="Frame buffer in use of what the driver does not reserve, 0 to 1.",
        value=used_ratio,
        most=1,
        decimals=True,
        under_mig=UnderMig.OWN,
    ),
    DcgmFamily(
        field=526,
        name="DCGM_FI_DEV_VGPU_LICENSE_STATUS",
        help="1 where a vGPU licence is held, else 0.",
        value=of_sample(lambda sample: sample.vgpu_licensed),
        most=1,
    ),
    DcgmFamily(
        field=1523,
        name="DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION",
        renamed="DCGM_FI_DEV_GPU_RECOVERY_ACTION",
        help=(
            "What brings the GPU back: 0 nothing to do, 1 GPU reset, 2 node reboot, 3 drain its "
            "peers, 4 drain and reset, 5 IMEX domain, 6 bus reset, 7 system reboot."
        ),
        value=of_nvidia(lambda gpu: gpu.recovery_action),
        most=COUNT_MOST,
        gpus="where the driver reports it",
    ),
)


def _fabric_status(fabric: Fabric) -> int:
    """DCGM's status; a registration that ended with an error is 4."""
    return 4 if fabric.state == 3 and fabric.status != 0 else fabric.state


def _joined(gpu: NvidiaFacts) -> Fabric | None:
    """The fabric once registration is over: before, its other facts mean nothing."""
    return gpu.fabric if gpu.fabric is not None and gpu.fabric.state == 3 else None
