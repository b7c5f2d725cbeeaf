# SPDX-License-Identifier: Apache-2.0
"""What is read off a pod: each right that is planted shows, and each fault is named."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.deploy import pod_rights
from tests.deploy.daemonset import container, daemonset
from tests.deploy.deployments import deployment

Change = Callable[[dict[str, Any]], object]


def changed(change: Change) -> dict[str, Any]:
    """The agent's pod after a change of it; it has a second container, which has nothing."""
    pod: dict[str, Any] = copy.deepcopy(daemonset()["spec"]["template"]["spec"])
    context = {**container(daemonset())["securityContext"], "runAsNonRoot": True}
    pod["containers"].append({"name": "other", "securityContext": context})
    change(pod)
    return pod


def context(**fields: Any) -> Change:
    return lambda pod: pod["containers"][1]["securityContext"].update(fields)


def variable(name: str, value: str) -> Change:
    return lambda pod: pod["containers"][1].update(env=[{"name": name, "value": value}])


def mounted(volume: dict[str, Any], **mount: Any) -> Change:
    def change(pod: dict[str, Any]) -> None:
        pod["volumes"].append({"name": "planted", **volume})
        pod["containers"][1]["volumeMounts"] = [
            {"name": "planted", "mountPath": "/planted", **mount}
        ]

    return change


PLANTED: dict[str, Change] = {
    "privileged": context(privileged=True),
    "`CAP_SYS_ADMIN`": context(capabilities={"drop": ["ALL"], "add": ["SYS_ADMIN"]}),
    "capabilities of the runtime": context(capabilities={}),
    "user id 0": context(runAsNonRoot=False),
    "allowPrivilegeEscalation None": lambda pod: pod["containers"][1]["securityContext"].pop(
        "allowPrivilegeEscalation"
    ),
    "readOnlyRootFilesystem False": context(readOnlyRootFilesystem=False),
    "seccompProfile None": lambda pod: pod["containers"][1]["securityContext"].pop(
        "seccompProfile"
    ),
    "the SELinux type `spc_t`": context(seLinuxOptions={"type": "spc_t"}),
    "the device nodes of GPUs": variable("NVIDIA_VISIBLE_DEVICES", "all"),
    "`mig/config`": variable("NVIDIA_MIG_CONFIG_DEVICES", "all"),
    "`mig/monitor`": variable("NVIDIA_MIG_MONITOR_DEVICES", "all"),
    "the token of `gpuscape-agent`": lambda pod: pod["containers"][1].update(
        volumeMounts=[{"name": "token", "mountPath": "/token", "readOnly": True}]
    ),
    "the Secret `keys`": mounted({"secret": {"secretName": "keys"}}),
    "the host's `/etc`, writable": mounted({"hostPath": {"path": "/etc"}}),
    "the host's `/etc`, read-only": mounted({"hostPath": {"path": "/etc"}}, readOnly=True),
}


def test_a_container_that_is_held_in_every_respect_has_nothing() -> None:
    pod = changed(lambda _pod: None)

    assert pod_rights.rights(pod)["other"] == frozenset()
    assert pod_rights.faults(pod) == ()


@pytest.mark.parametrize("right", PLANTED)
def test_a_right_that_is_planted_shows_and_no_other(right: str) -> None:
    pod = changed(PLANTED[right])

    assert pod_rights.rights(pod)["other"] == {right}


def test_an_account_whose_token_is_mounted_by_default_shows_in_every_container() -> None:
    pod = changed(lambda pod: pod.pop("automountServiceAccountToken"))

    assert all("the token of `gpuscape-agent`" in it for it in pod_rights.rights(pod).values())


def test_the_management_device_has_both_capabilities_of_mig() -> None:
    pod = changed(variable("NVIDIA_VISIBLE_DEVICES", "management.nvidia.com/gpu=all"))

    assert pod_rights.rights(pod)["other"] == {
        "`mig/config`",
        "`mig/monitor`",
        "the device nodes of GPUs",
    }


def on_the_host(path: str, state_path: str = "/var/lib/gpuscape") -> Change:
    """The agent's state lies on the host, and the other container has a folder there."""

    def change(pod: dict[str, Any]) -> None:
        (state,) = [it for it in pod["volumes"] if it["name"] == "state"]
        state.pop("emptyDir")
        state["hostPath"] = {"path": state_path}
        mounted({"hostPath": {"path": path}})(pod)

    return change


def of_the_host(namespace: str) -> Change:
    return lambda pod: pod.update({namespace: True})


FAULTS: dict[str, tuple[Change, str]] = {
    "the journal lies in the agent's folder": (
        on_the_host("/var/lib/gpuscape/mig"),
        "may write what the other has: /var/lib/gpuscape and /var/lib/gpuscape/mig",
    ),
    "the agent's folder lies in the journal's": (
        on_the_host("/opt/gpuscape", "/opt/gpuscape/agent"),
        "may write what the other has: /opt/gpuscape/agent and /opt/gpuscape",
    ),
    "one volume is written by two": (
        lambda pod: pod["containers"][1].update(
            volumeMounts=[{"name": "state", "mountPath": "/state"}]
        ),
        "agent and other write the volume state",
    ),
    "a mount inside a mount": (
        lambda pod: pod["containers"][0]["volumeMounts"].append(
            {"name": "token", "mountPath": "/var/lib/gpuscape/token", "readOnly": True}
        ),
        "agent: /var/lib/gpuscape/token is mounted inside /var/lib/gpuscape",
    ),
    **{
        name: (of_the_host(name), f"{name}: a namespace of the host")
        for name in ("hostNetwork", "hostPID", "hostIPC")
    },
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_that_is_planted_is_named(fault: str) -> None:
    change, named = FAULTS[fault]

    (found,) = pod_rights.faults(changed(change))

    assert named in found


@pytest.mark.parametrize("path", ["/var/lib/gpuscape2", "/var/log", "/"])
def test_folders_apart_and_the_whole_host_are_no_fault(path: str) -> None:
    assert pod_rights.faults(changed(on_the_host(path))) == ()


def test_a_pod_is_kept_off_gpu_nodes_by_both_labels_in_every_term() -> None:
    pod = deployment("kube-scheduler")["spec"]["template"]["spec"]
    required = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    weaker = copy.deepcopy(required)
    weaker["nodeSelectorTerms"][0]["matchExpressions"].pop()
    any_of = {"nodeSelectorTerms": [*required["nodeSelectorTerms"], {"matchExpressions": []}]}

    def kept(of: Any) -> bool:
        node = {"requiredDuringSchedulingIgnoredDuringExecution": of}
        rights = pod_rights.rights({**pod, "affinity": {"nodeAffinity": node}})
        return "no node with GPUs" in rights["kube-scheduler"]

    assert [kept(it) for it in (required, weaker, any_of, {})] == [True, False, False, False]


def test_a_row_of_the_page_holds_with_its_parts_and_without_those_it_names() -> None:
    text = "\n".join(
        [
            "<!-- claims: containers -->",
            "",
            "| container | has | with | but not with |",
            "| --- | --- | --- | --- |",
            "| `agent` | x | `deploy/base` | |",
            "| `agent` | y | `deploy/base`, `deploy/mig` | `deploy/driver-root` |",
            "",
            "<!-- end -->",
        ]
    )
    of = pod_rights.claims(text)

    def claimed(container: str, *parts: str) -> set[str]:
        return set(pod_rights.claimed(of, container, frozenset(parts)))

    assert claimed("agent", "base") == {"x", "y"}
    assert claimed("agent", "mig", "driver-root") == set()
    assert claimed("actuator", "base") == set()
