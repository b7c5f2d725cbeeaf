# SPDX-License-Identifier: Apache-2.0
"""A client of the extender's server, in a thread of its own: what it may ask, and when.

A request that comes in one piece is read, judged and answered without a change of threads: on a
busy machine each one takes longer than the judgement. Source: docs/decisions/scheduling.md.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Mapping
from enum import IntEnum
from functools import lru_cache, partial
from typing import Any, Final

from scheduler.extender.extender_metrics import Verb
from scheduler.extender.routes import SHORT_VERBS, ClientRefused, Route, Routes
from web import messages
from web.byte_stream import ThreadStream
from web.client_access import ClientAccess
from web.messages import NO_ROOM, HttpRequest, Response, ServerLimits
from web.refusals import RefusalReason, names_of
from web.served_client import ServedClient

_STALLED_TICKS: Final = 10
"""While others wait for a place: a client that is waited for in all of them, with its handshake or
request not whole, makes room. They take 50 ms, and longer on a busy machine."""
_read_request = lru_cache(maxsize=128)(partial(messages.read_request, bodies=True))
"""A scheduler's heads differ in the length alone, and there are no passwords in them."""


class Standing(IntEnum):
    """How much a client has proved. Clients that proved least make room first."""

    UNKNOWN = 0
    GUEST = 1
    """A request of the client was allowed and served."""
    SCHEDULER = 2
    """The client's certificate is admitted; where none is needed, it has asked for scores."""


class SchedulerClient(ServedClient):
    """Serves the requests of one client."""

    takes_bodies = True

    def __init__(
        self,
        stream: ThreadStream,
        site: Routes,
        access: Callable[[], ClientAccess],
        limits: ServerLimits,
        *,
        is_late: bool = False,
        promote: Callable[[SchedulerClient], bool] = lambda _: False,
    ) -> None:
        """``is_late``: the client got no place in time. It may make one small request, unless
        ``promote`` finds it a place.
        """
        super().__init__(stream, access, limits, site.refusals)
        self.cut = stream.cut
        self.awaits_client = stream.awaits_client
        self._site = site
        self._certificate: Mapping[str, Any] | None = None
        self._is_admitted = site.admits(None)
        self._verb = Verb.OTHER
        self.is_late = is_late
        self._promote = promote
        self.standing = Standing.UNKNOWN

    @property
    def is_idle(self) -> bool:
        """Whether the connection is between two requests."""
        return not (self.busy or self._is_new)

    @property
    def precedence(self) -> tuple[int, float]:
        """See :class:`ServedClient`."""
        return self.standing, self.waiting_since

    def is_stalled(self) -> bool:
        """Count a tick; a scheduler's connection makes room for nobody in this way."""
        self._ticks += 1
        is_waited_for = self.is_idle or self._ticks >= _STALLED_TICKS
        return is_waited_for and self.standing < Standing.SCHEDULER and self.awaits_client()

    def _awaits_client(self) -> bool:
        return self.awaits_client()

    def _admits(self, connection: ssl.SSLObject) -> bool:
        """Everybody: who needs a certificate and has none is refused at its request, by path."""
        self._certificate = connection.getpeercert()
        self._is_admitted = self._site.admits(self._certificate)
        if self._certificate and self._is_admitted:
            self.standing = Standing.SCHEDULER
        return True

    def _read(self, head: bytes) -> HttpRequest:
        return _read_request(head)

    async def _receive(self, until: float) -> bytes:
        self._ticks = 0
        return await super()._receive(until)

    async def _respond(self, request: HttpRequest) -> Response:
        try:
            route = self._site.route(request, self._certificate, is_admitted=self._is_admitted)
            self._verb = route.verb
            self._rise(route)
            route.check(request)
            with self._site.room_for(request.length):
                body = await self._body(request)
                self._began = time.monotonic()
                return self._site.answer(route, body)
        except ClientRefused as refusal:
            self._refuse(refusal.reason, names_of(self._certificate))
            raise

    def _rise(self, route: Route) -> None:
        """Have a request that is allowed count for its client. Raises Refusal for a late one."""
        shown = Standing.SCHEDULER if route.verb is Verb.PRIORITIZE else Standing.GUEST
        self.standing = max(self.standing, shown)
        if self.is_late and route.verb not in SHORT_VERBS:
            if not self._promote(self):
                raise ClientRefused(RefusalReason.OVERLOAD, NO_ROOM)
            self.is_late = False

    def _may_stay(self) -> bool:
        """Whether another request may follow: not under a TLS context that was replaced."""
        is_outdated = self._access().context is not self._context
        return super()._may_stay() and not (self.is_late or is_outdated)

    def _answered(self, request: HttpRequest | None, response: Response, seconds: float) -> None:  # noqa: ARG002
        self._site.answered(self._verb, response, seconds)
        self._verb = Verb.OTHER
