# SPDX-License-Identifier: Apache-2.0
"""nvmlDeviceGetFieldValues: many readings by number, each with a return code of its own."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal

import pynvml as nv

from discovery.nvml_abi.argument_kinds import SUCCESS, Nvml
from simulator.answers import sensors
from simulator.answers.link_answers import is_trained, is_up, link_count
from simulator.answers.memory import ecc_counts, ecc_mode, page_retirement, row_remapping
from simulator.answers.registry import (
    INVALID_ARGUMENT,
    NOT_SUPPORTED,
    answers_on_gpu,
    need,
)
from simulator.machine_view import SimulatedGpu

ALL_LINKS = 0xFFFFFFFF
"""Scope of a counter over all NVLinks of a GPU; any other scope is a link's number."""

_NVLINK_5 = 7  # NVML_NVLINK_VERSION_5_0
_KIB = 1024

_UNSIGNED, _UNSIGNED_LONG_LONG = 1, 3  # NVML_VALUE_TYPE_*
_LAYOUTS: tuple[tuple[str, int | None], ...] = (
    ("<d", None),
    ("<I", 1 << 32),
    ("<Q", 1 << 64),
    ("<Q", 1 << 64),
    ("<q", 1 << 63),
    ("<i", 1 << 31),
    ("<H", 1 << 16),
)
"""By NVML_VALUE_TYPE_*: how the number lies in the union, and where it wraps; a double does not."""


@answers_on_gpu("nvmlDeviceGetFieldValues")
def field_values(gpu: SimulatedGpu, questions: list[dict[str, int]]) -> list[dict[str, Any]]:
    """The answers in the order of the questions; a bad one leaves the others good.

    Their time stamps count from the start of the host, where real ones count from 1970.
    """
    return [_answer(gpu, question["fieldId"], question["scopeId"]) for question in questions]


def _answer(gpu: SimulatedGpu, field_id: int, scope: int) -> dict[str, Any]:
    common = {"timestamp": round(1e6 * gpu.view.now), "latencyUsec": 1}
    configured = gpu.state.readings.fields.get(field_id)
    try:
        value = int(_value(gpu, field_id, scope)) if configured is None else configured
    except Nvml as refused:
        return common | {"nvmlReturn": refused.code}
    readings = gpu.state.readings
    kind = readings.field_type
    if kind is None:
        kind = _UNSIGNED_LONG_LONG if field_id in _WIDE else _UNSIGNED
    claimed = kind if readings.field_type_claimed is None else readings.field_type_claimed
    return common | {"nvmlReturn": SUCCESS, "valueType": claimed, "value": _in_union(value, kind)}


def _in_union(value: int, kind: int) -> int:
    """The 8 bytes of an nvmlValue_t that holds the number as this type; too large ones wrap."""
    layout, modulus = _LAYOUTS[kind]
    raw = struct.pack(layout, float(value) if modulus is None else value % modulus)
    return int.from_bytes(raw.ljust(8, b"\0"), "little")


def _value(gpu: SimulatedGpu, field_id: int, scope: int) -> int:
    if field_id in GPU_FIELDS:
        return GPU_FIELDS[field_id](gpu)
    if field_id in LINK_FIELDS:
        count = link_count(gpu)  # a GPU without links has no sum over them either
        if scope != ALL_LINKS and scope >= count:
            raise Nvml(INVALID_ARGUMENT)
        return LINK_FIELDS[field_id](gpu, scope)
    raise Nvml(NOT_SUPPORTED if 0 < field_id < nv.NVML_FI_MAX else INVALID_ARGUMENT)


def _retired_for_single_bit_errors(gpu: SimulatedGpu) -> int:
    page_retirement(gpu)
    return 0


def _memory_celsius(gpu: SimulatedGpu) -> int:
    need(gpu.model.sensors and gpu.model.memory_temperature)
    return sensors.sensors(gpu).memory_celsius()


def _common_speed(gpu: SimulatedGpu) -> int:
    link_count(gpu)
    return gpu.model.nvlink_mbps


def _link_errors(gpu: SimulatedGpu) -> int:
    """None ever happen; from NVLink 5 on other fields count them, by link."""
    link_count(gpu)
    need(gpu.model.nvlink_version < _NVLINK_5)
    return 0


def _switched_links(gpu: SimulatedGpu) -> int:
    link_count(gpu)
    ends = gpu.view.link_ends[gpu.place]
    return sum(end is not None and end.place is None for end in ends)


def _resetless_mig(gpu: SimulatedGpu) -> int:
    need(gpu.model.mig)
    return not gpu.model.reset_for_mig


def _sent_kib(gpu: SimulatedGpu, scope: int) -> int:
    configured = gpu.state.readings.nvlink_sent_kib
    return (
        carried_kib(gpu, scope, received=False)
        if configured is None or scope != ALL_LINKS
        else configured
    )


def _received_kib(gpu: SimulatedGpu, scope: int) -> int:
    configured = gpu.state.readings.nvlink_received_kib
    return (
        carried_kib(gpu, scope, received=True)
        if configured is None or scope != ALL_LINKS
        else configured
    )


def carried_kib(gpu: SimulatedGpu, scope: int, *, received: bool) -> int:
    """KiB of data; a link that goes down keeps its count, so the sum never falls.

    One that MIG trains off has none: the reset that brings the mode takes the count.
    """
    ends = enumerate(gpu.view.link_ends[gpu.place])
    connected = [link for link, end in ends if end is not None and is_trained(gpu, end)]
    links = [link for link in connected if scope in (ALL_LINKS, link)]
    return sensors.sensors(gpu).link_kib(links, received=received)


def _pcie_bytes(gpu: SimulatedGpu, way: Literal["sent", "received"]) -> int:
    need(gpu.model.pcie_counters)
    return sensors.sensors(gpu).pcie_bytes(way)


def _one_links_errors(gpu: SimulatedGpu, link: int) -> int:
    """None ever happen; before NVLink 5 other fields count them, over all links."""
    _state(gpu, link)
    need(gpu.model.nvlink_version >= _NVLINK_5)
    return 0


def _carried(gpu: SimulatedGpu, link: int, *, received: bool, unit: int) -> int:
    need(gpu.model.nvlink_version >= _NVLINK_5)
    return carried_kib(gpu, link, received=received) * _KIB // unit


def _nothing_on_nvlink_5(gpu: SimulatedGpu, link: int) -> int:
    del link
    link_count(gpu)
    need(gpu.model.nvlink_version >= _NVLINK_5)
    return 0


def _of_c2c(value: int, gpu: SimulatedGpu) -> int:
    """Only what shares memory with its CPU has such links."""
    need(gpu.spec.numa_id is not None)
    return value


def _no_power_smoothing(gpu: SimulatedGpu) -> int:
    """There since Blackwell, and off."""
    need(gpu.model.architecture >= nv.NVML_DEVICE_ARCH_BLACKWELL)
    return 0


def _speed(gpu: SimulatedGpu, link: int) -> int:
    need(_state(gpu, link))
    return gpu.model.nvlink_mbps


def _state(gpu: SimulatedGpu, link: int) -> int:
    if link == ALL_LINKS:
        raise Nvml(INVALID_ARGUMENT)
    return is_up(gpu, link)


_PERFORMANCE_POLICIES = {
    nv.NVML_FI_DEV_PERF_POLICY_POWER: nv.NVML_PERF_POLICY_POWER,
    nv.NVML_FI_DEV_PERF_POLICY_THERMAL: nv.NVML_PERF_POLICY_THERMAL,
    nv.NVML_FI_DEV_PERF_POLICY_SYNC_BOOST: nv.NVML_PERF_POLICY_SYNC_BOOST,
    nv.NVML_FI_DEV_PERF_POLICY_BOARD_LIMIT: nv.NVML_PERF_POLICY_BOARD_LIMIT,
    nv.NVML_FI_DEV_PERF_POLICY_LOW_UTILIZATION: nv.NVML_PERF_POLICY_LOW_UTILIZATION,
    nv.NVML_FI_DEV_PERF_POLICY_RELIABILITY: nv.NVML_PERF_POLICY_RELIABILITY,
    nv.NVML_FI_DEV_PERF_POLICY_TOTAL_APP_CLOCKS: nv.NVML_PERF_POLICY_TOTAL_APP_CLOCKS,
    nv.NVML_FI_DEV_PERF_POLICY_TOTAL_BASE_CLOCKS: nv.NVML_PERF_POLICY_TOTAL_BASE_CLOCKS,
}
"""Field to the policy of nvmlDeviceGetViolationStatus."""

_THERMAL_REASONS = (
    nv.NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN,
    nv.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN,
    nv.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN,
)

_ERRORS_BY_LINK = (
    *range(
        nv.NVML_FI_DEV_NVLINK_COUNT_MALFORMED_PACKET_ERRORS,
        nv.NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS + 1,
    ),
    nv.NVML_FI_DEV_NVLINK_COUNT_EFFECTIVE_ERRORS,
    nv.NVML_FI_DEV_NVLINK_COUNT_SYMBOL_ERRORS,
)

_C2C = {
    nv.NVML_FI_DEV_C2C_LINK_COUNT: 10,
    nv.NVML_FI_DEV_C2C_LINK_GET_STATUS: 1,
    nv.NVML_FI_DEV_C2C_LINK_GET_MAX_BW: 44_712,
    nv.NVML_FI_DEV_C2C_LINK_ERROR_INTR: 0,
    nv.NVML_FI_DEV_C2C_LINK_ERROR_REPLAY: 0,
    nv.NVML_FI_DEV_C2C_LINK_ERROR_REPLAY_B2B: 0,
    nv.NVML_FI_DEV_C2C_LINK_POWER_STATE: 0,
}
"""Ten links of 44,712 MB/s, as nvidia-smi c2c shows them of a GH200; all is well."""
_POWER_SMOOTHING = range(
    nv.NVML_FI_PWR_SMOOTHING_ENABLED, nv.NVML_FI_PWR_SMOOTHING_ADMIN_OVERRIDE_RAMP_DOWN_HYST_VAL + 1
)
_PACKET_BYTES = 256
"""Invented."""
_CARRIED = (
    (nv.NVML_FI_DEV_NVLINK_COUNT_XMIT_PACKETS, False, _PACKET_BYTES),
    (nv.NVML_FI_DEV_NVLINK_COUNT_XMIT_BYTES, False, 1),
    (nv.NVML_FI_DEV_NVLINK_COUNT_RCV_PACKETS, True, _PACKET_BYTES),
    (nv.NVML_FI_DEV_NVLINK_COUNT_RCV_BYTES, True, 1),
)
"""Field, which way, bytes that count as one."""
_CORRECTED = (
    nv.NVML_FI_DEV_NVLINK_COUNT_EFFECTIVE_BER,
    nv.NVML_FI_DEV_NVLINK_COUNT_SYMBOL_BER,
    *range(
        nv.NVML_FI_DEV_NVLINK_COUNT_FEC_HISTORY_0, nv.NVML_FI_DEV_NVLINK_COUNT_FEC_HISTORY_15 + 1
    ),
)

GPU_FIELDS: Mapping[int, Callable[[SimulatedGpu], int]] = {
    nv.NVML_FI_DEV_ECC_CURRENT: lambda gpu: ecc_mode(gpu)[0],
    nv.NVML_FI_DEV_ECC_PENDING: lambda gpu: ecc_mode(gpu)[1],
    nv.NVML_FI_DEV_ECC_SBE_VOL_TOTAL: lambda gpu: ecc_counts(gpu).ecc_corrected,
    nv.NVML_FI_DEV_ECC_DBE_VOL_TOTAL: lambda gpu: ecc_counts(gpu).ecc_uncorrected,
    nv.NVML_FI_DEV_ECC_SBE_AGG_TOTAL: lambda gpu: ecc_counts(gpu).ecc_corrected,
    nv.NVML_FI_DEV_ECC_DBE_AGG_TOTAL: lambda gpu: ecc_counts(gpu).ecc_uncorrected,
    nv.NVML_FI_DEV_RETIRED_SBE: _retired_for_single_bit_errors,
    nv.NVML_FI_DEV_RETIRED_DBE: lambda gpu: len(page_retirement(gpu).retired_pages),
    nv.NVML_FI_DEV_RETIRED_PENDING: lambda gpu: page_retirement(gpu).retired_pending,
    nv.NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL: _link_errors,
    nv.NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL: _link_errors,
    nv.NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL: _link_errors,
    nv.NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL: _link_errors,
    nv.NVML_FI_DEV_NVLINK_ECC_DATA_ERROR_COUNT_TOTAL: _link_errors,
    nv.NVML_FI_DEV_PCIE_COUNT_CORRECTABLE_ERRORS: lambda _: 0,
    **{field: partial(_of_c2c, value) for field, value in _C2C.items()},
    **dict.fromkeys(_POWER_SMOOTHING, _no_power_smoothing),
    nv.NVML_FI_DEV_MEMORY_TEMP: _memory_celsius,
    nv.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION: sensors.energy_millijoules,
    nv.NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON: _common_speed,
    nv.NVML_FI_DEV_NVLINK_LINK_COUNT: link_count,
    nv.NVML_FI_DEV_PCIE_REPLAY_COUNTER: lambda gpu: gpu.state.readings.pcie_replays,
    nv.NVML_FI_DEV_REMAPPED_COR: lambda gpu: row_remapping(gpu).remapped_correctable,
    nv.NVML_FI_DEV_REMAPPED_UNC: lambda gpu: row_remapping(gpu).remapped_uncorrectable,
    nv.NVML_FI_DEV_REMAPPED_PENDING: lambda gpu: row_remapping(gpu).remap_pending,
    nv.NVML_FI_DEV_REMAPPED_FAILURE: lambda gpu: row_remapping(gpu).remap_failed,
    nv.NVML_FI_DEV_NVSWITCH_CONNECTED_LINK_COUNT: _switched_links,
    nv.NVML_FI_DEV_IS_RESETLESS_MIG_SUPPORTED: _resetless_mig,
    nv.NVML_FI_DEV_POWER_AVERAGE: sensors.power_milliwatts,
    nv.NVML_FI_DEV_POWER_INSTANT: sensors.power_milliwatts,
    nv.NVML_FI_DEV_POWER_MIN_LIMIT: lambda gpu: sensors.power_limits_milliwatts(gpu)[0],
    nv.NVML_FI_DEV_POWER_MAX_LIMIT: lambda gpu: sensors.power_limits_milliwatts(gpu)[1],
    nv.NVML_FI_DEV_POWER_DEFAULT_LIMIT: sensors.default_power_limit_milliwatts,
    nv.NVML_FI_DEV_POWER_CURRENT_LIMIT: sensors.power_limit_milliwatts,
    nv.NVML_FI_DEV_IS_MIG_MODE_INDEPENDENT_MIG_QUERY_CAPABLE: _resetless_mig,
    nv.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION: lambda gpu: gpu.state.readings.recovery_action,
    nv.NVML_FI_DEV_PCIE_COUNT_TX_BYTES: lambda gpu: _pcie_bytes(gpu, "sent"),
    nv.NVML_FI_DEV_PCIE_COUNT_RX_BYTES: lambda gpu: _pcie_bytes(gpu, "received"),
    **dict.fromkeys(
        _THERMAL_REASONS,
        partial(sensors.violation_nanoseconds, policy=nv.NVML_PERF_POLICY_THERMAL),
    ),
    **{
        field: partial(sensors.violation_nanoseconds, policy=policy)
        for field, policy in _PERFORMANCE_POLICIES.items()
    },
}
"""Fields about a GPU as a whole."""

LINK_FIELDS: Mapping[int, Callable[[SimulatedGpu, int], int]] = {
    nv.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX: _sent_kib,
    nv.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX: _received_kib,
    nv.NVML_FI_DEV_NVLINK_GET_SPEED: _speed,
    nv.NVML_FI_DEV_NVLINK_GET_STATE: _state,
    nv.NVML_FI_DEV_NVLINK_GET_VERSION: lambda gpu, _: gpu.model.nvlink_version,
    **dict.fromkeys(_ERRORS_BY_LINK, _one_links_errors),
    **{
        field: partial(_carried, received=received, unit=unit) for field, received, unit in _CARRIED
    },
    **dict.fromkeys(_CORRECTED, _nothing_on_nvlink_5),
}
"""Fields about one link, or about all where the scope says so."""

_WIDE = frozenset(
    {
        nv.NVML_FI_DEV_ECC_SBE_VOL_TOTAL,
        nv.NVML_FI_DEV_ECC_DBE_VOL_TOTAL,
        nv.NVML_FI_DEV_ECC_SBE_AGG_TOTAL,
        nv.NVML_FI_DEV_ECC_DBE_AGG_TOTAL,
        nv.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION,
        nv.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX,
        nv.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX,
        *_PERFORMANCE_POLICIES,
        *_THERMAL_REASONS,
        *_ERRORS_BY_LINK,
        *(field for field, _, _ in _CARRIED),
        *_CORRECTED,
        *_POWER_SMOOTHING,
    }
)
"""Fields that come as 64-bit numbers."""
