# SPDX-License-Identifier: Apache-2.0
"""The files of ``examples/`` on a real API server, scheduler and quota controller.

Nodes and their pods are KWOK's, so no container runs.
"""

from __future__ import annotations

import http.client
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from api.mig_resources import MigStrategy
from labelers import plugin_config
from labelers.label_settings import PluginConfig
from tests import examples, pages
from tests.agent.agent_process import GPUSCAPE, until
from tests.cluster.example_teams import (
    GPU,
    MIG,
    PAIRS,
    SHARED,
    TAINTS,
    apply,
    team_planes,
    type_block,
)
from tests.controlplane.plane import MERGE_PATCH, Object, Plane
from tests.deploy import chart
from tests.deploy.daemonset import DEPLOY
from tests.examples import FOLDER, member
from tests.reused import Reused

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

GRACE_SECONDS: Final = 20
"""What an experiment has to end."""


@pytest.fixture(scope="module")
def planes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reused[Plane]]:
    """Planes as :func:`plane` lends them."""
    with team_planes(tmp_path_factory) as reused:
        yield reused


@pytest.fixture
def plane(request: pytest.FixtureRequest, planes: Reused[Plane]) -> Iterator[Plane]:
    """A node with eight GPUs, one with MIG devices, both with both taints, and one with shares."""
    with planes.lent(request.session) as lent:
        yield lent


def pods(plane: Plane, team: str, owner: str = "") -> list[Object]:
    """Of a team; those whose names begin so, and go on with what Kubernetes adds."""
    listed = plane.demand("GET", f"/api/v1/namespaces/{team}/pods")["items"]
    name = re.compile(rf"{owner}(-[0-9a-f]+)?(-[a-z0-9]{{5}})?" if owner else ".*")
    return [it for it in listed if name.fullmatch(it["metadata"]["name"])]


def is_started(plane: Plane, team: str, owner: str) -> bool:
    """Whether all of them run, or have run."""
    phases = {it["status"]["phase"] for it in pods(plane, team, owner)}
    return bool(phases) and phases <= {"Running", "Succeeded"}


def nodes_of(plane: Plane, team: str, owner: str) -> set[str]:
    """Where those pods are, and None."""
    return {it["spec"].get("nodeName") for it in pods(plane, team, owner)}


def pod_spec(of: Object) -> Object:
    """Of whatever makes pods."""
    spec: Object = of["spec"]
    return pod_spec(spec["template"]) if "template" in spec else spec


def remove(plane: Plane, *names: str) -> None:
    """What users applied; all pods are gone when this returns."""
    for name in names:
        options = ("--ignore-not-found", "--cascade=foreground", "--wait=false")
        plane.kubectl("-n", examples.USERS[name], "delete", *options, "-f", FOLDER / name)
    for team in examples.PEOPLE:
        until(lambda team=team: not pods(plane, team))  # type: ignore[misc]


def test_every_file_is_known_here() -> None:
    """And so is applied below; those that other programs read have a test of their own."""
    found = {str(it.relative_to(FOLDER)) for it in FOLDER.rglob("*") if it.is_file()}
    of_programs = {it for it in found if it.startswith(examples.OF_PROGRAMS)}

    assert found - of_programs == {*examples.ADMINS, *examples.USERS}
    assert len([it for it in of_programs if it.startswith("node-pools/")]) == 4


@pytest.mark.parametrize("name", sorted(examples.USERS))
def test_a_team_member_applies_it_strictly(plane: Plane, name: str) -> None:
    team = examples.USERS[name]
    assert "serverside-applied" in apply(plane, name, *member(team), "--dry-run=server")


def test_a_field_that_is_misspelt_would_be_noticed(plane: Plane, tmp_path: Path) -> None:
    text = (FOLDER / "training.yaml").read_text().replace("priorityClassName", "priorityClass")
    (tmp_path / "training.yaml").write_text(text)

    with pytest.raises(AssertionError, match="priorityClass"):
        apply(plane, str(tmp_path / "training.yaml"), *member("vision"))


@pytest.mark.parametrize("team", examples.PEOPLE)
def test_a_team_sees_and_changes_its_own_pods_alone(plane: Plane, team: str) -> None:
    (other,) = examples.PEOPLE.keys() - {team}
    who = (f"--as={examples.PEOPLE[team]}", f"--as-group={team}")

    def may(verb: str, resource: str, namespace: str) -> str:
        of, _, part = resource.partition("/")
        words = ("auth", "can-i", verb, of, f"--subresource={part}", "-n", namespace)
        try:
            return plane.kubectl(*who, *words).strip()
        except AssertionError:  # kubectl's exit code is that of the answer
            return "no"

    assert may("create", "pods", team) == may("create", "jobs.batch", team) == "yes"
    assert may("get", "pods", other) == may("create", "pods", other) == "no"
    assert may("update", "resourcequotas", team) == may("create", "pods/exec", team) == "no"
    assert may("patch", "nodes", team) == "no"


def test_classes_are_in_order_and_the_higher_may_preempt() -> None:
    classes = {it["metadata"]["name"]: it for it in examples.objects("priorities.yaml")}
    by_value = sorted(classes, key=lambda name: -classes[name]["value"])

    assert by_value == ["inference", "training", "experiment"]
    assert not any({"globalDefault", "preemptionPolicy"} & it.keys() for it in classes.values())


def test_a_team_over_its_quota_is_refused_and_told_of_what(plane: Plane) -> None:
    pod = {"metadata": {"name": "many"}, "spec": pod_spec(examples.only("training.yaml"))}
    pod["spec"]["containers"][0]["resources"] = {"limits": {GPU: "5"}}

    answer = plane.request("POST", "/api/v1/namespaces/vision/pods", pod)

    assert answer.status == http.client.FORBIDDEN
    said = "exceeded quota: gpus, requested: requests.nvidia.com/gpu=5, used: "
    assert said in answer.body["message"]
    assert "limited: requests.nvidia.com/gpu=4" in answer.body["message"]


def test_a_quota_of_limits_counts_no_gpus(plane: Plane) -> None:
    """It is taken, and holds nobody back: why the files have requests.* alone."""
    namespace = plane.namespace()
    path = f"/api/v1/namespaces/{namespace}"
    quota = {"metadata": {"name": "idle"}, "spec": {"hard": {f"limits.{GPU}": "1"}}}
    plane.demand("POST", f"{path}/resourcequotas", quota)
    until(lambda: "hard" in plane.demand("GET", f"{path}/resourcequotas/idle")["status"])
    container = {"name": "a", "image": "a", "resources": {"limits": {GPU: "5"}}}
    body = {"metadata": {"name": "many"}, "spec": {"containers": [container]}}

    made = plane.request("POST", f"{path}/pods?dryRun=All", body)

    assert made.status == http.client.CREATED, made.body


def test_the_highest_class_is_counted(plane: Plane) -> None:
    small: Object = {"priorityClassName": "inference", "containers": [{"name": "a", "image": "a"}]}
    path = "/api/v1/namespaces/speech/pods"
    bodies = [{"metadata": {"name": f"small-{it}"}, "spec": small} for it in range(3)]

    answers = [plane.request("POST", path, body) for body in bodies]
    for body in bodies[:2]:
        plane.demand("DELETE", f"{path}/{body['metadata']['name']}", {"gracePeriodSeconds": 0})

    assert [it.status for it in answers[:2]] == [http.client.CREATED] * 2
    assert "exceeded quota: inference" in answers[2].body["message"]


@pytest.mark.parametrize("resource", [GPU, MIG, SHARED])
def test_admission_adds_a_toleration_of_the_resources_name_and_no_other(
    plane: Plane, resource: str
) -> None:
    """So not of ``dedicated``, and for a MIG device not of the taint nvidia.com/gpu."""
    container = {"name": "a", "image": "a", "resources": {"limits": {resource: "1"}}}
    pod = {"metadata": {"name": "bare"}, "spec": {"containers": [container]}}

    made = plane.demand("POST", "/api/v1/namespaces/default/pods?dryRun=All", pod)

    tolerations = made["spec"]["tolerations"]
    not_of_nodes = [it for it in tolerations if not it["key"].startswith("node.kubernetes.io/")]
    assert not_of_nodes == [{"key": resource, "operator": "Exists", "effect": "NoSchedule"}]


@pytest.mark.parametrize(
    ("name", "taints"), [("training.yaml", TAINTS[1:]), ("inference-mig.yaml", TAINTS)]
)
def test_without_its_tolerations_a_pod_waits_because_of_taints(
    plane: Plane, name: str, taints: list[dict[str, str]]
) -> None:
    """kube-scheduler does not say which, and ``gpuscape doctor pod`` does: for GPUs the admission
    plugin has added the toleration of the first."""
    spec = pod_spec(examples.only(name))
    del spec["tolerations"]
    path = f"/api/v1/namespaces/{examples.USERS[name]}/pods"
    plane.demand("POST", path, {"metadata": {"name": "untolerated"}, "spec": spec})

    def why() -> str:
        conditions = plane.demand("GET", f"{path}/untolerated")["status"].get("conditions", ())
        return "".join(it.get("message", "") for it in conditions)

    until(lambda: bool(why()))
    message = why()
    words = ("doctor", "pod", "untolerated", "-n", examples.USERS[name], "-o", "json")
    environment = {"PATH": "/usr/bin:/bin", "KUBECONFIG": str(plane.kubeconfig())}
    said = subprocess.run(
        [GPUSCAPE, *words], env=environment, capture_output=True, text=True, check=False
    )
    plane.demand("DELETE", f"{path}/untolerated", {"gracePeriodSeconds": 0})

    assert "2 node(s) had untolerated taint(s)" in message
    (finding,) = [
        it for it in json.loads(said.stdout)["findings"] if it["name"] == "pod-taint-not-tolerated"
    ]
    listed = ", ".join(f"{it['key']}={it['value']}:{it['effect']}" for it in taints)
    assert finding["cause"].endswith(f": taints not tolerated: {listed}")


def test_each_lands_on_its_node(plane: Plane) -> None:
    """Jobs end at once on KWOK's nodes, so pods that would preempt others are not tried here."""
    owners = {
        ("vision", "training"): "pairs",
        ("vision", "inference"): "pairs",
        ("speech", "experiment"): "pairs",
        ("speech", "inference-mig"): "mig",
        ("speech", "development"): "shared",
    }
    type_block(plane, "teams")

    until(lambda: all(nodes_of(plane, *owner) == {node} for owner, node in owners.items()))
    until(lambda: all(is_started(plane, *owner) for owner in owners))
    experiments = len(pods(plane, "speech", "experiment"))
    remove(plane, *examples.USERS)

    assert experiments == 3


@pytest.fixture
def bare(plane: Plane) -> Iterator[str]:
    """A node with eight GPUs in place of KWOK's: its pods are bound and stay so."""
    path = "/api/v1/nodes/pairs"
    cordoned: Object = {"spec": {"unschedulable": True}}
    plane.demand("PATCH", path, cordoned, content_type=MERGE_PATCH)
    name = plane.make_node("bare", labels=PAIRS, capacity={GPU: "8"})
    yield name
    plane.demand("DELETE", f"/api/v1/nodes/{name}")
    for team in examples.PEOPLE:
        for pod in pods(plane, team):
            end(plane, pod)
    remove(plane, *examples.USERS)
    cordoned["spec"]["unschedulable"] = None
    plane.demand("PATCH", path, cordoned, content_type=MERGE_PATCH)


def test_inference_takes_gpus_from_an_experiment_and_not_from_training(
    plane: Plane, bare: str
) -> None:
    """The node is full. The lowest class goes, with the time to end that its file gives it; it
    comes back, waits, and does not count as failed."""
    for name in ("training.yaml", "experiment.yaml"):
        apply(plane, name, *member(examples.USERS[name]))
    until(lambda: nodes_of(plane, "vision", "training") == {bare})
    until(lambda: len(pods(plane, "speech", "experiment")) == 3)
    until(lambda: nodes_of(plane, "speech", "experiment") == {bare})

    apply(plane, "inference.yaml", *member("vision"))
    until(lambda: bool(leaving(plane)))
    (victim,) = leaving(plane)
    before = nodes_of(plane, "vision", "inference")
    end(plane, victim)
    until(lambda: nodes_of(plane, "vision", "inference") == {bare})
    until(lambda: len(pods(plane, "speech", "experiment")) == 3)
    until(lambda: nodes_of(plane, "speech", "experiment") == {bare, None})
    preempted = events(plane, "speech", "Preempted")
    job = plane.demand("GET", "/apis/batch/v1/namespaces/speech/jobs/experiment")["status"]

    metadata = victim["metadata"]
    grace = pod_spec(examples.only("experiment.yaml"))["terminationGracePeriodSeconds"]
    assert before == {None}
    assert metadata["name"].startswith("experiment-")
    assert metadata["deletionGracePeriodSeconds"] == grace == GRACE_SECONDS
    assert [it["regarding"]["uid"] for it in preempted] == [metadata["uid"]]
    assert job.get("failed", 0) == 0


def leaving(plane: Plane) -> list[Object]:
    """Pods of both teams that are to end."""
    both = [it for team in examples.PEOPLE for it in pods(plane, team)]
    return [it for it in both if "deletionTimestamp" in it["metadata"]]


def end(plane: Plane, pod: Object) -> None:
    """As its kubelet does when all its containers have ended."""
    path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
    failed = {"status": {"phase": "Failed"}}
    plane.request("PATCH", f"{path}/status", failed, content_type=MERGE_PATCH)
    plane.request("DELETE", path, {"gracePeriodSeconds": 0})


def events(plane: Plane, namespace: str, reason: str) -> list[Object]:
    """About pods of a namespace."""
    path = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
    return [it for it in plane.demand("GET", path)["items"] if it["reason"] == reason]


def tolerations(text: str) -> list[Any]:
    """Of the agent's DaemonSet in some manifests."""
    (found,) = [it for it in yaml.safe_load_all(text) if it and it["kind"] == "DaemonSet"]
    listed: list[Any] = found["spec"]["template"]["spec"]["tolerations"]
    return listed


def tolerates(listed: list[Any], taint: dict[str, str]) -> bool:
    """By the rules of the API: an empty effect is any, ``Exists`` any value."""
    return any(
        it.get("key") == taint["key"]
        and it.get("effect", taint["effect"]) == taint["effect"]
        and (it.get("operator") == "Exists" or it.get("value") == taint["value"])
        for it in listed
    )


def test_agent_and_device_plugin_tolerate_both_taints_and_the_agent_not_by_itself(
    tmp_path: Path,
) -> None:
    """By kustomize, by Helm, and in the values for the charts of NVIDIA."""
    pools = FOLDER / "node-pools"
    lines = {"resources": ["root/deploy/base"], "components": ["root/examples/node-pools/agent"]}
    (tmp_path / "root").symlink_to(pages.ROOT)
    (tmp_path / "kustomization.yaml").write_text(yaml.dump(lines))
    values = {it.stem: yaml.safe_load(it.read_text()) for it in pools.glob("*.yaml")}
    plugin, operator = values["device-plugin-values"], values["gpu-operator-values"]

    found = {
        "kustomize": tolerations(chart.kustomized(tmp_path)),
        "Helm": tolerations(chart.rendered(values["agent-values"])),
        "plugin": plugin["tolerations"],
        "plugin's feature discovery": plugin["nfd"]["worker"]["tolerations"],
        "operator": operator["daemonsets"]["tolerations"],
        "operator's feature discovery": operator["node-feature-discovery"]["worker"]["tolerations"],
    }

    for listed in found.values():
        assert all(tolerates(listed, taint) for taint in TAINTS), listed
    by_itself = tolerations(chart.kustomized(DEPLOY / "base"))
    assert [tolerates(by_itself, taint) for taint in TAINTS] == [True, False]


def test_shares_of_the_development_node_have_the_name_that_its_pods_ask_for() -> None:
    """And a node without the label has whole GPUs, and MIG devices by their names."""
    (data,) = [it["data"] for it in examples.objects("time-slicing.yaml")]
    whole, shared = (
        plugin_config.parse_plugin_config(data[it], it) for it in ("whole", "development")
    )
    (resource,) = shared.sharing.resources

    limits = pod_spec(examples.only("development.yaml"))["containers"][0]["resources"]["limits"]
    assert whole == PluginConfig(mig_strategy=MigStrategy.MIXED)
    assert resource.is_shared
    assert resource.renamed
    assert set(limits) == {f"{resource.name}.shared"} == {SHARED}
