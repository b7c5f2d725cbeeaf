# SPDX-License-Identifier: Apache-2.0
"""A small HTTP server whose limits hold against slow, greedy and broken clients.

One thread for all connections: each has deadlines for whole heads and whole answers, where a
socket's timeout would start again with every byte. It shares nothing with the program but the
routes, so it answers whatever the rest is waiting for. Places are few, and a connection has one
from its first byte on. When all are taken, it gets the place of the client that has kept the server
waiting longest. So a client that sends and reads at once is served, however many others do neither.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import socket
import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import cast

from base import threads
from web import messages
from web.address import Address, listening_socket
from web.byte_stream import AT_ONCE_BYTES, ByteStream, TlsByteStream
from web.client_access import OPEN, ClientAccess
from web.messages import HttpRequest, Response, ServerLimits
from web.refusals import ClientRefusals, host_of
from web.served_client import ClientService, Served, ServedClient, no_room_answer
from web.waiting_room import WaitingRoom, answer_at_once

log = logging.getLogger(__name__)

Route = Callable[[], Response]
"""Makes the answer for one path. Runs between connections: it must never wait."""

_MARGIN_SECONDS = 1.0
"""Time for a stopping server to close its sockets after its grace time is over."""

_TICK_SECONDS = 0.005
"""Time between two ticks while connections wait for a place. Waits are counted in ticks: where the
machine is busy, time passes in which no client had a chance."""
_SEND_BUFFER_BYTES = 64 << 10
"""The kernel's buffer for each connection, which it doubles; by default it takes up to 4 MiB."""

_NO_SUCH_PATH = messages.text_response(
    "No such path; / lists those there are.", HTTPStatus.NOT_FOUND
)
_FAILED = messages.text_response(
    "The answer could not be made; the log says why.", HTTPStatus.INTERNAL_SERVER_ERROR
)


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
        self._service = ClientService(
            limits=limits,
            access=access,
            answer=self._answer,
            refusals=refusals or ClientRefusals(lambda _reason: None),
            served=served,
        )
        self._address = address
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._listener: socket.socket | None = None
        self._stopping = asyncio.Event()
        self._grace_seconds = 0.0
        self._places: dict[asyncio.Task[None], ServedClient | None] = {}
        """Clients by the tasks that serve them; None: the connection is being set up."""
        self._is_ticking = False

    @property
    def address(self) -> Address:
        """Address on which the server listens, after the start with the real port."""
        return self._address

    def listen(self) -> socket.socket:
        """Listen; clients wait until :meth:`start`. Raises Permanent where it cannot listen."""
        self._listener = listener = _listener(self._address)
        self._address = Address(host=self._address.host, port=listener.getsockname()[1])
        return listener

    def start(self) -> None:
        """Serve, after :meth:`listen` where it has not been called; raises what that raises.

        Raises NoThread, and listens no more, where no thread can be started.
        """
        listener, port = self._listener or self.listen(), self._address.port
        loop = asyncio.new_event_loop()
        run = functools.partial(self._run, loop, listener)
        try:
            self._thread = threads.started(run, f"http-{port}")
        except threads.NoThread:
            loop.close()
            listener.close()
            raise
        self._loop = loop

    def stop(self, within_seconds: float) -> None:
        """End after the answers under way; when the time is over, cut these off too.

        A route that waits, which none may, does not keep the program from ending.
        """
        if self._loop is None or self._thread is None:
            if self._listener is not None:
                self._listener.close()
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
        limits = self._service.limits
        self._room = WaitingRoom(
            listener,
            max_connections=limits.waiting,
            silent_seconds=limits.header_seconds,
            asks=self._give_places,
            not_accepted=self._service.refusals.not_accepted,
        )
        await self._stopping.wait()
        self._room.close()
        for client in self._room.overdue(0):
            self._turn_away(client)
        await self._see_off()

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

    def _give_places(self) -> None:
        """Serve the connections that have sent something, as far as there are places."""
        while len(self._places) < self._service.limits.connections:
            connection = self._room.take()
            if connection is None:
                return
            task = asyncio.get_running_loop().create_task(self._attend(connection))
            self._places[task] = None
        if self._room.asking and not self._is_ticking:
            self._is_ticking = True
            asyncio.get_running_loop().call_later(_TICK_SECONDS, self._tick)

    def _tick(self) -> None:
        """Make room for connections that wait for a place; refuse those that waited too long."""
        self._is_ticking = False
        for connection in self._room.overdue(self._service.limits.queue_seconds):
            self._turn_away(connection)
        stalled = [
            (task, client)
            for task, client in self._places.items()
            if client is not None and client.is_stalled()
        ]
        stalled.sort(key=lambda place: (place[1].precedence, place[1].waiting_since))
        for task, client in stalled[: self._room.asking]:
            client.apologize()  # before the cancelled task closes its connection
            task.cancel()
        self._give_places()

    def _turn_away(self, connection: socket.socket) -> None:
        """Answer a client that got no place; under TLS nothing can be answered yet."""
        with contextlib.suppress(OSError):
            self._service.no_room(host_of(connection.getpeername()))
        access = self._service.access()
        if access.context is None:
            answer_at_once(connection, no_room_answer(access))
        else:
            connection.close()

    async def _attend(self, connection: socket.socket) -> None:
        """Serve a connection that has sent something."""
        task = cast("asyncio.Task[None]", asyncio.current_task())
        try:
            try:
                reader, writer = await asyncio.open_connection(sock=connection, limit=AT_ONCE_BYTES)
            except OSError as error:
                connection.close()
                self._service.refusals.not_accepted(error)
                return
            context = self._service.access().context
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


def _listener(address: Address) -> socket.socket:
    """A socket that listens. Raises Permanent with the fix."""
    listener = listening_socket(address)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
    return listener
