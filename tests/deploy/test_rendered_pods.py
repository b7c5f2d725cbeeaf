# SPDX-License-Identifier: Apache-2.0
"""Every pod, with each part and switch alone and in pairs, has what docs/security.md says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy import pod_rights
from tests.deploy.chart import kustomized, rendered
from tests.deploy.daemonset import DEPLOY, Manifest

pytestmark = pytest.mark.cluster

AGENTS = ("base", "mig", "mig-sys-admin")
"""Each holds what the ones before it do, so that its parts are these up to it."""
PROGRAMS = ("coordinator", "scheduler", "certificates", "kube-scheduler")
COMPONENTS = sorted(
    file.parent.name
    for file in DEPLOY.glob("*/kustomization.yaml")
    if yaml.safe_load(file.read_text())["kind"] == "Component"
)
SWITCHES: Mapping[str, Mapping[str, Any]] = {
    "actuator": {"mig": {"mode": "enforce"}},
    "driver-root": {"agent": {"driverRoot": "/home/kubernetes/bin/nvidia"}},
    "gpu-operator": {"agent": {"gpuOperator": True}},
    "host-state": {"agent": {"hostState": True}},
    "kernel-log": {"agent": {"kernelLog": True}},
    "label-rules": {"agent": {"labelRules": [{"key": "example.com/x", "value": "gpu"}]}},
    "openshift": {"openshift": True},
    "shadow": {"agent": {"shadow": True}},
    "simulated": {"agent": {"simulate": "dgx-a100"}},
    "startup-taint": {"agent": {"startupTaint": True}},
}
"""The chart's values that stand for components."""
MIG: Mapping[str, Mapping[str, Any]] = {
    "base": {},
    "mig": {"agent": {"migDevices": "management-cdi"}},
    "mig-sys-admin": {"agent": {"migDevices": "sys-admin"}},
}
ALWAYS: Mapping[str, Any] = {
    "scheduler": {"enabled": True},
    "agent": {"canary": {"nodes": "pool=canary", "tag": "next"}},
}
REFUSED_TOGETHER = (
    {"driver-root", "simulated"},
    {"driver-root", "mig"},
    {"driver-root", "mig-sys-admin"},
    {"simulated", "mig"},
    {"simulated", "mig-sys-admin"},
    {"simulated", "actuator"},
)
"""By the chart, with a sentence of its own for each."""


def up_to(agent: str) -> tuple[str, ...]:
    return AGENTS[: AGENTS.index(agent) + 1]


def in_pairs(agent: str, parts: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """None, each alone, and each pair; where the agent sees MIG devices each alone and with the
    actuator, since what else they do to each other the base shows."""
    parts = sorted(parts)
    yield from ((), *((it,) for it in parts))
    yield from (it for it in combinations(parts, 2) if agent == "base" or "actuator" in it)


def pods(text: str) -> dict[str, Manifest]:
    """Pods' specs by the name of what makes them."""
    made = [it for it in yaml.safe_load_all(text) if it]
    return {
        it["metadata"]["name"]: it["spec"]["template"]["spec"]
        for it in made
        if "template" in it.get("spec", {})
    }


def differences(text: str, parts: Iterable[str]) -> list[str]:
    """What of all pods is not as the page says, and each fault."""
    of, found = pod_rights.claims(), []
    for name, pod in pods(text).items():
        found += [f"{name}: {fault}" for fault in pod_rights.faults(pod)]
        for container, rights in pod_rights.rights(pod).items():
            claimed = pod_rights.claimed(of, container, frozenset(parts))
            found += [f"{name}/{container} has {it}" for it in sorted(rights - claimed)]
            found += [f"{name}/{container} lacks {it}" for it in sorted(claimed - rights)]
    return found


@pytest.mark.parametrize("agent", AGENTS)
def test_the_manifests_pods_have_what_the_page_says_with_any_two_components(
    agent: str, tmp_path: Path
) -> None:
    (tmp_path / "deploy").symlink_to(DEPLOY)
    found = {}
    for components in in_pairs(agent, COMPONENTS):
        overlay = {
            "resources": [f"deploy/{agent}"],
            "components": [f"deploy/{it}" for it in components],
        }
        (tmp_path / "kustomization.yaml").write_text(yaml.dump(overlay))
        if wrong := differences(kustomized(tmp_path), {*up_to(agent), *components}):
            found[components] = wrong

    assert found == {}


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_manifests_of_each_other_program_have_what_the_page_says(program: str) -> None:
    text = kustomized(DEPLOY / program)

    assert len(pods(text)) == 1
    assert differences(text, {program}) == []


def values(parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Of several switches together."""
    made: dict[str, Any] = {}
    for part in parts:
        for key, value in part.items():
            made[key] = {**made.get(key, {}), **value} if isinstance(value, dict) else value
    return made


@pytest.mark.parametrize("agent", AGENTS)
def test_the_charts_pods_have_what_the_page_says_with_any_two_switches(agent: str) -> None:
    found, tried = {}, 0
    for switches in in_pairs(agent, SWITCHES):
        together = {agent, *switches}
        if any(pair <= together for pair in REFUSED_TOGETHER):
            continue
        if agent == "base" and "actuator" in switches:
            continue  # refused: the agent would not see the devices
        text = rendered(values((ALWAYS, MIG[agent], *(SWITCHES[it] for it in switches))))
        parts = {*up_to(agent), *PROGRAMS, *switches}
        tried += 1
        if wrong := differences(text, parts):
            found[switches] = wrong

    assert found == {}
    assert tried > 10


def test_every_component_is_a_switch_of_the_chart() -> None:
    assert sorted(SWITCHES) == COMPONENTS
