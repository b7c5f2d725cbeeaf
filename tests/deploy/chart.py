# SPDX-License-Identifier: Apache-2.0
"""The chart rendered by Helm, and the manifests by kustomize, as values that can be compared."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from tests.controlplane.builds import binaries
from tests.controlplane.families import CONTROLLER_MANAGER_MINOR, HELM, KUBERNETES
from tests.deploy.daemonset import DEPLOY, Manifest

CHART: Final = DEPLOY / "chart"
IMAGE: Final = "registry.example/gpuscape"
ALL_PROGRAMS: Final[Mapping[str, Any]] = {
    "mig": {"mode": "enforce"},
    "agent": {"migDevices": "management-cdi"},
    "scheduler": {"enabled": True},
    "networkPolicies": {"enabled": True},
}
"""Values with which the chart has each of its programs, and no object of kinds that are not
Kubernetes' own."""
NAMED: Final = frozenset({"env", "volumes", "containers"})
"""Lists whose order means nothing, by the names of what is in them."""
HOOK: Final = "helm.sh/hook"
HELMS_OWN: Final = frozenset({"imagePullPolicy", "checksum/configuration"})
"""What manifests need not say."""


class ChartRefusedError(Exception):
    """Helm did not render it; the text is what it printed."""


def helm(*arguments: str | Path, stdin: str = "") -> str:
    """What Helm prints. Raises ChartRefusedError."""
    done = subprocess.run(
        [binaries(HELM) / "helm", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ChartRefusedError(done.stderr)
    return done.stdout


def rendered(
    values: Mapping[str, Any] | None = None,
    *,
    namespace: str = "gpuscape",
    more: Sequence[str] = (),
) -> str:
    """The chart's manifests for these values, the image's registry given. Raises as helm."""
    image = {"repository": IMAGE}
    given = {**(values or {})}
    given["image"] = {**image, **given.get("image", {})}
    words = ("template", "any", str(CHART), "--namespace", namespace, "--values", "-", *more)
    return helm(*words, stdin=yaml.dump(given))


def kustomized(folder: Path) -> str:
    """What kustomize makes of a folder, under the image's name as the chart has it."""
    kubectl = binaries(KUBERNETES[CONTROLLER_MANAGER_MINOR]) / "kubectl"
    done = subprocess.run(
        [kubectl, "kustomize", folder], capture_output=True, text=True, check=True
    )
    return done.stdout.replace("image: gpuscape:", f"image: {IMAGE}:")


def objects(text: str) -> dict[tuple[str, str, str], Manifest]:
    """Objects by kind, namespace and name, in a form in which equal ones are equal.

    Without hooks, which are gone when Helm has ended.
    """
    return {
        (it["kind"], it["metadata"].get("namespace", ""), it["metadata"]["name"]): _plain(it)
        for it in yaml.safe_load_all(text)
        if it and HOOK not in it["metadata"].get("annotations", {})
    }


def _plain(value: Any, key: str = "") -> Any:
    if isinstance(value, list) and key in NAMED and all(isinstance(it, dict) for it in value):
        return {it["name"]: _plain(it) for it in value}
    if isinstance(value, list) and key == "volumeMounts":
        return {it["mountPath"]: _plain(it) for it in value}
    if isinstance(value, str) and key.endswith(".json"):
        return json.loads(value)
    if key == "config.yaml":
        return yaml.safe_load(value)
    if isinstance(value, dict):
        kept = {name: _plain(it, name) for name, it in value.items() if name not in HELMS_OWN}
        return {name: it for name, it in kept.items() if it or name != "annotations"}
    return [_plain(it) for it in value] if isinstance(value, list) else value
