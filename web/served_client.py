# SPDX-License-Identifier: Apache-2.0
"""A client of the HTTP server: its requests one after the other, each with its deadlines."""

from __future__ import annotations

import asyncio
import ssl
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from http import HTTPStatus
from typing import Final

from web import messages
from web.byte_stream import ByteStream, TlsByteStream
from web.client_access import ClientAccess
from web.messages import NO_ROOM, HttpRequest, Refusal, Response, ServerLimits
from web.refusals import ClientRefusals, RefusalReason

CHUNK_BYTES: Final = 16 << 10
"""Bytes that are copied for a client that does not read; all clients share the rest."""
_CLOSE: Final = (("Connection", "close"),)


def no_room_answer(access: ClientAccess) -> bytes:
    """The bytes of the answer to a client without a place; its connection ends."""
    return b"".join(NO_ROOM.message(None, time.time(), access.headers))


class ServedClient(ABC):
    """A connection with a place: serves its requests, in an event loop or in a thread.

    Raises nothing: a client's mistake ends the connection.
    """

    takes_bodies = False
    """Whether requests may have bodies; :meth:`_body` receives them."""

    def __init__(
        self,
        stream: ByteStream,
        access: Callable[[], ClientAccess],
        limits: ServerLimits,
        refusals: ClientRefusals,
    ) -> None:
        """``access`` must not wait; the connection keeps the TLS context of this moment."""
        self._stream = stream
        self._access = access
        self._context = access().context
        self._wire = stream if self._context is None else TlsByteStream(stream, self._context)
        self._limits = limits
        self._refusals = refusals
        self._received = b""
        """Bytes of the next request: its head, and what came with its end."""
        self._unread = 0
        """Bytes of a refused request's body that are still to come."""
        self.is_open = False
        """Whether the connection is being served: before that it is not cut off, but ends then."""
        self.busy = False
        """Between a request's first byte and its answer's last."""
        self.ending = False
        """Serve no request after the present one."""
        self.cut: Callable[[], object] = stream.abort
        """Ends the connection in the midst of all; for the server's thread, which sets it."""
        self._is_new = True
        """No byte of a request has come."""
        self._has_request = False
        """The request has come whole, and its answer is being made or sent."""
        self._owes_answer = False
        """The request has come whole, and nothing of its answer was sent."""
        self._began = self.waiting_since = time.monotonic()
        """Time of the client's last progress: it connected, sent a request or read some bytes."""
        self._until = self._began
        """The end of the time for the present answer."""
        self._ticks = 0
        """Ticks since its last progress, while other connections waited for a place."""

    # for the server, while others wait for a place

    @property
    @abstractmethod
    def precedence(self) -> tuple[int, float]:
        """The order in which stalled clients lose their places: the lowest first."""

    @abstractmethod
    def is_stalled(self) -> bool:
        """Count a tick; whether the client has had its ticks and may lose its place."""

    def make_room(self) -> None:
        """Lose the place."""
        self.end(at_once=True)

    def end(self, *, at_once: bool) -> None:
        """End the connection: at once, or after a request that is here."""
        self.ending = True
        if self.is_open and (at_once or self._awaits_client()):
            self.cut()

    def _awaits_client(self) -> bool:
        return not self.busy

    # for those who say what is served

    @abstractmethod
    def _admits(self, connection: ssl.SSLObject) -> bool:
        """Whether a client that has shaken hands may go on; one that may not is counted here."""

    @abstractmethod
    async def _respond(self, request: HttpRequest) -> Response:
        """The response to a request. Raises Refusal, which is the response then."""

    @abstractmethod
    def _answered(self, request: HttpRequest | None, response: Response, seconds: float) -> None:
        """The client has the whole answer; None: to something that was no request."""

    def _read(self, head: bytes) -> HttpRequest:
        """The request of a head. Raises Refusal."""
        return messages.read_request(head)

    def _may_ask(self) -> bool:
        """Whether the request that begins is read."""
        return True

    def _may_stay(self) -> bool:
        """Whether another request may follow the present one."""
        return not self.ending

    def _refuse(self, reason: RefusalReason, detail: str = "") -> None:
        self._refusals.refused(reason, self._stream.client, detail)

    async def _body(self, request: HttpRequest) -> bytes | bytearray:
        """The whole body of the request. Raises Refusal if it comes too slowly."""
        if len(self._received) >= request.length:
            body: bytes | bytearray = self._take(request.length)
        else:
            until = time.monotonic() + self._limits.body_seconds
            if request.waits:
                await self._wire.send(messages.CONTINUE, until)
            try:
                body = await self._receive_body(request.length, until)
            except TimeoutError:
                raise Refusal(HTTPStatus.REQUEST_TIMEOUT, "The body took too long.") from None
        self._unread = 0
        return body

    # a connection's life

    async def attend(self) -> None:
        """Serve requests until either side ends it or a limit is reached."""
        patience_seconds = self._limits.header_seconds
        try:
            goes_on = await self._open()
            while goes_on and not self.ending:
                goes_on = await self._exchange(patience_seconds)
                patience_seconds = self._limits.idle_seconds
        except (TimeoutError, OSError):
            pass  # gone, or too slow for an answer to be of use
        except asyncio.CancelledError:
            pass  # by the server, for a new client or at its end; streams would log it as an error
        finally:
            self._wire.abort()

    async def _open(self) -> bool:
        """Have the wire ready for requests; False for a client that is not admitted."""
        try:
            await self._stream.open()
        except OSError as error:
            self._refusals.not_accepted(error)
            return False
        self.is_open = True
        if not isinstance(self._wire, TlsByteStream):
            return True
        try:
            until = time.monotonic() + self._limits.header_seconds
            connection = await self._wire.shake_hands(until)
        except ssl.SSLError as error:
            self._refusals.no_handshake(error, self._stream.client)
            return False
        return self._admits(connection)

    async def _exchange(self, patience_seconds: float) -> bool:
        """Serve one request with its answer; False when the connection is to end."""
        self._received = self._received or await self._receive(time.monotonic() + patience_seconds)
        if not self._received or not self._may_ask():
            return False
        self.busy, self._ticks, self._is_new = True, 0, False
        self._until = time.monotonic() + self._limits.request_seconds
        request = None
        try:
            request = await self._request()
            self._progress()
            self._began, self._has_request, self._owes_answer = time.monotonic(), True, True
            response = await self._respond(request)
        except Refusal as refusal:
            response = refusal.response
            if request is None:
                self._refuse(RefusalReason.REQUEST, str(refusal))
                # nobody knows what follows
                self._began, self._unread = time.monotonic(), sys.maxsize * self.takes_bodies
        self._owes_answer = False  # an apology now would come in the midst of the answer
        self._skip_received()
        stays = request is not None and request.keep_alive and not self._unread
        stays = stays and self._may_stay()
        await self._send(response, request, stays=stays)
        self._answered(request, response, time.monotonic() - self._began)
        if not stays:
            await self._let_it_read()
            await self._wire.end(self._until)
        self.busy = self._has_request = False
        return stays

    async def _request(self) -> HttpRequest:
        """The request whose first bytes are here. Raises Refusal."""
        try:
            until = time.monotonic() + self._limits.header_seconds
            head = await self._head(min(until, self._until))
        except TimeoutError:
            raise Refusal(HTTPStatus.REQUEST_TIMEOUT, "The headers took too long.") from None
        request = self._read(head)
        self._unread = request.length
        return request

    async def _head(self, until: float) -> bytes:
        """The head of a request, with the empty line. Raises Refusal for a bad or too long head."""
        max_bytes = self._limits.header_bytes
        while (end := self._received.find(messages.END_OF_HEAD, 0, max_bytes)) < 0:
            if len(self._received) >= max_bytes:
                status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
                raise Refusal(status, f"The headers are longer than {max_bytes} bytes.")
            messages.refuse_early(self._received)
            if not (more := await self._receive(until)):
                raise ConnectionResetError("it ended within a head")
            self._received += more
        return self._take(end + len(messages.END_OF_HEAD))

    async def _receive_body(self, length: int, until: float) -> bytearray:
        body = bytearray(length)
        filled = len(self._received)
        body[:filled] = self._take(filled)
        rest = memoryview(body)[filled:]
        while rest:
            if not (chunk := await self._receive(until)):
                raise ConnectionAbortedError
            taken, self._received = chunk[: len(rest)], chunk[len(rest) :]
            rest[: len(taken)] = taken
            rest = rest[len(taken) :]
        return body

    async def _receive(self, until: float) -> bytes:
        """Wait for bytes of the client; empty if it has ended its side."""
        return await self._wire.receive(until)

    def _take(self, length: int) -> bytes:
        """Take the first ``length`` bytes off those received."""
        taken, self._received = self._received[:length], self._received[length:]
        return taken

    def _progress(self) -> None:
        """Note that the client has made progress."""
        self.waiting_since, self._ticks = time.monotonic(), 0

    async def _send(self, response: Response, request: HttpRequest | None, *, stays: bool) -> None:
        """Send an answer in chunks, so that a client that does not read holds only one of them."""
        if self._limits.answer_seconds is not None:
            self._until = time.monotonic() + self._limits.answer_seconds
        headers = self._access().headers if stays else (*self._access().headers, *_CLOSE)
        for chunk in chunks(response.message(request, time.time(), headers)):
            await self._wire.send(chunk, self._until)
            self._progress()

    def _skip_received(self) -> None:
        """Drop the part of a refused body that is received already."""
        self._unread -= len(self._take(min(self._unread, len(self._received))))

    async def _let_it_read(self) -> None:
        """Receive the rest of a refused body, so that the client can read the refusal: closing with
        unread bytes would reset the connection and lose it."""
        until = time.monotonic() + self._limits.body_seconds
        while self._unread > 0:
            if not (more := await self._receive(until)):
                return
            self._unread -= len(more)


def chunks(pieces: Sequence[bytes]) -> Iterator[bytes | memoryview]:
    """The bytes of all pieces in chunks, small pieces together.

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
