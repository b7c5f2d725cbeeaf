# SPDX-License-Identifier: Apache-2.0
"""Compute instances within a GPU instance: their profiles, their places, and those there are."""

from __future__ import annotations

from typing import Any

import pynvml

from discovery.simulator.answers.gpu_instances import gpu_instance
from discovery.simulator.answers.registry import INVALID_ARGUMENT, NOT_FOUND, answers, supported
from discovery.simulator.description.machine_schema import GpuInstanceProfile
from discovery.simulator.driver.handles import (
    ComputeInstanceHandle,
    DeviceHandle,
    GpuInstanceHandle,
)
from discovery.simulator.entry_points.argument_kinds import Nvml
from discovery.simulator.machine_view import MachineView
from discovery.simulator.state import mig_geometry

_SHARED_ENGINES = 0
"""NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED, the only engine profile."""


@answers("nvmlGpuInstanceGetComputeInstanceProfileInfo")
def profile_info(
    view: MachineView, handle: GpuInstanceHandle, enum: int, engines: int
) -> dict[str, Any]:
    """By index: INVALID_ARGUMENT past the last one, NOT_SUPPORTED for one too large."""
    profile, _ = gpu_instance(view, handle)
    past = enum >= pynvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT
    if past or engines != _SHARED_ENGINES:
        raise Nvml(INVALID_ARGUMENT)
    slices = supported(mig_geometry.compute_slices(profile, enum))
    return mig_geometry.shared_engines(profile) | {
        "id": enum,
        "sliceCount": slices,
        "instanceCount": len(mig_geometry.compute_starts(profile, slices)),
        "multiprocessorCount": mig_geometry.multiprocessors(profile, slices),
    }


@answers("nvmlGpuInstanceGetComputeInstanceProfileInfoV")
def profile_info_v(
    view: MachineView, handle: GpuInstanceHandle, enum: int, engines: int, version: dict[str, int]
) -> dict[str, Any]:
    """The same with a name."""
    del version  # there is one
    fields = profile_info(view, handle, enum, engines)
    profile, _ = gpu_instance(view, handle)
    return fields | {"name": f"MIG {mig_geometry.device_name(profile, fields['sliceCount'])}"}


@answers("nvmlGpuInstanceGetComputeInstancePossiblePlacements")
def placements(
    view: MachineView, handle: GpuInstanceHandle, profile_id: int
) -> list[dict[str, int]]:
    """In slices of the GPU instance."""
    profile, _ = gpu_instance(view, handle)
    slices = _slices(profile, profile_id)
    return [{"start": at, "size": slices} for at in mig_geometry.compute_starts(profile, slices)]


@answers("nvmlGpuInstanceGetComputeInstanceRemainingCapacity")
def remaining(view: MachineView, handle: GpuInstanceHandle, profile_id: int) -> int:
    """How many more of this profile fit in addition to what is there."""
    profile, instance = gpu_instance(view, handle)
    return mig_geometry.compute_remaining(instance, profile, _slices(profile, profile_id))


@answers("nvmlGpuInstanceGetComputeInstances")
def instances(
    view: MachineView, handle: GpuInstanceHandle, profile_id: int
) -> list[ComputeInstanceHandle]:
    """Those of one profile."""
    profile, instance = gpu_instance(view, handle)
    slices = _slices(profile, profile_id)
    ids = sorted(one.id for one in instance.compute if one.slices == slices)
    return [ComputeInstanceHandle(handle.bus_id, handle.id, one) for one in ids]


@answers("nvmlGpuInstanceGetComputeInstanceById")
def by_id(view: MachineView, handle: GpuInstanceHandle, compute_id: int) -> ComputeInstanceHandle:
    """NOT_FOUND where there is none."""
    _, instance = gpu_instance(view, handle)
    if mig_geometry.compute_instance(instance, compute_id) is None:
        raise Nvml(NOT_FOUND)
    return ComputeInstanceHandle(handle.bus_id, handle.id, compute_id)


@answers("nvmlComputeInstanceGetInfo_v2")
def info(view: MachineView, handle: ComputeInstanceHandle) -> dict[str, Any]:
    """Its MIG device, its GPU instance, ids and placement."""
    device = DeviceHandle(handle.bus_id, handle.gpu_instance_id, handle.id)
    _, _, compute = view.mig_device(device)
    return {
        "device": device,
        "gpuInstance": GpuInstanceHandle(handle.bus_id, handle.gpu_instance_id),
        "id": compute.id,
        "profileId": mig_geometry.compute_profile_id(compute.slices),
        "placement": {"start": compute.start, "size": compute.slices},
    }


def _slices(profile: GpuInstanceProfile, profile_id: int) -> int:
    slices = mig_geometry.compute_slices(profile, profile_id)
    if slices is None:
        raise Nvml(INVALID_ARGUMENT)
    return slices
