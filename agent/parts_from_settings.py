# SPDX-License-Identifier: Apache-2.0
"""Makes the parts that the settings need in addition to the driver: API server, pods, processes.

What takes memory is imported only where it is needed: gRPC, the API server's client.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from agent import records_file
from agent.extra_readings import ExtraReadings
from agent.gpu_errors.kernel_log import KernelLog
from agent.gpu_records import GpuRecords
from agent.metrics import metric_settings
from agent.metrics.counters_config_map import CountersConfigMap, followed_config_map
from agent.metrics.followed_counters import CountersFile
from agent.metrics.latest_metrics import LatestMetrics
from agent.metrics.source_reports import Change, source_report
from agent.processes.batch_jobs import JobFolder
from agent.processes.gpu_processes import GpuProcesses, nobody_named
from agent.settings.agent_settings import AgentSettings
from api.mig_mode_change import ModeChange
from api.mig_resources import MigStrategy
from base.defects import Defects
from base.errors import BadInput, GpuscapeError
from base.runtime import Tick
from discovery.model import NodeSnapshot
from discovery.sample import ReadingGroup
from exporters.dcgm.counters_format import CountersConfig

log = logging.getLogger(__name__)

CHANGE_SECONDS = 600.0
"""Longest wait for the answer to a change; past it the actuator is asked for its state."""

if TYPE_CHECKING:
    from agent.cluster.join import Joined
    from agent.cluster.startup_spread import StartupSpread
    from agent.layouts.enforced_layouts import EnforcePorts
    from agent.layouts.layout_evaluator import LayoutInputs
    from agent.pods.known_pods import KnownPods
    from agent.pods.kubelet_pods import KubeletPods
    from api.actuator.actuator_messages import UseAnswer
    from discovery.reader.device_reader import DeviceReader
    from kube.api import Api
    from kube.client import ApiClient
    from kubelet.devices_checkpoint import KubeletDevices
    from labelers.label_settings import PluginConfig
    from web.web_config_file import WebConfigFile


def restore_kept_records(settings: AgentSettings, root: Path, records: GpuRecords) -> None:
    """At the agent's start, go on from what another process knew; never once it runs."""
    if settings.state_file is not None and not records.restored:
        records_file.restore_from_file(settings.state_file, root, records, time.monotonic())
    records.restored = True


@contextlib.contextmanager
def kept_records(
    settings: AgentSettings,
    root: Path,
    records: GpuRecords,
    latest: LatestMetrics,
    defects: Defects,
) -> Iterator[None]:
    """Keep ``records`` in the file that the settings name, if they do, until the block ends."""
    if settings.state_file is None:
        yield
        return
    report = source_report(latest.refresh, "state-file")
    file = records_file.RecordsFile(settings.state_file, root, records, report=report)
    with file.kept(defects):
        yield


def device_exchange(
    settings: AgentSettings,
    root: Path,
    latest: LatestMetrics,
    defects: Defects,
    ending: contextlib.ExitStack,
) -> Callable[[NodeSnapshot], None]:
    """What takes snapshots for the file of ``gpuscape devices``, where the settings want one."""
    if settings.exchange_folder is None:
        return lambda _snapshot: None
    from agent.exchange.exchange_file import ExchangeFile  # placement takes memory

    report = source_report(latest.refresh, "device-exchange")
    file = ExchangeFile(settings.exchange_folder, root, report=report)
    ending.enter_context(file.kept(defects))
    return file.show


def cluster_client(settings: AgentSettings, ending: contextlib.ExitStack) -> ApiClient | None:
    """Client of the API server, where something is read from it or written to it.

    Raises BadInput where it is needed and no cluster is to be found.
    """
    needed = not settings.standalone or settings.needs_pods or settings.counters_from is not None
    if not needed and not settings.follows_pods:
        return None
    from agent.cluster.join import connected

    try:
        return ending.enter_context(connected(settings))
    except BadInput as error:
        if needed:
            raise
        log.warning("pods on shared GPUs not distinguished", extra={"why": str(error)})
        return None


def startup_spread(settings: AgentSettings, client: Api | None) -> StartupSpread | None:
    """Moments at which this agent may make its first requests; None without a cluster."""
    if client is None or settings.standalone:
        return None
    from agent.cluster.startup_spread import StartupSpread

    return StartupSpread(
        client, namespace=settings.namespace, spread_seconds=settings.start_spread_seconds
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CountersSource:
    """The metrics to serve from the start on, and where others may come from later."""

    served: CountersConfig
    file: Path | None
    """Followed while it changes; None where the metrics come from elsewhere."""
    config_map: CountersConfigMap | None = None
    """Served instead as soon as it was read; None where the settings name none."""


def counters_source(
    settings: AgentSettings, client: Api | None, before: CountersConfigMap | None = None
) -> CountersSource:
    """The metrics to serve: from the ConfigMap, else the file, else the default.

    ``before`` is the same ConfigMap as read for other settings: what it had holds while it cannot
    be read. An API server that does not answer is waited for a second.
    """
    if client is None or settings.counters_from is None:
        return CountersSource(
            served=metric_settings.configured_counters(settings), file=settings.counters
        )
    from agent.cluster.counters_from_cluster import config_map_text

    name = settings.counters_from
    read = functools.partial(config_map_text, client, name)
    config_map = CountersConfigMap(name, read, None if before is None else before.counters)
    config_map.begin()
    if (served := config_map.counters) is not None:
        return CountersSource(served=served, file=None, config_map=config_map)
    served = metric_settings.configured_counters(settings)
    return CountersSource(served=served, file=settings.counters, config_map=config_map)


def followed_counters(
    settings: AgentSettings,
    source: CountersSource,
    latest: LatestMetrics,
    read_groups: Callable[[tuple[ReadingGroup, ...]], None],
) -> Tick | None:
    """The tick that serves other metrics when their source has others; None where none can.

    ``read_groups`` gets the readings that what is served needs.
    """

    def take(config: CountersConfig) -> None:
        read_groups(metric_settings.reading_groups(settings, config))
        latest.show_counters(metric_settings.renderer(settings, config), len(config.skipped))

    report = source_report(latest.refresh, "counters")
    config_map, tick = source.config_map, None
    if source.file is not None:
        of_file = report if config_map is None else lambda _is_good: None
        tick = CountersFile(source.file, source.served, take=take, report=of_file).poll
    if config_map is None:
        return tick
    return followed_config_map(config_map, source.served, take=take, report=report, until_read=tick)


def known_pods(
    settings: AgentSettings,
    client: Api | None,
    node: str,
    latest: LatestMetrics,
    turn: StartupSpread | None,
    defects: Defects,
    ending: contextlib.ExitStack,
) -> KnownPods | None:
    """Pods of the node in the API server, where the settings need them, from ``turn`` on."""
    if client is None or not settings.follows_pods:
        return None
    from agent.cluster.join import followed_pods
    from agent.pods.known_pods import KnownPods

    labels = settings.pod_label_allowlist if settings.pod_labels else None
    known = KnownPods(labels=labels, update_metrics=latest.refresh)
    ending.enter_context(followed_pods(client, node, known, turn, defects))
    return known


def pods(
    settings: AgentSettings,
    node: str,
    latest: LatestMetrics,
    known: KnownPods | None,
    joined: Joined | None,
) -> KubeletPods:
    """The source of allocations, which asks the kubelet."""
    from agent.pods.gpu_allocation import nothing_known
    from agent.pods.kubelet_pods import KubeletPods, shown_nowhere
    from kubelet.device_resolution import no_slices
    from kubelet.podresources.podresources_client import PodResources  # gRPC takes memory

    return KubeletPods(
        PodResources(settings.pod_resources_socket),
        node=node,
        snapshot=lambda: latest.snapshot,
        update_metrics=latest.refresh,
        show=latest.show_allocation if settings.shows_pods else lambda _allocation: None,
        allocated=shown_nowhere if joined is None else joined.cluster.show_allocation,
        resolve=no_slices if joined is None else joined.slices.uuid,
        about=nothing_known if known is None else known.named,
        resources=settings.resource_names,
    )


def layout_inputs(
    settings: AgentSettings,
    plugin: PluginConfig,
    root: Path,
    reader: DeviceReader,
    latest: LatestMetrics,
    trigger: Callable[[str], None],
) -> LayoutInputs | None:
    """What judges MIG layouts that the Node asks for, and where they are enforced changes them;
    None where the settings want none of it. ``trigger`` runs a tick of the cluster soon."""
    if settings.mig_mode == "off" or settings.sink == "none":
        return None
    from agent.layouts.layout_evaluator import LayoutInputs
    from agent.layouts.layout_request import MIG_MANAGER_SERVICE
    from agent.layouts.mig_config_source import MigConfigSource
    from discovery.host.device_files import process_name
    from discovery.reader.mig_reading import read_mig

    strategy = settings.mig_strategy or plugin.mig_strategy
    file = (
        None
        if settings.mig_config is None
        else MigConfigSource(settings.mig_config, settings.mig_config_overlap)
    )
    return LayoutInputs(
        read=lambda: read_mig(reader),
        snapshot=lambda: latest.snapshot,
        configs=lambda: None if file is None else file.read(),
        strategy=None if strategy is None else MigStrategy(strategy),
        mode_change=ModeChange(settings.mig_mode_change),
        service_enabled=(root / MIG_MANAGER_SERVICE).is_symlink,
        program_name=_no_name if settings.simulate is not None else process_name,
        kubelet=functools.partial(_checkpoint, root),
        gpu_use=functools.partial(_gpu_use, settings.actuator_socket),
        enforce=_enforce(settings, root, reader, trigger)
        if settings.mig_mode == "enforce"
        else None,
    )


def _gpu_use(socket: Path) -> UseAnswer | None:
    """Programs that have GPUs open, by the actuator; an older one does not know the question."""
    from api.actuator.actuator_client import STATE_SECONDS, ask_actuator
    from api.actuator.actuator_messages import UseAnswer, UseRequest

    try:
        answer = ask_actuator(socket, UseRequest(), timeout_seconds=STATE_SECONDS)
    except GpuscapeError:
        return None  # it is asked for the change later, and its not answering reported then
    return answer if isinstance(answer, UseAnswer) else None


def _no_name(_pid: int) -> str:
    """No name for a program on a simulated GPU: a process with its pid here is another one."""
    return ""


def _enforce(
    settings: AgentSettings, root: Path, reader: DeviceReader, trigger: Callable[[str], None]
) -> EnforcePorts:
    from agent.layouts.enforced_layouts import EnforcePorts
    from api.actuator.actuator_client import STATE_SECONDS, ask_actuator
    from api.actuator.actuator_messages import ActuatorAnswer, ActuatorRequest, StateRequest
    from discovery.host.driver_load import driver_load

    def ask(request: ActuatorRequest) -> ActuatorAnswer:
        seconds = STATE_SECONDS if isinstance(request, StateRequest) else CHANGE_SECONDS
        return ask_actuator(settings.actuator_socket, request, timeout_seconds=seconds)

    def wake() -> None:
        trigger("causes")
        trigger("layouts")

    return EnforcePorts(
        ask=ask,
        closed=lambda: reader.health().released and reader.release(),
        load=functools.partial(driver_load, root),
        wake=wake,
        wait_seconds=math.inf if settings.mig_deadline is None else settings.mig_deadline,
    )


def _checkpoint(root: Path) -> KubeletDevices | None:
    """The kubelet's, where the host's folder is there. Raises BadInput."""
    from kubelet import devices_checkpoint

    if not (root / devices_checkpoint.CHECKPOINT).exists():
        return None
    return devices_checkpoint.read_kubelet_devices(root, time.time())


def extra_readings(
    settings: AgentSettings,
    served: CountersConfig,
    root: Path,
    known: KnownPods | None,
    kernel_log: KernelLog | None,
) -> ExtraReadings:
    """The readings that the settings ask for, next to those that are always made."""
    read = ExtraReadings(groups=metric_settings.reading_groups(settings, served))
    processes = GpuProcesses(
        root,
        by_uid=nobody_named if known is None else known.by_uid,
        pod_uid=settings.pod_uid,
    )
    if settings.processes:
        read = replace(read, processes=processes.uses)
    if settings.distinguishes_pods:
        read = replace(read, of_pods=processes.of_pods)
    if settings.hpc_jobs is not None:
        read = replace(read, jobs=JobFolder(settings.hpc_jobs).poll)
    if kernel_log is not None:
        read = replace(read, kernel_log=kernel_log.events)
    return read


def web_config(
    settings: AgentSettings, update_metrics: Callable[[Change], None]
) -> WebConfigFile | None:
    """The web configuration file, where there is one. Raises BadInput with file, line and key."""
    if settings.web_config_file is None:
        return None
    from web.web_config_file import WebConfigFile  # YAML and hashes take memory

    report = source_report(update_metrics, "web-config")
    return WebConfigFile(settings.web_config_file, report=report)
