# SPDX-License-Identifier: Apache-2.0
"""Settings of the cluster's agents for MIG, from the DaemonSets that run them. Pure.

Settings can stand in arguments, in the environment and in a settings file. The file is not read
here: where a DaemonSet names one, a setting that it may contain is not known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final

from api.mig_mode_change import ModeChange
from kube.api import Object
from mig.configs.config_overlap import Overlap

_NAME: Final = ("app.kubernetes.io/name", "gpuscape")
_COMPONENT: Final = "app.kubernetes.io/component"
_COMPONENTS: Final = ("agent", "agent-canary")
_CONTAINER: Final = "agent"
CONFIG: Final = "config"
"""Setting that names a settings file."""
_PREFIX: Final = "GPUSCAPE_"
OBSERVE: Final = "observe"
"""Default of the setting ``mig-mode``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigMapKey:
    """A file that is mounted from a ConfigMap."""

    namespace: str
    name: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentTerms:
    """Settings of all agents for MIG; a setting in which their DaemonSets differ is not known."""

    mode: str | None = None
    """Setting ``mig-mode``; None where it is not known."""
    mode_change: ModeChange = ModeChange.OFF
    """Setting ``mig-mode-change``; off where it is not known."""
    config: str = ""
    """Setting ``mig-config``, the file of configurations; empty for none."""
    overlap: Overlap = Overlap.REFUSE
    """Setting ``mig-config-overlap``."""
    source: ConfigMapKey | None = None
    """ConfigMap with the file of configurations; None where it is not known, or no file is set."""
    namespace: str = ""
    """Namespace of the agents and of their Leases; empty where it is not known."""
    unknown: str = ""
    """Why the configurations behind their names are not known; empty where they are."""


def agent_terms(daemon_sets: Sequence[Object]) -> AgentTerms:
    """Read the agents' settings that matter for a rollout; ``daemon_sets``: all of the cluster."""
    distinct_terms = {
        _daemon_set_terms(daemon_set)
        for daemon_set in daemon_sets
        if is_part(daemon_set, *_COMPONENTS)
    }
    if not distinct_terms:
        return AgentTerms(unknown="no DaemonSet of gpuscape's agent is seen")
    if len(distinct_terms) > 1:
        modes, namespaces = (
            {terms.mode for terms in distinct_terms},
            {terms.namespace for terms in distinct_terms},
        )
        return AgentTerms(
            mode=modes.pop() if len(modes) == 1 else None,
            namespace=namespaces.pop() if len(namespaces) == 1 else "",
            unknown="there are DaemonSets of agents with different settings",
        )
    return distinct_terms.pop()


def is_part(manifest: Object, *components: str) -> bool:
    """Whether the object's labels name one of these components of gpuscape."""
    labels = manifest["metadata"].get("labels") or {}
    return _NAME in labels.items() and labels.get(_COMPONENT) in components


def settings_of_part(deployments: Sequence[Object], part: str) -> dict[str, str] | None:
    """Settings of the one Deployment of a component, from its container of the same name.

    As :func:`container_settings`; None where there is no such Deployment, or several.
    """
    found = [deployment for deployment in deployments if is_part(deployment, part)]
    if len(found) != 1:
        return None
    containers = found[0]["spec"]["template"]["spec"]["containers"]
    container = next((candidate for candidate in containers if candidate["name"] == part), None)
    return None if container is None else container_settings(container)


def _daemon_set_terms(daemon_set: Object) -> AgentTerms:
    spec, namespace = daemon_set["spec"]["template"]["spec"], daemon_set["metadata"]["namespace"]
    container = next(
        (candidate for candidate in spec["containers"] if candidate["name"] == _CONTAINER), None
    )
    if container is None:
        unknown = "the agents' DaemonSet has no container agent"
        return AgentTerms(namespace=namespace, unknown=unknown)
    settings = container_settings(container)
    mode, config = settings.get("mig-mode"), settings.get("mig-config") or ""
    has_file = bool(settings.get(CONFIG))
    mode_change = _mode_change(settings.get("mig-mode-change", ""))
    if mode is None and not has_file:
        mode = OBSERVE
    if not config:
        unknown = "the agents have a settings file, which is not read here" if has_file else ""
        return AgentTerms(
            mode=mode or None, mode_change=mode_change, namespace=namespace, unknown=unknown
        )
    source = _source(namespace, spec, container, config)
    unknown = (
        "" if source else f"the agents read {config} (mig-config), which comes from no ConfigMap"
    )
    is_last = settings.get("mig-config-overlap") == Overlap.LAST
    return AgentTerms(
        mode=mode or None,
        mode_change=mode_change,
        config=config,
        overlap=Overlap.LAST if is_last else Overlap.REFUSE,
        source=source,
        namespace=namespace,
        unknown=unknown,
    )


def _mode_change(text: str) -> ModeChange:
    return ModeChange(text) if text in tuple(ModeChange) else ModeChange.OFF


def container_settings(container: Mapping[str, Any]) -> dict[str, str]:
    """Settings of a gpuscape container: name to value as written.

    Arguments override the environment. A value is empty where the manifest has no plain text for
    it.
    """
    environment = {
        variable["name"].removeprefix(_PREFIX).lower().replace("_", "-"): variable.get("value")
        or ""
        for variable in container.get("env") or ()
        if variable["name"].startswith(_PREFIX)
        and (variable.get("value") or variable.get("valueFrom"))
    }
    return environment | dict(
        _flags([*(container.get("command") or ()), *(container.get("args") or ())])
    )


def _flags(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    for index, argument in enumerate(arguments):
        if argument.startswith("--"):
            name, equals, value = argument[2:].partition("=")
            next_argument = arguments[index + 1] if index + 1 < len(arguments) else ""
            yield name, value if equals else next_argument


def _source(
    namespace: str, spec: Mapping[str, Any], container: Mapping[str, Any], file: str
) -> ConfigMapKey | None:
    """ConfigMap and key behind a mounted file; None where it comes from no ConfigMap."""
    maps = {
        volume["name"]: volume["configMap"]
        for volume in spec.get("volumes") or ()
        if "configMap" in volume
    }
    path = PurePosixPath(file)
    for mount in container.get("volumeMounts") or ():
        config_map = maps.get(mount["name"])
        folder = PurePosixPath(mount["mountPath"])
        if config_map is None or not path.is_relative_to(folder):
            continue
        key = str(mount.get("subPath") or path.relative_to(folder))
        items = config_map.get("items") or ()
        key = next(
            (key_path["key"] for key_path in items if key_path.get("path") == key),
            "" if items else key,
        )
        if key:
            return ConfigMapKey(namespace=namespace, name=config_map["name"], key=key)
    return None
