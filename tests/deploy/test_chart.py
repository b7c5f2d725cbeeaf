# SPDX-License-Identifier: Apache-2.0
"""The chart makes what the manifests say, and refuses in words what cannot be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.chart import (
    CHART,
    IMAGE,
    ChartRefusedError,
    helm,
    kustomized,
    objects,
    rendered,
)
from tests.deploy.daemonset import DEPLOY
from tools.access.files import parts_of

pytestmark = pytest.mark.cluster

NAMESPACE = ("Namespace", "", "gpuscape")
"""Helm makes it, or the admin."""


TAG = "v1.37.1"
"""Of kube-scheduler in the manifests; the chart goes by the cluster's own."""


def variable(name: str, value: str) -> str:
    """A patch that gives the agent one more setting."""
    entry = {"name": name, "value": value}
    return yaml.dump(
        [{"op": "add", "path": "/spec/template/spec/containers/0/env/-", "value": entry}]
    )


AS_KUSTOMIZED: dict[str, tuple[dict[str, Any], list[str], list[str], list[str]]] = {
    "as it comes": ({}, ["base"], [], []),
    "MIG devices by CDI": ({"agent": {"migDevices": "management-cdi"}}, ["mig"], [], []),
    "MIG devices by a capability": (
        {"agent": {"migDevices": "sys-admin"}},
        ["mig-sys-admin"],
        [],
        [],
    ),
    "what an agent can have": (
        {"agent": {"gpuOperator": True, "hostState": True, "pods": True, "resourceSlices": True}},
        ["base", "pods", "dra"],
        ["gpu-operator", "host-state"],
        [variable("GPUSCAPE_RESOURCE_SLICES", "true")],
    ),
    "the kernel log": ({"agent": {"kernelLog": True}}, ["base"], ["kernel-log"], []),
    "a driver without container toolkit": (
        {"agent": {"driverRoot": "/home/kubernetes/bin/nvidia"}},
        ["base"],
        ["driver-root"],
        [],
    ),
    "OpenShift": ({"openshift": True}, ["base"], ["openshift"], []),
    "network policies": (
        {"networkPolicies": {"enabled": True}},
        ["base", "network-policies"],
        [],
        [],
    ),
    "a Prometheus without the operator": (
        {"monitoring": {"scrapeConfig": True}},
        ["base", "monitoring/prometheus"],
        [],
        [],
    ),
    "next to dcgm-exporter": ({"agent": {"shadow": True}}, ["base"], ["shadow"], []),
    "nodes that wait for their first layout": (
        {"agent": {"startupTaint": True}},
        ["base"],
        ["startup-taint"],
        [],
    ),
    "without GPUs": ({"agent": {"simulate": "dgx-a100"}}, ["base"], ["simulated"], []),
    "by a NodeFeature": (
        {"agent": {"labels": "nodefeature"}},
        ["base"],
        [],
        [variable("GPUSCAPE_SINK", "nodefeature")],
    ),
    "MIG layouts are changed": (
        {"agent": {"migDevices": "sys-admin"}, "mig": {"mode": "enforce"}},
        ["mig-sys-admin", "coordinator"],
        ["actuator"],
        [variable("GPUSCAPE_MIG_MODE", "enforce")],
    ),
    "pods are ranked": (
        {"scheduler": {"enabled": True, "kubeScheduler": {"image": {"tag": TAG}}}},
        ["base", "scheduler", "certificates", "kube-scheduler"],
        [],
        [],
    ),
    "pods are ranked by a kube-scheduler that is there": (
        {"scheduler": {"enabled": True, "kubeScheduler": {"enabled": False}}},
        ["base", "scheduler", "certificates"],
        [],
        [],
    ),
    "pods are ranked with certificates of one's own": (
        {
            "scheduler": {
                "enabled": True,
                "certificates": {"from": "secret"},
                "kubeScheduler": {"image": {"tag": TAG}},
            }
        },
        ["base", "scheduler", "kube-scheduler"],
        [],
        [],
    ),
    "all that Prometheus and Grafana take": (
        {
            "scheduler": {"enabled": True, "kubeScheduler": {"image": {"tag": TAG}}},
            "monitoring": {
                "monitor": "pod",
                "rules": True,
                "dashboards": True,
                "onlyFor": "monitoring",
            },
        },
        ["base", "scheduler", "certificates", "kube-scheduler"]
        + [
            f"monitoring/{it}"
            for it in ("pod-monitor", "scheduler-monitor", "rules", "dashboards", "network-policy")
        ],
        [],
        [],
    ),
    "MIG changes that Prometheus watches": (
        {
            "agent": {"migDevices": "sys-admin"},
            "mig": {"mode": "enforce"},
            "monitoring": {"monitor": "pod"},
        },
        [
            "mig-sys-admin",
            "coordinator",
            "monitoring/pod-monitor",
            "monitoring/coordinator-monitor",
        ],
        ["actuator"],
        [variable("GPUSCAPE_MIG_MODE", "enforce")],
    ),
    "a ServiceMonitor": (
        {"monitoring": {"monitor": "service"}},
        ["base", "monitoring/service-monitor"],
        [],
        [],
    ),
}
"""Values to what they stand for: resources, components, and patches of the DaemonSet."""


@pytest.mark.parametrize("case", AS_KUSTOMIZED)
def test_values_make_what_the_manifests_say(case: str, tmp_path: Path) -> None:
    values, resources, components, patches = AS_KUSTOMIZED[case]
    (tmp_path / "deploy").symlink_to(DEPLOY)
    overlay = {
        "resources": [f"deploy/{it}" for it in resources],
        "components": [f"deploy/{it}" for it in components],
        "patches": [
            {"target": {"kind": "DaemonSet", "name": "gpuscape-agent"}, "patch": it}
            for it in patches
        ],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.dump(overlay))
    wanted = objects(kustomized(tmp_path))
    del wanted[NAMESPACE]

    made = objects(rendered(values))

    assert sorted(made) == sorted(wanted)
    for key, value in wanted.items():
        assert made[key] == value, key


def agents(values: dict[str, Any]) -> dict[str, Any]:
    """The agents' pod templates by the names of their DaemonSets."""
    return {
        name: made["spec"]["template"]["spec"]
        for (kind, _, name), made in objects(rendered(values)).items()
        if kind == "DaemonSet"
    }


def test_rights_in_another_namespace_are_those_that_are_made_for_it() -> None:
    values = {
        "agent": {"pods": True, "resourceSlices": True, "migDevices": "sys-admin"},
        "mig": {"mode": "enforce"},
        "scheduler": {"enabled": True},
    }
    made = objects(rendered(values, namespace="gpus"))
    wanted = objects(yaml.dump_all(it for part in parts_of("gpus").values() for it in part))
    assert {key: made.get(key) for key in wanted} == wanted
    others = {key: it for key, it in made.items() if key not in wanted}
    outside = {key for key in others if key[1] != "gpus"}
    assert outside == {
        ("ClusterRoleBinding", "", "gpuscape-kube-scheduler.gpus"),
        ("ClusterRoleBinding", "", "gpuscape-kube-scheduler-volumes.gpus"),
        ("RoleBinding", "kube-system", "gpuscape-kube-scheduler.gpus"),
    }
    for key in outside:
        assert [it["namespace"] for it in others[key]["subjects"]] == ["gpus"]
    configured = others["ConfigMap", "gpus", "gpuscape-kube-scheduler"]["data"]["config.yaml"]
    assert configured["leaderElection"]["resourceNamespace"] == "gpus"
    (extender,) = configured["extenders"]
    assert extender["urlPrefix"] == "https://gpuscape-scheduler.gpus.svc/v1"
    assert not any(
        it["metadata"]["namespace"] == "gpuscape"
        for it in made.values()
        if it["metadata"].get("namespace")
    )


def test_a_canary_has_its_own_image_and_the_others_leave_its_nodes() -> None:
    made = agents({"agent": {"canary": {"nodes": "pool=canary", "tag": "0.2.0"}}})
    images = {name: its["containers"]["agent"]["image"] for name, its in made.items()}
    assert images == {
        "gpuscape-agent": f"{IMAGE}:0.1.0",
        "gpuscape-agent-canary": f"{IMAGE}:0.2.0",
    }
    for name, operator in (("gpuscape-agent", "NotIn"), ("gpuscape-agent-canary", "In")):
        affinity = made[name]["affinity"]["nodeAffinity"]
        terms = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        pool = {"key": "pool", "operator": operator, "values": ["canary"]}
        assert len(terms) == 4
        assert all(pool in term["matchExpressions"] for term in terms)
    (monitor,) = (
        it
        for key, it in objects(
            rendered(
                {"agent": {"canary": {"nodes": "pool=canary"}}, "monitoring": {"monitor": "pod"}}
            )
        ).items()
        if key[0] == "PodMonitor"
    )
    (component,) = monitor["spec"]["selector"]["matchExpressions"]
    assert component["values"] == ["agent", "agent-canary"]


def test_settings_reach_the_programs_as_their_variables() -> None:
    made = agents(
        {"agent": {"settings": {"timestamp": False, "jitter": 0.2, "resource-names": ["a", "b"]}}}
    )
    env = made["gpuscape-agent"]["containers"]["agent"]["env"]
    named = {
        f"GPUSCAPE_{name}": value
        for name, value in {"TIMESTAMP": "false", "JITTER": "0.2", "RESOURCE_NAMES": "a,b"}.items()
    }
    assert {name: env[name]["value"] for name in named} == named


def test_a_digest_stands_in_place_of_the_tag_and_pulls_are_the_admins() -> None:
    digest = f"sha256:{'0' * 64}"
    values = {"image": {"digest": digest, "tag": "1", "pullSecrets": ["mine"]}}
    made = agents(values)["gpuscape-agent"]
    assert made["containers"]["agent"]["image"] == f"{IMAGE}@{digest}"
    assert made["imagePullSecrets"] == [{"name": "mine"}]


def test_without_writes_nothing_asks_for_any() -> None:
    values = {
        "writes": False,
        "agent": {"migDevices": "sys-admin"},
        "mig": {"mode": "enforce"},
    }
    made = objects(rendered(values))
    env = agents(values)["gpuscape-agent"]["containers"]["agent"]["env"]
    assert [env[f"GPUSCAPE_{name}"]["value"] for name in ("SINK", "MIG_MODE")] == ["none", "off"]
    assert ("Deployment", "gpuscape", "gpuscape-coordinator") not in made
    assert ("ValidatingAdmissionPolicy", "", "gpuscape-stopped-writes") in made
    assert ("ValidatingAdmissionPolicyBinding", "", "gpuscape-stopped-writes") in made


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"image": {"tag": "0.2.0"}}, "image.tag is 0.2.0, and the chart 0.1.0."),
        ({"image": {"tag": "v1.1.0-mine"}}, "image.tag is v1.1.0-mine, and the chart 0.1.0."),
        (
            {"agent": {"canary": {"nodes": "a=b", "tag": "0.2.0"}}},
            "agent.canary.tag is 0.2.0, and the chart 0.1.0.",
        ),
        ({}, ""),
        ({"image": {"tag": "0.1.7"}}, ""),
        ({"image": {"tag": "nightly"}}, ""),
        ({"image": {"tag": "0.2.0", "digest": f"sha256:{'0' * 64}"}}, ""),
    ],
)
def test_helm_names_a_tag_of_another_minor_version(values: dict[str, Any], named: str) -> None:
    given = {**values, "image": {"repository": IMAGE, **values.get("image", {})}}
    dry = ("install", "any", CHART, "--namespace", "gpuscape", "--dry-run=client")
    notes = helm(*dry, "--values", "-", stdin=yaml.dump(given)).partition("\nNOTES:\n")[2]
    assert "rollout status" in notes
    assert ("DIFFERENT MINOR VERSIONS" in notes) is bool(named)
    assert named in notes


MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "no registry": ({"image": {"repository": ""}}, "image.repository is empty: name the registry"),
    "a tag in the name": (
        {"image": {"repository": "r.example/g:1"}},
        'image.repository is "r.example/g:1": it should be a name without tag and digest',
    ),
    "a digest in the name": ({"image": {"repository": "g@sha256:00"}}, "name without tag"),
    "half a digest": ({"image": {"digest": "sha256:12"}}, "image.digest is"),
    "a digest without its kind": ({"image": {"digest": "0" * 64}}, "it should be sha256:"),
    "a tag that is a number": ({"image": {"tag": 1.0}}, "at '/image/tag': got number, want string"),
    "a pull policy in small letters": (
        {"image": {"pullPolicy": "always"}},
        "at '/image/pullPolicy': value must be one of 'Always', 'IfNotPresent', 'Never'",
    ),
    "pull secrets as objects": (
        {"image": {"pullSecrets": [{"name": "mine"}]}},
        "at '/image/pullSecrets/0': got object, want string",
    ),
    "a value of another chart": ({"gfd": {"enabled": True}}, "'gfd' not allowed"),
    "a value at the wrong place": ({"tolerations": []}, "'tolerations' not allowed"),
    "a key that is misspelled": ({"agent": {"migDevice": "none"}}, "'migDevice' not allowed"),
    "a setting that is misspelled": (
        {"agent": {"settings": {"profilling": True}}},
        "at '/agent/settings': additional properties 'profilling' not allowed",
    ),
    "a setting as a variable": (
        {"agent": {"settings": {"GPUSCAPE_JITTER": 0}}},
        "'GPUSCAPE_JITTER' not allowed",
    ),
    "a setting of another program": (
        {"scheduler": {"settings": {"mig-mode": "off"}}},
        "at '/scheduler/settings': additional properties 'mig-mode' not allowed",
    ),
    "a setting that the chart sets": (
        {"agent": {"labels": "none", "settings": {"sink": "node"}}},
        "agent.settings.sink: the chart sets it from another value",
    ),
    "a setting that is an object": (
        {"agent": {"settings": {"jitter": {}}}},
        "at '/agent/settings/jitter': got object",
    ),
    "a sink that does not exist": ({"agent": {"labels": "nodes"}}, "one of 'node', 'nodefeature'"),
    "a switch as text": ({"agent": {"kernelLog": "yes"}}, "want boolean"),
    "off without quotes": ({"mig": {"mode": False}}, "at '/mig/mode': value must be one of 'off'"),
    "MIG layouts without sight of them": (
        {"mig": {"mode": "enforce"}},
        "mig.mode=enforce needs the agent to see MIG devices: set agent.migDevices",
    ),
    "a kubelet folder with a slash": (
        {"agent": {"kubeletFolder": "/var/lib/kubelet/"}},
        "agent.kubeletFolder is",
    ),
    "a kubelet folder that is relative": ({"agent": {"kubeletFolder": "var"}}, "absolute path"),
    "no node at once": ({"agent": {"maxUnavailable": 0}}, "no node would ever be updated"),
    "more than all nodes": ({"agent": {"maxUnavailable": "200%"}}, "agent.maxUnavailable is"),
    "a toleration that is text": (
        {"agent": {"tolerations": ["nvidia.com/gpu"]}},
        "at '/agent/tolerations/0': got string, want object",
    ),
    "a node label that is true": (
        {"agent": {"nodeSelector": {"gpu": True}}},
        "at '/agent/nodeSelector/gpu': got boolean, want string",
    ),
    "a canary without nodes": (
        {"agent": {"canary": {"tag": "2"}}},
        "agent.canary has an image and no nodes",
    ),
    "a canary's label without a value": (
        {"agent": {"canary": {"nodes": "pool"}}},
        "one label of the nodes and its value",
    ),
    "a canary and an affinity": (
        {"agent": {"canary": {"nodes": "a=b"}, "affinity": {}}},
        "agent.affinity and agent.canary cannot be had together",
    ),
    "a canary behind a Service": (
        {"agent": {"canary": {"nodes": "a=b"}}, "monitoring": {"monitor": "service"}},
        "monitoring.monitor=service reaches no canary",
    ),
    "a simulated machine with MIG's devices": (
        {"agent": {"simulate": "dgx-a100", "migDevices": "sys-admin"}},
        "agent.simulate and agent.migDevices cannot be had together",
    ),
    "a trial that is to write labels": (
        {"agent": {"shadow": True, "labels": "nodefeature"}},
        "agent.shadow and agent.labels cannot be had together",
    ),
    "a driver root that is relative": ({"agent": {"driverRoot": "nvidia"}}, "as in /home/kubern"),
    "a driver root and no driver": (
        {"agent": {"driverRoot": "/d", "simulate": "dgx-a100"}},
        "agent.driverRoot and agent.simulate cannot be had together",
    ),
    "a driver root and a right of the toolkit": (
        {"agent": {"driverRoot": "/d", "migDevices": "management-cdi"}},
        "agent.driverRoot and agent.migDevices cannot be had together",
    ),
    "a way to no API server": (
        {"networkPolicies": {"apiServerPorts": []}},
        "at '/networkPolicies/apiServerPorts': minItems",
    ),
    "an interval that is a number": ({"monitoring": {"interval": 15}}, "got number, want string"),
    "an interval without a unit": ({"monitoring": {"interval": "15"}}, "as in 15s"),
    "half a replica": ({"scheduler": {"replicas": 1.5}}, "at '/scheduler/replicas'"),
    "a Secret of one's own that a program would fill": (
        {"scheduler": {"enabled": True, "tlsSecret": "mine"}},
        "scheduler.certificates.from=self and a tlsSecret cannot be had together",
    ),
    "a Secret of one's own that cert-manager would not know": (
        {
            "scheduler": {
                "certificates": {"from": "cert-manager"},
                "kubeScheduler": {"tlsSecret": "mine"},
            }
        },
        "scheduler.certificates.from=cert-manager and a tlsSecret cannot be had together",
    ),
    "certificates from nowhere": (
        {"scheduler": {"certificates": {"from": "openssl"}}},
        "at '/scheduler/certificates/from': value must be one of 'self', 'cert-manager', 'secret'",
    ),
    "certificates as one word": (
        {"scheduler": {"certificates": "self"}},
        "at '/scheduler/certificates': got string, want object",
    ),
    "a kube-scheduler with its tag in the name": (
        {"scheduler": {"kubeScheduler": {"image": {"repository": "r.example/k:v1.37.1"}}}},
        'scheduler.kubeScheduler.image.repository is "r.example/k:v1.37.1": it should be a name',
    ),
    "a kube-scheduler from nowhere": (
        {"scheduler": {"kubeScheduler": {"image": {"repository": ""}}}},
        'scheduler.kubeScheduler.image.repository is "": it should be a name',
    ),
    "more nodes than there are": (
        {"scheduler": {"kubeScheduler": {"percentageOfNodesToScore": 101}}},
        "at '/scheduler/kubeScheduler/percentageOfNodesToScore': maximum",
    ),
    "a timeout of the extender without a unit": (
        {"scheduler": {"kubeScheduler": {"extenderTimeout": "500"}}},
        'extenderTimeout is "500": it should be from 100ms to 30s, in one whole number of ms or s',
    ),
    "one that no answer keeps": (
        {"scheduler": {"kubeScheduler": {"extenderTimeout": "99ms"}}},
        'scheduler.kubeScheduler.extenderTimeout is "99ms"',
    ),
    "one that holds every pod up": (
        {"scheduler": {"kubeScheduler": {"extenderTimeout": "31s"}}},
        "an extender that hangs costs each GPU pod so long",
    ),
    "a budget that may be longer than the timeout": (
        {"scheduler": {"enabled": True, "settings": {"budget": "1s"}}},
        "scheduler.settings.budget: the chart sets it to a quarter of scheduler.kubeScheduler.ext",
    ),
}
"""Typical mistakes to what a person reads."""


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_the_values_is_refused_by_its_name(mistake: str) -> None:
    values, printed = MISTAKES[mistake]
    with pytest.raises(ChartRefusedError) as refused:
        rendered(values)
    assert printed in str(refused.value)


def test_the_chart_passes_lint() -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", CHART, "--set", "image.repository=r/g")
