# SPDX-License-Identifier: Apache-2.0
"""The chart makes what the manifests say, and refuses in words what cannot be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from actuator.boots.reboot_sentinel import REBOOT_FOLDER
from api import names
from tests.deploy.chart import (
    CHART,
    HOOK,
    IMAGE,
    ChartRefusedError,
    helm,
    kustomized,
    objects,
    rendered,
)
from tests.deploy.daemonset import DEPLOY
from tools.access.coordinator import CoordinatorBounds
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


@pytest.mark.parametrize("slots", [0, 3])
def test_the_coordinators_bounds_are_those_of_the_values(slots: int) -> None:
    coordinator = {
        "settings": {"slots": slots},
        "protectedNamespaces": ["kube-system", "kueue-system"],
        "pluginPods": [{"namespace": "kube-system", "prefix": "my-plugin-"}],
        "onGpuNodes": True,
    }
    values = {
        "agent": {"migDevices": "sys-admin"},
        "mig": {"mode": "enforce", "coordinator": coordinator},
    }
    bounds = CoordinatorBounds(
        slots=slots,
        protected=("kube-system", "kueue-system"),
        plugin_pods=("kube-system/my-plugin-",),
    )
    wanted = objects(yaml.dump_all(parts_of(bounds=bounds)["coordinator"]))

    made = objects(rendered(values))

    assert {key: made.get(key) for key in wanted} == wanted
    pod = made["Deployment", "gpuscape", "gpuscape-coordinator"]["spec"]["template"]["spec"]
    assert list(pod["affinity"]["nodeAffinity"]) == [
        "preferredDuringSchedulingIgnoredDuringExecution"
    ]


def test_who_permits_mig_changes_comes_with_the_coordinator_alone() -> None:
    assert not any(name == names.MIG_PERMIT for _, _, name in objects(rendered()))


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


@pytest.mark.parametrize(
    ("own", "extender"),
    [
        (
            True,
            [
                {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "metrics"}}},
                {
                    "podSelector": {
                        "matchLabels": {
                            "app.kubernetes.io/name": "gpuscape",
                            "app.kubernetes.io/component": "kube-scheduler",
                        }
                    }
                },
            ],
        ),
        (False, None),
    ],
)
def test_the_namespace_for_metrics_holds_for_each_program_that_policies_are_for(
    own: bool, extender: list[Any] | None
) -> None:
    """No selector names a kube-scheduler that is not the chart's, so it is not shut out."""
    values = {
        "scheduler": {"enabled": True, "kubeScheduler": {"enabled": own}},
        "monitoring": {"onlyFor": "metrics"},
        "networkPolicies": {"enabled": True},
    }
    made = objects(rendered(values))
    allowed = {
        name.removeprefix("gpuscape-").removesuffix("-traffic"): [
            rule.get("from") for rule in its["spec"].get("ingress", ())
        ]
        for (kind, _, name), its in made.items()
        if kind == "NetworkPolicy" and name.endswith("-traffic")
    }
    only = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "metrics"}}}]
    assert allowed == {
        **{name: [only] for name in ("agent", "coordinator", "kube-scheduler")},
        "scheduler": [extender],
        "certificates": [],
    }


BY_A_NAMESPACES_ADMIN = {
    *("ConfigMap", "DaemonSet", "Deployment", "NetworkPolicy", "PodDisruptionBudget", "Secret"),
    *("Service", "ServiceAccount"),
    *("Certificate", "Issuer"),  # cert-manager adds them to the role admin
}
"""Kinds that the role admin may make in its namespace. Source: Kubernetes' default roles."""


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"scheduler": {"enabled": True}, "openshift": True},
        {"agent": {"pods": True, "resourceSlices": True, "migDevices": "sys-admin"}}
        | {"mig": {"mode": "enforce"}, "scheduler": {"enabled": True}}
        | {"monitoring": {"monitor": "pod", "rules": True}},
        {"monitoring": {"monitor": "service"}},
        {"scheduler": {"enabled": True, "kubeScheduler": {"allGpuPods": True}}},
    ],
)
def test_every_kind_that_takes_a_right_is_tried_before_anything_is_made(
    values: dict[str, Any],
) -> None:
    text = rendered(values, more=("--kube-version", TAG))
    manifests = [it for it in yaml.safe_load_all(text) if it]
    first, second = (it for it in manifests if HOOK in it["metadata"].get("annotations", {}))
    tried = second["items"]
    made = [it for it in objects(text).values() if it["kind"] not in BY_A_NAMESPACES_ADMIN]

    def places(found: list[dict[str, Any]]) -> set[tuple[str, str]]:
        return {(it["kind"], it["metadata"].get("namespace", "")) for it in found}

    assert places(tried) == places(made)
    assert all(HOOK in it["metadata"]["annotations"] for it in tried)
    roles = [it for it in made if it["kind"] in ("ClusterRole", "Role")]
    for role in roles:
        of = (role["kind"], role["metadata"].get("namespace", ""))
        (its,) = (it for it in tried if places([it]) == {of})
        assert [it for it in role["rules"] if it not in its["rules"]] == []
    assert {**first, "metadata": None} in [{**it, "metadata": None} for it in tried]
    assert not any(it.get("subjects") or it.get("users") for it in tried)
    bound = {it["roleRef"]["name"] for it in made if "roleRef" in it}
    assert {it for it in bound if not it.startswith("gpuscape-")} <= {
        it["roleRef"]["name"] for it in tried if "roleRef" in it
    }


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


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, None),
        ({"mig": {"modeChange": "driver"}}, "driver"),
        ({"mig": {"modeChange": "off"}}, None),
        ({"mig": {"modeChange": "driver"}, "writes": False}, None),
    ],
)
def test_resets_for_mig_are_off_unless_a_value_allows_them(
    values: dict[str, Any], expected: str | None
) -> None:
    env = agents(values)["gpuscape-agent"]["containers"]["agent"]["env"]
    assert env.get("GPUSCAPE_MIG_MODE_CHANGE", {}).get("value") == expected


def test_what_follows_without_the_drivers_reset_is_the_actuators_to_know() -> None:
    """Nothing unless a value allows it."""
    enforced = {"mode": "enforce", "coordinator": {}}
    names = ("GPUSCAPE_MIG_RESET", "GPUSCAPE_MIG_REBOOT")
    made = {}
    for text, mig in (("off", {}), ("on", {"reset": "allow", "reboot": "sentinel"})):
        values = {"agent": {"migDevices": "sys-admin"}, "mig": enforced | mig}
        env = agents(values)["gpuscape-agent"]["containers"]["actuator"]["env"]
        made[text] = [env.get(name, {}).get("value") for name in names]
    assert made == {"off": [None, None], "on": ["allow", "sentinel"]}


def test_the_actuator_alone_gets_a_folder_of_its_own_for_the_file_that_asks_for_a_boot() -> None:
    """And only where a value allows it: never the host's /run."""
    found = {}
    for reboot in ("off", "sentinel"):
        mig = {"mode": "enforce", "coordinator": {}, "reboot": reboot}
        values = {"agent": {"migDevices": "sys-admin"}, "mig": mig}
        pod = yaml.safe_load_all(rendered(values))
        spec = next(
            it["spec"]["template"]["spec"]
            for it in pod
            if it and it["kind"] == "DaemonSet" and it["metadata"]["name"] == "gpuscape-agent"
        )
        mounts = {
            (container["name"], mount["mountPath"])
            for container in spec["containers"]
            for mount in container["volumeMounts"]
            if mount["name"] == "mig-reboot"
        }
        paths = [it["hostPath"] for it in spec["volumes"] if it["name"] == "mig-reboot"]
        found[reboot] = mounts, paths
    folder = str(REBOOT_FOLDER)
    assert found == {
        "off": (set(), []),
        "sentinel": (
            {("actuator", folder)},
            [{"path": folder, "type": "DirectoryOrCreate"}],
        ),
    }


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
    "a protected namespace that is none": (
        {"mig": {"coordinator": {"protectedNamespaces": ["Kube_System"]}}},
        'mig.coordinator.protectedNamespaces is "Kube_System": it should be the name',
    ),
    "a plugin's pods with a quote": (
        {"mig": {"coordinator": {"pluginPods": [{"namespace": "x", "prefix": "a'b"}]}}},
        "its prefix should be how a pod's name begins",
    ),
    "a plugin's pods without a prefix": (
        {"mig": {"coordinator": {"pluginPods": [{"namespace": "x"}]}}},
        "missing property 'prefix'",
    ),
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
    "a memory in another unit": (
        {"agent": {"resources": {"limits": {"memory": "256MB"}}}},
        'agent.resources.limits.memory is "256MB": it should be a quantity, as in 256Mi',
    ),
    "a memory in thousandths": (
        {"mig": {"coordinator": {"resources": {"limits": {"memory": "256m"}}}}},
        'mig.coordinator.resources.limits.memory is "256m": m stands for thousandths of a byte',
    ),
    "a quantity with a comma": (
        {"scheduler": {"resources": {"requests": {"cpu": "0,5"}}}},
        'scheduler.resources.requests.cpu is "0,5": it should be a quantity, as in 100m or 0.5',
    ),
    "a request above the limit that comes with the chart": (
        {"agent": {"resources": {"requests": {"memory": "1Gi"}}}},
        "the request of memory, 1Gi, is more than its limit, 256Mi: raise the limit too",
    ),
    "resources without their kind": (
        {"scheduler": {"certificates": {"resources": {"memory": "1Gi"}}}},
        "at '/scheduler/certificates/resources': additional properties 'memory' not allowed",
    ),
    "one limit": (
        {"agent": {"resources": {"limit": {"memory": "1Gi"}}}},
        "at '/agent/resources': additional properties 'limit' not allowed",
    ),
    "an operator of tolerations that does not exist": (
        {"scheduler": {"tolerations": [{"key": "gpu", "operator": "Equals"}]}},
        "at '/scheduler/tolerations/0/operator': value must be one of 'Exists', 'Equal'",
    ),
    "an effect in small letters": (
        {"agent": {"tolerations": [{"key": "gpu", "effect": "noSchedule"}]}},
        "at '/agent/tolerations/0/effect': value must be one of '', 'NoSchedule'",
    ),
    "a toleration of a value that need not be": (
        {"agent": {"tolerations": [{"key": "gpu", "operator": "Exists", "value": "yes"}]}},
        'agent.tolerations: gpu has the operator Exists and the value "yes": take the value out',
    ),
    "a toleration of nothing": (
        {"mig": {"coordinator": {"tolerations": [{"effect": "NoSchedule"}]}}},
        "mig.coordinator.tolerations: one has no key",
    ),
    "a toleration of a number": (
        {"agent": {"tolerations": [{"key": "gpu", "value": 1}]}},
        "at '/agent/tolerations/0/value': got number, want string",
    ),
    "node labels as a list": (
        {"agent": {"nodeSelector": ["pool=gpu"]}},
        "at '/agent/nodeSelector': got array, want object",
    ),
    "a node label with an equals sign": (
        {"scheduler": {"kubeScheduler": {"nodeSelector": {"pool=gpu": ""}}}},
        'scheduler.kubeScheduler.nodeSelector is "pool=gpu": it should be a label\'s key and after',
    ),
    "a node label with a space": (
        {"agent": {"nodeSelector": {"pool": "big gpus"}}},
        'agent.nodeSelector.pool is "big gpus": it should be a label\'s value',
    ),
    "an affinity that is misspelled": (
        {"agent": {"affinity": {"nodeAffinty": {}}}},
        "at '/agent/affinity': additional properties 'nodeAffinty' not allowed",
    ),
    "a simulated machine that does not exist": (
        {"agent": {"simulate": "DGX-A100"}},
        "at '/agent/simulate': value must be one of '', 'a100-pcie-pairs'",
    ),
    "a tag with its colon": (
        {"image": {"tag": ":0.1.0"}},
        'image.tag is ":0.1.0": it should be a tag alone, as in 0.1.0',
    ),
    "a registry's address": (
        {"image": {"repository": "https://r.example/gpuscape"}},
        "without https:// and, after the registry, in small letters",
    ),
    "an image in capital letters": (
        {"image": {"repository": "r.example/GPUscape"}},
        "after the registry, in small letters",
    ),
    "a Secret that none can be called": (
        {"image": {"pullSecrets": ["My Secret"]}},
        'image.pullSecrets is "My Secret": it should be the name of a Secret',
    ),
    "a RuntimeClass in capital letters": (
        {"agent": {"runtimeClassName": "NVIDIA"}},
        'agent.runtimeClassName is "NVIDIA": it should be the name of a RuntimeClass',
    ),
    "a priority that none can be called": (
        {"scheduler": {"priorityClassName": "High Priority"}},
        'scheduler.priorityClassName is "High Priority": it should be the name of a PriorityClass',
    ),
    "an annotation without a key": (
        {"agent": {"podAnnotations": {"my team": "a"}}},
        'agent.podAnnotations is "my team": it should be an annotation\'s key',
    ),
    "two namespaces for metrics": (
        {"monitoring": {"onlyFor": "monitoring,metrics"}},
        "it should be the name of one namespace, as in monitoring",
    ),
    "a kube-scheduler's version without its v": (
        {"scheduler": {"kubeScheduler": {"image": {"tag": "1.37.1"}}}},
        "tags of registry.k8s.io begin with v: write v1.37.1",
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
    "an interval of the agent in words": (
        {"agent": {"settings": {"sample-interval": "often"}}},
        'agent.settings.sample-interval is "often": it should be a duration from 100ms to 24h, such'
        " as 90, 60s or 1m30s",
    ),
    "an interval that is too short": (
        {"agent": {"settings": {"sample-interval": "99ms"}}},
        'agent.settings.sample-interval is "99ms": it should be a duration from 100ms to 24h',
    ),
    "one that is longer than a day": (
        {"agent": {"settings": {"discover-interval": "23h60m1s"}}},
        'agent.settings.discover-interval is "23h60m1s": it should be a duration from 1s to 24h',
    ),
    "a number that is too short an interval": (
        {"agent": {"settings": {"tick-limit": 0.5}}},
        'agent.settings.tick-limit is "0.5": it should be a duration from 1s to 24h',
    ),
    "a jitter above a half": (
        {"agent": {"settings": {"jitter": 0.6}}},
        'agent.settings.jitter is "0.6": it should be a number from 0 to 0.5',
    ),
    "a level of logs that there is not": (
        {"scheduler": {"enabled": True, "settings": {"log-level": "verbose"}}},
        'scheduler.settings.log-level is "verbose": it should be debug, info, warning or error',
    ),
    "yes in place of true": (
        {"agent": {"settings": {"processes": "yes"}}},
        'agent.settings.processes is "yes": it should be true or false',
    ),
    "more slots than there can be": (
        {
            "mig": {"mode": "enforce", "coordinator": {"settings": {"slots": 101}}},
            "agent": {"migDevices": "sys-admin"},
        },
        'mig.coordinator.settings.slots is "101": it should be a whole number from 0 to 100',
    ),
    "an address without a port": (
        {"scheduler": {"certificates": {"settings": {"listen": "node-a"}}}},
        'scheduler.certificates.settings.listen is "node-a": it should be :port or host:port',
    ),
    "names with a space": (
        {"agent": {"settings": {"resource-names": ["a.com/x", "b.com/y z"]}}},
        'agent.settings.resource-names is "a.com/x,b.com/y z": it should be names with commas',
    ),
}
"""Typical mistakes to what a person reads."""


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_the_values_is_refused_by_its_name(mistake: str) -> None:
    values, printed = MISTAKES[mistake]
    with pytest.raises(ChartRefusedError) as refused:
        rendered(values)
    assert printed in str(refused.value)


@pytest.mark.parametrize(
    "values",
    [
        {"agent": {"resources": {"limits": {"memory": None}, "requests": {"memory": "1Gi"}}}},
        {"agent": {"resources": None, "tolerations": [{"operator": "Exists"}]}},
        {"agent": {"resources": {"limits": {"memory": 536870912}, "requests": {"cpu": 0.5}}}},
        {"agent": {"nodeSelector": {"node.kubernetes.io/pool": "", "pool": "1.0"}}},
        {"scheduler": {"resources": {"limits": {"cpu": 2, "memory": "1e9"}}}},
        {"image": {"repository": "R.example:5000/team/gpuscape", "tag": "v1.0_rc.1"}},
        {"scheduler": {"kubeScheduler": {"image": {"repository": "r.example/k", "tag": "1.37.1"}}}},
        {"agent": {"affinity": {}}},
        {"agent": {"settings": {"sample-interval": 15, "discover-interval": "1m30s"}}},
        {"agent": {"settings": {"deadline": "100ms", "tick-limit": "24h", "jitter": 0.5}}},
        {"agent": {"settings": {"init-deadline": " 90 ", "processes": "TRUE", "log-level": ""}}},
        {"agent": {"settings": {"kernel-log": True, "resource-names": ["a.com/x", "b.com/y"]}}},
        {"agent": {"settings": {"devices": "g:0,2-4+i", "jitter": 1e-05, "xid-window": 0.1e2}}},
    ],
)
def test_what_kubernetes_takes_is_not_refused(values: dict[str, Any]) -> None:
    assert rendered(values)


def test_the_chart_passes_lint() -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", CHART, "--set", "image.repository=r/g")
