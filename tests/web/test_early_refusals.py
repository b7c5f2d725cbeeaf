# SPDX-License-Identifier: Apache-2.0
"""Clients that begin with what can become no request: answered before the rest is waited for."""

from __future__ import annotations

import asyncio
import ssl

import pytest

from tests.web.test_served_client import attended
from web.messages import Refusal, refuse_early


def client_hello() -> bytes:
    """What a TLS client sends first."""
    out = ssl.MemoryBIO()
    tls = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), out, server_hostname="node")
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    return out.read()


BEGINNINGS = {
    "tls": (client_hello(), b"This port serves http, and TLS was spoken."),
    "bare-lf": (b"GET /metrics HTTP/1.0\n\n", b"A line ends without a carriage return."),
    "mixed": (b"GET / HTTP/1.1\r\nHost: a\nX: b", b"A line ends without a carriage return."),
    "other": (b"\x00\x01", b"The first line is no HTTP/1 request for a path."),
    "lower-case": (b"get / HTTP/1.1", b"The first line is no HTTP/1 request for a path."),
}
GOOD = (
    b"GET /metrics HTTP/1.1\r\nHost: node\r\nUser-Agent: Prometheus/3.5.0\r\n"
    b"Accept-Encoding: gzip\r\n\r\n",
    b"POST /prioritize HTTP/1.1\r\nHost: node\r\nContent-Length: 2\r\n\r\n",
    b"HEAD / HTTP/1.0\r\n\r\n",
)


@pytest.mark.parametrize("name", BEGINNINGS)
def test_what_can_become_no_request_is_answered_before_it_ends(name: str) -> None:
    begun, sentence = BEGINNINGS[name]

    async def steps() -> None:
        async with attended() as it:  # which waits a minute for a head
            await it.send(begun)
            answer = await it.receive()
            assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
            assert answer.endswith(b"\r\n\r\n" + sentence + b"\n")
            assert await it.receive() == b""

    asyncio.run(asyncio.wait_for(steps(), 30))


@pytest.mark.parametrize("head", GOOD)
def test_no_part_of_a_request_is_refused_for_what_is_still_to_come(head: bytes) -> None:
    for end in range(len(head) + 1):
        refuse_early(head[:end])


@pytest.mark.parametrize("head", GOOD)
def test_a_line_without_its_carriage_return_is_refused_once_its_line_feed_is_here(
    head: bytes,
) -> None:
    at = head.index(b"\r\n")
    wrong = head[:at] + head[at + 1 :]
    refuse_early(wrong[:at])
    with pytest.raises(Refusal):
        refuse_early(wrong[: at + 1])
