# SPDX-License-Identifier: Apache-2.0
"""The rules by which a server admits clients; it reads them at each connection and request."""

from __future__ import annotations

import contextlib
import ipaddress
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from base.bucket import Bucket

if TYPE_CHECKING:
    from web.passwords import Passwords  # loaded only where passwords are required


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientAccess:
    """The clients that are admitted. A connection ends when its TLS context is replaced."""

    context: ssl.SSLContext | None = None
    """None: without TLS."""
    client_names: tuple[str, ...] | None = None
    """Names of which a client's certificate needs one; None: any."""
    passwords: Passwords | None = None
    headers: tuple[tuple[str, str], ...] = ()
    """Headers of every answer."""
    bucket: Bucket | None = None
    """Each request takes a token of it; None: no limit on the rate."""

    def admits(self, connection: ssl.SSLObject | None) -> bool:
        """Whether a client that has shaken hands may go on.

        A client that needs no certificate, and has none, has no name to be refused for.
        """
        if self.client_names is None or connection is None:
            return True
        certificate = connection.getpeercert() or {}
        if not certificate and connection.context.verify_mode is ssl.CERT_OPTIONAL:
            return True
        return has_allowed_name(certificate, self.client_names)


OPEN = ClientAccess()
"""Plain HTTP for everybody."""


def has_allowed_name(certificate: Mapping[str, Any], allowed: tuple[str, ...]) -> bool:
    """Whether one of the certificate's alternative names is one of these, letter for letter.

    ``certificate`` is as SSLSocket.getpeercert() gives it, empty where there is none.
    """
    names = {_plain(kind, name) for kind, name in certificate_names(certificate) if kind != "CN"}
    return not names.isdisjoint(allowed)


def certificate_names(certificate: Mapping[str, Any] | None) -> Sequence[tuple[str, str]]:
    """Kind and name of each name in a certificate: ``CN``, then alternative ones such as ``DNS``.

    ``certificate`` is as SSLSocket.getpeercert() gives it.
    """
    fields = certificate or {}
    subject = [pair for part in fields.get("subject", ()) for pair in part]
    common = [("CN", name) for key, name in subject if key == "commonName"]
    return [*common, *fields.get("subjectAltName", ())]


def _plain(kind: str, name: str) -> str:
    """OpenSSL writes IPv6 addresses in full and in capitals; people write them short."""
    if kind == "IP Address":
        with contextlib.suppress(ValueError):
            return str(ipaddress.ip_address(name.strip()))
    return name
