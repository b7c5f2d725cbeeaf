# SPDX-License-Identifier: Apache-2.0
"""Servers on this machine that serve expositions from a script, or misbehave."""

from __future__ import annotations

import contextlib
import itertools
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

CHUNK = b'x{a="1"} 1\n' * 6000

Answer = Callable[["Handler"], None]
"""Does all that the server does for one request."""


class Handler(BaseHTTPRequestHandler):
    """Leaves the answer to the script."""

    server: ScriptedServer

    def do_GET(self) -> None:  # the name that http.server calls
        self.server.asked.append(dict(self.headers))
        self.server.paths.append(self.path)
        with contextlib.suppress(OSError):  # the client has had enough
            self.server.answer(self)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # http.server's signature
        """Say nothing."""


class ScriptedServer(ThreadingHTTPServer):
    """One endpoint."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, answer: Answer) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer = answer
        self.asked: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.ending = threading.Event()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that end early are part of the play."""


@contextlib.contextmanager
def serving(answer: Answer, tls: ssl.SSLContext | None = None) -> Iterator[ScriptedServer]:
    """A server, ended at the end."""
    with ScriptedServer(answer) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.ending.set()
            server.shutdown()
            thread.join()


def bodies(*all_of_them: str | bytes) -> Answer:
    """One after the other, the last again and again."""
    script: Sequence[bytes] = [it if isinstance(it, bytes) else it.encode() for it in all_of_them]
    numbers = itertools.chain(script, itertools.repeat(script[-1]))

    def answer(handler: Handler) -> None:
        body = next(numbers)
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def status(code: int, **headers: str) -> Answer:
    """No exposition."""

    def answer(handler: Handler) -> None:
        handler.send_response(code)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()

    return answer


def hanging(handler: Handler) -> None:
    """Never answer."""
    handler.server.ending.wait()


def dripping(handler: Handler) -> None:
    """A byte now and then, for ever."""
    handler.send_response(200)
    handler.end_headers()
    while not handler.server.ending.wait(0.02):
        handler.wfile.write(b"#")
        handler.wfile.flush()


def slow_headers(handler: Handler) -> None:
    """Headers without an end, of which something always comes in time."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    while not handler.server.ending.wait(0.02):
        handler.wfile.write(b"#")
        handler.wfile.flush()


def cut_off(handler: Handler) -> None:
    """Promise more than comes."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b"x 1\n")


def endless(handler: Handler) -> None:
    """A gigabyte, and more."""
    handler.send_response(200)
    handler.end_headers()
    while not handler.server.ending.is_set():
        handler.wfile.write(CHUNK)
