# SPDX-License-Identifier: Apache-2.0
"""The scheduler extender as a process: wires the parts, obeys signals, ends within 5 seconds."""

from __future__ import annotations

import contextlib
import gc
import logging
import socket
import sys
import time
from functools import partial
from importlib.metadata import version
from typing import Final

from api import names
from base import threads
from base.background import BackgroundJobs
from base.defects import Defects
from base.process import process_signals
from kube.client import ApiClient, Program, connect
from kube.events import Recorder
from placement.class_tables import ScoreTables
from scheduler.cluster import pod_events
from scheduler.cluster.node_cache import NodeCache
from scheduler.cluster.pod_gpu_request import Rules
from scheduler.cluster.watches import Watches
from scheduler.extender.extender import Extender
from scheduler.extender.extender_limits import limits_within
from scheduler.extender.extender_metrics import ExtenderMetrics
from scheduler.extender.fleet_fragmentation import fleet_use
from scheduler.extender.https_server import ExtenderServer
from scheduler.extender.prediction_results import count_prediction
from scheduler.extender.routes import ClientTerms
from scheduler.extender.scheduler_settings import SchedulerSettings
from scheduler.extender.server_tls import ServerTls
from web.connection_limits import descriptors

log = logging.getLogger(__name__)

_CHECK_SECONDS: Final = 1.0
_SWITCH_SECONDS: Final = 50e-6
"""How long a thread that reads a watch may keep a request waiting; Python's own 5 ms are most of
the time that a request takes."""


def run(settings: SchedulerSettings) -> int:
    """Run until SIGTERM or SIGINT; the exit status.

    Raises BadInput or Permanent where it cannot start. An API server that does not answer is
    no reason to end: until it does, nothing is known and nothing is scored.
    """
    sys.setswitchinterval(_SWITCH_SECONDS)
    ended = process_signals.end_event()
    with contextlib.ExitStack() as ending:
        _start(settings, ending)
        ended.wait()
    log.info("scheduler extender stopped")
    return 0


def _start(settings: SchedulerSettings, ending: contextlib.ExitStack) -> None:
    """Start all parts, the server first, so that probes are answered; ``ending`` ends them."""
    client = _client(settings)
    metrics = ExtenderMetrics(version("gpuscape"))
    defects = Defects(metrics.defect_met)
    ending.enter_context(defects.of_threads())
    jobs = BackgroundJobs("tables", defects)
    tables = ScoreTables(jobs.put, policies=settings.policies)
    jobs.start()
    events = Recorder(
        client,
        controller=names.SCHEDULER,
        instance=settings.instance or socket.gethostname(),
        budget=pod_events.BUDGET,
        dropped=metrics.event_dropped,
    )
    unlinked = partial(pod_events.record_unlinked, events) if settings.events else None
    cache = NodeCache(tables, landed=partial(count_prediction, tables, metrics, unlinked))
    metrics.ask_fleet(lambda: fleet_use(cache, cache.names(), tables, synced=cache.synced))
    rules = Rules(gpu=settings.gpu_resource, nics=frozenset(settings.nic_resources))
    server = ExtenderServer(
        settings.listen,
        _terms(settings),
        Extender(cache, tables, rules, metrics, settings.product_order),
        metrics,
        defects,
        limits_within(descriptors()),
    )
    ending.callback(server.stop)
    server.start()
    log.info("listening", extra={"host": settings.listen.host or "*", "port": server.address.port})
    watches = Watches(client, cache, namespace=settings.namespace, rules=rules, defects=defects)
    ending.callback(watches.close)
    watches.start()
    threads.started(partial(_keep, cache, events, defects), "keep")


def _keep(cache: NodeCache, events: Recorder, defects: Defects) -> None:
    """Send Events as they come; once all is read, have the collector leave it alone."""
    is_frozen = False
    while True:
        time.sleep(_CHECK_SECONDS)
        with defects.contained("thread keep"):
            events.flush()
        if cache.synced and not is_frozen:
            is_frozen = True
            gc.collect()
            gc.freeze()  # or a collection walks through the whole fleet, while a request waits


def _client(settings: SchedulerSettings) -> ApiClient:
    program = Program(
        name=names.SCHEDULER,
        version=version("gpuscape"),
        # a large cluster's pods come in hundreds of pages where the server cannot stream them
        requests_per_second=20,
        burst=20,
    )
    return connect(program, kubeconfig=settings.kubeconfig)


def _terms(settings: SchedulerSettings) -> ClientTerms:
    tls = None
    if settings.tls_cert_file is not None and settings.tls_private_key_file is not None:
        tls = ServerTls(
            settings.tls_cert_file, settings.tls_private_key_file, settings.client_ca_file
        )
        if settings.client_ca_file is None:
            log.warning("clients not authenticated", extra={"action": "set client-ca-file"})
    return ClientTerms(
        tls=tls,
        needs_certificate=settings.client_ca_file is not None,
        client_names=settings.client_names,
        budget_seconds=settings.budget_seconds,
    )
