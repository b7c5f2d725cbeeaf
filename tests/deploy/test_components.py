# SPDX-License-Identifier: Apache-2.0
"""The components: next to another exporter, with the kernel log, on a simulated machine."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from actuator.past_changes import JOURNAL_FOLDER
from actuator.service.actuator_settings import ACTUATOR_SETTINGS, ActuatorSettings
from agent.settings.agent_settings import AGENT_SETTINGS
from api import keys
from api.actuator.actuator_client import SOCKET
from base.settings.version_skew import VARIABLE
from simulator.description.machine_catalog import load_machine
from tests.deploy.daemonset import DEPLOY, container, daemonset

PATCHES = {
    "shadow": "prefix-without-sink.yaml",
    "kernel-log": "read-kernel-log.yaml",
    "simulated": "simulated-machine.yaml",
}
DOCS = DEPLOY.parent / "docs"


def patch(component: str) -> dict[str, Any]:
    made: dict[str, Any] = yaml.safe_load((DEPLOY / component / PATCHES[component]).read_text())
    return made


def variables(component: str) -> dict[str, str]:
    return {entry["name"]: entry["value"] for entry in container(patch(component))["env"]}


@pytest.mark.parametrize("component", PATCHES)
def test_a_patch_is_for_the_agents_container(component: str) -> None:
    base, made = daemonset(), patch(component)
    keys = ("name", "namespace")
    assert [made["metadata"][key] for key in keys] == [base["metadata"][key] for key in keys]
    assert container(made)["name"] == container(base)["name"]


@pytest.mark.parametrize("component", PATCHES)
def test_its_variables_are_settings_that_take_these_values(component: str) -> None:
    options = AGENT_SETTINGS.options
    kinds = {name: option.spec.kind for option in options for name in option.variables}
    runtimes = {"NVIDIA_VISIBLE_DEVICES"}  # the container runtime reads it
    for name, value in variables(component).items():
        if name not in runtimes:
            kinds[name].read(value)  # raises for a value that the setting does not take


def test_next_to_another_exporter_names_are_others_and_no_node_is_written() -> None:
    assert variables("shadow") == {"GPUSCAPE_PREFIX": "shadow_", "GPUSCAPE_SINK": "none"}
    page = (DOCS / "shadow-mode.md").read_text()
    assert "--prefix shadow_" in page
    assert "deploy/shadow" in page


def test_the_kernel_log_is_mounted_where_the_agent_looks_and_may_be_opened() -> None:
    made = container(patch("kernel-log"))
    (volume,) = patch("kernel-log")["spec"]["template"]["spec"]["volumes"]
    (mount,) = made["volumeMounts"]
    assert (mount["name"], volume["name"]) == ("kmsg", "kmsg")
    assert mount["mountPath"] == volume["hostPath"]["path"] == "/dev/kmsg"
    assert made["securityContext"] == {"privileged": True, "allowPrivilegeEscalation": True}


def test_the_state_lies_on_the_host_in_place_of_the_pod() -> None:
    (volume,) = yaml.safe_load((DEPLOY / "host-state" / "state-on-host.yaml").read_text())["spec"][
        "template"
    ]["spec"]["volumes"]
    base = daemonset()["spec"]["template"]["spec"]["volumes"]
    assert volume["name"] in [it["name"] for it in base if "emptyDir" in it]
    assert volume["emptyDir"] is None
    assert volume["hostPath"] == {"path": "/var/lib/gpuscape/agent", "type": "DirectoryOrCreate"}


def test_a_simulated_machine_needs_no_gpu_has_room_to_be_written_and_refuses_a_driver() -> None:
    pod = patch("simulated")["spec"]["template"]["spec"]
    assert daemonset()["spec"]["template"]["spec"]["runtimeClassName"] == "nvidia"
    assert pod["runtimeClassName"] is None
    (volume,) = pod["volumes"]
    (mount,) = container(patch("simulated"))["volumeMounts"]
    assert (volume["name"], mount) == (mount["name"], {"name": "tmp", "mountPath": "/tmp"})  # noqa: S108  # in the container
    assert "emptyDir" in volume
    given = variables("simulated")
    load_machine(given["GPUSCAPE_SIMULATE"])
    assert given["GPUSCAPE_REFUSE_DRIVER"] == "true"
    assert given["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert "deploy/simulated" in (DOCS / "install.md").read_text()


def actuator_pod() -> tuple[dict[str, Any], dict[str, Any]]:
    """The patched part of the pod, and the container in it that is not the agent's."""
    pod = yaml.safe_load((DEPLOY / "actuator" / "change-mig.yaml").read_text())["spec"]["template"][
        "spec"
    ]
    (made,) = [it for it in pod["containers"] if it["name"] != "agent"]
    return pod, made


def test_the_actuators_variables_are_settings_that_take_these_values() -> None:
    _, made = actuator_pod()
    kinds = {name: it.spec.kind for it in ACTUATOR_SETTINGS.options for name in it.variables}
    by_pod = {it["name"]: it["valueFrom"] for it in made["env"] if "valueFrom" in it}
    assert by_pod == {"POD_UID": {"fieldRef": {"fieldPath": "metadata.uid"}}}
    assert by_pod.keys() <= kinds.keys()
    for entry in (it for it in made["env"] if "value" in it):
        if entry["name"] != VARIABLE and not entry["name"].startswith("NVIDIA_"):  # other readers
            kinds[entry["name"]].read(entry["value"])
    assert (made["command"], made["args"]) == (["gpuscape"], ["actuator"])
    assert made["image"] == container(daemonset())["image"]


def test_the_actuators_pod_waits_for_a_change_that_runs() -> None:
    pod, _ = actuator_pod()
    assert pod["terminationGracePeriodSeconds"] > ActuatorSettings().stop_deadline_seconds


def test_the_actuator_has_no_token_and_both_containers_have_its_socket() -> None:
    pod, made = actuator_pod()
    mounts = {it["name"]: it["mountPath"] for it in made["volumeMounts"]}
    (agent,) = [it for it in pod["containers"] if it["name"] == "agent"]
    assert mounts["actuator"] == str(SOCKET.parent.parent)
    assert agent["volumeMounts"] == [
        {"name": "actuator", "mountPath": mounts["actuator"], "readOnly": True}
    ]
    assert "token" not in mounts
    assert not daemonset()["spec"]["template"]["spec"]["automountServiceAccountToken"]
    assert mounts["mig-journal"] == str(JOURNAL_FOLDER)
    assert {it["name"] for it in pod["volumes"]} == set(mounts)


def test_the_agent_tolerates_the_startup_taint_beside_what_it_tolerates_anyway() -> None:
    made = yaml.safe_load((DEPLOY / "startup-taint" / "kustomization.yaml").read_text())
    (patch,) = made["patches"]
    assert patch["target"] == {"kind": "DaemonSet", "name": daemonset()["metadata"]["name"]}
    (step,) = yaml.safe_load(patch["patch"])
    assert step == {
        "op": "add",
        "path": "/spec/template/spec/tolerations/-",
        "value": {"key": keys.MIG_LAYOUT_PENDING, "operator": "Exists"},
    }
    assert daemonset()["spec"]["template"]["spec"]["tolerations"]
