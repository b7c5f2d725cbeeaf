# SPDX-License-Identifier: Apache-2.0
"""The MIG state of a GPU: read in full, or not at all.

Whoever changes a layout plans on what is there. An instance that merely could not be seen would
look like free space, so one reading that is missing makes the whole GPU an ``UnreadMigGpu``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pynvml

from discovery.driver_errors import GpuLost
from discovery.mig_state import CurrentInstance, MigGpu, MigProfile, MigReading, UnreadMigGpu
from discovery.model import Gap, Mode, Reason
from discovery.nvml.calls import Calls, Field, Handle, has_entry_point
from discovery.nvml.conversions import (
    MODEL,
    Garbage,
    boolean,
    gpu_uuid,
    mode,
    pci_id,
    virtualization,
    whole,
)
from discovery.nvml.mig import with_fix
from discovery.nvml.mig_instances import read_compute_profiles, read_instances
from discovery.nvml.mig_profile_table import read_profiles
from discovery.nvml.processes import Utilization, read_processes
from discovery.nvml.session import open_gpu
from discovery.sample import Process

PLACED_CREATE = "nvmlDeviceCreateGpuInstanceWithPlacement"
"""Makes a GPU instance at a place. NVML's first drivers with MIG let the driver choose alone."""

_RESETLESS = Field(number=pynvml.NVML_FI_DEV_IS_RESETLESS_MIG_SUPPORTED, convert=boolean)
_ARCHITECTURE = whole(0xFFFF)
_MINOR = whole(0xFFFF)


@dataclass(slots=True, kw_only=True, eq=False)
class _Identity:
    """What names a GPU, as far as it was read."""

    index: int | None = None
    uuid: str | None = None
    model: str | None = None
    mode: Mode | None = None


def read_mig_gpu(bus_id: str) -> MigReading:
    """The MIG state of the GPU at this bus id.

    Whatever cannot be read, the GPU that is lost included, gives an UnreadMigGpu with the reasons.
    Raises DriverAbsent or DriverMismatch when the whole session is gone.
    """
    calls, known = Calls(), _Identity()
    gpu = None
    try:
        handle, gap = open_gpu(bus_id)
        if gap is None:
            gpu = _read(calls, known, bus_id, handle)
        else:
            calls.gaps.append(gap)
    except GpuLost as error:
        calls.miss("state", Reason.LOST, "NVML", str(error))
    if gpu is not None and not calls.gaps:
        return gpu
    return UnreadMigGpu(
        bus_id=bus_id,
        gaps=tuple(with_fix(gap) for gap in calls.gaps),
        index=known.index,
        uuid=known.uuid,
        model=known.model,
        mode=known.mode,
    )


def _read(calls: Calls, known: _Identity, bus_id: str, handle: Handle) -> MigGpu | None:
    known.index = calls.ask("index", "nvmlDeviceGetIndex", handle, convert=whole(1024))
    known.uuid = calls.ask("uuid", "nvmlDeviceGetUUID", handle, convert=gpu_uuid)
    known.model = calls.ask("model", "nvmlDeviceGetName", handle, convert=MODEL)
    device_id, subsystem_id = calls.ask(
        "device_id", "nvmlDeviceGetPciInfo_v3", handle, convert=_pci_ids
    ) or (None, None)
    known.mode = _mode(calls, handle)
    if known.index is None or known.uuid is None or known.model is None:
        return None
    if device_id is None or subsystem_id is None or calls.gaps:
        return None
    gpu = MigGpu(
        index=known.index,
        uuid=known.uuid,
        bus_id=bus_id,
        model=known.model,
        device_id=device_id,
        subsystem_id=subsystem_id,
        mode=known.mode,
        minor=Calls().ask("minor", "nvmlDeviceGetMinorNumber", handle, convert=_MINOR),
    )
    return gpu if known.mode is None else _with_mig(calls, handle, gpu, mig_on=known.mode.current)


def _with_mig(calls: Calls, handle: Handle, gpu: MigGpu, *, mig_on: bool) -> MigGpu:
    profiles = read_profiles(calls, handle, mig_on=mig_on)
    instances = read_instances(calls, handle, profiles) if mig_on else ()
    calls.part("instances", "nvmlGpuInstanceGetInfo", _check_places, instances, profiles)
    return replace(
        gpu,
        resetless=_resetless(handle),
        virtualization=Calls().ask(
            "virtualization", "nvmlDeviceGetVirtualizationMode", handle, convert=virtualization
        ),
        places=has_entry_point(PLACED_CREATE),
        profiles=read_compute_profiles(calls, handle, profiles, instances),
        instances=instances,
        processes=gpu_processes(calls, gpu.bus_id, handle),
    )


def _pci_ids(value: Any) -> tuple[int, int]:
    return pci_id("pciDeviceId")(value), pci_id("pciSubSystemId")(value)


def _mode(calls: Calls, handle: Handle) -> Mode | None:
    """None for a GPU that has no MIG, without a gap."""
    tried = Calls()
    current = tried.ask("mig", "nvmlDeviceGetMigMode", handle, convert=mode)
    calls.gaps += [gap for gap in tried.gaps if gap.reason is not Reason.UNSUPPORTED]
    return current


def _resetless(handle: Handle) -> bool:
    """False where neither can be read: then a reset is announced, and refused."""
    (resetless,) = Calls().fields([("resetless", _RESETLESS)], handle)
    if resetless is not None:
        return resetless
    call = "nvmlDeviceGetArchitecture"
    architecture = Calls().ask("architecture", call, handle, convert=_ARCHITECTURE)
    return architecture is not None and architecture >= pynvml.NVML_DEVICE_ARCH_HOPPER


def gpu_processes(calls: Calls, bus_id: str, handle: Handle) -> tuple[Process, ...]:
    """Programs of all kinds; a kind that this driver does not list has no programs."""
    tried = Calls()
    processes = read_processes(tried, bus_id, handle, Utilization(), mig=True)
    calls.gaps += [gap for gap in tried.gaps if not _is_no_list(gap)]
    return processes


def _is_no_list(gap: Gap) -> bool:
    """MPS and graphics are not to be had with MIG everywhere; programs that compute are."""
    return gap.reason is Reason.UNSUPPORTED and "GetComputeRunning" not in gap.source


def _check_places(instances: Sequence[CurrentInstance], profiles: Sequence[MigProfile]) -> None:
    """Raises Garbage where instances cannot be where they are said to be.

    A layout that somebody changes while it is read may look like that.
    """
    sizes = {profile.name: profile.size for profile in profiles}
    taken: set[int] = set()
    for instance in instances:
        units = set(range(instance.start, instance.start + instance.size))
        if taken & units:
            raise Garbage(f"two GPU instances in memory unit {min(taken & units)}")
        if sizes[instance.profile] != instance.size:
            raise Garbage(f"a {instance.profile} of {instance.size} memory units")
        taken |= units
