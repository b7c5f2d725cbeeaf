# SPDX-License-Identifier: Apache-2.0
"""The coordinator as a process: wires the parts, obeys signals, gives the leadership back."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from typing import Final

from api import names
from base import threads
from base.defects import Defects
from base.process import process_signals
from fleet import change_reports
from fleet.change_reports import ChangeReports
from fleet.coordinator import Coordinator
from fleet.coordinator_settings import CoordinatorSettings
from fleet.figures.coordinator_metrics import CONTENT_TYPE, CoordinatorMetrics
from fleet.fleet_cache import FleetCache
from fleet.fleet_watches import FleetWatches
from fleet.leadership import Leadership
from fleet.plugins.device_plugin_restarter import DevicePluginRestarter
from fleet.policy.fleet_policy_sync import FleetPolicySync
from fleet.startup.startup_taint_remover import StartupTaintRemover
from kube.api import CONFIG_MAPS
from kube.client import Program, connect
from kube.events import Recorder
from kube.informer import Informer, WatchEvent
from web import messages
from web.messages import Body, Response
from web.server import HttpServer

log = logging.getLogger(__name__)

_STUCK_SECONDS: Final = 300.0
"""A round or a beat that takes so long does not end any more: requests have shorter deadlines."""
_LEAST_PAUSE_SECONDS: Final = 0.05
_PAUSE_RATIO: Final = 4.0
"""Pause in lengths of the step before it: a fleet whose every pod changes must not keep a core
busy."""
_LONGEST_PAUSE_SECONDS: Final = 1.0
_FLUSH_SECONDS: Final = 1.0
_STOP_SECONDS: Final = 1.0


def run(settings: CoordinatorSettings) -> int:
    """Run until SIGTERM or SIGINT; the exit status.

    Raises BadInput or Permanent where it cannot start. An API server that does not answer is no
    reason to end.
    """
    ended = process_signals.end_event()
    with contextlib.ExitStack() as ending:
        _start(settings, ended, ending)
        ended.wait()
    log.info("coordinator stopped")
    return 0


class _Loop:
    """Calls a step again and again, in a thread of its own, and knows how long one takes."""

    def __init__(self, name: str, ended: threading.Event, defects: Defects) -> None:
        self._name = name
        self._ended = ended
        self._defects = defects
        self._hastened = threading.Event()
        self._busy_since: float | None = None

    @property
    def is_stuck(self) -> bool:
        """Whether a step does not end any more."""
        since = self._busy_since
        return since is not None and time.monotonic() - since > _STUCK_SECONDS

    def trigger(self) -> None:
        """Have the next step made now."""
        self._hastened.set()

    def start(self, step: Callable[[], float]) -> None:
        """Start the thread: each step says in how many seconds it is to be made again."""
        threads.started(partial(self._run, step), self._name)

    def _run(self, step: Callable[[], float]) -> None:
        while not self._ended.is_set():
            self._hastened.clear()
            seconds = 1.0
            began = self._busy_since = time.monotonic()
            with self._defects.contained(f"thread {self._name}"):
                seconds = step()
            self._busy_since = None
            pause = max(_LEAST_PAUSE_SECONDS, _PAUSE_RATIO * (time.monotonic() - began))
            self._ended.wait(min(pause, _LONGEST_PAUSE_SECONDS))
            self._hastened.wait(max(0.0, seconds - pause))


def _start(
    settings: CoordinatorSettings, ended: threading.Event, ending: contextlib.ExitStack
) -> None:
    """Start all parts, the server first; ``ending`` ends them."""
    program = Program(
        name=names.COORDINATOR,
        version=version("gpuscape"),
        # a large cluster's pods come in hundreds of pages where the server cannot stream them
        requests_per_second=20,
        burst=40,
    )
    client = connect(program, kubeconfig=settings.kubeconfig)
    instance, namespace = settings.instance or socket.gethostname(), settings.namespace
    metrics = CoordinatorMetrics(version("gpuscape"))
    defects = Defects(metrics.defect_met)
    ending.enter_context(defects.of_threads())
    events = Recorder(
        client,
        controller=names.COORDINATOR,
        instance=instance,
        budget=change_reports.BUDGET,
        dropped=metrics.event_dropped,
    )
    cache = FleetCache(settings.pod_terms)

    def read_anew() -> None:
        watches.start_anew()
        policy_watch.start_anew()

    leadership = Leadership(client, identity=instance, namespace=namespace, rolled_back=read_anew)
    policy = FleetPolicySync(client, leads=lambda: leadership.leads)
    taints = StartupTaintRemover(
        client, policy.startup_wait, leads=lambda: leadership.leads, shows=metrics.shows_startup
    )
    plugins = DevicePluginRestarter(
        client,
        cache,
        leadership,
        terms=settings,
        events=events,
        shows=lambda unlisted: metrics.shows_unlisted(unlisted.values()),
    )
    coordinator = Coordinator(
        client,
        cache,
        leadership,
        terms=settings,
        reports=ChangeReports(events, metrics, policy=lambda: policy.state),
        drains=lambda: policy.drains,
        namespace=namespace,
        defects=defects,
    )
    rounds, beats = _Loop("rounds", ended, defects), _Loop("beats", ended, defects)
    server = HttpServer(
        settings.listen,
        {
            "/metrics": lambda: Response(body=Body(metrics.render()), content_type=CONTENT_TYPE),
            "/livez": lambda: messages.probe(not (rounds.is_stuck or beats.is_stuck)),
            "/readyz": lambda: messages.probe(cache.is_synced),
        },
        title="gpuscape coordinator",
    )
    server.start()
    ending.callback(server.stop, _STOP_SECONDS)
    log.info("listening", extra={"serves": "metrics", "address": str(server.address)})

    def on_node(event: WatchEvent) -> None:
        policy.on_node(event)
        taints.on_node(event)

    watches = FleetWatches(
        client, cache, rounds.trigger, namespace=namespace, on_node=on_node, defects=defects
    )
    ending.callback(watches.close)
    policy_watch = Informer(
        client,
        CONFIG_MAPS,
        policy.on_config_map,
        namespace=namespace,
        name=names.MIG_POLICY,
        defects=defects,
    )
    ending.callback(policy_watch.close)
    # registered last, so it runs first: another coordinator acts at once, not after 30 s
    ending.callback(leadership.leave)
    watches.start()

    def beat() -> float:
        before = leadership.leads
        seconds = leadership.beat(time.monotonic())
        if leadership.leads and not before:
            rounds.trigger()
        return seconds

    def flush() -> float:
        events.flush()
        return _FLUSH_SECONDS

    threads.started(policy_watch.run, "watch-policy")
    steps = {"policy": policy.tick, "taints": taints.tick, "plugins": plugins.tick, "events": flush}
    for name, step in steps.items():
        _Loop(name, ended, defects).start(step)
    beats.start(beat)
    rounds.start(coordinator.round)
