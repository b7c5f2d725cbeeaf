"""What the groups of readings ask of a GPU as a whole, group by group.

A reading named ``ecc_errors.corrected_volatile`` becomes that field of the sample's
``ecc_errors``. Sources: the calls and fields of nvml.h that stand beside each.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import pynvml

from discovery.model import Reason
from discovery.nvml.calls import (
    CallReading,
    Calls,
    Field,
    Handle,
    between,
    divided,
    flag,
    scaled,
    whole,
)
from discovery.sample import (
    Clocks,
    EccErrors,
    HeldDown,
    MemoryUse,
    NvLinkErrors,
    Pcie,
    PowerLimits,
    ReadingGroup,
    RetiredPages,
    TemperatureLimits,
)

COUNT = whole(1 << 62)
"""A counter of 64 bits; no device comes near its end."""

_NANOSECONDS = divided(1_000_000_000, 1 << 62)
_MILLIWATTS = divided(1000, 10_000_000)
_CELSIUS = whole(200)
MEGAHERTZ = scaled(1_000_000, 20_000)
"""A clock as NVML tells it, to hertz."""
_PERCENT = 100
_FASTEST_FAN_PERCENT = 200  # nvml.h: above 100 where a fan is faster than it should be
_SLOWEST_STATE = 15
_MASK = whole((1 << 53) - 1)
_BYTES = whole(1 << 50)
_MARGIN = between(-200, 200)

_PARTS: Mapping[str, Callable[..., Any]] = {
    "held_down": HeldDown,
    "ecc_errors": EccErrors,
    "retired_pages": RetiredPages,
    "power_limits": PowerLimits,
    "temperature_limits": TemperatureLimits,
    "clocks": Clocks,
    "pcie": Pcie,
    "nvlink_errors": NvLinkErrors,
}
"""Field of the sample that holds several readings, to its type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedReadings:
    """What is asked beside that which always is."""

    readings: tuple[CallReading, ...] = ()
    fields: tuple[Field, ...] = ()
    more: tuple[Callable[[Calls, Handle], dict[str, Any]], ...] = ()
    """Readings that take another form than one call and its answer."""


def _fields(
    part: str, convert: Callable[[Any], Any], numbers: Mapping[str, int]
) -> tuple[Field, ...]:
    return tuple(
        Field(what=f"{part}.{name}", field=number, convert=convert)
        for name, number in numbers.items()
    )


def _power_limit(name: str, call: str) -> CallReading:
    return CallReading(what=f"power_limits.{name}", call=call, convert=_MILLIWATTS)


def _clock(name: str, call: str, clock: int) -> CallReading:
    return CallReading(what=f"clocks.{name}", call=call, args=(clock,), convert=MEGAHERTZ)


def _temperature_limit(name: str, threshold: int) -> CallReading:
    return CallReading(
        what=f"temperature_limits.{name}",
        call="nvmlDeviceGetTemperatureThreshold",
        args=(threshold,),
        convert=_CELSIUS,
    )


_WORKING_LIMIT = _temperature_limit("gpu_most", pynvml.NVML_TEMPERATURE_THRESHOLD_GPU_MAX)


def _bar1(value: Any) -> MemoryUse:
    return MemoryUse(free_bytes=_BYTES(value.bar1Free), used_bytes=_BYTES(value.bar1Used))


def _event_reasons(calls: Calls, handle: Handle) -> dict[str, Any]:
    """Drivers before 535 know the call by its older name only."""
    what = "clock_event_reasons"
    newer = Calls()
    bits = newer.ask(what, "nvmlDeviceGetCurrentClocksEventReasons", handle, convert=_MASK)
    if bits is None and newer.gaps[0].reason is Reason.UNSUPPORTED:
        older = "nvmlDeviceGetCurrentClocksThrottleReasons"
        bits = calls.ask(what, older, handle, convert=_MASK)
    else:
        calls.gaps += newer.gaps
    return {} if bits is None else {what: bits}


def _power_range(calls: Calls, handle: Handle) -> dict[str, Any]:
    """The lowest and the highest limit that can be set come from one call."""
    found: dict[str, Any] = calls.parts(
        {
            "power_limits.lowest": lambda limits: _MILLIWATTS(limits[0]),
            "power_limits.highest": lambda limits: _MILLIWATTS(limits[1]),
        },
        "nvmlDeviceGetPowerManagementLimitConstraints",
        handle,
    )
    return found


_BY_GROUP: Mapping[ReadingGroup, WantedReadings] = {
    ReadingGroup.CLOCK_EVENTS: WantedReadings(more=(_event_reasons,)),
    ReadingGroup.HELD_DOWN: WantedReadings(
        fields=_fields(
            "held_down",
            _NANOSECONDS,
            {
                "power": pynvml.NVML_FI_DEV_PERF_POLICY_POWER,
                "thermal": pynvml.NVML_FI_DEV_PERF_POLICY_THERMAL,
                "sync_boost": pynvml.NVML_FI_DEV_PERF_POLICY_SYNC_BOOST,
                "board_limit": pynvml.NVML_FI_DEV_PERF_POLICY_BOARD_LIMIT,
                "low_utilization": pynvml.NVML_FI_DEV_PERF_POLICY_LOW_UTILIZATION,
                "reliability": pynvml.NVML_FI_DEV_PERF_POLICY_RELIABILITY,
                "application_clocks": pynvml.NVML_FI_DEV_PERF_POLICY_TOTAL_APP_CLOCKS,
                "base_clocks": pynvml.NVML_FI_DEV_PERF_POLICY_TOTAL_BASE_CLOCKS,
            },
        ),
    ),
    ReadingGroup.ECC: WantedReadings(
        fields=(
            *_fields(
                "ecc_errors",
                COUNT,
                {
                    "corrected_volatile": pynvml.NVML_FI_DEV_ECC_SBE_VOL_TOTAL,
                    "uncorrected_volatile": pynvml.NVML_FI_DEV_ECC_DBE_VOL_TOTAL,
                    "corrected_aggregate": pynvml.NVML_FI_DEV_ECC_SBE_AGG_TOTAL,
                    "uncorrected_aggregate": pynvml.NVML_FI_DEV_ECC_DBE_AGG_TOTAL,
                },
            ),
            *_fields(
                "retired_pages",
                whole(1 << 20),
                {
                    "corrected": pynvml.NVML_FI_DEV_RETIRED_SBE,
                    "uncorrected": pynvml.NVML_FI_DEV_RETIRED_DBE,
                },
            ),
            *_fields("retired_pages", flag, {"pending": pynvml.NVML_FI_DEV_RETIRED_PENDING}),
        ),
    ),
    ReadingGroup.LIMITS: WantedReadings(
        readings=(
            _power_limit("current", "nvmlDeviceGetPowerManagementLimit"),
            _power_limit("enforced", "nvmlDeviceGetEnforcedPowerLimit"),
            _power_limit("default", "nvmlDeviceGetPowerManagementDefaultLimit"),
            _temperature_limit("slowdown", pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN),
            _temperature_limit("shutdown", pynvml.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN),
            _WORKING_LIMIT,
            _temperature_limit("memory_most", pynvml.NVML_TEMPERATURE_THRESHOLD_MEM_MAX),
            CallReading(
                what="temperature_limits.margin",
                call="nvmlDeviceGetMarginTemperature",
                convert=_MARGIN,
            ),
        ),
        more=(_power_range,),
    ),
    ReadingGroup.CLOCKS: WantedReadings(
        readings=(
            _clock("video", "nvmlDeviceGetClockInfo", pynvml.NVML_CLOCK_VIDEO),
            _clock("application_sm", "nvmlDeviceGetApplicationsClock", pynvml.NVML_CLOCK_GRAPHICS),
            _clock("application_memory", "nvmlDeviceGetApplicationsClock", pynvml.NVML_CLOCK_MEM),
            _clock("highest_sm", "nvmlDeviceGetMaxClockInfo", pynvml.NVML_CLOCK_SM),
            _clock("highest_memory", "nvmlDeviceGetMaxClockInfo", pynvml.NVML_CLOCK_MEM),
            _clock("highest_video", "nvmlDeviceGetMaxClockInfo", pynvml.NVML_CLOCK_VIDEO),
        )
    ),
    ReadingGroup.INSTANT_POWER: WantedReadings(
        fields=(
            Field(
                what="instant_power_watts",
                field=pynvml.NVML_FI_DEV_POWER_INSTANT,
                convert=_MILLIWATTS,
            ),
        )
    ),
    ReadingGroup.WORKING_LIMIT: WantedReadings(readings=(_WORKING_LIMIT,)),
    ReadingGroup.PCIE: WantedReadings(
        readings=(
            CallReading(
                what="pcie.generation",
                call="nvmlDeviceGetCurrPcieLinkGeneration",
                convert=whole(15),
            ),
            CallReading(
                what="pcie.width", call="nvmlDeviceGetCurrPcieLinkWidth", convert=whole(64)
            ),
        ),
        fields=_fields(
            "pcie",
            COUNT,
            {
                "sent_bytes": pynvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES,
                "received_bytes": pynvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES,
            },
        ),
    ),
    ReadingGroup.BAR1: WantedReadings(
        readings=(CallReading(what="bar1", call="nvmlDeviceGetBAR1MemoryInfo", convert=_bar1),)
    ),
    ReadingGroup.FAN: WantedReadings(
        readings=(
            CallReading(
                what="fan_ratio",
                call="nvmlDeviceGetFanSpeed",
                convert=divided(_PERCENT, _FASTEST_FAN_PERCENT),
            ),
            CallReading(
                what="performance_state",
                call="nvmlDeviceGetPerformanceState",
                convert=whole(_SLOWEST_STATE),
            ),
        )
    ),
    ReadingGroup.NVLINK_ERRORS: WantedReadings(
        fields=_fields(
            "nvlink_errors",
            COUNT,
            {
                "crc_flit": pynvml.NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL,
                "crc_data": pynvml.NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL,
                "replay": pynvml.NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL,
                "recovery": pynvml.NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL,
            },
        )
    ),
}
"""The other groups have modules of their own."""


def wanted(groups: Collection[ReadingGroup]) -> WantedReadings:
    """What these groups ask for, all together."""
    asked = [each for group, each in _BY_GROUP.items() if group in groups]
    readings = (reading for each in asked for reading in each.readings)
    return WantedReadings(
        readings=tuple(dict.fromkeys(readings)),  # what two groups ask for is read once
        fields=tuple(field for each in asked for field in each.fields),
        more=tuple(read for each in asked for read in each.more),
    )


def assembled(found: Mapping[str, Any]) -> dict[str, Any]:
    """Readings by the sample's fields: those that are parts of one are put together."""
    plain: dict[str, Any] = {}
    parts: dict[str, dict[str, Any]] = {}
    for what, value in found.items():
        of, dot, name = what.partition(".")
        if dot:
            parts.setdefault(of, {})[name] = value
        else:
            plain[what] = value
    return plain | {of: _PARTS[of](**values) for of, values in parts.items()}
