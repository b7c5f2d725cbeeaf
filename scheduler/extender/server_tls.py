# SPDX-License-Identifier: Apache-2.0
"""TLS of the extender: files become a context for connections, and a new one when they change."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from base.followed_file import FollowedFile
from web import certificates
from web.client_access import certificate_names
from web.tls import Material, context_of, read_material
from web.web_config import ClientCertificate, Pem, TlsConfig

log = logging.getLogger(__name__)


class Party(StrEnum):
    """Whose certificate it is; values of the label ``certificate``."""

    SERVER = "server"
    CLIENT_AUTHORITY = "client_authority"
    CLIENT = "client"
    """The scheduler that connected last."""


class ServerTls:
    """The TLS context of new connections, which follows its files. One thread at a time.

    A client's certificate is verified where it shows one; who needs one is refused later, with a
    sentence.
    """

    def __init__(self, certificate: Path, key: Path, client_authorities: Path | None) -> None:
        """Read the files, in PEM. The first may have certificates up to the authority behind the
        server's. Raises BadInput that names the file."""
        self._config = TlsConfig(certificate=_pem(certificate), key=_pem(key))
        if client_authorities is not None:
            self._config = replace(
                self._config,
                client_authorities=_pem(client_authorities),
                client_certificate=ClientCertificate.IF_SHOWN,
            )
        self._take(read_material(self._config))
        self._client: Mapping[str, Any] = {}
        self._followed = FollowedFile(certificate, self._reread)

    def poll(self, now: float) -> float:
        """Take changed files; the seconds until the next poll."""
        return self._followed.poll(now)

    def _reread(self) -> None:
        material = read_material(self._config)
        if material != self._material:
            self._take(material)
            log.info("certificates reloaded")

    def _take(self, material: Material) -> None:
        self.current = context_of(self._config, material)
        """TLS context of new connections."""
        self._material = material
        self._ends = _ends(self._config, material)

    def admitted(self, client: Mapping[str, Any]) -> None:
        """A client with this certificate is served. For any thread."""
        self._client = client

    def ends(self) -> Mapping[Party, float]:
        """When certificates in use end, in Unix seconds; of several in a file the first to end.

        One that was not shown so far, or that cannot be read, is left out. For any thread.
        """
        end = self._client.get("notAfter")
        return self._ends | ({Party.CLIENT: ssl.cert_time_to_seconds(end)} if end else {})


def has_name(certificate: Mapping[str, Any] | None, names: Iterable[str]) -> bool:
    """Whether a verified certificate carries one of these as common or DNS name; none: any does.

    ``certificate`` is that of :meth:`ssl.SSLSocket.getpeercert`: None or empty where the client
    showed none.
    """
    if not certificate:
        return False
    shown = {name for kind, name in certificate_names(certificate) if kind in {"CN", "DNS"}}
    allowed = frozenset(names)
    return not allowed or not allowed.isdisjoint(shown)


def _pem(path: Path) -> Pem:
    return Pem(place=str(path), path=path)


def _ends(config: TlsConfig, material: Material) -> dict[Party, float]:
    pems = {Party.SERVER: config.certificate, Party.CLIENT_AUTHORITY: config.client_authorities}
    end_by_party = {}
    for party, pem in pems.items():
        if pem is not None:
            try:
                end_by_party[party] = min(certificates.ends(material[pem.place]))
            except ValueError as error:
                facts = {"file": pem.place, "why": str(error)}
                log.warning("certificate expiry unknown", extra=facts)
    return end_by_party
