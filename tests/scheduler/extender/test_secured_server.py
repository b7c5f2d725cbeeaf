# SPDX-License-Identifier: Apache-2.0
"""TLS of the extender: who is served, and what changed files change."""

from __future__ import annotations

import contextlib
import http.client
import logging
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from base import followed_file
from base.errors import BadInput
from scheduler.extender.extender_limits import ExtenderLimits
from scheduler.extender.routes import ClientTerms, Routes
from scheduler.extender.server_tls import Party, ServerTls, has_name
from tests import exposition
from tests.agent.agent_process import SOON, until
from tests.scheduler.calls import body
from tests.scheduler.extenders import Served, asked, served
from tests.web.certificates import Certificate, authority, issued
from tests.web.secured import is_modern, old_ciphers, speaks_only
from web.messages import Response, text_response

OURS, THEIRS = authority("ours"), authority("theirs")
SCHEDULER = issued(OURS, "system:kube-scheduler", ())


class Files(NamedTuple):
    """Paths of a server's certificate, its key, and its clients' authorities."""

    certificate: Path
    key: Path
    client_authorities: Path


@pytest.fixture
def files(tmp_path: Path) -> Files:
    issued(OURS, "server").write(tmp_path)
    (tmp_path / "ca.crt").write_bytes(OURS.pem)
    return Files(tmp_path / "tls.crt", tmp_path / "tls.key", tmp_path / "ca.crt")


@pytest.fixture
def extender(files: Files, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setattr(followed_file, "POLL_SECONDS", 0.01)
    terms = ClientTerms(
        tls=ServerTls(*files),
        needs_certificate=True,
        client_names=("system:kube-scheduler", "other"),
        budget_seconds=SOON,
    )
    with served(terms) as running:
        yield running


def context(
    tmp_path: Path, certificate: Certificate | None, trusted: Certificate = OURS
) -> ssl.SSLContext:
    """A client that shows this certificate."""
    made = ssl.create_default_context(cadata=trusted.pem.decode())
    if certificate is not None:
        certificate.write(tmp_path, "client")
        made.load_cert_chain(tmp_path / "client.crt", tmp_path / "client.key")
    return made


def status(extender: Served, client: ssl.SSLContext, path: str = "/v1/prioritize") -> int:
    """Of a request on a new connection."""
    with contextlib.closing(extender.connect(client)) as connection:
        return asked(connection, path, body() if path.startswith("/v1") else None).status


def test_the_scheduler_s_certificate_is_served(extender: Served, tmp_path: Path) -> None:
    assert status(extender, context(tmp_path, SCHEDULER)) == http.client.OK


@pytest.mark.parametrize("certificate", [None, issued(OURS, "somebody")])
def test_who_has_no_certificate_or_another_name_may_only_look(
    extender: Served, tmp_path: Path, certificate: Certificate | None
) -> None:
    client = context(tmp_path, certificate)
    for path in ("/v1/prioritize", "/v1/explain", "/debug/nodes/a"):
        assert status(extender, client, path) == http.client.FORBIDDEN
    for path in ("/livez", "/readyz", "/metrics", "/openapi.json"):
        assert status(extender, client, path) == http.client.OK


def test_who_is_refused_is_not_listened_to(extender: Served, tmp_path: Path) -> None:
    """An answer comes before the body is read."""
    with contextlib.closing(extender.connect(context(tmp_path, None))) as connection:
        connection.putrequest("POST", "/v1/prioritize")
        connection.putheader("Content-Length", "95000000")
        connection.endheaders()
        assert connection.getresponse().status == http.client.FORBIDDEN


def test_a_certificate_of_another_authority_gets_no_connection(
    extender: Served, tmp_path: Path
) -> None:
    with pytest.raises((ssl.SSLError, ConnectionError)):
        status(extender, context(tmp_path, issued(THEIRS, "system:kube-scheduler")))


@pytest.mark.parametrize(
    ("certificate", "reason"),
    [
        (None, "no_certificate"),
        (issued(OURS, "somebody"), "name"),
        (issued(THEIRS, "system:kube-scheduler"), "certificate"),
    ],
)
def test_a_client_that_is_refused_is_counted_and_logged_with_its_reason(
    extender: Served,
    tmp_path: Path,
    certificate: Certificate | None,
    reason: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with contextlib.suppress(ssl.SSLError, ConnectionError):
        status(extender, context(tmp_path, certificate))

    _refused_once(extender, reason, caplog)


def test_plain_http_where_tls_is_spoken_is_counted_and_logged(
    extender: Served, caplog: pytest.LogCaptureFixture
) -> None:
    with contextlib.suppress(http.client.HTTPException, ConnectionError):
        extender.ask("/livez")

    _refused_once(extender, "plaintext", caplog)


def test_the_scheduler_and_probes_without_certificates_are_not_refused(
    extender: Served, tmp_path: Path
) -> None:
    status(extender, context(tmp_path, SCHEDULER))
    status(extender, context(tmp_path, None), "/metrics")

    assert "http_refusals_total" in extender.metrics.render().decode()
    assert _refusals(extender) == {}


def _refused_once(extender: Served, reason: str, caplog: pytest.LogCaptureFixture) -> None:
    until(lambda: bool(_refusals(extender)) and bool(caplog.records))
    assert _refusals(extender) == {reason: 1}
    (line,) = caplog.records
    assert (line.message, vars(line)["reason"], vars(line)["client"]) == (
        "client refused",
        reason,
        "127.0.0.1",
    )


def _refusals(extender: Served) -> dict[str, float]:
    """How many there were, by reason."""
    name = "gpuscape_scheduler_http_refusals_total"
    series = exposition.series(extender.metrics.render())
    return {
        dict(labels)["reason"]: value
        for (at, labels), value in series.items()
        if at == name and value
    }


def test_a_client_that_gets_no_place_in_time_is_answered_after_the_handshake(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, late = threading.Event(), threading.Event()

    def slow(_site: Routes, _body: bytes) -> Response:
        begun.set()
        late.wait(SOON)
        return text_response("ok")

    monkeypatch.setattr(Routes, "_explain", slow)
    client = context(tmp_path, SCHEDULER)
    terms = ClientTerms(tls=ServerTls(*files), needs_certificate=True)
    with (
        served(terms, limits=ExtenderLimits(connections=2)) as extender,
        ThreadPoolExecutor() as pool,
    ):
        first = pool.submit(status, extender, client, "/v1/explain")
        assert begun.wait(SOON)
        statuses = [status(extender, client, path) for path in ("/v1/prioritize", "/livez")]
        late.set()
        assert first.result() == http.client.OK

    assert statuses == [http.client.SERVICE_UNAVAILABLE, http.client.OK]


def test_a_client_with_an_admitted_certificate_keeps_its_place_though_it_asked_first(
    files: Files, tmp_path: Path
) -> None:
    terms = ClientTerms(tls=ServerTls(*files), needs_certificate=True)
    with (
        served(terms, limits=ExtenderLimits(connections=3)) as extender,
        contextlib.ExitStack() as opened,
    ):
        clients = (context(tmp_path, each) for each in (SCHEDULER, None, None))
        scheduler, stranger, other = (
            opened.enter_context(contextlib.closing(extender.connect(each))) for each in clients
        )
        assert asked(scheduler, "/livez").status == http.client.OK
        assert asked(stranger, "/livez").status == http.client.OK
        kept, closed = scheduler.sock, stranger.sock
        assert asked(other, "/livez").status == http.client.OK
        with contextlib.suppress(ssl.SSLError):
            assert closed.recv(1) == b""
        assert asked(scheduler, "/livez").status == http.client.OK
        assert scheduler.sock is kept


def test_without_a_thread_for_it_a_connection_ends_and_the_next_is_served(
    extender: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = context(tmp_path, SCHEDULER)
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        monkeypatch.setattr(threading.Thread, "start", start)
        raise RuntimeError(f"can't start new thread {thread.name}")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises((ssl.SSLError, ConnectionError)):
        status(extender, client)

    assert status(extender, client) == http.client.OK
    assert _refusals(extender) == {"resources": 1}


def test_new_files_count_for_new_connections_and_end_old_ones(
    extender: Served, tmp_path: Path
) -> None:
    """The whole authority is replaced: who trusted the old one is out, on both sides."""
    before = context(tmp_path, SCHEDULER)
    with contextlib.closing(extender.connect(before)) as connection:
        assert asked(connection, "/v1/prioritize", body()).status == http.client.OK
        (tmp_path / "ca.crt").write_bytes(THEIRS.pem)
        issued(THEIRS, "server").write(tmp_path)
        after = context(tmp_path, issued(THEIRS, "other", ()), THEIRS)

        def is_new() -> bool:
            with contextlib.suppress(ssl.SSLError, ConnectionError):
                return status(extender, after) == http.client.OK
            return False

        until(is_new)
        last = asked(connection, "/v1/prioritize", body())
        assert (last.status, last.headers["Connection"]) == (http.client.OK, "close")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        status(extender, before)


def test_files_that_do_not_fit_together_change_nothing_and_are_told_once(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    """As while somebody replaces them one after the other."""
    tls = ServerTls(*files)
    held = tls.current
    files.key.write_bytes(issued(OURS).key_pem())
    tls.poll(0.0)
    tls.poll(0.0)
    assert tls.current is held
    assert str([line.__dict__ for line in caplog.records]).count("the key is not that") == 1
    issued(OURS, "server").write(files.key.parent)
    tls.poll(0.0)
    assert tls.current is not held


def test_equal_files_change_nothing(files: Files) -> None:
    tls = ServerTls(*files)
    held = tls.current
    tls.poll(0.0)
    assert tls.current is held


def test_changed_files_are_logged_and_their_end_is_the_new_one(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    tls = ServerTls(*files)
    renewed = issued(OURS, "server", days=3)
    renewed.write(files.key.parent)
    caplog.set_level(logging.INFO)
    for _ in range(2):
        tls.poll(0.0)
    assert [(line.levelname, line.message) for line in caplog.records] == [
        ("INFO", "certificates reloaded")
    ]
    assert tls.ends()[Party.SERVER] == end(renewed)


def test_a_certificate_whose_end_cannot_be_read_is_named_and_served(
    files: Files, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ends(pem: bytes) -> tuple[float, ...]:
        if pem == files.certificate.read_bytes():
            raise ValueError("it ends too soon")
        return (7.0, 5.0)

    monkeypatch.setattr("web.certificates.ends", ends)
    assert ServerTls(*files).ends() == {Party.CLIENT_AUTHORITY: 5.0}
    (line,) = caplog.records
    assert (line.levelname, line.getMessage()) == ("WARNING", "certificate expiry unknown")
    assert (vars(line)["file"], vars(line)["why"]) == (
        str(files.certificate),
        "it ends too soon",
    )


def test_tls_is_as_strict_as_that_of_all_servers(files: Files) -> None:
    context_of_clients = ServerTls(*files).current
    assert context_of_clients.verify_mode is ssl.CERT_OPTIONAL
    assert context_of_clients.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context_of_clients.num_tickets == 0
    for option in (ssl.OP_NO_TICKET, ssl.OP_NO_RENEGOTIATION):
        assert context_of_clients.options & option


@pytest.mark.parametrize("broken", ["certificate", "key", "client_authorities"])
@pytest.mark.parametrize("content", [None, b"", b"x" * ((1 << 20) + 1)])
def test_a_file_that_cannot_be_used_is_named(
    files: Files, broken: str, content: bytes | None
) -> None:
    path: Path = getattr(files, broken)
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BadInput, match=str(path)):
        ServerTls(*files)


def test_what_is_wrong_with_a_file_is_one_whole_sentence(files: Files) -> None:
    for path, content, fault in (
        (files.client_authorities, b"", "there is no certificate (PEM)"),
        (files.key, issued(OURS).key_pem(), "the key is not that of the certificate"),
        (files.key, b"", "there is no private key (PEM)"),
        (files.certificate, b"", "there is no certificate (PEM)"),
    ):
        assert path is not None
        before = path.read_bytes()
        path.write_bytes(content)
        with pytest.raises(BadInput) as refusal:
            ServerTls(*files)
        assert str(refusal.value) == f"{path}: {fault}"
        path.write_bytes(before)


def test_an_encrypted_key_is_refused_and_not_asked_about(files: Files) -> None:
    made = issued(OURS)
    files.certificate.write_bytes(made.pem)
    files.key.write_bytes(made.key_pem(b"secret"))
    with pytest.raises(BadInput, match="the key is encrypted"):
        ServerTls(*files)


@pytest.mark.parametrize(
    ("certificate", "wanted", "has"),
    [
        (None, (), False),
        ({}, (), False),
        ({"subject": ((("commonName", "a"),),)}, (), True),
        ({"subject": ((("commonName", "a"),),)}, ("b", "a"), True),
        ({"subject": ((("organizationName", "a"),),)}, ("a",), False),
        ({"subject": (), "subjectAltName": (("DNS", "a"),)}, ("a",), True),
        ({"subject": (), "subjectAltName": (("email", "a"),)}, ("a",), False),
    ],
)
def test_names_are_common_names_and_dns_names(
    certificate: dict[str, object] | None, wanted: tuple[str, ...], has: bool
) -> None:
    assert has_name(certificate, wanted) is has


def end(*certificates: Certificate) -> float:
    """When the first of them ends."""
    found = min(it.certificate.not_valid_after_utc for it in certificates)
    return found.replace(microsecond=0).timestamp()


def shown_ends(extender: Served) -> dict[str, float]:
    """What its metrics say of when certificates end."""
    name = "gpuscape_scheduler_certificate_expiry_timestamp_seconds"
    series = exposition.series(extender.metrics.render())
    return {
        dict(labels)["certificate"]: it for (each, labels), it in series.items() if each == name
    }


def test_when_the_certificates_in_use_end_is_a_metric(files: Files, tmp_path: Path) -> None:
    """Of authorities the first to end, which here is not the first; the client's once served."""
    soon = authority("soon", days=0.5)
    (tmp_path / "ca.crt").write_bytes(OURS.pem + soon.pem)
    own = issued(OURS, "server", days=20)
    own.write(tmp_path)

    with served(ClientTerms(tls=ServerTls(*files), needs_certificate=True)) as running:
        before = shown_ends(running)
        assert status(running, context(tmp_path, SCHEDULER)) == http.client.OK
        after = shown_ends(running)

    assert before == {"server": end(own), "client_authority": end(soon)}
    assert after == before | {"client": end(SCHEDULER)}


@pytest.mark.parametrize("certificate", [None, issued(OURS, "somebody", days=3)])
def test_the_certificate_of_a_client_that_is_refused_does_not_count(
    extender: Served, tmp_path: Path, certificate: Certificate | None
) -> None:
    assert status(extender, context(tmp_path, SCHEDULER)) == http.client.OK
    assert status(extender, context(tmp_path, certificate)) == http.client.FORBIDDEN
    assert shown_ends(extender)["client"] == end(SCHEDULER)


def test_new_files_have_new_ends_and_refused_ones_leave_the_old(
    files: Files, tmp_path: Path
) -> None:
    tls = ServerTls(*files)
    renewed = issued(OURS, "server", days=300)
    renewed.write(tmp_path)

    tls.poll(0.0)
    assert tls.ends()[Party.SERVER] == end(renewed)

    (tmp_path / "tls.crt").write_bytes(issued(OURS, "server", days=900).pem)  # of another key
    tls.poll(0.0)
    assert tls.ends()[Party.SERVER] == end(renewed)


def test_of_tls_1_2_only_ciphers_with_aead_and_forward_secrecy_are_spoken(
    extender: Served, tmp_path: Path
) -> None:
    spoken = set()
    for cipher in old_ciphers():
        client = speaks_only(context(tmp_path, SCHEDULER), cipher)
        with contextlib.suppress(ssl.SSLError, ConnectionError):
            status(extender, client, "/livez")
            spoken.add(cipher)

    assert spoken == {cipher for cipher in old_ciphers() if is_modern(cipher)}


@pytest.mark.parametrize(
    ("hosts", "answer"),
    [(["a"], http.client.OK), ([], http.client.BAD_REQUEST), (["a", "a"], http.client.BAD_REQUEST)],
)
def test_a_request_of_http_1_1_has_one_host(
    extender: Served, tmp_path: Path, hosts: list[str], answer: int
) -> None:
    with contextlib.closing(extender.connect(context(tmp_path, SCHEDULER))) as connection:
        connection.putrequest("GET", "/livez", skip_host=True)
        for host in hosts:
            connection.putheader("Host", host)
        connection.endheaders()
        assert connection.getresponse().status == answer
