# SPDX-License-Identifier: Apache-2.0
"""Serves the actuator's socket: one line there, one line back, within bounds of size and time.

One thread, and no client that it waits for. A change runs in another thread and another process;
its client is answered when it has ended, whether or not the client is still there.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import selectors
import socket
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

from actuator.boots.reboot_sentinel import RebootSentinel
from actuator.service.socket_place import SocketPlace
from actuator.service.transactions import RunChange, Transactions
from api.actuator.actuator_messages import (
    MOST_REQUEST_BYTES,
    MOST_TEXT,
    ActuatorAnswer,
    ActuatorRefusal,
    ApplyRequest,
    OtherVersion,
    RefusalAnswer,
    StateRequest,
    UseAnswer,
    UseRequest,
    decode_request,
    encode_message,
)
from base.errors import BadInput, GpuscapeError
from base.local_socket import PeerProcess, peer_of
from base.log_once import LogOnce
from base.log_pace import LogPace

log = logging.getLogger(__name__)

REQUEST_SECONDS: Final = 5.0
"""Time for a whole request, from the connection on."""
MOST_CLIENTS: Final = 8
"""Clients with incomplete requests at most; for one more, the oldest is refused."""
_CHUNK_BYTES: Final = 1 << 16
_ACCEPTED_AT_ONCE: Final = 32
CHECK_SECONDS: Final = 5.0
"""Time between two checks that the socket's path still leads here."""


class _Client:
    """A connection whose request is not whole yet."""

    def __init__(self, connection: socket.socket, peer: PeerProcess, deadline: float) -> None:
        self.connection = connection
        self.peer = peer
        self.deadline = deadline
        self.received = bytearray()

    def fileno(self) -> int:
        return self.connection.fileno()

    def answer(self, answer: ActuatorAnswer) -> None:
        """Send an answer and hang up. A new socket's buffer holds it whole, so nothing blocks."""
        with self.connection, contextlib.suppress(OSError):  # the client may have gone
            self.connection.send(encode_message(answer) + b"\n", socket.MSG_NOSIGNAL)


class ActuatorServer:
    """Serves until it is stopped."""

    def __init__(
        self,
        place: SocketPlace,
        run: RunChange,
        journal: Path,
        peers: Collection[int],
        *,
        users: Callable[[int], UseAnswer],
        sentinel: RebootSentinel | None = None,
    ) -> None:
        """``peers``: user ids of permitted clients; ``users``: programs that have GPUs open, for a
        client with this pid; ``sentinel`` as of Transactions. ``place`` stays the caller's."""
        self._peers = frozenset(peers)
        self._place = place
        self._checked_at = time.monotonic()
        self._unreachable = LogOnce()
        self._woken, self._waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._transactions = Transactions(run, journal, self._wake, sentinel=sentinel)
        self._users = users
        self._clients: dict[_Client, None] = {}
        """Clients with incomplete requests, in the order of their connections."""
        self._stop_seconds: float | None = None
        self._pace = LogPace()
        self._ready = selectors.DefaultSelector()
        self._ready.register(self._woken, selectors.EVENT_READ)
        self._ready.register(place.listener, selectors.EVENT_READ)

    def close(self) -> None:
        """Hang up on all clients."""
        for client in list(self._clients):
            self._drop(client)
            client.connection.close()
        self._ready.close()
        os.close(self._woken)
        os.close(self._waker)

    def stop(self, wait_seconds: float) -> None:
        """End as soon as the running change has ended, and after ``wait_seconds`` in any case.

        From any thread.
        """
        self._stop_seconds = wait_seconds
        self._wake()

    def serve(self) -> bool:
        """Go on with the journal's open change, and serve; whether no change was left running."""
        self._transactions.resume()
        stop_deadline = math.inf
        while True:
            if stop_deadline == math.inf and self._stop_seconds is not None:
                self._transactions.stop()
                stop_deadline = time.monotonic() + self._stop_seconds
            running = self._transactions.running
            if stop_deadline < math.inf and (running is None or time.monotonic() >= stop_deadline):
                return running is None
            self._turn(stop_deadline)

    def _turn(self, stop_deadline: float) -> None:
        now = time.monotonic()
        first = next((client.deadline for client in self._clients), math.inf)
        until = min(stop_deadline, first, self._transactions.due, self._checked_at + CHECK_SECONDS)
        for key, _ in self._ready.select(max(until - now, 0)):
            match key.fileobj:
                case _Client() as client:
                    self._read(client)
                case self._place.listener:
                    self._accept(self._place.listener)
                case _:
                    with contextlib.suppress(BlockingIOError):
                        os.read(self._woken, _CHUNK_BYTES)
        self._transactions.finish()
        self._transactions.tick()
        self._expire(time.monotonic())
        self._stay_reachable(time.monotonic())

    def _stay_reachable(self, now: float) -> None:
        """Bind the socket anew if its path no longer leads here; a running change goes on."""
        if now < self._checked_at + CHECK_SECONDS:
            return
        self._checked_at = now
        why = self._place.why_unreachable()
        if why is None:
            return
        try:
            former = self._place.bind_again()
        except (GpuscapeError, OSError) as error:
            if self._unreachable.is_new(str(error)):
                log.warning("actuator socket not bound", extra={"why": str(error)})
            return
        self._unreachable.clear()
        log.warning("actuator socket bound anew", extra={"why": why})
        with former:
            self._ready.unregister(former)
            self._accept(former)  # clients that came before it was removed
        self._ready.register(self._place.listener, selectors.EVENT_READ)

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                connection, _address = listener.accept()
            except BlockingIOError:
                return
            except OSError as error:  # the client has gone, or there is no descriptor
                log.warning("connection not accepted", extra={"why": error.strerror})
                return
            connection.setblocking(False)
            client = _Client(connection, peer_of(connection), time.monotonic() + REQUEST_SECONDS)
            if client.peer.uid not in self._peers:
                self._refuse(client, ActuatorRefusal.PEER, f"user {client.peer.uid} may not ask")
                continue
            if len(self._clients) >= MOST_CLIENTS:
                oldest = next(iter(self._clients))
                self._refuse(oldest, ActuatorRefusal.CROWDED, "others came in between")
            self._clients[client] = None
            self._ready.register(client, selectors.EVENT_READ)
            self._read(client)

    def _read(self, client: _Client) -> None:
        if client not in self._clients:  # refused in this very turn
            return
        try:
            data = client.connection.recv(_CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        client.received += data
        has_ended = b"\n" in data or not data
        if has_ended or len(client.received) >= MOST_REQUEST_BYTES:
            self._take(client, *bytes(client.received).partition(b"\n"))

    def _take(self, client: _Client, line: bytes, end: bytes, rest: bytes) -> None:
        """Handle what a client has sent: a line with its end, and nothing behind it."""
        if len(line) >= MOST_REQUEST_BYTES:
            why = f"longer than {MOST_REQUEST_BYTES} bytes"
            return self._refuse(client, ActuatorRefusal.TOO_LARGE, why)
        if rest or not end:
            why = "more than one line" if rest else "the connection ended before the line did"
            return self._refuse(client, ActuatorRefusal.MALFORMED, why)
        try:
            request = decode_request(line)
        except OtherVersion as error:
            return self._refuse(client, ActuatorRefusal.VERSION, str(error))
        except BadInput as error:
            return self._refuse(client, ActuatorRefusal.MALFORMED, str(error))
        self._drop(client)
        if isinstance(request, StateRequest):
            return client.answer(self._transactions.state(request.change))
        if isinstance(request, UseRequest):
            return client.answer(self._users(client.peer.pid))
        verb = "apply" if isinstance(request, ApplyRequest) else "restore"
        facts = {"verb": verb, "change": request.change, "pid": client.peer.pid}
        log.info("MIG request taken", extra=facts)
        return self._transactions.ask(request, client.answer)

    def _expire(self, now: float) -> None:
        for client in [client for client in self._clients if client.deadline <= now]:
            self._refuse(client, ActuatorRefusal.SLOW, f"no line within {REQUEST_SECONDS:g} s")

    def _refuse(self, client: _Client, refusal: ActuatorRefusal, reason: str) -> None:
        self._drop(client)
        peer = client.peer
        more = self._pace.take((refusal, peer.uid), time.monotonic())
        if more is not None:
            facts = {"uid": peer.uid, "pid": peer.pid, "why": reason[:MOST_TEXT], "more": more}
            log.warning("MIG request refused", extra=facts)
        client.answer(RefusalAnswer(refusal=refusal, reason=reason[:MOST_TEXT]))

    def _drop(self, client: _Client) -> None:
        if client in self._clients:
            del self._clients[client]
            self._ready.unregister(client)

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # full: it is awake; closed: it has ended
            os.write(self._waker, b"\0")
