# SPDX-License-Identifier: Apache-2.0
"""TLS of the extender: files become a context for connections, and a new one when they change."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from base.errors import BadInput
from base.files import read_bytes
from base.followed_file import FollowedFile
from web import certificates
from web.tls import server_context

log = logging.getLogger(__name__)


class Party(StrEnum):
    """Whose certificate it is; values of the label ``certificate``."""

    SERVER = "server"
    CLIENT_AUTHORITY = "client_authority"
    CLIENT = "client"
    """The scheduler that connected last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """Paths of the certificates and keys, in PEM."""

    certificate: Path
    """The certificate, with those between it and the authority, if any."""
    key: Path
    client_authorities: Path | None = None

    @property
    def paths(self) -> tuple[Path, ...]:
        """All paths that are set."""
        named = (self.certificate, self.key, self.client_authorities)
        return tuple(path for path in named if path is not None)


class ServerTls:
    """The TLS context of new connections, which follows its files. One thread at a time."""

    def __init__(self, files: TlsFiles) -> None:
        """Read the files. Raises BadInput that names the file."""
        self._files = files
        self._read = _contents(files)
        self.current = _context(files)
        """TLS context of new connections."""
        self._ends = _ends(files, self._read)
        self._client: Mapping[str, Any] = {}
        self._followed = FollowedFile(files.certificate, self._reread)

    def poll(self, now: float) -> float:
        """Take changed files; the seconds until the next poll."""
        return self._followed.poll(now)

    def _reread(self) -> None:
        contents = _contents(self._files)
        if contents != self._read:
            self.current = _context(self._files)
            self._read = contents
            self._ends = _ends(self._files, contents)
            log.info("certificates reloaded")

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
    common = {
        value
        for part in certificate.get("subject", ())
        for key, value in part
        if key == "commonName"
    }
    alternative = {value for key, value in certificate.get("subjectAltName", ()) if key == "DNS"}
    allowed = frozenset(names)
    return not allowed or not allowed.isdisjoint(common | alternative)


def _contents(files: TlsFiles) -> Mapping[Path, bytes]:
    """The files' contents; equal contents make equal contexts. Raises BadInput."""
    return {path: read_bytes(path) for path in files.paths}


def _ends(files: TlsFiles, contents: Mapping[Path, bytes]) -> dict[Party, float]:
    named = {Party.SERVER: files.certificate, Party.CLIENT_AUTHORITY: files.client_authorities}
    end_by_party = {}
    for party, path in named.items():
        if path is not None:
            try:
                end_by_party[party] = min(certificates.ends(contents[path]))
            except ValueError as error:
                log.warning(
                    "certificate expiry unknown", extra={"file": str(path), "why": str(error)}
                )
    return end_by_party


def _context(files: TlsFiles) -> ssl.SSLContext:
    """TLS context of new connections, from these files. Raises BadInput that names the file.

    A client's certificate is verified where it shows one; who needs one is refused later, with
    a sentence.
    """
    context = server_context()
    try:
        context.load_cert_chain(files.certificate, files.key, password=lambda: b"")
    except (ssl.SSLError, OSError) as error:
        raise BadInput(
            f"{files.certificate} and {files.key}: {_fault_of(error)};"
            " they have to be a certificate and its key, not encrypted (PEM)"
        ) from error
    if files.client_authorities is not None:
        try:
            context.load_verify_locations(files.client_authorities)
        except (ssl.SSLError, OSError) as error:
            raise BadInput(f"{files.client_authorities}: no certificate (PEM) in it") from error
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def _fault_of(error: ssl.SSLError | OSError) -> str:
    if isinstance(error, ssl.SSLError) and error.reason == "KEY_VALUES_MISMATCH":
        return "the key is not that of the certificate"
    return "one of them is not readable"
