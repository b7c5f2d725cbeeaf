# SPDX-License-Identifier: Apache-2.0
"""The extender's HTTPS server: who is admitted, and for how long; a thread attends to each client.

A scheduler has a connection or two, which stay. So a thread each costs little, and a request is
answered by the thread that reads it; docs/decisions/scheduling.md has what that is worth.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from typing import Final

from base.defects import Defects
from scheduler.extender.connection import Connection
from scheduler.extender.extender import Extender
from scheduler.extender.extender_metrics import ExtenderMetrics
from scheduler.extender.routes import ClientTerms, Routes
from web.address import Address, listening

log = logging.getLogger(__name__)

MOST_CONNECTIONS: Final = 64
"""A scheduler keeps one or two; one more takes the place of another: `ExtenderServer._vacate`."""
_ACCEPT_SECONDS: Final = 2.0
"""How long a new connection is awaited before the certificates' turn comes."""
_GRACE_SECONDS: Final = 1.0
"""For answers under way when the server stops."""


class ExtenderServer:
    """Serves one extender in threads of its own."""

    def __init__(
        self,
        address: Address,
        terms: ClientTerms,
        extender: Extender,
        measured: ExtenderMetrics,
        defects: Defects | None = None,
    ) -> None:
        """Open the listening socket. Raises Permanent where that fails."""
        self._listener = listening(address)
        self._listener.settimeout(_ACCEPT_SECONDS)
        self._tls = terms.tls
        self._defects = defects or Defects()
        self._site = Routes(terms, extender, measured)
        self._clients: dict[Connection, threading.Thread] = {}
        self._lock = threading.Lock()
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name=f"https-{self.port}", daemon=True)

    @property
    def port(self) -> int:
        """Port that it listens on: a free one where the address has port 0."""
        return int(self._listener.getsockname()[1])

    def start(self) -> None:
        """Start serving, in threads of its own."""
        self._thread.start()

    def stop(self) -> None:
        """Stop serving; answers under way have a second."""
        self._is_stopping = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # on Linux this wakes who accepts
        self._thread.join()
        self._listener.close()
        with self._lock:
            clients = dict(self._clients)
        for at_once in (False, True):
            until = time.monotonic() + _GRACE_SECONDS
            for client in clients:
                client.end(at_once=at_once)
            for thread in clients.values():
                thread.join(max(0.0, until - time.monotonic()))
        self._site.close()

    def _run(self) -> None:
        poll_at = time.monotonic()
        while not self._is_stopping:
            try:
                self._admit(self._listener.accept()[0])
            except TimeoutError:
                pass
            except (OSError, RuntimeError) as error:
                if not self._is_stopping:
                    log.warning("connection not accepted", extra={"why": str(error)})
                    time.sleep(_GRACE_SECONDS)  # no descriptor or thread: some may end by then
            if self._tls is not None and (now := time.monotonic()) >= poll_at:
                with self._defects.contained("certificates"):
                    poll_at = now + self._tls.poll(now)

    def _admit(self, client: socket.socket) -> None:
        """Attend to a new connection, where there is room."""
        context = None if self._tls is None else self._tls.current
        connection = Connection(client, self._site, context)
        thread = threading.Thread(
            target=self._attend, args=(connection,), name=f"client-{self.port}", daemon=True
        )
        with self._lock:
            if len(self._clients) >= MOST_CONNECTIONS and not self._vacate():
                client.close()
                return
            self._clients[connection] = thread
        try:
            thread.start()
        except RuntimeError:
            with self._lock:
                del self._clients[connection]
            client.close()
            raise

    def _vacate(self) -> bool:
        """Close the connection that is missed least; False where all are being answered.

        First those that never sent a request for what is served here, the oldest of them; then the
        one that last did so longest ago. So no number of idle connections closes a scheduler's.
        """
        idle = [each for each in self._clients if not each.is_busy]
        if not idle:
            return False
        least = min(idle, key=lambda each: (each.has_requested, each.since))
        del self._clients[least]
        least.end()
        return True

    def _attend(self, connection: Connection) -> None:
        try:
            connection.attend()
        finally:
            with self._lock:
                self._clients.pop(connection, None)
