# SPDX-License-Identifier: Apache-2.0
"""The web config file: every documented key, and no text that gets further than a sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from base.errors import BadInput
from web.web_config import (
    ClientCertificate,
    Pem,
    Rate,
    TlsConfig,
    TlsVersion,
    WebConfig,
    read_web_config,
)

FILE = "/etc/gpuscape/web.yaml"
HASH = "$2y$10$X0h1gDsPszWURQaxFh.zoubFi6DXncSjhoQNJgRrnGs7EsimhC7zG"
CERTIFIED = "tls_server_config: {cert_file: tls.crt, key_file: tls.key, "


def read(text: str) -> WebConfig:
    return read_web_config(text, FILE)


def tls(more: str) -> TlsConfig:
    """What follows from these keys beside certificate and key."""
    found = read(f"{CERTIFIED}{more}}}").tls
    assert found is not None
    return found


def refusal(text: str) -> str:
    """The sentence that refuses it."""
    with pytest.raises(BadInput) as caught:
        read(text)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("text", ["", "# nothing\n", "{}", "null", "tls_server_config:\n"])
def test_an_empty_file_asks_for_nothing(text: str) -> None:
    assert read(text) == WebConfig()


def test_every_documented_key_has_its_meaning() -> None:
    config = read(
        f"""
tls_server_config:
  cert_file: tls.crt
  key_file: /run/tls.key
  client_auth_type: RequireAndVerifyClientCert
  client_ca_file: ca.crt
  client_allowed_sans: [prometheus, 10.0.0.1]
  min_version: TLS12
  max_version: TLS13
  cipher_suites:
  - TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256
  - TLS_AES_128_GCM_SHA256
  prefer_server_cipher_suites: false
  curve_preferences: [CurveP384]
http_server_config:
  http2: false
  headers:
    Strict-Transport-Security: max-age=31536000
    X-Frame-Options: deny
basic_auth_users:
  alice: {HASH}
  7: {HASH}
rate_limit:
  interval: 1m30s
  burst: 5
"""
    )

    assert config == WebConfig(
        tls=TlsConfig(
            certificate=Pem(
                place=f"{FILE}:3: tls_server_config.cert_file", path=Path("/etc/gpuscape/tls.crt")
            ),
            key=Pem(place=f"{FILE}:4: tls_server_config.key_file", path=Path("/run/tls.key")),
            client_authorities=Pem(
                place=f"{FILE}:6: tls_server_config.client_ca_file",
                path=Path("/etc/gpuscape/ca.crt"),
            ),
            client_certificate=ClientCertificate.REQUIRED,
            client_names=("prometheus", "10.0.0.1"),
            lowest=TlsVersion.TLS12,
            highest=TlsVersion.TLS13,
            ciphers=("ECDHE-RSA-AES128-GCM-SHA256",),
            server_chooses=False,
            curve="secp384r1",
        ),
        users={"alice": HASH.encode(), "7": HASH.encode()},
        headers=(("Strict-Transport-Security", "max-age=31536000"), ("X-Frame-Options", "deny")),
        rate=Rate(interval_seconds=90.0, burst=5),
    )


def test_certificates_may_stand_in_the_file_itself() -> None:
    found = read("tls_server_config:\n  cert: C\n  key: K\n").tls

    assert found is not None
    assert (found.certificate.text, found.key.text) == ("C", "K")


def test_without_a_word_tls_is_1_2_or_1_3_for_all_clients() -> None:
    found = tls("")

    assert (found.lowest, found.highest) == (TlsVersion.TLS12, TlsVersion.TLS13)
    assert found.client_certificate is ClientCertificate.NONE
    assert (found.ciphers, found.curve, found.server_chooses) == ((), None, True)


def test_ciphers_of_tls_1_3_alone_leave_tls_1_2_out() -> None:
    assert tls("cipher_suites: [TLS_AES_128_GCM_SHA256]").lowest is TlsVersion.TLS13


@pytest.mark.parametrize(
    ("text", "note"),
    [
        (f"{CERTIFIED}min_version: TLS10}}", "min_version TLS10 is served as TLS12"),
        (
            f"{CERTIFIED}client_auth_type: RequestClientCert, client_ca_file: a}}",
            "RequestClientCert is served as",
        ),
        (f"{CERTIFIED}client_auth_type: VerifyClientCertIfGiven}}", "VerifyClientCertIfGiven is"),
        (f"{CERTIFIED}curve_preferences: [X25519, CurveP384]}}", "of curve_preferences only Curv"),
        ("http_server_config: {http2: true}", "HTTP/2 is not served"),
        (f"basic_auth_users: {{a: {HASH}}}", "passwords are required without TLS"),
    ],
)
def test_what_is_not_done_as_written_is_noted(text: str, note: str) -> None:
    (found,) = read(text).notes

    assert found.startswith(note)


def test_of_several_curves_one_that_is_named_is_used() -> None:
    assert tls("curve_preferences: [X25519, CurveP384, CurveP256]").curve == "secp384r1"


def test_a_header_that_is_blank_is_not_sent() -> None:
    assert read("http_server_config: {headers: {X-Frame-Options: ''}}").headers == ()


def test_no_interval_means_no_limit() -> None:
    assert read("rate_limit: {interval: 0, burst: 1}").rate is None


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[]", f"{FILE}:1: expected lines of key: value"),
        ("tls: {}", f"{FILE}:1: 'tls' is not a key of this file"),
        (
            "\ntls_server_confg: {}",
            f"{FILE}:2: 'tls_server_confg' is not a key of this file: "
            "did you mean tls_server_config?",
        ),
        (
            "tls_server_config:\n  cert_fil: a",
            f"{FILE}:2: 'tls_server_config.cert_fil' is not a key of this file: "
            "did you mean cert_file?",
        ),
        ("tls_server_config: 1", f"{FILE}:1: tls_server_config: expected lines of key: value"),
        (
            "tls_server_config:\n  cert_file: [a]",
            f"{FILE}:2: tls_server_config.cert_file: expected one value",
        ),
        (
            "tls_server_config: {key_file: a}",
            f"{FILE}:1: tls_server_config: cert_file is missing: "
            "TLS takes a certificate and its key",
        ),
        (
            "tls_server_config: {cert: a}",
            f"{FILE}:1: tls_server_config: key_file is missing: "
            "TLS takes a certificate and its key",
        ),
        (
            "tls_server_config: {cert: a, cert_file: b, key: c}",
            f"{FILE}:1: tls_server_config.cert: cert_file is set too: keep one of them",
        ),
        ("basic_auth_users: {a: b, a: c}", f"{FILE}:1: basic_auth_users.a: it stands twice"),
        ("rate_limit: {interval: 1s}", f"{FILE}:1: rate_limit.interval: burst is missing"),
        ("rate_limit: {interval: 5}", f"{FILE}:1: rate_limit.interval: expected a duration"),
        ("rate_limit: {interval: 1s, burst: -1}", f"{FILE}:1: rate_limit.burst: expected a whole"),
        ("http_server_config: {http2: 'no'}", f"{FILE}:1: http_server_config.http2: expected true"),
        (
            "http_server_config: {headers: {Server: x}}",
            f"{FILE}:1: 'http_server_config.headers.Server' is not a key of this file",
        ),
        (
            "http_server_config: {headers: {X-Frame-Options: allow}}",
            f"{FILE}:1: http_server_config.headers.X-Frame-Options: "
            "'allow' is not one of deny, sameorigin",
        ),
        ("a: b: c", f"{FILE}:1: not valid YAML: mapping values are not allowed here"),
        ("a: \x07", f"{FILE}: not valid YAML: "),
        ("{}\n---\n{}", f"{FILE}:2: not valid YAML: "),
        ("[" * 100_000, f"{FILE}: not valid YAML: it is nested too deeply"),
        ("? [a]\n: 1", f"{FILE}:1: '' is not a key of this file"),
    ],
)
def test_a_mistake_is_told_with_file_line_and_key(text: str, sentence: str) -> None:
    assert refusal(text).startswith(sentence)


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ("min_version: SSL3", "'SSL3' is not one of TLS10, TLS11, TLS12, TLS13"),
        ("max_version: TLS11", "TLS11 is broken and not served"),
        ("min_version: TLS13, max_version: TLS12", "it is below min_version"),
        ("cipher_suites: [RC4]", "'RC4' is not one of TLS_ECDHE_"),
        ("cipher_suites: TLS_AES_128_GCM_SHA256", "expected a list"),
        ("cipher_suites: [TLS_AES_128_GCM_SHA256], max_version: TLS12", "none of these is for"),
        ("curve_preferences: [X25519]", "name one of CurveP256, CurveP384, CurveP521: X25519"),
        ("curve_preferences: [X448]", "'X448' is not one of CurveP256,"),
        ("client_auth_type: Always", "'Always' is not one of NoClientCert,"),
        ("client_auth_type: RequireAnyClientCert, client_ca_file: a", "RequireAnyClientCert lets"),
        ("client_auth_type: RequireAndVerifyClientCert", "client_ca_file is missing"),
        ("client_ca_file: a", "client_auth_type is missing"),
        ("client_auth_type: NoClientCert, client_ca_file: a", "client_ca is set and does not"),
        ("client_allowed_sans: [a]", "no client certificate is verified"),
        ("prefer_server_cipher_suites: 1", "expected true or false"),
    ],
)
def test_what_would_be_less_safe_than_it_reads_is_refused(more: str, reason: str) -> None:
    assert f": {reason}" in refusal(f"{CERTIFIED}{more}}}")


ALL_CURVES = "CurveP256, CurveP384, CurveP521"


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ("max_version: TLS11", "TLS11 is broken and not served: write TLS12 or TLS13"),
        (
            "min_version: TLS13, max_version: TLS12",
            "it is below min_version: nobody could connect",
        ),
        (
            "cipher_suites: [TLS_AES_128_GCM_SHA256], max_version: TLS12",
            "none of these is for TLS 1.2: name one that is",
        ),
        (
            "curve_preferences: [X25519]",
            f"name one of {ALL_CURVES}: X25519 cannot be served alone",
        ),
        ("curve_preferences: [X448]", f"'X448' is not one of {ALL_CURVES}, X25519"),
        (
            "client_auth_type: RequireClientCert, client_ca_file: a",
            "RequireClientCert lets every certificate in: RequireAndVerifyClientCert checks it",
        ),
        (
            "client_auth_type: RequireAndVerifyClientCert",
            "client_ca_file is missing: it says whose certificates count",
        ),
        (
            "client_ca_file: a",
            "client_auth_type is missing: RequireAndVerifyClientCert makes this count",
        ),
        (
            "client_auth_type: NoClientCert, client_ca_file: a",
            "client_ca is set and does not count with this: keep one of them",
        ),
        (
            "client_allowed_sans: [a]",
            "no client certificate is verified: set client_auth_type as well",
        ),
    ],
)
def test_a_refusal_of_tls_is_one_whole_sentence(more: str, sentence: str) -> None:
    assert refusal(f"{CERTIFIED}{more}}}").endswith(f": {sentence}")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "rate_limit: {interval: 1s}",
            "burst is missing: without it no request would be served",
        ),
        ("rate_limit: {interval: 5}", "expected a duration such as 1s or 100ms"),
        (
            "basic_auth_users: {a: b}",
            "expected a bcrypt hash such as htpasswd -nB makes: $2y$10$…",
        ),
        (
            f"basic_auth_users: {{a: {HASH.replace('$10$', '$03$')}}}",
            "the hash's cost 03 is not from 4 to 18: 10 is right",
        ),
        (
            f"basic_auth_users: {{a: {HASH.replace('$10$', '$19$')}}}",
            "the hash's cost 19 is not from 4 to 18: 10 is right",
        ),
        (
            f"basic_auth_users: {{'': {HASH}}}",
            "a user's name is not empty and has no colon",
        ),
        (
            'http_server_config: {headers: {X-XSS-Protection: "a\\tb"}}',
            "a header is one line of ASCII",
        ),
    ],
)
def test_another_refusal_is_one_whole_sentence_too(text: str, sentence: str) -> None:
    assert refusal(text).endswith(f": {sentence}")


@pytest.mark.parametrize(
    ("more", "note"),
    [
        ("min_version: TLS11", "min_version TLS11 is served as TLS12: older versions are broken"),
        (
            "client_auth_type: RequestClientCert",
            "RequestClientCert is served as NoClientCert: no certificate would be verified",
        ),
        (
            "cipher_suites: [TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA, TLS_AES_128_GCM_SHA256]",
            "of cipher_suites TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA is not served: CBC is not safe"
            " enough",
        ),
        ("curve_preferences: [CurveP384, X25519]", "of curve_preferences only CurveP384 is served"),
    ],
)
def test_a_note_is_one_whole_sentence(more: str, note: str) -> None:
    assert read(f"{CERTIFIED}{more}}}").notes == (note,)


def test_notes_about_http_are_whole_sentences_too() -> None:
    config = read(f"http_server_config: {{http2: true}}\nbasic_auth_users: {{a: {HASH}}}")
    assert set(config.notes) == {
        "HTTP/2 is not served: clients that ask for it get HTTP/1.1",
        "passwords are required without TLS: anybody on the way can read them",
    }


@pytest.mark.parametrize("cost", ["04", "18"])
def test_hashes_of_every_sensible_cost_are_taken(cost: str) -> None:
    hash_ = HASH.replace("$10$", f"${cost}$")
    assert read(f"basic_auth_users: {{a: {hash_}}}").users == {"a": hash_.encode()}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1s", 1),
        ("1.5m", 90),
        (".5h", 1800),
        ("1h2m3s4ms", 3723.004),
        ("250us", 250e-6),
        ("250µs", 250e-6),
        ("7ns", 7e-9),
    ],
)
def test_an_interval_is_a_sum_of_numbers_with_units(text: str, seconds: float) -> None:
    rate = read(f"rate_limit: {{interval: {text}, burst: 3}}").rate
    assert rate is not None
    assert rate.interval_seconds == pytest.approx(seconds)
    assert rate.burst == 3


@pytest.mark.parametrize(
    "value",
    [
        "secret",
        HASH[:-1],
        HASH.replace("$10$", "$99$"),
        HASH.replace("$10$", "$03$"),
        HASH.replace("$2y$", "$1$"),
        f"[{HASH}]",
        "",
    ],
)
def test_what_is_no_hash_is_refused_and_not_shown(value: str) -> None:
    sentence = refusal(f"basic_auth_users:\n  alice: {value}\n")

    assert sentence.startswith(f"{FILE}:2: basic_auth_users.alice: ")
    assert len(value) < 3 or value not in sentence


def test_a_user_with_a_colon_could_never_log_in() -> None:
    assert "has no colon" in refusal(f"basic_auth_users: {{'a:b': {HASH}}}")


def test_a_header_of_several_lines_is_refused() -> None:
    sentence = refusal('http_server_config: {headers: {X-XSS-Protection: "1\\r\\nSet-Cookie: a"}}')

    assert "a header is one line of ASCII" in sentence


def test_secrets_are_not_shown() -> None:
    config = read(f"tls_server_config: {{cert: C, key: SECRET}}\nbasic_auth_users: {{a: {HASH}}}")

    assert "SECRET" not in repr(config)
    assert HASH not in repr(config)


SECTIONS = ["tls_server_config", "http_server_config", "basic_auth_users", "rate_limit"]
KEYS = st.sampled_from(
    [*SECTIONS, "headers", "cert_file", "key", "cipher_suites", "client_auth_type", "burst"]
)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=20)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(KEYS | st.text(max_size=5), inner, max_size=3),
    ),
)


@given(st.text() | st.dictionaries(KEYS, VALUES).map(json.dumps))
@example("&a {tls_server_config: *a}")
@example("tls_server_config: &a {cert: *a}")
@example("? \n")
@example('basic_auth_users: {"a\\nb": c}')
def test_any_text_is_a_config_or_one_sentence(text: str) -> None:
    sentence = FILE
    try:
        read(text)
    except BadInput as error:
        sentence = str(error)

    assert sentence.startswith(FILE)
    assert len(sentence.splitlines()) == 1
