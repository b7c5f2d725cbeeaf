# SPDX-License-Identifier: Apache-2.0
"""The server against real sockets: what it serves, and what no client can take from it."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import socket
import threading
import tracemalloc
from collections.abc import Callable, Iterator, Mapping

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from base.errors import Permanent
from base.threads import NoThread
from tests.agent.agent_process import until
from tests.fakes.thread_limit import allow_threads
from web.address import Address
from web.client_access import ClientAccess
from web.messages import Body, Response, ServerLimits, text_response
from web.passwords import Passwords
from web.served_client import CHUNK_BYTES, chunks
from web.server import HttpServer, Route

LOOPBACK = Address(host="127.0.0.1", port=0)
METRICS = b"gpuscape_gpus 8\n" * 1000
LARGE = b"x" * (16 << 20)
"""More than the kernel's buffers on both sides hold."""
PATIENT = ServerLimits(header_seconds=60, request_seconds=60, idle_seconds=60)
GET = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
GET_LARGE = b"GET /large HTTP/1.1\r\nHost: node\r\n\r\n"
LIVEZ = b"GET /livez HTTP/1.1\r\nHost: node\r\n\r\n"
LIVEZ_AND_CLOSE = b"GET /livez HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n"


def broken() -> Response:
    raise LookupError("nothing here")


ROUTES: Mapping[str, Route] = {
    "/metrics": lambda: Response(body=Body(METRICS)),
    "/livez": lambda: text_response("ok"),
    "/large": lambda: Response(body=Body(LARGE)),
    "/broken": broken,
}

Start = Callable[..., HttpServer]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts servers, and ends them with the test."""
    servers = []

    def started(limits: ServerLimits = PATIENT, address: Address = LOOPBACK) -> HttpServer:
        server = HttpServer(address, ROUTES, limits)
        server.start()
        servers.append(server)
        return server

    yield started
    for server in servers:
        server.stop(within_seconds=0)


def connect(server: HttpServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.address.port), timeout=60)


def everything(client: socket.socket) -> bytes:
    """All bytes until the server ends the connection."""
    received = b""
    try:
        while data := client.recv(1 << 16):
            received += data
    except ConnectionResetError:
        pass
    return received


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer else 0


def ask(
    server: HttpServer, path: str = "/metrics", method: str = "GET", **headers: str
) -> tuple[http.client.HTTPResponse, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.address.port, timeout=60)
    connection.request(method, path, headers=headers)
    response = connection.getresponse()
    content = response.read()
    connection.close()
    return response, content


def refused(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """Reason and client of each line about a refused one."""
    lines = [vars(line) for line in caplog.records if line.message == "client refused"]
    return [(line["reason"], line["client"]) for line in lines]


def test_a_path_is_served_with_its_length_and_type(start: Start) -> None:
    response, content = ask(start())

    assert (response.status, content) == (200, METRICS)
    assert response.headers["Content-Length"] == str(len(METRICS))
    assert response.headers["Content-Type"] == "text/plain; charset=utf-8"


def test_a_compressed_answer_is_equal_to_the_plain_one(start: Start) -> None:
    response, content = ask(start(), **{"Accept-Encoding": "gzip"})

    assert response.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(content) == METRICS


def test_head_gives_the_headers_alone(start: Start) -> None:
    response, content = ask(start(), method="HEAD")

    assert (response.status, response.headers["Content-Length"]) == (200, str(len(METRICS)))
    assert content == b""


def test_an_unknown_path_is_not_found(start: Start) -> None:
    assert ask(start(), "/nothing")[0].status == 404


def test_the_front_page_links_to_every_path(start: Start) -> None:
    response, content = ask(start(), "/")

    assert response.headers["Content-Type"].startswith("text/html")
    assert all(f'href="{path}"'.encode() in content for path in ROUTES)


def test_other_methods_are_refused_and_their_bodies_not_read(start: Start) -> None:
    response, _ = ask(start(), method="DELETE")

    assert (response.status, response.headers["Allow"]) == (405, "GET, HEAD")


def test_a_route_that_raises_is_a_500_and_the_next_request_is_served(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    server = start()

    answers = [ask(server, path) for path in ("/broken", "/livez", "/nothing")]

    assert [(response.status, content) for response, content in answers] == [
        (500, b"The answer could not be made; the log says why.\n"),
        (200, b"ok\n"),
        (404, b"No such path; / lists those there are.\n"),
    ]
    (line,) = caplog.records
    assert (line.levelname, line.message, vars(line)["path"]) == (
        "ERROR",
        "request failed",
        "/broken",
    )


def test_a_connection_serves_request_after_request(start: Start) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", start().address.port, timeout=60)
    connection.connect()
    first_socket = connection.sock

    for path in ("/metrics", "/nothing", "/livez"):
        connection.request("GET", path)
        connection.getresponse().read()

    assert connection.sock is first_socket
    connection.close()


def test_pipelined_requests_are_answered_in_order(start: Start) -> None:
    with connect(start()) as client:
        client.sendall(
            b"GET /livez HTTP/1.1\r\nHost: node\r\n\r\nGET /nothing HTTP/1.1\r\nHost: node\r\n\r\n"
            b"HEAD /metrics HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n"
        )
        answers = everything(client).split(b"HTTP/1.1 ")[1:]

    assert [int(answer[:3]) for answer in answers] == [200, 404, 200]


def test_a_client_that_dribbles_its_headers_is_cut_off_in_whole_header_time(start: Start) -> None:
    server = start(ServerLimits(header_seconds=0.3, request_seconds=3600, idle_seconds=3600))
    with connect(server) as client:
        client.sendall(b"GET /metrics HTTP/1.1\r\nHost: node\r\nX: ")
        client.settimeout(0.05)  # far below header_seconds: each byte would renew a socket's time
        answers: list[bytes] = []

        def is_answered() -> bool:
            with contextlib.suppress(TimeoutError):
                client.sendall(b"x")
                answers.append(client.recv(1 << 16))
            return bool(answers)

        until(is_answered)

    assert [status(answer) for answer in answers] == [408]


@pytest.mark.parametrize(
    ("before", "limits"),
    [
        (b"", ServerLimits(header_seconds=0.1, request_seconds=60, idle_seconds=60)),
        (GET, ServerLimits(header_seconds=60, request_seconds=60, idle_seconds=0.1)),
    ],
    ids=["new", "kept alive"],
)
def test_a_silent_client_is_cut_off(start: Start, before: bytes, limits: ServerLimits) -> None:
    with connect(start(limits)) as client:
        client.sendall(before)
        answer = everything(client)

    assert answer.count(b"HTTP/1.1") == (1 if before else 0)


def test_a_client_that_does_not_read_its_answer_is_cut_off_at_its_deadline(start: Start) -> None:
    server = start(ServerLimits(header_seconds=60, request_seconds=0.2, idle_seconds=60))
    ask(server)
    with connect(server) as client:
        client.sendall(GET_LARGE)
        assert client.recv(12) == b"HTTP/1.1 200"
        # no other connection: that would take the place of this one, deadline or not
        until(lambda: _server_sockets(server) == 0)
        answer = everything(client)

    assert len(answer) < len(LARGE)


def _server_sockets(server: HttpServer) -> int:
    """Connections that the server holds open."""
    return sum(
        each.laddr.port == server.address.port and each.status == psutil.CONN_ESTABLISHED
        for each in psutil.Process().net_connections("tcp")
    )


def test_a_request_that_finds_no_place_in_time_is_answered(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    server = start(ServerLimits(connections=1, queue_seconds=0))
    with connect(server) as client, connect(server) as late:
        client.sendall(GET_LARGE)
        assert client.recv(12) == b"HTTP/1.1 200"
        late.sendall(LIVEZ)
        answer = everything(late)

    assert (status(answer), b"\r\nRetry-After: " in answer) == (503, True)
    assert refused(caplog) == [("overload", "127.0.0.1")]


def test_a_request_that_loses_its_place_before_its_answer_is_answered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    checking, released = threading.Event(), threading.Event()

    def matches(_password: bytes, _hash: bytes) -> bool:
        checking.set()
        return released.wait()

    passwords = Passwords({"ann": b""}, matches=matches)
    server = HttpServer(
        LOOPBACK,
        ROUTES,
        ServerLimits(connections=1),
        access=lambda: ClientAccess(passwords=passwords),
    )
    server.start()
    with connect(server) as first, connect(server) as second:
        first.sendall(b"GET /livez HTTP/1.1\r\nHost: node\r\nAuthorization: Basic YW5uOng=\r\n\r\n")
        assert checking.wait(60)
        second.sendall(LIVEZ_AND_CLOSE)
        answers = [status(everything(client)) for client in (first, second)]
    released.set()
    server.stop(within_seconds=1)

    assert answers == [503, 401]
    assert refused(caplog) == [("overload", "127.0.0.1"), ("credentials", "127.0.0.1")]


def test_a_server_that_gets_no_thread_says_so_and_listens_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = HttpServer(LOOPBACK, ROUTES)
    server.listen()
    before = psutil.Process().num_fds()
    allow_threads(monkeypatch, 0)
    with pytest.raises(NoThread, match="http-"):
        server.start()

    assert psutil.Process().num_fds() < before
    with pytest.raises(ConnectionRefusedError):
        connect(server)
    server.stop(within_seconds=0)


def test_silent_connections_make_room_for_those_that_ask(start: Start) -> None:
    server = start(ServerLimits(connections=2, waiting=2, header_seconds=60))
    with contextlib.ExitStack() as ending:
        for _ in range(40):
            ending.enter_context(connect(server))

        scrapes = [ask(server)[1] for _ in range(10)]

    assert scrapes == [METRICS] * 10


def ask_allowing_reset(server: HttpServer) -> int:
    with connect(server) as client:
        try:
            client.sendall(LIVEZ_AND_CLOSE)
        except ConnectionError:
            return 0
        return status(everything(client))


def test_an_answer_is_whole_however_much_of_it_the_kernel_takes_at_once() -> None:
    sizes = range(0, 6 << 20, 60_000)
    left = iter(sizes)
    routes = {"/": lambda: Response(body=Body(b"x" * next(left)))}
    server = HttpServer(LOOPBACK, routes)
    server.start()

    received = [len(ask(server, "/", Connection="close")[1]) for _ in sizes]

    server.stop(within_seconds=1)
    assert received == list(sizes)


def test_a_new_connection_takes_the_place_of_the_one_that_was_waited_for_longest(
    start: Start,
) -> None:
    server = start(ServerLimits(connections=2, header_seconds=60, request_seconds=60))
    with connect(server) as first, connect(server) as second:
        for client in (first, second, first):
            client.sendall(LIVEZ)
            assert client.recv(1 << 16).endswith(b"ok\n")
        with connect(server) as third:
            third.sendall(LIVEZ_AND_CLOSE)
            answered = status(everything(third))
        first.sendall(LIVEZ_AND_CLOSE)

        assert answered == 200
        assert b"HTTP/1.1" not in everything(second)
        assert everything(first).endswith(b"ok\n")


@pytest.mark.parametrize(
    "sent",
    [b"", b"GET /metrics HTTP/1.1\r\nHost: node\r\nX: ", LIVEZ, GET_LARGE],
    ids=["silent", "half a head", "idle", "not reading"],
)
def test_slow_clients_cannot_lock_a_scraper_out(start: Start, sent: bytes) -> None:
    server = start(ServerLimits(connections=4, header_seconds=60, request_seconds=60))
    with contextlib.ExitStack() as ending:
        for _ in range(40):
            slow = ending.enter_context(connect(server))
            with contextlib.suppress(ConnectionError):
                slow.sendall(sent)

        scrapes = [ask(server)[1] for _ in range(10)]

    assert scrapes == [METRICS] * 10


def test_clients_that_do_not_read_share_what_they_are_sent(start: Start) -> None:
    server = start(ServerLimits(connections=16, header_seconds=60, request_seconds=60))
    tracemalloc.start()
    with contextlib.ExitStack() as ending:
        for _ in range(16):
            slow = ending.enter_context(connect(server))
            slow.sendall(GET_LARGE)
            assert slow.recv(12) == b"HTTP/1.1 200"
        _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak_bytes < len(LARGE)


@given(st.lists(st.integers(0, 3 * CHUNK_BYTES), max_size=4))
def test_a_message_is_sent_whole_in_chunks_none_of_which_is_large(sizes: list[int]) -> None:
    pieces = [bytes([at]) * size for at, size in enumerate(sizes)]

    sent = [bytes(chunk) for chunk in chunks(pieces)]

    assert b"".join(sent) == b"".join(pieces)
    assert all(0 < len(chunk) <= CHUNK_BYTES for chunk in sent)


def test_a_head_and_a_small_content_are_one_chunk() -> None:
    assert list(chunks([b"head", b"content"])) == [b"headcontent"]


def test_a_place_is_free_again_when_its_client_has_gone(start: Start) -> None:
    server = start(ServerLimits(connections=1, header_seconds=60, request_seconds=60))
    with connect(server) as client:
        client.sendall(b"GET /metrics HTT")

    while ask_allowing_reset(server) != 200:
        pass


def test_headers_beyond_the_limit_are_refused(start: Start) -> None:
    with connect(start()) as client:
        client.sendall(b"GET /metrics HTTP/1.1\r\nHost: node\r\nX: " + b"x" * 9000 + b"\r\n\r\n")

        answer = everything(client)

    assert status(answer) == 431
    assert answer.endswith(b"\r\n\r\nThe headers are longer than 8192 bytes.\n")


def test_headers_without_end_are_refused_as_soon_as_the_limit_is_reached(start: Start) -> None:
    with connect(start()) as client:
        client.sendall(b"GET /metrics HTTP/1.1\r\nHost: node\r\nX: " + b"x" * 9000)

        assert client.recv(12) == b"HTTP/1.1 431"


def test_a_client_that_leaves_in_the_middle_harms_nobody(start: Start) -> None:
    server = start()
    for data in (b"", b"G", GET[:-2], GET_LARGE):
        with connect(server) as client:
            client.sendall(data)

    assert ask(server)[1] == METRICS


def test_many_clients_are_served_by_one_thread(start: Start) -> None:
    server = start()
    before = threading.active_count()

    with connect(server) as first, connect(server) as second:
        for client in (first, second):
            client.sendall(GET)
            client.recv(1)
        during = threading.active_count()

    assert during == before


@pytest.mark.parametrize(
    "hanging",
    [b"", b"GET /met", GET, GET_LARGE],
    ids=["new", "head", "idle", "body"],
)
def test_the_server_stops_while_a_client_hangs(
    hanging: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    server = HttpServer(LOOPBACK, ROUTES, PATIENT)
    server.start()
    with connect(server) as client:
        client.sendall(hanging)
        if hanging.endswith(b"\n"):
            client.recv(1)

        server.stop(within_seconds=0.1)

        with pytest.raises(ConnectionRefusedError):
            connect(server)
    assert caplog.messages == []


@pytest.mark.parametrize("before", [b"", GET], ids=["new", "idle"])
def test_connections_without_a_request_do_not_delay_the_stop(before: bytes) -> None:
    for_ever = ServerLimits(header_seconds=3600, idle_seconds=3600)
    server = HttpServer(LOOPBACK, ROUTES, for_ever)
    server.start()
    with connect(server) as client:
        client.sendall(before)
        client.recv(len(before))  # nothing at all, or a part of the answer

        server.stop(within_seconds=3600)

        with pytest.raises(ConnectionRefusedError):
            connect(server)


def test_an_answer_under_way_is_finished_before_the_server_stops() -> None:
    server = HttpServer(LOOPBACK, ROUTES, PATIENT)
    server.start()
    with connect(server) as client:
        client.sendall(GET_LARGE)
        answer = client.recv(1)
        stopping = threading.Thread(target=server.stop, kwargs={"within_seconds": 60})
        stopping.start()
        answer += everything(client)
        stopping.join()

    assert answer.endswith(LARGE)


def test_a_route_that_waits_does_not_keep_the_program_from_ending() -> None:
    entered, let_go = threading.Event(), threading.Event()

    def wait() -> Response:
        entered.set()
        let_go.wait()
        return text_response("late")

    server = HttpServer(LOOPBACK, {"/": wait})
    server.start()
    with connect(server) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: node\r\n\r\n")
        entered.wait()

        server.stop(within_seconds=0)

        let_go.set()
        assert status(everything(client)) == 200


def test_stopping_twice_or_before_the_start_does_nothing() -> None:
    server = HttpServer(LOOPBACK, ROUTES)

    server.stop(within_seconds=1)
    server.start()
    server.stop(within_seconds=1)
    server.stop(within_seconds=1)


def test_a_port_in_use_is_told_with_the_fix(start: Start) -> None:
    port = start().address.port

    with pytest.raises(Permanent) as error:
        start(address=Address(host="127.0.0.1", port=port))

    assert str(error.value) == (
        f"cannot listen on 127.0.0.1:{port}: "
        "another program listens there, end it or choose another port"
    )


@pytest.mark.parametrize(
    ("host", "words"),
    [
        ("203.0.113.7", "no interface has this address"),
        ("no-such-host.invalid", "choose an address"),
    ],
)
def test_an_address_of_another_machine_is_told_with_the_fix(
    start: Start, host: str, words: str
) -> None:
    with pytest.raises(Permanent, match=words):
        start(address=Address(host=host, port=0))


@pytest.mark.parametrize("listen", ["", "::1"])
def test_ipv6_is_served(start: Start, listen: str) -> None:
    if not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    server = start(address=Address(host=listen, port=0))

    with socket.create_connection(("::1", server.address.port), timeout=60) as client:
        client.sendall(GET)

        assert client.recv(12) == b"HTTP/1.1 200"


def test_all_interfaces_include_ipv4(start: Start) -> None:
    assert ask(start(address=Address(host="", port=0)))[0].status == 200
