# SPDX-License-Identifier: Apache-2.0
"""A client of what is only read, such as metrics: judged by rate and password, then answered."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from base.threads import NoThread
from web import messages
from web.byte_stream import ByteStream
from web.client_access import ClientAccess
from web.messages import NO_ROOM, HttpRequest, Response, ServerLimits
from web.refusals import ClientRefusals, RefusalReason, names_of
from web.served_client import ServedClient, no_room_answer

Served = Callable[[str, float], None]
"""Called for an answer that a client has read whole: its path, and seconds since the request."""

_REQUEST_TICKS: Final = 3
"""Ticks until a client makes room for others while its request is not complete. Bytes that the
kernel already has need two turns of the loop until they are read."""
_ANSWER_TICKS: Final = 5
"""Ticks until a client makes room while it waits for its answer, or does not read it."""
_HANDSHAKE_TICKS: Final = 12
"""Ticks until a client makes room before its first request under TLS: a client that is 50 ms away
is served too. With each tick more, 2,000 clients that never go on keep others waiting for 0.1 s
longer."""
_TOO_OFTEN: Final = messages.text_response(
    "More requests than the web config file allows; try again later.", HTTPStatus.TOO_MANY_REQUESTS
)
_WHO: Final = messages.text_response("Name and password are needed.", HTTPStatus.UNAUTHORIZED)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientService:
    """The limits and functions that the connections of one server share."""

    limits: ServerLimits
    access: Callable[[], ClientAccess]
    answer: Callable[[HttpRequest], Response]
    refusals: ClientRefusals
    served: Served


class ReadingClient(ServedClient):
    """A connection in the event loop; every request is judged by the rules of its moment."""

    def __init__(self, stream: ByteStream, service: ClientService) -> None:
        super().__init__(stream, service.access, service.limits, service.refusals)
        self._service = service

    @property
    def precedence(self) -> tuple[int, float]:
        """See :class:`ServedClient`."""
        return 2 if self._owes_answer else 1 if self.busy else 0, self.waiting_since

    def is_stalled(self) -> bool:
        """See :class:`ServedClient`."""
        self._ticks += 1
        if self._is_new and self._context is not None:
            return self._ticks >= _HANDSHAKE_TICKS
        return self._ticks >= (_ANSWER_TICKS if self._has_request else _REQUEST_TICKS)

    def make_room(self) -> None:
        """Lose the place; a client that waits for its answer is answered, without waiting."""
        self.apologize()
        super().make_room()

    def apologize(self) -> None:
        """Answer a client that waits for its answer, before it loses its place; never waits."""
        if self._owes_answer:
            self._refuse(RefusalReason.OVERLOAD)
            with contextlib.suppress(OSError):  # it has gone
                self._wire.send_at_once(no_room_answer(self._access()))

    def _admits(self, connection: ssl.SSLObject) -> bool:
        is_admitted = self._access().admits(connection)
        if not is_admitted:
            self._refuse(RefusalReason.NAME, names_of(connection.getpeercert()))
        return is_admitted

    def _may_ask(self) -> bool:
        """False once the TLS context is another: the client is to connect again under that."""
        return self._access().context is self._context

    async def _respond(self, request: HttpRequest) -> Response:
        """The answer to a request, or the refusal by rate, password or overload."""
        # the rate before the password: to check one takes far longer than to refuse
        access = self._access()
        if access.bucket is not None and not access.bucket.take(time.monotonic()):
            self._refuse(RefusalReason.RATE)
            return _TOO_OFTEN
        passwords, credentials = access.passwords, request.authorization
        try:
            if passwords is None:
                return self._service.answer(request)
            async with asyncio.timeout_at(self._until):
                if await passwords.admit(credentials, self._stream.client):
                    return self._service.answer(request)
        except NoThread as error:
            self._refusals.not_accepted(error)
            return NO_ROOM
        self._refuse(
            RefusalReason.CREDENTIALS, "wrong name or password" if credentials else "no password"
        )
        return _WHO

    def _answered(self, request: HttpRequest | None, response: Response, seconds: float) -> None:
        if request is not None and response.status is HTTPStatus.OK:
            self._service.served(request.path, seconds)
