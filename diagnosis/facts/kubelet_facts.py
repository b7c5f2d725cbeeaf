# SPDX-License-Identifier: Apache-2.0
"""Facts about this node's kubelet: its checkpoint, its sockets, its configuration."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from agent.settings.agent_settings import AgentSettings
from base.errors import BadInput, Transient
from base.files import read_text
from diagnosis.finding import Unread
from kubelet.devices_checkpoint import CHECKPOINT, FOLDER, KubeletDevices, read_kubelet_devices

if TYPE_CHECKING:
    from kubelet.podresources.podresources_client import PodResources

Answer = TypeVar("Answer")

CONFIGURATION: Final = FOLDER / "config.yaml"
"""Path of the kubelet's configuration by kubeadm. Source: Kubernetes documentation, "Configuring
each kubelet in your cluster using kubeadm"."""
REGISTRATION: Final = "kubelet.sock"
REGISTRY: Final = FOLDER / "plugins_registry"
"""Folder in which plugins of all kinds may register, each by a socket of its own."""
_CONNECT_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletConfiguration:
    """The part of the kubelet's configuration that decides about GPUs."""

    topology_manager: str = "none"
    most_numa_nodes: int = 8
    """NUMA nodes of a host at most: with more, and a policy other than none, it does not start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginSocket:
    """A socket of a plugin."""

    name: str
    answers: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SilentSocket(Unread):
    """The pod-resources socket gives no answer."""


Offered = Mapping[str, frozenset[str]]
"""Resource to the healthy devices of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletFacts:
    """The kubelet as its files and sockets show it."""

    devices: KubeletDevices | Unread
    """Devices in the checkpoint."""
    offered: Offered | Unread
    """Devices that the pod-resources socket lists as allocatable."""
    pods: frozenset[str] | Unread
    """``namespace/name`` of all pods that this socket lists, with or without devices."""
    sockets: tuple[PluginSocket, ...] | Unread
    configuration: KubeletConfiguration | Unread


def read_kubelet(settings: AgentSettings, configuration: Path | None = None) -> KubeletFacts:
    """Read the kubelet's facts; nothing waits longer than a few seconds.

    ``configuration``: path of its configuration file; None: kubeadm's path.
    """
    if settings.standalone:
        absent = Unread("standalone: there is no kubelet", applies=False)
        return KubeletFacts(
            devices=absent, offered=absent, pods=absent, sockets=absent, configuration=absent
        )
    root = settings.host_root
    return KubeletFacts(
        devices=_devices(root),
        offered=_offered(settings.pod_resources_socket),
        pods=_pods(settings.pod_resources_socket),
        sockets=_sockets(root),
        configuration=_configuration(configuration or root / CONFIGURATION),
    )


def _devices(root: Path) -> KubeletDevices | Unread:
    if not (root / CHECKPOINT).exists():
        return Unread(
            f"{root / CHECKPOINT} is not there: run this on the host, or mount its folder"
        )
    try:
        return read_kubelet_devices(root, time.time())
    except BadInput as error:
        return Unread(str(error))


def _asked(path: Path, ask: Callable[[PodResources], Answer]) -> Answer | SilentSocket:
    """The kubelet's answer at its pod-resources socket to the call ``ask``."""
    from kubelet.podresources.podresources_client import (
        PodResources,  # gRPC takes memory, and time to load
    )

    try:
        return ask(PodResources(path))
    except Transient as error:
        return SilentSocket(str(error))


def _offered(path: Path) -> Offered | SilentSocket:
    listed = _asked(path, lambda kubelet: kubelet.allocatable())
    if isinstance(listed, SilentSocket):
        return listed
    devices: dict[str, frozenset[str]] = {}
    for part in listed:
        devices[part.resource] = devices.get(part.resource, frozenset()) | frozenset(part.ids)
    return devices


def _pods(path: Path) -> frozenset[str] | SilentSocket:
    """``namespace/name`` of all pods on the node.

    Source: Kubernetes 1.32 and 1.37, pkg/kubelet/apis/podresources/server_v1.go, List.
    """
    listed = _asked(path, lambda kubelet: kubelet.list())
    if isinstance(listed, SilentSocket):
        return listed
    return frozenset(f"{pod.namespace}/{pod.name}" for pod in listed)


def _sockets(root: Path) -> tuple[PluginSocket, ...] | Unread:
    folder = (root / CHECKPOINT).parent
    try:
        files = sorted(folder.iterdir())
    except OSError as error:
        return Unread(f"{folder}: {error.strerror}: run this on the host, or mount the folder")
    with suppress(OSError):
        files += sorted((root / REGISTRY).iterdir())
    return tuple(
        PluginSocket(name=file.name, answers=_answers(file))
        for file in files
        if file.is_socket() and file.name != REGISTRATION
    )


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as trial:
        trial.settimeout(_CONNECT_SECONDS)
        try:
            trial.connect(str(path))
        except OSError:
            return False
    return True


def _configuration(file: Path) -> KubeletConfiguration | Unread:
    from base.yaml_places import read_yaml

    if not file.exists():
        return Unread(
            f"{file} is not there: the kubelet's configuration is elsewhere, or not mounted"
        )
    try:
        read: Any = read_yaml(read_text(file), str(file)).content()
    except BadInput as error:
        return Unread(str(error))
    return parse_kubelet_configuration(read if isinstance(read, dict) else {})


def parse_kubelet_configuration(read: Mapping[str, Any]) -> KubeletConfiguration:
    """The configuration by the content of its file; missing keys have the kubelet's defaults.

    Source: k8s.io/kubelet, config/v1beta1/types.go; pkg/kubelet/cm/topologymanager.
    """
    usual = KubeletConfiguration()
    options = read.get("topologyManagerPolicyOptions") or {}
    max_nodes = str(options.get("max-allowable-numa-nodes", usual.most_numa_nodes))
    return KubeletConfiguration(
        topology_manager=str(read.get("topologyManagerPolicy") or usual.topology_manager),
        most_numa_nodes=int(max_nodes) if max_nodes.isdigit() else usual.most_numa_nodes,
    )
