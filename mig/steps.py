# SPDX-License-Identifier: Apache-2.0
"""The steps of a change, each one call of NVML. Values.

A step names its instance so that it can be checked before and read back after: an existing instance
by its id, a new one by its place, since the driver chooses the ids.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DestroyCompute:
    """End a compute instance: nvmlComputeInstanceDestroy."""

    gpu: str
    instance: int
    compute: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DestroyInstance:
    """End a GPU instance that has no compute instance: nvmlGpuInstanceDestroy."""

    gpu: str
    instance: int
    profile: str
    start: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SetMode:
    """Switch MIG on or off: nvmlDeviceSetMigMode, which resets a GPU that needs a reset for it.

    With the mode that holds, it ends the wait for another one, and resets nothing.
    """

    gpu: str
    on: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateInstance:
    """Make a GPU instance at a place: nvmlDeviceCreateGpuInstanceWithPlacement."""

    gpu: str
    profile: str
    start: int
    """First memory unit."""
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateCompute:
    """Make a compute instance: nvmlGpuInstanceCreateComputeInstanceWithPlacement."""

    gpu: str
    start: int
    """First memory unit of its GPU instance, which may be new."""
    slices: int
    first: int = -1
    """First slice within its GPU instance; -1: the driver chooses
    (nvmlGpuInstanceCreateComputeInstance), or the GPU instance is not there to ask yet."""


MigStep = DestroyCompute | DestroyInstance | SetMode | CreateInstance | CreateCompute
