# SPDX-License-Identifier: Apache-2.0
"""GPU and compute instances made and destroyed: what a GPU becomes, or why it refuses. Pure.

Each function takes one GPU with MIG on and gives what it becomes; it raises Nvml with the code
that hardware gives, and then nothing has changed. ``processes`` are those that run on the GPU.
Source: nvml.h on nvmlDeviceCreateGpuInstance and the other calls that are named below.
"""

from __future__ import annotations

from collections.abc import Iterable

import pynvml
from msgspec.structs import replace

from discovery.nvml_abi.argument_kinds import Nvml
from simulator.description.machine_schema import GpuInstanceProfile, Model
from simulator.state import mig_geometry
from simulator.state.machine_state import (
    ComputeInstance,
    GpuInstance,
    SimulatedGpuState,
    SimulatedProcess,
)

Place = tuple[int, int]
"""Start and size: in memory units for a GPU instance, in compute slices for a compute instance."""

_INVALID_ARGUMENT = int(pynvml.NVML_ERROR_INVALID_ARGUMENT)
_INSUFFICIENT_RESOURCES = int(pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES)
_NOT_SUPPORTED = int(pynvml.NVML_ERROR_NOT_SUPPORTED)
_IN_USE = int(pynvml.NVML_ERROR_IN_USE)


def with_gpu_instance(
    model: Model, gpu: SimulatedGpuState, profile_id: int, place: Place | None
) -> tuple[SimulatedGpuState, GpuInstance]:
    """Add a GPU instance where the caller wants it or the driver chooses; it is empty.

    Raises Nvml: INVALID_ARGUMENT for a profile that the GPU does not have, and for a place that
    is none of the profile's; INSUFFICIENT_RESOURCES where the place is taken, or no place, engine
    or further instance of the profile is left.
    """
    profile = mig_geometry.profile_by_id(model, profile_id)
    if profile is None or (place is not None and place not in _places(profile)):
        raise Nvml(_INVALID_ARGUMENT)
    free = mig_geometry.free_starts(model, gpu.instances, profile)
    order = mig_geometry.driver_order(model, profile) if place is None else place[:1]
    start = next((start for start in order if start in free), None)
    if start is None or not mig_geometry.gpu_instances_left(model, gpu.instances, profile):
        raise Nvml(_INSUFFICIENT_RESOURCES)
    instance = GpuInstance(
        id=mig_geometry.instance_id(model, profile, start),
        profile=profile.name,
        start=start,
        birth=gpu.births + 1,
    )
    return replace(gpu, instances=(*gpu.instances, instance), births=instance.birth), instance


def without_gpu_instance(
    gpu: SimulatedGpuState, instance: GpuInstance, processes: Iterable[SimulatedProcess]
) -> SimulatedGpuState:
    """Remove a GPU instance.

    Raises Nvml: IN_USE while it has compute instances or processes (nvmlGpuInstanceDestroy).
    """
    if instance.compute or any(process.gpu_instance_id == instance.id for process in processes):
        raise Nvml(_IN_USE)
    kept = tuple(other for other in gpu.instances if other != instance)
    return replace(gpu, instances=kept)


def with_compute_instance(
    model: Model,
    gpu: SimulatedGpuState,
    instance: GpuInstance,
    profile_id: int,
    place: Place | None,
) -> tuple[SimulatedGpuState, ComputeInstance]:
    """Add a compute instance to a GPU instance: at ``place``, else at the first free slices.

    It gets the lowest id that is free there. Raises Nvml: INVALID_ARGUMENT for a profile that
    NVML does not have, NOT_SUPPORTED for one that this GPU instance does not have,
    INVALID_ARGUMENT for a place that is none of the profile's, INSUFFICIENT_RESOURCES where no
    slices are left.
    """
    profile = mig_geometry.profile_of(model, instance)
    slices = mig_geometry.compute_slices(profile, profile_id)
    if slices is None:
        known = profile_id < pynvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT
        raise Nvml(_NOT_SUPPORTED if known else _INVALID_ARGUMENT)
    starts = mig_geometry.compute_starts(profile, slices)
    if place is not None and place not in [(start, slices) for start in starts]:
        raise Nvml(_INVALID_ARGUMENT)
    free = mig_geometry.compute_free_starts(instance, profile, slices)
    start = next((start for start in free if place is None or start == place[0]), None)
    if start is None:
        raise Nvml(_INSUFFICIENT_RESOURCES)
    used = {compute.id for compute in instance.compute}
    compute = ComputeInstance(
        id=next(n for n in range(len(used) + 1) if n not in used),
        start=start,
        slices=slices,
        birth=gpu.births + 1,
    )
    grown = _with_compute(gpu, instance, (*instance.compute, compute))
    return replace(grown, births=compute.birth), compute


def without_compute_instance(
    gpu: SimulatedGpuState,
    instance: GpuInstance,
    compute: ComputeInstance,
    processes: Iterable[SimulatedProcess],
) -> SimulatedGpuState:
    """Remove a compute instance; its MIG device goes with it.

    Raises Nvml: IN_USE while a process is on it (nvmlComputeInstanceDestroy).
    """
    ids = (instance.id, compute.id)
    if any((process.gpu_instance_id, process.compute_instance_id) == ids for process in processes):
        raise Nvml(_IN_USE)
    return _with_compute(
        gpu, instance, tuple(other for other in instance.compute if other != compute)
    )


def _places(profile: GpuInstanceProfile) -> list[Place]:
    return [(start, profile.size) for start in profile.starts]


def _with_compute(
    gpu: SimulatedGpuState, instance: GpuInstance, compute: tuple[ComputeInstance, ...]
) -> SimulatedGpuState:
    changed = replace(instance, compute=compute)
    return replace(gpu, instances=tuple(changed if g == instance else g for g in gpu.instances))
