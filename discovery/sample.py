# SPDX-License-Identifier: Apache-2.0
"""Readings of one GPU and its GPU instances that change by the second, in base units.

As in :mod:`discovery.model`: frozen, and what a GPU does not give is None, or not in its
tuple, with a gap. The parts that only some users need come in groups.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from discovery.model import Bytes, Gap, RemappedRows


class ReadingGroup(StrEnum):
    """Readings that are made only where they are selected, since each costs driver calls."""

    PROFILING = "profiling"  # GPM, Hopper and later: what dcgm-exporter serves by default
    PIPES = "pipes"  # GPM: the other parts of the multiprocessors, and NVLink as a whole
    ENGINES = "engines"  # GPM: video, JPEG and optical-flow engines, each NVLink, NVLink-C2C
    CACHES = "caches"  # GPM: how often caches of the memory of host and peers were hit
    TOTALS = "totals"  # GPM: cycles, and bytes over PCIe, since the driver was loaded
    CLOCK_EVENTS = "clock-events"  # why clocks are held down now
    HELD_DOWN = "held-down"  # for how long they were, by what did it
    ECC = "ecc"  # ECC errors and retired pages
    LIMITS = "limits"  # of power and temperature
    CLOCKS = "clocks"  # of video, of applications, and the highest
    INSTANT_POWER = "instant-power"
    WORKING_LIMIT = "working-limit"  # the highest temperature to work at, which is in LIMITS too
    PCIE = "pcie"
    BAR1 = "bar1"
    FAN = "fan"  # and the performance state
    NVLINK_ERRORS = "nvlink-errors"
    LINKS = "links"  # counters of each NVLink
    NVLINK_ERRORS_BY_LINK = "nvlink-errors-by-link"  # a call for each link and kind
    LINK_ERRORS = "link-errors"  # of these the errors, which are in LINKS too; NVLink 5 and later
    P2P = "p2p"  # whether pairs of GPUs can use NVLink
    BOARD = "board"  # brand, versions of the InfoROM, compute mode, the PCIe link at its best
    SPARE_ROWS = "spare-rows"  # of the memory's banks
    ECC_BY_LOCATION = "ecc-by-location"  # ECC errors of each part of the memory: 32 calls
    NUMBERS = "numbers"  # fields of NVML that are served as they are: NVLink, NVLink-C2C, power
    PROCESSES = "processes"


PROFILED: Mapping[ReadingGroup, tuple[int, ...]] = {
    ReadingGroup.PROFILING: (1, 5, 10, 20, 21),
    ReadingGroup.PIPES: (2, 3, 4, 6, 7, 8, 9, 11, 12, 13, 60, 61),
    ReadingGroup.ENGINES: (
        *range(30, 38),
        *range(40, 48),
        50,
        51,
        *range(62, 98),
        *range(100, 104),
    ),
    ReadingGroup.CACHES: tuple(range(160, 164)),
    ReadingGroup.TOTALS: tuple(range(248, 261)),
}
"""GPM's metrics by the group that reads them. Source: nvmlGpmMetricId_t, nvml.h."""


NVLINK_NUMBERS: tuple[int, ...] = (201, 202, 203, 204, 220, 222, *range(235, 251))
"""Fields of NVML over all NVLinks: packets, bytes, raw bit error rates, corrected errors. Source:
NVML_FI_DEV_NVLINK_COUNT_* of nvml.h; NVLink 5 and later."""
GPU_NUMBERS: tuple[int, ...] = (160, 170, 171, 172, 173, *range(231, 235), *range(251, 269))
"""Fields of NVML about a GPU: data errors of NVLink, NVLink-C2C, correctable errors of PCIe, and
power smoothing. Source: NVML_FI_DEV_* and NVML_FI_PWR_SMOOTHING_* of nvml.h."""


def profiled_by(*metrics: int) -> tuple[ReadingGroup, ...]:
    """The groups that read these metrics of GPM."""
    return tuple(group for group, ids in PROFILED.items() if not set(ids).isdisjoint(metrics))


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryUse:
    """Frame buffer use. Source: nvmlDeviceGetMemoryInfo v2; ``used`` excludes ``reserved``."""

    free_bytes: Bytes
    used_bytes: Bytes
    reserved_bytes: Bytes | None = None
    """None before driver 510, where ``used`` includes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldDown:
    """Seconds for which clocks were held down since the driver was loaded, by what did it.

    Source: fields NVML_FI_DEV_PERF_POLICY_* and NVML_FI_DEV_CLOCKS_EVENT_REASON_*, which count
    nanoseconds. Not every driver counts those from ``software_thermal`` on.
    """

    power: float | None
    thermal: float | None
    sync_boost: float | None
    board_limit: float | None
    low_utilization: float | None
    reliability: float | None
    application_clocks: float | None
    base_clocks: float | None
    software_thermal: float | None
    hardware_thermal: float | None
    power_brake: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EccErrors:
    """Memory errors: volatile ones since the driver was loaded, aggregate ones for ever.

    Source: fields NVML_FI_DEV_ECC_{SBE,DBE}_{VOL,AGG}_TOTAL.
    """

    corrected_volatile: int | None
    uncorrected_volatile: int | None
    corrected_aggregate: int | None
    uncorrected_aggregate: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RetiredPages:
    """Memory pages out of service, before Ampere. Source: fields NVML_FI_DEV_RETIRED_*."""

    corrected: int | None
    """Pages retired after many errors of a single bit."""
    uncorrected: int | None
    """Pages retired after an error of two bits."""
    pending: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerLimits:
    """Watts. Source: nvmlDeviceGet{PowerManagement,Enforced}*Limit*."""

    current: float | None
    enforced: float | None
    default: float | None
    lowest: float | None
    highest: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TemperatureLimits:
    """Degrees Celsius. Source: nvmlDeviceGet{TemperatureThreshold,MarginTemperature}."""

    slowdown: int | None
    shutdown: int | None
    gpu_most: int | None
    memory_most: int | None
    margin: int | None
    """How far the GPU is below the temperature at which it slows down; negative above."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clocks:
    """Hertz. Source: nvmlDeviceGet{ClockInfo,ApplicationsClock,MaxClockInfo}."""

    video: int | None
    application_sm: int | None
    """Clock at which applications are to run; newer GPUs have no such setting."""
    application_memory: int | None
    highest_sm: int | None
    highest_memory: int | None
    highest_video: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pcie:
    """The PCIe link now, and what went over it since the driver was loaded.

    Source: nvmlDeviceGetCurrPcieLink{Generation,Width}, fields NVML_FI_DEV_PCIE_COUNT_*_BYTES.
    Counters of 32 bits, as an H100 has with driver 580, start again within a tenth of a second.
    """

    generation: int | None
    width: int | None
    sent_bytes: Bytes | None
    received_bytes: Bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """Place of a GPU in the rack. Source: nvmlDeviceGetPlatformInfo, version 2."""

    infiniband_guid: str
    """``0x`` and 16 hexadecimal digits."""
    chassis_serial: str | None
    slot: int | None
    """Place in the rack, switches counted too."""
    tray: int | None
    """Place in the rack, among the trays that compute."""
    host_id: int
    """Place of the node in its slot."""
    peer_type: int
    """What NVLinks lead to, as the platform numbers it."""
    module_id: int
    """Place of the GPU in the node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """Facts and settings of a board, as after the last discovery.

    Source: nvmlDeviceGet{Brand,InforomVersion,InforomImageVersion,ComputeMode,MaxPcieLink*,
    InforomConfigurationChecksum,SramEccErrorStatus,UnrepairableMemoryFlag_v1,CpuAffinity,MemoryAffinity}.
    """

    brand: int | None
    """NVML_BRAND_*."""
    inforom_oem: str | None
    """Version of the InfoROM's OEM object."""
    inforom_ecc: str | None
    inforom_power: str | None
    inforom_image: str | None
    """Version of the whole InfoROM."""
    compute_mode: int | None
    """NVML_COMPUTEMODE_*: 0 is the default, 2 prohibited, 3 one process alone."""
    confidential: bool | None
    """Confidential computing is on, for the whole system. Source: nvmlSystemGetConfComputeState."""
    boosts_by_itself: bool | None
    """Source: nvmlDeviceGetAutoBoostedClocksEnabled; newer GPUs have no such setting."""
    pcie_generation: int | None
    """Highest generation that GPU and system have in common."""
    pcie_width: int | None
    inforom_checksum: int | None
    """Checksum of the InfoROM's configuration: the same on GPUs that are configured alike."""
    sram_exceeded: bool | None
    """The SRAM had more uncorrectable errors than it may have."""
    memory_unrepairable: bool | None
    """The memory has an error that no spare row can take away."""
    cpu_affinity: tuple[int, ...] | None
    """CPUs near the GPU: the first 256 as bits of four words, the lowest first."""
    memory_affinity: tuple[int, ...] | None
    """NUMA nodes near the GPU, in the same form."""
    platform: Platform | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SpareRows:
    """Banks of the memory by how many of their spare rows are left, Ampere and later.

    Source: nvmlDeviceGetRowRemapperHistogram.
    """

    all_left: int | None
    many_left: int | None
    some_left: int | None
    few_left: int | None
    none_left: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NvLinkErrors:
    """Errors over all NVLinks, up to NVLink 4. Source: fields NVML_FI_DEV_NVLINK_*_COUNT_TOTAL."""

    crc_flit: int | None
    crc_data: int | None
    replay: int | None
    recovery: int | None


class LinkError(StrEnum):
    """Errors of one NVLink, NVLink 5 and later. Source: fields NVML_FI_DEV_NVLINK_COUNT_*."""

    MALFORMED_PACKETS = "malformed-packets"
    BUFFER_OVERRUNS = "buffer-overruns"
    RECEIVE = "receive"
    RECEIVE_REMOTE = "receive-remote"
    RECEIVE_GENERAL = "receive-general"
    INTEGRITY = "integrity"
    DISCARDED = "discarded"
    RECOVERIES = "recoveries"
    RECOVERIES_FAILED = "recoveries-failed"
    EFFECTIVE = "effective"
    SYMBOL = "symbol"


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkCounters:
    """Counters of an NVLink since the driver was loaded, as its GPU counts."""

    link: int
    received_bytes: Bytes | None = None
    sent_bytes: Bytes | None = None
    errors: tuple[tuple[LinkError, int], ...] = ()
    """Kinds of error that the link counts, each with its number."""


class ProcessKind(StrEnum):
    """Kind of work that a process does on a GPU. Source: nvmlDeviceGet*RunningProcesses."""

    COMPUTE = "compute"
    GRAPHICS = "graphics"
    MPS = "mps"


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process on a GPU; a process that works in several ways is listed once for each way."""

    pid: int
    """Pid in the reader's namespace; of processes outside of it the driver shows nothing or 0."""
    kind: ProcessKind
    memory_bytes: Bytes | None = None
    """All memory that the process has, in whatever way it works."""
    gpu_instance_id: int | None = None
    compute_instance_id: int | None = None
    busy_ratio: float | None = None
    """Share of the time for which its kernels ran, all of them; unknown while MIG is on, the
    first time, and where the driver has measured nothing since the sample before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSample:
    """Readings of one GPU that change by the second, in base units."""

    # no field has a default: the table of readings says of each how it is read
    bus_id: str
    at_seconds: float
    """Monotonic clock of the reader when the GPU was read."""
    sm_clock_hertz: int | None
    memory_clock_hertz: int | None
    gpu_celsius: int | None
    memory_celsius: int | None
    power_watts: float | None
    """Since Ampere an average over a second, on most GPUs."""
    instant_power_watts: float | None
    """Power at the moment. Source: field NVML_FI_DEV_POWER_INSTANT."""
    energy_joules: float | None
    """Energy used since the driver was loaded."""
    pcie_replays: int | None
    gpu_busy_ratio: float | None
    memory_busy_ratio: float | None
    encoder_busy_ratio: float | None
    decoder_busy_ratio: float | None
    memory: MemoryUse | None
    nvlink_received_bytes: Bytes | None
    nvlink_sent_bytes: Bytes | None
    """Data bytes over all links since the driver was loaded."""
    remapped_rows: RemappedRows | None
    vgpu_licensed: bool | None
    mig_memory: tuple[tuple[int, MemoryUse], ...]
    """GPU instance id to its frame buffer use, in the order of ``mig_devices``."""
    profiling: tuple[tuple[int, float], ...]
    """GPM metric id to its value since the sample before, as a ratio or in bytes each second; of
    the group TOTALS since the driver was loaded."""
    mig_profiling: tuple[tuple[int, tuple[tuple[int, float], ...]], ...]
    """GPU instance id to the GPM values of that instance, as in ``profiling``."""
    clock_event_reasons: int | None
    """Bits: why clocks are held down now. Source: nvmlDeviceGetCurrentClocksEventReasons."""
    held_down: HeldDown | None
    ecc_errors: EccErrors | None
    retired_pages: RetiredPages | None
    power_limits: PowerLimits | None
    temperature_limits: TemperatureLimits | None
    clocks: Clocks | None
    pcie: Pcie | None
    bar1: MemoryUse | None
    fan_ratio: float | None
    """Share of the fan's highest speed; GPUs cooled by the chassis have none."""
    performance_state: int | None
    """P-state: 0 is the fastest, 15 the slowest."""
    nvlink_errors: NvLinkErrors | None
    board: Board | None
    spare_rows: SpareRows | None
    numbers: tuple[tuple[int, int], ...]
    """Fields of NVML, of :data:`NVLINK_NUMBERS` and :data:`GPU_NUMBERS`, to their numbers."""
    memory_errors: tuple[tuple[tuple[int, int, int], int], ...]
    """ECC errors by type, counter and location, each as NVML numbers it, to their number.

    Source: nvmlDeviceGetMemoryErrorCounter. A GPU counts at a few of the locations.
    """
    link_errors: tuple[tuple[tuple[int, int], int], ...]
    """Errors by NVLink and kind, NVML_NVLINK_ERROR_DL_*, to their number; up to NVLink 4.

    Source: nvmlDeviceGetNvLinkErrorCounter.
    """
    links: tuple[LinkCounters, ...]
    """The NVLinks that were active at the last discovery."""
    nvlink_p2p: tuple[tuple[str, int], ...]
    """Bus id of another GPU to whether this one can reach its memory over NVLink: 0 it can, else
    why not, as NVML_P2P_STATUS_* has it. As it was after the last discovery.

    Source: nvmlDeviceGetP2PStatus with NVML_P2P_CAPS_INDEX_NVLINK."""
    processes: tuple[Process, ...]
    gaps: tuple[Gap, ...]
