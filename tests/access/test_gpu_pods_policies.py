# SPDX-License-Identifier: Apache-2.0
"""Policies that leave the GPU pods of labelled namespaces to one scheduler, on real API servers."""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import yaml

from tests.access.stage import ENFORCED_SECONDS
from tests.agent.agent_process import until
from tests.controlplane.plane import Object, Plane
from tests.deploy.daemonset import DEPLOY
from tests.deploy.scheduler_page import PAGE

pytestmark = pytest.mark.cluster

CHANGES, REFUSES = "gpu-pods", "gpu-pods-before-1.36"
LABEL = {"gpuscape.io/scheduler": "gpuscape"}
PLURALS = {
    "MutatingAdmissionPolicy": "mutatingadmissionpolicies",
    "MutatingAdmissionPolicyBinding": "mutatingadmissionpolicybindings",
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
}
ASKING: dict[str, Object] = {
    "GPUs": {"nvidia.com/gpu": "2"},
    "shared GPUs": {"nvidia.com/gpu.shared": "1"},
    "MIG devices": {"nvidia.com/mig-1g.10gb": "1"},
    "GPUs and more": {"cpu": "1", "nvidia.com/gpu": 1},
}
LEFT_ALONE: dict[str, Object] = {
    "nothing": {},
    "cpu": {"cpu": "1"},
    "no GPU": {"nvidia.com/gpu": "0"},
    "another vendor's": {"amd.com/gpu": "1"},
    "of a like name": {"nvidia.com/gpumem": "1"},
}


@contextmanager
def in_force(plane: Plane, folder: str) -> Iterator[str]:
    """The policy of this folder; gives a namespace that it holds for. It is taken away at the end,
    and holds for nothing then."""
    namespace = plane.namespace("gpu-pods", labels=LABEL)
    plane.account(namespace, "default")
    manifests = list(yaml.safe_load_all((DEPLOY / folder / "policy.yaml").read_text()))
    root = "/apis/admissionregistration.k8s.io/v1"
    gpus = ASKING["GPUs"]
    for manifest in manifests:
        plane.demand("POST", f"{root}/{PLURALS[manifest['kind']]}", manifest)
    try:
        until(lambda: scheduler_of(plane, namespace, gpus) != "default-scheduler", ENFORCED_SECONDS)
        yield namespace
    finally:
        for manifest in manifests:
            path = f"{root}/{PLURALS[manifest['kind']]}/{manifest['metadata']['name']}"
            plane.demand("DELETE", path)
        until(lambda: scheduler_of(plane, namespace, gpus) == "default-scheduler", ENFORCED_SECONDS)


def answer(plane: Plane, namespace: str, limits: Object, **spec: Any) -> tuple[int, Any]:
    """Status and body for a pod whose first container has these limits; nothing is stored."""
    container = {"name": "main", "image": "none", "resources": {"limits": limits}}
    pod = {"metadata": {"name": "pod"}, "spec": {"containers": [container], **spec}}
    got = plane.request("POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All", pod)
    return got.status, got.body


def scheduler_of(plane: Plane, namespace: str, limits: Object, **spec: Any) -> str:
    """The scheduler that such a pod gets; empty where the policy refuses it."""
    status, body = answer(plane, namespace, limits, **spec)
    if status == 422 and "ValidatingAdmissionPolicy 'gpuscape-gpu-pods'" in body["message"]:
        return ""
    assert status == 201, body
    return str(body["spec"]["schedulerName"])


@pytest.fixture(scope="class")
def changed(plane: Plane) -> Iterator[str]:
    """A namespace of the newest Kubernetes in which pods are changed."""
    with in_force(plane, CHANGES) as namespace:
        yield namespace


@pytest.fixture(scope="class")
def refused(any_plane: Plane) -> Iterator[tuple[Plane, str]]:
    """One of each Kubernetes in which pods are refused."""
    with in_force(any_plane, REFUSES) as namespace:
        yield any_plane, namespace


class TestChanged:
    """From Kubernetes 1.36 on."""

    @pytest.mark.parametrize("asked", ASKING)
    def test_gpu_pods_that_name_no_scheduler_get_ours(
        self, plane: Plane, changed: str, asked: str
    ) -> None:
        assert scheduler_of(plane, changed, ASKING[asked]) == "gpuscape"

    def test_so_do_pods_whose_init_container_asks_for_gpus(
        self, plane: Plane, changed: str
    ) -> None:
        resources = {"limits": ASKING["GPUs"]}
        init = [{"name": "init", "image": "none", "resources": resources}]
        assert scheduler_of(plane, changed, {}, initContainers=init) == "gpuscape"

    @pytest.mark.parametrize("asked", LEFT_ALONE)
    def test_other_pods_are_left_alone(self, plane: Plane, changed: str, asked: str) -> None:
        assert scheduler_of(plane, changed, LEFT_ALONE[asked]) == "default-scheduler"

    @pytest.mark.parametrize("name", ["volcano", "kai-scheduler", "gpuscape"])
    def test_pods_of_other_schedulers_stay_theirs(
        self, plane: Plane, changed: str, name: str
    ) -> None:
        assert scheduler_of(plane, changed, ASKING["GPUs"], schedulerName=name) == name

    def test_a_pod_that_is_bound_already_is_left_alone(self, plane: Plane, changed: str) -> None:
        bound = scheduler_of(plane, changed, ASKING["GPUs"], nodeName="node")
        assert bound == "default-scheduler"

    @pytest.mark.parametrize("labels", [{}, {"gpuscape.io/scheduler": "other"}])
    def test_other_namespaces_are_left_alone(
        self, plane: Plane, changed: str, labels: dict[str, str]
    ) -> None:
        del changed
        namespace = plane.namespace("other", labels=labels)
        plane.account(namespace, "default")
        assert scheduler_of(plane, namespace, ASKING["GPUs"]) == "default-scheduler"


def test_the_pages_selector_finds_the_pods_that_would_wait_for_ever(plane: Plane) -> None:
    """Of those that name the scheduler the ones that have no node."""
    namespace = plane.namespace("undone")
    plane.account(namespace, "default")
    for name, spec in {
        "waits": {"schedulerName": "gpuscape"},
        "has-a-node": {"schedulerName": "gpuscape", "nodeName": plane.make_node()},
        "of-another": {"schedulerName": "default-scheduler"},
    }.items():
        pod = {"containers": [{"name": "main", "image": "none"}], **spec}
        body = {"metadata": {"name": name}, "spec": pod}
        plane.demand("POST", f"/api/v1/namespaces/{namespace}/pods", body)
    found = re.search(r"delete pods --field-selector=(\S+)", PAGE)
    assert found is not None
    query = urllib.parse.urlencode({"fieldSelector": found[1]})
    listed = plane.demand("GET", f"/api/v1/namespaces/{namespace}/pods?{query}")["items"]
    assert [pod["metadata"]["name"] for pod in listed] == ["waits"]


class TestRefused:
    """Before 1.36; it works on later ones too."""

    @pytest.mark.parametrize("asked", ASKING)
    def test_gpu_pods_that_name_no_scheduler_are_refused_with_the_line_to_add(
        self, refused: tuple[Plane, str], asked: str
    ) -> None:
        status, body = answer(*refused, ASKING[asked])
        assert status == 422
        assert "Add the line `schedulerName: gpuscape` to the pod's spec" in body["message"]

    def test_with_that_line_they_are_taken(self, refused: tuple[Plane, str]) -> None:
        assert scheduler_of(*refused, ASKING["GPUs"], schedulerName="gpuscape") == "gpuscape"

    def test_other_pods_and_pods_of_other_schedulers_are_taken(
        self, refused: tuple[Plane, str]
    ) -> None:
        for asked in LEFT_ALONE.values():
            assert scheduler_of(*refused, asked) == "default-scheduler"
        assert scheduler_of(*refused, ASKING["GPUs"], schedulerName="volcano") == "volcano"
        assert scheduler_of(*refused, ASKING["GPUs"], nodeName="node") == "default-scheduler"


def test_both_policies_are_for_the_same_pods() -> None:
    changes, refuses = (
        next(yaml.safe_load_all((DEPLOY / folder / "policy.yaml").read_text()))["spec"]
        for folder in (CHANGES, REFUSES)
    )
    for key in ("failurePolicy", "matchConstraints", "matchConditions"):
        assert changes[key] == refuses[key]
