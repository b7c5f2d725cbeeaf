# SPDX-License-Identifier: Apache-2.0
"""Deployments' containers, to be run as processes on this machine."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import yaml

from tests.deploy.daemonset import DEPLOY, Manifest, container


def deployment(part: str) -> Manifest:
    """The Deployment of a folder in deploy/; kustomize passes it on as it stands."""
    held = yaml.safe_load_all((DEPLOY / part / "deployment.yaml").read_text())
    (found,) = (one for one in held if one["kind"] == "Deployment")
    return dict(found)


def set_deployment(part: str, *arguments: str, **environment: str) -> Manifest:
    """The same, with further settings of its program."""
    made = deployment(part)
    program = made["spec"]["template"]["spec"]["containers"][0]
    program["args"] += arguments
    program["env"] += [{"name": name, "value": value} for name, value in environment.items()]
    return made


def extender_process(
    mounts: Mapping[str, Path], *, listen: str, more: Mapping[str, str] | None = None
) -> tuple[list[str], dict[str, str]]:
    """As :func:`program_process`, of the extender."""
    return program_process("scheduler", mounts, listen=listen, more=more)


def program_process(
    part: str,
    mounts: Mapping[str, Path],
    *,
    listen: str,
    more: Mapping[str, str] | None = None,
) -> tuple[list[str], dict[str, str]]:
    """Command line and whole environment of the container of a folder's Deployment.

    ``mounts`` gives the local folder that stands for each mount path in its arguments;
    ``listen`` takes the place of its address, and ``more`` are further options by name.
    """
    of = container(deployment(part))
    command = Path(sys.executable).with_name(of["command"][0])
    words = [argument for argument in of["args"] if not argument.startswith("--")]
    options = (argument for argument in of["args"] if argument.startswith("--"))
    given = dict(argument.removeprefix("--").split("=", 1) for argument in options)
    for name, value in given.items():
        for path, folder in mounts.items():
            if Path(value).is_relative_to(path):
                given[name] = str(folder / Path(value).relative_to(path))
    given |= {"listen": listen, **(more or {})}
    argv = [str(command), *words, *(f"--{name}={value}" for name, value in given.items())]
    return argv, {entry["name"]: entry["value"] for entry in of["env"] if "value" in entry}
