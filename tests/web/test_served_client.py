# SPDX-License-Identifier: Apache-2.0
"""One client of the server: how long it is waited for before it makes room for others."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from web.byte_stream import ByteStream
from web.client_access import OPEN, ClientAccess
from web.messages import Body, HttpRequest, Response, ServerLimits, text_response
from web.refusals import ClientRefusals, RefusalReason
from web.served_client import ClientService, ServedClient, no_room_answer

PATIENT = ServerLimits(header_seconds=60, request_seconds=60, idle_seconds=60)
LIVEZ = b"GET /livez HTTP/1.1\r\nHost: node\r\n\r\n"
LARGE = b"GET /large HTTP/1.1\r\nHost: node\r\n\r\n"


class Attended:
    """A client with a place, and the other end of its connection."""

    def __init__(self, client: ServedClient, other: socket.socket) -> None:
        self.client = client
        self._other = other
        self.served: list[tuple[str, float]] = []
        """Path and seconds of each whole answer."""

    async def send(self, data: bytes) -> None:
        """From the client."""
        await asyncio.get_running_loop().sock_sendall(self._other, data)

    async def receive(self, size: int = 1 << 16) -> bytes:
        """What the client is sent."""
        return await asyncio.get_running_loop().sock_recv(self._other, size)

    def ticks_until_stalled(self) -> int:
        """How often others were looked at until this one may lose its place."""
        return next(tick for tick in range(1, 100) if self.client.is_stalled())


@contextlib.asynccontextmanager
async def attended(
    refusals: ClientRefusals | None = None, limits: ServerLimits = PATIENT
) -> AsyncIterator[Attended]:
    """One of a server whose ``/large`` no buffer on the way takes."""
    ours, other = socket.socketpair()
    other.setblocking(False)
    reader, writer = await asyncio.open_connection(sock=ours)
    served: list[tuple[str, float]] = []

    def answer(request: HttpRequest) -> Response:
        return (
            Response(body=Body(bytes(16 << 20)))
            if request.path == "/large"
            else text_response("ok")
        )

    service = ClientService(
        limits=limits,
        access=lambda: OPEN,
        answer=answer,
        refusals=refusals or ClientRefusals(lambda _reason: None),
        served=lambda path, seconds: served.append((path, seconds)),
    )
    client = ServedClient(ByteStream(reader, writer), service, None)
    found = Attended(client, other)
    found.served = served
    task = asyncio.get_running_loop().create_task(client.attend())
    try:
        yield found
    finally:
        task.cancel()
        await task
        other.close()


async def until_busy(client: ServedClient, *, busy: bool = True) -> None:
    while client.busy is not busy:
        await asyncio.sleep(0.001)


@pytest.mark.parametrize(
    ("sent", "ticks", "precedence"),
    [(b"", 3, 0), (b"GET /livez HTTP", 3, 1), (LARGE, 5, 1)],
    ids=["silent", "half a head", "does not read"],
)
def test_who_waits_for_an_answer_keeps_its_place_longer_than_who_has_not_asked(
    sent: bytes, ticks: int, precedence: int
) -> None:
    async def steps() -> None:
        async with attended() as it:
            if sent:
                await it.send(sent)
                await until_busy(it.client)
            if sent == LARGE:
                await it.receive(1)
            for _ in range(3):
                await asyncio.sleep(0)
            assert it.ticks_until_stalled() == ticks
            assert it.client.precedence == precedence

    asyncio.run(steps())


def test_after_its_answer_a_client_is_one_that_has_not_asked() -> None:
    async def steps() -> None:
        began = time.monotonic()
        async with attended() as it:
            assert began <= it.client.waiting_since <= time.monotonic()
            await it.send(LIVEZ)
            assert (await it.receive()).endswith(b"\r\n\r\nok\n")
            await until_busy(it.client, busy=False)
            ((path, seconds),) = it.served
            assert path == "/livez"
            assert 0 <= seconds <= time.monotonic() - began
            assert it.ticks_until_stalled() == 3
            assert it.client.precedence == 0

    asyncio.run(steps())


def test_a_client_that_reads_is_waited_for_anew() -> None:
    async def steps() -> None:
        async with attended() as it:
            await it.send(LARGE)
            await it.receive(1)
            assert it.ticks_until_stalled() == 5
            before = it.client.waiting_since
            received = 0
            while received < 4 << 20:
                received += len(await it.receive(1 << 20))
            while it.client.waiting_since == before:
                await asyncio.sleep(0.001)
            assert it.ticks_until_stalled() == 5

    asyncio.run(steps())


def test_a_connection_on_which_nothing_comes_ends_after_the_time_for_a_head() -> None:
    """As one whose client has shaken hands and says no more."""

    async def steps() -> None:
        async with attended(limits=replace(PATIENT, header_seconds=0.01)) as it:
            assert await it.receive() == b""

    asyncio.run(steps())


def test_a_connection_without_a_further_request_ends_after_the_time_for_idle_ones() -> None:
    async def steps() -> None:
        async with attended(limits=replace(PATIENT, idle_seconds=0.01)) as it:
            await it.send(LIVEZ)
            assert (await it.receive()).endswith(b"ok\n")
            assert await it.receive() == b""

    asyncio.run(steps())


def test_who_finds_no_room_gets_the_headers_that_are_configured() -> None:
    access = ClientAccess(headers=(("X-Frame-Options", "deny"),))
    assert b"\r\nX-Frame-Options: deny\r\n" in no_room_answer(access)


def test_only_who_was_sent_nothing_is_asked_to_come_again() -> None:
    refused: list[RefusalReason] = []

    async def steps() -> None:
        async with attended(ClientRefusals(refused.append)) as it:
            it.client.apologize()
            await it.send(LARGE)
            assert (await it.receive(12)) == b"HTTP/1.1 200"
            it.client.apologize()

    asyncio.run(steps())
    assert refused == []
