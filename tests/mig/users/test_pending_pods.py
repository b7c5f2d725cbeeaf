# SPDX-License-Identifier: Apache-2.0
"""A pod that waits holds every device that it may be given, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from api.mig_resources import MigStrategy
from discovery.model import Mode
from mig.users.device_users import DeviceUser, MigPart, UserKind
from mig.users.pending_pods import pending_pod_users
from tests.mig.naive_gpu import mig_gpu

OFF = Mode(current=False, pending=False)
A100 = "a100-sxm4-40gb"
CUT = mig_gpu(A100, ("1g.5gb", 0), ("1g.5gb", 1), ("3g.20gb", 4, (1, 2)), uuid="GPU-0")
WHOLE = mig_gpu(A100, uuid="GPU-1", index=1, mode=OFF)
IDS = {one.start: one.id for one in CUT.instances}
ONES = {MigPart("GPU-0", IDS[0]), MigPart("GPU-0", IDS[1])}
THREE = MigPart("GPU-0", IDS[4])
PARTS = {MigPart("GPU-0", IDS[4], number) for number in (0, 1)}
UNDIVIDED = MigPart("GPU-1", None)


@pytest.mark.parametrize(
    ("strategy", "resource", "parts"),
    [
        ("mixed", "nvidia.com/mig-1g.5gb", ONES),
        ("mixed", "nvidia.com/mig-1g.5gb.shared", ONES),
        ("mixed", "nvidia.com/mig-3g.20gb", PARTS),  # parts of it are offered as that
        ("mixed", "nvidia.com/mig-2g.10gb", set()),
        ("mixed", "nvidia.com/gpu", {UNDIVIDED}),
        ("single", "nvidia.com/gpu", {*ONES, *PARTS, UNDIVIDED}),
        ("none", "nvidia.com/gpu", {*ONES, THREE, UNDIVIDED, MigPart("GPU-0", None)}),
        ("none", "nvidia.com/mig-1g.5gb", set()),
        ("mixed", "example.com/nic", set()),
    ],
)
def test_all_devices_of_the_resource_are_held(
    strategy: str, resource: str, parts: set[MigPart]
) -> None:
    found = pending_pod_users([CUT, WHOLE], MigStrategy(strategy), {"ns/waits": {resource}})

    assert found == dict.fromkeys(parts, frozenset({DeviceUser(UserKind.PENDING_POD, "ns/waits")}))


def test_several_pods_are_several_device_users() -> None:
    asked = {f"ns/{name}": {"nvidia.com/gpu"} for name in "ab"}
    without = replace(WHOLE, mode=None)

    [(part, users)] = pending_pod_users([without], MigStrategy.MIXED, asked).items()

    assert part == UNDIVIDED
    assert {one.name for one in users} == {"ns/a", "ns/b"}
