# SPDX-License-Identifier: Apache-2.0
"""Certificates and tokens that this node's programs depend on, and the times of their validity."""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from agent.settings.agent_settings import AgentSettings
from base.errors import BadInput
from base.files import read_bytes, read_text
from kube.api_errors import Unauthorized
from web import certificates

if TYPE_CHECKING:
    from kube.api_server import ApiServer

KUBELET: Final = Path("var/lib/kubelet/pki/kubelet-client-current.pem")
"""The kubelet's client certificate for the API server. Source: Kubernetes documentation,
"Certificate rotation"."""
_SERVER_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Validity:
    """A certificate or token, and when it holds, in Unix seconds."""

    title: str
    where: str
    begins: float
    ends: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenFile:
    """A file with certificates, settings or credentials that cannot be used."""

    title: str
    where: str
    why: str


Credential = Validity | BrokenFile


def read_certificates(settings: AgentSettings, access: ApiServer | None) -> tuple[Credential, ...]:
    """All configured certificates and tokens; ``access``: to the cluster, None without one."""
    credentials: list[Credential] = []
    if settings.web_config_file is not None:
        credentials += _of_web_config(settings.web_config_file)
    kubelet = settings.host_root / KUBELET
    if kubelet.exists():
        credentials += _of_file("the kubelet's client certificate", kubelet)
    if access is not None:
        credentials += _of_access(access)
    return tuple(credentials)


def _of_web_config(file: Path) -> Iterator[Credential]:
    from web.tls import context_of, read_material
    from web.web_config import read_web_config

    try:
        config = read_web_config(read_text(file, "web config file"), str(file))
        if config.tls is None:
            return
        material = read_material(config.tls)
        context_of(config.tls, material)  # whether certificate and key belong together
    except BadInput as error:
        yield BrokenFile(title="the web config file", where=str(file), why=str(error))
        return
    parts = {"the certificate of /metrics": config.tls.certificate}
    if config.tls.client_authorities is not None:
        parts["the authority of clients of /metrics"] = config.tls.client_authorities
    for title, pem in parts.items():
        yield from _validities(title, str(pem.path or file), material[pem.place])


def _of_access(access: ApiServer) -> Iterator[Credential]:
    authority = access.configuration.ssl_ca_cert
    if authority:
        yield from _of_file("the authority of the API server", Path(authority))
    try:
        identity = access.identity()
    except Unauthorized as error:
        yield BrokenFile(
            title="the credentials of the cluster", where=access.source, why=str(error)
        )
        return
    if identity.authorization:
        yield from _of_token(identity.authorization, access.source)
    elif identity.certificate and identity.certificate[0]:
        yield from _of_file("our client certificate", Path(identity.certificate[0]))
    yield from _of_server(access)


def _of_token(authorization: str, where: str) -> Iterator[Credential]:
    """Validity of a JSON web token; other tokens give none. Source: RFC 7519, exp and iat."""
    try:
        payload = authorization.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        begins, ends = float(claims["iat"]), float(claims["exp"])
    except (IndexError, KeyError, TypeError, ValueError):
        return
    yield Validity(title="the token of our account", where=where, begins=begins, ends=ends)


def _of_server(access: ApiServer) -> Iterator[Credential]:
    """Validity of the API server's certificate; a silent server is a finding of another check."""
    address = urlsplit(access.configuration.host)
    if address.scheme != "https" or address.hostname is None:
        return
    try:
        pem = ssl.get_server_certificate(
            (address.hostname, address.port or 443), timeout=_SERVER_SECONDS
        )
    except (OSError, ValueError):
        return
    yield from _validities(
        "the certificate of the API server", access.configuration.host, pem.encode()
    )


def _of_file(title: str, file: Path) -> Iterator[Credential]:
    try:
        content = read_bytes(file)
    except BadInput as error:
        yield BrokenFile(title=title, where=str(file), why=str(error))
        return
    yield from _validities(title, str(file), content)


def _validities(title: str, where: str, pem: bytes) -> Iterator[Credential]:
    """Validity of the certificate that ends first, of those in PEM text."""
    try:
        begins, ends = min(certificates.periods(pem), key=lambda period: period[1])
    except ValueError as error:
        yield BrokenFile(title=title, where=where, why=f"no certificate (PEM): {error}")
        return
    yield Validity(title=title, where=where, begins=begins, ends=ends)
