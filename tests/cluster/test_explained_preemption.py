# SPDX-License-Identifier: Apache-2.0
"""``scheduler explain`` says which pods kube-scheduler then deletes, where, and for whom it keeps
the room."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cli.main import main
from scheduler.filters.filter_notes import NO_CANDIDATE, ONE_CANDIDATE
from tests.agent.agent_process import until
from tests.cluster import gpu_fleet
from tests.cluster.gpu_fleet import Written
from tests.cluster.scheduling import GPU, PROFILE, Stage, configuration
from tests.controlplane.plane import Object
from tests.controlplane.versions import VERSIONS

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

NODES = tuple(Written(name=f"node-{number}", machine="dgx1-v100") for number in (1, 2, 3))
CLASSES: dict[str, Object] = {
    "low": {"value": 10},
    "middle": {"value": 20},
    "high": {"value": 30},
    "highest": {"value": 40},
    "patient": {"value": 30, "preemptionPolicy": "Never"},
}
PREEMPTS = re.compile(
    r"No node is left, so the scheduler preempts: it deletes (.*) on (\S+)\. No extender"
)
WHOLE = (("whole-1", "node-1", 8, "high"), ("whole-3", "node-3", 8, "high"))
"""Two nodes that nobody below ``highest`` can have."""


@pytest.fixture(scope="module", params=VERSIONS)
def stage(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("stage")
    with Stage.running(folder, request.param) as made:
        gpu_fleet.add_nodes(made.plane, NODES)
        gpu_fleet.tell_states(made.plane, NODES)
        for name, content in CLASSES.items():
            body = {"metadata": {"name": name}, **content}
            made.plane.demand("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", body)
        made.start_scheduler(configuration(None, made.client))
        yield made


@pytest.fixture(autouse=True)
def _empty(stage: Stage) -> Iterator[None]:
    yield
    stage.remove_pods()


def fill(stage: Stage, *pods: tuple[str, str, int, str], grace_seconds: int = 0) -> None:
    """Have these bound pods: name, node, GPUs and class."""
    for name, node, gpus, class_ in pods:
        spec = {
            "nodeName": node,
            "priorityClassName": class_,
            "terminationGracePeriodSeconds": grace_seconds,
        }
        stage.add_pod(gpus, name=name, spec=spec)


def explained(stage: Stage, *arguments: str) -> tuple[list[str], list[str]]:
    """Candidates and notes."""
    kubeconfig = str(stage.plane.kubeconfig())
    command = ("scheduler", "explain", *arguments, "--kubeconfig", kubeconfig, "-o", "json")
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 0, result.output
    answer = json.loads(result.output)
    return [node["node"] for node in answer["nodes"]], answer["notes"]


def explained_manifest(
    stage: Stage, folder: Path, gpus: int, class_: str
) -> tuple[list[str], list[str]]:
    """The same of a pod that is not there yet."""
    container = {"name": "main", "resources": {"limits": {GPU: str(gpus)}}}
    spec = {"schedulerName": PROFILE, "priorityClassName": class_, "containers": [container]}
    metadata = {"name": "not-there", "namespace": stage.namespace}
    file = folder / "pod.json"
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    file.write_text(json.dumps(pod), encoding="utf-8")
    return explained(stage, "-f", str(file))


def foretold(notes: list[str]) -> tuple[str, set[str]]:
    """Node and names of the pods that are deleted there."""
    found = PREEMPTS.match(notes[0])
    assert found is not None, notes
    return found[2], {name.partition("/")[2] for name in re.findall(r"(\S+) \(priority", found[1])}


def pods_of(stage: Stage) -> Mapping[str, Any]:
    """All pods that nobody has deleted, by name."""
    listed = stage.plane.demand("GET", f"/api/v1/namespaces/{stage.namespace}/pods")["items"]
    kept = [pod for pod in listed if "deletionTimestamp" not in pod["metadata"]]
    return {pod["metadata"]["name"]: pod for pod in kept}


def nominated(stage: Stage, pod: str) -> str:
    """The node for which it is nominated, as soon as it is."""
    until(lambda: "nominatedNodeName" in stage.pod(pod)["status"])
    return str(stage.pod(pod)["status"]["nominatedNodeName"])


def wait_until_refused(stage: Stage, pod: str) -> None:
    """Wait until the scheduler has found no node for it."""
    until(
        lambda: any(
            condition.get("reason") == "Unschedulable"
            for condition in stage.pod(pod)["status"].get("conditions", ())
        )
    )


def test_the_foretold_pods_are_deleted_on_the_foretold_node(stage: Stage, tmp_path: Path) -> None:
    fill(
        stage,
        *(("m-1", "node-1", 4, "middle"), ("m-2", "node-1", 4, "middle")),
        *(("l-3", "node-2", 2, "low"), ("l-4", "node-2", 2, "low"), ("m-5", "node-2", 4, "middle")),
        *(("l-6", "node-3", 2, "low"), ("m-7", "node-3", 6, "middle")),
    )
    before = set(pods_of(stage))

    _, notes = explained_manifest(stage, tmp_path, 4, "high")
    pod = stage.add_pod(4, spec={"priorityClassName": "high"})
    node = stage.placed(pod)

    assert foretold(notes) == (node, before - set(pods_of(stage)))
    assert node == "node-2"


def test_one_more_important_victim_is_worse_than_two(stage: Stage, tmp_path: Path) -> None:
    fill(
        stage,
        *(("m-1", "node-1", 8, "middle"), ("h-2", "node-2", 8, "high")),
        *(("l-3", "node-3", 4, "low"), ("l-4", "node-3", 4, "low")),
    )
    before = set(pods_of(stage))

    _, notes = explained_manifest(stage, tmp_path, 8, "high")
    node = stage.placed(stage.add_pod(8, spec={"priorityClassName": "high"}))

    assert foretold(notes) == (node, before - set(pods_of(stage))) == ("node-3", {"l-3", "l-4"})


@pytest.mark.parametrize("class_", ["patient", "middle"])
def test_a_pod_that_may_preempt_nobody_stays_pending(
    stage: Stage, tmp_path: Path, class_: str
) -> None:
    """By its policy, or because no pod is below it."""
    fill(stage, *WHOLE, ("m-2", "node-2", 8, "middle"))

    _, notes = explained_manifest(stage, tmp_path, 2, class_)
    pod = stage.add_pod(2, spec={"priorityClassName": class_})
    wait_until_refused(stage, pod)

    assert notes == [NO_CANDIDATE]
    assert "nominatedNodeName" not in stage.pod(pod)["status"]
    assert {"whole-1", "m-2", "whole-3"} <= set(pods_of(stage))


def test_room_that_preemption_makes_is_kept_from_equals_and_not_from_those_above(
    stage: Stage, tmp_path: Path
) -> None:
    """Half of node-2 is free all the time; its other half is ending for a pod that needs all."""
    fill(stage, *WHOLE)
    fill(stage, ("ending", "node-2", 4, "low"), grace_seconds=600)
    first = stage.add_pod(8, name="first", spec={"priorityClassName": "high"})
    node = nominated(stage, first)

    of_first = explained(stage, first, "-n", stage.namespace)
    of_equal = explained_manifest(stage, tmp_path, 4, "high")
    of_higher = explained_manifest(stage, tmp_path, 4, "highest")
    equal = stage.add_pod(4, spec={"priorityClassName": "high"})
    wait_until_refused(stage, equal)
    higher = stage.placed(stage.add_pod(4, spec={"priorityClassName": "highest"}))

    ending = f"{stage.namespace}/ending"
    waits = f"No node is left now. Preemption makes room on node-2: the pod waits for {ending}."
    kept = f"Room on node-2 is reserved for {stage.namespace}/first: nominated, and not bound yet."
    assert of_first == ([], [waits])
    assert of_equal == ([], [NO_CANDIDATE, kept])
    assert of_higher == (["node-2"], [ONE_CANDIDATE])
    assert stage.node_of(equal) is None
    assert (node, higher) == ("node-2", "node-2")
