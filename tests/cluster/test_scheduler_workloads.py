# SPDX-License-Identifier: Apache-2.0
"""Pods of queues, job sets and claims, as those programs write them, through our scheduler.

Keys and gates: Kueue, pkg/controller/jobs/pod/constants and apis/kueue/v1beta1; JobSet,
api/jobset/v1alpha2/jobset_types.go.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from api import keys
from tests.agent.agent_process import until
from tests.cluster import gpu_fleet
from tests.cluster.extender import PATIENT, Extender, extender
from tests.cluster.front import Front, forwarded
from tests.cluster.gpu_fleet import Written
from tests.cluster.scheduling import GPU, SERVICE, Stage, configuration
from tests.controlplane.families import CONTROLLER_MANAGER_MINOR
from tests.controlplane.plane import MERGE_PATCH, Object
from tests.controlplane.versions import VERSIONS

pytestmark = pytest.mark.cluster

FLAVOR = "example.com/flavor"
TRAYS = tuple(
    Written(
        name=f"tray-{clique}-{number}",
        machine="gb200",
        labels={keys.CLIQUE: f"{clique}.1", "example.com/rack": "yes"},
    )
    for clique in "abc"
    for number in range(3)
)
"""Three NVL72 racks, of each three trays of four GPUs."""
RACKS = {"nodeSelector": {"example.com/rack": "yes"}}
HALL = "example.com/hall"
NODES = tuple(
    Written(name=f"node-{number}", machine="hgx-h100", labels={FLAVOR: flavor, HALL: "yes"})
    for number, flavor in enumerate(("spot", "spot", "reserved", "reserved"))
)
MESHES = tuple(
    Written(name=f"mesh-{number}", machine="dgx1-v100", labels={HALL: "yes"}) for number in range(4)
)
"""In one hall with those, and slower."""
IN_HALL = {"nodeSelector": {HALL: "yes"}}

ADMISSION, TOPOLOGY = "kueue.x-k8s.io/admission", "kueue.x-k8s.io/topology"

CLASS, DRIVER = "gpu.example.com", "gpu.example.com"


@pytest.fixture(scope="module", params=VERSIONS)
def stage(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stage]:
    with Stage.running(tmp_path_factory.mktemp("stage"), request.param) as made:
        gpu_fleet.add_nodes(made.plane, (*NODES, *MESHES, *TRAYS))
        gpu_fleet.tell_states(made.plane, (*NODES, *MESHES, *TRAYS))
        yield made


@pytest.fixture(scope="module")
def helper(stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Extender]:
    with extender(stage, tmp_path_factory.mktemp("extender"), PATIENT) as made:
        yield made


@pytest.fixture(scope="module")
def front(stage: Stage, helper: Extender) -> Iterator[Front]:
    """Passes calls on to the extender, and remembers them."""
    made = Front(stage.server, forwarded(helper.port, stage.client, SERVICE))
    with made.serving() as address:
        stage.start_scheduler(configuration(address, stage.client, timeout="30s"))
        yield made


@pytest.fixture(autouse=True)
def _empty(stage: Stage) -> Iterator[None]:
    yield
    stage.remove_pods()


def asked(front: Front, pod: str) -> list[list[str]]:
    """The nodes of each call about a pod."""
    calls = [call for call in front.calls if call["Pod"]["metadata"]["name"] == pod]
    return [call["NodeNames"] for call in calls]


def queued(stage: Stage, gpus: int, *gates: str) -> str:
    """A pod that Kueue holds back."""
    return stage.add_pod(
        gpus,
        labels={"kueue.x-k8s.io/queue-name": "team-a", "kueue.x-k8s.io/managed": "true"},
        spec={"schedulingGates": [{"name": gate} for gate in gates]},
    )


def admit(stage: Stage, pod: str, **selector: str) -> None:
    """What Kueue does when there is quota: the flavor's node labels, and the gates go."""
    patch = {"spec": {"schedulingGates": None, "nodeSelector": selector}}
    stage.plane.demand("PATCH", stage.path(pod), patch, content_type=MERGE_PATCH)


def test_a_pod_that_kueue_admits_is_ranked_among_the_nodes_of_its_flavor(
    stage: Stage, front: Front
) -> None:
    held = queued(stage, 2, ADMISSION)
    stage.placed(stage.add_pod(2))  # the scheduler has been at work since
    before = asked(front, held), stage.node_of(held)

    admit(stage, held, **{FLAVOR: "reserved"})
    node = stage.placed(held)

    assert before == ([], None)
    assert [sorted(names) for names in asked(front, held)] == [["node-2", "node-3"]]
    assert node in ("node-2", "node-3")


def test_a_pod_that_kueue_pins_to_a_node_is_placed_without_a_question(
    stage: Stage, front: Front
) -> None:
    """Topology-aware scheduling with the hostname as its lowest level leaves one candidate."""
    held = queued(stage, 2, ADMISSION, TOPOLOGY)
    admit(stage, held, **{"kubernetes.io/hostname": "node-1"})

    assert stage.placed(held) == "node-1"
    assert asked(front, held) == []


def of_job_set(name: str, job: int) -> dict[str, Any]:
    """What JobSet and the Job controller write into a pod of the job of this number."""
    both = {
        "jobset.sigs.k8s.io/jobset-name": name,
        "jobset.sigs.k8s.io/replicatedjob-name": "workers",
        "jobset.sigs.k8s.io/job-index": str(job),
        "jobset.sigs.k8s.io/job-global-index": str(job),
        "jobset.sigs.k8s.io/job-key": f"{name}-{job}",
        "jobset.sigs.k8s.io/restart-attempt": "0",
    }
    job_name = f"{name}-workers-{job}"
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": job_name,
        "uid": f"{job:08}-0000-4000-8000-000000000000",
        "controller": True,
    }
    return {
        "labels": {**both, "batch.kubernetes.io/job-name": job_name, "job-name": job_name},
        "annotations": {**both, "batch.kubernetes.io/job-completion-index": "0"},
        "ownerReferences": [owner],
    }


@pytest.mark.parametrize("job_set", ["first", "second"])
@pytest.mark.usefixtures("front")
def test_the_pods_of_a_job_set_gather_in_one_nvlink_clique(
    stage: Stage, helper: Extender, job_set: str
) -> None:
    """Though each of its jobs is a controller of its own. Twice: once may be luck."""
    nodes = []
    for job in range(3):
        pod = stage.add_pod(4, spec=RACKS, **of_job_set(job_set, job))
        nodes.append(stage.placed(pod))
        until(partial(knows, helper, nodes[-1], pod))

    assert len(set(nodes)) == 3
    assert len({node.rpartition("-")[0] for node in nodes}) == 1


@pytest.mark.usefixtures("front")
def test_the_pods_of_a_job_stay_on_the_product_of_its_first_pod_when_faster_nodes_come_free(
    stage: Stage, helper: Extender
) -> None:
    """A pod of no job takes one of the four faster nodes, which are free by then."""
    others = {node.name: stage.add_pod(8, spec={"nodeName": node.name}) for node in NODES}
    for node, pod in others.items():
        until(partial(knows, helper, node, pod))
    nodes = []
    for job in range(4):
        pod = stage.add_pod(8, spec=IN_HALL, **of_job_set("wide", job))
        nodes.append(stage.placed(pod))
        until(partial(knows, helper, nodes[-1], pod))
        for other in others.values() if job == 0 else ():
            stage.remove_pod(other)
        until(lambda: not any(knows(helper, *other) for other in others.items()))
    alone = stage.placed(stage.add_pod(8, spec=IN_HALL))

    assert sorted(nodes) == [node.name for node in MESHES]
    assert alone in others


def knows(helper: Extender, node: str, pod: str) -> bool:
    """Whether the extender has seen that this pod is bound there."""
    return pod.encode() in helper.ask("GET", f"/debug/nodes/{node}")[1]


def claim_classes(stage: Stage) -> None:
    """A device class with two devices on each of two nodes."""
    selector = {"cel": {"expression": f"device.driver == '{DRIVER}'"}}
    body = {"metadata": {"name": CLASS}, "spec": {"selectors": [selector]}}
    stage.plane.demand("POST", "/apis/resource.k8s.io/v1/deviceclasses", body)
    for node in ("node-0", "node-1"):
        add_devices(stage, DRIVER, node)


def add_devices(stage: Stage, driver: str, node: str) -> None:
    """What a driver offers on a node: two devices."""
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    devices = [{"name": f"gpu-{number}"} for number in range(2)]
    spec = {"driver": driver, "nodeName": node, "pool": pool, "devices": devices}
    body = {"metadata": {"name": f"{driver}-{node}"}, "spec": spec}
    stage.plane.demand("POST", "/apis/resource.k8s.io/v1/resourceslices", body)


def claim(stage: Stage, name: str) -> Object:
    """A claim of one device, and what a pod's spec says of it."""
    exactly = {"deviceClassName": CLASS}
    body = {
        "metadata": {"name": name},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
    }
    path = f"/apis/resource.k8s.io/v1/namespaces/{stage.namespace}/resourceclaims"
    stage.plane.demand("POST", path, body)
    return {"resourceClaims": [{"name": "gpu", "resourceClaimName": name}]}


@pytest.mark.parametrize("stage", [CONTROLLER_MANAGER_MINOR], indirect=True)
def test_a_pod_with_claims_is_left_to_the_driver_and_one_with_both_is_ranked_where_its_claim_fits(
    stage: Stage, front: Front
) -> None:
    """Claims of Kubernetes 1.34 and later, where they are on by default."""
    claim_classes(stage)
    alone = stage.add_pod(0, spec=claim(stage, "alone"))
    both = stage.add_pod(2, spec=claim(stage, "both"))

    assert stage.placed(alone) in ("node-0", "node-1")
    assert asked(front, alone) == []
    assert stage.placed(both) in ("node-0", "node-1")
    assert [sorted(names) for names in asked(front, both)] == [["node-0", "node-1"]]


@pytest.mark.parametrize("stage", [CONTROLLER_MANAGER_MINOR], indirect=True)
def test_gpus_of_a_driver_under_the_device_plugins_name_are_placed_without_an_opinion(
    stage: Stage, front: Front
) -> None:
    """A class may stand for an extended resource, by default from Kubernetes 1.36 on."""
    plane, api = stage.plane, "/apis/resource.k8s.io/v1"
    driver = "whole.example.com"
    selector = {"cel": {"expression": f"device.driver == '{driver}'"}}
    spec = {"selectors": [selector], "extendedResourceName": GPU}
    plane.demand("POST", f"{api}/deviceclasses", {"metadata": {"name": driver}, "spec": spec})
    for node in ("dra-0", "dra-1"):
        plane.make_node(node, labels={FLAVOR: "dra"})
        add_devices(stage, driver, node)

    pod = stage.add_pod(2, spec={"nodeSelector": {FLAVOR: "dra"}})

    assert stage.placed(pod) in ("dra-0", "dra-1")
    assert [sorted(names) for names in asked(front, pod)] == [["dra-0", "dra-1"]]
    assert front.replies[-1] == b"[]"
