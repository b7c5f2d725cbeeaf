# SPDX-License-Identifier: Apache-2.0
"""A small HTTP server whose limits hold against slow, greedy and broken clients.

One thread for all connections: each has deadlines for whole heads and whole answers, where a
socket's timeout would start again with every byte. It shares nothing with the program but the
routes, so it answers whatever the rest is waiting for. When all places are taken, a connection gets
that of the client that has kept the server waiting longest. So a client that sends and reads at
once is served, however many others do neither.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import cast

from web import messages
from web.address import Address
from web.byte_stream import AT_ONCE_BYTES, ByteStream, TlsByteStream
from web.client_access import OPEN, ClientAccess
from web.client_server import ClientServer
from web.messages import HttpRequest, Response, ServerLimits
from web.refusals import ClientRefusals
from web.served_client import ClientService, Served, ServedClient

log = logging.getLogger(__name__)

Route = Callable[[], Response]
"""Makes the answer for one path. Runs between connections: it must never wait."""

_SEND_BUFFER_BYTES = 64 << 10
"""The kernel's buffer for each connection, which it doubles; by default it takes up to 4 MiB."""

_NO_SUCH_PATH = messages.text_response(
    "No such path; / lists those there are.", HTTPStatus.NOT_FOUND
)
_FAILED = messages.text_response(
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
        super().__init__(address, limits, access, refusals)
        page = messages.link_page(title, routes)
        self._routes: Mapping[str, Route] = {"/": lambda: page, **routes}
        self._service = ClientService(
            limits=limits, access=access, answer=self._answer, refusals=refusals, served=served
        )
        self._places: dict[asyncio.Task[None], ServedClient | None] = {}
        """Clients by the tasks that serve them; None: the connection is being set up."""

    def listen(self) -> socket.socket:
        """See :class:`ClientServer`; clients that do not read hold little of the kernel."""
        listener = super().listen()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        return listener

    def _has_place(self) -> bool:
        return len(self._places) < self._limits.connections

    def _attend(self, connection: socket.socket) -> None:
        task = asyncio.get_running_loop().create_task(self._serve_client(connection))
        self._places[task] = None

    def _make_room(self) -> None:
        """Take places of stalled clients; refuse those that waited too long for one."""
        self._refuse_after(self._limits.queue_seconds)
        stalled = [
            (task, client)
            for task, client in self._places.items()
            if client is not None and client.is_stalled()
        ]
        stalled.sort(key=lambda place: (place[1].precedence, place[1].waiting_since))
        for task, client in stalled[: self._room.asking]:
            client.apologize()  # before the cancelled task closes its connection
            task.cancel()

    async def _see_off(self) -> None:
        """End all connections: the idle ones now, the others when they are done or time is over."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._grace_seconds
        while tasks := asyncio.all_tasks() - {asyncio.current_task()}:
            left_seconds = deadline - loop.time()
            for task, client in self._places.items():
                if client is not None:
                    client.ending = True
                    if left_seconds <= 0 or not client.busy:
                        task.cancel()
            if None in self._places.values():
                await asyncio.sleep(0)  # it has no client yet to end: the next turn makes one
                continue
            await asyncio.wait(tasks, timeout=left_seconds if left_seconds > 0 else None)
        await asyncio.sleep(0)  # transports close their sockets one turn later

    async def _serve_client(self, connection: socket.socket) -> None:
        task = cast("asyncio.Task[None]", asyncio.current_task())
        try:
            try:
                reader, writer = await asyncio.open_connection(sock=connection, limit=AT_ONCE_BYTES)
            except OSError as error:
                connection.close()
                self._refusals.not_accepted(error)
                return
            context = self._access().context
            wire = (
                ByteStream(reader, writer)
                if context is None
                else TlsByteStream(reader, writer, context)
            )
            client = self._places[task] = ServedClient(wire, self._service, context)
            await client.attend()
        finally:
            del self._places[task]
            if not self._stopping.is_set():
                self._give_places()

    def _answer(self, request: HttpRequest) -> Response:
        route = self._routes.get(request.path)
        if route is None:
            return _NO_SUCH_PATH
        try:
            return route()
        except Exception:
            log.exception("request failed", extra={"path": request.path})
            return _FAILED
