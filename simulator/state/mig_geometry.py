# SPDX-License-Identifier: Apache-2.0
"""MIG geometry of one GPU: profiles, instances, MIG devices, what still fits. Pure.

Names and numbers follow NVIDIA's MIG user guide and nvml.h: GPU instance profiles
have an index that queries take and another id that lists and creates take; compute
instance profiles have the same number for both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from uuid import NAMESPACE_URL, uuid5

from simulator.description.machine_schema import GpuInstanceProfile, Model
from simulator.state.machine_state import ComputeInstance, GpuInstance, SimulatedGpuState

COMPUTE_PROFILES = {0: 1, 1: 2, 2: 3, 3: 4, 4: 7, 5: 8, 6: 6}
"""NVML_COMPUTE_INSTANCE_PROFILE_* to compute slices; the profile's id is the same number."""

_COMPUTE_SIZES = {4: (1, 2, 4), 7: (1, 2, 3, 4, 7)}
"""Slices of a GPU instance to those that its compute instances may have; all up to it elsewhere.
Source: `nvidia-smi mig -lcip` in the MIG user guide; NVIDIA/go-nvml, mock of a DGX A100."""


def _engines(profile: GpuInstanceProfile) -> dict[str, int]:
    """Engines of an instance by their kind."""
    return {
        "copy": profile.copy,
        "decoders": profile.decoders,
        "encoders": profile.encoders,
        "jpeg": profile.jpeg,
        "ofa": profile.ofa,
    }


def profile_by_enum(model: Model, enum: int) -> GpuInstanceProfile | None:
    """The profile a query's index means."""
    return next((profile for profile in model.mig if profile.enum == enum), None)


def profile_by_id(model: Model, profile_id: int) -> GpuInstanceProfile | None:
    """The profile a list's or create's id means."""
    return next((profile for profile in model.mig if profile.id == profile_id), None)


def profile_of(model: Model, instance: GpuInstance) -> GpuInstanceProfile:
    """The profile of an instance. Raises LookupError where the model has none of that name."""
    for profile in model.mig:
        if profile.name == instance.profile:
            return profile
    raise LookupError(f"{model.name} has no profile {instance.profile!r}")


def max_mig_devices(model: Model) -> int:
    """How many MIG devices there can be at most."""
    return max((profile.max for profile in model.mig), default=0)


def memory_unit_count(model: Model) -> int:
    """Number of memory units in which instances are placed."""
    return max(start + profile.size for profile in model.mig for start in profile.starts)


def mig_devices(state: SimulatedGpuState) -> Iterator[tuple[GpuInstance, ComputeInstance]]:
    """The MIG devices in the order of their indices: by GPU instance, then compute instance."""
    for instance in sorted(state.instances, key=lambda instance: instance.id):
        for compute in sorted(instance.compute, key=lambda compute: compute.id):
            yield instance, compute


def gpu_instance(state: SimulatedGpuState, gpu_instance_id: int) -> GpuInstance | None:
    """The GPU instance with this id."""
    return next((instance for instance in state.instances if instance.id == gpu_instance_id), None)


def compute_instance(instance: GpuInstance, compute_instance_id: int) -> ComputeInstance | None:
    """The compute instance with this id."""
    return next(
        (compute for compute in instance.compute if compute.id == compute_instance_id), None
    )


def mig_device_uuid(gpu_uuid: str, gpu_instance_id: int, compute_instance_id: int) -> str:
    """A MIG device's UUID: the same ids on the same GPU give the same one."""
    name = f"{gpu_uuid}/{gpu_instance_id}/{compute_instance_id}"
    return f"MIG-{uuid5(NAMESPACE_URL, name)}"


def compute_profile_name(profile: GpuInstanceProfile, slices: int) -> str:
    """``1g.5gb``, or ``1c.3g.20gb`` where a compute instance takes a part only."""
    return profile.name if slices == profile.slices else f"{slices}c.{profile.name}"


def multiprocessors(profile: GpuInstanceProfile, slices: int) -> int:
    """Multiprocessors of a compute instance within its GPU instance."""
    return profile.multiprocessors * slices // profile.slices


def shared_engines(profile: GpuInstanceProfile) -> dict[str, int]:
    """Engines of a GPU instance, which its compute instances share; names of nvml.h's structs."""
    return {
        "sharedCopyEngineCount": profile.copy,
        "sharedDecoderCount": profile.decoders,
        "sharedEncoderCount": profile.encoders,
        "sharedJpegCount": profile.jpeg,
        "sharedOfaCount": profile.ofa,
    }


def compute_slices(profile: GpuInstanceProfile, enum: int) -> int | None:
    """Slices of a compute instance profile within a GPU instance; None where it has none such."""
    slices = COMPUTE_PROFILES.get(enum)
    sizes = _COMPUTE_SIZES.get(profile.slices, range(1, profile.slices + 1))
    return slices if slices in sizes else None


def compute_profile_id(slices: int) -> int:
    """The compute instance profile of this size."""
    return next(enum for enum, size in COMPUTE_PROFILES.items() if size == slices)


def compute_starts(profile: GpuInstanceProfile, slices: int) -> tuple[int, ...]:
    """Slices where a compute instance of this size may start: multiples of the next power of two.

    So 2c of 7g starts at 0, 2 and 4, and 3c at 0 and 4. Inferred from what runs: 4c and 3c share a
    7g (Argonne's Polaris user guide, "Multi-Instance GPU (MIG) mode"), as do 1c, 2c and 3c (MIG
    user guide, "CUDA device enumeration").
    """
    return tuple(range(0, profile.slices - slices + 1, 1 << (slices - 1).bit_length()))


def compute_free_starts(
    instance: GpuInstance, profile: GpuInstanceProfile, slices: int
) -> tuple[int, ...]:
    """Slices where one more compute instance of this size may start."""
    taken = {
        s
        for compute in instance.compute
        for s in range(compute.start, compute.start + compute.slices)
    }
    return _free(compute_starts(profile, slices), slices, taken)


def compute_instances_left(instance: GpuInstance, profile: GpuInstanceProfile, slices: int) -> int:
    """How many more compute instances of this size fit into a GPU instance."""
    return len(compute_free_starts(instance, profile, slices))


def instance_id(model: Model, profile: GpuInstanceProfile, start: int) -> int:
    """The id of a GPU instance: the same place always has the same one.

    Ids form a binary tree over the memory units: the whole is 0, its halves are 1 and 2, their
    halves 3 to 6. Source: every listing of `nvidia-smi mig -lgi` in the MIG user guide.
    """
    return memory_unit_count(model) // profile.size - 1 + start // profile.size


def driver_order(model: Model, profile: GpuInstanceProfile) -> tuple[int, ...]:
    """Starts in the order in which the driver takes them where the caller names none.

    It is the one that costs other profiles the fewest of their places, the lower one of equals:
    on seven slices 1g goes to 6, 4, 5, 0, 1, 2, 3, and 2g to 4, 0, 2. That agrees with every
    example of the MIG user guide, the one that fails included; for 4 and 12 units it is inferred.
    """

    def cost(start: int) -> tuple[int, int]:
        mine = range(start, start + profile.size)
        placements = ((other, other_start) for other in model.mig for other_start in other.starts)
        lost = sum(
            other_start < mine.stop and start < other_start + other.size
            for other, other_start in placements
        )
        return lost, start

    return tuple(sorted(profile.starts, key=cost))


def engines_left(model: Model, instances: Iterable[GpuInstance]) -> dict[str, int]:
    """Engines that no instance has, by their kind.

    A GPU has as many as its profiles promise: the most that all instances of any one have
    together. Source: NVDEC, JPEG and OFA totals of `nvidia-smi mig -lgip` follow from it.
    """
    free_engines: dict[str, int] = {}
    for profile in model.mig:
        for kind, count in _engines(profile).items():
            free_engines[kind] = max(free_engines.get(kind, 0), profile.max * count)
    for instance in instances:
        for kind, count in _engines(profile_of(model, instance)).items():
            free_engines[kind] -= count
    return free_engines


def free_starts(
    model: Model, instances: Sequence[GpuInstance], profile: GpuInstanceProfile
) -> tuple[int, ...]:
    """Memory units where one more instance of this profile may start, if it may be at all."""
    sizes = {row.name: row.size for row in model.mig}
    taken = {
        unit
        for instance in instances
        for unit in range(instance.start, instance.start + sizes[instance.profile])
    }
    return _free(profile.starts, profile.size, taken)


def gpu_instances_left(
    model: Model, instances: Sequence[GpuInstance], profile: GpuInstanceProfile
) -> int:
    """How many more instances of this profile fit; its starts never overlap one another."""
    existing = sum(1 for instance in instances if instance.profile == profile.name)
    free_engines = engines_left(model, instances)
    by_engines = (free_engines[kind] // count for kind, count in _engines(profile).items() if count)
    places = len(free_starts(model, instances, profile))
    return max(0, min(profile.max - existing, places, *by_engines))


def _free(starts: Sequence[int], size: int, taken: set[int]) -> tuple[int, ...]:
    return tuple(start for start in starts if taken.isdisjoint(range(start, start + size)))
