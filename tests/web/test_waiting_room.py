# SPDX-License-Identifier: Apache-2.0
"""Connections that wait for a place: who is let in, in which order, and who is closed."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from web.waiting_room import WaitingRoom, answer_at_once


class Room:
    """A waiting room on a port of its own, and clients of it."""

    def __init__(
        self, *, most: int = 8, silent_seconds: float = 60, listener: socket.socket | None = None
    ) -> None:
        self.listener = listener or socket.socket()
        self.listener.bind(("127.0.0.1", 0))
        self.not_accepted: list[int | None] = []
        self.asked = 0
        self.clients: list[socket.socket] = []
        self.room = WaitingRoom(
            self.listener,
            max_connections=most,
            silent_seconds=silent_seconds,
            asks=self._asks,
            not_accepted=lambda error: self.not_accepted.append(error.errno),
        )

    def _asks(self) -> None:
        self.asked += 1

    async def client(self, sends: bytes = b"") -> socket.socket:
        """One that has connected, and has sent this."""
        client = socket.create_connection(self.listener.getsockname(), timeout=60)
        self.clients.append(client)
        if sends:
            before = self.asked
            client.sendall(sends)
            await until(lambda: self.asked > before)
        return client

    def taken(self) -> bytes | None:
        """What the connection that is next has sent; None where none has."""
        client = self.room.take()
        if client is None:
            return None
        with client:
            return client.recv(100)


def in_a_room(**how: Any) -> Callable[[Callable[[Room], Awaitable[None]]], None]:
    """Run the decorated steps against a room at once."""

    @contextlib.asynccontextmanager
    async def opened() -> AsyncIterator[Room]:
        room = Room(**how)
        try:
            yield room
        finally:
            while client := room.room.take():
                client.close()
            room.room.close()
            for client in room.clients:
                client.close()

    def run(steps: Callable[[Room], Awaitable[None]]) -> None:
        async def whole() -> None:
            async with opened() as room:
                await steps(room)

        asyncio.run(whole())

    return run


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop go on for as long as it takes; pytest ends what takes forever."""
    while not condition():
        await asyncio.sleep(0.001)


def is_closed(client: socket.socket) -> bool:
    """Whether the other side has ended the connection."""
    client.setblocking(False)
    try:
        return client.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def test_those_that_have_sent_something_are_taken_in_the_order_in_which_they_asked() -> None:
    @in_a_room()
    async def _(room: Room) -> None:
        await room.client()
        for text in (b"first", b"second"):
            await room.client(text)

        assert room.room.asking == 2
        assert [room.taken() for _ in range(3)] == [b"first", b"second", None]


def test_one_that_sends_nothing_is_closed_after_its_time_and_one_that_asks_is_not() -> None:
    @in_a_room(silent_seconds=0.05)
    async def _(room: Room) -> None:
        asking = await room.client(b"x")
        silent = await room.client()

        await until(lambda: is_closed(silent))
        assert not is_closed(asking)


def test_one_whose_bytes_come_as_its_time_ends_is_not_closed() -> None:
    """They come after the loop has asked the kernel, and before it closes the connection."""

    @in_a_room(silent_seconds=0.2)
    async def _(room: Room) -> None:
        silent = await room.client()
        await until(lambda: bool(room.room._silent))
        asyncio.get_running_loop().call_later(0.001, silent.sendall, b"late")
        time.sleep(0.5)  # both timers are due in the next turn
        await asyncio.sleep(0.01)

        assert room.taken() == b"late"


def test_where_all_places_are_taken_the_oldest_silent_one_makes_room() -> None:
    """Silent ones and those that ask share the places."""

    @in_a_room(most=2)
    async def _(room: Room) -> None:
        await room.client(b"first")
        silent = await room.client()
        await room.client(b"second")

        await until(lambda: is_closed(silent))
        assert [room.taken(), room.taken()] == [b"first", b"second"]


def test_where_all_that_wait_have_asked_a_new_one_waits_until_one_is_taken() -> None:
    @in_a_room(most=1)
    async def _(room: Room) -> None:
        await room.client(b"first")
        late = await room.client()
        late.sendall(b"late")
        for _ in range(20):
            await asyncio.sleep(0.001)
        assert room.room.asking == 1

        assert room.taken() == b"first"
        await until(lambda: room.room.asking == 1)
        assert room.taken() == b"late"


def test_those_that_have_asked_for_too_long_are_given_out_and_no_others() -> None:
    @in_a_room()
    async def _(room: Room) -> None:
        silent = await room.client()
        await room.client(b"x")

        assert list(room.room.overdue(3600)) == []
        (overdue,) = room.room.overdue(0)
        with overdue:
            assert overdue.recv(9) == b"x"
        assert not is_closed(silent)


def test_who_asks_late_does_not_keep_the_first_from_being_overdue() -> None:
    @in_a_room()
    async def _(room: Room) -> None:
        loop = asyncio.get_running_loop()
        await room.client(b"first")
        between = loop.time()
        await room.client(b"late")

        overdue = next(room.room.overdue(loop.time() - between), None)
        assert overdue is not None
        with overdue:
            assert overdue.recv(9) == b"first"


def test_one_that_leaves_before_it_asked_takes_no_place() -> None:
    @in_a_room(most=1)
    async def _(room: Room) -> None:
        (await room.client()).close()

        await room.client(b"next")
        assert room.taken() == b"next"


def test_closing_ends_silent_connections_and_the_listener() -> None:
    @in_a_room()
    async def _(room: Room) -> None:
        silent = await room.client()
        await room.client(b"x")  # connections are accepted in their order

        room.room.close()

        await until(lambda: is_closed(silent))
        assert room.listener.fileno() == -1
        assert room.taken() == b"x"


class Exhausted(socket.socket):
    """A listener of a process that has no descriptor left, once."""

    failures = 1

    def accept(self) -> tuple[socket.socket, Any]:
        """As the kernel refuses it."""
        if self.failures:
            self.failures -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


def test_a_machine_without_descriptors_is_reported_and_the_connection_taken_later() -> None:
    @in_a_room(listener=Exhausted())
    async def _(room: Room) -> None:
        await room.client(b"x")

        assert room.not_accepted == [errno.EMFILE]
        assert room.taken() == b"x"


def test_a_short_answer_arrives_although_the_question_was_not_read() -> None:
    ours, theirs = socket.socketpair()
    theirs.sendall(b"a question")

    answer_at_once(ours, b"no room")

    with theirs:
        assert (theirs.recv(100), theirs.recv(100)) == (b"no room", b"")
    assert ours.fileno() == -1


def test_a_short_answer_to_one_that_has_gone_is_dropped() -> None:
    ours, theirs = socket.socketpair()
    theirs.close()

    answer_at_once(ours, b"no room")

    assert ours.fileno() == -1
