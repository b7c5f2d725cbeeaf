# SPDX-License-Identifier: Apache-2.0
"""The chart on real API servers: installed, changed, stopped and taken away by Helm."""

from __future__ import annotations

import http.client
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import yaml

from api import names
from tests.agent.agent_process import until
from tests.controlplane.builds import binaries
from tests.controlplane.definitions import wait_until_served
from tests.controlplane.families import MINORS, PROMETHEUS
from tests.controlplane.plane import Plane
from tests.controlplane.reused_planes import reused_planes
from tests.controlplane.server import MERGE_PATCH, Object
from tests.deploy.chart import CHART, IMAGE, ChartRefusedError, helm, rendered
from tests.reused import Reused

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

NAMESPACE = "gpuscape"
RBAC = "rbac.authorization.k8s.io"
ADMISSION = "admissionregistration.k8s.io"
EVERYTHING: Mapping[str, Any] = {
    "image": {"repository": IMAGE},
    "agent": {
        "migDevices": "management-cdi",
        **dict.fromkeys(("gpuOperator", "kernelLog", "hostState", "pods", "resourceSlices"), True),
        "canary": {"nodes": "pool=canary"},
    },
    "mig": {"mode": "enforce"},
    "scheduler": {"enabled": True},
    "monitoring": {
        "monitor": "pod",
        "onlyFor": "monitoring",
        **dict.fromkeys(("rules", "dashboards", "scrapeConfig"), True),
    },
    "networkPolicies": {"enabled": True},
}
"""Values with which the chart has every object but what excludes another."""
OTHERS: Mapping[str, Mapping[str, Any]] = {
    "a driver without container toolkit": {
        "agent": {"driverRoot": "/home/kubernetes/bin/nvidia", "canary": {"nodes": "pool=canary"}}
    },
    "OpenShift, but for its own kind": {"openshift": True},
    "k3s's containerd": {"agent": {"kubeletFolder": "/var/lib/rancher/k3s/agent/kubelet"}},
    "a mirror that asks who one is": {
        "image": {"repository": "mirror.example:5000/team/gpuscape", "pullSecrets": ["mine"]}
    },
    "labels of one's own": {
        "agent": {
            "labelRules": [{"key": "example.com/gpu-memory", "value": "{memory-gib}Gi"}],
            "formerLabelKeys": ["example.com/gpu-model"],
        }
    },
    "CDI": {
        "agent": {
            "runtimeClassName": "",
            "podAnnotations": {
                "nvidia.cdi.k8s.io/container.agent": "management.nvidia.com/gpu=all"
            },
        }
    },
}
"""Ways that exclude one of those, or change a field alone."""

DEFINITIONS = ("podmonitors", "servicemonitors", "prometheusrules")
KINDS = ",".join(
    (
        *("daemonsets", "deployments", "services", "serviceaccounts", "configmaps", "secrets"),
        *("leases", "roles", "rolebindings", "clusterroles", "clusterrolebindings"),
        *("validatingadmissionpolicies", "validatingadmissionpolicybindings"),
        *("networkpolicies", "poddisruptionbudgets", *DEFINITIONS),
    )
)
NAMED = "{range .items[*]}{.kind} {.metadata.namespace} {.metadata.name}{'\\n'}{end}"
PATIENCE_SECONDS = 180.0
"""For a policy to hold, or to hold no more: the API server learns of it by a watch."""


@pytest.fixture(scope="module", params=MINORS)
def planes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Reused[Plane]]:
    """Each Kubernetes, as :func:`cluster` lends it."""

    def prepare(plane: Plane) -> None:
        for kind in DEFINITIONS:
            definition = binaries(PROMETHEUS) / f"monitoring.coreos.com_{kind}.yaml"
            plane.kubectl("apply", "--server-side", "-f", definition)
            wait_until_served(plane, f"crd/{kind}.monitoring.coreos.com")
        plane.account(NAMESPACE, "default")

    options = {"minor": request.param, "controller_manager": False}
    with reused_planes(tmp_path_factory, prepare, **options) as reused:
        yield reused


@pytest.fixture
def cluster(request: pytest.FixtureRequest, planes: Reused[Plane]) -> Iterator[Plane]:
    """A plane of these tests alone, since policies of the shipped names would hold for all."""
    with planes.lent(request.session) as plane:
        yield plane


def present(plane: Plane) -> set[str]:
    """Every object that an installation could leave."""
    listed = plane.kubectl("get", KINDS, "--all-namespaces", "-o", f"jsonpath={NAMED}")
    return set(listed.splitlines())


def on(
    plane: Plane,
    *words: str,
    values: Mapping[str, Any] = EVERYTHING,
    namespace: str = NAMESPACE,
) -> str:
    """Helm's answer in this cluster. Raises ChartRefusedError."""
    where = ("--kubeconfig", plane.kubeconfig(), "--namespace", namespace)
    given = () if words[0] == "uninstall" else (CHART, "--values", "-")
    return helm(*words, *given, *where, stdin=yaml.dump(dict(values)))


def label(plane: Plane, node: str, token: str) -> tuple[int, str]:
    """What a write of the agent's comes to."""
    body = {"metadata": {"labels": {"nvidia.com/gpu.count": "8"}}}
    path = f"/api/v1/nodes/{node}?dryRun=All&fieldManager={names.AGENT}"
    answer = plane.request("PATCH", path, body, token=token, content_type=MERGE_PATCH)
    return answer.status, str(answer.body.get("message", ""))


def wait_for(plane: Plane, node: str, token: str, status: int) -> str:
    """The message with which the agent's write first ends so."""
    until(lambda: label(plane, node, token)[0] == status, PATIENCE_SECONDS)
    return label(plane, node, token)[1]


def test_a_release_comes_is_stopped_goes_on_and_leaves_nothing(cluster: Plane) -> None:
    node = cluster.make_node()
    before = present(cluster)

    on(cluster, "install", "any")
    made = present(cluster) - before
    assert {
        f"DaemonSet {NAMESPACE} gpuscape-agent-canary",
        f"Deployment {NAMESPACE} gpuscape-coordinator",
        f"Deployment {NAMESPACE} gpuscape-scheduler",
        f"Deployment {NAMESPACE} gpuscape-certificates",
        f"Deployment {NAMESPACE} gpuscape-kube-scheduler",
        f"Secret {NAMESPACE} {names.SCHEDULER_CA}",
        f"PodMonitor {NAMESPACE} gpuscape-agent",
        "ValidatingAdmissionPolicyBinding  gpuscape-agent-node",
    } <= made
    token = cluster.bound_token(NAMESPACE, names.AGENT, node)
    wait_for(cluster, node, token, http.client.OK)

    on(cluster, "upgrade", "any", values={**EVERYTHING, "writes": False})
    stopped = wait_for(cluster, node, token, http.client.UNPROCESSABLE_ENTITY)
    assert "writes of gpuscape are stopped by the chart's value writes=false" in stopped

    on(cluster, "upgrade", "any")
    wait_for(cluster, node, token, http.client.OK)
    assert {it for it in present(cluster) - before if not it.startswith("Secret")} == {
        it for it in made if not it.startswith("Secret")
    }

    on(cluster, "uninstall", "any")
    assert present(cluster) == before


def test_an_upgrade_keeps_what_the_secrets_hold_and_brings_back_one_that_was_deleted(
    cluster: Plane,
) -> None:
    """Helm's manifests of them are empty."""
    values = {"image": {"repository": IMAGE}, "scheduler": {"enabled": True}}
    on(cluster, "install", "any", values=values)
    for name, key in ((names.SCHEDULER_CA, "ca.key"), (names.SCHEDULER_TLS, "tls.crt")):
        path = f"/api/v1/namespaces/{NAMESPACE}/secrets/{name}"
        patch = f"{path}?fieldManager={names.CERTIFICATES}"
        body = {"data": {key: "a2VwdA=="}}
        cluster.demand("PATCH", patch, body, content_type=MERGE_PATCH)
    cluster.demand("DELETE", f"/api/v1/namespaces/{NAMESPACE}/secrets/{names.SCHEDULER_CA}")

    on(cluster, "upgrade", "any", values={**values, "agent": {"labels": "none"}})

    assert cluster.demand("GET", path)["data"] == {"tls.crt": "a2VwdA=="}
    back = cluster.demand("GET", f"/api/v1/namespaces/{NAMESPACE}/secrets/{names.SCHEDULER_CA}")
    assert "data" not in back
    on(cluster, "uninstall", "any")


@pytest.mark.parametrize("way", OTHERS)
def test_other_ways_are_taken_by_a_server_side_apply(cluster: Plane, way: str) -> None:
    documents = [it for it in yaml.safe_load_all(rendered(OTHERS[way])) if it]
    made = [each for it in documents for each in it.get("items", [it])]
    known = [it for it in made if it["kind"] != "SecurityContextConstraints"]
    assert known
    manifests = yaml.dump_all(known)
    cluster.kubectl(
        "apply",
        "--server-side",
        "--dry-run=server",
        "--validate=strict",
        "-f",
        "-",
        stdin=manifests,
    )


def test_an_admin_of_the_namespace_alone_is_told_and_nothing_is_made(cluster: Plane) -> None:
    """Who may not make policies may not see other namespaces' installations either."""
    bound = {
        "metadata": {"name": "namespace-admin"},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": NAMESPACE}],
    }
    path = f"/apis/{RBAC}/v1/namespaces/{NAMESPACE}/rolebindings"
    cluster.demand("POST", path, bound)
    before = present(cluster)
    user = f"system:serviceaccount:{NAMESPACE}:default"
    as_them = ("--kube-as-user", user, "--kube-as-group", "system:authenticated")
    try:
        with pytest.raises(ChartRefusedError) as refused:
            on(cluster, "install", "any", *as_them)
        assert f'User "{user}" cannot list resource "daemonsets"' in str(refused.value)
    finally:
        cluster.demand("DELETE", f"{path}/namespace-admin")
    left = {it for it in present(cluster) - before if not it.startswith(("Secret", "RoleBinding"))}
    assert left == set()


READ = ("get", "list", "watch")
RECORD = {f"Secret {NAMESPACE} sh.helm.release.v1.any.v1"}
"""What is left where Helm asks for rights by trying: its record of the attempt."""
POLICIES, BINDINGS = "validatingadmissionpolicies", "validatingadmissionpolicybindings"
MONITORING = "monitoring.coreos.com"
LACKING: Mapping[str, tuple[str, str, Sequence[str], set[str]]] = {
    "policies": (ADMISSION, POLICIES, (), set()),
    "policies, which they may read": (ADMISSION, POLICIES, READ, RECORD),
    "bindings of policies": (ADMISSION, BINDINGS, (), set()),
    "bindings of policies, which they may read": (ADMISSION, BINDINGS, READ, RECORD),
    "roles of the cluster": (RBAC, "clusterroles", (), set()),
    "roles of the cluster, which they may read": (RBAC, "clusterroles", READ, RECORD),
    "bindings of roles": (RBAC, "clusterrolebindings", READ, RECORD),
    "roles of namespaces": (RBAC, "roles", READ, RECORD),
    "monitors": (MONITORING, "podmonitors", READ, RECORD),
    "rules of Prometheus": (MONITORING, "prometheusrules", READ, RECORD),
}
"""Group and resource, verbs that somebody has all the same, and what is left where Helm refuses."""


@contextmanager
def everything_but(
    plane: Plane, group: str, resource: str, verbs: Sequence[str]
) -> Iterator[tuple[str, ...]]:
    """Words that have Helm act as somebody who may do all else, and these verbs alone there."""
    groups = {it.rpartition("/")[0] for it in plane.kubectl("api-versions").split()} - {group}
    listed = plane.kubectl("api-resources", f"--api-group={group}", "-o", "name", "--cached=false")
    others = {it.partition(".")[0] for it in listed.split()} - {resource}
    rules = [
        {"apiGroups": sorted(groups), "resources": ["*"], "verbs": ["*"]},
        {"apiGroups": [group], "resources": sorted(others), "verbs": ["*"]},
    ]
    if verbs:
        rules.append({"apiGroups": [group], "resources": [resource], "verbs": list(verbs)})
    with somebody(plane, rules) as as_them:
        yield as_them


@contextmanager
def somebody(plane: Plane, rules: list[Object]) -> Iterator[tuple[str, ...]]:
    """Words that have Helm act as a person with these rights in the cluster."""
    name, kinds = "nearly-admin", ("clusterroles", "clusterrolebindings")
    whole, bound = (f"/apis/{RBAC}/v1/{it}" for it in kinds)
    person = {"kind": "User", "name": name, "apiGroup": RBAC}
    role = {"apiGroup": RBAC, "kind": "ClusterRole", "name": name}
    plane.demand("POST", whole, {"metadata": {"name": name}, "rules": rules})
    plane.demand("POST", bound, {"metadata": {"name": name}, "roleRef": role, "subjects": [person]})
    asked = {"group": "apps", "resource": "daemonsets", "verb": "create"}
    review = {"spec": {"user": name, "resourceAttributes": asked}}
    place = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    try:
        until(
            lambda: bool(plane.demand("POST", place, review)["status"]["allowed"]), PATIENCE_SECONDS
        )
        yield ("--kube-as-user", name)
    finally:
        for place in (bound, whole):
            plane.demand("DELETE", f"{place}/{name}")


@pytest.mark.parametrize("what", LACKING)
def test_who_may_install_all_but_one_kind_is_told_so_before_anything_is_made(
    cluster: Plane, what: str
) -> None:
    """Helm makes one kind after the other and stops at the first that is refused."""
    group, resource, verbs, record = LACKING[what]
    with everything_but(cluster, group, resource, verbs) as as_them:
        before = present(cluster)
        with pytest.raises(ChartRefusedError) as refused:
            on(cluster, "install", "any", *as_them)
        assert 'User "nearly-admin" cannot' in str(refused.value)
        assert f'resource "{resource}" in API group "{group}"' in str(refused.value)
        left = present(cluster) - before
        if left:
            assert "gpuscape-trial-of-rights-ask-a-cluster-admin" in str(refused.value)
            on(cluster, "uninstall", "any")
        assert left == record
        assert present(cluster) == before


def test_who_may_make_roles_but_not_hand_out_these_rights_is_told_before_anything_is_made(
    cluster: Plane,
) -> None:
    """Nobody may make a role with rights that he lacks, unless he may escalate."""
    verbs = [*READ, "create", "update", "patch", "delete"]
    groups = sorted({it.rpartition("/")[0] for it in cluster.kubectl("api-versions").split()})
    rules = [{"apiGroups": groups, "resources": ["*"], "verbs": verbs}]
    with somebody(cluster, rules) as as_them:
        before = present(cluster)
        with pytest.raises(ChartRefusedError) as refused:
            on(cluster, "install", "any", *as_them)
        assert "attempting to grant RBAC permissions not currently held" in str(refused.value)
        assert "gpuscape-trial-of-rights-ask-a-cluster-admin" in str(refused.value)
        assert present(cluster) - before == RECORD
        on(cluster, "uninstall", "any")
        assert present(cluster) == before


def test_who_may_delete_bindings_but_not_make_them_leaves_what_does_nothing(
    cluster: Plane,
) -> None:
    """The one case where trials stay; the next installation takes them away."""
    small, empty = {"image": {"repository": IMAGE}}, present(cluster)
    with everything_but(cluster, ADMISSION, BINDINGS, (*READ, "delete")) as as_them:
        before = present(cluster)
        with pytest.raises(ChartRefusedError) as refused:
            on(cluster, "install", "any", *as_them, values=small)
        assert f'resource "{BINDINGS}" in API group "{ADMISSION}"' in str(refused.value)
        left = present(cluster) - before - RECORD
        assert left
        assert all(" gpuscape-trial-of-rights-ask-a-cluster-admin" in it for it in left)
    on(cluster, "uninstall", "any")
    on(cluster, "install", "any", values=small)
    assert not {it for it in present(cluster) if "trial-of-rights" in it}
    on(cluster, "uninstall", "any")
    assert present(cluster) == empty


def test_an_upgrade_by_one_who_may_not_bind_policies_changes_nothing(cluster: Plane) -> None:
    small, agent = {"image": {"repository": IMAGE}}, {"labels": "none", "pods": True}
    place = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/{names.AGENT_DAEMON_SET}"
    on(cluster, "install", "any", values=small)
    with everything_but(cluster, ADMISSION, BINDINGS, READ) as as_them:
        before = present(cluster)
        generation = cluster.demand("GET", place)["metadata"]["generation"]
        with pytest.raises(ChartRefusedError) as refused:
            on(cluster, "upgrade", "any", *as_them, values={**small, "agent": agent})
        assert "pre-upgrade" in str(refused.value)
        left = {it for it in present(cluster) ^ before if not it.startswith("Secret")}
        assert left == set()
        assert cluster.demand("GET", place)["metadata"]["generation"] == generation
    on(cluster, "uninstall", "any")


def test_without_cert_manager_it_is_not_chosen(cluster: Plane) -> None:
    before = present(cluster)
    values = {
        "image": {"repository": IMAGE},
        "scheduler": {"enabled": True, "certificates": {"from": "cert-manager"}},
    }
    with pytest.raises(ChartRefusedError) as refused:
        on(cluster, "install", "any", values=values)
    assert "this cluster has no cert-manager (no cert-manager.io/v1)" in str(refused.value)
    assert present(cluster) == before


def test_a_second_release_is_refused_by_the_place_of_the_first(cluster: Plane) -> None:
    on(cluster, "install", "first", values={"image": {"repository": IMAGE}})
    cluster.kubectl("create", "namespace", "elsewhere")
    before = present(cluster)
    with pytest.raises(ChartRefusedError) as refused:
        on(cluster, "install", "second", namespace="elsewhere")
    on(cluster, "uninstall", "first")
    assert "namespace gpuscape has an installation of gpuscape already" in str(refused.value)
    assert not {it for it in before if " elsewhere " in it}
    assert not {it for it in present(cluster) if " elsewhere " in it}


def test_a_cluster_that_is_too_old_is_named() -> None:
    old = ("--kube-version", "1.31.0", "--set", f"image.repository={IMAGE}")
    with pytest.raises(ChartRefusedError) as refused:
        helm("template", "any", CHART, *old)
    assert "chart requires kubeVersion: >= 1.32.0-0" in str(refused.value)
