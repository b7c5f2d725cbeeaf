# SPDX-License-Identifier: Apache-2.0
"""The extender's HTTPS server: who is admitted, and for how long; a thread attends to each client.

A scheduler has a connection or two, which stay. So a thread each costs little, and a request is
answered by the thread that reads it; docs/decisions/scheduling.md has what that is worth. Only
connections that have sent something get one: all are accepted by an event loop.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterable
from typing import Final

from base.defects import Defects
from base.followed_file import POLL_SECONDS
from scheduler.extender.connection import Connection, Standing
from scheduler.extender.extender import Extender
from scheduler.extender.extender_limits import ExtenderLimits
from scheduler.extender.extender_metrics import ExtenderMetrics
from scheduler.extender.routes import ClientTerms, Routes
from web.address import Address
from web.client_access import OPEN, ClientAccess
from web.client_server import ClientServer

_GRACE_SECONDS: Final = 1.0
"""Time for answers under way when the server stops."""


class ExtenderServer(ClientServer):
    """Serves one extender in threads of its own.

    Who asked last comes first: its client still waits, and no crowd is in front of it.
    """

    newest_first = True
    _limits: ExtenderLimits

    def __init__(
        self,
        address: Address,
        terms: ClientTerms,
        extender: Extender,
        measured: ExtenderMetrics,
        defects: Defects | None = None,
        limits: ExtenderLimits = ExtenderLimits(),  # noqa: B008  # frozen
    ) -> None:
        self._tls = terms.tls
        self._defects = defects or Defects()
        self._site = Routes(terms, extender, measured)
        self._clients: dict[Connection, threading.Thread] = {}
        self._lock = threading.Lock()
        super().__init__(address, limits, self._present_access, self._site.refusals)

    def stop(self, within_seconds: float = _GRACE_SECONDS) -> None:
        """Stop serving; answers under way have so long, and then the connections to end."""
        super().stop(within_seconds)
        with self._lock:
            clients = dict(self._clients)
        for at_once in (False, True):
            until = time.monotonic() + within_seconds
            for client in clients:
                client.end(at_once=at_once)
            for thread in clients.values():
                thread.join(max(0.0, until - time.monotonic()))
        self._site.close()

    def _present_access(self) -> ClientAccess:
        return OPEN if self._tls is None else ClientAccess(context=self._tls.current)

    def _poll(self) -> float | None:
        """Take changed certificates; the seconds until the next poll, None without TLS."""
        if self._tls is None:
            return None
        with self._defects.contained("certificates"):
            return self._tls.poll(time.monotonic())
        return POLL_SECONDS

    def _has_place(self) -> bool:
        return len(self._clients) < self._limits.connections - self._limits.kept

    def _make_room(self) -> None:
        """Make room for those that wait for a place, and attend to whom that took too long."""
        self._vacate()
        while len(self._clients) < self._limits.connections:
            connection = next(self._room.overdue(self._limits.queue_seconds), None)
            if connection is None:
                return
            self._attend(connection, is_late=True)

    def _attend(self, connection: socket.socket, *, is_late: bool = False) -> None:
        """Attend to a connection, if a thread is to be had."""
        client = Connection(
            connection,
            self._site,
            self._access().context,
            self._limits,
            is_late=is_late,
            promote=self._promote,
        )
        thread = threading.Thread(
            target=self._serve_client,
            args=(client,),
            name=f"client-{self._address.port}",
            daemon=True,
        )
        with self._lock:
            self._clients[client] = thread
        try:
            thread.start()
        except RuntimeError as error:
            self._forget(client)
            self._refusals.not_accepted(error)
            self._turn_away(connection)

    def _vacate(self) -> None:
        """End connections whose client is waited for, as many as others wait for a place.

        Clients with the lowest standing go first, of these the oldest. A scheduler's connection
        never makes room for a lower standing: see :meth:`_promote`.
        """
        with self._lock:
            clients = tuple(self._clients)
        # those that are ended give their places back at once: to end more would hit others too
        missing = self._room.asking - sum(client.is_ended for client in clients)
        stalled = [client for client in clients if client.is_stalled()]
        may_go = _waiting(client for client in stalled if client.standing < Standing.SCHEDULER)
        for client in may_go[: max(0, missing)]:
            client.end()

    def _promote(self, late: Connection) -> bool:
        """Find a place for a connection that got none in time: that of a client of lower standing.

        Else that of an idle one of equal standing. False where all are being answered. For any
        thread.
        """
        with self._lock:
            on_time = [
                client for client in self._clients if not client.is_late and not client.is_ended
            ]
        if len(on_time) < self._limits.connections - self._limits.kept:
            return True
        may_go = _waiting(
            client
            for client in on_time
            if client.standing < late.standing
            or (client.is_idle and client.standing == late.standing)
        )
        for client in may_go[:1]:
            client.end()
        return bool(may_go)

    def _serve_client(self, client: Connection) -> None:
        try:
            client.attend()
        finally:
            self._forget(client)

    def _forget(self, client: Connection) -> None:
        with self._lock:
            del self._clients[client]


def _waiting(clients: Iterable[Connection]) -> list[Connection]:
    """Connections that wait for their client, in the order in which they make room."""
    waiting = [client for client in clients if not client.is_ended and client.awaits_client()]
    return sorted(waiting, key=lambda client: (client.standing, client.since))
