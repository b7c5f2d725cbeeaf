# SPDX-License-Identifier: Apache-2.0
"""The manifests on real API servers: what they take, and what Pod Security refuses."""

from __future__ import annotations

import http.client
import json
import re
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from api import names
from tests.controlplane.families import MINORS
from tests.controlplane.plane import Plane
from tests.controlplane.reused_planes import reused_planes
from tests.deploy import install_page
from tests.deploy.daemonset import DEPLOY, Manifest, container, daemonset
from tests.reused import Reused

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

FOLDERS = (
    "base",
    "mig",
    "mig-sys-admin",
    "dra",
    "pods",
    "coordinator",
    "scheduler",
    "kube-scheduler",
)
"""What can be applied by itself; the others are components."""

WITH_AGENT = ("base", "mig", "mig-sys-admin")
"""Each holds what the ones before it do."""

RUNTIME_CLASS = {"metadata": {"name": "nvidia"}, "handler": "nvidia"}

_REASON = re.compile(r"(?:^|, )([^(,]+?) \(((?:[^()]|\([^()]*\))*)\)")


@pytest.fixture(scope="module", params=MINORS)
def planes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Reused[Plane]]:
    """Each Kubernetes, as :func:`cluster` lends it."""

    def prepare(plane: Plane) -> None:
        plane.demand("POST", "/apis/node.k8s.io/v1/runtimeclasses", RUNTIME_CLASS)

    options = {"minor": request.param, "controller_manager": False}
    with reused_planes(tmp_path_factory, prepare, **options) as reused:
        yield reused


@pytest.fixture
def cluster(request: pytest.FixtureRequest, planes: Reused[Plane]) -> Iterator[Plane]:
    """A plane of these tests alone, since policies of the shipped names would hold for all."""
    with planes.lent(request.session) as plane:
        yield plane


def rendered(plane: Plane, folder: str) -> list[Manifest]:
    return [it for it in yaml.safe_load_all(plane.kubectl("kustomize", DEPLOY / folder)) if it]


def agents_pod(plane: Plane, folder: str) -> Manifest:
    """A Pod as the DaemonSet of a folder would have it."""
    (of,) = [one for one in rendered(plane, folder) if one["kind"] == "DaemonSet"]
    template: Manifest = of["spec"]["template"]
    return {
        "metadata": {**template["metadata"], "generateName": "agent-"},
        "spec": template["spec"],
    }


def make_pod(plane: Plane, level: str, pod: Manifest) -> tuple[int, str]:
    """Status and message of making a Pod in a new namespace that enforces this level."""
    enforced = {"pod-security.kubernetes.io/enforce": level}
    namespace = plane.namespace("level", labels=enforced)
    plane.account(namespace, names.AGENT)
    answer = plane.request("POST", f"/api/v1/namespaces/{namespace}/pods", pod)
    return answer.status, str(answer.body.get("message", ""))


def versions(plane: Plane, folder: str) -> dict[tuple[str, str, str], str]:
    """Resource version of every object of a folder, as it is in the cluster."""
    listed = json.loads(plane.kubectl("get", "-o", "json", "-k", DEPLOY / folder))
    return {
        (it["kind"], it["metadata"].get("namespace", ""), it["metadata"]["name"]): it["metadata"][
            "resourceVersion"
        ]
        for it in listed["items"]
    }


def test_the_manifests_are_taken_and_taken_again_without_a_change(cluster: Plane) -> None:
    """Each folder in turn, as an installation grows; then everything goes."""
    for folder in FOLDERS:
        cluster.kubectl("apply", "-k", DEPLOY / folder)
        made = versions(cluster, folder)
        cluster.kubectl("apply", "-k", DEPLOY / folder)
        assert versions(cluster, folder) == made
        assert len(made) == len(rendered(cluster, folder))
    for folder in reversed(FOLDERS):
        cluster.kubectl("delete", "--ignore-not-found", "--wait=false", "-k", DEPLOY / folder)


@pytest.mark.parametrize("at", range(len(install_page.kustomizations())))
def test_every_kustomization_on_the_install_page_is_taken(
    cluster: Plane, at: int, tmp_path: Path
) -> None:
    (tmp_path / "gpuscape").symlink_to(DEPLOY.parent)
    (tmp_path / "kustomization.yaml").write_text(install_page.kustomizations()[at])
    plain = cluster.kubectl("kustomize", DEPLOY / "base")

    made = cluster.kubectl("kustomize", tmp_path)

    assert made != plain
    dry_run(cluster, made)


@pytest.mark.parametrize("folder", ["mig", "mig-sys-admin"])
def test_the_actuators_container_is_taken_next_to_the_agents(
    cluster: Plane, folder: str, tmp_path: Path
) -> None:
    (tmp_path / "deploy").symlink_to(DEPLOY)
    overlay = f"resources: [deploy/{folder}]\ncomponents: [deploy/actuator]\n"
    (tmp_path / "kustomization.yaml").write_text(overlay)
    made = cluster.kubectl("kustomize", tmp_path)
    (of,) = [it for it in yaml.safe_load_all(made) if it and it["kind"] == "DaemonSet"]
    names_of = [it["name"] for it in of["spec"]["template"]["spec"]["containers"]]
    assert sorted(names_of) == ["actuator", "agent"]
    dry_run(cluster, made)


def test_with_the_component_the_agent_tolerates_the_startup_taint(
    cluster: Plane, tmp_path: Path
) -> None:
    (tmp_path / "deploy").symlink_to(DEPLOY)
    overlay = "resources: [deploy/mig]\ncomponents: [deploy/actuator, deploy/startup-taint]\n"
    (tmp_path / "kustomization.yaml").write_text(overlay)
    made = cluster.kubectl("kustomize", tmp_path)
    (of,) = [it for it in yaml.safe_load_all(made) if it and it["kind"] == "DaemonSet"]
    tolerated = [it["key"] for it in of["spec"]["template"]["spec"]["tolerations"]]
    assert tolerated == ["nvidia.com/gpu", "gpuscape.io/mig-layout-pending"]
    dry_run(cluster, made)


@pytest.mark.parametrize("at", range(len(install_page.objects())))
def test_every_object_on_the_install_page_is_taken(cluster: Plane, at: int) -> None:
    dry_run(cluster, install_page.objects()[at])


def dry_run(plane: Plane, manifests: str) -> None:
    """Have the API server judge every object, in a namespace that is there."""
    there = plane.namespace("tried")
    moved = re.sub(r"^  namespace: gpuscape$", f"  namespace: {there}", manifests, flags=re.M)
    plane.kubectl("apply", "--dry-run=server", "-f", "-", stdin=moved)


def test_kustomize_passes_the_agents_container_on_as_it_stands(cluster: Plane) -> None:
    """Which is how the tests' agents get command, arguments and environment from the file."""
    (made,) = [one for one in rendered(cluster, "base") if one["kind"] == "DaemonSet"]

    assert container(made) == container(daemonset())


@pytest.mark.parametrize("folder", WITH_AGENT)
@pytest.mark.parametrize("level", ["restricted", "baseline"])
def test_a_namespace_of_a_stricter_level_refuses_the_pod_for_the_reasons_on_the_install_page(
    cluster: Plane, level: str, folder: str
) -> None:
    status, message = make_pod(cluster, level, agents_pod(cluster, folder))

    so_far = WITH_AGENT[: WITH_AGENT.index(folder) + 1]
    told = [
        it.reason for it in install_page.refusals() if it.level == level and it.comes_with in so_far
    ]
    assert status == http.client.FORBIDDEN
    violated = message.partition(f'violates PodSecurity "{level}:latest": ')[2]
    assert sorted(reason for reason, _ in _REASON.findall(violated)) == sorted(told)


@pytest.mark.parametrize("folder", WITH_AGENT)
def test_the_namespaces_own_level_lets_the_pod_be_made(cluster: Plane, folder: str) -> None:
    (namespace,) = [one for one in rendered(cluster, folder) if one["kind"] == "Namespace"]
    level = namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]

    assert make_pod(cluster, level, agents_pod(cluster, folder)) == (http.client.CREATED, "")


def test_without_the_runtime_class_no_pod_is_made_and_the_install_page_knows_the_message(
    cluster: Plane,
) -> None:
    pod = agents_pod(cluster, "base")
    pod["spec"]["runtimeClassName"] = f"none-{secrets.token_hex(4)}"

    status, message = make_pod(cluster, "privileged", pod)

    assert status == http.client.FORBIDDEN
    name = pod["spec"]["runtimeClassName"]
    assert 'RuntimeClass "nvidia" not found' in install_page.PAGE
    assert f'RuntimeClass "{name}" not found' in message
