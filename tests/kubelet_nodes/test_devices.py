# SPDX-License-Identifier: Apache-2.0
"""Which devices a pod is given, and why it is refused."""

from __future__ import annotations

from collections import Counter

import pytest

from labelers.groups.sharing import SharedResource, Sharing, SharingStrategy
from tests import build
from tests.kubelet_nodes.cases import FirstOffered, container, pod
from tests.kubelet_nodes.devices import DeviceManager, Pod, Refused
from tests.kubelet_nodes.offer import GPU, offer

NODE = build.node([build.gpu(at) for at in range(8)])
ALL = [gpu.uuid for gpu in NODE.gpus]


def manager(seed: int = 0, *, replicas: int = 1) -> DeviceManager:
    """Of a node with eight GPUs."""
    made = DeviceManager(FirstOffered(), seed)
    shared = Sharing(
        strategy=SharingStrategy.TIME_SLICING,
        resources=(SharedResource(name=GPU, replicas=replicas),),
    )
    made.register(offer(NODE, sharing=shared), NODE)
    return made


def ids(taken: Pod) -> dict[str, list[str]]:
    """Container to the ids of its GPUs, those without left out."""
    return {
        each.name: [device.id for device in each.given[GPU]]
        for each in taken.containers
        if GPU in each.given
    }


def singles(seed: int) -> list[str]:
    """What eight pods of one GPU are given, one after the other."""
    devices = manager(seed)
    return [ids(devices.admit(pod(f"p{number}")))["main"][0] for number in range(8)]


def test_single_gpus_come_in_an_order_that_the_seed_alone_decides() -> None:
    assert singles(1) == singles(1)
    assert singles(1) != singles(2)


def test_no_gpu_is_given_twice() -> None:
    assert sorted(singles(1)) == ALL


def test_what_a_removed_pod_had_is_given_again() -> None:
    devices = manager()
    devices.admit(pod("whole", gpus=8))
    devices.remove("whole")
    assert sorted(ids(devices.admit(pod("next", gpus=8)))["main"]) == ALL


def test_a_pod_that_asks_for_more_than_is_free_is_refused_and_takes_nothing() -> None:
    devices = manager()
    devices.admit(pod("first", gpus=5))
    with pytest.raises(Refused) as refusal:
        devices.admit(pod("second", container("a", 2), container("b", 2)))
    assert str(refusal.value) == (
        "Allocate failed due to requested number of devices unavailable for nvidia.com/gpu. "
        "Requested: 2, Available: 1, which is unexpected"
    )
    assert len(ids(devices.admit(pod("third", gpus=3)))["main"]) == 3


def test_a_gpu_that_is_not_healthy_is_given_to_nobody() -> None:
    devices = manager()
    now = build.node([build.silent(0), *NODE.gpus[1:]])
    devices.register(offer(now, before=devices.offer), now)
    assert sorted(ids(devices.admit(pod("p", gpus=7)))["main"]) == ALL[1:]


def test_a_pod_is_refused_where_no_device_is_healthy() -> None:
    devices = manager()
    now = build.node([build.silent(at) for at in range(8)])
    devices.register(offer(now, before=devices.offer), now)
    with pytest.raises(Refused, match="no healthy devices present"):
        devices.admit(pod("p"))


def test_a_resource_that_no_plugin_registered_is_passed_over() -> None:
    taken = manager().admit(pod("p", resource="nvidia.com/mig-1g.5gb"))
    assert [each.given for each in taken.containers] == [{}]


def test_apps_are_given_what_init_containers_had() -> None:
    taken = ids(manager().admit(pod("p", container("app", 2), init=(container("init", 1),))))
    assert taken["init"][0] in taken["app"]


def test_a_gpu_that_went_through_two_init_containers_is_given_once() -> None:
    inits = (container("first", 2), container("second", 1))
    taken = ids(manager().admit(pod("p", container("app", 3), init=inits)))
    assert len(set(taken["app"])) == 3


def test_a_pod_that_was_taken_before_keeps_what_it_has() -> None:
    devices = manager()
    assert devices.admit(pod("p", gpus=5)) == devices.admit(pod("p", gpus=5))


def test_a_sidecar_keeps_its_gpu() -> None:
    sidecar = container("sidecar", 1, restartPolicy="Always")
    taken = ids(manager().admit(pod("p", container("app", 7), init=(sidecar,))))
    assert sorted(taken["sidecar"] + taken["app"]) == ALL


def test_shares_are_spread_over_the_gpus() -> None:
    devices = manager(replicas=4)
    given = [ids(devices.admit(pod(f"p{number}", gpus=2)))["main"] for number in range(8)]
    gpus = Counter(device.partition("::")[0] for each in given for device in each)
    assert set(gpus.values()) == {2}
