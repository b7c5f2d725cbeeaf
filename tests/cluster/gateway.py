# SPDX-License-Identifier: Apache-2.0
"""A way to the API server on which a test sees every request, and may stop it on either side."""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.controlplane.plane import Plane
from tests.served import answering

CHUNK_BYTES = 64 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """One request that changes something: neither a reading one nor a dry run."""

    method: str
    resource: str
    """Plural, as in the path."""
    number: int
    """Counted from 1, of those that do this to this kind, in order of arrival."""


class Stopped(Exception):  # no error: what a hook raises to drop the connection
    """Drop the connection without a word."""


Hook = Callable[[Effect], None]
"""Runs at an effect; may raise :class:`Stopped`."""


class Gateway:
    """Plain HTTP on loopback, forwarded with the caller's own token."""

    def __init__(self, plane: Plane) -> None:
        self._port = plane.port
        self._trust = ssl.create_default_context(cafile=plane.ca_file)
        self._lock = threading.Lock()
        self._seen: Counter[tuple[str, str]] = Counter()
        self.before: Hook = lambda _effect: None
        self.after: Hook = lambda _effect: None
        """Runs once the server has answered, before its answer is passed on."""

    @contextlib.contextmanager
    def serving(self) -> Iterator[str]:
        """Its address while the block lasts."""
        server = _Server(("127.0.0.1", 0), self._handler())
        with answering(server):
            yield f"http://127.0.0.1:{server.server_port}"

    def kubeconfig(self, address: str, token: str, file: Path) -> Path:
        """Write a kubeconfig that leads here as whoever the token is."""
        named = {"name": "gateway"}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{**named, "cluster": {"server": address}}],
            "users": [{**named, "user": {"token": token}}],
            "contexts": [{**named, "context": {"cluster": "gateway", "user": "gateway"}}],
            "current-context": "gateway",
        }
        file.write_text(json.dumps(content), encoding="utf-8")
        return file

    def effect(self, method: str, target: str) -> Effect | None:
        """Count a request that changes something."""
        parts = urlsplit(target)
        if method == "GET" or "dryRun" in parse_qs(parts.query):
            return None
        kind = method, _resource(method, parts.path)
        with self._lock:
            self._seen[kind] += 1
            return Effect(method=kind[0], resource=kind[1], number=self._seen[kind])

    def upstream(self) -> http.client.HTTPSConnection:
        """A connection to the API server."""
        return http.client.HTTPSConnection("127.0.0.1", self._port, context=self._trust)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        gateway = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._forward()

            def do_POST(self) -> None:
                self._forward()

            def do_PATCH(self) -> None:
                self._forward()

            def _forward(self) -> None:
                self.close_connection = True
                effect = gateway.effect(self.command, self.path)
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                with contextlib.suppress(Stopped, OSError, http.client.HTTPException):
                    if effect is not None:
                        gateway.before(effect)
                    with contextlib.closing(gateway.upstream()) as upstream:
                        upstream.request(self.command, self.path, body or None, self._sent())
                        answer = upstream.getresponse()
                        if effect is not None:
                            gateway.after(effect)
                        self._pass_on(answer)

            def _sent(self) -> dict[str, str]:
                kept = ("Accept", "Authorization", "Content-Type", "User-Agent")
                return {name: self.headers[name] for name in kept if name in self.headers}

            def _pass_on(self, answer: http.client.HTTPResponse) -> None:
                self.send_response(answer.status)
                for name in ("Content-Type", "Retry-After"):
                    if value := answer.getheader(name):
                        self.send_header(name, value)
                self.send_header("Connection", "close")
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                while data := answer.read1(CHUNK_BYTES):
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
                self.wfile.write(b"0\r\n\r\n")

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        return Handler


def _resource(method: str, path: str) -> str:
    """What is made or changed: a POST goes to the collection, a PATCH to an object of it."""
    return path.split("/")[-1 if method == "POST" else -2]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
