# SPDX-License-Identifier: Apache-2.0
"""The web config file of Prometheus' exporters: TLS, passwords, headers, request rate. Pure.

Files that it names are not opened here. Source of keys, defaults and meanings: prometheus
exporter-toolkit, ``docs/web-configuration.md`` and ``web/tls_config.go``. A key that cannot be
obeyed is refused where the server would be less safe than the file says; else it is noted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path, PurePosixPath

from base.errors import BadInput
from base.text.go_duration import go_nanoseconds
from base.yaml_places import YamlValue, read_yaml

_SECTIONS = ("tls_server_config", "http_server_config", "basic_auth_users", "rate_limit")


class ClientCertificate(Enum):
    """Whether a client needs a certificate, and whether it is verified."""

    NONE = "none"
    IF_SHOWN = "verified if shown"
    REQUIRED = "required and verified"


class TlsVersion(Enum):
    """TLS versions that are served."""

    TLS12 = "TLS12"
    TLS13 = "TLS13"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pem:
    """Certificates or a key: in a file, or in the web config file itself."""

    place: str
    """File, line and key that name it, for messages."""
    path: Path | None = None
    text: str | None = field(default=None, repr=False)
    """The PEM text itself; it may be a private key, so it is never shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsConfig:
    """Settings of ``tls_server_config``: certificates, versions, ciphers, clients."""

    certificate: Pem
    key: Pem
    client_authorities: Pem | None = None
    client_certificate: ClientCertificate = ClientCertificate.NONE
    client_names: tuple[str, ...] | None = None
    """Subject alternative names, of which a client's certificate needs one; None: any."""
    lowest: TlsVersion = TlsVersion.TLS12
    highest: TlsVersion = TlsVersion.TLS13
    ciphers: tuple[str, ...] = ()
    """OpenSSL's names of the ciphers for TLS 1.2; empty: OpenSSL's own choice."""
    server_chooses: bool = True
    """The server's order of ciphers decides, not the client's."""
    curve: str | None = None
    """OpenSSL's name of the only elliptic curve; None: OpenSSL's own choice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Settings of ``rate_limit``: how many requests are served."""

    interval_seconds: float
    burst: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WebConfig:
    """All settings of a web config file."""

    tls: TlsConfig | None = None
    users: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    """User names to bcrypt hashes; without any, everybody is let in."""
    headers: tuple[tuple[str, str], ...] = ()
    """Headers of every answer."""
    rate: Rate | None = None
    notes: tuple[str, ...] = ()
    """Settings of the file that are not obeyed, or that are not wise; sentences."""


def read_web_config(text: str, file: str) -> WebConfig:
    """The values of a web config file, which messages call ``file``.

    Paths in it are relative to its folder. Raises BadInput that names file, line and key, for
    unknown and repeated keys, wrong types and values, and what is not YAML; never a secret.
    """
    notes: list[str] = []
    root = read_yaml(text, file)
    root.refuse_config_map()
    sections = root.mapping(_SECTIONS)
    users = _users(sections.get("basic_auth_users"))
    tls = _tls(sections.get("tls_server_config"), PurePosixPath(file).parent, notes)
    if users and tls is None:
        notes.append("passwords are required without TLS: anybody on the way can read them")
    return WebConfig(
        tls=tls,
        users=users,
        headers=_headers(sections.get("http_server_config"), notes),
        rate=_rate(sections.get("rate_limit")),
        notes=tuple(notes),
    )


# TLS

_TLS_KEYS = (
    *("cert", "key", "client_ca", "cert_file", "key_file", "client_ca_file", "client_auth_type"),
    *("client_allowed_sans", "min_version", "max_version", "cipher_suites", "curve_preferences"),
    "prefer_server_cipher_suites",
)

_CLIENT_CERTIFICATES = {
    "NoClientCert": ClientCertificate.NONE,
    "RequestClientCert": ClientCertificate.NONE,
    "VerifyClientCertIfGiven": ClientCertificate.IF_SHOWN,
    "RequireAndVerifyClientCert": ClientCertificate.REQUIRED,
}
_UNVERIFIED = ("RequireAnyClientCert", "RequireClientCert")

_OLD_VERSIONS = ("TLS10", "TLS11")

_CIPHERS = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
}
"""Go's names to OpenSSL's. Source: Go's crypto/tls, ``CipherSuites``; openssl-ciphers(1)."""
_CBC_CIPHERS = (
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
)
"""Ciphers that Go takes and our servers do not: they encrypt and authenticate in two steps."""
_CIPHERS_OF_TLS13 = (
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
)
"""Ciphers of TLS 1.3, among which neither Go nor Python lets a server choose."""

_CURVES_ALONE = {
    "CurveP256": "prime256v1",
    "CurveP384": "secp384r1",
    "CurveP521": "secp521r1",
}
"""Curves that can be served alone: Go's names to OpenSSL's."""
_CURVES = (*_CURVES_ALONE, "X25519")


def _tls(section: YamlValue | None, folder: PurePosixPath, notes: list[str]) -> TlsConfig | None:
    entries = {} if section is None else section.mapping(_TLS_KEYS)
    if section is None or not entries:
        return None
    certificate = _pem(entries, "cert", folder)
    key = _pem(entries, "key", folder)
    if certificate is None or key is None:
        missing = "key" if certificate else "cert"
        raise section.wrong(f"{missing}_file is missing: TLS takes a certificate and its key")
    lowest, highest = _versions(entries, notes)
    ciphers = _ciphers(entries.get("cipher_suites"), notes)
    if ciphers == () and "cipher_suites" in entries:
        lowest = TlsVersion.TLS13  # no cipher of TLS 1.2 is left
        if highest is TlsVersion.TLS12:
            raise entries["cipher_suites"].wrong("none of these is for TLS 1.2: name one that is")
    authorities = _pem(entries, "client_ca", folder)
    client_certificate = _client_certificate(entries, authorities, notes)
    names = entries.get("client_allowed_sans")
    if names is not None and client_certificate is ClientCertificate.NONE:
        raise names.wrong("no client certificate is verified: set client_auth_type as well")
    preference = entries.get("prefer_server_cipher_suites")
    return TlsConfig(
        certificate=certificate,
        key=key,
        client_authorities=authorities,
        client_certificate=client_certificate,
        client_names=None if names is None else names.texts(),
        lowest=lowest,
        highest=highest,
        ciphers=ciphers,
        server_chooses=True if preference is None else preference.flag(),
        curve=_curve(entries.get("curve_preferences"), notes),
    )


def _pem(entries: Mapping[str, YamlValue], key: str, folder: PurePosixPath) -> Pem | None:
    """The PEM text of ``key``, or the file that ``key``_file names; None without both."""
    inline, file = entries.get(key), entries.get(f"{key}_file")
    text = "" if inline is None else inline.text()
    path = "" if file is None else file.text()
    if inline is not None and text:
        if path:
            raise inline.wrong(f"{key}_file is set too: keep one of them")
        return Pem(place=inline.place, text=text)
    if file is not None and path:
        return Pem(place=file.place, path=Path(folder / path))
    return None


def _client_certificate(
    entries: Mapping[str, YamlValue], authorities: Pem | None, notes: list[str]
) -> ClientCertificate:
    """Whether a client needs a certificate, as ``client_auth_type`` says.

    Where the file names no authorities, Go takes those of the system. This server does not, since
    anybody can get a certificate from them.
    """
    entry = entries.get("client_auth_type")
    kind = "" if entry is None else entry.text()
    if entry is None or not kind:
        if authorities is not None:
            raise BadInput(
                f"{authorities.place}: client_auth_type is missing:"
                " RequireAndVerifyClientCert makes this count"
            )
        return ClientCertificate.NONE
    if kind in _UNVERIFIED:
        raise entry.wrong(f"{kind} lets every certificate in: RequireAndVerifyClientCert checks it")
    requirement = _CLIENT_CERTIFICATES[entry.one_of((*_CLIENT_CERTIFICATES, *_UNVERIFIED))]
    if kind == "NoClientCert" and authorities is not None:
        raise entry.wrong("client_ca is set and does not count with this: keep one of them")
    if requirement is ClientCertificate.REQUIRED and authorities is None:
        raise entry.wrong("client_ca_file is missing: it says whose certificates count")
    if kind == "RequestClientCert" or (authorities is None and kind != "NoClientCert"):
        notes.append(f"{kind} is served as NoClientCert: no certificate would be verified")
        return ClientCertificate.NONE
    return requirement


def _versions(entries: Mapping[str, YamlValue], notes: list[str]) -> tuple[TlsVersion, TlsVersion]:
    lowest, highest = TlsVersion.TLS12, TlsVersion.TLS13
    known = (*_OLD_VERSIONS, *(version.value for version in TlsVersion))
    if (entry := entries.get("min_version")) is not None:
        text = entry.one_of(known)
        if text in _OLD_VERSIONS:
            notes.append(f"min_version {text} is served as TLS12: older versions are broken")
        else:
            lowest = TlsVersion(text)
    if (entry := entries.get("max_version")) is not None:
        text = entry.one_of(known)
        if text in _OLD_VERSIONS:
            raise entry.wrong(f"{text} is broken and not served: write TLS12 or TLS13")
        highest = TlsVersion(text)
        if (lowest, highest) == (TlsVersion.TLS13, TlsVersion.TLS12):
            raise entry.wrong("it is below min_version: nobody could connect")
    return lowest, highest


def _ciphers(entry: YamlValue | None, notes: list[str]) -> tuple[str, ...]:
    if entry is None:
        return ()
    known = (*_CIPHERS, *_CBC_CIPHERS, *_CIPHERS_OF_TLS13)
    named = [cipher.one_of(known) for cipher in entry.items()]
    if left_out := [name for name in named if name in _CBC_CIPHERS]:
        names = ", ".join(left_out)
        notes.append(f"of cipher_suites {names} is not served: CBC is not safe enough")
    return tuple(_CIPHERS[name] for name in named if name in _CIPHERS)


def _curve(entry: YamlValue | None, notes: list[str]) -> str | None:
    """The first curve that can be served alone: Python takes one curve, not a list."""
    curves = [] if entry is None else [curve.one_of(_CURVES) for curve in entry.items()]
    if entry is None or not curves:
        return None
    if (served := next((curve for curve in curves if curve in _CURVES_ALONE), None)) is None:
        raise entry.wrong(f"name one of {', '.join(_CURVES_ALONE)}: X25519 cannot be served alone")
    if len(curves) > 1:
        notes.append(f"of curve_preferences only {served} is served")
    return _CURVES_ALONE[served]


# HTTP

_HEADERS: Mapping[str, tuple[str, ...]] = {
    "Content-Security-Policy": (),
    "X-Frame-Options": ("deny", "sameorigin"),
    "X-Content-Type-Options": ("nosniff",),
    "X-XSS-Protection": (),
    "Strict-Transport-Security": (),
}
"""Headers that may be set, and their values where there are few."""
_PLAIN_HEADER = re.compile(r"[ -~]*")


def _headers(section: YamlValue | None, notes: list[str]) -> tuple[tuple[str, str], ...]:
    entries = {} if section is None else section.mapping(("http2", "headers"))
    if (http2 := entries.get("http2")) is not None and http2.flag():
        notes.append("HTTP/2 is not served: clients that ask for it get HTTP/1.1")
    headers = {} if "headers" not in entries else entries["headers"].mapping(_HEADERS)
    return tuple(
        (name, value) for name, entry in headers.items() if (value := _header(name, entry))
    )


def _header(name: str, entry: YamlValue) -> str:
    value = entry.text()
    if value and _HEADERS[name]:
        return entry.one_of(_HEADERS[name])
    if not _PLAIN_HEADER.fullmatch(value):
        raise entry.wrong("a header is one line of ASCII")
    return value


_HASH = re.compile(r"\$2[abxy]\$(\d\d)\$[./A-Za-z0-9]{53}")
_COSTS = range(4, 19)
"""Costs of a hash: from bcrypt's lowest to one that takes half a minute; a higher cost would only
lock people out."""


def _users(section: YamlValue | None) -> Mapping[str, bytes]:
    users = {} if section is None else section.mapping()
    return {name: _hash(name, entry) for name, entry in users.items()}


def _hash(name: str, entry: YamlValue) -> bytes:
    if not name or ":" in name:
        raise entry.wrong("a user's name is not empty and has no colon")
    match = _HASH.fullmatch(entry.text())
    if match is None:
        raise entry.wrong("expected a bcrypt hash such as htpasswd -nB makes: $2y$10$…")
    if int(match[1]) not in _COSTS:
        raise entry.wrong(f"the hash's cost {match[1]} is not from 4 to 18: 10 is right")
    return match[0].encode()


def _rate(section: YamlValue | None) -> Rate | None:
    entries = {} if section is None else section.mapping(("interval", "burst"))
    if (entry := entries.get("interval")) is None:
        return None
    try:
        seconds = go_nanoseconds(entry.text()) / 1e9
    except ValueError as error:
        raise entry.wrong("expected a duration such as 1s or 100ms") from error
    if seconds < 0:
        raise entry.wrong("a negative duration lets every request in: write 1s or 100ms, or 0")
    burst = entries["burst"].count() if "burst" in entries else 0
    if seconds and not burst:
        raise entry.wrong("burst is missing: without it no request would be served")
    return Rate(interval_seconds=seconds, burst=burst) if seconds else None
