# SPDX-License-Identifier: Apache-2.0
"""One client of the HTTP server: its requests one after the other, each with its deadlines."""

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
"""Takes the path of an answer that a client has taken whole, and the seconds since its request."""

_REQUEST_TICKS = 3
"""Of a client whose request is not complete, before it makes room for others: what the kernel
already has of it takes two turns of the loop until it is read."""
_ANSWER_TICKS = 5
"""Of a client that waits for its answer or does not read it."""
_HANDSHAKE_TICKS = 12
"""Of a client that shakes hands, to its first request's first byte: one that is 50 ms away is
served too. With each tick more, 2,000 that never go on keep others waiting for 0.1 s longer."""
CHUNK_BYTES = 16 << 10
"""What is copied for a client that does not read; the rest is shared by all clients."""
_TOO_OFTEN = messages.text(
    "More requests than the web config file allows; try again later.", HTTPStatus.TOO_MANY_REQUESTS
)
_WHO = messages.text("Name and password are needed.", HTTPStatus.UNAUTHORIZED)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientService:
    """What the connections of one server have in common."""

    limits: ServerLimits
    access: Callable[[], ClientAccess]
    answer: Callable[[HttpRequest], Response]
    refusals: ClientRefusals
    served: Served

    def no_room(self, client: str) -> None:
        """A client at this address asked, and got no place or lost it."""
        self.refusals.refused(RefusalReason.OVERLOAD, client)


def no_room_answer(access: ClientAccess) -> bytes:
    """The answer to a client that there is no room for; its connection ends."""
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
        """Of the next request; no longer than a head and what came with its end."""
        self.busy = False
        """Between a request's first byte and its answer's last."""
        self.ending = False
        """Serve no request after the present one."""
        self._has_request = False
        """A whole request is here, and its answer is being made or sent."""
        self._owes_answer = False
        """A whole request is here, and nothing of its answer was sent."""
        self._shakes_hands = context is not None
        """It has sent nothing of a request yet, for which TLS needs a handshake first."""
        self.waiting_since = time.monotonic()
        """When the client last did what is waited for: connected, sent a request, read some."""
        self._ticks = 0
        """Since then, while other connections waited for a place."""

    @property
    def precedence(self) -> int:
        """Who is asked for its place first: the lowest."""
        return 2 if self._owes_answer else 1 if self.busy else 0

    def is_stalled(self) -> bool:
        """Count a tick: whether it has been waited for long enough to lose its place."""
        self._ticks += 1
        if self._shakes_hands:
            return self._ticks >= _HANDSHAKE_TICKS
        return self._ticks >= (_ANSWER_TICKS if self._has_request else _REQUEST_TICKS)

    def apologize(self) -> None:
        """Answer, before it loses its place, a client that waits for us; never waits."""
        if self._owes_answer:
            self._service.no_room(self._wire.client)
            with contextlib.suppress(OSError):  # it has gone
                self._wire.send_at_once(no_room_answer(self._access()))

    def _progress(self) -> None:
        """The client did what it was waited for."""
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
        self.busy = self._has_request = False
        async with asyncio.timeout(patience_seconds):
            self._received = self._received or await self._wire.receive()
        # made under other rules: the client is to try again under these
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
            self._owes_answer = False
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
        """Its bytes up to and with the empty line. Raises Refusal for too many and for no head."""
        most = self._limits.header_bytes
        while (end := self._received.find(messages.END_OF_HEAD, 0, most)) < 0:
            if len(self._received) >= most:
                status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
                raise Refusal(status, f"The headers are longer than {most} bytes.")
            messages.refuse_early(self._received)
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
        """Send it piece by piece, so that a client that does not read holds one piece."""
        message = response.message(request, time.time(), self._access().headers)
        for chunk in chunks(message):
            await self._wire.send(chunk)
            self._progress()


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
