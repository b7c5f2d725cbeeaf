# SPDX-License-Identifier: Apache-2.0
"""The agent's container as the DaemonSet starts it, to be run as a process on this machine."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from agent.settings.agent_settings import AGENT_SETTINGS
from base.settings import setting_kinds as kinds

DEPLOY = Path(__file__).parents[2] / "deploy"

Manifest = dict[str, Any]
"""One Kubernetes object as YAML gives it."""


def manifests(deploy: Path = DEPLOY) -> list[Path]:
    """All YAML of this folder but the chart's, whose templates are none before Helm reads them."""
    chart = deploy / "chart"
    return sorted(file for file in deploy.rglob("*.yaml") if chart not in file.parents)


def daemonset() -> Manifest:
    """The agent's DaemonSet; kustomize passes it on as it stands."""
    found: Manifest = yaml.safe_load((DEPLOY / "base" / "daemonset.yaml").read_text())
    return found


def container(of: Manifest) -> Manifest:
    """The agent's container in a DaemonSet."""
    (found,) = of["spec"]["template"]["spec"]["containers"]
    return dict(found)


def agent_process(
    *,
    node: str,
    namespace: str,
    pod_name: str,
    pod_uid: str,
    mounts: Mapping[str, Path] | None = None,
    extra: Mapping[str, str] | None = None,
) -> tuple[list[str], dict[str, str]]:
    """Command line and whole environment of the agent's container in one pod.

    ``mounts`` gives the local folder that stands for each of the container's mount paths:
    settings whose path, given or default, lies below one are led there. ``extra`` is for
    what only a test needs, such as the simulated machine and free ports; it wins.
    """
    agent = container(daemonset())
    fields = {
        "spec.nodeName": node,
        "metadata.name": pod_name,
        "metadata.namespace": namespace,
        "metadata.uid": pod_uid,
    }
    environment = {entry["name"]: _value(entry, fields) for entry in agent["env"]}
    for path, folder in (mounts or {}).items():
        if path not in (mount["mountPath"] for mount in agent["volumeMounts"]):
            raise ValueError(f"the DaemonSet mounts nothing at {path}")
        environment |= _led(environment, PurePosixPath(path), folder)
    argv: list[str] = [*agent["command"], *agent["args"]]
    argv[0] = str(Path(sys.executable).with_name(argv[0]))
    return argv, environment | dict(extra or {})


def _value(entry: Manifest, fields: Mapping[str, str]) -> str:
    """What the kubelet makes of one entry of ``env``. Raises KeyError for a field not known."""
    if "value" in entry:
        return str(entry["value"])
    return fields[entry["valueFrom"]["fieldRef"]["fieldPath"]]


def _led(environment: Mapping[str, str], mounted: PurePosixPath, folder: Path) -> dict[str, str]:
    """Variables that lead the path settings below ``mounted`` to ``folder``."""
    led = {}
    for option in AGENT_SETTINGS.options:
        if option.spec.kind is not kinds.PATH:
            continue
        given = next((environment[name] for name in option.variables if name in environment), None)
        path = PurePosixPath(given or str(option.default or ""))
        if path.is_relative_to(mounted):
            led[option.variables[0]] = str(folder / path.relative_to(mounted))
    return led
