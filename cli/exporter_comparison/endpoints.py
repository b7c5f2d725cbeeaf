# SPDX-License-Identifier: Apache-2.0
"""Sources of expositions, which are an address, a file or standard input; read within limits.

A server may be slow, greedy or no exporter at all: reading has one deadline from connecting to the
last byte, a limit of bytes, and follows no redirect.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import re
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urlsplit

from base.errors import BadInput, Unreadable

MIB = 1 << 20
MOST_BYTES = 64 * MIB

_PORTS = {"http": 80, "https": 443}
_CHUNK_BYTES = 1 << 16
_ADDRESS = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+):\d{1,5}(?:/\S*)?")
_PRINTABLE = re.compile(r"[!-~]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointAccess:
    """Credentials and TLS settings for one endpoint."""

    authorization: str | None = None
    """Value of the header, which is sent to this endpoint alone."""
    ca_file: Path | None = None
    insecure: bool = False
    """The server's certificate is not checked."""


def side_access(
    side: str,
    *,
    user: str | None,
    password_file: Path | None,
    token_file: Path | None,
    ca_file: Path | None,
    insecure: bool,
) -> EndpointAccess:
    """The access to one side by its options. Raises BadInput where they contradict each other."""
    if token_file is not None and user is not None:
        raise BadInput(f"--{side}-token-file and --{side}-user exclude each other: give one")
    if (user is None) is not (password_file is None):
        raise BadInput(f"--{side}-user and --{side}-password-file go together: give both")
    if ca_file is not None and insecure:
        raise BadInput(f"--{side}-ca-file and --{side}-insecure exclude each other: give one")
    authorization = None
    if token_file is not None:
        authorization = f"Bearer {_secret(f'--{side}-token-file', token_file)}"
        if not _PRINTABLE.fullmatch(authorization.partition(" ")[2]):
            raise BadInput(f"--{side}-token-file: {token_file} holds no token: one line of text")
    elif user is not None and password_file is not None:
        pair = f"{user}:{_secret(f'--{side}-password-file', password_file)}"
        authorization = f"Basic {base64.b64encode(pair.encode()).decode()}"
    return EndpointAccess(authorization=authorization, ca_file=ca_file, insecure=insecure)


def _secret(option: str, path: Path) -> str:
    try:
        return path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise BadInput(f"{option}: cannot read {path}: {reason}") from error


Read = Callable[[float], bytes]
"""Reads a source once, within so many seconds. Raises Unreadable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpositionSource:
    """A source of expositions: an endpoint, a file or standard input."""

    name: str
    """Name of the source in output: the path, the URL, or ``standard input``."""
    is_live: bool
    """Another reading may give other values."""
    read: Read


def exposition_source(
    text: str, endpoint_access: EndpointAccess, most_bytes: int = MOST_BYTES
) -> ExpositionSource:
    """The source that ``text`` names: ``-``, a file, a URL or ``host:port``. Raises BadInput."""
    if text == "-":
        body = _ReadOnce(lambda: _all_of(sys.stdin.buffer, most_bytes))
        return ExpositionSource(name="standard input", is_live=False, read=lambda _: body())
    if "://" not in text and Path(text).exists():
        path = Path(text)
        return ExpositionSource(name=text, is_live=False, read=lambda _: _file(path, most_bytes))
    if "://" not in text and _ADDRESS.fullmatch(text) is None:
        raise BadInput(f"{text!r}: there is no such file, and it is no address such as node:9400")
    endpoint = Endpoint(text if "://" in text else f"http://{text}", endpoint_access, most_bytes)
    return ExpositionSource(name=endpoint.url, is_live=True, read=endpoint.read)


class _ReadOnce:
    """Standard input, which can be read once."""

    def __init__(self, read: Callable[[], bytes]) -> None:
        self._read = read
        self._body: bytes | None = None

    def __call__(self) -> bytes:
        if self._body is None:
            self._body = self._read()
        return self._body


def _file(path: Path, most_bytes: int) -> bytes:
    try:
        with path.open("rb") as file:
            return _all_of(file, most_bytes)
    except OSError as error:
        raise Unreadable(error.strerror or "it cannot be read") from error


def _all_of(file: BinaryIO, most_bytes: int) -> bytes:
    body = file.read(most_bytes + 1)
    if len(body) > most_bytes:
        raise Unreadable(_too_large(most_bytes))
    return body


class Endpoint:
    """An address that serves an exposition."""

    def __init__(self, url: str, endpoint_access: EndpointAccess, most_bytes: int) -> None:
        """Raises BadInput for an address that cannot be one."""
        self.url = url
        try:
            parts = urlsplit(url)
            port = parts.port or _PORTS.get(parts.scheme, 0)
        except ValueError as error:
            raise BadInput(f"{url!r} is no address: {error}") from error
        if parts.username is not None:
            raise BadInput("an address may hold no user: give --left-user or --right-user")
        if parts.scheme not in _PORTS or not parts.hostname:
            raise BadInput(f"{url!r} is no address such as http://node:9400/metrics")
        path = parts.path or "/metrics"
        if not _PRINTABLE.fullmatch(path + parts.query):
            raise BadInput(f"{url!r}: blanks and other than ASCII text are written as %20")
        self.url = f"{parts.scheme}://{parts.netloc}{path}"
        self._where = (parts.hostname, port)
        self._target = f"{path}?{parts.query}" if parts.query else path
        self._access = endpoint_access
        self._most_bytes = most_bytes
        self._tls = self._context() if parts.scheme == "https" else None

    def _context(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(
                cafile=None if self._access.ca_file is None else str(self._access.ca_file)
            )
        except (OSError, ssl.SSLError) as error:
            reason = error.strerror or "it holds no certificate"
            raise BadInput(f"cannot use {self._access.ca_file}: {reason}") from error
        if self._access.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    def read(self, within_seconds: float) -> bytes:
        """The body of one answer. Raises Unreadable."""
        exchange = _Exchange(self._connection(within_seconds), self._most_bytes)
        watch = threading.Timer(within_seconds, exchange.give_up)
        watch.daemon = True
        watch.start()
        try:
            return exchange.body(self._target, self._headers())
        except Unreadable:
            raise
        except (OSError, http.client.HTTPException) as error:
            if exchange.abandoned or isinstance(error, TimeoutError):
                raise Unreadable(f"no whole answer within {within_seconds:g} s") from error
            raise Unreadable(_reason(error)) from error
        finally:
            watch.cancel()
            exchange.close()

    def _connection(self, within_seconds: float) -> http.client.HTTPConnection:
        host, port = self._where
        if self._tls is None:
            return http.client.HTTPConnection(host, port, timeout=within_seconds)
        return http.client.HTTPSConnection(host, port, timeout=within_seconds, context=self._tls)

    def _headers(self) -> Mapping[str, str]:
        headers = {
            "Accept": "text/plain; version=0.0.4",
            "Accept-Encoding": "identity",  # nothing that unpacks to more than it weighs
            "User-Agent": "gpuscape-compare",
            "Connection": "close",
        }
        if self._access.authorization is not None:
            headers["Authorization"] = self._access.authorization
        return headers


class _Exchange:
    """A request and its response, which another thread may give up."""

    def __init__(self, connection: http.client.HTTPConnection, most_bytes: int) -> None:
        self._connection = connection
        self._most_bytes = most_bytes
        self.abandoned = False

    def body(self, target: str, headers: Mapping[str, str]) -> bytes:
        self._connection.request("GET", target, headers=headers)
        response = self._connection.getresponse()
        if response.status != http.HTTPStatus.OK:
            raise Unreadable(_refusal(response))
        if response.getheader("Content-Encoding", "identity") != "identity":
            raise Unreadable("it answers compressed, though the request does not accept that")
        body = bytearray()
        while chunk := response.read1(_CHUNK_BYTES):
            body += chunk
            if len(body) > self._most_bytes:
                raise Unreadable(_too_large(self._most_bytes))
        if self.abandoned:  # the end that was read is our own doing
            raise TimeoutError
        if response.length:  # read1 ends quietly where the connection does
            raise Unreadable(f"its answer ends {response.length} bytes too early")
        return bytes(body)

    def give_up(self) -> None:
        """End the wait of the thread that waits for the server."""
        self.abandoned = True
        sock = self._connection.sock
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._connection.close()


def _too_large(most_bytes: int) -> str:
    return f"more than {most_bytes / MIB:g} MiB: no exposition is read beyond --max-size"


def _refusal(response: http.client.HTTPResponse) -> str:
    status = f"{response.status} {response.reason[:40]!r}"
    if response.status in (401, 403):
        return f"it answers {status}: give a token or a user with its password"
    if 300 <= response.status < 400:
        location = (response.getheader("Location") or "")[:200]
        return (
            f"it answers {status} and points to {location!r}: give the address that serves metrics"
        )
    return f"it answers {status}"


def _reason(error: Exception) -> str:
    match error:
        case ssl.SSLCertVerificationError():
            return f"its certificate is not trusted: {error.verify_message}; name its authority"
        case ssl.SSLError():
            return f"TLS fails: {error.reason or error}; is it served over plain http?"
        case socket.gaierror():
            return "no such host"
        case OSError():
            return error.strerror or str(error) or type(error).__name__
        case http.client.HTTPException():
            return f"it does not speak HTTP: {type(error).__name__}"
        case _:
            return f"unexpected {type(error).__name__}"
