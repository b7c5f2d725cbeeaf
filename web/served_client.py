# SPDX-License-Identifier: Apache-2.0
"""A client of the HTTP server: its requests one after the other, each with its deadlines."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from http import HTTPStatus

from base.threads import NoThread
from web import messages
from web.byte_stream import ByteStream
from web.client_access import ClientAccess
from web.messages import NO_ROOM, HttpRequest, Refusal, Response, ServerLimits
from web.refusals import ClientRefusals, RefusalReason, names_of

Served = Callable[[str, float], None]
"""Called for an answer that a client has read whole: its path, and seconds since the request."""

_REQUEST_TICKS = 3
"""Ticks until a client makes room for others while its request is not complete. Bytes that the
kernel already has need two turns of the loop until they are read."""
_ANSWER_TICKS = 5
"""Ticks until a client makes room while it waits for its answer, or does not read it."""
_HANDSHAKE_TICKS = 12
"""Ticks until a client makes room before its first request under TLS: a client that is 50 ms away
is served too. With each tick more, 2,000 clients that never go on keep others waiting for 0.1 s
longer."""
CHUNK_BYTES = 16 << 10
"""Bytes that are copied for a client that does not read; all clients share the rest."""
_TOO_OFTEN = messages.text_response(
    "More requests than the web config file allows; try again later.", HTTPStatus.TOO_MANY_REQUESTS
)
_WHO = messages.text_response("Name and password are needed.", HTTPStatus.UNAUTHORIZED)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientService:
    """The limits and functions that the connections of one server share."""

    limits: ServerLimits
    access: Callable[[], ClientAccess]
    answer: Callable[[HttpRequest], Response]
    refusals: ClientRefusals
    served: Served


def no_room_answer(access: ClientAccess) -> bytes:
    """The bytes of the answer to a client without a place; its connection ends."""
    return b"".join(NO_ROOM.message(None, time.time(), access.headers))


class ServedClient:
    """A connection with a place: serves its requests."""

    def __init__(
        self, wire: ByteStream, service: ClientService, context: ssl.SSLContext | None
    ) -> None:
        """``context`` is that of the wire."""
        self._wire = wire
        self._service = service
        self._limits = service.limits
        self._access = service.access
        self._context = context
        self._received = b""
        """Bytes of the next request: at most a head, and the bytes that came with its end."""
        self.busy = False
        """Between a request's first byte and its answer's last."""
        self.ending = False
        """Serve no request after the present one."""
        self._has_request = False
        """The request has come whole, and its answer is being made or sent."""
        self._owes_answer = False
        """The request has come whole, and nothing of its answer was sent."""
        self._shakes_hands = context is not None
        """TLS may still be in its handshake: no byte of a request has come."""
        self.waiting_since = time.monotonic()
        """Time of the client's last progress: it connected, sent a request or read some bytes."""
        self._ticks = 0
        """Ticks since its last progress, while other connections waited for a place."""

    @property
    def precedence(self) -> int:
        """The order in which stalled clients lose their places: the lowest first."""
        return 2 if self._owes_answer else 1 if self.busy else 0

    def is_stalled(self) -> bool:
        """Count a tick; whether the client has had its ticks and may lose its place."""
        self._ticks += 1
        if self._shakes_hands:
            return self._ticks >= _HANDSHAKE_TICKS
        return self._ticks >= (_ANSWER_TICKS if self._has_request else _REQUEST_TICKS)

    def apologize(self) -> None:
        """Answer a client that waits for its answer, before it loses its place; never waits."""
        if self._owes_answer:
            self._refuse(RefusalReason.OVERLOAD)
            with contextlib.suppress(OSError):  # it has gone
                self._wire.send_at_once(no_room_answer(self._access()))

    def _progress(self) -> None:
        """Note that the client has made progress."""
        self.waiting_since, self._ticks = time.monotonic(), 0

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
        """Have the wire ready for requests; False for a client that is not admitted."""
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
        """Serve one request with its answer; False when the connection is to end."""
        self.busy = self._has_request = False
        async with asyncio.timeout(patience_seconds):
            self._received = self._received or await self._wire.receive()
        # the TLS context has been replaced: the client is to connect again under the new one
        if not self._received or self._access().context is not self._context:
            return False
        self.busy, self._ticks, self._shakes_hands = True, 0, False
        async with asyncio.timeout(self._limits.request_seconds):
            try:
                request = await self._request()
            except Refusal as refusal:
                self._refuse(RefusalReason.REQUEST, str(refusal))
                await self._send(refusal.response, None)
                await self._wire.end()
                return False
            self._progress()
            began, self._has_request, self._owes_answer = time.monotonic(), True, True
            response = await self._judged(request)
            self._owes_answer = False  # an apology now would come in the midst of the answer
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
        """The head of a request, with the empty line. Raises Refusal for a bad or too long head."""
        while (end := messages.end_of_head(self._received, self._limits.header_bytes)) is None:
            if not (more := await self._wire.receive()):
                raise ConnectionResetError("it ended within a head")
            self._received += more
        head, self._received = self._received[:end], self._received[end:]
        return head

    async def _judged(self, request: HttpRequest) -> Response:
        """The answer to a request, or the refusal by rate, password or overload."""
        # the rate before the password: to check one takes far longer than to refuse
        access = self._access()
        if access.bucket is not None and not access.bucket.take(time.monotonic()):
            self._refuse(RefusalReason.RATE)
            return _TOO_OFTEN
        try:
            passwords, sent = access.passwords, request.authorization
            if passwords is None or await passwords.admit(sent, self._wire.client):
                return self._service.answer(request)
        except NoThread as error:
            self._service.refusals.not_accepted(error)
            return NO_ROOM
        detail = "wrong name or password" if request.authorization else "no password"
        self._refuse(RefusalReason.CREDENTIALS, detail)
        return _WHO

    async def _send(self, response: Response, request: HttpRequest | None) -> None:
        """Send an answer in chunks, so that a client that does not read holds only one of them."""
        message = response.message(request, time.time(), self._access().headers)
        for chunk in chunks(message):
            await self._wire.send(chunk)
            self._progress()


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
