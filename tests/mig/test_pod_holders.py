# SPDX-License-Identifier: Apache-2.0
"""Names of devices to the GPU instances that pods hold."""

from __future__ import annotations

import pytest

from mig.holders import HolderKind, MigHolder, MigPart, all_holders
from mig.pod_holders import pod_holders
from tests.mig.naive_gpu import mig_gpu

GPU = mig_gpu("a100-sxm4-40gb", ("3g.20gb", 0), ("2g.10gb", 4, (1, 1)))
POD, OTHER = (MigHolder(HolderKind.POD, f"default/{name}") for name in "ab")
INSTANCE = {one.profile: one for one in GPU.instances}
TWO = INSTANCE["2g.10gb"]


def test_a_pod_holds_the_instance_of_its_mig_device_or_its_whole_gpu() -> None:
    names = [compute.uuid for one in (INSTANCE["3g.20gb"], TWO) for compute in one.compute]
    three, first, second = (str(name) for name in names)
    held = {
        three: {"default/a"},
        first: {"default/a"},
        second: {"default/b"},
        "GPU-0": {"default/b"},
    }

    found = pod_holders([GPU], held)

    assert found == {
        MigPart("GPU-0", INSTANCE["3g.20gb"].id): {POD},
        MigPart("GPU-0", TWO.id): {POD, OTHER},
        MigPart("GPU-0", None): {OTHER},
    }


@pytest.mark.parametrize(
    "name", [f"{TWO.compute[1].uuid}::3", f"MIG-GPU-0/{TWO.id}/{TWO.compute[1].id}"]
)
def test_shares_and_names_of_old_drivers_stand_for_the_instance(name: str) -> None:
    assert pod_holders([GPU], {name: {"default/a"}}) == {MigPart("GPU-0", TWO.id): {POD}}


def test_what_is_not_there_is_held_by_nobody() -> None:
    assert pod_holders([GPU], {"MIG-gone": {"default/a"}, "eth0": {"default/a"}}) == {}


def test_everybody_is_in_the_union() -> None:
    part, other = MigPart("GPU-0", 1), MigPart("GPU-0", 2)
    one, two = frozenset({POD}), frozenset({OTHER})

    assert all_holders({part: one}, {}, {part: two, other: two}) == {part: one | two, other: two}
