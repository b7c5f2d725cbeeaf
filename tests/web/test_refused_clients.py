# SPDX-License-Identifier: Apache-2.0
"""Whoever runs the agent sees which clients it refuses, and why: a metric and a line in the log."""

from __future__ import annotations

import contextlib
import http.client
import logging
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from tests.agent.agent_process import until
from tests.web.certificates import authority, issued
from tests.web.secured import MUTUAL, PASSWORD, TLS, USERS, Site, ask, basic, refused
from web.refusals import RefusalReason
from web.server import HttpServer

NAMED = MUTUAL.replace("}", ", client_allowed_sans: [prometheus]}")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.stop()


def _old(site: Site) -> ssl.SSLContext:
    context = site.context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    return context


def _send(server: HttpServer, sent: bytes) -> None:
    address = ("127.0.0.1", server.address.port)
    with (
        socket.create_connection(address, timeout=60) as client,
        contextlib.suppress(ConnectionError),
    ):
        client.sendall(sent)
        while client.recv(1 << 10):
            pass


Client = Callable[[Site, HttpServer], object]

CLIENTS: dict[str, tuple[str, Client, RefusalReason]] = {
    "plain HTTP": (TLS, lambda _site, server: refused(server, None), RefusalReason.PLAINTEXT),
    "a proxy's question": (
        TLS,
        lambda _site, server: _send(server, b"CONNECT node:9400 HTTP/1.1\r\n\r\n"),
        RefusalReason.PLAINTEXT,
    ),
    "noise": (TLS, lambda _site, server: _send(server, bytes(64)), RefusalReason.HANDSHAKE),
    "an old version": (
        TLS.replace("}", ", min_version: TLS13}"),
        lambda site, server: refused(server, _old(site)),
        RefusalReason.HANDSHAKE,
    ),
    "another trust": (
        TLS,
        lambda _site, server: refused(server, ssl.create_default_context()),
        RefusalReason.HANDSHAKE,
    ),
    "no certificate": (
        MUTUAL,
        lambda site, server: refused(server, site.context()),
        RefusalReason.NO_CERTIFICATE,
    ),
    "another authority's": (
        MUTUAL,
        lambda site, server: refused(server, site.context(issued(authority("others")))),
        RefusalReason.CERTIFICATE,
    ),
    "another name": (
        NAMED,
        lambda site, server: refused(server, site.context(issued(site.client_authority))),
        RefusalReason.NAME,
    ),
    "no password": (USERS, lambda _site, server: ask(server), RefusalReason.CREDENTIALS),
    "a wrong password": (
        USERS,
        lambda _site, server: ask(server, headers=basic("alice", "x")),
        RefusalReason.CREDENTIALS,
    ),
    "no HTTP": (
        USERS,
        lambda _site, server: _send(server, b"noise\r\n\r\n"),
        RefusalReason.REQUEST,
    ),
}


@pytest.mark.parametrize(("config", "client", "reason"), CLIENTS.values(), ids=CLIENTS)
def test_a_refused_client_is_counted_and_logged_with_its_reason(
    site: Site, config: str, client: Client, reason: RefusalReason, caplog: pytest.LogCaptureFixture
) -> None:
    server = site.start(config)

    client(site, server)

    until(lambda: bool(site.refused) and bool(_logged(caplog)))
    assert site.refused == {reason: 1}
    assert [_facts(record) for record in _logged(caplog)] == [
        ("client refused", str(reason), "127.0.0.1")
    ]


def test_requests_beyond_the_rate_are_counted(site: Site) -> None:
    server = site.start("rate_limit: {interval: 1h, burst: 2}\n")

    statuses = [ask(server)[0].status for _ in range(4)]

    assert statuses == [200, 200, 429, 429]
    assert site.refused == {RefusalReason.RATE: 2}


def test_who_is_served_is_not_refused(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    """Nor is one that asks for what is not there, or goes without a word, as probes of ports do."""
    server = site.start(NAMED + USERS)
    prometheus = (x509.DNSName("prometheus"),)
    mine = site.context(issued(site.client_authority, names=prometheus))
    with socket.create_connection(("127.0.0.1", server.address.port), timeout=60):
        pass

    answers = [ask(server, mine, path, basic("alice", PASSWORD)) for path in ("/livez", "/none")]

    assert [response.status for response, _ in answers] == [200, 404]
    server.stop(within_seconds=60)
    assert (site.refused, _logged(caplog)) == ({}, [])


def test_no_password_and_no_user_s_name_is_logged(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    """People type one in the place of the other."""
    server = site.start(USERS)

    with contextlib.suppress(http.client.HTTPException):
        ask(server, headers=basic("mistyped-name", "mistyped-word"))

    assert site.refused == {RefusalReason.CREDENTIALS: 1}
    assert not [line for line in caplog.records if "mistyped" in str(vars(line))]


@pytest.mark.parametrize(
    ("client", "detail"),
    [
        ("no password", "no password"),
        ("a wrong password", "wrong name or password"),
        ("no HTTP", "The first line is no HTTP/1 request for a path."),
        ("another authority's", "unable to get local issuer certificate"),
        ("no certificate", "peer did not return a certificate"),
        ("plain HTTP", "http request"),
    ],
)
def test_the_log_says_what_was_missing(
    site: Site, client: str, detail: str, caplog: pytest.LogCaptureFixture
) -> None:
    config, send, _ = CLIENTS[client]

    send(site, site.start(config))

    until(lambda: bool(_logged(caplog)))
    assert [vars(record)["detail"] for record in _logged(caplog)] == [detail]


def _logged(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """Lines about refused clients."""
    return [record for record in caplog.records if record.name == "web.refusals"]


def _facts(record: logging.LogRecord) -> tuple[Any, ...]:
    return record.message, record.reason, record.client  # type: ignore[attr-defined]  # our own
