# SPDX-License-Identifier: Apache-2.0
"""Devices that the scheduler chose, as the kubelet tells them."""

from __future__ import annotations

from kube.api import Object
from kubelet.podresources.allocation_model import ClaimedDevice
from tests.kubelet_nodes.cases import claim, container
from tests.kubelet_nodes.claims import claim_names, claimed, is_allocated

TWO = claim("two", "gpu-0", "gpu-1")


def using(*claims: Object) -> Object:
    """A container that uses these of the pod's claims."""
    return {**container("main", 0), "resources": {"claims": list(claims)}}


def devices(*claims: Object) -> list[str]:
    return [each.device for each in claimed(using(*claims), {"mine": TWO})]


def test_a_container_has_all_devices_of_a_claim_that_it_uses() -> None:
    assert devices({"name": "mine"}) == ["gpu-0", "gpu-1"]


def test_a_container_has_the_devices_of_the_request_that_it_names() -> None:
    assert devices({"name": "mine", "request": "r1"}) == ["gpu-1"]


def test_an_alternative_of_a_request_counts_as_the_request() -> None:
    chosen = claim("choice", "gpu-3")
    (result,) = chosen["status"]["allocation"]["devices"]["results"]
    result["request"] = "r0/large"
    (device,) = claimed(using({"name": "mine", "request": "r0"}), {"mine": chosen})
    assert device.device == "gpu-3"


def test_a_container_that_uses_no_claim_has_none_of_its_devices() -> None:
    assert devices() == []


def test_a_device_has_its_cdi_name_in_the_class_of_its_claim() -> None:
    (device, _) = claimed(using({"name": "mine"}), {"mine": TWO})
    assert device == ClaimedDevice(
        claim="two",
        driver="gpu.nvidia.com",
        pool="node-a",
        device="gpu-0",
        cdi=(f"k8s.gpu.nvidia.com/claim={TWO['metadata']['uid']}-gpu-0",),
    )


def test_a_claim_made_from_a_template_has_the_name_in_the_pods_status() -> None:
    pod = {
        "spec": {
            "resourceClaims": [
                {"name": "given", "resourceClaimName": "two"},
                {"name": "made", "resourceClaimTemplateName": "t"},
                {"name": "awaited", "resourceClaimTemplateName": "t"},
            ]
        },
        "status": {"resourceClaimStatuses": [{"name": "made", "resourceClaimName": "p-made-x"}]},
    }
    assert claim_names(pod) == {"given": "two", "made": "p-made-x", "awaited": None}


def test_a_claim_is_allocated_as_soon_as_the_scheduler_has_chosen() -> None:
    assert is_allocated(TWO)
    assert not is_allocated({"metadata": {}, "status": {}})
