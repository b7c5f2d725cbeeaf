# SPDX-License-Identifier: Apache-2.0
"""Certificates and keys become a context, or one sentence that names which of them is wrong."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from base.errors import BadInput
from base.files import MOST_BYTES
from tests.web.certificates import authority, issued
from web.tls import context_of, read_material
from web.web_config import TlsConfig, read_web_config

WEB_YAML = """\
tls_server_config:
  cert_file: tls.crt
  key_file: tls.key
  client_ca_file: ca.crt
  client_auth_type: RequireAndVerifyClientCert
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    ours = authority()
    issued(ours).write(tmp_path)
    (tmp_path / "ca.crt").write_bytes(ours.pem)
    return tmp_path


def tls_of(folder: Path, text: str = WEB_YAML) -> TlsConfig:
    tls = read_web_config(text, str(folder / "web.yaml")).tls
    assert tls is not None
    return tls


def context(folder: Path, text: str = WEB_YAML) -> ssl.SSLContext:
    tls = tls_of(folder, text)
    return context_of(tls, read_material(tls))


def test_the_context_is_as_the_file_says(folder: Path) -> None:
    more = (
        "  max_version: TLS12\n  prefer_server_cipher_suites: false\n"
        "  cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384]\n"
    )

    found = context(folder, WEB_YAML + more)

    assert found.minimum_version is found.maximum_version is ssl.TLSVersion.TLSv1_2
    assert found.verify_mode is ssl.CERT_REQUIRED
    assert not found.options & ssl.OP_CIPHER_SERVER_PREFERENCE
    old = [each["name"] for each in found.get_ciphers() if each["protocol"] != "TLSv1.3"]
    assert old == ["ECDHE-ECDSA-AES256-GCM-SHA384"]


def test_nothing_of_a_connection_is_kept_for_the_next(folder: Path) -> None:
    found = context(folder)

    assert found.num_tickets == 0
    assert found.options & ssl.OP_NO_TICKET
    assert found.options & ssl.OP_NO_RENEGOTIATION


def test_who_chooses_the_cipher_changes_nothing_else(folder: Path) -> None:
    ours = context(folder)
    theirs = context(folder, f"{WEB_YAML}  prefer_server_cipher_suites: false\n")

    assert ours.options & ssl.OP_CIPHER_SERVER_PREFERENCE
    assert ours.options & ~ssl.OP_CIPHER_SERVER_PREFERENCE == theirs.options
    assert theirs.options & ssl.OP_NO_SSLv3
    assert theirs.options & ssl.OP_NO_COMPRESSION


def test_http_1_1_is_the_only_protocol_that_is_agreed_on(folder: Path) -> None:
    assert agreed(context(folder), ["h2", "http/1.1"]) == ("http/1.1", "TLSv1.3")


@pytest.mark.parametrize(
    ("lowest", "highest", "version"),
    [("TLS12", "TLS12", "TLSv1.2"), ("TLS12", "TLS13", "TLSv1.3"), ("TLS13", "TLS13", "TLSv1.3")],
)
def test_versions_are_those_of_the_file(
    folder: Path, lowest: str, highest: str, version: str
) -> None:
    text = f"{WEB_YAML}  min_version: {lowest}\n  max_version: {highest}\n"
    assert agreed(context(folder, text), []) == (None, version)


def agreed(server: ssl.SSLContext, protocols: list[str]) -> tuple[str | None, str | None]:
    """Application protocol and version of a handshake with a client that offers these."""
    server.verify_mode = ssl.CERT_NONE
    client = ssl.create_default_context()
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    if protocols:
        client.set_alpn_protocols(protocols)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for end in ends * 3:
        with contextlib.suppress(ssl.SSLWantReadError):
            end.do_handshake()
    return ends[0].selected_alpn_protocol(), ends[0].version()


def test_certificates_in_the_file_itself_are_used(folder: Path) -> None:
    def indented(name: str) -> str:
        return "".join(f"    {line}\n" for line in (folder / name).read_text().splitlines())

    text = f"tls_server_config:\n  cert: |\n{indented('tls.crt')}  key: |\n{indented('tls.key')}"

    assert context(folder, text).verify_mode is ssl.CERT_NONE


def test_a_bundle_of_authorities_may_have_names_in_every_language(folder: Path) -> None:
    comment, authorities = "# Autorité\n".encode(), folder / "ca.crt"
    authorities.write_bytes(comment + authorities.read_bytes())

    assert len(context(folder).get_ca_certs()) == 1


def test_every_cipher_and_curve_that_the_file_may_name_is_known_to_openssl(folder: Path) -> None:
    from web.web_config import _CIPHERS, _CURVES_ALONE

    ciphers = f"  cipher_suites: [{', '.join(_CIPHERS)}]\n"
    named = {each["name"] for each in context(folder, WEB_YAML + ciphers).get_ciphers()}
    for curve in _CURVES_ALONE:
        context(folder, f"{WEB_YAML}  curve_preferences: [{curve}]\n")

    assert set(_CIPHERS.values()) <= named


def another_key(folder: Path) -> None:
    (folder / "tls.key").write_bytes(issued(authority()).key_pem())


def too_large(folder: Path) -> None:
    (folder / "tls.crt").write_bytes(b"x" * (MOST_BYTES + 1))


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda it: (it / "tls.crt").unlink(), "2: tls_server_config.cert_file: cannot read {}/"),
        (lambda it: (it / "tls.key").write_text("x"), "3: tls_server_config.key_file: there is no"),
        (lambda it: (it / "tls.key").write_text(""), "3: tls_server_config.key_file: there is no"),
        (lambda it: (it / "tls.crt").write_text("x"), "2: tls_server_config.cert_file: there is"),
        (lambda it: (it / "tls.crt").write_text(""), "2: tls_server_config.cert_file: there is"),
        (
            lambda it: (it / "tls.crt").write_text("-----BEGIN CERTIFICATE-----\nx\n"),
            "2: tls_server_config.cert_file: there is no certificate (PEM)",
        ),
        (another_key, "3: tls_server_config.key_file: the key is not that of the certificate"),
        (
            lambda it: (it / "tls.key").write_bytes(issued(authority()).key_pem(b"password")),
            "3: tls_server_config.key_file: the key is encrypted",
        ),
        (lambda it: (it / "ca.crt").write_text(""), "4: tls_server_config.client_ca_file: there"),
        (lambda it: (it / "ca.crt").write_text("\0ä"), "4: tls_server_config.client_ca_file: ther"),
        (too_large, "2: tls_server_config.cert_file: {}/tls.crt: larger than 1 MiB"),
    ],
)
def test_what_cannot_be_used_is_named(
    folder: Path, damage: Callable[[Path], object], sentence: str
) -> None:
    damage(folder)

    with pytest.raises(BadInput) as caught:
        context(folder)

    assert str(caught.value).startswith(f"{folder}/web.yaml:{sentence.format(folder)}")
