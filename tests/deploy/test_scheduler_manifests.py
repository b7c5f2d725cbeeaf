# SPDX-License-Identifier: Apache-2.0
"""The manifests of the scheduler extender and of the second kube-scheduler, as files."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from api import names
from base.settings.version_skew import VARIABLE
from cli.main import main
from scheduler.certificates.certificates_settings import CERTIFICATES_SETTINGS
from scheduler.extender.scheduler_settings import SCHEDULER_SETTINGS
from tests.cluster.certificates import SECRETS
from tests.cluster.scheduling import ACCOUNT, SERVICE
from tests.controlplane.plane import Plane
from tests.deploy import install_page, scheduler_page
from tests.deploy.daemonset import DEPLOY, container, manifests
from tests.deploy.deployments import deployment, extender_process, program_process

GOLDEN = DEPLOY.parent / "tests" / "golden"
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
PARTS = ("scheduler", "kube-scheduler", "certificates")
MOST_MIB = 150
"""The extender's budget with 5,000 nodes."""


def only(file: str, kind: str) -> dict[str, Any]:
    (found,) = (
        each for each in yaml.safe_load_all((DEPLOY / file).read_text()) if each["kind"] == kind
    )
    return dict(found)


@pytest.mark.parametrize("part", PARTS)
def test_a_deployment_selects_its_own_pods_and_no_others(part: str) -> None:
    of, others = deployment(part), [deployment(each) for each in PARTS if each != part]
    selected = of["spec"]["selector"]["matchLabels"].items()

    assert selected <= of["spec"]["template"]["metadata"]["labels"].items()
    for other in others:
        assert not selected <= other["spec"]["template"]["metadata"]["labels"].items()


def test_the_service_is_for_the_extenders_pods() -> None:
    labels = deployment("scheduler")["spec"]["template"]["metadata"]["labels"].items()
    service = only("scheduler/service.yaml", "Service")

    assert service["spec"]["selector"].items() <= labels


def test_the_accounts_are_those_that_roles_and_policies_speak_of() -> None:
    accounts = [
        deployment(part)["spec"]["template"]["spec"]["serviceAccountName"] for part in PARTS
    ]
    made = only("kube-scheduler/account.yaml", "ServiceAccount")["metadata"]["name"]

    assert accounts == [names.SCHEDULER, ACCOUNT, names.CERTIFICATES]
    assert made == ACCOUNT


def test_the_extender_is_started_with_options_that_it_has() -> None:
    argv, environment = extender_process({}, listen=":8443")
    called = click.Context(main)
    command = main.get_command(called, argv[1])

    assert command is not None
    command.make_context(argv[1], argv[2:], parent=called)  # raises for an unknown option
    known = {name for option in SCHEDULER_SETTINGS.options for name in option.variables}
    assert set(environment) <= known | {VARIABLE}
    assert {each["name"] for each in container(deployment("scheduler"))["env"]} <= known | {
        VARIABLE
    }


def test_the_extenders_port_is_the_one_it_listens_on() -> None:
    of = container(deployment("scheduler"))
    (listen,) = (each for each in of["args"] if each.startswith("--listen="))
    (port,) = of["ports"]
    (served,) = only("scheduler/service.yaml", "Service")["spec"]["ports"]

    assert listen == f"--listen=:{port['containerPort']}"
    assert served["targetPort"] == port["name"]
    assert {
        of[f"{each}Probe"]["httpGet"]["scheme"] for each in ("startup", "liveness", "readiness")
    } == {"HTTPS"}


def test_the_memory_limit_leaves_room_above_the_budget() -> None:
    limit = container(deployment("scheduler"))["resources"]["limits"]["memory"]

    assert int(limit.removesuffix("Mi")) == 2 * MOST_MIB


@pytest.mark.parametrize(("part", "side"), [("scheduler", "server"), ("kube-scheduler", "client")])
def test_a_deployment_mounts_all_of_a_secret_that_is_filled_or_none_of_it(
    part: str, side: str
) -> None:
    """A kubelet starts no container while a key is missing that a volume names."""
    volumes = deployment(part)["spec"]["template"]["spec"]["volumes"]
    (secret,) = [each["secret"] for each in volumes if "secret" in each]

    assert secret["secretName"] == SECRETS[side]
    assert {it["key"]: it["path"] for it in secret["items"]} == {
        key: key for key in ("ca.crt", "tls.crt", "tls.key")
    }
    assert f"create secret generic {SECRETS[side]} " in scheduler_page.PAGE


def test_the_secrets_that_the_program_fills_are_shipped_without_anything_in_them() -> None:
    """Applied again, a manifest writes what it has, and undoes what was there."""
    shipped = list(yaml.safe_load_all((DEPLOY / "certificates" / "secrets.yaml").read_text()))

    assert {it["metadata"]["name"] for it in shipped} == {
        names.SCHEDULER_CA,
        names.SCHEDULER_TLS,
        names.KUBE_SCHEDULER_TLS,
    }
    for secret in shipped:
        assert secret.keys() == {"apiVersion", "kind", "metadata", "type"}
        assert secret["type"] == "Opaque"


def test_no_pod_mounts_the_authoritys_key() -> None:
    for file in manifests():
        assert f"secretName: {names.SCHEDULER_CA}" not in file.read_text("utf-8")


def test_the_program_that_makes_certificates_is_started_with_options_that_it_has() -> None:
    argv, environment = program_process("certificates", {}, listen=":9403")
    called = click.Context(main)
    group = main.get_command(called, argv[1])
    assert isinstance(group, click.Group)
    command = group.get_command(called, argv[2])

    assert command is not None
    command.make_context(argv[2], argv[3:], parent=called)  # raises for an unknown option
    known = {name for option in CERTIFICATES_SETTINGS.options for name in option.variables}
    assert set(environment) <= known | {VARIABLE}
    of = container(deployment("certificates"))
    assert {each["name"] for each in of["env"]} <= known | {VARIABLE}
    (listen,) = (each for each in of["args"] if each.startswith("--listen="))
    assert listen == f"--listen=:{of['ports'][0]['containerPort']}"


def test_kube_scheduler_asks_the_service_by_the_name_in_its_certificate() -> None:
    service = only("scheduler/service.yaml", "Service")["metadata"]
    data = only("kube-scheduler/configuration.yaml", "ConfigMap")["data"]
    (asked,) = yaml.safe_load(data["config.yaml"])["extenders"]

    assert f"{service['name']}.{service['namespace']}.svc" == SERVICE
    assert asked["urlPrefix"] == f"https://{SERVICE}/v1"
    assert f"name={SERVICE}\n" in scheduler_page.marked("certificates")


def test_without_the_extender_pods_are_scheduled_all_the_same() -> None:
    """By what the shipped configuration says; what comes of it is tried on real schedulers."""
    data = only("kube-scheduler/configuration.yaml", "ConfigMap")["data"]
    (asked,) = yaml.safe_load(data["config.yaml"])["extenders"]

    assert asked["ignorable"] is True
    assert [verb for verb in asked if verb.endswith("Verb")] == ["prioritizeVerb"]
    assert asked["managedResources"] == [{"name": "nvidia.com/gpu", "ignoredByScheduler": False}]


def test_the_pages_command_leads_kube_scheduler_to_another_namespace(tmp_path: Path) -> None:
    shutil.copytree(DEPLOY, tmp_path / "deploy")
    file = tmp_path / "deploy" / "kube-scheduler" / "configuration.yaml"

    commands = scheduler_page.marked("another namespace")
    subprocess.run(["/bin/sh", "-euc", commands], cwd=tmp_path, check=True)

    made = yaml.safe_load(yaml.safe_load(file.read_text())["data"]["config.yaml"])
    assert made["leaderElection"]["resourceNamespace"] == "monitoring"
    assert made["extenders"][0]["urlPrefix"] == "https://gpuscape-scheduler.monitoring.svc/v1"


def selects(term: dict[str, Any], labels: dict[str, str]) -> bool:
    """Whether a node with these labels meets every expression of a node selector's term."""
    held = {
        "Exists": lambda each: each["key"] in labels,
        "DoesNotExist": lambda each: each["key"] not in labels,
    }
    return all(held[each["operator"]](each) for each in term["matchExpressions"])


def test_kube_scheduler_runs_on_no_node_that_has_gpus() -> None:
    """By what the agent writes about any machine and MIG strategy, or by the operator's label."""
    affinity = deployment("kube-scheduler")["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    terms = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    published = [
        dict(line.split("=", 1) for line in file.read_text("utf-8").splitlines())
        for file in GOLDEN.glob("*/labels-*.txt")
        if file.parent.name not in ("empty", "no-driver")
    ]

    for labels in (*published, {"nvidia.com/gpu.present": "true"}):
        assert not any(selects(term, labels) for term in terms)
    assert len(published) > 30
    assert any(selects(term, {"kubernetes.io/os": "linux"}) for term in terms)


def test_kube_scheduler_prefers_control_plane_nodes_and_bears_their_taint() -> None:
    spec = deployment("kube-scheduler")["spec"]["template"]["spec"]
    role = "node-role.kubernetes.io/control-plane"
    affinity = spec["affinity"]["nodeAffinity"]
    (preferred,) = affinity["preferredDuringSchedulingIgnoredDuringExecution"]

    assert preferred["weight"] == 100
    assert selects(preferred["preference"], {role: ""})
    assert not selects(preferred["preference"], {})
    assert spec["tolerations"] == [{"key": role, "operator": "Exists", "effect": "NoSchedule"}]


def test_the_quota_on_the_install_page_allows_every_priority_class_that_is_used() -> None:
    (quota,) = (
        made
        for text in install_page.objects()
        if (made := yaml.safe_load(text))["kind"] == "ResourceQuota"
    )
    (scope,) = quota["spec"]["scopeSelector"]["matchExpressions"]
    used = set(
        re.findall(
            r"priorityClassName: (\S+)",
            "".join(file.read_text("utf-8") for file in manifests()),
        )
    )

    assert set(scope["values"]) == used == {"system-node-critical", "system-cluster-critical"}


@pytest.mark.cluster
def test_the_security_page_has_all_that_the_second_kube_scheduler_may_write(
    any_plane: Plane,
) -> None:
    """By the roles that its bindings name, as this version of Kubernetes has them."""
    bound = [
        each["roleRef"]["name"]
        for each in yaml.safe_load_all((DEPLOY / "kube-scheduler" / "account.yaml").read_text())
        if each["kind"] == "ClusterRoleBinding"
    ]
    page = (DEPLOY.parent / "docs" / "security.md").read_text("utf-8")
    table = page.partition("<!-- kube-scheduler -->")[2].partition("<!-- end -->")[0]
    rows = re.findall(r"^\| (`.*`) \| ([a-z, ]+) \|", table, re.MULTILINE)
    written = {
        (what, verb)
        for resources, verbs in rows
        for what in re.findall(r"`(.+?)`", resources)
        for verb in verbs.split(", ")
    }

    granted = {
        (what, verb)
        for name in bound
        for rule in any_plane.demand("GET", f"{ROLES}/{name}")["rules"]
        for what in rule.get("resources", ())
        for verb in set(rule["verbs"]) - {"get", "list", "watch"}
    }

    assert granted - written == set()
    newer = {each for each in written if each[0].startswith(("resourceclaims", "pods/finalizers"))}
    assert written - granted <= newer
