# SPDX-License-Identifier: Apache-2.0
"""Programs as device users, as far as the driver lists them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from discovery.mig_state import MigGpu
from discovery.sample import Process
from mig.device_users import DeviceUser, DeviceUsers, MigPart, UserKind

if TYPE_CHECKING:
    from api.actuator.actuator_messages import GpuUser

HIDDEN_PID = 0
"""Pid that the driver reports for a process in another PID namespace."""


def process_users(gpus: Iterable[MigGpu], name_of: Callable[[int], str]) -> DeviceUsers:
    """Programs by the GPU instance that they run on; without an instance, by the whole GPU.

    A program that the driver puts on no instance uses all instances of the GPU, since it may be
    on any. ``name_of``: a program's name by its pid, empty if it is not known. Hidden programs on
    different instances count as different programs.
    """
    users_by_part: dict[MigPart, set[DeviceUser]] = {}
    for gpu in gpus:
        for process in gpu.processes:
            user = DeviceUser(UserKind.PROCESS, _name(gpu, process, name_of))
            parts = {MigPart(gpu.uuid, process.gpu_instance_id)}
            if process.gpu_instance_id is None:
                parts |= {MigPart(gpu.uuid, instance.id) for instance in gpu.instances}
            for part in parts:
                users_by_part.setdefault(part, set()).add(user)
    return {part: frozenset(users) for part, users in users_by_part.items()}


def programs_of_nobody(
    gpus: Iterable[MigGpu], pods: DeviceUsers, name_of: Callable[[int], str]
) -> DeviceUsers:
    """Programs on parts that no pod has, as :func:`process_users`; ``pods``: device users by part.

    A program on an instance or a whole GPU that a pod has belongs to the pod. A program that the
    driver puts on no instance belongs to a pod if any pod has a part of the GPU.
    """
    held = {part for part, users in pods.items() if users}
    partly = {part.gpu for part in held}

    def is_a_pods(gpu: MigGpu, process: Process) -> bool:
        if process.gpu_instance_id is None:
            return gpu.uuid in partly
        parts = MigPart(gpu.uuid, process.gpu_instance_id), MigPart(gpu.uuid, None)
        return not held.isdisjoint(parts)

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
    users_by_part: dict[MigPart, set[DeviceUser]] = {}
    for opener in openers:
        if not opener.pod and opener.minor in uuids:
            user = DeviceUser(UserKind.PROCESS, f"{opener.pid} {opener.name}".rstrip())
            users_by_part.setdefault(MigPart(uuids[opener.minor], None), set()).add(user)
    return {part: frozenset(users) for part, users in users_by_part.items()}


def _name(gpu: MigGpu, process: Process, name_of: Callable[[int], str]) -> str:
    if process.pid == HIDDEN_PID:
        place = "" if process.gpu_instance_id is None else f" instance {process.gpu_instance_id}"
        return f"hidden (of another PID namespace, on GPU {gpu.index}{place})"
    return f"{process.pid} {name_of(process.pid)}".rstrip()
