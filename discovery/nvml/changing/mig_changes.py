# SPDX-License-Identifier: Apache-2.0
"""The calls of NVML that change MIG: each on one GPU, checked before it and read back after it.

Ids of instances are used again, so an instance is destroyed only if it is still the one that was
found: same profile and place, a compute instance with the same MIG UUID. A success that the driver
then does not show is a failure here. Handles are looked up for each call: a change of the mode
makes all older ones invalid. Source: nvml.h.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final

import pynvml

from discovery.driver_errors import MigChangeFailed
from discovery.mig_state import ComputeProfile, CurrentCompute, CurrentInstance, MigGpu, MigProfile
from discovery.model import Mode
from discovery.nvml.calls import Handle
from discovery.nvml.conversions import Garbage, mode, whole
from discovery.nvml.mig import mig_uuid
from discovery.nvml.mig_gpu import PLACED_CREATE as _CREATE
from discovery.nvml.mig_instances import PLACED_COMPUTE
from discovery.nvml.mig_profile_table import checked_placement

_SET_MODE = "nvmlDeviceSetMigMode"
_CREATE_COMPUTE = "nvmlGpuInstanceCreateComputeInstance"
_ID = whole(0xFFFF)
_STATUS = whole(9999)
_SLICES = whole(8)

_OTHERS = "somebody else is changing MIG"
_RESET = "the GPU must be reset, or the machine rebooted"
_DRIVER = "load the driver, or finish its upgrade"
_FIXES: Final = {
    pynvml.NVML_ERROR_IN_USE: "end the programs that use it",
    pynvml.NVML_ERROR_NO_PERMISSION: (
        "changing instances takes root, or NVIDIA's capability mig/config"
        " (NVIDIA_MIG_CONFIG_DEVICES=all in a container); changing the mode takes root"
    ),
    pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES: (
        "the place is taken, or no engines or slices are left; somebody else may be changing MIG"
    ),
    pynvml.NVML_ERROR_NOT_SUPPORTED: "MIG is off, or the machine is a guest that may not change it",
    pynvml.NVML_ERROR_INVALID_ARGUMENT: (
        "the driver does not know the instance, profile or place; somebody else may be changing MIG"
    ),
    pynvml.NVML_ERROR_NOT_FOUND: "the instance is gone; somebody else may be changing MIG",
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: "this driver is too old for it: upgrade it",
    pynvml.NVML_ERROR_GPU_IS_LOST: _RESET,
    pynvml.NVML_ERROR_RESET_REQUIRED: _RESET,
    pynvml.NVML_ERROR_UNINITIALIZED: _DRIVER,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: _DRIVER,
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: _DRIVER,
}
"""Return code to what it means for a change and what to do; others are the driver's own faults."""

_NO_RESET_HERE: Final = (pynvml.NVML_ERROR_RESET_REQUIRED, pynvml.NVML_ERROR_NOT_SUPPORTED)
"""Activation statuses of machines whose GPUs the driver cannot reset: virtual machines to which
they are passed through. Source: nvml.h on nvmlDeviceSetMigMode; MIG user guide, as below."""
_PASSES: Final = frozenset({pynvml.NVML_ERROR_IN_USE, pynvml.NVML_ERROR_TIMEOUT})
"""Codes whose cause may go away by itself: a program that is about to end."""


def set_mig_mode(gpu: MigGpu, *, on: bool, may_wait: bool = False) -> bool:
    """Switch MIG on or off, at once: a mode that then waits for a reset is a failure.

    With ``may_wait`` a mode stays, and the answer is False, that waits for a reset that the driver
    cannot make.

    The driver keeps a mode that it cannot activate, and switches to it with the next reset or boot,
    whoever causes that; so it is taken back at once, by setting the mode that holds.
    Raises MigChangeFailed. The GPU may have been reset by the driver: nothing that was read of it
    before holds afterwards, its minor number neither.
    Source: nvml.h on nvmlDeviceSetMigMode, activationStatus.
    """
    status = _set_mode(gpu, on=on)
    if may_wait and status in _NO_RESET_HERE and _read_mode(gpu).pending == on:
        return False
    if status != pynvml.NVML_SUCCESS:
        raise _not_activated(gpu, status, on=on, taken_back=_take_back(gpu, on=on))
    new_mode = _read_mode(gpu)
    if new_mode != Mode(current=on, pending=on):
        raise MigChangeFailed(f"GPU {gpu.bus_id}: {_SET_MODE} succeeded and the mode is {new_mode}")
    return True


def create_gpu_instance(gpu: MigGpu, profile: MigProfile, start: int) -> None:
    """Make an instance of one of the GPU's profiles at this memory unit. Raises MigChangeFailed."""
    place = pynvml.c_nvmlGpuInstancePlacement_t(start, profile.size)
    created = _made(gpu, _CREATE, _handle(gpu), profile.id, ctypes.byref(place))
    created_info = _instance_info(gpu, created)
    if created_info != (profile.id, start, profile.size):
        raise MigChangeFailed(
            f"GPU {gpu.bus_id}: {_CREATE} was asked for profile {profile.id} in memory units"
            f" {start} to {start + profile.size - 1} and made {_described(created_info)}"
        )


def create_compute_instance(
    gpu: MigGpu, instance: CurrentInstance, slices: int, start: int = -1
) -> None:
    """Make a compute instance of so many slices. Raises MigChangeFailed.

    ``start``: the first slice; the driver chooses with -1, and where it lets nobody else choose.
    """
    profiles = _compute_profiles(gpu, instance)
    profile = next((known for known in profiles if known.slices == slices), None)
    if profile is None:
        raise MigChangeFailed(
            f"GPU {gpu.bus_id}: the driver has no compute instance of {slices} slices for a"
            f" {instance.profile}"
        )
    holder = _same_instance(gpu, instance)
    is_placed = start >= 0 and bool(profile.starts)
    create = PLACED_COMPUTE if is_placed else _CREATE_COMPUTE
    place = [ctypes.byref(pynvml.c_nvmlComputeInstancePlacement_t(start, slices))] * is_placed
    created = _made(gpu, create, holder, profile.id, *place)
    call = "nvmlComputeInstanceGetInfo_v2"
    profile_id, first, device = _checked(gpu, call, _compute_info, created)
    if profile_id != profile.id or (is_placed and first != start):
        where = f" from slice {start}" if is_placed else ""
        raise MigChangeFailed(
            f"GPU {gpu.bus_id}: {create} was asked for profile {profile.id}{where} and made one of"
            f" profile {profile_id} from slice {first}"
        )
    _checked(gpu, "nvmlDeviceGetUUID", mig_uuid, device)


def destroy_compute_instance(
    gpu: MigGpu, instance: CurrentInstance, compute: CurrentCompute
) -> None:
    """End a compute instance, if it is the one that was found. Raises MigChangeFailed."""
    holder = _same_instance(gpu, instance)
    handle = _made(gpu, "nvmlGpuInstanceGetComputeInstanceById", holder, compute.id)
    info = "nvmlComputeInstanceGetInfo_v2"
    profile_id, start, device = _checked(gpu, info, _compute_info, handle)
    uuid = _checked(gpu, "nvmlDeviceGetUUID", mig_uuid, device)
    slices = {known.id: known.slices for known in _compute_profiles(gpu, instance)}.get(profile_id)
    if (uuid, slices, start) != (compute.uuid, compute.slices, compute.start):
        raise MigChangeFailed(
            f"GPU {gpu.bus_id}: compute instance {compute.id} of GPU instance {instance.id} is"
            f" another one now: {uuid} of {slices} slices from slice {start}, and was"
            f" {compute.uuid} of {compute.slices} from {compute.start}; {_OTHERS}"
        )
    _made(gpu, "nvmlComputeInstanceDestroy", handle)
    _check_gone(gpu, "nvmlGpuInstanceGetComputeInstanceById", holder, compute.id)


def destroy_gpu_instance(gpu: MigGpu, instance: CurrentInstance) -> None:
    """End a GPU instance, if it is the one that was found. Raises MigChangeFailed."""
    _made(gpu, "nvmlGpuInstanceDestroy", _same_instance(gpu, instance))
    _check_gone(gpu, "nvmlDeviceGetGpuInstanceById", _handle(gpu), instance.id)


def _set_mode(gpu: MigGpu, *, on: bool) -> int:
    """Ask for a mode; the activation status. Raises MigChangeFailed."""
    requested_mode = pynvml.NVML_DEVICE_MIG_ENABLE if on else pynvml.NVML_DEVICE_MIG_DISABLE
    return _STATUS(_made(gpu, _SET_MODE, _handle(gpu), requested_mode))


def _read_mode(gpu: MigGpu) -> Mode:
    read: Mode = _checked(gpu, "nvmlDeviceGetMigMode", lambda answer: mode(answer), _handle(gpu))
    return read


def _take_back(gpu: MigGpu, *, on: bool) -> str:
    """Take back the request for a mode; why it still waits, empty where it does not."""
    try:
        if _read_mode(gpu).current != on:
            _set_mode(gpu, on=not on)
        after = _read_mode(gpu)
    except MigChangeFailed as error:
        return str(error)
    return "" if after.current == after.pending else f"the mode is {after}"


def _not_activated(gpu: MigGpu, status: int, *, on: bool, taken_back: str) -> MigChangeFailed:
    """The failure of a mode that the driver does not activate; ``taken_back``: why it waits."""
    error = pynvml.NVMLError(status)
    text = f"GPU {gpu.bus_id}: {_SET_MODE} (activation): {error}"
    in_use = status == pynvml.NVML_ERROR_IN_USE
    if in_use:
        text = f"{text}: end the programs that have the GPU open"
    elif status in _NO_RESET_HERE:
        # the board keeps the mode: a boot brings it. Source: MIG user guide, "GPU Reset on NVIDIA
        # Ampere Architecture GPUs"
        command = f"nvidia-smi -i {gpu.bus_id} -mig {int(on)} && reboot"
        text = f"{text}: the driver cannot reset the GPU from here; when nothing uses it, run"
        text = f"{text} {command}"
    if taken_back:
        text = f"{text}; the request could not be taken back, so the next reset or boot turns MIG"
        text = f"{text} {'on' if on else 'off'}: {taken_back}"
    needs_reset = status in _NO_RESET_HERE
    return MigChangeFailed(text, passes=in_use, in_use=in_use, needs_reset=needs_reset)


def _handle(gpu: MigGpu) -> Handle:
    return _made(gpu, "nvmlDeviceGetHandleByPciBusId", gpu.bus_id.encode())


def _same_instance(gpu: MigGpu, instance: CurrentInstance) -> Handle:
    """The handle of an instance by its id. Raises MigChangeFailed where it is another one now."""
    profile = gpu.profile(instance.profile)
    handle = _made(gpu, "nvmlDeviceGetGpuInstanceById", _handle(gpu), instance.id)
    current_info = _instance_info(gpu, handle)
    expected_info = (None if profile is None else profile.id, instance.start, instance.size)
    if current_info != expected_info:
        raise MigChangeFailed(
            f"GPU {gpu.bus_id}: GPU instance {instance.id} is {_described(current_info)} now and"
            f" was a {instance.profile} at unit {instance.start}; {_OTHERS}"
        )
    return handle


def _instance_info(gpu: MigGpu, handle: Handle) -> tuple[int, int, int]:
    """Profile id, first memory unit and size of a GPU instance."""

    def convert(info: Any) -> tuple[int, int, int]:
        return (_ID(info.profileId), *checked_placement(info.placement))

    instance_info: tuple[int, int, int] = _checked(gpu, "nvmlGpuInstanceGetInfo", convert, handle)
    return instance_info


def _compute_info(info: Any) -> tuple[int, int, Handle]:
    """Profile id, first slice and MIG device of a compute instance."""
    return _ID(info.profileId), _SLICES(info.placement.start), info.device


def _compute_profiles(gpu: MigGpu, instance: CurrentInstance) -> tuple[ComputeProfile, ...]:
    """The compute instance profiles of a GPU instance."""
    profile = gpu.profile(instance.profile)
    return () if profile is None else profile.compute


def _described(instance_info: tuple[int, int, int]) -> str:
    profile_id, start, size = instance_info
    return f"one of profile {profile_id} in memory units {start} to {start + size - 1}"


def _check_gone(gpu: MigGpu, call: str, parent: Handle, number: int) -> None:
    """Raises MigChangeFailed where the driver still has what it says that it has destroyed."""
    try:
        getattr(pynvml, call)(parent, number)
    except pynvml.NVMLError:
        return  # not there, or not to be seen: the next observation shows it
    raise MigChangeFailed(f"GPU {gpu.bus_id}: instance {number} was destroyed and is still there")


def _made(gpu: MigGpu, call: str, *args: object) -> Any:
    """The answer of a call of pynvml's. Raises MigChangeFailed."""
    try:
        return getattr(pynvml, call)(*args)
    except pynvml.NVMLError as error:
        raise _failed(gpu, call, error) from error


def _checked(gpu: MigGpu, call: str, convert: Any, *args: object) -> Any:
    """The converted answer of a call. Raises MigChangeFailed, for what cannot be too."""
    answer = _made(gpu, call, *args)
    try:
        return convert(answer)
    except (Garbage, UnicodeDecodeError, ValueError) as error:
        raise MigChangeFailed(f"GPU {gpu.bus_id}: {call}: {error}") from error


def _failed(gpu: MigGpu, call: str, error: Any) -> MigChangeFailed:
    fix = _FIXES.get(error.value)
    text = f"GPU {gpu.bus_id}: {call}: {error}" + (f": {fix}" if fix else "")
    return MigChangeFailed(text, passes=error.value in _PASSES)
