"""What changes by the second, for one GPU and its GPU instances."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pynvml

from discovery.errors import GpuLost
from discovery.model import Reason
from discovery.nvml.calls import (
    Calls,
    Field,
    Garbage,
    Handle,
    Reading,
    divided,
    scaled,
    whole,
)
from discovery.nvml.facts import remapped_rows
from discovery.nvml.mig import mig_handles
from discovery.sample import GpuSample, MemoryUse

_MHZ = 1_000_000
_ALL_LINKS = 0xFFFFFFFF
_PERCENT = 100
_BYTES = whole(1 << 50)


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


_CLOCK = scaled(_MHZ, 20_000)

_READINGS = (
    Reading(
        what="sm_clock_hertz",
        call="nvmlDeviceGetClockInfo",
        args=(pynvml.NVML_CLOCK_SM,),
        convert=_CLOCK,
    ),
    Reading(
        what="memory_clock_hertz",
        call="nvmlDeviceGetClockInfo",
        args=(pynvml.NVML_CLOCK_MEM,),
        convert=_CLOCK,
    ),
    Reading(
        what="gpu_celsius",
        call="nvmlDeviceGetTemperature",
        args=(pynvml.NVML_TEMPERATURE_GPU,),
        convert=whole(200),
    ),
    Reading(what="power_watts", call="nvmlDeviceGetPowerUsage", convert=divided(1000, 10_000_000)),
    Reading(
        what="energy_joules",
        call="nvmlDeviceGetTotalEnergyConsumption",
        convert=divided(1000, 1 << 60),
    ),
    Reading(what="pcie_replays", call="nvmlDeviceGetPcieReplayCounter", convert=whole(1 << 31)),
    Reading(what="encoder_busy_ratio", call="nvmlDeviceGetEncoderUtilization", convert=_first),
    Reading(what="decoder_busy_ratio", call="nvmlDeviceGetDecoderUtilization", convert=_first),
    Reading(what="remapped_rows", call="nvmlDeviceGetRemappedRows", convert=remapped_rows),
    Reading(what="vgpu_licensed", call="nvmlDeviceGetGridLicensableFeatures_v4", convert=_licensed),
)

_FIELDS = (
    # the union's type is wrong for this field in some drivers, so read the 32-bit member
    Field(
        what="memory_celsius",
        field=pynvml.NVML_FI_DEV_MEMORY_TEMP,
        convert=whole(200),
        attribute="uiVal",
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


def read_sample(bus_id: str, handle: Handle, now: Callable[[], float]) -> GpuSample:
    """All readings of one GPU; what it does not give is a gap.

    ``now`` is the monotonic clock. A GPU lost on the way keeps what was read.
    Raises DriverAbsent or DriverMismatch when the whole session is gone.
    """
    calls = Calls()
    found: dict[str, Any] = {}
    try:
        found |= calls.read(_READINGS, handle)
        found |= _utilisation(calls, handle)
        found |= calls.fields(_FIELDS, handle)
        found["memory"] = _memory_use(calls, handle, "memory")
        found["mig_memory"] = _mig_memory(calls, handle)
    except GpuLost as error:
        calls.miss("state", Reason.LOST, "nvml", str(error))
    return GpuSample(bus_id=bus_id, at_seconds=now(), gaps=tuple(calls.gaps), **found)


def _utilisation(calls: Calls, handle: Handle) -> dict[str, Any]:
    """Both shares come from one call; not supported while MIG is on."""
    rates = calls.ask("gpu_busy_ratio", "nvmlDeviceGetUtilizationRates", handle)
    if rates is None:
        return {}
    found = {}
    for what, of in (("gpu_busy_ratio", "gpu"), ("memory_busy_ratio", "memory")):
        try:
            found[what] = _share(of)(rates)
        except Garbage as error:
            calls.miss(what, Reason.GARBAGE, "nvmlDeviceGetUtilizationRates", str(error))
    return found


def _memory_use(calls: Calls, handle: Handle, what: str) -> Any:
    newer = Calls(invalid_argument=Reason.UNSUPPORTED)
    use = newer.ask(what, "nvmlDeviceGetMemoryInfo", handle, pynvml.nvmlMemory_v2, convert=_memory)
    if use is not None or newer.gaps[0].reason is not Reason.UNSUPPORTED:
        calls.gaps += newer.gaps
        return use
    return calls.ask(what, "nvmlDeviceGetMemoryInfo", handle, convert=_memory)


def _mig_memory(calls: Calls, handle: Handle) -> tuple[tuple[int, MemoryUse], ...]:
    """GPU instance id to its memory use, read on its first compute instance."""
    mode = Calls().ask("mig", "nvmlDeviceGetMigMode", handle)
    uses: dict[int, MemoryUse] = {}
    for mig in mig_handles(calls, handle) if mode is not None and mode[0] == 1 else ():
        instance = calls.ask("mig_memory", "nvmlDeviceGetGpuInstanceId", mig, convert=whole(0xFFFF))
        if instance is not None and instance not in uses:
            use = _memory_use(calls, mig, "mig_memory")
            if use is not None:
                uses[instance] = use
    return tuple(uses.items())
