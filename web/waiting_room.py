# SPDX-License-Identifier: Apache-2.0
"""Connections that were accepted and have no place yet: each costs little more than a descriptor.

A connection that has sent nothing needs no task and no buffers, and may go when there are too
many; one that has sent something is never closed here without an answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

_WAITING_IN_KERNEL: Final = 4096
"""Connections that are made and not yet accepted; the kernel may have a lower limit. A client
that finds no room tries again after a second."""
_ACCEPTED_AT_ONCE: Final = 32
"""Connections that are accepted before those being served get a turn."""
_RETRY_SECONDS: Final = 0.2
"""Time to the next accept after the kernel had no descriptor or memory for a connection."""


class WaitingRoom:
    """Accepts connections, and keeps them until they are taken. For the event loop's thread."""

    def __init__(
        self,
        listener: socket.socket,
        *,
        max_connections: int,
        silent_seconds: float,
        asks: Callable[[], None],
        not_accepted: Callable[[OSError], None],
    ) -> None:
        """Accept from the running event loop on.

        At most ``max_connections`` connections wait; one that sends nothing is closed after
        ``silent_seconds``. ``asks`` is called when one has sent something.
        """
        self._loop = asyncio.get_running_loop()
        self._listener = listener
        self._max_connections = max_connections
        self._silent_seconds = silent_seconds
        self._asks = asks
        self._not_accepted = not_accepted
        self._silent: dict[socket.socket, asyncio.TimerHandle] = {}
        """Connections that have sent nothing, oldest first, with the timers that close them."""
        self._asking: deque[tuple[socket.socket, float]] = deque()
        """Connections that have sent something, oldest first, with the time of the first byte."""
        self._is_accepting = self._is_closed = False
        listener.setblocking(False)
        listener.listen(_WAITING_IN_KERNEL)
        self._accept_more()

    @property
    def asking(self) -> int:
        """Connections that have sent something."""
        return len(self._asking)

    def take(self, *, last: bool = False) -> socket.socket | None:
        """The connection whose first byte came first, or ``last``; None where all are silent.

        The caller closes it.
        """
        if not self._asking:
            return None
        client, _ = self._asking.pop() if last else self._asking.popleft()
        self._accept_more()
        return client

    def overdue(self, seconds: float) -> Iterator[socket.socket]:
        """Take the connections whose first byte is older than this."""
        while self._asking and self._asking[0][1] <= self._loop.time() - seconds:
            if (client := self.take()) is not None:
                yield client

    def close(self) -> None:
        """Accept no more, and close those that have sent nothing."""
        self._is_closed = True
        self._pause()
        for client in tuple(self._silent):
            self._leave(client)
        self._listener.close()

    def _accept_more(self) -> None:
        if not self._is_accepting and not self._is_closed:
            self._is_accepting = True
            self._loop.add_reader(self._listener, self._accept)

    def _pause(self) -> None:
        if self._is_accepting:
            self._is_accepting = False
            self._loop.remove_reader(self._listener)

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            if len(self._asking) >= self._max_connections:
                self._pause()  # until one is taken: the others wait in the kernel
                return
            try:
                client, _address = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._not_accepted(error)
                # mostly no descriptor is free: the oldest silent client gives its own back
                if self._silent:
                    self._dismiss(next(iter(self._silent)))
                self._pause()
                self._loop.call_later(_RETRY_SECONDS, self._accept_more)
                return
            client.setblocking(False)
            if (has_sent := _has_sent(client)) is not None:
                self._settle(client, has_sent=has_sent)
            else:
                leave = self._loop.call_later(self._silent_seconds, self._dismiss, client)
                self._silent[client] = leave
                self._loop.add_reader(client, self._readable, client)
            while self._silent and len(self._silent) + len(self._asking) > self._max_connections:
                self._dismiss(next(iter(self._silent)))

    def _dismiss(self, client: socket.socket) -> None:
        """Close a silent connection, unless it has sent something by now."""
        if not self._readable(client):
            self._leave(client)

    def _readable(self, client: socket.socket) -> bool:
        """Queue a client that has sent something, close one that has gone; else return False."""
        has_sent = _has_sent(client)
        if has_sent is None:
            return False
        self._forget(client)
        self._settle(client, has_sent=has_sent)
        return True

    def _settle(self, client: socket.socket, *, has_sent: bool) -> None:
        if has_sent:
            self._asking.append((client, self._loop.time()))
            self._asks()
        else:
            client.close()

    def _leave(self, client: socket.socket) -> None:
        self._forget(client)
        client.close()

    def _forget(self, client: socket.socket) -> None:
        self._silent.pop(client).cancel()
        self._loop.remove_reader(client)


def _has_sent(client: socket.socket) -> bool | None:
    """True: the connection has sent something; False: it ended before that; None: neither yet."""
    try:
        return bool(client.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return None
    except OSError:
        return False


def answer_at_once(client: socket.socket, message: bytes) -> None:
    """Send a short answer to a connection that has sent something, and close it; never waits."""
    with contextlib.closing(client), contextlib.suppress(OSError):
        client.recv(1 << 16)  # what is left unread would make the kernel take the answer back
        client.send(message)
        client.shutdown(socket.SHUT_WR)
