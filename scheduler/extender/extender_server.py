# SPDX-License-Identifier: Apache-2.0
"""The extender's HTTPS server: who is admitted, and for how long; a thread attends to each client.

A scheduler has a connection or two, which stay. So a thread each costs little, and a request is
answered by the thread that reads it; docs/decisions/scheduling.md has what that is worth.
"""

from __future__ import annotations

import math
import socket
import time
from typing import Final

from base.defects import Defects
from base.followed_file import POLL_SECONDS
from scheduler.extender.extender import Extender
from scheduler.extender.extender_metrics import ExtenderMetrics
from scheduler.extender.routes import ClientTerms, Routes
from scheduler.extender.scheduler_client import SchedulerClient
from web import connection_limits
from web.address import Address
from web.byte_stream import ThreadStream
from web.client_access import OPEN, ClientAccess
from web.client_server import ClientServer
from web.messages import ServerLimits

_OWN_DESCRIPTORS: Final = 32
"""Kept free of clients. 7 are open before the API server answers; watches, Events and files being
read take the rest."""
_GRACE_SECONDS: Final = 1.0
"""Time for answers under way when the server stops."""


def extender_limits(
    served: int = 64, waiting: int = 2048, queue_seconds: float = 0.25
) -> ServerLimits:
    """Limits of a server with so many places; a scheduler keeps one or two.

    An eighth of them is for those that got none in time: for a probe, or to show that it is a
    scheduler's. Idle connections are kept for longer than the 90 s of Go's clients, so that none
    writes while we close.
    """
    return ServerLimits(
        connections=served,
        waiting=waiting,
        queue_seconds=queue_seconds,
        kept=max(1, served // 8),
        request_seconds=math.inf,
        answer_seconds=5.0,
        idle_seconds=120.0,
    )


def limits_within(descriptors: int | None) -> ServerLimits:
    """Limits that leave the extender the file descriptors that it needs; None: no limit on them."""
    usual = extender_limits()
    if descriptors is None:
        return usual
    served, waiting = connection_limits.shares(
        descriptors - _OWN_DESCRIPTORS, served=usual.connections, waiting=usual.waiting
    )
    return extender_limits(served, waiting)


class ExtenderServer(ClientServer):
    """Serves one extender in threads of its own.

    Who asked last comes first: its client still waits, and no crowd is in front of it.
    """

    newest_first = True

    def __init__(
        self,
        address: Address,
        terms: ClientTerms,
        extender: Extender,
        measured: ExtenderMetrics,
        defects: Defects | None = None,
        limits: ServerLimits | None = None,
    ) -> None:
        """Open the listening socket. Raises Permanent where that fails."""
        self._tls = terms.tls
        self._defects = defects or Defects()
        self._site = Routes(terms, extender, measured)
        self._present = OPEN
        super().__init__(address, limits or extender_limits(), self._site.refusals)
        self.listen()

    def stop(self, within_seconds: float = _GRACE_SECONDS) -> None:
        """See :class:`ClientServer`."""
        super().stop(within_seconds)
        self._site.close()

    def _access(self) -> ClientAccess:
        return self._present

    def _poll(self) -> float | None:
        """Take changed certificates; the seconds until the next poll, None without TLS."""
        if self._tls is None:
            return None
        seconds = POLL_SECONDS
        with self._defects.contained("certificates"):
            seconds = self._tls.poll(time.monotonic())
        if self._present.context is not self._tls.current:
            self._present = ClientAccess(context=self._tls.current)
        return seconds

    def _attend(self, connection: socket.socket, *, is_late: bool) -> None:
        """Attend to a connection, if a thread is to be had."""
        stream = ThreadStream(connection)
        client = SchedulerClient(
            stream, self._site, self._access, self._limits, is_late=is_late, promote=self._promote
        )
        if not self._in_thread(client, stream):
            self._dismiss(connection)

    def _promote(self, late: SchedulerClient) -> bool:
        """Find a place for a connection that got none in time: that of a client of lower standing.

        Else that of an idle one of equal standing. False where all are being answered. For any
        thread.
        """
        on_time = [
            client
            for client in tuple(self._places)
            if isinstance(client, SchedulerClient) and not client.is_late and not client.ending
        ]
        if len(on_time) < self._limits.connections - self._limits.kept:
            return True
        may_go = [
            client
            for client in on_time
            if client.standing < late.standing
            or (client.is_idle and client.standing == late.standing)
        ]
        may_go = [client for client in may_go if client.awaits_client()]
        if may_go:
            min(may_go, key=lambda client: client.precedence).make_room()
        return bool(may_go)
