# SPDX-License-Identifier: Apache-2.0
"""Secrets in an API server in memory, their rotations, and connections that their files allow."""

from __future__ import annotations

import base64
import contextlib
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

from api import names
from kube.api import SECRETS
from scheduler.certificates.certificate_rotation import CertificateRotation
from scheduler.certificates.renewal import Content, Contents
from tests.fakes.api import FakeApi, Server

NAMESPACE = names.NAMESPACE
ALL = (names.SCHEDULER_CA, names.SCHEDULER_TLS, names.KUBE_SCHEDULER_TLS)
BEGIN = datetime(2026, 11, 25, 12, tzinfo=UTC)
EMPTY = Contents(authority={}, server={}, client={})


class Stored:
    """The Secrets as they are shipped, and a clock that the API server shares."""

    def __init__(self) -> None:
        self.server = Server()
        for name in ALL:
            self.add(name)
        self.now = BEGIN

    @property
    def now(self) -> datetime:
        """The time of day."""
        return datetime.fromisoformat(self.server.now)

    @now.setter
    def now(self, at: datetime) -> None:
        self.server.now = at.isoformat()

    def add(self, name: str) -> None:
        """One that is empty."""
        body = {"metadata": {"name": name}, "type": "Opaque"}
        self.server.create(SECRETS, body, NAMESPACE)

    def rotation(self, late: timedelta = timedelta()) -> tuple[CertificateRotation, FakeApi]:
        """One program, whose clock may be late, and its client."""
        api = FakeApi(server=self.server, manager=names.CERTIFICATES)
        made = CertificateRotation(api, namespace=NAMESPACE, clock=lambda: self.now - late)
        return made, api

    def content(self, name: str) -> Content:
        """What one Secret holds."""
        data = self.server.get(SECRETS, name, NAMESPACE).get("data") or {}
        return {key: base64.b64decode(text) for key, text in data.items()}

    def contents(self) -> dict[str, Content]:
        """What all hold."""
        return {name: self.content(name) for name in ALL}

    def put(self, name: str, **data: bytes | None) -> None:
        """Write some of one Secret as a person does; ``tls_crt`` stands for tls.crt."""
        encoded = {
            key.replace("_", "."): None if value is None else base64.b64encode(value).decode()
            for key, value in data.items()
        }
        self.server.patch(SECRETS, name, {"data": encoded}, NAMESPACE, manager="kubectl")

    def empty(self, name: str) -> None:
        """Take everything out of it."""
        self.server.patch(SECRETS, name, {"data": None}, NAMESPACE, manager="kubectl")


def are_connected(server: Content, client: Content, folder: Path, name: str) -> bool:
    """Whether OpenSSL has both sides accept each other, the server under this name; now."""
    offered = _context(ssl.PROTOCOL_TLS_SERVER, server, folder / "server")
    offered.verify_mode = ssl.CERT_REQUIRED
    asked = _context(ssl.PROTOCOL_TLS_CLIENT, client, folder / "client")
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = (
        offered.wrap_bio(up, down, server_side=True),
        asked.wrap_bio(down, up, server_hostname=name),
    )
    try:
        for _ in range(4):
            for side in sides:
                with contextlib.suppress(ssl.SSLWantReadError):
                    side.do_handshake()
    except ssl.SSLError:
        return False
    return all(side.version() is not None and side.getpeercert() for side in sides)


def _context(protocol: int, content: Content, folder: Path) -> ssl.SSLContext:
    folder.mkdir(exist_ok=True)
    for key, value in content.items():
        (folder / key).write_bytes(value)
    context = ssl.SSLContext(protocol)
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    context.load_verify_locations(folder / "ca.crt")
    return context
