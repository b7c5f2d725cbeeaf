# SPDX-License-Identifier: Apache-2.0
"""What the chart makes around the extender: certificates, and a kube-scheduler that asks it."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from scheduler.extender.scheduler_settings import SCHEDULER_SETTINGS
from tests.deploy.chart import kustomized, objects, rendered
from tests.deploy.daemonset import DEPLOY

pytestmark = pytest.mark.cluster

RANKED = {"scheduler": {"enabled": True}}


@pytest.mark.parametrize(
    ("cluster", "tag"),
    [
        ("v1.32.4", "v1.32.4"),
        ("v1.33.4-gke.1134000", "v1.33.4"),
        ("v1.34.2+k3s1", "v1.34.2"),
        ("v1.35.0-eks-3025e55", "v1.35.0"),
    ],
)
def test_the_second_kube_scheduler_is_of_the_clusters_own_version(cluster: str, tag: str) -> None:
    made = objects(rendered(RANKED, more=("--kube-version", cluster)))
    pod = made["Deployment", "gpuscape", "gpuscape-kube-scheduler"]["spec"]["template"]["spec"]
    image = pod["containers"]["kube-scheduler"]["image"]
    assert image == f"registry.k8s.io/kube-scheduler:{tag}"


@pytest.mark.parametrize(
    ("cluster", "folder"),
    [
        ("v1.32.4", "gpu-pods-before-1.36"),
        ("v1.35.0-eks-3025e55", "gpu-pods-before-1.36"),
        ("v1.36.0-gke.100", "gpu-pods"),
        ("v1.37.1", "gpu-pods"),
    ],
)
def test_gpu_pods_are_left_to_one_scheduler_as_the_clusters_version_can(
    cluster: str, folder: str
) -> None:
    """Nothing else is made for it, and nothing without the value."""
    one = {"scheduler": {"enabled": True, "kubeScheduler": {"allGpuPods": True}}}
    with_it = objects(rendered(one, more=("--kube-version", cluster)))
    without = objects(rendered(RANKED, more=("--kube-version", cluster)))
    added = {key: made for key, made in with_it.items() if key not in without}
    assert added == objects(kustomized(DEPLOY / folder))
    assert len(added) == 2


def test_without_its_kube_scheduler_no_gpu_pods_are_sent_there() -> None:
    away = {"scheduler": {"enabled": True, "kubeScheduler": {"enabled": False, "allGpuPods": True}}}
    assert not [name for _, _, name in objects(rendered(away)) if "gpu-pods" in name]


def test_policies_of_two_installations_have_names_of_their_own() -> None:
    one = {"scheduler": {"enabled": True, "kubeScheduler": {"allGpuPods": True}}}
    made = objects(rendered(one, namespace="monitoring"))
    kinds = {
        kind: it for (kind, _, name), it in made.items() if name == "gpuscape-gpu-pods.monitoring"
    }
    assert len(kinds) == 2
    (binding,) = (it for kind, it in kinds.items() if kind.endswith("Binding"))
    assert binding["spec"]["policyName"] == "gpuscape-gpu-pods.monitoring"


def test_a_kube_scheduler_may_come_from_a_mirror_and_run_on_gpu_nodes() -> None:
    digest = f"sha256:{'0' * 64}"
    mirror = {"repository": "r.example/kube-scheduler", "digest": digest}
    values = {"enabled": True, "kubeScheduler": {"image": mirror, "onGpuNodes": True}}
    made = objects(rendered({"scheduler": values, "image": {"pullSecrets": ["mine"]}}))
    pod = made["Deployment", "gpuscape", "gpuscape-kube-scheduler"]["spec"]["template"]["spec"]
    assert pod["containers"]["kube-scheduler"]["image"] == f"{mirror['repository']}@{digest}"
    assert pod["imagePullSecrets"] == [{"name": "mine"}]
    assert list(pod["affinity"]["nodeAffinity"]) == [
        "preferredDuringSchedulingIgnoredDuringExecution"
    ]


def test_a_changed_configuration_starts_kube_scheduler_again() -> None:
    """It reads it when it starts."""

    def mark(percentage: int) -> tuple[str, int]:
        values = {"enabled": True, "kubeScheduler": {"percentageOfNodesToScore": percentage}}
        text = rendered({"scheduler": values})
        (line,) = (line for line in text.splitlines() if "checksum/configuration" in line)
        configured = objects(text)["ConfigMap", "gpuscape", "gpuscape-kube-scheduler"]
        profile = configured["data"]["config.yaml"]["profiles"][0]
        return line, profile["percentageOfNodesToScore"]

    (before, all_nodes), (after, own) = mark(100), mark(0)
    assert (all_nodes, own) == (100, 0)
    assert before != after


@pytest.mark.parametrize(
    ("timeout", "budget_seconds"),
    [("200ms", 0.05), ("100ms", 0.025), ("1000ms", 0.25), ("3s", 0.75), ("30s", 7.5)],
)
def test_the_extender_answers_within_a_quarter_of_what_kube_scheduler_waits(
    timeout: str, budget_seconds: float
) -> None:
    values = {"enabled": True, "kubeScheduler": {"extenderTimeout": timeout}}
    made = objects(rendered({"scheduler": values}))
    configured = made["ConfigMap", "gpuscape", "gpuscape-kube-scheduler"]["data"]["config.yaml"]
    (extender,) = configured["extenders"]
    pod = made["Deployment", "gpuscape", "gpuscape-scheduler"]["spec"]["template"]["spec"]
    environment = {
        name: its["value"]
        for name, its in pod["containers"]["scheduler"]["env"].items()
        if "value" in its
    }
    assert extender["httpTimeout"] == timeout
    assert SCHEDULER_SETTINGS.load({}, environment).budget_seconds == budget_seconds


def test_without_its_kube_scheduler_the_budget_is_the_admins() -> None:
    values = {"kubeScheduler": {"enabled": False}, "settings": {"budget": "1s"}}
    made = objects(rendered({"scheduler": {"enabled": True, **values}}))
    pod = made["Deployment", "gpuscape", "gpuscape-scheduler"]["spec"]["template"]["spec"]
    assert pod["containers"]["scheduler"]["env"]["GPUSCAPE_BUDGET"]["value"] == "1s"


def test_without_a_scheduler_there_are_no_certificates() -> None:
    for source in ("self", "cert-manager", "secret"):
        made = objects(rendered({"scheduler": {"certificates": {"from": source}}}))
        assert not {kind for kind, _, _ in made} & {"Secret", "Issuer", "Certificate"}
        assert not [key for key in made if "certificates" in key[2] or "kube-scheduler" in key[2]]


def test_the_secrets_that_our_program_fills_come_empty() -> None:
    """An upgrade writes what a manifest has, and so would undo what it does not leave out."""
    made = objects(rendered(RANKED))
    secrets = [it for (kind, _, _), it in made.items() if kind == "Secret"]
    assert len(secrets) == 3
    for secret in secrets:
        assert secret.keys() == {"apiVersion", "kind", "metadata", "type"}
        assert secret["type"] == "Opaque"


TEXT = {"type": "string", "minLength": 1}
HOURS = {"type": "string", "pattern": "^[0-9]+h$"}


def _spec(required: tuple[str, ...], **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(required),
        "properties": properties,
    }


CERT_MANAGER = {
    "Issuer": {
        "oneOf": [
            _spec(("selfSigned",), selfSigned=_spec(())),
            _spec(("ca",), ca=_spec(("secretName",), secretName=TEXT)),
        ]
    },
    "Certificate": _spec(
        ("secretName", "issuerRef"),
        secretName=TEXT,
        issuerRef=_spec(
            ("name",), group=TEXT, kind={"enum": ["Issuer", "ClusterIssuer"]}, name=TEXT
        ),
        commonName={**TEXT, "maxLength": 64},
        dnsNames={"type": "array", "items": TEXT},
        isCA={"type": "boolean"},
        duration=HOURS,
        renewBefore=HOURS,
        usages={
            "type": "array",
            "items": {"enum": ["digital signature", "server auth", "client auth"]},
        },
        privateKey=_spec(
            (),
            algorithm={"enum": ["RSA", "ECDSA", "Ed25519"]},
            size={"enum": [256, 384, 521]},
            rotationPolicy={"enum": ["Never", "Always"]},
        ),
    ),
}
"""The part of its objects' specs that is used. Source: cert-manager's API reference, version v1."""


def test_cert_managers_objects_are_as_it_documents_them_and_lead_to_one_another() -> None:
    """Rendered, not run: no cert-manager is among what the tests build."""
    values = {"scheduler": {"enabled": True, "certificates": {"from": "cert-manager"}}}
    made = objects(rendered(values, namespace="gpus"))
    of = {kind: {} for kind in CERT_MANAGER}  # type: dict[str, dict[str, Any]]
    for (kind, namespace, name), it in made.items():
        if kind in CERT_MANAGER:
            assert (it["apiVersion"], namespace) == ("cert-manager.io/v1", "gpus")
            jsonschema.validate(it["spec"], CERT_MANAGER[kind])
            of[kind][name] = it["spec"]

    sides = {name: of["Certificate"].pop(f"{name}-tls") for name in SIDES}
    (authority,) = of["Certificate"].values()
    by = of["Issuer"]
    assert by[authority["issuerRef"]["name"]] == {"selfSigned": {}}
    assert authority["isCA"]
    assert authority["privateKey"]["rotationPolicy"] == "Never"
    for name, side in sides.items():
        assert by[side["issuerRef"]["name"]]["ca"]["secretName"] == authority["secretName"]
        assert side["dnsNames"] == [f"{name}.gpus.svc"]
        assert SIDES[name] in side["usages"]
        volumes = made["Deployment", "gpus", name]["spec"]["template"]["spec"]["volumes"]
        assert volumes["tls"]["secret"]["secretName"] == side["secretName"]
        hours = [int(side[key].removesuffix("h")) for key in ("duration", "renewBefore")]
        assert hours[1] > 31 * 24, "the alert fires 30 days before the end"
        assert hours[1] == hours[0] / 3
    assert not [key for key in made if "certificates" in key[2]]


SIDES = {"gpuscape-scheduler": "server auth", "gpuscape-kube-scheduler": "client auth"}
"""Deployments that have a certificate, to what it is for."""
