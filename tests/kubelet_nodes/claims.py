# SPDX-License-Identifier: Apache-2.0
"""What the kubelet tells of devices that the scheduler chose: dynamic resource allocation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kube.api import Object
from kubelet.podresources.allocation_model import ClaimedDevice

Claims = Mapping[str, Object]
"""By the name that the pod has for it: the ResourceClaim."""


def claim_names(pod: Object) -> dict[str, str | None]:
    """The pod's name for each of its claims to the ResourceClaim's own; None until it is made."""
    statuses = (pod.get("status") or {}).get("resourceClaimStatuses", ())
    made = {each["name"]: each.get("resourceClaimName") for each in statuses}
    return {
        each["name"]: each.get("resourceClaimName") or made.get(each["name"])
        for each in pod["spec"].get("resourceClaims", ())
    }


def is_allocated(claim: Object) -> bool:
    """The scheduler has chosen its devices."""
    return "allocation" in (claim.get("status") or {})


def claimed(container: Object, claims: Claims) -> tuple[ClaimedDevice, ...]:
    """The devices that the container has of the pod's claims."""
    used = (container.get("resources") or {}).get("claims", ())
    return tuple(
        device
        for each in used
        if each["name"] in claims
        for device in _devices(claims[each["name"]], each.get("request"))
    )


def _devices(claim: Object, request: str | None) -> Iterator[ClaimedDevice]:
    """Of one request of the claim, of all where none is named."""
    meta = claim["metadata"]
    for result in claim["status"]["allocation"].get("devices", {}).get("results", ()):
        # "request/alternative" where the claim gave the scheduler a choice
        if request in (None, result["request"].partition("/")[0]):
            yield ClaimedDevice(
                claim=meta["name"],
                driver=result["driver"],
                pool=result["pool"],
                device=result["device"],
                share=result.get("shareID", ""),
                cdi=(_cdi_name(result["driver"], meta["uid"], result["device"]),),
            )


def _cdi_name(driver: str, uid: str, device: str) -> str:
    """As NVIDIA's driver prepares it, in a class of claims. Source: its gpu-kubelet-plugin/cdi.go.

    Of any other driver too, whose names are its own affair.
    """
    return f"k8s.{driver}/claim={uid}-{device}"
