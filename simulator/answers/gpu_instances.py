# SPDX-License-Identifier: Apache-2.0
"""GPU instances: their profiles, their places, and the existing ones.

Source of what needs the right to monitor MIG: nvml.h, NVML_ERROR_NO_PERMISSION of each call.
"""

from __future__ import annotations

from typing import Any

import pynvml

from discovery.nvml_abi.argument_kinds import Nvml
from discovery.nvml_abi.mig_profile_structs import GPU_CAPS_GFX
from simulator.answers.registry import (
    INVALID_ARGUMENT,
    NOT_FOUND,
    answers,
    answers_on_gpu,
    need,
    need_right,
    supported,
)
from simulator.description.machine_schema import GpuInstanceProfile
from simulator.driver.handles import GpuInstanceHandle
from simulator.machine_view import MachineView, SimulatedGpu
from simulator.state import mig_geometry
from simulator.state.machine_state import GpuInstance


@answers_on_gpu("nvmlDeviceGetGpuInstanceProfileInfo")
def gpu_instance_profile_info(gpu: SimulatedGpu, enum: int) -> dict[str, Any]:
    """Profile by index: INVALID_ARGUMENT past the last one NVML knows, NOT_SUPPORTED for a gap."""
    if enum >= pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT:
        raise Nvml(INVALID_ARGUMENT)
    _need_profiles(gpu)
    return _profile_fields(supported(mig_geometry.profile_by_enum(gpu.model, enum)))


@answers_on_gpu("nvmlDeviceGetGpuInstanceProfileInfoV")
def gpu_instance_profile_info_v(
    gpu: SimulatedGpu, enum: int, version: dict[str, int]
) -> dict[str, Any]:
    """Profile with its name, and from version 3 on its capabilities."""
    del version  # the struct takes the fields that it has
    fields = gpu_instance_profile_info(gpu, enum)
    return fields | _name_and_abilities(supported(mig_geometry.profile_by_enum(gpu.model, enum)))


@answers_on_gpu("nvmlDeviceGetGpuInstanceProfileInfoByIdV")
def gpu_instance_profile_info_by_id(
    gpu: SimulatedGpu, profile_id: int, version: dict[str, int]
) -> dict[str, Any]:
    """Profile by the id that lists take."""
    del version  # as above
    profile = _profile(gpu, profile_id)
    return _profile_fields(profile) | _name_and_abilities(profile)


@answers_on_gpu("nvmlDeviceGetGpuInstancePossiblePlacements_v2")
def gpu_instance_placements(gpu: SimulatedGpu, profile_id: int) -> list[dict[str, int]]:
    """Starts and sizes of a profile on an empty GPU, in memory units."""
    need_right(gpu.view, "mig-monitor")
    profile = _profile(gpu, profile_id)
    return [{"start": start, "size": profile.size} for start in profile.starts]


@answers_on_gpu("nvmlDeviceGetGpuInstanceRemainingCapacity")
def remaining_gpu_instances(gpu: SimulatedGpu, profile_id: int) -> int:
    """How many more of this profile fit in addition to what is there."""
    need(gpu.state.mig)
    need_right(gpu.view, "mig-monitor")
    return mig_geometry.gpu_instances_left(
        gpu.model, gpu.state.instances, _profile(gpu, profile_id)
    )


@answers_on_gpu("nvmlDeviceGetGpuInstances")
def gpu_instances_of_profile(gpu: SimulatedGpu, profile_id: int) -> list[GpuInstanceHandle]:
    """GPU instances of one profile."""
    need(gpu.state.mig)
    need_right(gpu.view, "mig-monitor")
    profile = _profile(gpu, profile_id)
    identities = sorted(
        (instance.id, instance.birth)
        for instance in gpu.state.instances
        if instance.profile == profile.name
    )
    return [GpuInstanceHandle(gpu.spec.bus_id, *identity) for identity in identities]


@answers_on_gpu("nvmlDeviceGetGpuInstanceById")
def gpu_instance_by_id(gpu: SimulatedGpu, instance_id: int) -> GpuInstanceHandle:
    """GPU instance of this id; NOT_FOUND where there is none, but only with the right to see it."""
    need(gpu.state.mig)
    need_right(gpu.view, "mig-monitor")
    instance = mig_geometry.gpu_instance(gpu.state, instance_id)
    if instance is None:
        raise Nvml(NOT_FOUND)
    return GpuInstanceHandle(gpu.spec.bus_id, instance_id, instance.birth)


@answers("nvmlGpuInstanceGetInfo")
def gpu_instance_info(view: MachineView, handle: GpuInstanceHandle) -> dict[str, Any]:
    """Device, ids and placement."""
    gpu, profile, instance = gpu_instance_of_handle(view, handle)
    return {
        "device": gpu.handle,
        "id": instance.id,
        "profileId": profile.id,
        "placement": {"start": instance.start, "size": profile.size},
    }


def gpu_instance_of_handle(
    view: MachineView, handle: GpuInstanceHandle
) -> tuple[SimulatedGpu, GpuInstanceProfile, GpuInstance]:
    """GPU, profile and instance of a handle. Raises Nvml: INVALID_ARGUMENT where it is gone."""
    gpu = view.gpu_of_instance(handle.bus_id)
    instance = mig_geometry.gpu_instance(gpu.state, handle.id)
    if instance is None or instance.birth != handle.birth:
        raise Nvml(INVALID_ARGUMENT)
    return gpu, mig_geometry.profile_of(gpu.model, instance), instance


def _need_profiles(gpu: SimulatedGpu) -> None:
    """Ampere lists its profiles with MIG on only; later GPUs always do, as field 199 says."""
    need(gpu.state.mig if gpu.model.reset_for_mig else gpu.model.mig)


def _profile(gpu: SimulatedGpu, profile_id: int) -> GpuInstanceProfile:
    _need_profiles(gpu)
    profile = mig_geometry.profile_by_id(gpu.model, profile_id)
    if profile is None:
        raise Nvml(INVALID_ARGUMENT)
    return profile


def _name_and_abilities(profile: GpuInstanceProfile) -> dict[str, Any]:
    """Fields of the structs that have a version; driver 580 overwrites that version with 0."""
    graphics = GPU_CAPS_GFX if profile.graphics else 0
    return {"version": 0, "name": f"MIG {profile.name}", "capabilities": graphics}


def _profile_fields(profile: GpuInstanceProfile) -> dict[str, Any]:
    return {
        "id": profile.id,
        "sliceCount": profile.slices,
        "instanceCount": profile.max,
        "multiprocessorCount": profile.multiprocessors,
        "copyEngineCount": profile.copy,
        "decoderCount": profile.decoders,
        "encoderCount": profile.encoders,
        "jpegCount": profile.jpeg,
        "ofaCount": profile.ofa,
        "memorySizeMB": profile.memory_mib,
    }
