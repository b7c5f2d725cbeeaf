# SPDX-License-Identifier: Apache-2.0
"""How the cluster's agents treat MIG, by the DaemonSets that run them. Pure.

Settings can stand in arguments, in the environment and in a settings file; that file is not read
here, so where one is named, what it may have is not known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final

from kube.api import Object

_NAME: Final = ("app.kubernetes.io/name", "gpuscape")
_COMPONENT: Final = "app.kubernetes.io/component"
_COMPONENTS: Final = ("agent", "agent-canary")
_CONTAINER: Final = "agent"
_CONFIG: Final = "config"
_PREFIX: Final = "GPUSCAPE_"
OBSERVE: Final = "observe"
"""What ``mig-mode`` is where nobody sets it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigMapKey:
    """A file that is mounted from a ConfigMap."""

    namespace: str
    name: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentTerms:
    """Of all agents; where DaemonSets differ, what they differ in is not known."""

    mode: str | None = None
    """``mig-mode``; None: not known."""
    config: str = ""
    """The file that ``mig-config`` names; empty: none."""
    source: ConfigMapKey | None = None
    """Where that file comes from; None: not known, or there is none."""
    namespace: str = ""
    """Where they are, and their Leases; empty: not known."""
    unknown: str = ""
    """Why the names of configurations mean what nobody knows here; empty where they are known."""


def agent_terms(daemon_sets: Sequence[Object]) -> AgentTerms:
    """The settings that count for a rollout; ``daemon_sets``: all of the cluster."""
    found = {_of_one(one) for one in daemon_sets if is_part(one, *_COMPONENTS)}
    if not found:
        return AgentTerms(unknown="no DaemonSet of gpuscape's agent is seen")
    if len(found) > 1:
        modes, namespaces = {one.mode for one in found}, {one.namespace for one in found}
        return AgentTerms(
            mode=modes.pop() if len(modes) == 1 else None,
            namespace=namespaces.pop() if len(namespaces) == 1 else "",
            unknown="there are DaemonSets of agents with different settings",
        )
    return found.pop()


def is_part(seen: Object, *components: str) -> bool:
    """Whether the object is of one of these parts of gpuscape, by its labels."""
    labels = seen["metadata"].get("labels") or {}
    return _NAME in labels.items() and labels.get(_COMPONENT) in components


def _of_one(daemon_set: Object) -> AgentTerms:
    spec, namespace = daemon_set["spec"]["template"]["spec"], daemon_set["metadata"]["namespace"]
    container = next((it for it in spec["containers"] if it["name"] == _CONTAINER), None)
    if container is None:
        why = "the agents' DaemonSet has no container agent"
        return AgentTerms(namespace=namespace, unknown=why)
    settings = container_settings(container)
    mode, config = settings.get("mig-mode"), settings.get("mig-config") or ""
    has_file = bool(settings.get(_CONFIG))
    if mode is None and not has_file:
        mode = OBSERVE
    if not config:
        why = "the agents have a settings file, which is not read here" if has_file else ""
        return AgentTerms(mode=mode or None, namespace=namespace, unknown=why)
    source = _source(namespace, spec, container, config)
    why = "" if source else f"the agents read {config} (mig-config), which comes from no ConfigMap"
    return AgentTerms(
        mode=mode or None, config=config, source=source, namespace=namespace, unknown=why
    )


def container_settings(container: Mapping[str, Any]) -> dict[str, str]:
    """Settings of a container of ours: name to value as written, arguments before the environment.

    Empty where it is no plain value.
    """
    found = {
        it["name"].removeprefix(_PREFIX).lower().replace("_", "-"): it.get("value") or ""
        for it in container.get("env") or ()
        if it["name"].startswith(_PREFIX) and (it.get("value") or it.get("valueFrom"))
    }
    return found | dict(_flags([*(container.get("command") or ()), *(container.get("args") or ())]))


def _flags(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    for at, word in enumerate(words):
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            after = words[at + 1] if at + 1 < len(words) else ""
            yield name, value if equals else after


def _source(
    namespace: str, spec: Mapping[str, Any], container: Mapping[str, Any], file: str
) -> ConfigMapKey | None:
    """The ConfigMap behind a mounted file."""
    maps = {it["name"]: it["configMap"] for it in spec.get("volumes") or () if "configMap" in it}
    path = PurePosixPath(file)
    for mount in container.get("volumeMounts") or ():
        config_map = maps.get(mount["name"])
        folder = PurePosixPath(mount["mountPath"])
        if config_map is None or not path.is_relative_to(folder):
            continue
        key = str(mount.get("subPath") or path.relative_to(folder))
        items = config_map.get("items") or ()
        key = next((it["key"] for it in items if it.get("path") == key), "" if items else key)
        if key:
            return ConfigMapKey(namespace=namespace, name=config_map["name"], key=key)
    return None
