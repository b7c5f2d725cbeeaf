# SPDX-License-Identifier: Apache-2.0
"""Who holds which GPU, from the kubelet's answers and the names of a node's devices."""

from __future__ import annotations

import pytest

from discovery.gpu_part import GpuPart
from kubelet.allocated_devices import (
    AllocatedDevice,
    GpuContainer,
    NodeAllocation,
    UnknownDevice,
    allocation,
)
from kubelet.device_resolution import DeviceNames
from kubelet.podresources.allocation_model import (
    ClaimedDevice,
    ContainerDevices,
    PodDevices,
    ResourceDevices,
)
from tests import build

GPUS = tuple(build.gpu(at) for at in range(4))
A, B, C, D = (gpu.uuid or "" for gpu in GPUS)
BUS_A, BUS_B, BUS_C, BUS_D = (gpu.bus_id for gpu in GPUS)
NAMES = DeviceNames(build.node(GPUS))


def given_(resource: str, *ids: str) -> ResourceDevices:
    """Devices as the kubelet tells them."""
    return ResourceDevices(resource=resource, ids=ids)


def pod(
    name: str, *resources: ResourceDevices, claims: tuple[ClaimedDevice, ...] = ()
) -> PodDevices:
    """A pod of the namespace ``team`` with one container, ``main``."""
    main = ContainerDevices(name="main", resources=resources, claims=claims)
    return PodDevices(namespace="team", name=name, containers=(main,))


def test_holders_are_told_with_container_and_resource() -> None:
    """In the kubelet's order; whoever has no GPU is left out."""
    pods = [
        pod("idle"),
        PodDevices(
            namespace="team",
            name="job",
            containers=(
                ContainerDevices(name="main", resources=(given_("nvidia.com/gpu", B, A),)),
                ContainerDevices(name="log", resources=(given_("acme.com/nic", "0"),)),
                ContainerDevices(
                    name="side", resources=(given_("nvidia.com/gpu.shared", f"{C}::1"),)
                ),
            ),
        ),
    ]

    found = allocation(pods, (), NAMES)

    assert found == NodeAllocation(
        pods=frozenset({"team/idle", "team/job"}),
        containers=(
            GpuContainer(
                namespace="team",
                pod="job",
                container="main",
                devices=(
                    AllocatedDevice(part=GpuPart(bus_id=BUS_B), resource="nvidia.com/gpu", id=B),
                    AllocatedDevice(part=GpuPart(bus_id=BUS_A), resource="nvidia.com/gpu", id=A),
                ),
            ),
            GpuContainer(
                namespace="team",
                pod="job",
                container="side",
                devices=(
                    AllocatedDevice(
                        part=GpuPart(bus_id=BUS_C),
                        resource="nvidia.com/gpu.shared",
                        id=f"{C}::1",
                        share="1",
                    ),
                ),
            ),
        ),
        allocated={"nvidia.com/gpu": 2, "nvidia.com/gpu.shared": 1},
    )


@pytest.mark.parametrize(
    ("resource", "counts"),
    [
        ("nvidia.com/gpu", True),
        ("nvidia.com/gpu.shared", True),
        ("nvidia.com/mig-1g.5gb", True),
        ("nvidia.com/mig-1g.5gb.shared", True),
        ("acme.com/tesla", True),
        ("acme.com/tesla.shared", True),
        ("acme.com/cut.shared", True),
        ("acme.com/cut", False),
        ("nvidia.com/gpumem", False),
        ("nvidia.com/GPU", False),
        ("amd.com/gpu", False),
        ("", False),
    ],
)
def test_gpu_resources_count_by_their_names(resource: str, counts: bool) -> None:
    """NVIDIA's own, and those that somebody configured."""
    names = ("acme.com/tesla", "acme.com/cut.shared")

    found = allocation([pod("job", given_(resource, A))], (), NAMES, resources=names)

    assert bool(found.containers) is counts
    assert found.unknown == frozenset()


def test_a_claims_devices_are_held_too() -> None:
    """Under their driver's name, with all that the kubelet tells of the claim."""
    claim = ClaimedDevice(
        claim="one", driver="gpu.nvidia.com", pool="node-a", device="gpu-3", share="s"
    )

    found = allocation([pod("job", claims=(claim,))], (), NAMES)

    assert found.containers[0].devices == (
        AllocatedDevice(
            part=GpuPart(bus_id=BUS_D),
            resource="gpu.nvidia.com",
            id="node-a/gpu-3",
            share="s",
            claim=claim,
        ),
    )


def test_names_of_no_device_are_told_and_counted_once() -> None:
    """Whoever holds them; a container with nothing else holds nothing."""
    claims = (
        ClaimedDevice(claim="c", driver="gpu.nvidia.com", pool="p", device="gpu-9"),
        ClaimedDevice(claim="c", cdi=("k8s.gpu.nvidia.com/device=gpu-8",)),
        ClaimedDevice(claim="c", driver="acme.com", pool="p", device="gpu-9"),
    )
    pods = [pod("one", given_("nvidia.com/gpu", "all")), pod("two", claims=claims)]

    found = allocation(pods, [given_("nvidia.com/gpu", "all")], NAMES)

    assert found == NodeAllocation(
        pods=frozenset({"team/one", "team/two"}),
        unknown=frozenset(
            {
                UnknownDevice(resource="nvidia.com/gpu", id="all"),
                UnknownDevice(resource="gpu.nvidia.com", id="p/gpu-9"),
                UnknownDevice(resource="gpu.nvidia.com", id="k8s.gpu.nvidia.com/device=gpu-8"),
            }
        ),
        allocatable={"nvidia.com/gpu": 1},
        allocated={"nvidia.com/gpu": 1},
    )


def test_whole_gpus_are_those_offered_undivided_and_unshared() -> None:
    """By device plugins; what a GPU is offered as beside does not matter."""
    mig = build.mig_device(gi=3)
    cut = build.gpu(4, mig_devices=(mig,))
    offered = [
        given_("nvidia.com/gpu", A),
        given_("nvidia.com/gpu", f"{B}::0", f"{B}::1"),
        given_("nvidia.com/gpu.shared", C),
        given_("nvidia.com/mig-1g.5gb", mig.uuid),
        given_("acme.com/nic", D),
    ]

    found = allocation((), offered, DeviceNames(build.node([*GPUS, cut])))

    assert found.whole == {BUS_A}


def test_devices_are_counted_by_resource_as_the_kubelet_has_them() -> None:
    """Shares one by one, what is held twice once; claims and what is no GPU are left out."""
    claim = ClaimedDevice(claim="c", driver="gpu.nvidia.com", pool="p", device="gpu-3")
    offered = [
        given_("nvidia.com/gpu", A, B),
        given_("nvidia.com/gpu.shared", f"{C}::0", f"{C}::1"),
        given_("nvidia.com/gpu", "all"),
        given_("acme.com/nic", "0"),
    ]
    pods = [
        pod("old", given_("nvidia.com/gpu", A)),
        pod("new", given_("nvidia.com/gpu", A), given_("acme.com/nic", "0")),
        pod("gone", given_("nvidia.com/mig-1g.5gb", "MIG-gone"), claims=(claim,)),
    ]

    found = allocation(pods, offered, NAMES)

    assert found.allocatable == {"nvidia.com/gpu": 3, "nvidia.com/gpu.shared": 2}
    assert found.allocated == {"nvidia.com/gpu": 1, "nvidia.com/mig-1g.5gb": 1}


def test_a_pods_gpus_are_those_of_all_its_containers() -> None:
    """Pods of one name in two namespaces are two; a part of a GPU counts as the GPU."""
    other = PodDevices(
        namespace="other",
        name="job",
        containers=(ContainerDevices(name="main", resources=(given_("nvidia.com/gpu", D),)),),
    )
    pods = [
        pod("job", given_("nvidia.com/gpu", A, f"{B}::0")),
        pod("job", given_("nvidia.com/gpu", f"{B}::1")),
        other,
    ]

    assert allocation(pods, (), NAMES).by_pod == {
        ("team", "job"): {BUS_A, BUS_B},
        ("other", "job"): {BUS_D},
    }
