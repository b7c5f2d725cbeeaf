# SPDX-License-Identifier: Apache-2.0
"""Accepts clients and gives places to those that have sent something, in a thread of its own.

Who attends to a client with a place is a subclass' own: a task of this event loop, or a thread;
docs/decisions/http-server.md has the reasons and what each costs.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final

from base import threads
from web.address import Address, listening_socket
from web.client_access import ClientAccess
from web.messages import ConnectionLimits
from web.refusals import ClientRefusals, RefusalReason, host_of
from web.served_client import no_room_answer
from web.waiting_room import WaitingRoom, answer_at_once

_MARGIN_SECONDS: Final = 1.0
"""Time for a stopping server to close its sockets after its grace time is over."""
_TICK_SECONDS: Final = 0.005
"""Time between two ticks while connections wait for a place. Waits are counted in ticks: where the
machine is busy, time passes in which no client had a chance."""


class ClientServer(ABC):
    """Listens, and has a subclass attend to as many clients as there are places."""

    newest_first = False
    """Whether the client that asked last gets the next place, or the one that waits longest."""

    def __init__(
        self,
        address: Address,
        limits: ConnectionLimits,
        access: Callable[[], ClientAccess],
        refusals: ClientRefusals,
    ) -> None:
        """``access`` must not wait."""
        self._address = address
        self._limits = limits
        self._access = access
        self._refusals = refusals
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._listener: socket.socket | None = None
        self._stopping = asyncio.Event()
        self._grace_seconds = 0.0
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

    @abstractmethod
    def _has_place(self) -> bool:
        """Whether a client that asks is attended to now."""

    @abstractmethod
    def _attend(self, connection: socket.socket) -> None:
        """Give a place to a connection that has sent something."""

    @abstractmethod
    def _make_room(self) -> None:
        """Take a tick's decisions while connections wait: which clients lose their places."""

    def _poll(self) -> float | None:
        """Take over changed files; the seconds until the next poll, None without any."""
        return None

    async def _see_off(self) -> None:  # noqa: B027  # clients in threads end by themselves
        """End the connections that the loop attends to, before the loop ends."""

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
        self._refuse_after(0)
        await self._see_off()

    def _give_places(self) -> None:
        """Attend to the connections that have sent something, as far as there are places."""
        while self._has_place():
            connection = self._room.take(last=self.newest_first)
            if connection is None:
                return
            self._attend(connection)
        if self._room.asking and not self._is_ticking:
            self._is_ticking = True
            asyncio.get_running_loop().call_later(_TICK_SECONDS, self._tick)

    def _tick(self) -> None:
        self._is_ticking = False
        self._give_places()
        self._make_room()

    def _refuse_after(self, seconds: float) -> None:
        """Count and answer the clients that have waited so long for a place."""
        for connection in self._room.overdue(seconds):
            with contextlib.suppress(OSError):
                host = host_of(connection.getpeername())
                self._refusals.refused(RefusalReason.OVERLOAD, host)
            self._turn_away(connection)

    def _turn_away(self, connection: socket.socket) -> None:
        """Answer a client without a place; under TLS nothing can be answered yet."""
        access = self._access()
        if access.context is None:
            answer_at_once(connection, no_room_answer(access))
        else:
            connection.close()
