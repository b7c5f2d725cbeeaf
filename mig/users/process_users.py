# SPDX-License-Identifier: Apache-2.0
"""Programs as device users, as far as the driver lists them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from discovery.mig_state import MigGpu
from discovery.sample import Process
from mig.users.device_users import (
    DeviceUser,
    DeviceUsers,
    MigPart,
    UserKind,
    device_part,
    users_by_part,
)

if TYPE_CHECKING:
    from api.actuator.actuator_messages import GpuUser

HIDDEN_PID = 0
"""Pid that the driver reports for a process in another PID namespace."""


def process_users(gpus: Iterable[MigGpu], name_of: Callable[[int], str]) -> DeviceUsers:
    """Programs by the compute instance that they run on; without an instance, by the whole GPU.

    A program that the driver puts on no instance uses all instances of the GPU, since it may be
    on any; one that it puts on a GPU instance alone uses all of that. ``name_of``: a program's
    name by its pid, empty if it is not known. Hidden programs on different instances count as
    different programs.
    """
    return users_by_part(
        (part, [DeviceUser(UserKind.PROCESS, _name(gpu, process, name_of))])
        for gpu in gpus
        for process in gpu.processes
        for part in _parts(gpu, process)
    )


def programs_of_nobody(
    gpus: Iterable[MigGpu], pods: DeviceUsers, name_of: Callable[[int], str]
) -> DeviceUsers:
    """Programs on parts that no pod has, as :func:`process_users`; ``pods``: device users by part.

    A program on an instance or a whole GPU that a pod has belongs to the pod. A program of which
    the driver does not name the instance belongs to a pod if any pod has a part of what it may be
    on.
    """
    held = {part for part, users in pods.items() if users}
    partly = {(part.gpu, number) for part in held for number in (None, part.instance)}

    def is_a_pods(gpu: MigGpu, process: Process) -> bool:
        part = _part(gpu, process)
        if part.compute is None and (gpu.uuid, part.instance) in partly:
            return True
        wider = MigPart(gpu.uuid, part.instance), MigPart(gpu.uuid, None)
        return not held.isdisjoint((part, *wider))

    without_pods = (
        replace(
            gpu,
            processes=tuple(process for process in gpu.processes if not is_a_pods(gpu, process)),
        )
        for gpu in gpus
    )
    return process_users(without_pods, name_of)


def openers_of_nobody(gpus: Iterable[MigGpu], openers: Iterable[GpuUser]) -> DeviceUsers:
    """Programs outside pods that have device files of a GPU open, by the whole GPU.

    They run nothing on the GPU, so the driver does not list them. Programs of pods are left out:
    the device plugin has GPUs open all the time, and which pods can be paused is not known here.
    """
    uuids = {gpu.minor: gpu.uuid for gpu in gpus if gpu.minor is not None}
    return users_by_part(
        (MigPart(uuids[opener.minor], None), [program(opener.pid, opener.name)])
        for opener in openers
        if not opener.pod and opener.minor in uuids
    )


def program(pid: int, name: str) -> DeviceUser:
    """A program as a device user; ``name`` may be empty."""
    return DeviceUser(UserKind.PROCESS, f"{pid} {name}".rstrip())


def _parts(gpu: MigGpu, process: Process) -> set[MigPart]:
    """The parts of the GPU that a program may be on."""
    parts = {_part(gpu, process)}
    if process.gpu_instance_id is None:
        parts |= {MigPart(gpu.uuid, instance.id) for instance in gpu.instances}
    return parts


def _part(gpu: MigGpu, process: Process) -> MigPart:
    """The part of the GPU that the driver puts a program on."""
    for instance, compute in gpu.devices():
        if (process.gpu_instance_id, process.compute_instance_id) == (instance.id, compute.id):
            return device_part(gpu, instance, compute)
    # a compute instance that has gone since stands for its GPU instance: nothing is guessed
    return MigPart(gpu.uuid, process.gpu_instance_id)


def _name(gpu: MigGpu, process: Process, name_of: Callable[[int], str]) -> str:
    if process.pid == HIDDEN_PID:
        part = _part(gpu, process)
        place = "" if part.instance is None else f" instance {part.instance}"
        place += "" if part.compute is None else f" compute instance {part.compute}"
        return f"hidden (of another PID namespace, on GPU {gpu.index}{place})"
    return f"{process.pid} {name_of(process.pid)}".rstrip()
