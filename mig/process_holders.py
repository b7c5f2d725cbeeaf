# SPDX-License-Identifier: Apache-2.0
"""Holders of GPUs as far as the driver lists them: programs. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from discovery.mig_state import MigGpu
from discovery.sample import Process
from mig.holders import HolderKind, MigHolder, MigHolders, MigPart

if TYPE_CHECKING:
    from api.actuator_messages import GpuUser

HIDDEN_PID = 0
"""What the driver shows of a process in another PID namespace."""


def process_holders(gpus: Iterable[MigGpu], name_of: Callable[[int], str]) -> MigHolders:
    """Programs by the GPU instance that they are on; by the whole GPU where they are on none.

    One that the driver puts on no instance holds all of the GPU's, since it may be on any.
    ``name_of``: a program's name by its pid, empty where it is not known. Hidden programs on
    different instances count as different ones.
    """
    found: dict[MigPart, set[MigHolder]] = {}
    for gpu in gpus:
        for one in gpu.processes:
            holder = MigHolder(HolderKind.PROCESS, _name(gpu, one, name_of))
            parts = {MigPart(gpu.uuid, one.gpu_instance_id)}
            if one.gpu_instance_id is None:
                parts |= {MigPart(gpu.uuid, instance.id) for instance in gpu.instances}
            for part in parts:
                found.setdefault(part, set()).add(holder)
    return {part: frozenset(holders) for part, holders in found.items()}


def programs_of_nobody(
    gpus: Iterable[MigGpu], pods: MigHolders, name_of: Callable[[int], str]
) -> MigHolders:
    """Programs on what no pod has, as :func:`process_holders`; ``pods`` by what they have.

    A program on an instance that a pod has, or on a GPU that one has whole, is the pod's. One that
    the driver puts on no instance is, where any pod has a part of the GPU.
    """
    held = {part for part, holders in pods.items() if holders}
    partly = {part.gpu for part in held}

    def is_a_pods(gpu: MigGpu, one: Process) -> bool:
        if one.gpu_instance_id is None:
            return gpu.uuid in partly
        parts = MigPart(gpu.uuid, one.gpu_instance_id), MigPart(gpu.uuid, None)
        return not held.isdisjoint(parts)

    others = (
        replace(gpu, processes=tuple(one for one in gpu.processes if not is_a_pods(gpu, one)))
        for gpu in gpus
    )
    return process_holders(others, name_of)


def openers_of_nobody(gpus: Iterable[MigGpu], users: Iterable[GpuUser]) -> MigHolders:
    """Programs that are no pod's and have files of a GPU open, by the whole GPU.

    They run nothing, so the driver lists none of them. Pods' are left out: the device plugin's has
    GPUs open all the time, and who may be paused is not known here.
    """
    uuids = {gpu.minor: gpu.uuid for gpu in gpus if gpu.minor is not None}
    found: dict[MigPart, set[MigHolder]] = {}
    for one in users:
        if not one.pod and one.minor in uuids:
            holder = MigHolder(HolderKind.PROCESS, f"{one.pid} {one.name}".rstrip())
            found.setdefault(MigPart(uuids[one.minor], None), set()).add(holder)
    return {part: frozenset(holders) for part, holders in found.items()}


def _name(gpu: MigGpu, process: Process, name_of: Callable[[int], str]) -> str:
    if process.pid == HIDDEN_PID:
        at = "" if process.gpu_instance_id is None else f" instance {process.gpu_instance_id}"
        return f"hidden (of another PID namespace, on GPU {gpu.index}{at})"
    return f"{process.pid} {name_of(process.pid)}".rstrip()
