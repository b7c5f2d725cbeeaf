# SPDX-License-Identifier: Apache-2.0
"""An HTTP server whose every answer a test writes: what a real API server will not do on demand."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from tests.controlplane.pki import Credential

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What arrived."""

    method: str
    path: str
    """With its query."""
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What goes back."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b"{}"
    lines: Iterable[bytes] | None = None
    """Sent one by one as chunks instead of a body, as a watch is."""
    cut: bool = False
    """Close the connection where the answer, or the last chunk, would come."""


def answer(content: object, status: int = 200, **headers: str) -> Reply:
    """A reply of JSON; ``_`` in a header's name stands for the dash."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status=status, headers=named, body=json.dumps(content).encode())


def status(code: int, message: str, reason: str = "", **headers: str) -> Reply:
    """A failure as API servers word it."""
    said = {"kind": "Status", "code": code, "message": message, "reason": reason}
    return answer(said, code, **headers)


def stream(*messages: object) -> Reply:
    """A watch that tells these and ends."""
    return Reply(lines=[json.dumps(message).encode() + b"\n" for message in messages])


class ScriptedServer:
    """Serves ``script`` in threads while its block lasts; ``requests`` are all that arrived."""

    def __init__(
        self, script: Callable[[Request], Reply], credential: Credential | None = None
    ) -> None:
        """``credential``: its certificate, None for plain HTTP."""
        self.requests: list[Request] = []
        self.script = script
        self._context: ssl.SSLContext | None = None
        self._server = _Server((LOOPBACK, 0), _handler(self))
        self.port: int = self._server.server_address[1]
        self.url = f"{'https' if credential else 'http'}://{LOOPBACK}:{self.port}"
        if credential is not None:
            self.certify(credential)

    def certify(self, credential: Credential) -> None:
        """Show this certificate to whoever connects from now on."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(credential.certificate_file, credential.key_file)
        self._server.context = context

    def cut(self) -> None:
        """Close all idle and open connections."""
        self._server.cut()

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self.cut()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    context: ssl.SSLContext | None = None

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._open: set[socket.socket] = set()

    def get_request(self) -> tuple[socket.socket, Any]:
        """The next connection, in TLS where there is a certificate."""
        connection, peer = super().get_request()
        if self.context is not None:
            # the handshake itself runs in the connection's own thread, at its first read
            connection = self.context.wrap_socket(
                connection, server_side=True, do_handshake_on_connect=False
            )
        self._open.add(connection)
        return connection, peer

    def shutdown_request(self, request: Any) -> None:
        """One connection is over."""
        self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no news."""

    def cut(self) -> None:
        """End all connections."""
        for connection in list(self._open):
            self.shutdown_request(connection)


def _handler(owner: ScriptedServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            request = Request(
                method=self.command,
                path=self.path,
                headers=dict(self.headers),
                body=self.rfile.read(length),
            )
            owner.requests.append(request)
            self._send(owner.script(request))

        def _send(self, reply: Reply) -> None:
            self.close_connection = reply.cut
            if reply.cut and reply.lines is None:
                return
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            if reply.lines is None:
                self.send_header("Content-Length", str(len(reply.body)))
                self.end_headers()
                self.wfile.write(reply.body)
                return
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for line in reply.lines:
                self._chunk(line)
            if not reply.cut:
                self._chunk(b"")

        def _chunk(self, data: bytes) -> None:
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            self.wfile.flush()

        do_GET = do_POST = do_PATCH = _serve  # noqa: N815  # http.server's names

        def log_message(self, *_: object) -> None:
            """Nothing on stderr."""

    return Handler
