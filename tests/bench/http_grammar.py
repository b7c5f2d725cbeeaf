# SPDX-License-Identifier: Apache-2.0
"""Our HTTP grammar and h11's, on the same requests: ``python -m tests.bench.http_grammar``.

Both have the same loop around them: a process with one thread, which receives bytes, reads the
request, makes the response, and sends its bytes. The client, in another process, reads no headers
but the length.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import socket
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Protocol

import h11

from exporters.dcgm.render import Renderer
from scheduler.cluster.pod_gpu_request import Rules
from scheduler.extender.extender import Extender
from scheduler.extender.extender_metrics import ExtenderMetrics
from tests.bench import clock, render
from tests.scheduler import calls, extenders
from web import messages
from web.messages import Body, HttpRequest, Response

ROUNDS = 401
REQUESTS_EACH = 5
"""Requests of each round, one after the other."""
NAMES = 100
"""Nodes in a scheduler's call."""
HEAD_BYTES = 8192
CHUNK_BYTES = 64 << 10
SCRAPE = (
    b"GET /metrics HTTP/1.1\r\nHost: 10.0.0.7:9400\r\nUser-Agent: Prometheus/3.5.0\r\n"
    b"Accept: application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,"
    b"text/plain;version=0.0.4;q=0.3,*/*;q=0.1\r\nAccept-Encoding: gzip\r\n"
    b"X-Prometheus-Scrape-Timeout-Seconds: 10\r\n\r\n"
)
CALL = (
    b"POST /v1/prioritize HTTP/1.1\r\nHost: 10.0.0.8:8888\r\nUser-Agent: Go-http-client/1.1\r\n"
    b"Content-Length: %d\r\nContent-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n"
)

Answer = Callable[[bytes], Response]
"""Makes the response from a request's body."""


class Grammar(Protocol):
    """A connection's requests and responses as bytes."""

    def read(self, connection: socket.socket) -> tuple[HttpRequest, bytes] | None:
        """The next request with its body; None at the connection's end."""

    def write(self, request: HttpRequest, response: Response) -> bytes:
        """The response's bytes."""


class OurGrammar:
    """The grammar of :mod:`web.messages`; heads that repeat are read once where bodies are taken,
    as the extender does."""

    def __init__(self, *, bodies: bool) -> None:
        parse = partial(messages.read_request, bodies=bodies)
        self._parse = lru_cache(maxsize=128)(parse) if bodies else parse
        self._received = b""

    def read(self, connection: socket.socket) -> tuple[HttpRequest, bytes] | None:
        """See :class:`Grammar`."""
        while (end := messages.end_of_head(self._received, HEAD_BYTES)) is None:
            if not (chunk := connection.recv(CHUNK_BYTES)):
                return None
            self._received += chunk
        head, self._received = self._received[:end], self._received[end:]
        request = self._parse(head)
        while len(self._received) < request.length:
            self._received += connection.recv(CHUNK_BYTES)
        body = self._received[: request.length]
        self._received = self._received[request.length :]
        return request, body

    def write(self, request: HttpRequest, response: Response) -> bytes:
        """See :class:`Grammar`."""
        return b"".join(response.message(request, time.time()))


class H11Grammar:
    """h11's events, turned into our values."""

    def __init__(self) -> None:
        self._state = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES)

    def read(self, connection: socket.socket) -> tuple[HttpRequest, bytes] | None:
        """See :class:`Grammar`."""
        request, pieces = None, []
        while True:
            event = self._state.next_event()
            if event is h11.NEED_DATA:
                self._state.receive_data(connection.recv(CHUNK_BYTES))
            elif isinstance(event, h11.Request):
                request = _request(event)
            elif isinstance(event, h11.Data):
                pieces.append(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage) and request is not None:
                return request, b"".join(pieces)
            else:
                return None

    def write(self, request: HttpRequest, response: Response) -> bytes:
        """See :class:`Grammar`."""
        gzip = response.compress and request.gzip
        content = response.body.gzipped() if gzip else response.body.plain
        headers = [
            ("Date", _date(int(time.time()))),
            ("Content-Type", response.content_type),
            ("Content-Length", str(len(content))),
            ("Vary", "Accept-Encoding"),
            ("X-Content-Type-Options", "nosniff"),
            *([("Content-Encoding", "gzip")] if gzip else []),
        ]
        head = h11.Response(status_code=response.status, headers=headers, reason=b"OK")
        events = (head, h11.Data(data=content), h11.EndOfMessage())
        message = b"".join(self._state.send(event) or b"" for event in events)
        self._state.start_next_cycle()
        return message


def _request(event: h11.Request) -> HttpRequest:
    headers = dict(event.headers)
    return HttpRequest(
        method=event.method.decode("ascii"),
        path=event.target.decode("ascii").partition("?")[0],
        gzip=b"gzip" in headers.get(b"accept-encoding", b""),
        keep_alive=headers.get(b"connection", b"").lower() != b"close",
        authorization=headers.get(b"authorization", b"").decode("latin-1"),
        length=int(headers.get(b"content-length", b"0")),
        encoding=headers.get(b"content-encoding", b"").decode("latin-1"),
    )


@lru_cache(maxsize=1)
def _date(unix_seconds: int) -> str:
    return time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(unix_seconds))


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Median time of a request with each grammar."""

    our_seconds: float
    h11_seconds: float

    @property
    def ratio(self) -> float:
        """h11's time over ours."""
        return self.h11_seconds / self.our_seconds


def scrape(rounds: int = ROUNDS) -> Comparison:
    """Scrapes of a full node, compressed."""
    (snapshot, samples), families = render.full_node(), render.many_families()
    text = Renderer(families).render(snapshot, samples, samples, render.IDENTITY)
    response = Response(body=Body(text))
    return _comparison(SCRAPE, lambda _body: response, rounds, bodies=False)


def call(rounds: int = ROUNDS) -> Comparison:
    """Calls of a scheduler, whose scores the extender knows."""
    names = [f"gpu-{number:03}" for number in range(NAMES)]
    cache, tables = extenders.cache(**{name: {"used": 1} for name in names})
    extender = Extender(cache, tables, Rules(), ExtenderMetrics("1"))

    def answer(body: bytes) -> Response:
        scores = Body(extender.prioritize(body))
        return Response(body=scores, content_type="application/json", compress=False)

    body = calls.body(names)
    return _comparison(CALL % len(body) + body, answer, rounds, bodies=True)


def _comparison(message: bytes, answer: Answer, rounds: int, *, bodies: bool) -> Comparison:
    with (
        _serving(OurGrammar(bodies=bodies), answer) as ours,
        _serving(H11Grammar(), answer) as h11s,
    ):
        assert _content(ours, message) == _content(h11s, message)
        times = clock.medians_seconds(
            {"ours": partial(_repeat, ours, message), "h11": partial(_repeat, h11s, message)},
            rounds,
        )
    return Comparison(
        our_seconds=times["ours"] / REQUESTS_EACH, h11_seconds=times["h11"] / REQUESTS_EACH
    )


@contextlib.contextmanager
def _serving(grammar: Grammar, answer: Answer) -> Iterator[socket.socket]:
    """A connection to a process that serves nothing else."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        process = multiprocessing.get_context("fork").Process(
            target=_serve, args=(listener, grammar, answer), daemon=True
        )
        process.start()
        with socket.create_connection(listener.getsockname()) as connection:
            yield connection
    process.join()


def _serve(listener: socket.socket, grammar: Grammar, answer: Answer) -> None:
    connection, _ = listener.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with connection:
        while (received := grammar.read(connection)) is not None:
            request, body = received
            connection.sendall(grammar.write(request, answer(body)))


def _repeat(connection: socket.socket, message: bytes) -> None:
    for _ in range(REQUESTS_EACH):
        _content(connection, message)


def _content(connection: socket.socket, message: bytes) -> bytes:
    """The response's content."""
    connection.sendall(message)
    received = b""
    while messages.END_OF_HEAD not in received:
        received += connection.recv(CHUNK_BYTES)
    head, _, content = received.partition(messages.END_OF_HEAD)
    assert head.startswith(b"HTTP/1.1 200 "), head
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    while len(content) < length:
        content += connection.recv(CHUNK_BYTES)
    return content


def main() -> None:
    """Measure and print."""
    for name, compared in (("scrape", scrape()), ("scheduler's call", call())):
        ours, h11s = (seconds * 1e6 for seconds in (compared.our_seconds, compared.h11_seconds))
        sys.stdout.write(f"{name}: {ours:.0f} µs, with h11 {h11s:.0f}: {compared.ratio:.2f}\n")


if __name__ == "__main__":
    main()
