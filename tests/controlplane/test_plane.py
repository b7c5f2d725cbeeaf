# SPDX-License-Identifier: Apache-2.0
"""The test bed itself, with the real programs."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.controlplane import components
from tests.controlplane.own import (
    KWOK_ANNOTATION,
    KWOK_GROUP,
    install_node_features,
    start_nfd_master,
    start_nfd_worker,
)
from tests.controlplane.plane import MERGE_PATCH, Plane
from tests.controlplane.programs import ROOT, ProgramError, Programs

pytestmark = pytest.mark.cluster

LABEL = {"metadata": {"labels": {"example.com/color": "blue"}}}
NODE_CLAIM = "authentication.kubernetes.io/node-name"
SECONDS = 180.0


def eventually(holds: Callable[[], bool]) -> bool:
    """Whether it holds before the time is up."""
    deadline = time.monotonic() + SECONDS
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def test_each_plane_is_of_the_kubernetes_it_says(any_plane: Plane) -> None:
    answer = any_plane.request("GET", "/version")

    assert answer.status == 200
    assert answer.body["gitVersion"].startswith(f"v{any_plane.minor}.")


def test_a_store_that_does_not_start_is_named_with_its_own_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server((components.LOOPBACK, 0)) as stranger:
        taken = stranger.getsockname()[1]
        monkeypatch.setattr(components, "free_port", lambda: taken)
        with (
            pytest.raises(ProgramError, match=r"(?s)^etcd .*address already in use"),
            Plane.start(tmp_path, controller_manager=False),
        ):
            pass


def test_processes_with_the_same_luck_do_not_choose_the_same_port() -> None:
    choose = "import random; from tests.controlplane.components import free_port; random.seed(7)"
    command = (sys.executable, "-c", f"{choose}; print(free_port(), flush=True); input()")
    with contextlib.ExitStack() as stack:
        chosen = []
        for _ in range(2):
            process = stack.enter_context(
                subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            )
            assert process.stdin
            assert process.stdout
            stack.callback(process.stdin.close)
            chosen.append(int(process.stdout.readline()))
    assert chosen[0] != chosen[1]


def test_a_token_bound_to_a_pod_proves_its_node(any_plane: Plane) -> None:
    node = any_plane.make_node()
    token = any_plane.bound_token(any_plane.namespace(), "agent", node)

    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    who = any_plane.request("POST", path, review, token=token).body["status"]["userInfo"]

    assert who["extra"][NODE_CLAIM] == [node]


def test_an_account_without_roles_may_do_nothing(any_plane: Plane) -> None:
    node = any_plane.make_node()
    token = any_plane.bound_token(any_plane.namespace(), "agent", node)

    assert any_plane.request("GET", f"/api/v1/nodes/{node}", token=token).status == 403


def test_a_kubelet_may_label_its_own_node_and_no_other(any_plane: Plane) -> None:
    own, other = any_plane.make_node(), any_plane.make_node()

    said = [
        any_plane.request(
            "PATCH",
            f"/api/v1/nodes/{node}",
            LABEL,
            certificate=any_plane.kubelet(own),
            content_type=MERGE_PATCH,
        ).status
        for node in (own, other)
    ]

    assert said == [200, 403]


def test_pod_security_is_enforced_where_a_namespace_asks(any_plane: Plane) -> None:
    namespace = any_plane.namespace(labels={"pod-security.kubernetes.io/enforce": "restricted"})
    pod = {
        "metadata": {"name": "root"},
        "spec": {"containers": [{"name": "main", "image": "none"}]},
    }

    answer = any_plane.request("POST", f"/api/v1/namespaces/{namespace}/pods", pod)

    assert answer.status == 403
    assert "violates PodSecurity" in answer.body["message"]


def test_the_audit_log_shows_who_wrote_what(any_plane: Plane) -> None:
    node = any_plane.make_node()
    mark = any_plane.mark()
    path = f"/api/v1/nodes/{node}"
    any_plane.request("GET", path)
    any_plane.request("PATCH", path, LABEL, content_type=MERGE_PATCH)

    (write,) = any_plane.audit(since=mark, verb="patch", resource="nodes", name=node)

    assert write["user"]["username"] == "admin"
    assert write["requestObject"] == LABEL
    assert write["responseStatus"]["code"] == 200
    assert len(any_plane.audit(since=mark, resource="nodes", name=node)) == 2
    assert not any_plane.audit(since=mark, user="somebody else")


def test_kubectl_applies_files(plane: Plane) -> None:
    namespace = plane.namespace()
    manifest = '{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "made"}}'

    plane.kubectl("apply", "-n", namespace, "-f", "-", stdin=manifest)

    assert plane.request("GET", f"/api/v1/namespaces/{namespace}/configmaps/made").status == 200
    with pytest.raises(AssertionError, match="NotFound"):
        plane.kubectl("get", "configmap", "not-made", "-n", namespace)


def test_controllers_run_on_the_newest(plane: Plane) -> None:
    """The one that puts the authority's certificate into every namespace stands for all."""
    path = f"/api/v1/namespaces/{plane.namespace()}/configmaps/kube-root-ca.crt"

    assert eventually(lambda: plane.request("GET", path).status == 200)


def test_an_outage_keeps_address_and_objects(tmp_path: Path) -> None:
    with Plane.start(tmp_path / "plane", minor="1.32", controller_manager=False) as plane:
        node = plane.make_node()
        plane.stop_apiserver()
        with pytest.raises(ConnectionRefusedError):
            plane.request("GET", "/readyz")

        plane.start_apiserver()

        assert plane.request("GET", f"/api/v1/nodes/{node}").status == 200


def test_a_pod_is_scheduled_and_runs_on_a_node_of_kwok(tmp_path: Path) -> None:
    with Plane.start(tmp_path / "plane", node_lifecycle=True, scheduler=True, kwok=True) as plane:
        node = plane.make_node(
            annotations={KWOK_ANNOTATION: KWOK_GROUP},
            capacity={"nvidia.com/gpu": "8"},
            ready=False,
        )
        pods = f"/api/v1/namespaces/{plane.namespace()}/pods"
        resources = {"limits": {"nvidia.com/gpu": "2"}}
        container = {"name": "main", "image": "none", "resources": resources}
        plane.demand(
            "POST", pods, {"metadata": {"name": "job"}, "spec": {"containers": [container]}}
        )

        def runs() -> bool:
            pod = plane.demand("GET", f"{pods}/job")
            return (pod["spec"].get("nodeName"), pod["status"]["phase"]) == (node, "Running")

        assert eventually(runs)
        conditions = plane.demand("GET", f"/api/v1/nodes/{node}")["status"]["conditions"]
        assert {"Ready": "True"}.items() <= {c["type"]: c["status"] for c in conditions}.items()


def test_a_feature_file_becomes_a_label_through_the_real_worker_and_master(
    plane: Plane, tmp_path: Path
) -> None:
    install_node_features(plane)
    node, namespace = plane.make_node(), plane.namespace()
    of_another_test = {
        "apiVersion": "nfd.k8s-sigs.io/v1alpha1",
        "kind": "NodeFeature",
        "metadata": {"name": "x", "labels": {"nfd.node.kubernetes.io/node-name": node}},
        "spec": {"features": {}, "labels": {"example.com/shape": "round"}},
    }
    elsewhere = f"/apis/nfd.k8s-sigs.io/v1alpha1/namespaces/{plane.namespace()}/nodefeatures"
    plane.demand("POST", elsewhere, of_another_test)
    features = tmp_path / "worker" / "features.d" / "ours"
    features.parent.mkdir(parents=True)
    features.write_text("example.com/color=blue\n")

    with Programs(tmp_path / "logs") as programs:
        start_nfd_master(plane, programs, (namespace,))
        folder = features.parents[1]
        start_nfd_worker(plane, programs, node=node, namespace=namespace, folder=folder)

        def shown() -> dict[str, str]:
            labels = plane.demand("GET", f"/api/v1/nodes/{node}")["metadata"]["labels"]
            return {k: v for k, v in labels.items() if k.startswith("example.com/")}

        assert eventually(lambda: shown() == {"example.com/color": "blue"})
        features.write_text("example.com/color=green\n")
        assert eventually(lambda: shown() == {"example.com/color": "green"})
