# SPDX-License-Identifier: Apache-2.0
"""All facts about the node that the command runs on, read in an order that disturbs nobody."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from agent.cluster.release_signals import ReleaseSignals
from agent.layouts.layout_request import MIG_MANAGER_SERVICE
from agent.layouts.mig_config_source import MigConfigSource
from agent.metrics.followed_counters import read_file
from agent.settings.agent_settings import AgentSettings
from agent.settings.labels_from_settings import label_settings, plugin_config
from agent.settings.machine_from_settings import place_of
from api import names
from api.actuator.actuator_client import ask_actuator
from api.actuator.actuator_messages import RefusalAnswer, StateAnswer, StateRequest
from base.errors import BadInput, Transient
from base.settings.version_skew import VersionSkew, of_this_process
from diagnosis.facts.certificate_facts import Credential, read_certificates
from diagnosis.facts.cluster_facts import (
    ClusterFacts,
    cluster_access,
    doctor_client,
    read_cluster,
)
from diagnosis.facts.kubelet_facts import KubeletFacts, read_kubelet
from diagnosis.facts.machine_facts import (
    DeviceFile,
    HostRootFiles,
    Machine,
    read_device_files,
    read_host_tree,
    read_machine_snapshot,
    read_program_names,
)
from diagnosis.finding import Unread
from discovery.reader.protocol import Start
from exporters.dcgm.counters_format import DEFAULT_COUNTERS, CountersConfig
from kube.api import InspectedApi
from labelers.label_settings import LabelSettings, PluginConfig

Content = TypeVar("Content")


@dataclass(frozen=True, slots=True, kw_only=True)
class SilentActuator(Unread):
    """The actuator does not answer, or answers with a refusal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenSettingsFile(Unread):
    """A file that a setting names cannot be used."""


Actuator = StateAnswer | Unread


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalFacts:
    """Facts about a node, as a program on the node sees them."""

    settings: AgentSettings
    plugin_config: PluginConfig | BrokenSettingsFile
    label_settings: LabelSettings | BrokenSettingsFile
    """Settings of labelers; without those of the device plugin's file where that is broken."""
    now: float
    """Unix seconds."""
    machine: Machine
    host_tree: HostRootFiles | Unread
    device_files: tuple[DeviceFile, ...] | Unread
    kubelet: KubeletFacts
    actuator: Actuator
    cluster: ClusterFacts | Unread
    certificates: tuple[Credential, ...]
    programs: frozenset[str]
    """Names of processes; the kernel cuts some."""
    skew: VersionSkew
    mig_manager_service: bool
    """The host has NVIDIA's MIG manager as a service."""
    counters: CountersConfig | BrokenSettingsFile = DEFAULT_COUNTERS
    """Counters of the counters file; the default counters where no setting names a file."""
    broken_mig_configs: BrokenSettingsFile | None = None
    """Why the file with MIG configurations cannot be used; None where it can, or none is named."""


def read_local_facts(
    settings: AgentSettings,
    api: InspectedApi | None = None,
    *,
    kubelet_config: Path | None = None,
) -> LocalFacts:
    """Read all facts about this node; ``api`` replaces the cluster that the settings name.

    The cluster comes first: it may ask for the GPUs to be left alone, and then they are not read.
    Raises BadInput where the settings are wrong.
    """
    cluster, certificates = _cluster(settings, api)
    released = release_causes(settings, cluster)
    plugin = _usable(lambda: plugin_config(settings))
    config = PluginConfig() if isinstance(plugin, BrokenSettingsFile) else plugin
    machine: Machine = (
        Unread(f"the GPUs are to be left alone: {'; '.join(released)}")
        if released
        else read_machine_snapshot(settings, config)
    )
    return LocalFacts(
        settings=settings,
        plugin_config=plugin,
        label_settings=_usable(lambda: label_settings(settings, config, time.time())),
        now=time.time(),
        machine=machine,
        host_tree=read_host_tree(settings),
        device_files=read_device_files(settings, machine),
        kubelet=read_kubelet(settings, kubelet_config),
        actuator=_actuator(settings),
        cluster=cluster,
        certificates=certificates,
        programs=read_program_names(),
        skew=of_this_process(),
        mig_manager_service=(settings.host_root / MIG_MANAGER_SERVICE).is_symlink(),
        counters=_usable(lambda: _counters(settings)),
        broken_mig_configs=_broken_mig_configs(settings),
    )


def _counters(settings: AgentSettings) -> CountersConfig:
    return DEFAULT_COUNTERS if settings.counters is None else read_file(settings.counters)


def _broken_mig_configs(settings: AgentSettings) -> BrokenSettingsFile | None:
    if settings.mig_config is None:
        return None
    source = MigConfigSource(settings.mig_config, settings.mig_config_overlap)
    read = _usable(source.read)
    return read if isinstance(read, BrokenSettingsFile) else None


def _usable(read: Callable[[], Content]) -> Content | BrokenSettingsFile:
    try:
        return read()
    except BadInput as error:
        return BrokenSettingsFile(str(error))


def release_causes(settings: AgentSettings, cluster: ClusterFacts | Unread) -> tuple[str, ...]:
    """Why the Node asks for the GPUs to be left alone; none where it is not known."""
    if not isinstance(cluster, ClusterFacts) or not isinstance(cluster.node, dict):
        return ()
    return ReleaseSignals(str(settings.driver_ready_file)).causes(cluster.node, None)


def node_name(settings: AgentSettings) -> str:
    """Name of this node's Node."""
    start = Start(host_root=str(settings.host_root))
    return place_of(settings, PluginConfig(), start).name


def _cluster(
    settings: AgentSettings, api: InspectedApi | None
) -> tuple[ClusterFacts | Unread, tuple[Credential, ...]]:
    if settings.standalone:
        return Unread("standalone: there is no cluster", applies=False), read_certificates(
            settings, None
        )
    name = node_name(settings)
    if api is not None:
        return read_cluster(api, settings, name), read_certificates(settings, None)
    try:
        access = cluster_access(settings)
    except BadInput as error:
        return Unread(f"{error}, or run this with --standalone"), read_certificates(settings, None)
    with contextlib.closing(doctor_client(names.AGENT, access)) as connected:
        return read_cluster(connected, settings, name), read_certificates(settings, access)


def _actuator(settings: AgentSettings) -> Actuator:
    socket: Path = settings.actuator_socket
    if settings.mig_mode != "enforce" and not socket.exists():
        return Unread("MIG layouts are not changed here", applies=False)
    try:
        answer = ask_actuator(socket, StateRequest())
    except Transient as error:
        return SilentActuator(str(error))
    if isinstance(answer, StateAnswer):
        return answer
    why = answer.reason if isinstance(answer, RefusalAnswer) else "it answers something else"
    return SilentActuator(f"{socket}: {why}")
