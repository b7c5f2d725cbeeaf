# SPDX-License-Identifier: Apache-2.0
"""A small HTTP server whose limits hold against slow, greedy and broken clients.

One thread for all connections: each has deadlines for whole heads and whole answers, where a
socket's timeout would start again with every byte. It shares nothing with the program but the
routes, so it answers whatever the rest is waiting for. Connections are few, and a new one takes
the place of the one that has kept us waiting longest: who asks at once and reads at once is
served, however many others do neither.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import threading
import time
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import cast

from web import messages
from web.address import Address, listening
from web.byte_stream import AT_ONCE_BYTES, ByteStream, TlsByteStream
from web.client_access import OPEN, ClientAccess
from web.messages import HttpRequest, Refusal, Response, ServerLimits
from web.refusals import ClientRefusals, RefusalReason, names_of

log = logging.getLogger(__name__)

Route = Callable[[], Response]
"""Makes the answer for one path. Runs between connections: it must never wait."""

Served = Callable[[str, float], None]
"""Takes the path of an answer that a client has taken whole, and the seconds since its request."""

_MARGIN_SECONDS = 1.0
"""For a stopping server to close its sockets after its time is over."""

_WAITING_IN_KERNEL = 4096
"""Connections that are made and not yet accepted; the kernel may have a lower limit. For one
that finds no room a client tries again after a second."""
_ACCEPTED_AT_ONCE = 8
"""So that no burst takes all file descriptors before there were turns to close others."""
CHUNK_BYTES = 16 << 10
"""What is copied for a client that does not read; the rest is shared by all clients."""
_SEND_BUFFER_BYTES = 64 << 10
"""The kernel's, for each connection, which it doubles: by itself it would take up to 4 MiB."""

_NO_SUCH_PATH = messages.text("No such path; / lists those there are.", HTTPStatus.NOT_FOUND)
_FAILED = messages.text(
    "The answer could not be made; the log says why.", HTTPStatus.INTERNAL_SERVER_ERROR
)
_TOO_OFTEN = messages.text(
    "More requests than the web config file allows; try again later.", HTTPStatus.TOO_MANY_REQUESTS
)
_WHO = messages.text("Name and password are needed.", HTTPStatus.UNAUTHORIZED)


class HttpServer:
    """Serves ``routes``, and at ``/`` a page that links to them, in a thread of its own."""

    def __init__(
        self,
        address: Address,
        routes: Mapping[str, Route],
        limits: ServerLimits = ServerLimits(),  # noqa: B008  # frozen
        title: str = "gpuscape",
        access: Callable[[], ClientAccess] = lambda: OPEN,
        *,
        refusals: ClientRefusals | None = None,
        served: Served = lambda _path, _seconds: None,
    ) -> None:
        """``access`` is called at each connection and request; like a route it must not wait.

        Nor must ``served``. Without ``refusals`` they are logged and not counted.
        """
        page = messages.link_page(title, routes)
        self._routes: Mapping[str, Route] = {"/": lambda: page, **routes}
        self._service = _Service(
            limits=limits,
            access=access,
            answer=self._answer,
            refusals=refusals or ClientRefusals(lambda _reason: None),
            served=served,
        )
        self._address = address
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._stopping = asyncio.Event()
        self._grace_seconds = 0.0
        self._clients: dict[_Client, asyncio.Task[None]] = {}

    @property
    def address(self) -> Address:
        """Address on which the server listens, after the start with the real port."""
        return self._address

    def start(self) -> None:
        """Listen and serve. Raises Permanent where it cannot listen."""
        listener = _listener(self._address)
        port = listener.getsockname()[1]
        self._address = Address(host=self._address.host, port=port)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._run, args=(self._loop, listener), name=f"http-{port}", daemon=True
        )
        self._thread.start()

    def stop(self, within_seconds: float) -> None:
        """End after the answers under way, and those too when the time is over.

        A route that waits, which none may, does not keep the program from ending.
        """
        if self._loop is None or self._thread is None:
            return
        self._grace_seconds = within_seconds
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(within_seconds + _MARGIN_SECONDS)
        self._thread = self._loop = None

    def _run(self, loop: asyncio.AbstractEventLoop, listener: socket.socket) -> None:
        try:
            loop.run_until_complete(self._serve(listener))
        finally:
            loop.close()

    async def _serve(self, listener: socket.socket) -> None:
        server = await asyncio.start_server(
            self._connected,
            sock=listener,
            limit=AT_ONCE_BYTES,
            backlog=_ACCEPTED_AT_ONCE,
        )
        listener.listen(_WAITING_IN_KERNEL)  # asyncio has one number for both
        await self._stopping.wait()
        # Server.close() leaks a socket accepted in the same turn (CPython 3.11), so accept no more
        # and give the last one its turn before.
        asyncio.get_running_loop().remove_reader(listener)
        await asyncio.sleep(0)
        server.close()
        await self._see_off()

    async def _see_off(self) -> None:
        """End all connections: the idle ones now, the others when they are done or time is over.

        All tasks are waited for, not only the clients': a connection may be between its
        acceptance and its first turn.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._grace_seconds
        while tasks := asyncio.all_tasks() - {asyncio.current_task()}:
            left_seconds = deadline - loop.time()
            for client, task in self._clients.items():
                client.ending = True
                if left_seconds <= 0 or not client.busy:
                    task.cancel()
            await asyncio.wait(tasks, timeout=left_seconds if left_seconds > 0 else None)
        await asyncio.sleep(0)  # transports close their sockets one turn later

    async def _connected(self, reader: StreamReader, writer: StreamWriter) -> None:
        if self._stopping.is_set():
            writer.transport.abort()
            return
        if len(self._clients) >= self._service.limits.connections:
            slowest = min(self._clients, key=lambda client: client.waiting_since)
            self._clients.pop(slowest).cancel()
        context = self._service.access().context
        wire = (
            ByteStream(reader, writer)
            if context is None
            else TlsByteStream(reader, writer, context)
        )
        client = _Client(wire, self._service, context)
        self._clients[client] = cast("asyncio.Task[None]", asyncio.current_task())
        try:
            await client.attend()
        finally:
            self._clients.pop(client, None)

    def _answer(self, request: HttpRequest) -> Response:
        route = self._routes.get(request.path)
        if route is None:
            return _NO_SUCH_PATH
        try:
            return route()
        except Exception:
            log.exception("request failed", extra={"path": request.path})
            return _FAILED


@dataclass(frozen=True, slots=True, kw_only=True)
class _Service:
    """What the connections of one server have in common."""

    limits: ServerLimits
    access: Callable[[], ClientAccess]
    answer: Callable[[HttpRequest], Response]
    refusals: ClientRefusals
    served: Served


class _Client:
    """One connection."""

    def __init__(self, wire: ByteStream, service: _Service, context: ssl.SSLContext | None) -> None:
        """``context`` is that of the wire."""
        self._wire = wire
        self._service = service
        self._limits = service.limits
        self._access = service.access
        self._context = context
        self._received = b""
        """Of the next request; no longer than a head and what came with its end."""
        self.busy = False
        """Between a request's first byte and its answer's last."""
        self.ending = False
        """Serve no request after the present one."""
        self.waiting_since = time.monotonic()
        """When the client last did what is waited for: connected, sent a request, read some."""

    async def attend(self) -> None:
        """Serve requests until either side ends it or a limit is reached."""
        patience_seconds = self._limits.header_seconds
        try:
            async with asyncio.timeout(self._limits.header_seconds):
                let_in = await self._open()
            while let_in and await self._exchange(patience_seconds) and not self.ending:
                patience_seconds = self._limits.idle_seconds
        except (TimeoutError, OSError):
            pass  # gone, or too slow for an answer to be of use
        except asyncio.CancelledError:
            pass  # by the server, for a new client or at its end; streams would log it as an error
        finally:
            self._wire.abort()

    async def _open(self) -> bool:
        """Have the wire ready for requests; False for a client that may make none."""
        try:
            connection = await self._wire.open()
        except ssl.SSLError as error:
            self._service.refusals.no_handshake(error, self._wire.client)
            return False
        if connection is None or self._access().admits(connection):
            return True
        self._refuse(RefusalReason.NAME, names_of(connection.getpeercert()))
        return False

    def _refuse(self, reason: RefusalReason, detail: str = "") -> None:
        self._service.refusals.refused(reason, self._wire.client, detail)

    async def _exchange(self, patience_seconds: float) -> bool:
        """One request and its answer; False when the connection is to end."""
        self.busy = False
        async with asyncio.timeout(patience_seconds):
            self._received = self._received or await self._wire.receive()
        # made under other rules: the client is to try again under these
        if not self._received or self._access().context is not self._context:
            return False
        self.busy = True
        async with asyncio.timeout(self._limits.request_seconds):
            try:
                request = await self._request()
            except Refusal as refusal:
                self._refuse(RefusalReason.REQUEST, str(refusal))
                await self._send(refusal.response, None)
                await self._wire.end()
                return False
            began = self.waiting_since = time.monotonic()
            response = await self._judged(request)
            await self._send(response, request)
            if response.status is HTTPStatus.OK:
                self._service.served(request.path, time.monotonic() - began)
            if not request.keep_alive:
                await self._wire.end()
            return request.keep_alive

    async def _request(self) -> HttpRequest:
        """The request whose first bytes are here. Raises Refusal."""
        try:
            async with asyncio.timeout(self._limits.header_seconds):
                head = await self._head()
        except TimeoutError:
            raise Refusal(HTTPStatus.REQUEST_TIMEOUT, "The headers took too long.") from None
        return messages.read_request(head)

    async def _head(self) -> bytes:
        """Its bytes up to and with the empty line. Raises Refusal when they are too many."""
        most = self._limits.header_bytes
        while (end := self._received.find(messages.END_OF_HEAD, 0, most)) < 0:
            if len(self._received) >= most:
                status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
                raise Refusal(status, f"The headers are longer than {most} bytes.")
            if not (more := await self._wire.receive()):
                raise ConnectionResetError("it ended within a head")
            self._received += more
        end += len(messages.END_OF_HEAD)
        head, self._received = self._received[:end], self._received[end:]
        return head

    async def _judged(self, request: HttpRequest) -> Response:
        """The answer, for those who may have it."""
        access = self._access()
        if access.bucket is not None and not access.bucket.take(time.monotonic()):
            self._refuse(RefusalReason.RATE)
            return _TOO_OFTEN
        if access.passwords is not None and not await access.passwords.admit(request.authorization):
            detail = "wrong name or password" if request.authorization else "no password"
            self._refuse(RefusalReason.CREDENTIALS, detail)
            return _WHO
        return self._service.answer(request)

    async def _send(self, response: Response, request: HttpRequest | None) -> None:
        """Send it piece by piece, so that a client that does not read holds one piece."""
        message = response.message(request, time.time(), self._access().headers)
        for chunk in chunks(message):
            await self._wire.send(chunk)
            self.waiting_since = time.monotonic()


def chunks(pieces: Sequence[bytes]) -> Iterator[bytes | memoryview]:
    """The pieces one after the other, small ones together.

    A head sent alone would wait for the client's delayed acknowledgement.
    """
    first = b""
    for piece in pieces:
        if len(first) + len(piece) <= CHUNK_BYTES:
            first += piece
            continue
        rest = memoryview(piece)
        cut = CHUNK_BYTES - len(first)
        yield first + rest[:cut]
        for begin in range(cut, len(rest), CHUNK_BYTES):
            yield rest[begin : begin + CHUNK_BYTES]
        first = b""
    if first:
        yield first


def _listener(address: Address) -> socket.socket:
    """A socket that listens. Raises Permanent with the fix."""
    listener = listening(address)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
    return listener
