# SPDX-License-Identifier: Apache-2.0
"""The agent's two servers, which listen on while the settings behind them change."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from agent.client_limits import client_limits
from agent.metrics.latest_metrics import LatestMetrics
from agent.node_agent import NodeAgent
from agent.settings.agent_settings import AgentSettings
from exporters.gpuscape.server_metrics import ServingMetrics
from web import connection_limits, messages
from web.address import Address
from web.client_access import ClientAccess
from web.refusals import ClientRefusals, RefusalReason
from web.server import HttpServer

log = logging.getLogger(__name__)

_METRICS = "/metrics"
_STOP_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedParts:
    """Parts of the agent that its servers serve."""

    agent: NodeAgent
    latest: LatestMetrics
    measured: ServingMetrics
    access: Callable[[], ClientAccess]
    """Gives the rules by which clients may ask for metrics; it must not wait."""
    health_needs_gpus: bool = False
    """Whether ``/health`` answers 503 while the machine shows no GPU."""


Servers = Mapping[str, tuple[Address, HttpServer]]
"""``metrics`` and ``probes`` to the address that the settings name, and the server there."""


class AgentServers:
    """Serves the parts that it got last; a listener stays as long as its address. One thread."""

    def __init__(self) -> None:
        self._servers: Servers = {}
        self._refusals = ClientRefusals(lambda reason: self._parts.measured.refused(reason))
        self._parts: ServedParts

    def listening(self, settings: AgentSettings, undo: contextlib.ExitStack) -> Servers:
        """Servers of these settings: those there are, and others, whose clients wait until
        :meth:`serve`. Raises Permanent where it cannot listen. ``undo`` closes the new ones.
        """
        addresses = {"metrics": settings.listen, "probes": settings.probe_listen}
        servers = {}
        for name, address in addresses.items():
            before = self._servers.get(name)
            if before is not None and before[0] == address:
                servers[name] = before
            else:
                server = self._server(name, address)
                server.listen()
                undo.callback(server.stop, 0.0)
                servers[name] = address, server
        return servers

    def serve(self, servers: Servers, parts: ServedParts) -> None:
        """Serve these parts by these servers, and stop those whose address is another now."""
        parts.measured.expect(RefusalReason)
        self._parts = parts
        before, self._servers = self._servers, servers
        for name, (_, server) in servers.items():
            old = before.get(name)
            if old is not None and old[1] is server:
                continue
            server.start()
            log.info("listening", extra={"serves": name, "address": str(server.address)})
            if old is not None:
                old[1].stop(_STOP_SECONDS)

    def stop(self) -> None:
        """End both, after the answers under way."""
        for _, server in self._servers.values():
            server.stop(_STOP_SECONDS)
        self._servers = {}

    def _server(self, name: str, address: Address) -> HttpServer:
        metrics_limits, probe_limits = client_limits(connection_limits.descriptors())
        if name == "probes":
            return HttpServer(
                address,
                {
                    "/livez": lambda: messages.probe(self._parts.agent.alive),
                    "/readyz": lambda: messages.probe(self._parts.agent.ready),
                },
                probe_limits,
                refusals=self._refusals,
            )
        return HttpServer(
            address,
            {
                _METRICS: lambda: self._parts.latest.metrics(),
                "/health": lambda: messages.health(self._fault()),
            },
            metrics_limits,
            access=lambda: self._parts.access(),
            refusals=self._refusals,
            served=self._served,
        )

    def _fault(self) -> str:
        """Why ``/health`` answers 503; empty where it does not."""
        if not self._parts.agent.alive:
            return "The agent's ticks have stopped."
        snapshot = self._parts.latest.snapshot
        if self._parts.health_needs_gpus and not (snapshot and snapshot.gpus):
            return "The machine shows no GPU."
        return ""

    def _served(self, path: str, seconds: float) -> None:
        if path == _METRICS:
            self._parts.measured.scraped(seconds)
