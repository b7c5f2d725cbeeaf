# SPDX-License-Identifier: Apache-2.0
"""An extender that serves a small fleet, and a client as simple as curl."""

from __future__ import annotations

import contextlib
import http.client
import ssl
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from placement.class_tables import ScoreTables
from scheduler.cluster.node_cache import CacheSource, NodeCache
from scheduler.cluster.pod_gpu_request import Rules
from scheduler.extender.extender import Extender
from scheduler.extender.extender_limits import ExtenderLimits
from scheduler.extender.extender_metrics import ExtenderMetrics
from scheduler.extender.https_server import ExtenderServer
from scheduler.extender.routes import ClientTerms
from tests.agent.agent_process import SOON
from tests.scheduler import fleets
from web.address import Address

HOST = "127.0.0.1"
PATIENT = ClientTerms(budget_seconds=SOON)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """An extender behind its server."""

    port: int
    metrics: ExtenderMetrics
    cache: NodeCache
    waiting: Callable[[], int]
    """Connections that have sent something and have no place yet."""

    def ask(
        self, path: str, body: bytes | None = None, *, headers: Mapping[str, str] | None = None
    ) -> Reply:
        """One request on a connection of its own: POST where there is a body, else GET."""
        with contextlib.closing(self.connect()) as connection:
            return asked(connection, path, body, headers)

    def connect(self, context: ssl.SSLContext | None = None) -> http.client.HTTPConnection:
        """A connection, secured where there is a context."""
        if context is None:
            return http.client.HTTPConnection(HOST, self.port, timeout=SOON)
        return http.client.HTTPSConnection(HOST, self.port, timeout=SOON, context=context)

    def count(self, series: str) -> float:
        """The value of a series of the metrics, by name and labels as they are written."""
        found = [
            line for line in self.metrics.render().decode().splitlines() if line.startswith(series)
        ]
        return float(found[0].rpartition(" ")[2]) if found else 0.0


def asked(
    connection: http.client.HTTPConnection,
    path: str,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> Reply:
    """One request on this connection."""
    method = "GET" if body is None else "POST"
    connection.request(method, path, body, dict(headers or {"Content-Type": "application/json"}))
    response = connection.getresponse()
    return Reply(status=response.status, headers=dict(response.headers), body=response.read())


def cache(*unsynced: CacheSource, **nodes: Mapping[str, Any]) -> tuple[NodeCache, ScoreTables]:
    """A fleet of nodes with eight GPUs, of which agents say this; see :func:`fleets.lease`."""
    tables = ScoreTables()
    made = NodeCache(tables, clock=lambda: 0.0)
    for name, said in nodes.items():
        made.node(name, topology=fleets.topology())
        made.lease(name, fleets.lease(**said), 0.0)
    for source in set(CacheSource) - set(unsynced):
        made.mark_synced(source)
    return made, tables


@contextlib.contextmanager
def served(
    terms: ClientTerms | None = None,
    extender: Extender | None = None,
    limits: ExtenderLimits = ExtenderLimits(),  # noqa: B008  # frozen
    **nodes: Mapping[str, Any],
) -> Iterator[Served]:
    """One that serves these nodes, or this extender; else node a, which is free, and b, full."""
    metrics = ExtenderMetrics("1.0")
    fleet, tables = cache(**(nodes or {"a": {}, "b": {"used": 0xFF}}))
    serving = ExtenderServer(
        Address(host=HOST, port=0),
        terms or PATIENT,
        extender or Extender(fleet, tables, Rules(), metrics),
        metrics,
        limits=limits,
    )
    serving.start()
    try:
        yield Served(
            port=serving.address.port,
            metrics=metrics,
            cache=fleet,
            waiting=lambda: serving._room.asking,
        )
    finally:
        serving.stop()
