# SPDX-License-Identifier: Apache-2.0
"""The doctor on real API servers: rights, policies, credentials, quotas and clocks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agent.settings.agent_settings import AgentSettings
from api import names
from base.settings.version_skew import VersionSkew
from diagnosis.checks import cluster_checks, credential_checks
from diagnosis.facts import cluster_facts
from diagnosis.facts.certificate_facts import read_certificates
from diagnosis.facts.cluster_facts import ClusterFacts, read_cluster
from diagnosis.facts.kubelet_facts import KubeletFacts
from diagnosis.facts.local_facts import LocalFacts
from diagnosis.facts.pod_facts import read_pod
from diagnosis.facts.remote_node_facts import read_remote_node
from diagnosis.finding import DoctorFinding, Examination, Unread, examine
from diagnosis.finding_catalog import NODE_CHECKS, POD_CHECKS
from kube.api_server import ApiServer
from kube.credentials import find
from labelers.label_settings import LabelSettings, PluginConfig
from tests.access.stage import ENFORCED_SECONDS, Roles, Stage
from tests.controlplane.plane import Plane
from tools.access.files import POLICIES

pytestmark = pytest.mark.cluster

CHECKS = (
    *(cluster_checks.check_api_server, cluster_checks.check_clock, cluster_checks.check_versions),
    *(cluster_checks.check_rights, cluster_checks.check_policies, cluster_checks.check_node_object),
    *credential_checks.CHECKS,
)
AWAY = Unread("not in this test", applies=False)
GPU = "nvidia.com/gpu"


@contextmanager
def staged(plane: Plane, roles: Roles = Roles.SHIPPED) -> Iterator[Stage]:
    """A namespace with the agent's account, roles and policies."""
    stage = Stage(plane, roles, POLICIES[names.AGENT])
    try:
        stage.wait_until_enforced()
        yield stage
    finally:
        stage.close()


def of_agent(stage: Stage) -> ApiServer:
    """The server with the token of the agent's pod."""
    return find(str(stage.plane.kubeconfig(token=stage.bound_token())))


def of_admin(stage: Stage) -> ApiServer:
    """The server with an admin's certificate."""
    return find(str(stage.plane.kubeconfig()))


def examined(stage: Stage, access: ApiServer) -> Examination:
    """What the doctor makes of the cluster with these credentials."""
    settings = AgentSettings(
        namespace=stage.namespace, node_name=stage.node, host_root=Path("/nowhere")
    )
    api = cluster_facts.doctor_client(names.AGENT, access)
    try:
        cluster = read_cluster(api, settings, stage.node)
    finally:
        api.close()
    facts = LocalFacts(
        settings=settings,
        plugin_config=PluginConfig(),
        label_settings=LabelSettings(),
        now=time.time(),
        machine=AWAY,
        host_tree=AWAY,
        device_files=AWAY,
        kubelet=KubeletFacts(
            devices=AWAY, offered=AWAY, pods=AWAY, sockets=AWAY, configuration=AWAY
        ),
        actuator=AWAY,
        cluster=cluster,
        certificates=read_certificates(settings, access),
        programs=frozenset(),
        skew=VersionSkew(image="0.1.0", manifests=""),
        mig_manager_service=False,
    )
    return examine(CHECKS, facts)


def seen(name: str, stage: Stage) -> Examination:
    """What the agent finds as soon as this is among it; what it finds at the deadline otherwise."""
    deadline = time.monotonic() + ENFORCED_SECONDS
    while True:
        made = examined(stage, of_agent(stage))
        if name in the_names(made) or time.monotonic() > deadline:
            return made
        time.sleep(0.2)


def the_names(made: Examination) -> set[str]:
    return {each.name for each in made.findings}


def test_what_is_shipped_has_no_finding(any_plane: Plane) -> None:
    with staged(any_plane) as stage:
        made = examined(stage, of_agent(stage))

    assert made.findings == ()
    assert made.missed_checks == ()


def test_a_role_that_is_missing_is_named_right_by_right(plane: Plane) -> None:
    with staged(plane) as stage:
        stage.remove("ClusterRole", names.AGENT)
        made = seen("api-right-missing", stage)

    missing = {each.about for each in made.findings if each.name == "api-right-missing"}
    assert missing == {"get nodes", "watch nodes", "patch nodes"}


def test_rights_that_no_agent_needs_are_named(plane: Plane) -> None:
    with staged(plane, Roles.DRIFT) as stage:
        made = examined(stage, of_agent(stage))

    assert the_names(made) == {"api-right-excess"}
    assert {each.about for each in made.findings} == {
        "get secrets",
        "delete pods",
        "delete nodes",
    }


def test_a_policy_without_its_binding_is_named(plane: Plane) -> None:
    with staged(plane) as stage:
        stage.remove("ValidatingAdmissionPolicyBinding", names.AGENT_NODE)
        made = seen("policy-not-in-force", stage)

    (found,) = made.findings
    assert found.name == "policy-not-in-force"
    assert found.about == names.clusterwide(names.AGENT_NODE, stage.namespace)


def test_an_admin_asks_on_the_agents_behalf_and_tries_no_policy(plane: Plane) -> None:
    with staged(plane) as stage:
        made = examined(stage, of_admin(stage))

    assert made.findings == ()
    assert [each.check for each in made.missed_checks] == ["policies"]


def test_a_token_of_nobody_is_refused(plane: Plane) -> None:
    with staged(plane) as stage:
        access = find(str(plane.kubeconfig(token="nobody")))  # noqa: S106  # of nobody
        made = examined(stage, access)

    assert the_names(made) == {"api-credentials-refused"}


def test_the_servers_certificate_is_read(plane: Plane) -> None:
    settings = AgentSettings(host_root=Path("/nowhere"))
    read = read_certificates(settings, find(str(plane.kubeconfig())))

    whats = {each.title for each in read}
    assert whats == {
        "the authority of the API server",
        "our client certificate",
        "the certificate of the API server",
    }


# pods and Nodes


def pod_findings(plane: Plane, namespace: str, name: str) -> tuple[DoctorFinding, ...]:
    """What the doctor finds of a pod, with an admin's rights."""
    api = cluster_facts.doctor_client("gpuscape-doctor", find(str(plane.kubeconfig())))
    try:
        return examine(POD_CHECKS, read_pod(api, namespace, name, 20.0)).findings
    finally:
        api.close()


def job(gpus: int) -> dict[str, Any]:
    resources = {"limits": {GPU: str(gpus)}}
    container = {"name": "main", "image": "none", "resources": resources}
    spec = {"restartPolicy": "Never", "schedulerName": "nobody", "containers": [container]}
    return {"metadata": {"name": "train"}, "spec": {"template": {"spec": spec}}}


def test_a_job_beyond_its_quota_is_found_by_the_controllers_own_event(plane: Plane) -> None:
    namespace = plane.namespace("doctor")
    place = f"/api/v1/namespaces/{namespace}"
    plane.account(namespace, "default")
    quota = {"metadata": {"name": "gpus"}, "spec": {"hard": {f"requests.{GPU}": "1"}}}
    plane.demand("POST", f"{place}/resourcequotas", quota)
    deadline = time.monotonic() + ENFORCED_SECONDS
    while not plane.demand("GET", f"{place}/resourcequotas/gpus").get("status", {}).get("hard"):
        assert time.monotonic() < deadline, "no controller looks after quotas"
        time.sleep(0.2)
    plane.demand("POST", f"/apis/batch/v1/namespaces/{namespace}/jobs", job(8))
    while not (found := pod_findings(plane, namespace, "train")):
        assert time.monotonic() < deadline + ENFORCED_SECONDS, "the Job has no Event"
        time.sleep(0.2)

    assert [each.name for each in found] == ["pod-quota-exceeded"]
    assert "exceeded quota: gpus" in found[0].cause


def test_a_pod_that_selects_no_node_is_found(plane: Plane) -> None:
    namespace = plane.namespace("doctor")
    plane.account(namespace, "default")
    plane.make_node(capacity={GPU: "8"})
    spec = job(1)["spec"]["template"]["spec"] | {"nodeSelector": {"no-such": "label"}}
    pod = {"metadata": {"name": "train"}, "spec": spec}
    plane.demand("POST", f"/api/v1/namespaces/{namespace}/pods", pod)

    names_found = {each.name for each in pod_findings(plane, namespace, "train")}

    assert names_found == {"pod-selects-no-node"}


def test_a_node_without_agent_and_policies_is_seen_from_outside(plane: Plane) -> None:
    namespace = plane.namespace("doctor")
    name = plane.make_node()
    api = cluster_facts.doctor_client("gpuscape-doctor", find(str(plane.kubeconfig())))
    try:
        facts = read_remote_node(api, name, namespace)
        made = examine(NODE_CHECKS, facts)
    finally:
        api.close()

    assert isinstance(facts.missing_policies, tuple)
    assert len(facts.missing_policies) == 6
    assert {"agent-pod-missing", "policy-missing"} <= the_names(made)
    assert [each for each in made.checks if "bug" in each.why] == []


def test_facts_of_a_real_cluster_are_whole(plane: Plane) -> None:
    with staged(plane) as stage:
        settings = AgentSettings(namespace=stage.namespace, node_name=stage.node)
        api = cluster_facts.doctor_client(names.AGENT, of_agent(stage))
        try:
            facts = read_cluster(api, settings, stage.node)
        finally:
            api.close()

    assert isinstance(facts, ClusterFacts)
    assert facts.account == names.username(names.AGENT, stage.namespace)
    assert facts.server.info.version.startswith("v1.37")
    assert facts.server.skew_seconds is not None
    assert isinstance(facts.pods, frozenset)
    assert [pod.partition("/")[0] for pod in facts.pods] == [stage.namespace]
