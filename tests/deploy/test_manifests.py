# SPDX-License-Identifier: Apache-2.0
"""The manifests as files: well-formed, complete, and true to what the agent knows."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from agent.settings.agent_settings import AGENT_SETTINGS, METRICS_ADDRESS, PROBE_ADDRESS
from api import names
from base.settings import version_skew
from cli.main import main
from tests.deploy import install_page
from tests.deploy.daemonset import DEPLOY, agent_process, container, daemonset, manifests
from tools.access import __main__ as access

FILES = manifests()
FOLDERS = sorted(file.parent for file in FILES if file.name == "kustomization.yaml")
POD_RESOURCES = "/var/lib/kubelet/pod-resources"
STATE, STATE_FILE = "/var/lib/gpuscape", "GPUSCAPE_STATE_FILE"


def documents(file: Path) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(file.read_text()) if document]


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(DEPLOY)))
def test_every_file_holds_objects_of_a_kind_with_a_name(file: Path) -> None:
    held = documents(file)

    assert held
    for one in held:
        assert {"apiVersion", "kind"} <= one.keys()
        assert file.name == "kustomization.yaml" or one["metadata"]["name"]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_every_file_of_a_folder_is_used_by_its_kustomization(folder: Path) -> None:
    (of,) = documents(folder / "kustomization.yaml")
    patches = [patch["path"] for patch in of.get("patches", ()) if "path" in patch]
    kept = [file for each in of.get("configMapGenerator", ()) for file in each["files"]]
    resources = of.get("resources", ())
    named = [name for name in (*resources, *patches, *kept) if not name.startswith("../")]

    assert sorted([*named, "kustomization.yaml"]) == sorted(it.name for it in folder.iterdir())


def test_a_drain_never_takes_all_replicas_of_a_program_at_once() -> None:
    """Several budgets for one pod would keep it from being evicted at all."""
    objects = [one for file in FILES for one in documents(file)]
    budgets = [one["spec"] for one in objects if one["kind"] == "PodDisruptionBudget"]
    replicated = [
        one["spec"]["template"]["metadata"]["labels"].items()
        for one in objects
        if one["kind"] == "Deployment" and one["spec"]["replicas"] > 1
    ]

    assert replicated
    for labels in replicated:
        (budget,) = (it for it in budgets if it["selector"]["matchLabels"].items() <= labels)
        assert budget["maxUnavailable"] == 1


def test_the_daemonset_is_the_account_and_the_place_that_the_policies_speak_of() -> None:
    of = daemonset()
    spec = of["spec"]["template"]["spec"]
    (namespace,) = documents(DEPLOY / "base" / "namespace.yaml")

    assert (of["metadata"]["namespace"], spec["serviceAccountName"]) == (
        names.NAMESPACE,
        names.AGENT,
    )
    assert namespace["metadata"]["name"] == names.NAMESPACE
    assert of["spec"]["selector"]["matchLabels"].items() <= (
        of["spec"]["template"]["metadata"]["labels"].items()
    )


def test_the_container_starts_a_command_with_options_that_it_has() -> None:
    argv, _ = agent_process(node="a", namespace="b", pod_name="c", pod_uid="d")
    called = click.Context(main)
    command = main.get_command(called, argv[1])

    assert container(daemonset())["command"] == ["gpuscape"]
    assert command is not None
    command.make_context(argv[1], argv[2:], parent=called)  # raises for an unknown option


def test_every_variable_is_a_setting_of_the_agent_or_the_container_toolkits() -> None:
    known = {name for option in AGENT_SETTINGS.options for name in option.variables}
    known.add(version_skew.VARIABLE)
    given = {entry["name"] for entry in container(daemonset())["env"]}

    assert {name for name in given - known if not name.startswith("NVIDIA_")} == set()
    assert {"NODE_NAME", "POD_NAME", "POD_NAMESPACE", "POD_UID"} <= given


def test_the_settings_are_those_of_the_pod(tmp_path: Path) -> None:
    _, environment = agent_process(
        node="node-a",
        namespace="gpuscape",
        pod_name="agent-x",
        pod_uid="uid-1",
        mounts={POD_RESOURCES: tmp_path},
        extra={"GPUSCAPE_LISTEN": "127.0.0.1:0"},
    )
    settings = AGENT_SETTINGS.load({}, environment)

    assert (settings.node_name, settings.namespace) == ("node-a", "gpuscape")
    assert (settings.pod_name, settings.pod_uid) == ("agent-x", "uid-1")
    assert settings.pod_resources_socket == tmp_path / "kubelet.sock"
    assert settings.log_format == "json"
    assert settings.listen.port == 0


def test_a_folder_for_what_is_not_mounted_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="mounts nothing at /elsewhere"):
        agent_process(
            node="a", namespace="b", pod_name="c", pod_uid="d", mounts={"/elsewhere": tmp_path}
        )


def test_what_is_mounted_is_where_the_agent_looks() -> None:
    socket = next(
        option for option in AGENT_SETTINGS.options if option.field == "pod_resources_socket"
    )
    mounted = {mount["mountPath"] for mount in container(daemonset())["volumeMounts"]}

    assert str(Path(str(socket.default)).parent) == POD_RESOURCES
    assert mounted == {POD_RESOURCES, STATE, "/var/run/secrets/kubernetes.io/serviceaccount"}


def test_the_state_file_lies_on_a_volume_that_outlives_the_container() -> None:
    (variable,) = (it for it in container(daemonset())["env"] if it["name"] == STATE_FILE)
    (mount,) = (it for it in container(daemonset())["volumeMounts"] if it["mountPath"] == STATE)
    volumes = daemonset()["spec"]["template"]["spec"]["volumes"]

    assert Path(variable["value"]).parent == Path(STATE)
    assert not mount.get("readOnly")
    assert {it["name"]: it for it in volumes}[mount["name"]]["emptyDir"] == {"sizeLimit": "8Mi"}


def test_ports_and_probes_are_those_that_the_agent_serves() -> None:
    agent = container(daemonset())
    ports = {port["name"]: port["containerPort"] for port in agent["ports"]}
    probes = {name: agent[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness")}

    assert ports == {"metrics": METRICS_ADDRESS.port, "probes": PROBE_ADDRESS.port}
    assert {(it["path"], it["port"]) for it in probes.values()} == {("/livez", "probes")}
    assert agent["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "probes"}


def test_the_pages_commands_move_everything_to_another_namespace(tmp_path: Path) -> None:
    shutil.copytree(DEPLOY, tmp_path / "deploy")
    (tmp_path / "tools").symlink_to(DEPLOY.parent / "tools")
    (tmp_path / ".venv").symlink_to(sys.prefix)

    _shell(install_page.commands("another namespace"), tmp_path, first_on_path=tmp_path)

    found = [one for file in manifests(tmp_path / "deploy") for one in documents(file)]
    kinds = {one["kind"] for one in found if _in_namespace(one) == "monitoring"}
    assert {"DaemonSet", "Namespace", "Role", "RoleBinding", "ServiceAccount"} <= kinds
    assert [one for one in found if _in_namespace(one) == names.NAMESPACE] == []
    assert f"system:serviceaccount:{names.NAMESPACE}:" not in str(found)


def test_the_pages_command_bounds_the_coordinator_as_it_says(tmp_path: Path) -> None:
    shutil.copytree(DEPLOY, tmp_path / "deploy")
    (tmp_path / "tools").symlink_to(DEPLOY.parent / "tools")
    (tmp_path / ".venv").symlink_to(sys.prefix)
    before = _variables(DEPLOY)

    _shell(install_page.commands("coordinators bounds"), tmp_path, first_on_path=tmp_path)

    after = _variables(tmp_path / "deploy")
    assert {key for key in after if after[key] != before[key]} == {"slots", "protected", "plugins"}
    assert (before["slots"], after["slots"]) == ("1", "3")
    assert "'monitoring'" in after["protected"]
    assert "'kueue-system'" in after["protected"]
    assert "'kube-system'" in after["protected"]
    assert "'monitoring/my-device-plugin-'" in after["plugins"]


def _variables(deploy: Path) -> dict[str, str]:
    """Of the policies on the coordinator's Leases and evictions."""
    names_of = {f"{names.COORDINATOR}-{it}" for it in ("lease", "eviction")}
    return {
        it["name"]: it["expression"]
        for one in documents(deploy / "coordinator" / "access.yaml")
        if one["kind"] == "ValidatingAdmissionPolicy" and one["metadata"]["name"] in names_of
        for it in one["spec"]["variables"]
    }


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--slots", "101"), "'101' is no number from 0 to 100"),
        (("--slots", "many"), "'many' is no number from 0 to 100"),
        (("--protected-namespace", "Mon"), "'Mon' is no namespace"),
        (("--plugin-pod", "plugin"), "'plugin' is no namespace, a slash and the beginning"),
        (("--plugin-pod", "x/'y"), "is no namespace, a slash and the beginning"),
    ],
)
def test_bounds_that_cannot_be_are_refused_in_one_line_and_nothing_is_printed(
    words: tuple[str, str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        access.main([*words, "coordinator"])

    printed = capsys.readouterr()
    assert (ended.value.code, printed.out) == (2, "")
    assert why in printed.err.splitlines()[-1]


def _in_namespace(one: dict[str, Any]) -> str:
    metadata = one.get("metadata", {})
    return str(metadata.get("name" if one["kind"] == "Namespace" else "namespace", ""))


def _shell(commands: str, folder: Path, *, first_on_path: Path) -> None:
    environment = {**os.environ, "PATH": f"{first_on_path}:{os.environ['PATH']}"}
    subprocess.run(["/bin/sh", "-ec", commands], cwd=folder, env=environment, check=True)
