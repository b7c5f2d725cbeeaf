"""The extender's server: what it serves to whom, and how little a bad client can do to it."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from discovery.errors import Permanent
from exporters.address import Address
from scheduler.extender import server, wire
from scheduler.extender.answers import Extender
from scheduler.extender.metrics import Metrics
from scheduler.extender.server import Server, Terms
from tests.agent.processes import SOON, until
from tests.scheduler.calls import body, encoded, pod
from tests.scheduler.extenders import HOST, Served, asked, served


@pytest.fixture(scope="module")
def extender() -> Iterator[Served]:
    with served() as running:
        yield running


class Odd(Extender):
    """One whose scores come as a test likes."""

    def __init__(self, scores: Callable[[bytes], bytes]) -> None:
        self._scores = scores

    def prioritize(self, body: bytes) -> bytes:
        """What the test says."""
        return self._scores(body)

    @property
    def is_ready(self) -> bool:
        """Never."""
        return False


@pytest.mark.parametrize("path", ["/prioritize", "/v1/prioritize"])
def test_scores_are_served_with_a_length(extender: Served, path: str) -> None:
    reply = extender.ask(path, body())
    assert reply.status == http.client.OK
    assert json.loads(reply.body) == [{"Host": "a", "Score": 10}, {"Host": "b", "Score": 0}]
    assert reply.headers["Content-Type"] == "application/json"
    assert reply.headers["Content-Length"] == str(len(reply.body))
    assert "Transfer-Encoding" not in reply.headers


def test_a_scheduler_s_connection_stays(extender: Served) -> None:
    with contextlib.closing(extender.connect()) as connection:
        for _ in range(3):
            assert asked(connection, "/v1/prioritize", body()).status == http.client.OK
            kept = connection.sock
        assert connection.sock is kept is not None


def test_a_body_in_chunks_is_read(extender: Served) -> None:
    with contextlib.closing(extender.connect()) as connection:
        connection.request("POST", "/v1/prioritize", iter([body()[:9], body()[9:]]))
        assert connection.getresponse().status == http.client.OK


@pytest.mark.parametrize(
    ("content", "named"),
    [(b"{", "ExtenderArgs"), (encoded({"Pod": pod()}), "NodeNames"), (b"", "ExtenderArgs")],
)
def test_a_malformed_request_is_told_what_is_wrong(
    extender: Served, content: bytes, named: str
) -> None:
    reply = extender.ask("/v1/prioritize", content)
    assert reply.status == http.client.BAD_REQUEST
    assert named in reply.body.decode()


def test_a_body_in_broken_chunks_is_refused(
    extender: Served, caplog: pytest.LogCaptureFixture
) -> None:
    with contextlib.closing(socket.create_connection((HOST, extender.port), SOON)) as connection:
        head = "POST /v1/prioritize HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        connection.sendall(f"{head}2\r\n{{}}\r\nno number\r\n".encode())
        response = http.client.HTTPResponse(connection)
        response.begin()
        assert response.status == http.client.BAD_REQUEST
    assert caplog.text == ""


def test_it_ends_while_the_rest_of_a_refused_body_is_awaited() -> None:
    """As long as aiohttp reads on, so that the client sees the answer."""
    with (
        served() as extender,
        contextlib.closing(socket.create_connection((HOST, extender.port), SOON)) as connection,
    ):
        connection.sendall(b"POST /nowhere HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n")
        response = http.client.HTTPResponse(connection)
        response.begin()
        assert response.status == http.client.NOT_FOUND
    assert f"https-{extender.port}" not in {thread.name for thread in threading.enumerate()}


def test_a_body_of_95_mb_is_refused_unread(extender: Served) -> None:
    """As the scheduler sends 5,000 whole Nodes."""
    whole = encoded({"Pod": pod(), "Nodes": {"items": [{"pad": "x" * 1_000_000}]}})
    with contextlib.closing(socket.create_connection((HOST, extender.port), SOON)) as connection:
        head = "POST /v1/prioritize HTTP/1.1\r\nHost: x\r\nContent-Length: 95000000\r\n\r\n"
        connection.sendall(head.encode())
        with contextlib.suppress(ConnectionError):
            for _ in range(95):
                connection.sendall(whole[:1_000_000])
        response = http.client.HTTPResponse(connection)
        response.begin()
        assert response.status == http.client.REQUEST_ENTITY_TOO_LARGE
        assert str(wire.MOST_BYTES) in response.read().decode()


def test_a_body_in_another_encoding_is_refused(extender: Served) -> None:
    """A few bytes could become very many."""
    reply = extender.ask("/v1/prioritize", body(), headers={"Content-Encoding": "gzip"})
    assert reply.status == http.client.UNSUPPORTED_MEDIA_TYPE


def test_a_body_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "BODY_SECONDS", 0.05)
    with (
        served() as extender,
        contextlib.closing(socket.create_connection((HOST, extender.port), SOON)) as connection,
    ):
        connection.sendall(b"POST /v1/prioritize HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{")
        response = http.client.HTTPResponse(connection)
        response.begin()
        assert response.status == http.client.REQUEST_TIMEOUT


def test_an_answer_that_takes_too_long_is_neutral_and_counted() -> None:
    late = threading.Event()

    def slow(_: bytes) -> bytes:
        late.wait(SOON)
        return b'[{"Host":"a","Score":10}]'

    with served(Terms(budget_seconds=0.02), Odd(slow)) as extender:
        reply = extender.ask("/v1/prioritize", body())
        late.set()
        assert (reply.status, reply.body) == (http.client.OK, wire.NEUTRAL)
        assert extender.count('gpuscape_scheduler_neutral_answers_total{cause="budget"}') == 1


def test_while_scores_take_long_probes_are_answered() -> None:
    begun, late = threading.Event(), threading.Event()

    def slow(_: bytes) -> bytes:
        begun.set()
        late.wait(SOON)
        return wire.NEUTRAL

    with served(Terms(budget_seconds=SOON), Odd(slow)) as extender, ThreadPoolExecutor() as pool:
        asking = pool.submit(extender.ask, "/v1/prioritize", body())
        assert begun.wait(SOON)
        assert extender.ask("/livez").status == http.client.OK
        assert extender.ask("/metrics").status == http.client.OK
        late.set()
        assert asking.result().status == http.client.OK


def test_scores_that_never_end_show_in_the_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_STUCK_SECONDS", 0.0)
    late = threading.Event()

    def stuck(_: bytes) -> bytes:
        late.wait(SOON)
        return wire.NEUTRAL

    with served(Terms(budget_seconds=0.001), Odd(stuck)) as extender:
        assert extender.ask("/livez").status == http.client.OK
        extender.ask("/v1/prioritize", body())
        assert extender.ask("/livez").status == http.client.SERVICE_UNAVAILABLE
        late.set()
        until(lambda: extender.ask("/livez").status == http.client.OK)


def test_a_fault_of_ours_is_neutral_logged_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    def broken(_: bytes) -> bytes:
        raise ZeroDivisionError

    with served(extender=Odd(broken)) as extender:
        reply = extender.ask("/v1/prioritize", body())
        assert (reply.status, reply.body) == (http.client.OK, wire.NEUTRAL)
        assert extender.count('gpuscape_scheduler_neutral_answers_total{cause="fault"}') == 1
    assert "ZeroDivisionError" in caplog.text


def test_a_fault_of_ours_elsewhere_is_said_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    with served(extender=Odd(lambda _: b"")) as extender:
        reply = extender.ask("/debug/nodes/a")
    assert reply.status == http.client.INTERNAL_SERVER_ERROR
    assert "AttributeError" in caplog.text  # it has no fleet


def test_it_is_ready_once_all_was_read(extender: Served) -> None:
    assert extender.ask("/readyz").status == http.client.OK
    with served(extender=Odd(lambda _: b"")) as reading:
        assert reading.ask("/readyz").status == http.client.SERVICE_UNAVAILABLE
        assert reading.ask("/livez").status == http.client.OK


def test_nodes_and_reasons_are_shown(extender: Served) -> None:
    node = json.loads(extender.ask("/debug/nodes/b").body)
    assert (node["node"], node["free"], node["used"]) == ("b", [], list(range(8)))
    assert extender.ask("/debug/nodes/c").status == http.client.NOT_FOUND
    why = json.loads(extender.ask("/v1/explain", encoded({"Pod": pod()})).body)
    assert [node["node"] for node in why["nodes"]] == ["a", "b"]


def test_paths_and_verbs_that_are_not_there_are_no_faults(extender: Served) -> None:
    assert extender.ask("/v1/filter", body()).status == http.client.NOT_FOUND
    wrong = extender.ask("/v1/prioritize")
    assert wrong.status == http.client.METHOD_NOT_ALLOWED
    assert wrong.headers["Allow"] == "POST"


@pytest.mark.parametrize(
    "sent", [b"\x16\x03\x01\x02\x00", b"GET\r\n\r\n", b"POST / HTTP/1.1\r\nA" * 9000, b"\r\n\r\n"]
)
def test_what_is_not_http_is_refused_and_not_logged(
    extender: Served, sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        contextlib.closing(socket.create_connection((HOST, extender.port), SOON)) as connection,
        contextlib.suppress(ConnectionError),
    ):
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        answer = connection.makefile("rb").read()
        assert answer == b"" or answer.startswith(b"HTTP/1.0 400") or b" 400 " in answer[:20]
    assert caplog.text == ""


def test_a_client_that_goes_in_between_leaves_nothing_behind(
    extender: Served, caplog: pytest.LogCaptureFixture
) -> None:
    for sent in (
        b"POST /v1/prioritize HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{",
        b"GET /",
    ):
        with contextlib.closing(socket.create_connection((HOST, extender.port))) as connection:
            connection.sendall(sent)
    assert extender.ask("/v1/prioritize", body()).status == http.client.OK
    assert caplog.text == ""


def test_however_many_connections_are_open_who_asks_is_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "MOST_CONNECTIONS", 4)
    with served() as extender, contextlib.ExitStack() as opened:
        scheduler = opened.enter_context(contextlib.closing(extender.connect()))
        first = socket.create_connection((HOST, extender.port), SOON)
        opened.enter_context(contextlib.closing(first))
        for _ in range(20):
            assert asked(scheduler, "/v1/prioritize", body()).status == http.client.OK
            kept = scheduler.sock
            idle = socket.create_connection((HOST, extender.port), SOON)
            opened.enter_context(contextlib.closing(idle))
        assert asked(scheduler, "/v1/prioritize", body()).status == http.client.OK
        assert scheduler.sock is kept
        assert first.recv(1) == b""  # it was closed


def test_it_ends_while_clients_are_idle_or_in_between() -> None:
    with contextlib.ExitStack() as opened:
        with served() as extender:
            scheduler = opened.enter_context(contextlib.closing(extender.connect()))
            asked(scheduler, "/v1/prioritize", body())
            half = socket.create_connection((HOST, extender.port), SOON)
            opened.enter_context(contextlib.closing(half))
            half.sendall(b"POST /v1/prioritize HTTP/1.1\r\nContent-Length: 9\r\n\r\n{")
        assert f"https-{extender.port}" not in {thread.name for thread in threading.enumerate()}


def test_a_port_that_is_taken_is_told_with_the_fix(extender: Served) -> None:
    with pytest.raises(Permanent, match=f"cannot listen on {HOST}:{extender.port}: another"):
        Server(Address(host=HOST, port=extender.port), Terms(), Odd(lambda _: b""), Metrics("1"))
