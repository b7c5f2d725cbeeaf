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
from collections.abc import Callable, Hashable
from http import HTTPStatus
from importlib.metadata import version

from agent import parts_from_settings as parts
from agent.client_limits import client_limits
from agent.gpu_records import GpuRecords
from agent.metrics import metric_settings
from agent.metrics.latest_metrics import LatestMetrics
from agent.node_agent import Intervals, NodeAgent
from agent.process_control import EXIT_OK, ProcessControl, SignalRequest
from agent.publish import Publisher, Sink, to_feature_file, to_stream
from agent.release_requests import ReleaseRequests
from agent.settings.agent_settings import AgentSettings
from agent.settings.labels_from_settings import label_settings, plugin_config
from agent.settings.machine_from_settings import place_of, start_of
from agent.tick_health import EXIT_TICK_STOPPED, TickHealth
from base import heap
from base import log as logs
from base.background import BackgroundJobs
from base.defects import Defects
from base.errors import GpuscapeError
from base.runtime import Runtime, Tick
from base.tick_watch import TickWatch
from discovery.reader.device_reader import DeviceReader
from exporters.gpuscape.agent_metrics import AgentMetrics
from exporters.gpuscape.server_metrics import ServingMetrics
from web import connection_limits, messages
from web.client_access import OPEN, ClientAccess
from web.refusals import ClientRefusals, RefusalReason
from web.server import HttpServer

log = logging.getLogger(__name__)

EXIT_NEW_LIBRARY = 75
"""A container whose injected driver library is missing or of another version must be made anew."""

_EXIT_CODES = {"library": EXIT_NEW_LIBRARY, "tick": EXIT_TICK_STOPPED}

_METRICS = "/metrics"
_STOP_SERVER_SECONDS = 1.0
_CHECK_SECONDS = 5.0


def run(load: Callable[[], AgentSettings], control: ProcessControl) -> int:
    """Run until ``control`` ends it; the exit status.

    ``load`` gives the settings, at the start and on each reload. Raises BadInput
    or Permanent when it cannot start; afterwards bad settings are logged and the
    old ones stay.
    """
    heap.keep_small()
    settings, proven, release_requests = load(), None, ReleaseRequests()
    records: defaultdict[Hashable, GpuRecords] = defaultdict(GpuRecords)  # by what is read
    while not control.ending:
        logs.configure(settings.log_level, settings.log_format)
        try:
            known = records[settings.simulate, settings.host_root]
            with _Running(settings, release_requests, known, control) as running:
                proven = settings
                reason, following = _until_ended(running, control, load)
        except GpuscapeError as error:
            if proven is None or proven is settings:
                raise
            log.error("settings rejected, previous ones kept", extra={"why": str(error)})  # noqa: TRY400  # the sentence is enough
            settings = proven
            continue
        if following is None:
            log.info("agent stopped", extra={"reason": reason})
            return _EXIT_CODES.get(reason, EXIT_OK)
        settings = following
        log.info("settings reloaded")
    return EXIT_OK


def _until_ended(
    running: _Running, control: ProcessControl, load: Callable[[], AgentSettings]
) -> tuple[str, AgentSettings | None]:
    """The reason why this run is over, and the settings of the next one, if there is one."""
    while True:
        match control.next(_CHECK_SECONDS):
            case None:
                if running.injected and running.agent.needs_new_library:
                    control.end(EXIT_NEW_LIBRARY)
                    return "library", None
                if running.ticks.has_stopped():
                    control.end(EXIT_TICK_STOPPED)
                    return "tick", None
            case SignalRequest.END:
                return "signal", None
            case SignalRequest.RELEASE:
                running.request_release("signal", (f"signal {signal.SIGUSR1.name}",))
            case SignalRequest.RESUME:
                running.request_release("signal", ())
            case SignalRequest.RELOAD:
                try:
                    return "reload", load()
                except GpuscapeError as error:
                    log.error("settings rejected, previous ones kept", extra={"why": str(error)})  # noqa: TRY400  # the sentence is enough


class _Running:
    """All parts for one set of settings, from start to end."""

    def __init__(
        self,
        settings: AgentSettings,
        release_requests: ReleaseRequests,
        records: GpuRecords,
        control: ProcessControl,
    ) -> None:
        """``release_requests`` and ``records`` outlive these settings: what is released stays
        released, and what is known about GPUs stays known.
        """
        self._ending = contextlib.ExitStack()
        self._settings = settings
        self._release_requests = release_requests
        self._records = records
        self._control = control
        # the container toolkit's own mark: library and device nodes were put in at creation
        visible = os.environ.get("NVIDIA_VISIBLE_DEVICES", "void")
        self.injected = visible not in ("", "void") and settings.simulate is None

    def __enter__(self) -> _Running:
        with contextlib.ExitStack() as undo:
            self._start(undo)
            self._ending = undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.close()

    def request_release(self, who: str, causes: tuple[str, ...]) -> None:
        """Leave the GPUs alone for these causes of ``who``; without causes, no longer for ``who``.

        Handles are closed, or taken back once a release under way is over, by another thread.
        """
        if self._release_requests.ask(who, causes):
            log.info(
                "release requests changed",
                extra={"causes": "; ".join(self._release_requests.causes) or "none left"},
            )
            self._errands.put(self._release_or_resume)

    def _release_or_resume(self) -> None:
        if self._release_requests.causes:
            self.agent.release()
        else:
            self.agent.resume()

    def _start(self, ending: contextlib.ExitStack) -> None:
        settings = self._settings
        plugin = plugin_config(settings)
        start = ending.enter_context(start_of(settings))
        place = place_of(settings, plugin, start)
        client = parts.client(settings, ending)
        served, counters_file = parts.counters(settings, client)
        own = AgentMetrics(version("gpuscape"), time.monotonic, metric_settings.served(settings))
        latest = metric_settings.latest(settings, place.name, own, served, self._records)
        defects = Defects(functools.partial(latest.refresh, AgentMetrics.defect_met))
        ending.enter_context(defects.of_threads())
        self._errands = BackgroundJobs("errands", defects)
        runtime = Runtime(jitter_ratio=settings.jitter_ratio, defects=defects)
        watch = TickWatch(runtime.progress, run_seconds=settings.tick_limit_seconds)
        self.ticks = TickHealth(watch, own)
        reader = DeviceReader(
            start,
            deadline_seconds=settings.deadline_seconds,
            known_gpus=self._records.known_gpus,
            on_news=functools.partial(runtime.hasten, "watch"),
        )
        ending.enter_context(self._control.closed_first(reader.close))
        sinks, ticks = _sinks(settings), dict[str, Tick]()
        known = parts.known_pods(settings, client, place.name, latest, defects, ending)
        in_cluster = None
        if client is not None and not settings.standalone:
            from agent.cluster.join import joined

            hold = functools.partial(self.request_release, "cluster")
            in_cluster = ending.enter_context(
                joined(
                    settings,
                    client,
                    place.name,
                    latest=latest,
                    hold=hold,
                    hasten=runtime.hasten,
                    defects=defects,
                )
            )
            sinks["cluster"] = in_cluster.cluster.want
            ticks.update(in_cluster.cluster.ticks)
        if settings.shows_pods or not settings.standalone:
            ticks["pods"] = parts.pods(settings, place.name, latest, known, in_cluster).ask
        self.agent = NodeAgent(
            reader,
            place,
            latest,
            Publisher(label_settings(settings, plugin, time.time()), sinks),
            intervals=Intervals(
                discover=settings.discover_interval_seconds,
                sample=settings.sample_interval_seconds,
            ),
            hasten=runtime.hasten,
            extra=parts.extra_readings(settings, served, place.root, known, ending),
            records=self._records,
        )
        if self._release_requests.causes:
            self.agent.release()
        if counters_file is not None:
            counters = parts.counters_file(settings, counters_file, served, latest, self.agent)
            ticks["counters"] = counters.poll
        web = parts.web_config(settings, latest)
        if web is not None:
            ticks["web-config"] = web.poll
        access = (lambda: OPEN) if web is None else (lambda: web.current)
        self._serve(latest, access, own.serving, ending)
        ticks.update(self.agent.ticks)
        self._errands.start()
        ending.callback(self._errands.close)
        ending.callback(runtime.stop)
        runtime.start(ticks)

    def _serve(
        self,
        latest: LatestMetrics,
        access: Callable[[], ClientAccess],
        measured: ServingMetrics,
        ending: contextlib.ExitStack,
    ) -> None:
        measured.expect(RefusalReason)
        refusals = ClientRefusals(measured.refused)

        def served(path: str, seconds: float) -> None:
            if path == _METRICS:
                measured.scraped(seconds)

        metrics_limits, probe_limits = client_limits(connection_limits.descriptors())
        metrics = HttpServer(
            self._settings.listen,
            {_METRICS: latest.metrics, "/health": lambda: messages.health(self.agent.alive)},
            metrics_limits,
            access=access,
            refusals=refusals,
            served=served,
        )
        probes = HttpServer(
            self._settings.probe_listen,
            {
                "/livez": lambda: _probe(self.agent.alive),
                "/readyz": lambda: _probe(self.agent.ready),
            },
            probe_limits,
            refusals=refusals,
        )
        for what, server in (("metrics", metrics), ("probes", probes)):
            server.start()
            ending.callback(server.stop, _STOP_SERVER_SECONDS)
            log.info("listening", extra={"serves": what, "address": str(server.address)})


def _probe(good: bool) -> messages.Response:
    return messages.text("ok") if good else messages.text("not yet", HTTPStatus.SERVICE_UNAVAILABLE)


def _sinks(settings: AgentSettings) -> dict[str, Sink]:
    sinks: dict[str, Sink] = {}
    if settings.feature_file is not None:
        sinks["feature-file"] = to_feature_file(settings.feature_file)
    if settings.print_labels:
        sinks["stdout"] = to_stream(sys.stdout)
    return sinks
