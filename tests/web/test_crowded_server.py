# SPDX-License-Identifier: Apache-2.0
"""The server with more clients than places: who goes first, and what a client sees that goes."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.web.secured import TLS, Site, refused
from web import served_client
from web.address import Address
from web.messages import Body, Response, ServerLimits, text_response
from web.refusals import RefusalReason
from web.server import HttpServer

LIVEZ = b"GET /livez HTTP/1.1\r\nHost: node\r\n\r\n"
GET_LARGE = b"GET /large HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n"
LARGE = b"x" * (16 << 20)
"""More than the kernel's buffers on both sides hold."""
MEGABYTE = bytes(range(256)) * (1 << 12)


class Blocking:
    """A server one of whose routes keeps all others waiting, as no route of ours does.

    Meanwhile connections come and clients send, and the server learns of all that at once.
    """

    def __init__(self, limits: ServerLimits) -> None:
        self.entered, self.released = threading.Event(), threading.Event()
        routes = {
            "/livez": lambda: text_response("ok"),
            "/large": lambda: Response(body=Body(LARGE)),
            "/megabyte": lambda: Response(body=Body(MEGABYTE)),
            "/block": self._block,
        }
        self.server = HttpServer(Address(host="127.0.0.1", port=0), routes, limits)
        self.server.start()

    def _block(self) -> Response:
        self.entered.set()
        self.released.wait()
        return text_response("late")

    def connect(self) -> socket.socket:
        """A new connection."""
        return socket.create_connection(("127.0.0.1", self.server.address.port), timeout=60)


@contextlib.contextmanager
def blocking(limits: ServerLimits) -> Iterator[Blocking]:
    """One that is stopped at the end."""
    made = Blocking(limits)
    try:
        yield made
    finally:
        made.released.set()
        made.server.stop(within_seconds=0)


def answer(client: socket.socket) -> tuple[int, bytes]:
    """Status and content of the next answer. Raises an HTTPException where it is not whole."""
    with contextlib.closing(http.client.HTTPResponse(client)) as response:
        response.begin()
        return response.status, response.read()


def test_idle_connections_go_before_one_that_is_being_answered() -> None:
    limits = ServerLimits(connections=4, header_seconds=60, request_seconds=60)
    with blocking(limits) as site, contextlib.ExitStack() as opened:
        reading = opened.enter_context(site.connect())
        reading.sendall(GET_LARGE)
        reading.recv(1, socket.MSG_PEEK)
        for _ in range(12):  # nine lose their places, one after the other
            idle = opened.enter_context(site.connect())
            idle.sendall(LIVEZ)
            assert answer(idle) == (200, b"ok\n")

        assert answer(reading) == (200, LARGE)


def test_a_silent_connection_that_has_just_sent_a_request_makes_room_for_nobody() -> None:
    with (
        blocking(ServerLimits(connections=8, waiting=1)) as site,
        site.connect() as first,
        contextlib.ExitStack() as opened,
    ):
        first.sendall(LIVEZ)
        answer(first)
        silent = opened.enter_context(site.connect())
        first.sendall(LIVEZ)
        answer(first)  # by now the silent one is accepted
        first.sendall(b"GET /block HTTP/1.1\r\nHost: node\r\n\r\n")
        site.entered.wait()
        late = opened.enter_context(site.connect())
        silent.sendall(LIVEZ)
        site.released.set()

        assert answer(silent) == (200, b"ok\n")
        late.sendall(LIVEZ)
        assert answer(late) == (200, b"ok\n")


def test_a_request_that_waits_for_a_place_when_the_server_stops_is_answered() -> None:
    with (
        blocking(ServerLimits(connections=1, queue_seconds=60)) as site,
        site.connect() as first,
        site.connect() as queued,
    ):
        first.sendall(b"GET /block HTTP/1.1\r\nHost: node\r\n\r\n")
        site.entered.wait()
        queued.sendall(LIVEZ)
        stopping = threading.Thread(target=site.server.stop, kwargs={"within_seconds": 60})
        stopping.start()
        site.released.set()

        assert [answer(client)[0] for client in (first, queued)] == [200, 503]
        stopping.join()


def test_a_large_answer_that_is_cut_off_is_never_taken_for_a_whole_one() -> None:
    ends, parts = Counter[str](), list[bytes]()
    with blocking(ServerLimits()) as site, contextlib.ExitStack() as opened:
        clients = [opened.enter_context(site.connect()) for _ in range(150)]
        for client in clients:
            client.sendall(b"GET /megabyte HTTP/1.1\r\nHost: node\r\n\r\n")
        for client in clients:
            client.recv(1, socket.MSG_PEEK)  # and no more until all are being answered
        for client in clients:
            try:
                status, content = answer(client)
            except http.client.IncompleteRead as error:
                ends["cut off"] += 1
                parts.append(error.partial)
            except ConnectionResetError:
                ends["cut off"] += 1
            else:
                assert status == 503 or content == MEGABYTE
                ends[f"answered with {status}"] += 1

    assert ends["cut off"] > 0
    assert all(MEGABYTE.startswith(part) for part in parts)
    assert ends["answered with 200"] > 0


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.stop()


def test_under_tls_a_connection_that_waited_in_vain_ends_and_is_counted(secured: Site) -> None:
    server = secured.start(TLS, ServerLimits(connections=1, queue_seconds=0))
    context = secured.context()
    with (
        socket.create_connection(("127.0.0.1", server.address.port), timeout=60) as raw,
        context.wrap_socket(raw, server_hostname="127.0.0.1") as first,
    ):
        first.sendall(b"GET /large HTTP/1.1\r\nHost: node\r\n\r\n")
        first.recv(1)

        assert refused(server, context)

    assert secured.refused[RefusalReason.OVERLOAD] == 1


def slow_over_tls(port: int, pause_seconds: float) -> bytes:
    """Ask once as a client that is far away: each part of the handshake takes its time."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing)
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                client.sendall(outgoing.read())
                if not (more := client.recv(1 << 16)):
                    return b""
                incoming.write(more)
                time.sleep(pause_seconds)
        tls.write(b"GET /livez HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            client.sendall(outgoing.read())
            while more := client.recv(1 << 16):
                incoming.write(more)
        with contextlib.suppress(ssl.SSLError):
            return tls.read()
    return b""


@pytest.mark.parametrize(("ticks", "answers_all"), [(4000, True), (1, False)])
def test_a_client_far_away_keeps_its_place_for_its_handshake_and_no_longer(
    secured: Site, monkeypatch: pytest.MonkeyPatch, ticks: int, answers_all: bool
) -> None:
    """Eight for two places; where a handshake may not last, only the last ones are served."""
    monkeypatch.setattr(served_client, "_HANDSHAKE_TICKS", ticks)
    port = secured.start(TLS, ServerLimits(connections=2)).address.port
    with ThreadPoolExecutor(8) as clients:
        answers = list(clients.map(slow_over_tls, [port] * 8, [0.1] * 8))

    assert all(b"200 OK" in answer for answer in answers) is answers_all
