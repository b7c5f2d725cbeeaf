# SPDX-License-Identifier: Apache-2.0
"""A connection to the extender's server: its requests are read and answered in its own thread.

A request that comes in one piece is read, judged and answered without a change of threads: on a
busy machine each one takes longer than the judgement. Source: docs/decisions/scheduling.md.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import sys
import time
from collections.abc import Callable, Mapping
from enum import IntEnum
from functools import lru_cache, partial
from http import HTTPStatus
from typing import Any, Final

from scheduler.extender.extender_limits import ExtenderLimits
from scheduler.extender.extender_metrics import Verb
from scheduler.extender.routes import SHORT_VERBS, ClientRefused, Content, Route, Routes
from web import messages
from web.messages import NO_ROOM, HttpRequest, Refusal, Response
from web.refusals import RefusalReason, host_of, names_of

_STALLED_TICKS: Final = 10
"""While others wait for a place: a client that is waited for in all of them, with its handshake or
request not whole, makes room. They take 50 ms, and longer on a busy machine."""
_CHUNK_BYTES: Final = 64 << 10
_read_request = lru_cache(maxsize=128)(partial(messages.read_request, bodies=True))
"""A scheduler's heads differ in the length alone, and there are no passwords in them."""


class Standing(IntEnum):
    """How much a client has proved. Clients that proved least make room first."""

    UNKNOWN = 0
    GUEST = 1
    """A request of the client was allowed and served."""
    SCHEDULER = 2
    """The client's certificate is admitted; where none is needed, it has asked for scores."""


class Connection:
    """Serves the requests of one client. Raises nothing: a client's mistake ends the connection."""

    def __init__(
        self,
        client: socket.socket,
        site: Routes,
        context: ssl.SSLContext | None,
        limits: ExtenderLimits,
        *,
        is_late: bool = False,
        promote: Callable[[Connection], bool] = lambda _: False,
    ) -> None:
        """``context`` None: plain HTTP. One that ``is_late`` got no place in time: it may make one
        request, for little, unless ``promote`` finds it a place.
        """
        self._socket = client
        self._client = ""
        self._site = site
        self._context = context
        self._limits = limits
        with contextlib.suppress(OSError):  # it may have gone already
            self._client = host_of(client.getpeername())
        self._certificate: Mapping[str, Any] | None = None
        self._is_admitted = site.admits(None)
        self._received = b""
        self._unread = 0
        """Bytes of a refused request's body that are still to come."""
        self.is_late = is_late
        self._promote = promote
        self._is_waiting = False
        """The thread waits for bytes of the client."""
        self._ticks = 0
        """Ticks since the client last sent something, while others waited for a place."""
        self._began: float | None = time.monotonic()
        """When the present handshake, head or body began; None between two requests."""
        self.is_ended = False
        """Whether the connection ends with the present request, if there is one."""
        self.standing = Standing.UNKNOWN
        self.since = time.monotonic()
        """Time of its last request that was allowed, else of its arrival."""

    def attend(self) -> None:
        """Serve the client until it leaves, is too slow, or somebody calls :meth:`end`."""
        try:
            with contextlib.suppress(OSError):
                self._secure()
                while self._serve() and not self.is_ended:
                    pass
                self._let_it_read()
        finally:
            self._socket.close()

    def end(self, *, at_once: bool = False) -> None:
        """End the connection from any thread: after a request that is here, or at once."""
        self.is_ended = True
        if at_once or self.awaits_client():
            # the thread may hold a request that it has just read: it has to be able to answer
            how = socket.SHUT_RDWR if at_once else socket.SHUT_RD
            with contextlib.suppress(OSError):
                # not the method of TLS sockets: that takes their state from under the reader
                socket.socket.shutdown(self._socket, how)

    @property
    def is_idle(self) -> bool:
        """Whether the connection is between two requests."""
        return self._began is None

    def is_stalled(self) -> bool:
        """Count a tick in which others wait: whether it is idle, or takes long to ask."""
        self._ticks += 1
        return self.is_idle or self._ticks >= _STALLED_TICKS

    def awaits_client(self) -> bool:
        """Whether the thread waits for the client, and no sent byte is unread.

        Also for the moment between the last byte's reading and the thread's turn after it.
        """
        return self._is_waiting and not _has_bytes(self._socket)

    def _secure(self) -> None:
        if self._context is None:
            return
        self._socket.settimeout(self._limits.header_seconds)
        secured = self._context.wrap_socket(
            self._socket, server_side=True, do_handshake_on_connect=False
        )
        self._socket = secured
        self._is_waiting = True
        try:
            secured.do_handshake()
        except ssl.SSLError as error:
            self._site.refusals.no_handshake(error, self._client)
            raise
        finally:
            self._is_waiting = False
        self._certificate = secured.getpeercert()
        self._is_admitted = self._site.admits(self._certificate)
        if self._certificate and self._is_admitted:
            self.standing = Standing.SCHEDULER
        self._began = time.monotonic()

    def _serve(self) -> bool:
        """Serve a request; False if no other may follow."""
        verb, request = Verb.OTHER, None
        try:
            head = self._head()
            if not head:
                return False
            request = _read_request(head)
            self._unread = request.length
            route = self._site.route(request, self._certificate, is_admitted=self._is_admitted)
            verb = route.verb
            self._rise(route)
            route.check(request)
            with self._site.room_for(request.length):
                body = self._body(request)
                began = time.monotonic()
                response = self._site.answer(route, body)
        except Refusal as refusal:
            began, response = time.monotonic(), refusal.response
            if isinstance(refusal, ClientRefused):
                names = names_of(self._certificate)
                self._site.refusals.refused(refusal.reason, self._client, names)
            if request is None:
                self._site.refusals.refused(RefusalReason.REQUEST, self._client, str(refusal))
                self._unread = sys.maxsize  # nobody knows what follows
        stays = self._send(request, response)
        self._began = None
        self._site.answered(verb, response, time.monotonic() - began)
        return stays

    def _rise(self, route: Route) -> None:
        """Have a request that is allowed count for its client. Raises Refusal for a late one."""
        self.since = self._began = time.monotonic()
        shown = Standing.SCHEDULER if route.verb is Verb.PRIORITIZE else Standing.GUEST
        self.standing = max(self.standing, shown)
        if self.is_late and route.verb not in SHORT_VERBS:
            if not self._promote(self):
                raise ClientRefused(RefusalReason.OVERLOAD, NO_ROOM)
            self.is_late = False

    def _send(self, request: HttpRequest | None, response: Response) -> bool:
        """Send the response; whether another request may follow."""
        self._skip_received()
        stays = request is not None and request.keep_alive and not self._unread
        stays = stays and not (self.is_late or self.is_ended)
        stays = stays and not self._site.is_outdated(self._context)
        headers = () if stays else (("Connection", "close"),)
        self._socket.settimeout(self._limits.answer_seconds)
        self._socket.sendall(b"".join(response.message(request, time.time(), headers)))
        return stays

    def _head(self) -> bytes:
        """Head of the next request, up to and with its empty line; empty if the client has ended.

        Raises Refusal for a head that is too long or malformed; a slow one ends the connection.
        """
        self._socket.settimeout(self._limits.idle_seconds)
        until = 0.0
        while (end := messages.end_of_head(self._received, self._limits.header_bytes)) is None:
            if self._received:
                self._began = self._began or time.monotonic()
                until = until or time.monotonic() + self._limits.header_seconds
                self._wait_until(until)
            chunk = self._next_bytes()
            if not chunk:
                return b""
            self._received += chunk
        return self._take(end)

    def _body(self, request: HttpRequest) -> Content:
        """The whole body of the request. Raises Refusal if it comes too slowly."""
        if len(self._received) < request.length:
            if request.waits:
                self._socket.sendall(messages.CONTINUE)
            body = self._receive(request.length)
        else:
            body = self._take(request.length)
        self._unread = 0
        return body

    def _receive(self, length: int) -> Content:
        """A body of ``length`` bytes, some of which may be received already.

        Raises Refusal if they come too late.
        """
        until = time.monotonic() + self._limits.body_seconds
        body = bytearray(length)
        received = len(self._received)
        body[:received] = self._take(received)
        rest = memoryview(body)[received:]
        try:
            while rest:
                self._wait_until(until)
                chunk = self._next_bytes(min(len(rest), _CHUNK_BYTES))
                if not chunk:
                    raise ConnectionAbortedError
                rest[: len(chunk)] = chunk
                rest = rest[len(chunk) :]
        except TimeoutError:
            raise Refusal(HTTPStatus.REQUEST_TIMEOUT, "The body took too long.") from None
        return body

    def _next_bytes(self, max_bytes: int = _CHUNK_BYTES) -> bytes:
        """Wait for bytes of the client; empty if it has ended its side."""
        self._ticks, self._is_waiting = 0, True
        try:
            return self._socket.recv(max_bytes)
        finally:
            self._is_waiting = False

    def _take(self, length: int) -> bytes:
        """Take the first ``length`` bytes off those received."""
        taken, self._received = self._received[:length], self._received[length:]
        return taken

    def _wait_until(self, until: float) -> None:
        """Let the next receive wait until then. Raises TimeoutError if that time is over."""
        left_seconds = until - time.monotonic()
        if left_seconds <= 0:
            raise TimeoutError
        self._socket.settimeout(left_seconds)

    def _skip_received(self) -> None:
        """Drop the part of a refused body that is received already."""
        skipped = min(self._unread, len(self._received))
        self._received = self._received[skipped:]
        self._unread -= skipped

    def _let_it_read(self) -> None:
        """Receive the rest of a refused body, so that the client can read the refusal: closing with
        unread bytes would reset the connection and lose it."""
        self._began = time.monotonic()
        until = self._began + self._limits.body_seconds
        while self._unread > 0:
            self._wait_until(until)
            chunk = self._next_bytes()
            if not chunk:
                return
            self._unread -= len(chunk)


def _has_bytes(client: socket.socket) -> bool:
    """Whether bytes, or the client's end, can be read from the socket; False if it is closed."""
    waiting = select.poll()
    with contextlib.suppress(OSError, ValueError):
        waiting.register(client, select.POLLIN)
    return bool(waiting.poll(0))
