# SPDX-License-Identifier: Apache-2.0
"""Requests are read strictly, answers are written once, and compressed ones are equal."""

from __future__ import annotations

import contextlib
import gzip
from http import HTTPStatus

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from web import messages
from web.messages import Body, HttpRequest, Refusal, Response


def head(*lines: str, first: str = "GET /metrics HTTP/1.1") -> bytes:
    """A request; with a Host where HTTP/1.1 wants one and none is in the lines."""
    named = any(line.lower().startswith("host:") for line in lines) or not first.endswith("1.1")
    host = [] if named else ["Host: node"]
    return "\r\n".join([first, *host, *lines, "", ""]).encode("latin-1")


def refused(data: bytes) -> HTTPStatus:
    with pytest.raises(Refusal) as refusal:
        messages.read_request(data)
    return refusal.value.response.status


def parts(response: Response, request: HttpRequest | None) -> tuple[str, bytes]:
    first, _, content = b"".join(response.message(request, 0.0)).partition(b"\r\n\r\n")
    return first.decode(), content


GET = HttpRequest(method="GET", path="/")


def test_a_prometheus_scrape_is_understood() -> None:
    request = messages.read_request(
        head(
            "Host: node:9400",
            "User-Agent: Prometheus/3.5.0",
            "Accept: application/openmetrics-text;version=1.0.0;q=0.5,*/*;q=0.1",
            "Accept-Encoding: gzip",
            "X-Prometheus-Scrape-Timeout-Seconds: 10",
        )
    )

    assert request == HttpRequest(method="GET", path="/metrics", gzip=True, keep_alive=True)


def test_a_query_does_not_change_the_path() -> None:
    assert messages.read_request(head(first="GET /livez?verbose HTTP/1.1")).path == "/livez"


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("http://node:9400/metrics", "/metrics"),
        ("HTTPS://[::1]:9400/metrics?x=/y", "/metrics"),
        ("http://node/a/b", "/a/b"),
        ("http://node", "/"),
        ("http://node?x=/y", "/"),
    ],
)
def test_the_absolute_form_is_served_as_the_path_in_it(target: str, path: str) -> None:
    """RFC 9112, 3.2.2: a server must accept it, and clients of proxies send it."""
    assert messages.read_request(head(first=f"GET {target} HTTP/1.1")).path == path


@pytest.mark.parametrize(
    ("accepted", "gzip_taken"),
    [
        ("gzip", True),
        ("GZIP", True),
        ("deflate, gzip;q=0.5, br", True),
        ("gzip;q=0", False),
        ("gzip; q=0.000", False),
        ("x-gzip", False),
        ("identity", False),
        ("", False),
    ],
)
def test_gzip_is_used_for_those_who_take_it(accepted: str, gzip_taken: bool) -> None:
    assert messages.read_request(head(f"Accept-Encoding: {accepted}")).gzip is gzip_taken


@pytest.mark.parametrize(
    ("data", "kept"),
    [
        (head(), True),
        (head("Connection: Keep-Alive"), True),
        (head("connection: foo, Close"), False),
        (head("Connection: foo", "Connection: close"), False),
        (head(first="GET / HTTP/1.0"), False),
    ],
)
def test_a_connection_is_kept_as_http_1_1_says(data: bytes, kept: bool) -> None:
    assert messages.read_request(data).keep_alive is kept


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (head(first="POST /metrics HTTP/1.1"), 405),
        (head(first="BREW /pot HTTP/1.1"), 405),
        (head("Content-Length: 5"), 413),
        (head("Content-Length: 5", "Content-Length: 0"), 413),
        (head("Transfer-Encoding: chunked"), 413),
        (head(first="GET /metrics HTTP/2.0"), 400),
        (head(first="GET /metrics"), 400),
        (head(first="GET  /metrics HTTP/1.1"), 400),
        (head(first="GET metrics HTTP/1.1"), 400),
        (head(first="GET http:///metrics HTTP/1.1"), 400),
        (head(first="GET ftp://node/metrics HTTP/1.1"), 400),
        (head(first="GET * HTTP/1.1"), 400),
        (head(first="get /metrics HTTP/1.1"), 400),
        (head("no colon"), 400),
        (head("Name : value"), 400),
        (head(" folded: value"), 400),
        (head("Name: a\nb"), 400),
        (head("Name: a\x00b"), 400),
        (b"\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\r\n\r\n", 400),  # a TLS client
    ],
)
def test_what_is_no_plain_request_is_refused(data: bytes, status: int) -> None:
    assert refused(data) == status


def test_a_body_is_read_where_bodies_are_taken() -> None:
    data = head(
        "Content-Length: 12",
        "Content-Encoding: gzip",
        "Expect: 100-Continue",
        first="POST /x HTTP/1.1",
    )

    request = messages.read_request(data, bodies=True)

    assert request == HttpRequest(
        method="POST", path="/x", length=12, encoding="gzip", waits=True, keep_alive=True
    )


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("Transfer-Encoding: chunked", 411),
        ("Content-Length: -1", 400),
        ("Content-Length: +1", 400),
        ("Content-Length: 1_0", 400),
        ("Content-Length: \xb2", 400),
        ("Content-Length: 1\r\nContent-Length: 2", 400),
        ("Content-Length: 1\r\nTransfer-Encoding: chunked", 411),
        (f"Content-Length: {10**15}", 400),
    ],
)
def test_a_body_whose_length_is_not_told_is_refused(line: str, status: int) -> None:
    with pytest.raises(Refusal) as refusal:
        messages.read_request(head(line, first="POST / HTTP/1.1"), bodies=True)
    assert refusal.value.response.status == status


def test_an_empty_body_is_no_body() -> None:
    assert messages.read_request(head("Content-Length: 0")).method == "GET"


@given(st.binary())
@example(b"GET / HTTP/1.1\r\n\xff: \xff\r\n\r\n")
def test_any_bytes_are_a_request_or_a_refusal(data: bytes) -> None:
    with contextlib.suppress(Refusal):
        assert messages.read_request(data).path.startswith("/")


@given(plain=st.binary(max_size=5000), tails=st.lists(st.binary(max_size=200), max_size=3))
def test_a_compressed_body_with_its_tail_is_one_member_and_equals_the_plain_one(
    plain: bytes, tails: list[bytes]
) -> None:
    body = Body(plain)

    for tail in [*tails, b""]:
        assert gzip.decompress(body.gzipped(tail)) == plain + tail
        assert body.gzipped(tail).count(b"\x1f\x8b\x08") == 1 + (plain + tail).count(
            b"\x1f\x8b\x08"
        )


def test_the_length_is_that_of_body_and_tail() -> None:
    first, content = parts(Response(body=Body(b"body "), tail=b"tail"), GET)

    assert content == b"body tail"
    assert "Content-Length: 9" in first.split("\r\n")


def test_a_small_answer_is_not_compressed() -> None:
    first, content = parts(
        messages.text_response("ok"), HttpRequest(method="GET", path="/", gzip=True)
    )

    assert content == b"ok\n"
    assert "Content-Encoding" not in first


@pytest.mark.parametrize("gzip_taken", [True, False])
def test_head_tells_what_get_would_send_and_sends_nothing(gzip_taken: bool) -> None:
    response = Response(body=Body(b"a" * 5000))

    got, _ = parts(response, HttpRequest(method="GET", path="/", gzip=gzip_taken))
    asked, content = parts(response, HttpRequest(method="HEAD", path="/", gzip=gzip_taken))

    assert (asked, content) == (got, b"")


def test_a_refused_method_is_told_which_ones_are_served() -> None:
    response = messages.text_response("no", HTTPStatus.METHOD_NOT_ALLOWED)

    first, _ = parts(response, None)

    assert {"Allow: GET, HEAD", "Connection: close"} <= set(first.split("\r\n"))


def test_a_refusal_may_tell_other_methods() -> None:
    refusal = Refusal(HTTPStatus.METHOD_NOT_ALLOWED, "no", allow="POST")

    first, _ = parts(refusal.response, None)

    assert "Allow: POST" in first.split("\r\n")


def test_what_need_not_be_compressed_is_sent_as_it_is() -> None:
    response = Response(body=Body(b"a" * 5000), compress=False)

    first, content = parts(response, HttpRequest(method="GET", path="/", gzip=True))

    assert content == b"a" * 5000
    assert "Content-Encoding" not in first


def test_the_link_page_links_to_each_path_and_escapes_it() -> None:
    _, content = parts(messages.link_page("a & b", ["/metrics", '/"x']), GET)

    assert content.decode() == (
        "<!doctype html><html lang=en><meta charset=utf-8><title>a &amp; b</title>"
        '<h1>a &amp; b</h1><ul><li><a href="/metrics">/metrics</a></li>'
        '<li><a href="/&quot;x">/&quot;x</a></li></ul></html>\n'
    )


def test_further_headers_are_sent_and_the_length_stays_right() -> None:
    response = messages.text_response("ok")

    first = b"".join(response.message(GET, 0.0, (("X-Frame-Options", "deny"),))).decode()

    assert "\r\nX-Frame-Options: deny\r\n" in first
    assert "\r\nContent-Length: 3\r\n" in first


def test_who_finds_no_room_is_told_when_to_come_again() -> None:
    head = lines(messages.NO_ROOM, None)
    assert head[0] == "HTTP/1.1 503 Service Unavailable"
    assert {"Retry-After: 5", "Connection: close"} < set(head)
    assert messages.NO_ROOM.body.plain == b"The server has too many clients; try again later.\n"


def test_who_is_not_known_is_told_how_to_say_it() -> None:
    first, _ = parts(messages.text_response("who", HTTPStatus.UNAUTHORIZED), GET)

    assert 'WWW-Authenticate: Basic realm="gpuscape", charset="UTF-8"' in first.split("\r\n")


def test_credentials_are_kept_as_they_were_written() -> None:
    assert messages.read_request(head("authorization: Basic YQ==")).authorization == "Basic YQ=="


@pytest.mark.parametrize(("fault", "status"), [("", 200), ("No GPU.", 503)])
def test_health_is_a_word_and_a_status(fault: str, status: int) -> None:
    response = messages.health(fault)

    assert response.status == status
    assert (response.body.plain == b"OK") is not bool(fault)


def lines(response: Response, request: HttpRequest | None) -> list[str]:
    """Of the head."""
    return parts(response, request)[0].split("\r\n")


def test_the_head_of_an_answer_is_this_and_no_more() -> None:
    """At the first second of 1970. Whatever follows a cache's key is in Vary."""
    assert lines(
        messages.text_response("ok"), HttpRequest(method="GET", path="/", keep_alive=True)
    ) == [
        "HTTP/1.1 200 OK",
        "Date: Thu, 01 Jan 1970 00:00:00 GMT",
        "Content-Type: text/plain; charset=utf-8",
        "Content-Length: 3",
        "Vary: Accept-Encoding",
        "X-Content-Type-Options: nosniff",
    ]


def test_a_compressed_answer_and_one_that_asks_who_it_is_have_a_header_more() -> None:
    compressed = lines(
        Response(body=Body(b"a" * 5000)), HttpRequest(method="GET", path="/", gzip=True)
    )
    unknown = lines(messages.text_response("no", HTTPStatus.UNAUTHORIZED), None)

    assert "Content-Encoding: gzip" in compressed
    assert 'WWW-Authenticate: Basic realm="gpuscape", charset="UTF-8"' in unknown
    assert not [line for line in compressed if line.startswith(("WWW-Authenticate", "Allow"))]


@pytest.mark.parametrize(
    ("data", "bodies", "sentence"),
    [
        (head(first="GET metrics HTTP/1.1"), False, "The first line is no HTTP/1 request for"),
        (head(first="POST / HTTP/1.1"), False, "Only GET and HEAD are served."),
        (head("no colon"), False, "A line of the headers is not name: value."),
        (head("Content-Length: 5"), False, "No request bodies are taken."),
        (head("Transfer-Encoding: x"), True, "Bodies are taken with a Content-Length only."),
        (head("Content-Length: x"), True, "Content-Length is no number of bytes."),
    ],
)
def test_a_refusal_says_what_is_wrong(data: bytes, bodies: bool, sentence: str) -> None:
    """In a sentence that the client gets as a line of text, and that the log has."""
    with pytest.raises(Refusal) as refusal:
        messages.read_request(data, bodies=bodies)

    _, content = parts(refusal.value.response, None)
    assert content.decode() == f"{refusal.value}\n"
    assert str(refusal.value).startswith(sentence)


def test_a_header_ends_with_its_last_visible_character() -> None:
    request = messages.read_request(head("Authorization: Basic X \t"))

    assert request.authorization == "Basic X"


def test_the_health_of_the_agent_is_a_word_or_a_status() -> None:
    assert parts(messages.health(""), GET)[1] == b"OK"
    sick = parts(messages.health("The agent's ticks have stopped."), GET)
    assert sick[0].startswith("HTTP/1.1 503 ")
    assert sick[1] == b"The agent's ticks have stopped.\n"


@pytest.mark.parametrize(
    ("good", "status", "word"), [(True, 200, b"ok\n"), (False, 503, b"not yet\n")]
)
def test_a_probe_is_answered_by_a_status_and_a_word(good: bool, status: int, word: bytes) -> None:
    response = messages.probe(good)
    assert (response.status, response.body.plain) == (status, word)


def test_a_sentence_of_an_answer_is_one_line_that_no_terminal_obeys() -> None:
    assert messages.text_response("no \x1b[2J\u202e\nok").body.plain == b"no \\x1b[2J\\u202e\\nok\n"


@pytest.mark.parametrize(
    "value",
    [
        *("node", "node:9400", "10.0.0.1:9400", "[fe80::1]:9400", "[::1]", "a_b.example.", ""),
        *("node:", "n%C3%BCrnberg", "[v1.x:y]"),
    ],
)
@pytest.mark.parametrize("minor", ["0", "1"])
def test_a_host_with_or_without_a_port_is_taken(value: str, minor: str) -> None:
    """Source of the forms: RFC 3986, 3.2.2; an empty one: RFC 9112, 3.2."""
    data = f"GET / HTTP/1.{minor}\r\nHost: {value}\r\n\r\n".encode()
    assert messages.read_request(data).path == "/"


@pytest.mark.parametrize(
    "lines",
    [
        *("", "Hosts: node\r\n", "Host: a\r\nHost: a\r\n", "Host: a\r\nhost: b\r\n"),
        *("Host: a,b c\r\n", "Host: a/b\r\n", "Host: a@b\r\n", "Host: a:x\r\n"),
        *(
            "Host: [::1\r\n",
            "Host: a b\r\n",
            "Host: \x1b[2J\r\n",
            "Host: %zz\r\n",
            "Host: a:1:2\r\n",
        ),
    ],
)
def test_http_1_1_has_one_host_that_is_one(lines: str) -> None:
    assert refused(f"GET / HTTP/1.1\r\n{lines}\r\n".encode()) == 400


def test_http_1_0_needs_no_host_and_takes_no_two() -> None:
    assert messages.read_request(b"GET / HTTP/1.0\r\n\r\n").path == "/"
    assert refused(b"GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n") == 400
