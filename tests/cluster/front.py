# SPDX-License-Identifier: Apache-2.0
"""What stands in an extender's place: it sees every call of the scheduler and answers as told."""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.served import answering

HOST = "127.0.0.1"
PATIENCE_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """Files of one side: its certificate and key, and the authority that it trusts."""

    certificate: Path
    key: Path
    authority: Path

    def context(self, purpose: ssl.Purpose) -> ssl.SSLContext:
        """For CLIENT_AUTH a server that insists on clients' certificates, else a client."""
        made = ssl.create_default_context(purpose, cafile=str(self.authority))
        made.load_cert_chain(self.certificate, self.key)
        if purpose is ssl.Purpose.CLIENT_AUTH:
            made.verify_mode = ssl.CERT_REQUIRED
        return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What is sent back; ``None`` in place of one drops the connection."""

    body: bytes
    status: int = http.client.OK


Answer = Callable[[str, bytes], Reply | None]
"""Path and body of a call to what is sent back."""


def silent(_path: str, _body: bytes) -> Reply | None:
    """Nobody has a score."""
    return Reply(body=b"[]")


def zeros(_path: str, body: bytes) -> Reply | None:
    """A 0 for each name."""
    names = json.loads(body)["NodeNames"]
    return Reply(body=json.dumps([{"Host": name, "Score": 0} for name in names]).encode())


class Front:
    """An HTTPS server that only clients with a certificate reach."""

    def __init__(self, keys: Keys, answer: Answer) -> None:
        self.answer = answer
        """May be changed at any time."""
        self.calls: list[dict[str, Any]] = []
        """The scheduler's calls that came whole, as they were sent; oldest first."""
        self.replies: list[bytes] = []
        """What was sent back."""
        self.clients: list[int] = []
        """The serial number of the certificate that came with each."""
        self.address = ""
        self._keys = keys

    @contextlib.contextmanager
    def serving(self) -> Iterator[str]:
        """Its address while the block lasts."""
        server = _Server((HOST, 0), self._handler())
        server.context = self._keys.context(ssl.Purpose.CLIENT_AUTH)
        self.address = f"https://{HOST}:{server.server_port}"
        with answering(server):
            yield self.address

    def called_for(self, pod: str) -> bool:
        """Whether the scheduler has asked about a pod of this name."""
        return any(call["Pod"]["metadata"]["name"] == pod for call in self.calls)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        front = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                front.calls.append(json.loads(body))
                front.clients.append(_serial(self.connection))
                reply = front.answer(self.path, body)
                if reply is None:
                    self.close_connection = True
                    return
                front.replies.append(reply.body)
                self.send_response(reply.status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(reply.body)))
                self.end_headers()
                self.wfile.write(reply.body)

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        return Handler


def forwarded(port: int, keys: Keys, server_name: str) -> Answer:
    """What the extender at this port says, asked with that side's certificate."""
    context = keys.context(ssl.Purpose.SERVER_AUTH)

    def ask(path: str, body: bytes) -> Reply | None:
        connection = Connection(port, context, server_name)
        with contextlib.closing(connection):
            connection.request("POST", path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            return Reply(body=response.read(), status=response.status)

    return ask


def _serial(connection: ssl.SSLSocket) -> int:
    shown = connection.getpeercert()
    assert shown is not None
    return int(str(shown["serialNumber"]), 16)


class Connection(http.client.HTTPSConnection):
    """To a server on loopback whose certificate has another name."""

    def __init__(self, port: int, context: ssl.SSLContext, server_name: str) -> None:
        super().__init__(HOST, port, context=context, timeout=PATIENCE_SECONDS)
        self._tls, self._server_name = context, server_name

    def connect(self) -> None:
        http.client.HTTPConnection.connect(self)
        self.sock = self._tls.wrap_socket(self.sock, server_hostname=self._server_name)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    context: ssl.SSLContext

    def get_request(self) -> tuple[Any, Any]:
        """The handshake is left to the connection's own thread."""
        accepted, address = super().get_request()
        wrapped = self.context.wrap_socket(
            accepted, server_side=True, do_handshake_on_connect=False
        )
        return wrapped, address

    def handle_error(self, *_: Any) -> None:
        """Say nothing: connections are broken on purpose."""
