# SPDX-License-Identifier: Apache-2.0
"""The extender's HTTPS server: who is admitted, and for how long; a thread attends to each client.

A scheduler has a connection or two, which stay. So a thread each costs little, and a request is
answered by the thread that reads it; docs/decisions/scheduling.md has what that is worth. Only
connections that have sent something get one: all are accepted by an event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from base import threads
from base.defects import Defects
from base.followed_file import POLL_SECONDS
from scheduler.extender.connection import HEAD_SECONDS, Connection, Standing
from scheduler.extender.extender import Extender
from scheduler.extender.extender_metrics import ExtenderMetrics
from scheduler.extender.routes import ClientTerms, Routes
from web import connection_limits
from web.address import Address, listening_socket
from web.messages import NO_ROOM
from web.waiting_room import WaitingRoom, answer_at_once

_OWN_DESCRIPTORS: Final = 32
"""Kept free of clients. 7 are open before the API server answers; watches, Events and files being
read take the rest."""
_TICK_SECONDS: Final = 0.005
"""Time between checks while connections wait for a place."""
_GRACE_SECONDS: Final = 1.0
"""Time for answers under way when the server stops."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """Limits on the connections of the extender's server."""

    served: int = 64
    """Connections with a thread each; a scheduler keeps one or two."""
    waiting: int = 2048
    """Accepted and without a thread: those that have sent nothing yet, and a queue of the others.
    When all of them have asked, further ones wait in the kernel."""
    queue_seconds: float = 0.25
    """From a new connection's first byte to its place; then one of the last ones, for a probe, or
    to show that it is a scheduler's. Else scores are answered with 503."""

    @property
    def kept(self) -> int:
        """Places, out of ``served``, for connections whose time in the queue is over."""
        return max(1, self.served // 8)


def limits_within(descriptors: int | None) -> ConnectionLimits:
    """Limits that leave the extender the file descriptors that it needs; None: no limit on them."""
    defaults = ConnectionLimits()
    if descriptors is None:
        return defaults
    served, waiting = connection_limits.shares(
        descriptors - _OWN_DESCRIPTORS, served=defaults.served, waiting=defaults.waiting
    )
    return ConnectionLimits(served=served, waiting=waiting)


class ExtenderServer:
    """Serves one extender in threads of its own."""

    def __init__(
        self,
        address: Address,
        terms: ClientTerms,
        extender: Extender,
        measured: ExtenderMetrics,
        defects: Defects | None = None,
        limits: ConnectionLimits = ConnectionLimits(),
    ) -> None:
        """Open the listening socket. Raises Permanent where that fails."""
        self._listener = listening_socket(address)
        self._limits = limits
        self._tls = terms.tls
        self._defects = defects or Defects()
        self._site = Routes(terms, extender, measured)
        self._clients: dict[Connection, threading.Thread] = {}
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._stopping = asyncio.Event()
        self._is_ticking = False

    @property
    def port(self) -> int:
        """Port that it listens on: a free one where the address has port 0."""
        return int(self._listener.getsockname()[1])

    def start(self) -> None:
        """Start serving, in threads of its own. Raises NoThread."""
        self._loop = asyncio.new_event_loop()
        run = functools.partial(self._run, self._loop)
        self._thread = threads.started(run, f"https-{self.port}")

    def stop(self) -> None:
        """Stop serving; answers under way have a second."""
        if self._loop is None or self._thread is None:
            return
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()
        with self._lock:
            clients = dict(self._clients)
        for at_once in (False, True):
            until = time.monotonic() + _GRACE_SECONDS
            for client in clients:
                client.end(at_once=at_once)
            for thread in clients.values():
                thread.join(max(0.0, until - time.monotonic()))
        self._site.close()

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            loop.run_until_complete(self._serve())
        finally:
            loop.close()

    async def _serve(self) -> None:
        self._room = WaitingRoom(
            self._listener,
            max_connections=self._limits.waiting,
            silent_seconds=HEAD_SECONDS,
            asks=self._give_places,
            not_accepted=self._site.refusals.not_accepted,
        )
        while not self._stopping.is_set():
            poll_seconds = self._poll_certificates()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(poll_seconds):
                    await self._stopping.wait()
        self._room.close()
        for connection in self._room.overdue(0):
            self._turn_away(connection)

    def _poll_certificates(self) -> float | None:
        """Take changed certificates; the seconds until the next poll, None without TLS."""
        if self._tls is None:
            return None
        with self._defects.contained("certificates"):
            return self._tls.poll(time.monotonic())
        return POLL_SECONDS

    def _give_places(self) -> None:
        """Attend to those that ask, as far as there are places.

        Who asked last comes first: its client still waits, and no crowd is in front of it.
        """
        while len(self._clients) < self._limits.served - self._limits.kept:
            connection = self._room.take(last=True)
            if connection is None:
                return
            self._admit(connection, is_late=False)
        if self._room.asking and not self._is_ticking:
            self._is_ticking = True
            asyncio.get_running_loop().call_later(_TICK_SECONDS, self._tick)

    def _tick(self) -> None:
        """Make room for those that wait for a place, and attend to whom that took too long."""
        self._is_ticking = False
        self._give_places()
        self._vacate()
        while len(self._clients) < self._limits.served:
            connection = next(self._room.overdue(self._limits.queue_seconds), None)
            if connection is None:
                return
            self._admit(connection, is_late=True)

    def _admit(self, connection: socket.socket, *, is_late: bool) -> None:
        """Attend to a connection, if a thread is to be had."""
        context = None if self._tls is None else self._tls.current
        client = Connection(connection, self._site, context, is_late=is_late, promote=self._promote)
        thread = threading.Thread(
            target=self._attend, args=(client,), name=f"client-{self.port}", daemon=True
        )
        with self._lock:
            self._clients[client] = thread
        try:
            thread.start()
        except RuntimeError as error:
            self._forget(client)
            self._site.refusals.not_accepted(error)
            self._turn_away(connection)

    def _turn_away(self, connection: socket.socket) -> None:
        """Answer a client that gets no thread; under TLS nothing can be answered without one."""
        if self._tls is None:
            answer_at_once(connection, b"".join(NO_ROOM.message(None, time.time())))
        else:
            connection.close()

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
        if len(on_time) < self._limits.served - self._limits.kept:
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

    def _attend(self, client: Connection) -> None:
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
