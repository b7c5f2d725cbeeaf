# SPDX-License-Identifier: Apache-2.0
"""Compute instances within a GPU instance: their profiles, their places, and the existing ones."""

from __future__ import annotations

from typing import Any

import pynvml

from discovery.nvml_abi.argument_kinds import Nvml
from discovery.nvml_abi.mig_profile_structs import COMPUTE_CAPS_GFX
from simulator.answers.gpu_instances import gpu_instance_of_handle
from simulator.answers.registry import INVALID_ARGUMENT, NOT_FOUND, answers, supported
from simulator.description.machine_schema import GpuInstanceProfile
from simulator.driver.handles import (
    ComputeInstanceHandle,
    DeviceHandle,
    GpuInstanceHandle,
)
from simulator.machine_view import MachineView, SimulatedGpu
from simulator.state import mig_geometry
from simulator.state.machine_state import ComputeInstance, GpuInstance

_SHARED_ENGINES = 0
"""NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED, the only engine profile."""


@answers("nvmlGpuInstanceGetComputeInstanceProfileInfo")
def compute_instance_profile_info(
    view: MachineView, handle: GpuInstanceHandle, enum: int, engines: int
) -> dict[str, Any]:
    """Profile by index: INVALID_ARGUMENT past the last one, NOT_SUPPORTED for one too large."""
    _, profile, _ = gpu_instance_of_handle(view, handle)
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
def compute_instance_profile_info_v(
    view: MachineView, handle: GpuInstanceHandle, enum: int, engines: int, version: dict[str, int]
) -> dict[str, Any]:
    """Profile with its name, and from version 3 on its capabilities."""
    del version  # the struct takes the fields that it has
    fields = compute_instance_profile_info(view, handle, enum, engines)
    _, profile, _ = gpu_instance_of_handle(view, handle)
    name = mig_geometry.compute_profile_name(profile, fields["sliceCount"])
    graphics = COMPUTE_CAPS_GFX if profile.graphics else 0
    return fields | {"name": f"MIG {name}", "capabilities": graphics}


@answers("nvmlGpuInstanceGetComputeInstancePossiblePlacements")
def compute_instance_placements(
    view: MachineView, handle: GpuInstanceHandle, profile_id: int
) -> list[dict[str, int]]:
    """Starts and sizes of a profile, in slices of the GPU instance."""
    _, profile, _ = gpu_instance_of_handle(view, handle)
    slices = _slices(profile, profile_id)
    return [
        {"start": start, "size": slices} for start in mig_geometry.compute_starts(profile, slices)
    ]


@answers("nvmlGpuInstanceGetComputeInstanceRemainingCapacity")
def remaining_compute_instances(
    view: MachineView, handle: GpuInstanceHandle, profile_id: int
) -> int:
    """How many more of this profile fit in addition to what is there."""
    _, profile, instance = gpu_instance_of_handle(view, handle)
    return mig_geometry.compute_instances_left(instance, profile, _slices(profile, profile_id))


@answers("nvmlGpuInstanceGetComputeInstances")
def compute_instances_of_profile(
    view: MachineView, handle: GpuInstanceHandle, profile_id: int
) -> list[ComputeInstanceHandle]:
    """Compute instances of one profile."""
    _, profile, instance = gpu_instance_of_handle(view, handle)
    slices = _slices(profile, profile_id)
    identities = sorted(
        (compute.id, compute.birth) for compute in instance.compute if compute.slices == slices
    )
    return [ComputeInstanceHandle(handle.bus_id, handle.id, *identity) for identity in identities]


@answers("nvmlGpuInstanceGetComputeInstanceById")
def compute_instance_by_id(
    view: MachineView, handle: GpuInstanceHandle, compute_id: int
) -> ComputeInstanceHandle:
    """Compute instance of this id; NOT_FOUND where there is none."""
    _, _, instance = gpu_instance_of_handle(view, handle)
    compute = mig_geometry.compute_instance(instance, compute_id)
    if compute is None:
        raise Nvml(NOT_FOUND)
    return ComputeInstanceHandle(handle.bus_id, handle.id, compute_id, compute.birth)


@answers("nvmlComputeInstanceGetInfo_v2")
def compute_instance_info(view: MachineView, handle: ComputeInstanceHandle) -> dict[str, Any]:
    """MIG device, GPU instance, ids and placement of a compute instance."""
    _, instance, compute = compute_instance_of_handle(view, handle)
    return {
        "device": DeviceHandle(handle.bus_id, instance.id, compute.id, compute.birth),
        "gpuInstance": GpuInstanceHandle(handle.bus_id, instance.id, instance.birth),
        "id": compute.id,
        "profileId": mig_geometry.compute_profile_id(compute.slices),
        "placement": {"start": compute.start, "size": compute.slices},
    }


def compute_instance_of_handle(
    view: MachineView, handle: ComputeInstanceHandle
) -> tuple[SimulatedGpu, GpuInstance, ComputeInstance]:
    """GPU and instances of a handle. Raises Nvml: INVALID_ARGUMENT for an instance that is gone."""
    device = DeviceHandle(handle.bus_id, handle.gpu_instance_id, handle.id, handle.birth)
    _, instance, compute = view.mig_device(device)
    return view.gpu(device), instance, compute


def _slices(profile: GpuInstanceProfile, profile_id: int) -> int:
    slices = mig_geometry.compute_slices(profile, profile_id)
    if slices is None:
        raise Nvml(INVALID_ARGUMENT)
    return slices
