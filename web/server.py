# SPDX-License-Identifier: Apache-2.0
"""A small HTTP server of what is rendered before anybody asks: metrics, probes, a page of links.

One thread for all connections: each has deadlines for whole heads and whole answers, where a
socket's timeout would start again with every byte. It shares nothing with the program but the
routes, so it answers whatever the rest is waiting for.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Final

from web import messages
from web.address import Address
from web.byte_stream import LoopStream
from web.client_access import OPEN, ClientAccess
from web.client_server import ClientServer
from web.messages import HttpRequest, Response, ServerLimits
from web.reading_client import ClientService, ReadingClient, Served
from web.refusals import ClientRefusals

log = logging.getLogger(__name__)

Route = Callable[[], Response]
"""Makes the answer for one path. Runs between connections: it must never wait."""

_SEND_BUFFER_BYTES: Final = 64 << 10
"""The kernel's buffer for each connection, which it doubles; by default it takes up to 4 MiB."""
_NO_SUCH_PATH: Final = messages.text_response(
    "No such path; / lists those there are.", HTTPStatus.NOT_FOUND
)
_FAILED: Final = messages.text_response(
    "The answer could not be made; the log says why.", HTTPStatus.INTERNAL_SERVER_ERROR
)


class HttpServer(ClientServer):
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
        refusals = refusals or ClientRefusals(lambda _reason: None)
        super().__init__(address, limits, refusals)
        page = messages.link_page(title, routes)
        self._routes: Mapping[str, Route] = {"/": lambda: page, **routes}
        self._service = ClientService(
            limits=limits, access=access, answer=self._answer, refusals=refusals, served=served
        )

    def listen(self) -> socket.socket:
        """See :class:`ClientServer`; clients that do not read hold little of the kernel."""
        listener = super().listen()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        return listener

    def _access(self) -> ClientAccess:
        return self._service.access()

    def _attend(self, connection: socket.socket, *, is_late: bool) -> None:  # noqa: ARG002  # none is
        self._in_loop(ReadingClient(LoopStream(connection), self._service))

    def _answer(self, request: HttpRequest) -> Response:
        route = self._routes.get(request.path)
        if route is None:
            return _NO_SUCH_PATH
        try:
            return route()
        except Exception:
            log.exception("request failed", extra={"path": request.path})
            return _FAILED
