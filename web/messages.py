# SPDX-License-Identifier: Apache-2.0
"""HTTP as our servers speak it: limits for clients, requests and answers.

Values and text only; the sockets are elsewhere. HTTP/1.1 with keep-alive; request bodies only
where a route wants them, and never in chunks: what scrapers, probes, browsers and Go's clients
need, and nothing a stranger could abuse. Source of the grammar: RFC 9110 and RFC 9112.
"""

from __future__ import annotations

import html
import re
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus

from base.text.safe_text import safe_line

TEXT = "text/plain; charset=utf-8"
READS = "GET, HEAD"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
END_OF_HEAD = b"\r\n\r\n"
_GZIP_LEVEL = 1  # a third of the time of 6, for a quarter more bytes
_GZIP_WINDOW_BITS = 31  # 15, and 16 for gzip's header and checksum
_WORTH_COMPRESSING_BYTES = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """Limits of all our servers: connections, and seconds and bytes for each client."""

    connections: int = 96
    """Connections that are served at once; for one more, the slowest client's is closed."""
    waiting: int = 2048
    """Accepted connections without a place: those that have sent nothing yet, and a queue of the
    others. When all of these have sent something, further connections wait in the kernel."""
    queue_seconds: float = 5.0
    """From a new connection's first byte to its place."""
    header_bytes: int = 8192
    """Request line and headers together."""
    header_seconds: float = 5.0
    """From the first byte to the end of the headers, and to the first byte of a new connection."""
    idle_seconds: float = 75.0
    """Between two requests; longer than a minute, the longest scrape interval in common use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits(ConnectionLimits):
    """Limits of a server of metrics; without a place in time a client is answered with 503."""

    request_seconds: float = 10.0
    """From the first byte until the client has taken the whole answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """An HTTP request: method, path and the headers that our servers use."""

    method: str
    """GET or HEAD where no bodies are taken."""
    path: str
    """Path without the query, as the client wrote it."""
    gzip: bool = False
    """The client takes gzip."""
    keep_alive: bool = True
    authorization: str = ""
    """The header ``Authorization``, as the client wrote it."""
    length: int = 0
    """Bytes of the body that follows the head."""
    encoding: str = ""
    """``Content-Encoding`` of the body."""
    waits: bool = False
    """The client sends the body after the interim answer :data:`CONTINUE`."""


class Body:
    """Bytes that are served often: compressed once, at the first request with gzip.

    Threads that need them at the same time may compress twice, and get equal bytes.
    """

    __slots__ = ("_compressed", "_compressor", "plain")

    def __init__(self, plain: bytes) -> None:
        self.plain = plain
        self._compressed = b""
        self._compressor: zlib._Compress | None = None

    def gzipped(self, tail: bytes = b"") -> bytes:
        """The bytes and ``tail`` as one gzip member.

        The compressor is kept as it was after the bytes, so that a tail costs microseconds.
        """
        if self._compressor is None:
            compressor = zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, _GZIP_WINDOW_BITS)
            self._compressed = compressor.compress(self.plain)
            self._compressor = compressor
        rest = self._compressor.copy()
        return self._compressed + rest.compress(tail) + rest.flush()


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """An HTTP answer: status, headers and body."""

    body: Body
    tail: bytes = b""
    """Bytes after the body that are only known when the request comes."""
    status: HTTPStatus = HTTPStatus.OK
    content_type: str = TEXT
    compress: bool = True
    """The content is compressed where the client takes gzip and it is large enough."""
    allow: str = READS
    """Methods of the path, listed in the answer 405."""
    retry_seconds: int | None = None
    """Seconds until a client may ask again: ``Retry-After``."""

    def message(
        self,
        request: HttpRequest | None,
        unix_seconds: float,
        more: Iterable[tuple[str, str]] = (),
    ) -> list[bytes]:
        """The bytes of the answer in pieces: head and content.

        ``request`` is None where it could not be understood; the connection ends then.
        ``more`` are further headers.
        """
        length = len(self.body.plain) + len(self.tail)
        gzip = self.compress and length >= _WORTH_COMPRESSING_BYTES
        gzip = gzip and request is not None and request.gzip
        content = [self.body.gzipped(self.tail)] if gzip else [self.body.plain, self.tail]
        headers = {
            "Date": _date(int(unix_seconds)),
            "Content-Type": self.content_type,
            "Content-Length": str(sum(map(len, content))),
            "Vary": "Accept-Encoding",
            "X-Content-Type-Options": "nosniff",
        }
        headers.update(more)
        if gzip:
            headers["Content-Encoding"] = "gzip"
        if self.status is HTTPStatus.METHOD_NOT_ALLOWED:
            headers["Allow"] = self.allow
        if self.retry_seconds is not None:
            headers["Retry-After"] = str(self.retry_seconds)
        if self.status is HTTPStatus.UNAUTHORIZED:
            headers["WWW-Authenticate"] = 'Basic realm="gpuscape", charset="UTF-8"'
        if request is None or not request.keep_alive:
            headers["Connection"] = "close"
        lines = [f"HTTP/1.1 {self.status} {self.status.phrase}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        head = "\r\n".join([*lines, "", ""]).encode("latin-1")
        return [head] if request is not None and request.method == "HEAD" else [head, *content]


class Refusal(Exception):
    """A request is refused: with a status, and the reason in a sentence."""

    def __init__(self, status: HTTPStatus, reason: str, *, allow: str = READS) -> None:
        """``allow``: methods of the path, listed in the answer 405."""
        super().__init__(reason)
        body = Body(f"{safe_line(reason)}\n".encode())
        self.response = Response(body=body, status=status, allow=allow)


NO_ROOM = Response(
    body=Body(b"The server has too many clients; try again later.\n"),
    status=HTTPStatus.SERVICE_UNAVAILABLE,
    retry_seconds=5,
)
"""The answer to a client without a place; its connection ends."""


@lru_cache(maxsize=1)
def _date(unix_seconds: int) -> str:
    return formatdate(unix_seconds, usegmt=True)


def text_response(sentence: str, status: HTTPStatus = HTTPStatus.OK) -> Response:
    """An answer with one line of plain text."""
    return Response(body=Body(f"{safe_line(sentence)}\n".encode()), status=status)


def probe(good: bool) -> Response:
    """The answer of ``/livez`` and ``/readyz``."""
    return text_response("ok") if good else text_response("not yet", HTTPStatus.SERVICE_UNAVAILABLE)


def health(fault: str) -> Response:
    """The answer of ``/health`` on the port of the metrics: dcgm-exporter's text, or a fault."""
    return (
        text_response(fault, HTTPStatus.SERVICE_UNAVAILABLE)
        if fault
        else Response(body=Body(b"OK"))
    )


def link_page(title: str, paths: Iterable[str]) -> Response:
    """A page for people who open the address in a browser."""
    links = "".join(
        f'<li><a href="{html.escape(path)}">{html.escape(path)}</a></li>' for path in paths
    )
    page = (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{html.escape(title)}</title>"
        f"<h1>{html.escape(title)}</h1><ul>{links}</ul></html>\n"
    )
    return Response(body=Body(page.encode()), content_type="text/html; charset=utf-8")


_REQUEST_LINE = re.compile(r"([A-Z]+) (/[!-~]*|(?i:https?)://[!-.0->@-~][!-~]*) HTTP/1\.([01])")
"""Method, target and minor version. Only the two forms of a target that name a path match."""
_NO_REQUEST_LINE = "The first line is no HTTP/1 request for a path."
_TLS_HANDSHAKE = b"\x16"
"""Type of a client's first record. Source: RFC 8446, 5.1."""
_BARE_LINE_FEED = re.compile(rb"(?<!\r)\n")
_LENGTH = re.compile(r"[0-9]{1,15}")
_NAME = r"(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*"
_LITERAL = r"\[[0-9A-Za-z.:_~!$&'()*+,;=-]+\]"
_HOST = re.compile(rf"(?:{_NAME}|{_LITERAL})(?::[0-9]*)?")
"""A name or an address, and a port; it may be empty. Source: RFC 3986, 3.2.2."""
_HEADER = re.compile(r"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([^\x00\r\n]*)")


def read_request(head: bytes, *, bodies: bool = False) -> HttpRequest:
    """Parse the head of a request, up to and with the empty line. Raises Refusal.

    With ``bodies`` any method is read, and a body is allowed with a Content-Length.
    """
    first, *lines = head.decode("latin-1").removesuffix(END_OF_HEAD.decode()).split("\r\n")
    line = _REQUEST_LINE.fullmatch(first)
    if line is None:
        raise Refusal(HTTPStatus.BAD_REQUEST, _NO_REQUEST_LINE)
    headers = _headers(lines)
    method, target, minor = line.groups()
    if minor == "1" and "host" not in headers:
        raise Refusal(HTTPStatus.BAD_REQUEST, "HTTP/1.1 needs the header Host.")
    if not bodies and method not in ("GET", "HEAD"):
        raise Refusal(HTTPStatus.METHOD_NOT_ALLOWED, "Only GET and HEAD are served.")
    return HttpRequest(
        method=method,
        path=_path(target),
        gzip=_takes_gzip(headers.get("accept-encoding", "")),
        keep_alive=minor == "1" and "close" not in _tokens(headers.get("connection", "")),
        authorization=headers.get("authorization", ""),
        length=_length(headers, bodies=bodies),
        encoding=headers.get("content-encoding", ""),
        waits=headers.get("expect", "").lower() == "100-continue",
    )


def end_of_head(received: bytes, max_bytes: int) -> int | None:
    """The index behind a request's head; None while it is not whole. Raises Refusal, early too."""
    end = received.find(END_OF_HEAD, 0, max_bytes)
    if end >= 0:
        return end + len(END_OF_HEAD)
    if len(received) >= max_bytes:
        status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
        raise Refusal(status, f"The headers are longer than {max_bytes} bytes.")
    refuse_early(received)
    return None


def refuse_early(begun: bytes) -> None:
    """Raises Refusal for the beginning of a head that cannot become a request, without waiting.

    A line that ends without a carriage return may be taken or refused (RFC 9112, 2.2). A server
    that reads it otherwise than the proxy in front of it is a way around the proxy.
    """
    if begun.startswith(_TLS_HANDSHAKE):
        raise Refusal(HTTPStatus.BAD_REQUEST, "This port serves http, and TLS was spoken.")
    if begun and not begun[:1].isupper():
        raise Refusal(HTTPStatus.BAD_REQUEST, _NO_REQUEST_LINE)
    if _BARE_LINE_FEED.search(begun):
        raise Refusal(HTTPStatus.BAD_REQUEST, "A line ends without a carriage return.")


def _path(target: str) -> str:
    """The path of a target: without query, and without the host that a proxy's client sends.

    Source: RFC 9112, 3.2.2.
    """
    path = target.partition("?")[0]
    return path if path.startswith("/") else "/" + path.partition("://")[2].partition("/")[2]


def _length(headers: Mapping[str, str], *, bodies: bool) -> int:
    """The body's length in bytes. Raises Refusal."""
    length = headers.get("content-length", "0")
    if not bodies and ("transfer-encoding" in headers or length != "0"):
        raise Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "No request bodies are taken.")
    if "transfer-encoding" in headers:
        raise Refusal(HTTPStatus.LENGTH_REQUIRED, "Bodies are taken with a Content-Length only.")
    if _LENGTH.fullmatch(length) is None:
        raise Refusal(HTTPStatus.BAD_REQUEST, "Content-Length is no number of bytes.")
    return int(length)


def _headers(lines: Iterable[str]) -> Mapping[str, str]:
    """Headers by lower-case name; repeated ones are joined to a list. Raises Refusal.

    Source: RFC 9112, 3.2, on Host.
    """
    headers: dict[str, str] = {}
    for line in lines:
        match = _HEADER.fullmatch(line)
        if match is None:
            raise Refusal(HTTPStatus.BAD_REQUEST, "A line of the headers is not name: value.")
        name, value = match[1].lower(), match[2].rstrip(" \t")
        if name == "host" and (name in headers or _HOST.fullmatch(value) is None):
            raise Refusal(HTTPStatus.BAD_REQUEST, "Host is to stand once, as a name and a port.")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def _tokens(text: str) -> list[str]:
    return [token.strip().lower() for token in text.split(",")]


def _takes_gzip(accepted: str) -> bool:
    """Whether ``Accept-Encoding`` names gzip with a weight over zero. Source: RFC 9110, 12.5.3."""
    for token in _tokens(accepted):
        coding, _, weight = token.partition(";")
        if coding.strip() == "gzip":
            return re.fullmatch(r"\s*q=0(\.0*)?\s*", weight) is None
    return False
