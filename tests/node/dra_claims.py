# SPDX-License-Identifier: Apache-2.0
"""GPUs of a real node by dynamic resource allocation: slices, a class, claims, and who has what.

The judge is the scheduler's allocation in the ResourceClaims.
"""

from __future__ import annotations

import http.client
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tests.agent.agent_process import until
from tests.controlplane.plane import Object, Plane
from tests.controlplane.programs import ROOT
from tests.node.attribution import Holding, Part
from tests.node.dra_driver import DRIVER, REGISTERED
from tests.node.gpu_cluster import NAMESPACE
from tests.node.real_node import SOON, RealNode

API: Final = "/apis/resource.k8s.io/v1"
CLAIMS: Final = f"{API}/namespaces/{NAMESPACE}/resourceclaims"
EXTENDED: Final = "example.com/gpu"
"""The resource that the class serves as well: a pod asks for it without naming a claim."""
PROGRAM: Final = "dra-driver"


def start_driver(plane: Plane, node: RealNode, gpus: Mapping[str, str]) -> None:
    """Start the driver and publish its devices: name to a GPU's UUID."""
    kubeconfig = str(node.folder / "kubeconfig.json")
    command = [sys.executable, "-m", "tests.node.dra_driver", kubeconfig]
    node.programs.start(PROGRAM, command, cwd=ROOT)
    log = node.programs.log(PROGRAM)
    # a pod that comes before would wait for the kubelet's next try
    node.programs.wait(PROGRAM, lambda: REGISTERED in log.read_text(), seconds=SOON)
    devices = [
        {"name": name, "attributes": {"uuid": {"string": uuid}}} for name, uuid in gpus.items()
    ]
    pool = {"name": node.name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": node.name, "pool": pool, "devices": devices}
    plane.demand("POST", f"{API}/resourceslices", {"metadata": {"name": node.name}, "spec": spec})
    selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
    spec = {"selectors": [selector], "extendedResourceName": EXTENDED}
    plane.demand("POST", f"{API}/deviceclasses", {"metadata": {"name": DRIVER}, "spec": spec})


def stop_driver(plane: Plane, node: RealNode) -> None:
    """End it when no pod has a claim any more, and take back what it published."""
    until(lambda: not plane.demand("GET", CLAIMS)["items"], SOON)
    node.stop(PROGRAM)
    for path in (f"resourceslices/{node.name}", f"deviceclasses/{DRIVER}"):
        plane.request("DELETE", f"{API}/{path}")


def make_claim(plane: Plane, name: str, **requests: int) -> None:
    """Request to how many GPUs."""
    asked = [
        {"name": request, "exactly": {"deviceClassName": DRIVER, "count": number}}
        for request, number in requests.items()
    ]
    spec = {"devices": {"requests": asked}}
    plane.demand("POST", CLAIMS, {"metadata": {"name": name}, "spec": spec})


def delete_claim(plane: Plane, name: str) -> None:
    """Delete it; it is gone when its last pod is."""
    answer = plane.request("DELETE", f"{CLAIMS}/{name}")
    assert answer.status in (http.client.OK, http.client.ACCEPTED), answer


def with_claim(pod: Object, claim: str, containers: Mapping[str, str | None]) -> Object:
    """The pod with a claim, used by these containers: all of it, or the request that is named."""
    pod["spec"]["resourceClaims"] = [{"name": "claim", "resourceClaimName": claim}]
    for container in pod["spec"]["containers"]:
        if container["name"] in containers:
            request = containers[container["name"]]
            used = {"name": "claim"} | ({} if request is None else {"request": request})
            container["resources"]["claims"] = [used]
    return pod


def allocated(plane: Plane, claim: str, gpus: Mapping[str, str]) -> frozenset[Part]:
    """The GPUs that the scheduler chose for a claim; none while it has not."""
    found = plane.demand("GET", f"{CLAIMS}/{claim}")
    return frozenset(_allocated(found, gpus))


def claims_of_pods(plane: Plane, gpus: Mapping[str, str]) -> frozenset[Holding]:
    """Of all running pods: each container that uses a claim, with all of the claim's GPUs.

    Also where it uses one of several requests alone: the kubelet reports a claim as a whole.
    """
    claims = {it["metadata"]["name"]: it for it in plane.demand("GET", CLAIMS)["items"]}
    pods = plane.demand("GET", f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]
    return frozenset(
        (pod["metadata"]["name"], container, part)
        for pod in pods
        for container, claim in _uses(pod)
        for part in _allocated(claims[claim], gpus)
    )


def _uses(pod: Object) -> Iterator[tuple[str, str]]:
    """Container and name of a ResourceClaim."""
    named = {it["name"]: it["resourceClaimName"] for it in pod["spec"].get("resourceClaims", ())}
    for container in pod["spec"]["containers"]:
        for used in container["resources"].get("claims", ()):
            yield container["name"], named[used["name"]]
    extended = pod["status"].get("extendedResourceClaimStatus")
    if extended:
        for mapping in extended["requestMappings"]:
            yield mapping["containerName"], extended["resourceClaimName"]


def _allocated(claim: Mapping[str, Any], gpus: Mapping[str, str]) -> Iterator[Part]:
    devices = claim.get("status", {}).get("allocation", {}).get("devices", {})
    for result in devices.get("results", ()):
        yield gpus[result["device"]], ""
