# SPDX-License-Identifier: Apache-2.0
"""Everything that our servers send is read by h11, which shares no code with them."""

from __future__ import annotations

import contextlib
import gzip
import socket
from collections.abc import Iterator
from http import HTTPStatus

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.agent.agent_process import SOON
from tests.scheduler.calls import body
from tests.scheduler.extenders import served
from tests.web.strict_client import answers
from web.address import Address
from web.messages import Body, HttpRequest, Response, ServerLimits, link_page, text_response
from web.server import HttpServer

HOST = "127.0.0.1"
TEXT = b"gpuscape_gpus 8\n" * 1000
GET = b"GET /metrics HTTP/1.1\r\nHost: node\r\n\r\n"
LAST = b"GET /livez HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n"
CALL = b"POST /v1/prioritize HTTP/1.1\r\nHost: node\r\nContent-Length: %d\r\n"


@pytest.fixture(scope="module")
def agent() -> Iterator[int]:
    """Port of a server with the routes of an agent."""

    def broken() -> Response:
        raise LookupError

    routes = {
        "/metrics": lambda: Response(body=Body(TEXT), tail=b"last 1\n"),
        "/livez": lambda: text_response("ok"),
        "/broken": broken,
    }
    server = HttpServer(Address(host=HOST, port=0), routes, ServerLimits(header_seconds=0.2))
    server.start()
    yield server.address.port
    server.stop(within_seconds=0)


@pytest.fixture(scope="module")
def extender() -> Iterator[int]:
    """Port of a scheduler extender."""
    with served() as running:
        yield running.port


def exchange(port: int, *pieces: bytes) -> bytes:
    """All bytes that come for these, up to the connection's end."""
    with socket.create_connection((HOST, port), timeout=SOON) as client:
        for piece in pieces:
            with contextlib.suppress(ConnectionError):
                client.sendall(piece)
        with contextlib.suppress(ConnectionError):
            client.shutdown(socket.SHUT_WR)
        return client.makefile("rb").read()


def get(path: str, *headers: str, method: str = "GET") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: node", *headers, "Connection: close", "", ""]
    return "\r\n".join(lines).encode()


@pytest.mark.parametrize(
    ("message", "status"),
    [
        (get("/metrics"), 200),
        (get("/metrics", "Accept-Encoding: gzip"), 200),
        (get("/metrics", method="HEAD"), 200),
        (get("/"), 200),
        (get("/nothing"), 404),
        (get("/broken"), 500),
        (get("/metrics", method="DELETE"), 405),
        (get("/metrics", "Content-Length: 5"), 413),
        (get("/metrics", "Content-Length: 0", "Transfer-Encoding: chunked"), 413),
        (get("/metrics", "Host: other"), 400),
        (get("/metrics", "X: a", " folded"), 400),
        (b"GET /metrics HTTP/1.1\nHost: node\n\n", 400),
        (b"\x16\x03\x01\x02\x00", 400),
        (b"GET /metrics HTTP/1.0\r\n\r\n", 200),
        (get("/metrics", "X: " + "x" * 9000), 431),
    ],
)
def test_an_answer_of_the_agent_is_whole_for_a_strict_client(
    agent: int, message: bytes, status: int
) -> None:
    method = "HEAD" if message.startswith(b"HEAD") else "GET"

    (answer,) = answers(exchange(agent, message), [method])

    assert answer.status == status
    assert answer.headers["connection"] == "close"
    length = 0 if method == "HEAD" else int(answer.headers["content-length"])
    assert len(answer.content) == length
    if answer.headers.get("content-encoding") == "gzip":
        assert gzip.decompress(answer.content) == TEXT + b"last 1\n"


def test_a_head_that_does_not_end_is_answered_for_a_strict_client(agent: int) -> None:
    with socket.create_connection((HOST, agent), timeout=SOON) as client:
        client.sendall(GET[:-2])
        (answer,) = answers(client.makefile("rb").read(), ["GET"])

    assert answer.status == HTTPStatus.REQUEST_TIMEOUT


@pytest.mark.parametrize(
    ("message", "status"),
    [
        (CALL % len(body()) + b"\r\n" + body(), 200),
        (CALL % 1 + b"\r\n{", 400),
        (CALL % 1 + b"Content-Encoding: gzip\r\n\r\n{", 415),
        (CALL % 95_000_000 + b"\r\n{", 413),
        (CALL % 2 + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 411),
        (CALL % 2 + b"Content-Length: 3\r\n\r\n{}", 400),
        (get("/v1/prioritize"), 405),
        (get("/nowhere"), 404),
        (get("/metrics", "Accept-Encoding: gzip"), 200),
        (get("/openapi.json"), 200),
        (get("/debug/nodes/a", method="HEAD"), 200),
        (get("/livez", "X: " + "x" * 9000), 431),
        (b"get / HTTP/1.1", 400),
    ],
)
def test_an_answer_of_the_extender_is_whole_for_a_strict_client(
    extender: int, message: bytes, status: int
) -> None:
    method = message.partition(b" ")[0].decode().upper()

    (answer,) = answers(exchange(extender, message), [method])

    assert answer.status == status
    length = 0 if method == "HEAD" else int(answer.headers["content-length"])
    assert len(answer.content) == length


def test_requests_in_one_piece_are_answered_one_by_one_for_a_strict_client(
    agent: int, extender: int
) -> None:
    call = CALL % len(body()) + b"\r\n" + body()
    scrapes = answers(exchange(agent, GET + GET, LAST + GET), ["GET"] * 4)
    scores = answers(exchange(extender, call + GET, call + LAST + GET), ["POST", "GET"] * 3)

    assert [answer.status for answer in scrapes] == [200, 200, 200]
    assert [answer.status for answer in scores] == [200, 200, 200, 200]
    assert scrapes[0].content == TEXT + b"last 1\n"
    assert scores[0].content == scores[2].content != b""


def test_a_body_after_an_interim_answer_is_served_for_a_strict_client(extender: int) -> None:
    head = CALL % len(body()) + b"Expect: 100-continue\r\nConnection: close\r\n\r\n"
    with socket.create_connection((HOST, extender), timeout=SOON) as client:
        client.sendall(head)
        received = client.recv(1 << 16)
        client.sendall(body())
        (answer,) = answers(received + client.makefile("rb").read(), ["POST"])

    assert (answer.status, answer.interim) == (HTTPStatus.OK, (100,))


STATUSES = [status for status in HTTPStatus if status >= 200 and status not in (204, 205, 304)]


@given(
    content=st.binary(max_size=3000),
    tail=st.binary(max_size=20),
    status=st.sampled_from(STATUSES),
    seconds=st.none() | st.integers(0, 100),
    request=st.none()
    | st.builds(
        HttpRequest,
        method=st.sampled_from(["GET", "HEAD"]),
        path=st.just("/"),
        gzip=st.booleans(),
        keep_alive=st.booleans(),
    ),
)
def test_every_response_is_read_as_it_was_made(
    content: bytes,
    tail: bytes,
    status: HTTPStatus,
    seconds: int | None,
    request: HttpRequest | None,
) -> None:
    response = Response(body=Body(content), tail=tail, status=status, retry_seconds=seconds)

    message = b"".join(response.message(request, 1.8e9, [("X-Frame-Options", "deny")]))
    (answer,) = answers(message, ["GET" if request is None else request.method])

    read = answer.content
    if answer.headers.get("content-encoding") == "gzip":
        read = gzip.decompress(read) if read else read
    is_head = request is not None and request.method == "HEAD"
    assert (answer.status, read) == (status, b"" if is_head else content + tail)
    assert ("connection" in answer.headers) is not (request is not None and request.keep_alive)


def test_names_in_a_page_of_links_stay_text() -> None:
    (answer,) = answers(b"".join(link_page("<a>", ["/<b>"]).message(None, 0.0)), ["GET"])

    assert b"<b>" not in answer.content


@pytest.mark.parametrize(
    "received",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nok\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nok\n",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA : b\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nDate: a\r\nDate: b\r\nContent-Length: 0\r\n\r\n",
    ],
)
def test_a_broken_answer_is_noticed(received: bytes) -> None:
    with pytest.raises((AssertionError, h11.RemoteProtocolError)):
        answers(received, ["GET"])
