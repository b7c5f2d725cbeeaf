# SPDX-License-Identifier: Apache-2.0
"""Address of an API server and the credentials for it, from a service account or a kubeconfig."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from typing import Protocol

from kube.api_errors import Unauthorized
from kube.official import Configuration


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientIdentity:
    """Credentials of one request."""

    authorization: str | None = field(repr=False)
    """Value of the header Authorization; None where a certificate replaces it."""
    certificate: tuple[str | None, ...] = ()
    """Files of certificate and key."""

    @property
    def account(self) -> str:
        """The subject of a JSON web token, unverified and for messages only; else empty."""
        try:
            payload = (self.authorization or "").split(".")[1]
            claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
            return str(claims["sub"])
        except (IndexError, KeyError, TypeError, ValueError):
            return ""


class ApiServer(Protocol):
    """Address and credentials of one API server."""

    configuration: Configuration
    """Address, certificates, proxy. Files named in it are read at each TLS handshake."""
    source: str
    """The service account or kubeconfig that gives them, for messages."""

    def identity(self) -> ClientIdentity:
        """The credentials now; raises Unauthorized."""

    def renew(self) -> None:
        """Read cached credentials anew, because the server refused them; raises Unauthorized."""


def header(value: str, source: str) -> str:
    """The value itself; raises Unauthorized for one that http.client would quote in an error."""
    if value == "Bearer " or not (value.isascii() and value.isprintable()):
        raise Unauthorized(f"{source}: holds no token")
    return value
