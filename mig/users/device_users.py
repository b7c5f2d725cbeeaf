# SPDX-License-Identifier: Apache-2.0
"""Device users that keep a GPU, a GPU instance or a compute instance from being changed. Values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from discovery.mig_state import CurrentCompute, CurrentInstance, MigGpu


class UserKind(StrEnum):
    """Kind of a device user, which makes an instance busy."""

    PROCESS = "process"
    """A process that has the instance open."""
    POD = "pod"
    """A pod that the kubelet assigned the device to, and that has not ended. Init containers and
    crash loops count: the kubelet gives them the same device again."""
    PENDING_POD = "pending-pod"
    """A pod without a node asks for a resource that the instance serves, by the actuator's client.
    """


@dataclass(frozen=True, slots=True, order=True)
class DeviceUser:
    """A device user: a process or a pod."""

    kind: UserKind
    name: str
    """``4711 python``, ``namespace/name``."""

    def __str__(self) -> str:
        """Kind and name, as an operator would search for them."""
        return f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True)
class MigPart:
    """A whole GPU, a GPU instance, or a compute instance, by UUID: a plan outlives a reading."""

    gpu: str
    """UUID."""
    instance: int | None
    """Id of the GPU instance; None for the whole GPU."""
    compute: int | None = None
    """Id of the compute instance; None for the whole GPU instance."""


DeviceUsers = Mapping[MigPart, frozenset[DeviceUser]]
"""Part of a GPU to its device users. A part that is missing has none."""


def users_by_part(pairs: Iterable[tuple[MigPart, Iterable[DeviceUser]]]) -> DeviceUsers:
    """Device users by part; a part may come several times, and then has all of these users."""
    users: defaultdict[MigPart, set[DeviceUser]] = defaultdict(set)
    for part, more in pairs:
        users[part].update(more)
    return {part: frozenset(known) for part, known in users.items()}


def all_users(*sources: DeviceUsers) -> DeviceUsers:
    """The union of several mappings of device users."""
    return users_by_part(pair for source in sources for pair in source.items())


def users_on_gpu(users: DeviceUsers, gpu: str) -> frozenset[DeviceUser]:
    """Device users of a GPU and of all its parts; ``gpu``: UUID."""
    return _union(whose for part, whose in users.items() if part.gpu == gpu)


def device_part(gpu: MigGpu, instance: CurrentInstance, compute: CurrentCompute) -> MigPart:
    """The part that a MIG device is: the GPU instance where the device takes all its slices.

    No other compute instance fits beside such a device, so its id says nothing more.
    """
    profile = gpu.profile(instance.profile)
    is_whole = profile is not None and compute.slices == profile.slices
    return MigPart(gpu.uuid, instance.id, None if is_whole else compute.id)


def instance_users(users: DeviceUsers, gpu: str, instance: int) -> frozenset[DeviceUser]:
    """Device users of a GPU instance and of all its compute instances; ``gpu``: UUID."""
    return _union(
        whose for part, whose in users.items() if (part.gpu, part.instance) == (gpu, instance)
    )


def compute_users(
    users: DeviceUsers, gpu: str, instance: CurrentInstance
) -> dict[int, frozenset[DeviceUser]]:
    """Device users by the id of each compute instance of a GPU instance.

    A user whose compute instance is not known, or is not one of these, may be on any: it counts on
    all of them.
    """
    known = {compute.id for compute in instance.compute}
    anywhere = _union(
        whose
        for part, whose in users.items()
        if (part.gpu, part.instance) == (gpu, instance.id) and part.compute not in known
    )
    return {
        number: users.get(MigPart(gpu, instance.id, number), frozenset()) | anywhere
        for number in known
    }


def _union(sets: Iterable[frozenset[DeviceUser]]) -> frozenset[DeviceUser]:
    return frozenset[DeviceUser]().union(*sets)
