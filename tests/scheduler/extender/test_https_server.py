# SPDX-License-Identifier: Apache-2.0
"""The extender's server: what it serves to whom, and how little a bad client can do to it."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import pytest

from base.errors import Permanent
from scheduler.extender import extender_messages, routes
from scheduler.extender.extender import Extender
from scheduler.extender.extender_limits import ExtenderLimits, limits_within
from scheduler.extender.extender_metrics import ExtenderMetrics
from scheduler.extender.https_server import ExtenderServer
from scheduler.extender.routes import ClientTerms, Content
from scheduler.node_ranking import OutcomeUnknown
from tests.agent.agent_process import SOON, until
from tests.scheduler.calls import body, encoded, pod
from tests.scheduler.extenders import HOST, Served, asked, served
from web.address import Address

PROBES = 'gpuscape_scheduler_requests_total{code="200",verb="probe"}'


TWO = ExtenderLimits(connections=3)
"""Places, and one for those that got none in time."""


@pytest.fixture(scope="module")
def extender() -> Iterator[Served]:
    with served() as running:
        yield running


class Odd(Extender):
    """One that knows nothing yet, and whose scores come as a test likes."""

    def __init__(self, scores: Callable[[Content], bytes]) -> None:
        self._scores = scores

    def prioritize(self, body: Content, *, only_known: bool = False) -> bytes:
        """What the test says."""
        if only_known:
            raise OutcomeUnknown
        return self._scores(body)

    @property
    def is_ready(self) -> bool:
        """Never."""
        return False


@pytest.mark.parametrize(
    ("descriptors", "served", "waiting"),
    [(None, 64, 2048), (1 << 20, 64, 2048), (232, 64, 136), (64, 16, 16), (8, 2, 2)],
)
def test_places_leave_the_extender_the_descriptors_that_it_needs_itself(
    descriptors: int | None, served: int, waiting: int
) -> None:
    """32 are kept for itself; of the places for clients half are served, up to 64."""
    found = limits_within(descriptors)
    assert (found.connections, found.waiting, found.queue_seconds) == (served, waiting, 0.25)
    assert found.kept == max(1, served // 8)


def answer_on(connection: socket.socket) -> http.client.HTTPResponse:
    """What comes on it, its head read."""
    response = http.client.HTTPResponse(connection)
    response.begin()
    return response


def connected(extender: Served) -> contextlib.closing[socket.socket]:
    """A connection on which nothing was sent."""
    return contextlib.closing(socket.create_connection((HOST, extender.port), SOON))


def threads_of(extender: Served) -> list[threading.Thread]:
    """Those of its server."""
    return [each for each in threading.enumerate() if each.name.endswith(f"-{extender.port}")]


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


def test_a_body_that_comes_in_pieces_is_read(extender: Served) -> None:
    whole = body()
    with contextlib.closing(extender.connect()) as connection:
        connection.putrequest("POST", "/v1/prioritize")
        connection.putheader("Content-Length", str(len(whole)))
        connection.endheaders()
        for place in range(0, len(whole), 50):
            connection.send(whole[place : place + 50])
        assert connection.getresponse().status == http.client.OK


def test_requests_that_come_at_once_are_answered_in_turn(extender: Served) -> None:
    with connected(extender) as connection:
        connection.sendall(
            b"GET /livez HTTP/1.1\r\nHost: node\r\n\r\n"
            b"POST /nowhere HTTP/1.1\r\nHost: node\r\nContent-Length: 4\r\n\r\nGET "
            b"HEAD /readyz HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n"
        )
        answers = connection.makefile("rb").read()
    assert re.findall(rb"HTTP/1.1 (\d+)", answers) == [b"200", b"404", b"200"]
    assert answers.endswith(b"\r\n\r\n")


def test_who_waits_to_be_told_to_send_a_body_is_told(extender: Served) -> None:
    whole = body()
    with connected(extender) as connection:
        head = (
            "POST /v1/prioritize HTTP/1.1\r\nHost: node\r\nExpect: 100-continue\r\nContent-Length: "
        )
        connection.sendall(f"{head}{len(whole)}\r\n\r\n".encode())
        assert connection.recv(64) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(whole)
        assert connection.recv(64).startswith(b"HTTP/1.1 200 ")


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


def test_a_body_in_chunks_is_refused(extender: Served) -> None:
    with contextlib.closing(extender.connect()) as connection:
        connection.request("POST", "/v1/prioritize", iter([body()]))
        assert connection.getresponse().status == http.client.LENGTH_REQUIRED


def test_it_ends_while_the_rest_of_a_refused_body_is_awaited() -> None:
    """It reads on for a while, so that the client sees the answer."""
    with (
        served() as extender,
        connected(extender) as connection,
    ):
        connection.sendall(b"POST /nowhere HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n")
        assert answer_on(connection).status == http.client.NOT_FOUND
    assert not threads_of(extender)


def test_a_body_of_95_mb_is_refused_unread(extender: Served) -> None:
    """As the scheduler sends 5,000 whole Nodes."""
    whole = encoded({"Pod": pod(), "Nodes": {"items": [{"pad": "x" * 1_000_000}]}})
    with connected(extender) as connection:
        head = "POST /v1/prioritize HTTP/1.1\r\nHost: x\r\nContent-Length: 95000000\r\n\r\n"
        connection.sendall(head.encode())
        with contextlib.suppress(ConnectionError):
            for _ in range(95):
                connection.sendall(whole[:1_000_000])
        response = answer_on(connection)
        assert response.status == http.client.REQUEST_ENTITY_TOO_LARGE
        assert str(extender_messages.MOST_BYTES) in response.read().decode()


def test_a_body_in_another_encoding_is_refused(extender: Served) -> None:
    """A few bytes could become very many."""
    reply = extender.ask("/v1/prioritize", body(), headers={"Content-Encoding": "gzip"})
    assert reply.status == http.client.UNSUPPORTED_MEDIA_TYPE


def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    with (
        served(limits=ExtenderLimits(body_seconds=0.05)) as extender,
        connected(extender) as connection,
    ):
        connection.sendall(b"POST /v1/prioritize HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{")
        assert answer_on(connection).status == http.client.REQUEST_TIMEOUT


def test_an_answer_that_takes_too_long_is_neutral_and_counted() -> None:
    late = threading.Event()

    def slow(_: Content) -> bytes:
        late.wait(SOON)
        return b'[{"Host":"a","Score":10}]'

    with served(ClientTerms(budget_seconds=0.02), Odd(slow)) as extender:
        reply = extender.ask("/v1/prioritize", body())
        late.set()
        assert (reply.status, reply.body) == (http.client.OK, extender_messages.NEUTRAL)
        assert extender.count('gpuscape_scheduler_neutral_answers_total{cause="budget"}') == 1


def test_a_request_that_waited_for_too_long_is_not_computed_any_more() -> None:
    """Nobody waits for it, and those behind it would be late too."""
    late = threading.Event()
    computed = []

    def slow(content: Content) -> bytes:
        computed.append(json.loads(bytes(content))["NodeNames"][0])
        late.wait(SOON)
        return b'[{"Host":"a","Score":10}]'

    with served(ClientTerms(budget_seconds=0.02), Odd(slow)) as extender:
        for name in ("first", "second", "third"):
            reply = extender.ask("/v1/prioritize", body([name]))
            assert reply.body == extender_messages.NEUTRAL
        late.set()
        until(
            lambda: extender.ask("/v1/prioritize", body(["last"])).body != extender_messages.NEUTRAL
        )
    assert {"second", "third"}.isdisjoint(computed)
    assert computed[0] == "first"


def test_while_scores_take_long_probes_are_answered() -> None:
    begun, late = threading.Event(), threading.Event()

    def slow(_: Content) -> bytes:
        begun.set()
        late.wait(SOON)
        return extender_messages.NEUTRAL

    with (
        served(ClientTerms(budget_seconds=SOON), Odd(slow)) as extender,
        ThreadPoolExecutor() as pool,
    ):
        asking = pool.submit(extender.ask, "/v1/prioritize", body())
        assert begun.wait(SOON)
        assert extender.ask("/livez").status == http.client.OK
        assert extender.ask("/metrics").status == http.client.OK
        late.set()
        assert asking.result().status == http.client.OK


def test_scores_that_never_end_show_in_the_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "_STUCK_SECONDS", 0.0)
    late = threading.Event()

    def stuck(_: Content) -> bytes:
        late.wait(SOON)
        return extender_messages.NEUTRAL

    with served(ClientTerms(budget_seconds=0.001), Odd(stuck)) as extender:
        assert extender.ask("/livez").status == http.client.OK
        extender.ask("/v1/prioritize", body())
        assert extender.ask("/livez").status == http.client.SERVICE_UNAVAILABLE
        late.set()
        until(lambda: extender.ask("/livez").status == http.client.OK)


@pytest.mark.parametrize(("padding", "at_once"), [(0, True), (130 << 10, False)])
def test_what_is_known_is_answered_by_the_thread_that_reads_unless_the_body_is_large(
    padding: int, at_once: bool
) -> None:
    class Knowing(Odd):
        def prioritize(self, body: Content, *, only_known: bool = False) -> bytes:
            del body
            name = threading.current_thread().name.encode()
            return b'["%s",%d]' % (name.partition(b"-")[0], only_known)

    with served(extender=Knowing(lambda _: b"")) as extender:
        reply = extender.ask("/v1/prioritize", body(["x" * padding]))
    assert reply.body == (b'["client",1]' if at_once else b'["scores_0",0]')


def test_a_fault_of_ours_is_neutral_logged_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    def broken(_: Content) -> bytes:
        raise ZeroDivisionError

    with served(extender=Odd(broken)) as extender:
        reply = extender.ask("/v1/prioritize", body())
        assert (reply.status, reply.body) == (http.client.OK, extender_messages.NEUTRAL)
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
    "sent",
    [
        b"\x16\x03\x01\x02\x00",
        b"GET\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: node\r\nA" * 9000,
        b"\r\n\r\n",
    ],
)
def test_what_is_not_http_is_refused_counted_and_logged_in_one_line(
    extender: Served, sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    refusals = 'gpuscape_scheduler_http_refusals_total{reason="request"}'
    before = extender.count(refusals)
    with (
        connected(extender) as connection,
        contextlib.suppress(ConnectionError),
    ):
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        answer = connection.makefile("rb").read()
        assert answer == b"" or re.match(rb"HTTP/1.1 4(00|31) ", answer)
    assert {record.message for record in caplog.records} <= {"client refused"}
    assert extender.count(refusals) - before == len(caplog.records)
    assert bool(answer) is bool(caplog.records)


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


@pytest.mark.parametrize("sent", [b"", b"GET /livez HTT"], ids=["silent", "half a head"])
def test_connections_that_never_ask_go_first_however_many_they_are(sent: bytes) -> None:
    """All come before the scheduler asks again, as on a machine where accepting lags behind."""
    with (
        served(limits=ExtenderLimits(connections=4, waiting=3)) as extender,
        contextlib.ExitStack() as opened,
    ):
        scheduler = opened.enter_context(contextlib.closing(extender.connect()))
        assert asked(scheduler, "/v1/prioritize", body()).status == http.client.OK
        kept = scheduler.sock
        strangers = [opened.enter_context(connected(extender)) for _ in range(20)]
        for each in strangers:
            with contextlib.suppress(ConnectionError):
                each.sendall(sent)
        until(lambda: extender.ask("/livez").status == http.client.OK)
        assert asked(scheduler, "/v1/prioritize", body()).status == http.client.OK
        assert scheduler.sock is kept


@pytest.mark.parametrize("is_long", [True, False])
def test_a_request_that_is_coming_in_makes_room_only_after_a_while(
    monkeypatch: pytest.MonkeyPatch, *, is_long: bool
) -> None:
    monkeypatch.setattr("scheduler.extender.connection._STALLED_TICKS", 2 if is_long else 1 << 62)
    with (
        served(limits=replace(TWO, header_seconds=3600.0)) as extender,
        contextlib.ExitStack() as opened,
    ):
        slow = [opened.enter_context(connected(extender)) for _ in range(6 if is_long else 2)]
        for each in slow:
            with contextlib.suppress(ConnectionError):
                each.sendall(b"GET /livez HTTP/1.1\r\nHost: node\r\n")
        until(lambda: len(threads_of(extender)) >= 3)
        assert extender.ask("/livez").status == http.client.OK
        if not is_long:
            for each in slow:
                each.sendall(b"\r\n")
                assert answer_on(each).status == http.client.OK


def test_of_those_who_asked_the_one_silent_for_longest_goes() -> None:
    with served(limits=TWO) as extender, contextlib.ExitStack() as opened:
        first, second, third = (
            opened.enter_context(contextlib.closing(extender.connect())) for _ in range(3)
        )
        for client in (first, second, first):
            assert asked(client, "/livez").status == http.client.OK
        kept, closed = first.sock, second.sock
        until(lambda: extender.count(PROBES) == 3)  # none is being answered any more
        assert asked(third, "/livez").status == http.client.OK
        assert closed.recv(1) == b""
        assert asked(first, "/livez").status == http.client.OK
        assert first.sock is kept


def test_who_is_refused_has_not_asked() -> None:
    with served(limits=TWO) as extender, contextlib.ExitStack() as opened:
        scheduler, stranger, third = (
            opened.enter_context(contextlib.closing(extender.connect())) for _ in range(3)
        )
        assert asked(scheduler, "/livez").status == http.client.OK
        assert asked(stranger, "/nowhere").status == http.client.NOT_FOUND
        kept, closed = scheduler.sock, stranger.sock
        assert asked(third, "/livez").status == http.client.OK
        assert closed.recv(1) == b""
        assert asked(scheduler, "/livez").status == http.client.OK
        assert scheduler.sock is kept


def test_while_all_are_being_answered_probes_are_too_and_scores_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("scheduler.extender.connection._STALLED_TICKS", 0)
    begun, late = threading.Semaphore(0), threading.Event()

    class Slow(Odd):
        def node(self, name: str) -> bytes:
            begun.release()
            late.wait(SOON)
            return name.encode()

    with (
        served(extender=Slow(lambda _: b"[]"), limits=TWO) as extender,
        ThreadPoolExecutor() as pool,
    ):
        asking = [pool.submit(extender.ask, f"/debug/nodes/{each}") for each in "ab"]
        assert begun.acquire(timeout=SOON)
        assert begun.acquire(timeout=SOON)
        statuses = [extender.ask(path).status for path in ("/livez", "/metrics")]
        refused = extender.ask("/v1/prioritize", body())
        late.set()
        assert {each.result().body for each in asking} == {b"a", b"b"}
        counted = extender.count('gpuscape_scheduler_http_refusals_total{reason="overload"}')

    assert statuses == [http.client.OK] * 2
    assert (refused.status, counted) == (http.client.SERVICE_UNAVAILABLE, 1)
    assert int(refused.headers["Retry-After"]) > 0
    assert refused.headers["Connection"] == "close"


def _wait(extender: Served, clients: int) -> bool:
    """Whether so many of them wait for a place."""
    return extender.waiting() == clients


def test_who_asked_last_gets_the_next_place() -> None:
    """Both have it in time; in a crowd those in front have given up."""
    begun, late = threading.Semaphore(0), threading.Semaphore(0)
    shown: list[str] = []

    class Slow(Odd):
        def node(self, name: str) -> bytes:
            shown.append(name)
            begun.release()
            assert late.acquire(timeout=SOON)
            return name.encode()

    patient = ExtenderLimits(connections=2, queue_seconds=SOON)
    with (
        served(extender=Slow(lambda _: b"[]"), limits=patient) as extender,
        ThreadPoolExecutor() as pool,
    ):
        for waiting, name in ((0, "a"), (1, "b"), (2, "c")):
            pool.submit(extender.ask, f"/debug/nodes/{name}")
            assert waiting or begun.acquire(timeout=SOON)
            until(partial(_wait, extender, waiting))
        for _ in range(3):
            late.release()
    assert shown == ["a", "c", "b"]


def test_a_late_request_for_scores_takes_the_place_of_an_idle_client_that_never_asked_for_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody makes room by itself here, so every new connection is late."""
    monkeypatch.setattr(ExtenderServer, "_vacate", lambda _: None)
    with served(limits=TWO) as extender, contextlib.ExitStack() as opened:
        prober, scheduler, late, other = (
            opened.enter_context(contextlib.closing(extender.connect())) for _ in range(4)
        )
        assert asked(prober, "/livez").status == http.client.OK
        assert asked(scheduler, "/prioritize", body()).status == http.client.OK
        probed, kept = prober.sock, scheduler.sock
        assert asked(late, "/prioritize", body()).headers.get("Connection") is None
        assert probed.recv(1) == b""
        assert asked(late, "/prioritize", body()).status == http.client.OK
        # where all are schedulers, the one that is idle for longest goes
        assert asked(other, "/prioritize", body()).headers.get("Connection") is None
        assert kept.recv(1) == b""
        assert asked(late, "/prioritize", body()).status == http.client.OK


def test_who_waits_for_a_place_when_it_ends_is_answered() -> None:
    begun, late = threading.Semaphore(0), threading.Event()

    class Slow(Odd):
        def node(self, name: str) -> bytes:
            begun.release()
            late.wait(SOON)
            return name.encode()

    patient = ExtenderLimits(connections=3, queue_seconds=SOON)
    with ThreadPoolExecutor() as pool, contextlib.ExitStack() as opened:
        with served(extender=Slow(lambda _: b"[]"), limits=patient) as extender:
            asking = [pool.submit(extender.ask, f"/debug/nodes/{each}") for each in "ab"]
            assert begun.acquire(timeout=SOON)
            assert begun.acquire(timeout=SOON)
            queued = opened.enter_context(connected(extender))
            queued.sendall(b"GET /livez HTTP/1.1\r\nHost: node\r\n\r\n")
            threading.Timer(0.05, late.set).start()
        assert answer_on(queued).status == http.client.SERVICE_UNAVAILABLE
        assert {each.result().body for each in asking} == {b"a", b"b"}


def test_who_does_not_take_an_answer_holds_no_place_for_long() -> None:
    begun = threading.Event()

    class Large(Odd):
        def node(self, name: str) -> bytes:
            begun.set()
            return name.encode() * (64 << 20)  # no buffer on the way takes it

    hasty = ExtenderLimits(answer_seconds=0.05)
    with (
        served(extender=Large(lambda _: b""), limits=hasty) as extender,
        connected(extender) as deaf,
    ):
        deaf.sendall(b"GET /debug/nodes/a HTTP/1.1\r\nHost: node\r\n\r\n")
        assert begun.wait(SOON)
        until(lambda: len(threads_of(extender)) == 1)  # the one that accepts


def test_it_ends_while_clients_are_idle_or_in_between() -> None:
    with contextlib.ExitStack() as opened:
        with served() as extender:
            scheduler = opened.enter_context(contextlib.closing(extender.connect()))
            asked(scheduler, "/v1/prioritize", body())
            half = socket.create_connection((HOST, extender.port), SOON)
            opened.enter_context(contextlib.closing(half))
            half.sendall(
                b"POST /v1/prioritize HTTP/1.1\r\nHost: node\r\nContent-Length: 9\r\n\r\n{"
            )
        assert not threads_of(extender)


def test_an_answer_under_way_is_given_before_the_end() -> None:
    begun, late = threading.Event(), threading.Event()

    def slow(_: Content) -> bytes:
        begun.set()
        late.wait(SOON)
        return extender_messages.NEUTRAL

    with ThreadPoolExecutor() as pool:
        with served(extender=Odd(slow)) as extender:
            asking = pool.submit(extender.ask, "/v1/prioritize", body())
            assert begun.wait(SOON)
            threading.Timer(0.05, late.set).start()
        assert asking.result().body == extender_messages.NEUTRAL


def test_a_port_that_is_taken_is_told_with_the_fix(extender: Served) -> None:
    with pytest.raises(Permanent, match=f"cannot listen on {HOST}:{extender.port}: another"):
        ExtenderServer(
            Address(host=HOST, port=extender.port),
            ClientTerms(),
            Odd(lambda _: b""),
            ExtenderMetrics("1"),
        ).start()
