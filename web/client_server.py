# SPDX-License-Identifier: Apache-2.0
"""Accepts clients and gives each a place, with limits that hold against slow and greedy ones.

Places are few, and a connection has one from its first byte on. When all are taken, it gets the
place of the client that has kept the server waiting longest. So a client that sends and reads at
once is served, however many others do neither.

Who has a place is attended to in the server's event loop, or in a thread of its own where answers
take time; docs/decisions/http-server.md has what each costs.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
import threading
from abc import ABC, abstractmethod
from typing import Final

from base import threads
from web.address import Address, listening_socket
from web.byte_stream import ThreadStream
from web.client_access import ClientAccess
from web.messages import ServerLimits
from web.refusals import ClientRefusals, RefusalReason, host_of
from web.served_client import ServedClient, no_room_answer
from web.waiting_room import WaitingRoom, answer_at_once

_MARGIN_SECONDS: Final = 1.0
"""Time for a stopping server to close its sockets after its grace time is over."""
_CUT_SECONDS: Final = 0.75
"""Time, within the one above, in which connections that were cut off end."""
_TICK_SECONDS: Final = 0.005
"""Time between two ticks while connections wait for a place. Waits are counted in ticks: where the
machine is busy, time passes in which no client had a chance."""


class ClientServer(ABC):
    """Listens, and attends to clients; what they are served is a subclass' own."""

    newest_first = False
    """Whether the client that asked last gets the next place, or the one that waits longest."""

    def __init__(self, address: Address, limits: ServerLimits, refusals: ClientRefusals) -> None:
        self._address = address
        self._limits = limits
        self._refusals = refusals
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._listener: socket.socket | None = None
        self._stopping = asyncio.Event()
        self._grace_seconds = 0.0
        self._places: dict[ServedClient, asyncio.Task[None] | threading.Thread] = {}
        """Clients with a place, and what attends to each; only the loop's thread changes it."""
        self._left = asyncio.Event()
        """Set when a client gives its place back."""
        self._is_ticking = False

    @property
    def address(self) -> Address:
        """Address on which the server listens, with the real port from :meth:`listen` on."""
        return self._address

    def listen(self) -> socket.socket:
        """Listen; clients wait until :meth:`start`. Raises Permanent where it cannot listen."""
        self._listener = listener = listening_socket(self._address)
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

        An answer that is made in the loop and waits, which none may, does not keep the program
        from ending.
        """
        if self._loop is None or self._thread is None:
            if self._listener is not None:
                self._listener.close()
            return
        self._grace_seconds = within_seconds
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(within_seconds + _MARGIN_SECONDS)
        self._thread = self._loop = None

    # of a subclass

    @abstractmethod
    def _access(self) -> ClientAccess:
        """The rules for clients at this moment; must not wait."""

    @abstractmethod
    def _attend(self, connection: socket.socket, *, is_late: bool) -> None:
        """Attend to a connection: in the loop or in a thread, see the two methods below."""

    def _poll(self) -> float | None:
        """Take over changed files; the seconds until the next poll, None without any."""
        return None

    def _in_loop(self, client: ServedClient) -> None:
        task = asyncio.get_running_loop().create_task(client.attend())
        self._places[client] = task
        client.cut = task.cancel
        task.add_done_callback(lambda _task: self._give_back(client))

    def _in_thread(self, client: ServedClient, stream: ThreadStream) -> bool:
        """False where no thread is to be had."""
        loop = asyncio.get_running_loop()
        client.cut = stream.cut

        def run() -> None:
            try:
                client.attend().send(None)  # its stream waits for no loop, so this is all of it
            except StopIteration:
                pass
            finally:
                with contextlib.suppress(RuntimeError):  # the loop has ended
                    loop.call_soon_threadsafe(self._give_back, client)

        thread = threading.Thread(target=run, name=f"client-{self._address.port}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            self._refusals.not_accepted(error)
            return False
        self._places[client] = thread
        return True

    # in the loop

    def _run(self, loop: asyncio.AbstractEventLoop, listener: socket.socket) -> None:
        try:
            loop.run_until_complete(self._serve(listener))
        finally:
            loop.close()

    async def _serve(self, listener: socket.socket) -> None:
        self._room = WaitingRoom(
            listener,
            max_connections=self._limits.waiting,
            silent_seconds=self._limits.header_seconds,
            asks=self._give_places,
            not_accepted=self._refusals.not_accepted,
        )
        while not self._stopping.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._poll()):
                    await self._stopping.wait()
        self._room.close()
        for connection in self._room.overdue(0):
            self._turn_away(connection)
        await self._see_off()

    async def _see_off(self) -> None:
        """End all connections: the idle ones now, the others when they are done or time is over."""
        loop = asyncio.get_running_loop()
        cut_at = loop.time() + self._grace_seconds
        while self._places and loop.time() < cut_at + _CUT_SECONDS:
            is_over = loop.time() >= cut_at
            for client in self._places:
                client.end(at_once=is_over)
            self._left.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(cut_at + _CUT_SECONDS * is_over):
                    await self._left.wait()
        await asyncio.sleep(0)  # transports close their sockets one turn later

    def _give_back(self, client: ServedClient) -> None:
        """A client has been attended to: its place is free."""
        attended = self._places.pop(client)
        if isinstance(attended, threading.Thread):
            attended.join()  # which has nothing to do any more
        self._left.set()
        if not self._stopping.is_set():
            self._give_places()

    def _give_places(self) -> None:
        """Attend to the connections that have sent something, as far as there are places."""
        while len(self._places) < self._limits.connections - self._limits.kept:
            connection = self._room.take(last=self.newest_first)
            if connection is None:
                return
            self._attend(connection, is_late=False)
        if self._room.asking and not self._is_ticking:
            self._is_ticking = True
            asyncio.get_running_loop().call_later(_TICK_SECONDS, self._tick)

    def _tick(self) -> None:
        """Make room for connections that wait for a place, and see to those that wait too long."""
        self._is_ticking = False
        while not self._limits.kept or len(self._places) < self._limits.connections:
            connection = next(self._room.overdue(self._limits.queue_seconds), None)
            if connection is None:
                break
            if self._limits.kept:
                self._attend(connection, is_late=True)
            else:
                self._turn_away(connection)
        self._make_room()
        self._give_places()

    def _make_room(self) -> None:
        """Take places of stalled clients, as many as connections wait for one."""
        opened = [client for client in self._places if client.is_open and not client.ending]
        stalled = [client for client in opened if client.is_stalled()]
        stalled.sort(key=lambda client: client.precedence)
        # those that are ended give their places back at once: to end more would hit others too
        missing = self._room.asking - sum(client.ending for client in self._places)
        for client in stalled[: max(0, missing)]:
            client.make_room()

    def _turn_away(self, connection: socket.socket) -> None:
        """Count and answer a client that got no place."""
        with contextlib.suppress(OSError):
            host = host_of(connection.getpeername())
            self._refusals.refused(RefusalReason.OVERLOAD, host)
        self._dismiss(connection)

    def _dismiss(self, connection: socket.socket) -> None:
        """Answer a client without a place; under TLS nothing can be answered yet."""
        access = self._access()
        if access.context is None:
            answer_at_once(connection, no_room_answer(access))
        else:
            connection.close()
