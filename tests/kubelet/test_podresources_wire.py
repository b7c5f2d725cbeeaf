# SPDX-License-Identifier: Apache-2.0
"""The pod-resources messages are on the wire what the kubelet's are."""

from __future__ import annotations

from kubelet.podresources.podresources_pb2 import DESCRIPTOR

NUMBERS = {
    "ListPodResourcesRequest": {},
    "ListPodResourcesResponse": {"pod_resources": 1},
    "AllocatableResourcesRequest": {},
    "AllocatableResourcesResponse": {"devices": 1},
    "PodResources": {"name": 1, "namespace": 2, "containers": 3},
    "ContainerResources": {"name": 1, "devices": 2, "dynamic_resources": 5},
    "ContainerDevices": {"resource_name": 1, "device_ids": 2, "topology": 3},
    "TopologyInfo": {"nodes": 1},
    "NUMANode": {"ID": 1},
    "DynamicResource": {"claim_name": 2, "claim_namespace": 3, "claim_resources": 4},
    "ClaimResource": {
        "cdi_devices": 1,
        "driver_name": 2,
        "pool_name": 3,
        "device_name": 4,
        "share_id": 5,
    },
    "CDIDevice": {"name": 1},
}
"""Source: k8s.io/kubelet v0.37.1, pkg/apis/podresources/v1/api.proto; the same in v0.32.2,
which has no share_id yet."""


def test_field_numbers_are_the_kubelets() -> None:
    """A wrong number would read as an absent field."""
    assert {
        name: {field.name: field.number for field in message.fields}
        for name, message in DESCRIPTOR.message_types_by_name.items()
    } == NUMBERS


def test_service_and_methods_are_the_kubelets() -> None:
    """They make the path of each request."""
    assert DESCRIPTOR.package == "v1"
    assert [*DESCRIPTOR.services_by_name] == ["PodResourcesLister"]
    methods = DESCRIPTOR.services_by_name["PodResourcesLister"].methods
    assert [method.name for method in methods] == ["List", "GetAllocatableResources"]


def test_the_file_is_known_by_its_whole_path() -> None:
    """A process has one registry, and another package's podresources.proto must fit in too."""
    assert DESCRIPTOR.name == "kubelet/podresources/podresources.proto"
