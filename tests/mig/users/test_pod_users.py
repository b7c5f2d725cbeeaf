# SPDX-License-Identifier: Apache-2.0
"""Names of devices to the parts of GPUs that pods hold."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import pytest

from kubelet.devices_checkpoint import KubeletDevices
from mig.users.device_users import DeviceUser, MigPart, UserKind, all_users
from mig.users.pod_users import pod_users, unplaced_devices
from tests.mig.naive_gpu import mig_gpu

GPU = replace(mig_gpu("a100-sxm4-40gb", ("3g.20gb", 0), ("2g.10gb", 4, (1, 1))), minor=3)
POD, OTHER = (DeviceUser(UserKind.POD, f"default/{name}") for name in "ab")
INSTANCE = {one.profile: one for one in GPU.instances}
TWO = INSTANCE["2g.10gb"]


def kubelet(
    held: Mapping[str, Collection[str]] | None = None, *, gpus: bool = True, **claimed: str
) -> KubeletDevices:
    """Device to pods; ``claimed``: a pod's name to the device that a claim gives it."""
    return KubeletDevices(
        held={name: frozenset(pods) for name, pods in (held or {}).items()},
        gpus=frozenset(held or {}) if gpus else frozenset(),
        claimed={device: frozenset({f"default/{pod}"}) for pod, device in claimed.items()},
        offered=frozenset(),
    )


def everywhere(user: DeviceUser) -> dict[MigPart, set[DeviceUser]]:
    """On the whole of the GPU, and each instance."""
    return {MigPart("GPU-0", at): {user} for at in (None, *(one.id for one in GPU.instances))}


def test_a_pod_holds_the_instance_of_its_mig_device_or_its_whole_gpu() -> None:
    """Whoever has the whole has all that is on it."""
    names = [compute.uuid for one in (INSTANCE["3g.20gb"], TWO) for compute in one.compute]
    three, first, second = (str(name) for name in names)
    held = {
        three: {"default/a"},
        first: {"default/a"},
        second: {"default/b"},
    }

    found = pod_users([GPU], kubelet(held))

    assert found == {
        MigPart("GPU-0", INSTANCE["3g.20gb"].id): {POD},
        MigPart("GPU-0", TWO.id, 0): {POD},
        MigPart("GPU-0", TWO.id, 1): {OTHER},
    }
    assert pod_users([GPU], kubelet({"GPU-0": {"default/b"}})) == everywhere(OTHER)


@pytest.mark.parametrize(
    "name",
    [
        f"MIG-GPU-0/{TWO.id}/{TWO.compute[1].id}",
        f"nvidia3/gi{TWO.id}",  # GKE's, by the minor number
        f"nvidia3/gi{TWO.id}/vgpu1",
    ],
)
def test_a_name_without_the_compute_instance_stands_for_all_of_the_gpu_instance(name: str) -> None:
    assert pod_users([GPU], kubelet({name: {"default/a"}})) == {MigPart("GPU-0", TWO.id): {POD}}


def test_a_share_of_a_mig_device_stands_for_its_compute_instance() -> None:
    name = f"{TWO.compute[1].uuid}::3"

    assert pod_users([GPU], kubelet({name: {"default/a"}})) == {MigPart("GPU-0", TWO.id, 1): {POD}}


@pytest.mark.parametrize("name", ["gpu-3-mig-2g10gb-14-4", "gpu-3-mig-14-4-2"])
def test_a_claimed_device_is_the_instance_that_starts_where_its_name_says(name: str) -> None:
    assert pod_users([GPU], kubelet(a=name)) == {MigPart("GPU-0", TWO.id): {POD}}


def test_a_claimed_gpu_is_that_of_its_minor_number() -> None:
    assert pod_users([GPU], kubelet(a="gpu-3")) == everywhere(POD)


GONE = "MIG-00000000-0000-0000-0000-000000000009"


def test_what_is_certainly_not_there_is_held_by_nobody() -> None:
    """A device that is gone, another GPU's, another resource's."""
    names = [GONE, f"{GONE}::1", "GPU-00000000-0000-0000-0000-000000000009"]
    names += ["nvidia2", "nvidia3/gi14", "MIG-GPU-9/1/0"]
    held = {name: {"default/a"} for name in names}
    claimed = kubelet(held, a="gpu-1", b="gpu-3-mig-1g5gb-19-6")

    assert pod_users([GPU], claimed) == {}
    assert unplaced_devices([GPU], claimed) == {}
    assert pod_users([GPU], kubelet({"eth0": {"default/a"}}, gpus=False)) == {}


@pytest.mark.parametrize(
    "known",
    [
        kubelet({"GPU-0-9": {"default/a"}}),
        kubelet({"0": {"default/a"}}),
        kubelet({"MIG-gone": {"default/a"}}),
        kubelet(a="gpu-vfio-3"),
        kubelet(a=""),
    ],
)
def test_a_gpu_that_may_be_any_is_all_of_them(known: KubeletDevices) -> None:
    """A name of which nobody has said what it stands for; a claim whose device is not known yet."""
    assert pod_users([GPU], known) == everywhere(POD)
    assert list(unplaced_devices([GPU], known).values()) == [{"default/a"}]


def test_where_a_minor_number_is_not_known_a_name_by_one_may_be_any() -> None:
    gpu = replace(GPU, minor=None)

    for known in (kubelet({"nvidia3/gi5": {"default/a"}}), kubelet(a="gpu-1")):
        assert pod_users([gpu], known) == everywhere(POD)


def test_everybody_is_in_the_union() -> None:
    part, other = MigPart("GPU-0", 1), MigPart("GPU-0", 2)
    one, two = frozenset({POD}), frozenset({OTHER})

    assert all_users({part: one}, {}, {part: two, other: two}) == {part: one | two, other: two}
