# SPDX-License-Identifier: Apache-2.0
"""Reads what changes by the second, for one GPU and its GPU instances: the table of all readings.

Sources: the calls and fields of nvml.h that stand in the table.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import closing, nullcontext
from dataclasses import replace
from typing import Any, TypeVar

import pynvml

from discovery.nvml.calls import Calls, Handle
from discovery.nvml.conversions import (
    BYTES,
    CELSIUS,
    COUNT,
    MEGAHERTZ,
    MILLIWATTS,
    between,
    boolean,
    divided,
    printable_text,
    scaled,
    whole,
)
from discovery.nvml.facts import remapped_rows
from discovery.nvml.history import History
from discovery.nvml.p2p import Peers
from discovery.nvml.reading_plan import (
    ReadingPlan,
    SharedCall,
    by_call,
    by_field,
    computed,
    in_part,
)
from discovery.nvml.sampled_gpu import ALL_LINKS, SampledGpu
from discovery.sample import (
    PROFILED,
    Board,
    Clocks,
    EccErrors,
    GpuSample,
    HeldDown,
    MemoryUse,
    NvLinkErrors,
    Pcie,
    PowerLimits,
    ReadingGroup,
    RetiredPages,
    SpareRows,
    TemperatureLimits,
)

Read = TypeVar("Read")


def read_sample(
    bus_id: str,
    handle: Handle,
    now: Callable[[], float],
    groups: Collection[ReadingGroup] = (),
    history: History | None = None,
    *,
    peers: Peers = (),
) -> GpuSample:
    """The readings of one GPU that are always made, and those of ``groups``.

    What it does not give is a gap; what was not selected leaves none. ``now`` is the monotonic
    clock; ``history`` is what the samples before left, without which this is the first one;
    ``peers`` are gone through last, and only where readings of pairs are selected.
    A GPU lost on the way keeps what was read. Raises DriverAbsent or DriverMismatch when the
    whole session is gone.
    """
    with closing(History()) if history is None else nullcontext(history) as kept:
        gpu = SampledGpu(
            bus_id=bus_id,
            handle=handle,
            calls=Calls(),
            now=now,
            groups=groups,
            history=kept,
            peers=peers,
        )
        sample, _ = _SAMPLE.read(gpu, groups)
    return replace(sample, bus_id=bus_id, at_seconds=now(), gaps=tuple(gpu.calls.gaps))


# Conversions of answers that are not a number


def _bar1(value: Any) -> MemoryUse:
    return MemoryUse(free_bytes=BYTES(value.bar1Free), used_bytes=BYTES(value.bar1Used))


def _licensed(value: Any) -> bool:
    """Source: nvmlDeviceGetGridLicensableFeatures; feature code 1 is vGPU."""
    if not value.isGridLicenseSupported:
        return False
    count = whole(len(value.gridLicensableFeatures))(value.licensableFeaturesCount)
    features = list(value.gridLicensableFeatures)[:count]
    return any(f.featureCode == 1 and f.featureState > 0 for f in features)


def _first(value: Any) -> float:
    """Utilisation, which comes with its sampling period."""
    return _SHARE(value[0])


def _words(value: Any) -> tuple[int, ...]:
    """A set of bits in words of 64 bits."""
    return tuple(int(word) for word in value)


# The table

_KIB = scaled(1024, 1 << 62)
_NANOSECONDS = divided(1_000_000_000, 1 << 62)
_SHARE = divided(100, 100)
_FAN_SHARE = divided(100, 200)  # nvml.h: above 100 where a fan is faster than it should be
_PAGES = whole(1 << 20)
_BANKS = whole(1 << 20)
_AFFINITY_WORDS = 4
_INFOROM = printable_text(pynvml.NVML_DEVICE_INFOROM_VERSION_BUFFER_SIZE)

_RATES = SharedCall("nvmlDeviceGetUtilizationRates")  # not supported while MIG is on
_POWER_RANGE = SharedCall("nvmlDeviceGetPowerManagementLimitConstraints")
_ROW_REMAPPER = SharedCall("nvmlDeviceGetRowRemapperHistogram")


def _by(read: Callable[[SampledGpu, str], Read], *groups: ReadingGroup) -> Read:
    return computed(read, groups=groups)


def _rare(
    call: str, convert: Callable[[Any], Read], *args: int, of_system: bool = False
) -> Read | None:
    """Read by a call that only the first sample after each discovery makes."""

    def read(gpu: SampledGpu, name: str) -> Read | None:
        def ask(calls: Calls) -> Read | None:
            handle = () if of_system else (gpu.handle,)
            return calls.ask(name, call, *handle, *args, convert=convert)

        return gpu.history.rare(gpu.bus_id, name, gpu.calls, ask)

    return computed(read)


def _inforom(part: int) -> str | None:
    return _rare("nvmlDeviceGetInforomVersion", _INFOROM, part)


def _banks(part: str) -> int | None:
    return _ROW_REMAPPER.part(lambda banks: _BANKS(getattr(banks, part)))


def _clock(call: str, clock: int) -> int | None:
    return by_call(call, clock, convert=MEGAHERTZ)


def _threshold(threshold: int, *groups: ReadingGroup) -> int | None:
    call = "nvmlDeviceGetTemperatureThreshold"
    return by_call(call, threshold, convert=CELSIUS, groups=groups)


# in the order of the table: of a GPU that is lost on the way the readings until then are kept
_SAMPLE = ReadingPlan(
    GpuSample(
        bus_id="",
        at_seconds=0.0,
        gaps=(),
        # always
        sm_clock_hertz=_clock("nvmlDeviceGetClockInfo", pynvml.NVML_CLOCK_SM),
        memory_clock_hertz=_clock("nvmlDeviceGetClockInfo", pynvml.NVML_CLOCK_MEM),
        gpu_celsius=by_call(
            "nvmlDeviceGetTemperature", pynvml.NVML_TEMPERATURE_GPU, convert=CELSIUS
        ),
        power_watts=by_call("nvmlDeviceGetPowerUsage", convert=MILLIWATTS),
        energy_joules=by_field(pynvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION, divided(1000, 1 << 60)),
        pcie_replays=by_field(pynvml.NVML_FI_DEV_PCIE_REPLAY_COUNTER, whole(1 << 31)),
        encoder_busy_ratio=by_call("nvmlDeviceGetEncoderUtilization", convert=_first),
        decoder_busy_ratio=by_call("nvmlDeviceGetDecoderUtilization", convert=_first),
        remapped_rows=_rare("nvmlDeviceGetRemappedRows", remapped_rows),
        vgpu_licensed=_rare("nvmlDeviceGetGridLicensableFeatures_v4", _licensed),
        gpu_busy_ratio=_RATES.part(lambda rates: _SHARE(rates.gpu)),
        memory_busy_ratio=_RATES.part(lambda rates: _SHARE(rates.memory)),
        # drivers of the 545 series give this field a wrong type: DCGM's source says so
        memory_celsius=by_field(pynvml.NVML_FI_DEV_MEMORY_TEMP, CELSIUS, mistyped="uiVal"),
        nvlink_received_bytes=by_field(
            pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, _KIB, scope=ALL_LINKS
        ),
        nvlink_sent_bytes=by_field(
            pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, _KIB, scope=ALL_LINKS
        ),
        # fields that only some ask for, which come in the same call
        held_down=in_part(
            HeldDown(
                power=by_field(pynvml.NVML_FI_DEV_PERF_POLICY_POWER, _NANOSECONDS),
                thermal=by_field(pynvml.NVML_FI_DEV_PERF_POLICY_THERMAL, _NANOSECONDS),
                sync_boost=by_field(pynvml.NVML_FI_DEV_PERF_POLICY_SYNC_BOOST, _NANOSECONDS),
                board_limit=by_field(pynvml.NVML_FI_DEV_PERF_POLICY_BOARD_LIMIT, _NANOSECONDS),
                low_utilization=by_field(
                    pynvml.NVML_FI_DEV_PERF_POLICY_LOW_UTILIZATION, _NANOSECONDS
                ),
                reliability=by_field(pynvml.NVML_FI_DEV_PERF_POLICY_RELIABILITY, _NANOSECONDS),
                application_clocks=by_field(
                    pynvml.NVML_FI_DEV_PERF_POLICY_TOTAL_APP_CLOCKS, _NANOSECONDS
                ),
                base_clocks=by_field(
                    pynvml.NVML_FI_DEV_PERF_POLICY_TOTAL_BASE_CLOCKS, _NANOSECONDS
                ),
                software_thermal=by_field(
                    pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN, _NANOSECONDS
                ),
                hardware_thermal=by_field(
                    pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN, _NANOSECONDS
                ),
                power_brake=by_field(
                    pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN, _NANOSECONDS
                ),
            ),
            groups=(ReadingGroup.HELD_DOWN,),
        ),
        ecc_errors=in_part(
            EccErrors(
                corrected_volatile=by_field(pynvml.NVML_FI_DEV_ECC_SBE_VOL_TOTAL, COUNT),
                uncorrected_volatile=by_field(pynvml.NVML_FI_DEV_ECC_DBE_VOL_TOTAL, COUNT),
                corrected_aggregate=by_field(pynvml.NVML_FI_DEV_ECC_SBE_AGG_TOTAL, COUNT),
                uncorrected_aggregate=by_field(pynvml.NVML_FI_DEV_ECC_DBE_AGG_TOTAL, COUNT),
            ),
            groups=(ReadingGroup.ECC,),
        ),
        retired_pages=in_part(
            RetiredPages(
                corrected=by_field(pynvml.NVML_FI_DEV_RETIRED_SBE, _PAGES),
                uncorrected=by_field(pynvml.NVML_FI_DEV_RETIRED_DBE, _PAGES),
                pending=by_field(pynvml.NVML_FI_DEV_RETIRED_PENDING, boolean),
            ),
            groups=(ReadingGroup.ECC,),
        ),
        instant_power_watts=by_field(
            pynvml.NVML_FI_DEV_POWER_INSTANT, MILLIWATTS, groups=(ReadingGroup.INSTANT_POWER,)
        ),
        # always
        memory=_by(SampledGpu.memory),
        mig_memory=_by(SampledGpu.mig_memory),
        # calls that only some ask for
        power_limits=in_part(
            PowerLimits(
                current=by_call("nvmlDeviceGetPowerManagementLimit", convert=MILLIWATTS),
                enforced=by_call("nvmlDeviceGetEnforcedPowerLimit", convert=MILLIWATTS),
                default=by_call("nvmlDeviceGetPowerManagementDefaultLimit", convert=MILLIWATTS),
                lowest=_POWER_RANGE.part(lambda limits: MILLIWATTS(limits[0])),
                highest=_POWER_RANGE.part(lambda limits: MILLIWATTS(limits[1])),
            ),
            groups=(ReadingGroup.LIMITS,),
        ),
        temperature_limits=in_part(
            TemperatureLimits(
                slowdown=_threshold(pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN),
                shutdown=_threshold(pynvml.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN),
                gpu_most=_threshold(
                    pynvml.NVML_TEMPERATURE_THRESHOLD_GPU_MAX, ReadingGroup.WORKING_LIMIT
                ),
                memory_most=_threshold(pynvml.NVML_TEMPERATURE_THRESHOLD_MEM_MAX),
                margin=by_call("nvmlDeviceGetMarginTemperature", convert=between(-200, 200)),
            ),
            groups=(ReadingGroup.LIMITS,),
        ),
        clocks=in_part(
            Clocks(
                video=_clock("nvmlDeviceGetClockInfo", pynvml.NVML_CLOCK_VIDEO),
                application_sm=_clock("nvmlDeviceGetApplicationsClock", pynvml.NVML_CLOCK_GRAPHICS),
                application_memory=_clock("nvmlDeviceGetApplicationsClock", pynvml.NVML_CLOCK_MEM),
                highest_sm=_clock("nvmlDeviceGetMaxClockInfo", pynvml.NVML_CLOCK_SM),
                highest_memory=_clock("nvmlDeviceGetMaxClockInfo", pynvml.NVML_CLOCK_MEM),
                highest_video=_clock("nvmlDeviceGetMaxClockInfo", pynvml.NVML_CLOCK_VIDEO),
            ),
            groups=(ReadingGroup.CLOCKS,),
        ),
        pcie=in_part(
            Pcie(
                generation=by_call("nvmlDeviceGetCurrPcieLinkGeneration", convert=whole(15)),
                width=by_call("nvmlDeviceGetCurrPcieLinkWidth", convert=whole(64)),
                sent_bytes=by_field(pynvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES, COUNT, wide=True),
                received_bytes=by_field(pynvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES, COUNT, wide=True),
            ),
            groups=(ReadingGroup.PCIE,),
        ),
        nvlink_errors=in_part(
            NvLinkErrors(
                crc_flit=by_field(pynvml.NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL, COUNT),
                crc_data=by_field(pynvml.NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL, COUNT),
                replay=by_field(pynvml.NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL, COUNT),
                recovery=by_field(pynvml.NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL, COUNT),
            ),
            groups=(ReadingGroup.NVLINK_ERRORS,),
        ),
        board=in_part(
            Board(
                brand=_rare("nvmlDeviceGetBrand", whole(0xFFFF)),
                inforom_oem=_inforom(pynvml.NVML_INFOROM_OEM),
                inforom_ecc=_inforom(pynvml.NVML_INFOROM_ECC),
                inforom_power=_inforom(pynvml.NVML_INFOROM_POWER),
                inforom_image=_rare("nvmlDeviceGetInforomImageVersion", _INFOROM),
                compute_mode=_rare("nvmlDeviceGetComputeMode", whole(3)),
                confidential=_rare(
                    "nvmlSystemGetConfComputeState",
                    lambda state: boolean(state.ccFeature),
                    of_system=True,
                ),
                boosts_by_itself=_rare(
                    "nvmlDeviceGetAutoBoostedClocksEnabled", lambda modes: boolean(modes[0])
                ),
                pcie_generation=_rare("nvmlDeviceGetMaxPcieLinkGeneration", whole(15)),
                pcie_width=_rare("nvmlDeviceGetMaxPcieLinkWidth", whole(64)),
                inforom_checksum=_rare(
                    "nvmlDeviceGetInforomConfigurationChecksum", whole((1 << 32) - 1)
                ),
                sram_exceeded=_by(SampledGpu.sram_exceeded),
                memory_unrepairable=_rare("nvmlDeviceGetUnrepairableMemoryFlag_v1", boolean),
                cpu_affinity=_rare("nvmlDeviceGetCpuAffinity", _words, _AFFINITY_WORDS),
                memory_affinity=_rare(
                    "nvmlDeviceGetMemoryAffinity",
                    _words,
                    _AFFINITY_WORDS,
                    pynvml.NVML_AFFINITY_SCOPE_NODE,
                ),
                platform=_by(SampledGpu.platform),
            ),
            groups=(ReadingGroup.BOARD,),
        ),
        spare_rows=in_part(
            SpareRows(
                all_left=_banks("max"),
                many_left=_banks("high"),
                some_left=_banks("partial"),
                few_left=_banks("low"),
                none_left=_banks("none"),
            ),
            groups=(ReadingGroup.SPARE_ROWS,),
        ),
        bar1=by_call("nvmlDeviceGetBAR1MemoryInfo", convert=_bar1, groups=(ReadingGroup.BAR1,)),
        fan_ratio=by_call("nvmlDeviceGetFanSpeed", convert=_FAN_SHARE, groups=(ReadingGroup.FAN,)),
        performance_state=by_call(
            "nvmlDeviceGetPerformanceState", convert=whole(15), groups=(ReadingGroup.FAN,)
        ),
        clock_event_reasons=_by(SampledGpu.clock_event_reasons, ReadingGroup.CLOCK_EVENTS),
        numbers=_by(SampledGpu.numbers, ReadingGroup.NUMBERS),
        memory_errors=_by(SampledGpu.memory_errors, ReadingGroup.ECC_BY_LOCATION),
        link_errors=_by(SampledGpu.link_errors, ReadingGroup.NVLINK_ERRORS_BY_LINK),
        # what has a module of its own
        links=_by(SampledGpu.links, ReadingGroup.LINKS, ReadingGroup.LINK_ERRORS),
        processes=_by(SampledGpu.processes, ReadingGroup.PROCESSES),
        profiling=_by(SampledGpu.profiling, *PROFILED),
        mig_profiling=_by(SampledGpu.mig_profiling, *PROFILED),
        nvlink_p2p=_by(SampledGpu.nvlink_p2p, ReadingGroup.P2P),
    )
)
