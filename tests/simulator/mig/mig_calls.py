# SPDX-License-Identifier: Apache-2.0
"""MIG through pynvml, by the names of profiles."""

from __future__ import annotations

from ctypes import byref, c_uint
from typing import Any

import pynvml as nv

from tests import machines

ON, OFF = nv.NVML_DEVICE_MIG_ENABLE, nv.NVML_DEVICE_MIG_DISABLE


def create(gpu: Any, profile_id: int, start: int | None = None, size: int = 1) -> Any:
    """A GPU instance where the driver wants it, or at a place."""
    if start is None:
        return nv.nvmlDeviceCreateGpuInstance(gpu, profile_id)
    place = nv.c_nvmlGpuInstancePlacement_t(start, size)
    return nv.nvmlDeviceCreateGpuInstanceWithPlacement(gpu, profile_id, byref(place))


def cut(instance: Any, profile_id: int, start: int | None = None, size: int = 1) -> Any:
    """A compute instance in a GPU instance."""
    if start is None:
        return nv.nvmlGpuInstanceCreateComputeInstance(instance, profile_id)
    place = nv.c_nvmlComputeInstancePlacement_t(start, size)
    return nv.nvmlGpuInstanceCreateComputeInstanceWithPlacement(instance, profile_id, byref(place))


def devices(gpu: Any) -> list[Any]:
    """Handles of a GPU's MIG devices by their index."""
    found = []
    for index in range(nv.nvmlDeviceGetMaxMigDeviceCount(gpu)):
        try:
            found.append(nv.nvmlDeviceGetMigDeviceHandleByIndex(gpu, index))
        except nv.NVMLError_NotFound:
            continue
    return found


def layout(gpu: Any) -> list[tuple[int, int, int, int]]:
    """Profile id, GPU instance id, start and size of each GPU instance, as everybody reads them."""
    found = []
    for enum in range(nv.NVML_GPU_INSTANCE_PROFILE_COUNT):
        try:
            profile = nv.nvmlDeviceGetGpuInstanceProfileInfo(gpu, enum)
        except nv.NVMLError_NotSupported:
            continue
        instances = (nv.c_nvmlGpuInstance_t * profile.instanceCount)()
        count = c_uint()
        nv.nvmlDeviceGetGpuInstances(gpu, profile.id, instances, byref(count))
        for instance in instances[: count.value]:
            info = nv.nvmlGpuInstanceGetInfo(instance)
            found.append((info.profileId, info.id, info.placement.start, info.placement.size))
    return sorted(found)


def code_of(call: Any, *arguments: Any) -> int:
    """The return code of a call."""
    return machines.code_of(lambda: call(*arguments))
