# SPDX-License-Identifier: Apache-2.0
"""The agent as a process: makes the parts, serves, does what signals ask for.

SIGTERM and SIGINT end it, SIGHUP reads the settings again, SIGUSR1 releases every
NVML handle (for a driver upgrade or a MIG change by hand) and SIGUSR2 takes them
back. Labels stay where they are when it ends. :mod:`agent.process_control` has the end.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version

from agent import parts_from_settings as parts
from agent.agent_servers import AgentServers, ServedParts
from agent.gpu_records import GpuRecords
from agent.machine_reader import MachineReader
from agent.metrics import metric_settings
from agent.metrics.counters_config_map import CountersConfigMap
from agent.metrics.latest_metrics import LatestMetrics
from agent.metrics.source_reports import Change
from agent.node_agent import Intervals, NodeAgent
from agent.process_control import EXIT_OK, ProcessControl, SignalRequest
from agent.publish import Publisher, Sink, to_feature_file, to_stream
from agent.release_requests import ReleaseRequests
from agent.selected_devices import SelectedDevices, selection_refusal
from agent.settings.agent_settings import AgentSettings
from agent.settings.labels_from_settings import label_settings, plugin_config
from agent.settings.machine_from_settings import place_of
from agent.tick_health import EXIT_TICK_STOPPED, TickHealth
from base import heap, threads
from base import log as logs
from base.background import BackgroundJobs
from base.defects import Defects
from base.errors import BadInput, GpuscapeError
from base.runtime import Runtime, Tick
from base.settings import version_skew
from base.tick_watch import TickWatch
from base.unblocked.line_writer import UnblockedOutput
from discovery.host.driver_load import boot_id
from exporters.gpuscape.agent_metrics import AgentMetrics
from exporters.gpuscape.core_families import ServedFamilies
from web.client_access import OPEN

log = logging.getLogger(__name__)

EXIT_NEW_LIBRARY = 75
"""A container whose injected driver library is missing or of another version must be made anew."""

_EXIT_CODES = {"library": EXIT_NEW_LIBRARY, "tick": EXIT_TICK_STOPPED}

_CHECK_SECONDS = 5.0
_LAST_RUNS_SECONDS = 2.0
"""At a reload, for runs in progress, so that what they read is shown before what is read anew."""

_MOST_THREADS = 24
"""More than one set of settings takes; at a reload they are needed before the others have ended."""


def run(load: Callable[[], AgentSettings], control: ProcessControl) -> int:
    """Run until ``control`` ends it; the exit status.

    ``load`` gives the settings, at the start and on each reload. Raises BadInput
    or Permanent when it cannot start; afterwards settings that cannot be used are logged
    and the old ones stay.
    """
    heap.keep_small()
    settings, lasting = load(), _Lasting(control=control)
    logs.configure(settings.log_level, settings.log_format)
    version_skew.report(version_skew.of_this_process())
    running = _Running(settings, lasting)
    try:
        running.start()
        while (reason := _why_ended(running, control)) is None:
            running = _reloaded(running, load)
            heap.collect()
    finally:
        running.stop()
        running.machine.close()
        lasting.servers.stop()
    log.info("agent stopped", extra={"reason": reason})
    if running.devices.refusal:
        raise BadInput(running.devices.refusal)
    return _EXIT_CODES.get(reason, EXIT_OK)


def _why_ended(running: _Running, control: ProcessControl) -> str | None:
    """The reason why the process has to end; None: the settings are to be read again."""
    while True:
        match control.next(_CHECK_SECONDS):
            case None:
                if running.injected and running.agent.needs_new_library:
                    control.end(EXIT_NEW_LIBRARY)
                    return "library"
                if running.devices.refusal:
                    return "settings"
                if running.ticks.has_stopped():
                    control.end(EXIT_TICK_STOPPED)
                    return "tick"
            case SignalRequest.END:
                return "signal"
            case SignalRequest.RELEASE:
                running.request_release("signal", (f"signal {signal.SIGUSR1.name}",))
            case SignalRequest.RESUME:
                running.request_release("signal", ())
            case SignalRequest.RELOAD:
                return None


def _reloaded(running: _Running, load: Callable[[], AgentSettings]) -> _Running:
    """What runs from now on: made anew by the settings as they are now, if these can be used."""
    try:
        following = _Running(load(), running.lasting, running)
    except GpuscapeError as error:
        log.error("settings rejected, previous ones kept", extra={"why": str(error)})  # noqa: TRY400  # the sentence is enough
        return running
    running.stop()
    running.runtime.wait_until_idle(_LAST_RUNS_SECONDS)
    following.start(running)
    if following.machine is not running.machine:
        running.machine.close()
    log.info("settings reloaded")
    return following


@dataclass(slots=True, kw_only=True)
class _Lasting:
    """What outlives the settings: what is released stays so, what is known and counted too."""

    control: ProcessControl
    release_requests: ReleaseRequests = field(default_factory=ReleaseRequests)
    records: defaultdict[Hashable, GpuRecords] = field(
        default_factory=lambda: defaultdict(GpuRecords)
    )
    """The reader of the machine."""
    own: dict[ServedFamilies, AgentMetrics] = field(default_factory=dict)
    servers: AgentServers = field(default_factory=AgentServers)


def is_library_injected(environ: Mapping[str, str]) -> bool:
    """Whether a container runtime put the driver's library and device nodes into this container.

    It does so at creation, for a container with NVIDIA_VISIBLE_DEVICES that is neither empty nor
    ``void``. Source: the NVIDIA Container Toolkit's documentation, Docker specialized images.
    """
    return environ.get("NVIDIA_VISIBLE_DEVICES", "") not in ("", "void")


class _Running:
    """All parts for one set of settings, from start to stop.

    Whatever the settings can make fail is made at once, next to the parts that run; the rest
    when it starts, after these were stopped.
    """

    def __init__(
        self, settings: AgentSettings, lasting: _Lasting, before: _Running | None = None
    ) -> None:
        """``before`` is what runs until :meth:`start`. Raises BadInput or Permanent, nothing
        left open, where the settings cannot be used.
        """
        self.lasting = lasting
        self._settings = settings
        self.machine: MachineReader
        self.latest: LatestMetrics | None = None
        self.publisher: Publisher | None = None
        self._early: list[Change] = []
        self.injected = settings.simulate is None and is_library_injected(os.environ)
        with contextlib.ExitStack() as ending, contextlib.ExitStack() as undo:
            plugin = plugin_config(settings)
            self._plugin = plugin
            self._labels = label_settings(settings, plugin, time.time())
            if before is not None and before.machine.serves(settings):
                self.machine = before.machine
                before.check_devices(settings)
            else:
                records = lasting.records[settings.simulate, settings.host_root]
                self.machine = MachineReader(settings, records, lasting.control)
                undo.callback(self.machine.close)
            self._place = place_of(settings, plugin, self.machine.start)
            self._client = parts.cluster_client(settings, ending)
            self._counters = parts.counters_source(
                settings, self._client, None if before is None else before.config_map(settings)
            )
            self._web = parts.web_config(settings, self._update_metrics)
            self._servers = lasting.servers.listening(settings, undo)
            if before is not None:
                # now, as the old parts still run: where threads are short these go on
                threads.make_sure(_MOST_THREADS)
            undo.pop_all()
            self._ending = ending.pop_all()

    def config_map(self, settings: AgentSettings) -> CountersConfigMap | None:
        """The ConfigMap with counters that other settings name, where these name it too."""
        is_same = settings.counters_from == self._settings.counters_from
        return self._counters.config_map if is_same else None

    def check_devices(self, settings: AgentSettings) -> None:
        """Raise BadInput where settings of the same machine newly select devices it cannot have."""
        snapshot = None if self.latest is None else self.latest.snapshot
        if snapshot is None or settings.devices == self._settings.devices:
            return
        if why := selection_refusal(settings.devices, snapshot):
            raise BadInput(why)

    def request_release(self, requester: str, causes: tuple[str, ...]) -> None:
        """Leave the GPUs alone for these causes of ``requester``; without causes no longer.

        Handles are closed, or taken back once a release under way is over, by another thread.
        """
        if self.lasting.release_requests.ask(requester, causes):
            log.info(
                "release requests changed",
                extra={"causes": "; ".join(self.lasting.release_requests.causes) or "none left"},
            )
            self._errands.put(self._release_or_resume)

    def start(self, before: _Running | None = None) -> None:
        """Read, serve and publish from now on; ``before`` has been stopped."""
        settings, machine, ending = self._settings, self.machine, self._ending
        logs.configure(settings.log_level, settings.log_format)
        families = metric_settings.served_families(settings)
        # kept over a reload, so that counters go on
        if families not in self.lasting.own:
            self.lasting.own[families] = AgentMetrics(version("gpuscape"), time.monotonic, families)
        own = self.lasting.own[families]
        own.settings_changed()
        name = self._place.name
        # before the first reading: GPUs take the places that the state file has for them
        parts.restore_kept_records(settings, self._place.root, machine.records)
        served = self._counters.served
        latest = metric_settings.latest(settings, name, own, served, machine.records)
        self.latest = latest
        self._update_metrics(lambda _own: None)
        defects = Defects(functools.partial(latest.refresh, AgentMetrics.defect_met))
        ending.enter_context(defects.of_threads())
        self._errands = BackgroundJobs("errands", defects)
        self.runtime = runtime = Runtime(jitter_ratio=settings.jitter_ratio, defects=defects)
        watch = TickWatch(runtime.progress, run_seconds=settings.tick_limit_seconds)
        self.ticks = TickHealth(watch, own)
        # an XID or a GPU that hangs is handled at once, not at the next interval
        machine.report_news(functools.partial(runtime.trigger, "watch"))
        boot = boot_id(self._place.root)
        sinks, ticks = _sinks(settings), dict[str, Tick]()
        ending.enter_context(
            parts.kept_records(settings, self._place.root, machine.records, latest, defects)
        )
        turn = parts.startup_spread(settings, self._client)
        known = parts.known_pods(settings, self._client, name, latest, turn, defects, ending)
        in_cluster = None
        if self._client is not None and turn is not None:
            from agent.cluster.gpus_before import GpusBefore
            from agent.cluster.join import joined_cluster

            hold = functools.partial(self.request_release, "cluster")
            in_cluster = ending.enter_context(
                joined_cluster(
                    settings,
                    self._client,
                    name,
                    turn=turn,
                    latest=latest,
                    before=GpusBefore(
                        machine.records.known_gpus,
                        boot,
                        taken=functools.partial(runtime.trigger, "discover"),
                    ),
                    hold=hold,
                    clear_xids=machine.records.xids.clear,
                    trigger=runtime.trigger,
                    layouts=parts.layout_inputs(
                        settings,
                        self._plugin,
                        self._place.root,
                        machine.reader,
                        latest,
                        runtime.trigger,
                    ),
                    defects=defects,
                )
            )
            sinks["cluster"] = in_cluster.cluster.set_desired
            ticks.update(in_cluster.cluster.ticks)
        if settings.shows_pods or not settings.standalone:
            ticks["pods"] = parts.pods(settings, name, latest, known, in_cluster).ask
        self.devices = SelectedDevices(settings.devices, at_start=before is None)
        former = None if before is None else before.publisher
        show = parts.device_exchange(settings, self._place.root, latest, defects, ending)
        publisher = Publisher(self._labels, sinks, former, boot=boot, show=show)
        self.publisher = publisher
        self.agent = NodeAgent(
            machine.reader,
            self._place,
            latest,
            publisher,
            intervals=Intervals(
                discover=settings.discover_interval_seconds,
                sample=settings.sample_interval_seconds,
            ),
            trigger=runtime.trigger,
            extra=parts.extra_readings(
                settings, served, self._place.root, known, machine.kernel_log(settings)
            ),
            accepts=self.devices.accepts,
            records=machine.records,
        )
        if before is not None and before.latest is not None and before.machine is machine:
            # with the same reader only: readings of another machine would be served as new ones
            self.agent.go_on_from(before.agent)
            latest.go_on_from(before.latest)
            if not settings.shows_pods:
                latest.show_allocation(None)
        # a release outlives a reload: the new parts must not open the GPUs even once
        if self.lasting.release_requests.causes:
            self.agent.release()
        read_groups = self.agent.read_groups
        follow = parts.followed_counters(settings, self._counters, latest, read_groups)
        if follow is not None:
            ticks["counters"] = follow
        web = self._web
        if web is not None:
            ticks["web-config"] = web.poll
        access = (lambda: OPEN) if web is None else (lambda: web.current)
        parts_served = ServedParts(
            agent=self.agent,
            latest=latest,
            measured=own.serving,
            access=access,
            health_needs_gpus=settings.health_needs_gpus,
        )
        # before the first tick, so that probes are answered while a slow driver is being opened
        self.lasting.servers.serve(self._servers, parts_served)
        ticks.update(self.agent.ticks)
        self._errands.start()
        # ended in the other order: no tick may begin an errand that nobody takes any more
        ending.callback(self._errands.close)
        ending.callback(runtime.stop)
        runtime.start(ticks)

    def stop(self) -> None:
        """Start nothing more; the machine's reader and the servers stay."""
        self._ending.close()

    def _release_or_resume(self) -> None:
        if self.lasting.release_requests.causes:
            self.agent.release()
        else:
            self.agent.resume()

    def _update_metrics(self, change: Change) -> None:
        """Change the agent's own metrics; as soon as there are some."""
        self._early.append(change)
        if self.latest is not None:
            while self._early:
                self.latest.refresh(self._early.pop(0))


def _sinks(settings: AgentSettings) -> dict[str, Sink]:
    sinks: dict[str, Sink] = {}
    if settings.feature_file is not None:
        sinks["feature-file"] = to_feature_file(settings.feature_file)
    if settings.print_labels:
        sinks["stdout"] = to_stream(_stdout().write_lines)
    return sinks


@functools.cache
def _stdout() -> UnblockedOutput:
    stdout = sys.stdout  # noqa: TID251  # the sink makes each line safe
    return UnblockedOutput(stdout.fileno(), "standard output")
