# SPDX-License-Identifier: Apache-2.0
"""One client of the extender's server, and how its connection ends."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from scheduler.cluster.pod_gpu_request import Rules
from scheduler.extender.connection import Connection, Standing
from scheduler.extender.extender import Extender
from scheduler.extender.extender_limits import ExtenderLimits
from scheduler.extender.extender_metrics import ExtenderMetrics
from scheduler.extender.routes import ClientTerms, Routes
from tests.agent.agent_process import SOON, until
from tests.scheduler.extenders import cache
from tests.web.test_early_refusals import BEGINNINGS

PATIENT = ExtenderLimits(header_seconds=3600.0)
LIVEZ = b"GET /livez HTTP/1.1\r\nHost: node\r\n\r\n"
NODE = b"GET /debug/nodes/a HTTP/1.1\r\nHost: node\r\n\r\n"


class Slow(Extender):
    """One that shows a node when a test lets it."""

    def __init__(self) -> None:
        fleet, tables = cache(a={})
        super().__init__(fleet, tables, Rules(), ExtenderMetrics("1.0"))
        self.begun, self.goes_on = threading.Event(), threading.Event()

    def node(self, name: str) -> bytes:
        """See :class:`Extender`."""
        self.begun.set()
        self.goes_on.wait(SOON)
        return name.encode()


class Paused(socket.socket):
    """A socket whose reader has its bytes and not yet Python's lock, until a test lets it go on."""

    def __init__(self, plain: socket.socket) -> None:
        super().__init__(fileno=plain.detach())
        self.has_read, self.goes_on = threading.Event(), threading.Event()

    def recv(self, bufsize: int, flags: int = 0, /) -> bytes:
        """See :class:`socket.socket`."""
        received = super().recv(bufsize, flags)
        self.has_read.set()
        self.goes_on.wait(SOON)
        return received


class Client:
    """A connection that is attended to, and its other end."""

    def __init__(
        self,
        *,
        is_late: bool = False,
        has_place: bool = False,
        wrap: Callable[[socket.socket], socket.socket] = lambda plain: plain,
    ) -> None:
        self.extender = Slow()
        self.routes = Routes(ClientTerms(), self.extender, ExtenderMetrics("1.0"))
        plain, self.socket = socket.socketpair()
        self.ours = wrap(plain)
        self.socket.settimeout(SOON)
        self.asked_for_place = 0
        self.has_place = has_place
        self.connection = Connection(
            self.ours, self.routes, None, PATIENT, is_late=is_late, promote=self._promote
        )
        self.thread = threading.Thread(target=self.connection.attend, daemon=True)
        self.thread.start()

    def _promote(self, _: Connection) -> bool:
        self.asked_for_place += 1
        return self.has_place

    def rest(self) -> bytes:
        """All that is still sent, up to the end."""
        return b"".join(iter(lambda: self.socket.recv(1 << 16), b""))

    def head(self) -> bytes:
        """Of an answer, which has to be short."""
        return self.socket.recv(1 << 16).partition(b"\r\n\r\n")[0]

    def close(self) -> None:
        """Whatever it does."""
        self.extender.goes_on.set()
        self.socket.close()
        self.thread.join(SOON)
        self.routes.close()


@pytest.fixture
def client() -> Iterator[Client]:
    with contextlib.closing(Client()) as made:
        yield made


def test_a_connection_that_is_ended_amid_a_request_ends_behind_the_answer(client: Client) -> None:
    client.socket.sendall(NODE)
    assert client.extender.begun.wait(SOON)
    client.connection.end()
    client.extender.goes_on.set()
    answer = client.rest()
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"\r\nConnection: close\r\n" in answer
    assert answer.endswith(b"\r\n\r\na")


@pytest.mark.parametrize("name", BEGINNINGS)
def test_what_can_become_no_request_is_answered_before_it_ends(client: Client, name: str) -> None:
    begun, sentence = BEGINNINGS[name]
    client.socket.sendall(begun)
    answer = client.rest()
    assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert answer.endswith(sentence + b"\n")


def test_a_request_that_was_read_while_the_connection_made_room_is_answered() -> None:
    """Nobody can see in that moment that the client is not waited for any more."""
    with contextlib.closing(Client(wrap=Paused)) as client:
        assert isinstance(client.ours, Paused)
        client.socket.sendall(LIVEZ)
        assert client.ours.has_read.wait(SOON)
        assert client.connection.awaits_client()
        client.connection.end()
        client.ours.goes_on.set()
        answer = client.rest()
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"\r\nConnection: close\r\n" in answer


def test_a_connection_that_is_ended_at_once_ends_amid_a_request(client: Client) -> None:
    client.socket.sendall(NODE)
    assert client.extender.begun.wait(SOON)
    client.connection.end(at_once=True)
    assert client.rest() == b""


def test_an_idle_connection_ends_though_it_may_finish_a_request(client: Client) -> None:
    client.socket.sendall(LIVEZ)
    assert b"Connection" not in client.head()
    until(client.connection.awaits_client)
    client.connection.end()
    assert client.rest() == b""
    client.thread.join(SOON)
    assert not client.thread.is_alive()


def test_an_idle_connection_is_kept_for_longer_than_the_schedulers_client_keeps_it(
    client: Client,
) -> None:
    """Go's http.DefaultTransport closes one after 90 seconds. Were ours the first to close, a
    request could be lost. Source: net/http's documentation, IdleConnTimeout."""
    client.socket.sendall(LIVEZ)
    client.head()
    until(client.connection.awaits_client)
    timeout = client.ours.gettimeout()
    assert timeout is not None
    assert timeout > 90


def test_one_that_came_late_may_ask_once() -> None:
    with contextlib.closing(Client(is_late=True)) as client:
        client.socket.sendall(LIVEZ + LIVEZ)
        answer = client.rest()
    assert answer.count(b"HTTP/1.1 200 OK\r\n") == 1
    assert b"\r\nConnection: close\r\n" in answer


def test_who_takes_long_to_ask_makes_room_after_ten_ticks_and_who_is_idle_at_once(
    client: Client,
) -> None:
    assert [client.connection.is_stalled() for _ in range(10)] == [False] * 9 + [True]
    client.socket.sendall(LIVEZ)
    client.head()
    until(client.connection.awaits_client)
    assert client.connection.is_idle
    assert client.connection.is_stalled()


def test_a_client_that_sends_something_has_its_ticks_again(client: Client) -> None:
    for _ in range(9):
        client.connection.is_stalled()
    client.socket.sendall(LIVEZ[:10])
    until(lambda: not client.connection.is_stalled())


def test_a_request_that_is_allowed_counts_for_its_client(client: Client) -> None:
    before, found = time.monotonic(), []
    for request in (
        LIVEZ,
        b"POST /prioritize HTTP/1.1\r\nHost: node\r\nContent-Length: 0\r\n\r\n",
        LIVEZ,
    ):
        client.socket.sendall(request)
        client.head()
        until(client.connection.awaits_client)
        found.append(client.connection.standing)
    assert found == [Standing.GUEST, Standing.SCHEDULER, Standing.SCHEDULER]
    assert client.connection.since >= before


def test_a_client_that_makes_a_mistake_has_shown_nothing(client: Client) -> None:
    client.socket.sendall(b"GET /nowhere HTTP/1.1\r\nHost: node\r\n\r\n")
    assert client.head().startswith(b"HTTP/1.1 404 ")
    until(client.connection.awaits_client)
    assert client.connection.standing is Standing.UNKNOWN


@pytest.mark.parametrize("path", ["/prioritize", "/explain", "/debug/nodes/a", "/openapi.json"])
@pytest.mark.parametrize("has_place", [True, False])
def test_one_that_came_late_is_served_in_full_where_a_place_is_found(
    path: str, *, has_place: bool
) -> None:
    for probe in ("/livez", "/readyz", "/metrics"):
        with contextlib.closing(Client(is_late=True, has_place=False)) as client:
            client.socket.sendall(f"GET {probe} HTTP/1.1\r\nHost: node\r\n\r\n".encode())
            assert client.rest().startswith(b"HTTP/1.1 ")
            assert client.asked_for_place == 0
    with contextlib.closing(Client(is_late=True, has_place=has_place)) as client:
        client.extender.goes_on.set()
        client.socket.sendall(f"GET {path} HTTP/1.1\r\nHost: node\r\n\r\n".encode())
        head = client.head()
        assert client.asked_for_place == 1
    assert head.startswith(b"HTTP/1.1 503 ") is not has_place
    assert (b"\r\nConnection: close" in head) is not has_place
