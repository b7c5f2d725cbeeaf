"""What changes by the second, for one GPU and its GPU instances."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import closing, nullcontext
from typing import Any

import pynvml

from discovery.driver_errors import GpuLost
from discovery.model import Reason
from discovery.nvml.calls import (
    CallReading,
    Calls,
    Field,
    Handle,
    divided,
    scaled,
    whole,
)
from discovery.nvml.counters import MEGAHERTZ, assembled, wanted
from discovery.nvml.facts import remapped_rows
from discovery.nvml.history import History
from discovery.nvml.link_counters import read_link_counters
from discovery.nvml.mig import mig_handles
from discovery.nvml.p2p import Peers
from discovery.nvml.processes import read_processes
from discovery.sample import PROFILED, GpuSample, MemoryUse, ReadingGroup

_ALL_LINKS = 0xFFFFFFFF
_PERCENT = 100
_BYTES = whole(1 << 50)

MigDevices = tuple[tuple[int, Handle], ...]
"""GPU instance id and handle of each MIG device."""


def _memory(value: Any) -> MemoryUse:
    """Version 2 tells what the driver reserves; version 1 counts it as used."""
    reserved = getattr(value, "reserved", None)
    return MemoryUse(
        free_bytes=_BYTES(value.free),
        used_bytes=_BYTES(value.used),
        reserved_bytes=None if reserved is None else _BYTES(reserved),
    )


def _licensed(value: Any) -> bool:
    """Source: nvmlDeviceGetGridLicensableFeatures; feature code 1 is vGPU."""
    if not value.isGridLicenseSupported:
        return False
    count = whole(len(value.gridLicensableFeatures))(value.licensableFeaturesCount)
    features = list(value.gridLicensableFeatures)[:count]
    return any(f.featureCode == 1 and f.featureState > 0 for f in features)


def _share(of: str) -> Callable[[Any], float]:
    share = divided(_PERCENT, _PERCENT)
    return lambda value: share(getattr(value, of))


def _first(value: Any) -> float:
    """Utilisation beside its sampling period."""
    return divided(_PERCENT, _PERCENT)(value[0])


_READINGS = (
    CallReading(
        what="sm_clock_hertz",
        call="nvmlDeviceGetClockInfo",
        args=(pynvml.NVML_CLOCK_SM,),
        convert=MEGAHERTZ,
    ),
    CallReading(
        what="memory_clock_hertz",
        call="nvmlDeviceGetClockInfo",
        args=(pynvml.NVML_CLOCK_MEM,),
        convert=MEGAHERTZ,
    ),
    CallReading(
        what="gpu_celsius",
        call="nvmlDeviceGetTemperature",
        args=(pynvml.NVML_TEMPERATURE_GPU,),
        convert=whole(200),
    ),
    CallReading(
        what="power_watts", call="nvmlDeviceGetPowerUsage", convert=divided(1000, 10_000_000)
    ),
    CallReading(
        what="energy_joules",
        call="nvmlDeviceGetTotalEnergyConsumption",
        convert=divided(1000, 1 << 60),
    ),
    CallReading(what="pcie_replays", call="nvmlDeviceGetPcieReplayCounter", convert=whole(1 << 31)),
    CallReading(what="encoder_busy_ratio", call="nvmlDeviceGetEncoderUtilization", convert=_first),
    CallReading(what="decoder_busy_ratio", call="nvmlDeviceGetDecoderUtilization", convert=_first),
    CallReading(what="remapped_rows", call="nvmlDeviceGetRemappedRows", convert=remapped_rows),
    CallReading(
        what="vgpu_licensed", call="nvmlDeviceGetGridLicensableFeatures_v4", convert=_licensed
    ),
)

_FIELDS = (
    # drivers of the 545 series give this field a wrong type: DCGM's source says so
    Field(
        what="memory_celsius",
        field=pynvml.NVML_FI_DEV_MEMORY_TEMP,
        convert=whole(200),
        mistyped="uiVal",
    ),
    Field(
        what="nvlink_received_bytes",
        field=pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX,
        scope=_ALL_LINKS,
        convert=scaled(1024, 1 << 62),
    ),
    Field(
        what="nvlink_sent_bytes",
        field=pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX,
        scope=_ALL_LINKS,
        convert=scaled(1024, 1 << 62),
    ),
)


_RATES = {"gpu_busy_ratio": _share("gpu"), "memory_busy_ratio": _share("memory")}
"""Both come from one call, which is not supported while MIG is on."""


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

    What it does not give is a gap; what was not asked for leaves none. ``now`` is the monotonic
    clock; ``history`` is what the samples before left, without which this is the first one;
    ``peers`` are gone through last, and only where they are asked about.
    A GPU lost on the way keeps what was read. Raises DriverAbsent or DriverMismatch when the
    whole session is gone.
    """
    calls = Calls()
    found: dict[str, Any] = {}
    asked = wanted(groups)
    with closing(History()) if history is None else nullcontext(history) as kept:
        try:
            found |= calls.read(_READINGS, handle)
            found |= calls.parts(_RATES, "nvmlDeviceGetUtilizationRates", handle)
            found |= calls.fields((*_FIELDS, *asked.fields), handle)
            found["memory"] = _memory_use(calls, handle, "memory")
            mig, devices = _mig_devices(calls, handle)
            found["mig_memory"] = _mig_memory(calls, devices)
            found |= calls.read(asked.readings, handle)
            for read in asked.more:
                found |= read(calls, handle)
            if ReadingGroup.LINKS in groups or ReadingGroup.LINK_ERRORS in groups:
                found["links"] = read_link_counters(
                    calls, handle, kept.ports(bus_id, handle), traffic=ReadingGroup.LINKS in groups
                )
            if ReadingGroup.PROCESSES in groups:
                found["processes"] = read_processes(
                    calls, bus_id, handle, kept.utilization, mig=mig
                )
            if not PROFILED.keys().isdisjoint(groups):
                instances = tuple(dict.fromkeys(instance for instance, _ in devices))
                found |= kept.profiler.read(calls, bus_id, handle, instances, groups, now)
            if ReadingGroup.P2P in groups:
                p2p = kept.p2p(bus_id, handle, peers)
                found["nvlink_p2p"] = p2p.statuses
                calls.gaps += p2p.gaps
        except GpuLost as error:
            calls.miss("state", Reason.LOST, "nvml", str(error))
    return GpuSample(bus_id=bus_id, at_seconds=now(), gaps=tuple(calls.gaps), **assembled(found))


def _memory_use(calls: Calls, handle: Handle, what: str) -> Any:
    newer = Calls(invalid_argument=Reason.UNSUPPORTED)
    use = newer.ask(what, "nvmlDeviceGetMemoryInfo", handle, pynvml.nvmlMemory_v2, convert=_memory)
    if use is not None or newer.gaps[0].reason is not Reason.UNSUPPORTED:
        calls.gaps += newer.gaps
        return use
    return calls.ask(what, "nvmlDeviceGetMemoryInfo", handle, convert=_memory)


def _mig_devices(calls: Calls, handle: Handle) -> tuple[bool, MigDevices]:
    """Whether MIG is on, and the GPU instance id and handle of each MIG device."""
    mode = Calls().ask("mig", "nvmlDeviceGetMigMode", handle)
    if mode is None or mode[0] != 1:
        return False, ()
    asked = (
        (calls.ask("mig_memory", "nvmlDeviceGetGpuInstanceId", mig, convert=whole(0xFFFF)), mig)
        for mig in mig_handles(calls, handle)
    )
    return True, tuple((instance, mig) for instance, mig in asked if instance is not None)


def _mig_memory(calls: Calls, devices: MigDevices) -> tuple[tuple[int, MemoryUse], ...]:
    """GPU instance id to its memory use, read on its first compute instance that tells it."""
    uses: dict[int, MemoryUse] = {}
    for instance, mig in devices:
        if instance not in uses:
            use = _memory_use(calls, mig, "mig_memory")
            if use is not None:
                uses[instance] = use
    return tuple(uses.items())
