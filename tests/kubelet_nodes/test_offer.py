# SPDX-License-Identifier: Apache-2.0
"""What the device plugin registers for each MIG strategy, shared devices and lost GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from api.mig_resources import MigStrategy
from labelers.groups.sharing import SharedResource, Sharing, SharingStrategy
from tests import build
from tests.kubelet_nodes.offer import GPU, Offer, offer

MIG_5GB = "nvidia.com/mig-1g.5gb"


def ids(offered: Offer) -> Mapping[str, Sequence[str]]:
    return {name: [device.id for device in devices] for name, devices in offered.items()}


def health(offered: Offer) -> Mapping[str, Sequence[bool]]:
    return {name: [device.healthy for device in devices] for name, devices in offered.items()}


WHOLE = build.gpu(0)
PART = build.mig_device("1g.5gb", gi=1)
OTHER = build.mig_device("2g.10gb+me", gi=2)
CUT = build.gpu(1, mig=build.SPLIT, mig_devices=(PART, OTHER))
MIXED = build.node([WHOLE, CUT])


def test_without_a_strategy_every_gpu_is_a_whole_one() -> None:
    assert ids(offer(MIXED)) == {GPU: [WHOLE.uuid, CUT.uuid]}


def test_the_mixed_strategy_names_a_resource_for_each_profile() -> None:
    assert ids(offer(MIXED, strategy=MigStrategy.MIXED)) == {
        GPU: [WHOLE.uuid],
        MIG_5GB: [PART.uuid],
        "nvidia.com/mig-2g.10gb.me": [OTHER.uuid],
    }


def test_the_mixed_strategy_does_not_start_with_a_part_of_an_instance() -> None:
    part = build.mig_device("1c.2g.10gb", gpu_instance_slices=2, compute_instance_slices=1)
    node = build.node([WHOLE, build.gpu(1, mig=build.SPLIT, mig_devices=(part,))])
    assert ids(offer(node, strategy=MigStrategy.MIXED)) == {}


def test_the_single_strategy_offers_equal_mig_devices_as_gpus() -> None:
    node = build.node([build.gpu(0, mig=build.SPLIT, mig_devices=(PART,))])
    assert ids(offer(node, strategy=MigStrategy.SINGLE)) == {GPU: [PART.uuid]}


def test_the_single_strategy_does_not_start_with_unequal_gpus() -> None:
    assert ids(offer(MIXED, strategy=MigStrategy.SINGLE)) == {}


def test_a_shared_gpu_is_offered_once_for_each_share() -> None:
    sharing = Sharing(
        strategy=SharingStrategy.TIME_SLICING,
        resources=(SharedResource(name=GPU, replicas=2),),
    )
    assert ids(offer(build.node([WHOLE]), sharing=sharing)) == {
        GPU: [f"{WHOLE.uuid}::0", f"{WHOLE.uuid}::1"]
    }


def test_a_renamed_resource_is_offered_under_its_new_name() -> None:
    shared = SharedResource(name=GPU, replicas=2, renamed=True)
    sharing = Sharing(strategy=SharingStrategy.TIME_SLICING, resources=(shared,))
    assert list(offer(build.node([WHOLE]), sharing=sharing)) == [f"{GPU}.shared"]


def test_a_gpu_that_is_lost_stays_unhealthy_in_its_place_until_it_answers() -> None:
    both = build.node([build.gpu(0), build.gpu(1)])
    lost = offer(build.node([build.silent(0), build.gpu(1)]), before=offer(both))
    assert health(lost) == {GPU: [False, True]}
    assert offer(both, before=lost) == offer(both)


def test_a_gpu_that_is_lost_from_the_start_is_not_offered() -> None:
    node = build.node([build.silent(0), build.gpu(1)])
    assert ids(offer(node)) == {GPU: [build.gpu(1).uuid]}


def test_a_resource_whose_devices_are_gone_stays_with_none() -> None:
    cut = offer(MIXED, strategy=MigStrategy.MIXED)
    uncut = build.node([build.gpu(0), build.gpu(1)])
    assert ids(offer(uncut, strategy=MigStrategy.MIXED, before=cut)) == {
        GPU: [WHOLE.uuid, CUT.uuid],
        MIG_5GB: [],
        "nvidia.com/mig-2g.10gb.me": [],
    }
