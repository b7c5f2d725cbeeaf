# SPDX-License-Identifier: Apache-2.0
"""The server behind a web config file: who gets in, over real sockets."""

from __future__ import annotations

import http.client
import ipaddress
import logging
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cryptography import x509

from tests.web.certificates import authority, issued
from tests.web.secured import (
    LARGE,
    MUTUAL,
    PASSWORD,
    TLS,
    USERS,
    Site,
    ask,
    basic,
    connection,
    is_modern,
    old_ciphers,
    refused,
    speaks_only,
)
from web.messages import ServerLimits


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.stop()


# TLS


def test_metrics_are_served_over_tls(site: Site) -> None:
    server = site.start(TLS)

    assert ask(server, site.context())[1] == b"ok\n"


@pytest.mark.parametrize("closing", ["close", "keep-alive"])
def test_a_large_answer_over_tls_is_whole(site: Site, closing: str) -> None:
    server = site.start(TLS)

    assert ask(server, site.context(), "/large", {"Connection": closing})[1] == LARGE


def test_the_end_of_the_last_answer_is_told_in_tls_own_words(site: Site) -> None:
    """Without them a client cannot tell an end from an attack that cuts the connection."""
    server, context = site.start(TLS), site.context()
    address = ("127.0.0.1", server.address.port)
    with (
        socket.create_connection(address, timeout=60) as raw,
        context.wrap_socket(raw, server_hostname="127.0.0.1", suppress_ragged_eofs=False) as client,
    ):
        client.sendall(b"GET /large HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n")
        received = b"".join(iter(lambda: client.recv(1 << 10), b""))

    assert received.endswith(b"\r\n\r\n" + LARGE)


def test_a_connection_over_tls_serves_request_after_request(site: Site) -> None:
    client = connection(site.start(TLS), site.context())

    answers = []
    for _ in range(3):
        client.request("GET", "/livez")
        answers.append((client.getresponse().read(), client.sock))

    client.close()
    assert [content for content, _ in answers] == [b"ok\n"] * 3
    assert len({id(sock) for _, sock in answers}) == 1


def test_clients_that_speak_at_once_all_shake_hands(site: Site) -> None:
    """What a client sends before the server speaks TLS must not get lost on the way there."""
    server, context = site.start(TLS), site.context()

    assert {ask(server, context)[1] for _ in range(100)} == {b"ok\n"}


def test_http_1_1_is_agreed_on_and_http_2_is_not(site: Site) -> None:
    server, context = site.start(TLS), site.context()
    context.set_alpn_protocols(["h2", "http/1.1"])

    with (
        socket.create_connection(("127.0.0.1", server.address.port), timeout=60) as raw,
        context.wrap_socket(raw, server_hostname="127.0.0.1") as client,
    ):
        assert client.selected_alpn_protocol() == "http/1.1"


def test_versions_outside_those_of_the_file_are_refused(site: Site) -> None:
    server = site.start(TLS.replace("}", ", min_version: TLS13}"))
    old, new = site.context(), site.context()
    old.maximum_version = ssl.TLSVersion.TLSv1_2

    assert refused(server, old)
    assert not refused(server, new)


def test_a_cipher_that_the_file_does_not_name_is_refused(site: Site) -> None:
    only = "cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384], max_version: TLS12"
    server = site.start(TLS.replace("}", f", {only}}}"))
    other, named = site.context(), site.context()
    other.set_ciphers("ECDHE-ECDSA-AES128-GCM-SHA256")
    named.set_ciphers("ECDHE-ECDSA-AES256-GCM-SHA384")

    assert refused(server, other)
    assert not refused(server, named)


@pytest.mark.parametrize(
    "more",
    ["", "cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA, TLS_AES_128_GCM_SHA256]"],
    ids=["by default", "with CBC in the file"],
)
def test_of_tls_1_2_only_ciphers_with_aead_and_forward_secrecy_are_spoken(
    site: Site, more: str
) -> None:
    server = site.start(TLS.replace("}", f", {more}}}") if more else TLS)

    spoken = {it for it in old_ciphers() if not refused(server, speaks_only(site.context(), it))}

    assert spoken == (set() if more else {it for it in old_ciphers() if is_modern(it)})
    assert not refused(server, site.context())


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01"])
def test_a_client_that_does_not_finish_its_handshake_is_cut_off(
    site: Site, sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    server = site.start(TLS, ServerLimits(header_seconds=0.2, request_seconds=60, idle_seconds=60))
    with socket.create_connection(("127.0.0.1", server.address.port), timeout=60) as client:
        client.sendall(sent)

        assert b"ok" not in everything(client)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def everything(client: socket.socket) -> bytes:
    received = b""
    try:
        while data := client.recv(1 << 16):
            received += data
    except ConnectionResetError:
        pass
    return received


def test_the_server_stops_while_a_handshake_hangs(site: Site) -> None:
    server = site.start(TLS)
    with socket.create_connection(("127.0.0.1", server.address.port), timeout=60) as client:
        client.sendall(b"\x16\x03\x01")

        server.stop(within_seconds=60)

        assert everything(client) == b""


# client certificates


def test_a_client_with_a_certificate_of_the_authority_is_let_in(site: Site) -> None:
    server = site.start(MUTUAL)

    assert ask(server, site.context(issued(site.client_authority)))[1] == b"ok\n"


def test_a_client_without_a_certificate_or_with_another_authoritys_is_not(site: Site) -> None:
    server = site.start(MUTUAL)

    assert refused(server, site.context())
    assert refused(server, site.context(issued(authority("others"))))
    assert refused(server, None)


def test_a_client_that_is_refused_is_told_why(site: Site) -> None:
    server, context = site.start(MUTUAL), site.context()
    address = ("127.0.0.1", server.address.port)

    with (
        socket.create_connection(address, timeout=60) as raw,
        context.wrap_socket(raw, server_hostname="127.0.0.1") as client,
        pytest.raises(ssl.SSLError, match="alert certificate required"),
    ):
        client.recv(1)


def test_a_certificate_may_be_left_out_where_it_is_only_verified_if_given(site: Site) -> None:
    server = site.start(MUTUAL.replace("RequireAndVerifyClientCert", "VerifyClientCertIfGiven"))

    assert not refused(server, site.context())
    assert not refused(server, site.context(issued(site.client_authority)))
    assert refused(server, site.context(issued(authority("others"))))


@pytest.mark.parametrize(
    ("name", "let_in"),
    [
        (x509.DNSName("prometheus"), True),
        (x509.DNSName("prometheus.monitoring"), False),
        (x509.IPAddress(ipaddress.ip_address("::1")), True),
        (x509.UniformResourceIdentifier("spiffe://cluster/prometheus"), True),
        (x509.RFC822Name("a@example.com"), False),
    ],
    ids=str,
)
def test_a_certificate_needs_one_of_the_names(
    site: Site, name: x509.GeneralName, let_in: bool
) -> None:
    names = "client_allowed_sans: [prometheus, '::1', 'spiffe://cluster/prometheus']"
    server = site.start(MUTUAL.replace("}", f", {names}}}"))

    client = issued(site.client_authority, names=(name,))

    assert refused(server, site.context(client)) is not let_in


def test_a_certificate_without_names_is_refused_where_one_is_needed(site: Site) -> None:
    server = site.start(MUTUAL.replace("}", ", client_allowed_sans: [prometheus]}"))

    assert refused(server, site.context(issued(site.client_authority, names=())))


# passwords


def test_the_right_password_is_let_in(site: Site) -> None:
    server = site.start(USERS)

    assert ask(server, headers=basic("alice", PASSWORD))[1] == b"ok\n"


@pytest.mark.parametrize(
    "headers",
    [{}, basic("alice", "wrong"), basic("bob", PASSWORD), {"Authorization": "Basic !"}],
    ids=["none", "wrong password", "unknown user", "broken"],
)
def test_who_cannot_tell_a_password_is_asked_for_it_on_every_path(
    site: Site, headers: dict[str, str]
) -> None:
    server = site.start(USERS)

    for path in ("/livez", "/", "/nothing"):
        response, content = ask(server, path=path, headers=headers)

        assert response.status == 401
        assert response.headers["WWW-Authenticate"].startswith("Basic ")
        assert content == b"Name and password are needed.\n"


def test_headers_of_the_file_are_on_every_answer(site: Site) -> None:
    config = "http_server_config: {headers: {X-Frame-Options: deny}}\n"
    server = site.start(config + USERS)

    answers = [ask(server), ask(server, path="/nothing", headers=basic("alice", PASSWORD))]

    assert [response.headers["X-Frame-Options"] for response, _ in answers] == ["deny", "deny"]


def test_requests_beyond_the_rate_of_the_file_are_told_so(site: Site) -> None:
    server = site.start("rate_limit: {interval: 1h, burst: 2}\n")

    assert [ask(server)[0].status for _ in range(3)] == [200, 200, 429]


# reload


def test_a_new_certificate_is_served_from_the_next_connection_on(site: Site) -> None:
    server = site.start(TLS)
    other = authority("new")
    issued(other).write(site.folder)

    site.file.poll(0.0)

    assert refused(server, site.context())
    site.authority = other
    assert not refused(server, site.context())


def test_a_new_config_counts_for_connections_that_were_there_before(site: Site) -> None:
    server = site.start("{}")
    client = connection(server)
    client.request("GET", "/livez")
    before = client.getresponse().read()
    site.write(USERS)
    site.file.poll(0.0)

    client.request("GET", "/livez")

    assert (before, client.getresponse().status) == (b"ok\n", 401)
    client.close()


def test_a_connection_made_before_tls_was_asked_for_is_ended(site: Site) -> None:
    server = site.start("{}")
    client = connection(server)
    client.request("GET", "/livez")
    client.getresponse().read()
    site.write(TLS)
    site.file.poll(0.0)

    client.request("GET", "/livez")

    with pytest.raises((http.client.RemoteDisconnected, ConnectionError)):
        client.getresponse()
    client.close()


Break = Callable[[Site], None]


@pytest.mark.parametrize(
    "damage",
    [
        lambda site: site.write("tls_server_confg: {}"),
        lambda site: (site.folder / "web.yaml").unlink(),
        lambda site: (site.folder / "tls.key").write_bytes(issued(authority()).key_pem()),
        lambda site: (site.folder / "tls.crt").write_text("nothing"),
        lambda site: (site.folder / "tls.crt").unlink(),
    ],
    ids=["unknown key", "no file", "another key", "no certificate", "certificate gone"],
)
def test_what_is_broken_later_is_told_once_and_the_last_good_state_stays(
    site: Site, damage: Break, caplog: pytest.LogCaptureFixture
) -> None:
    server = site.start(TLS + USERS)
    damage(site)

    for _ in range(3):
        site.file.poll(0.0)

    assert ask(server, site.context(), headers=basic("alice", PASSWORD))[1] == b"ok\n"
    assert ask(server, site.context())[0].status == 401
    refusals = [message for message in caplog.messages if "file rejected" in message]
    assert len(refusals) == 1
