# SPDX-License-Identifier: Apache-2.0
"""A server behind a web config file that a test writes, and clients of it."""

from __future__ import annotations

import base64
import contextlib
import http.client
import ssl
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import bcrypt

from tests.web.certificates import Certificate, authority, issued
from web.address import Address
from web.messages import Body, Response, ServerLimits, text_response
from web.refusals import ClientRefusals, RefusalReason
from web.server import HttpServer
from web.web_config_file import WebConfigFile

PASSWORD = "s3cret"  # noqa: S105  # a test's own
HASH = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()
LARGE = bytes(range(256)) * (64 << 10)
"""More than the kernel's buffers on both sides hold."""
PATIENT = ServerLimits(header_seconds=60, request_seconds=60, idle_seconds=60)
TLS = "tls_server_config: {cert_file: tls.crt, key_file: tls.key}\n"
MUTUAL = (
    "tls_server_config: {cert_file: tls.crt, key_file: tls.key, client_ca_file: ca.crt,"
    " client_auth_type: RequireAndVerifyClientCert}\n"
)
USERS = f"basic_auth_users: {{alice: {HASH}}}\n"


class Site:
    """A server whose web config file a test writes, and its clients."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = authority()
        self.client_authority = authority("clients")
        issued(self.authority).write(folder)
        (folder / "ca.crt").write_bytes(self.client_authority.pem)
        self.refused = Counter[RefusalReason]()
        """How often clients of all its servers were refused."""
        self._servers: list[HttpServer] = []

    def write(self, config: str) -> None:
        (self.folder / "web.yaml").write_text(config)

    def start(self, config: str, limits: ServerLimits = PATIENT) -> HttpServer:
        self.write(config)
        self.file = WebConfigFile(self.folder / "web.yaml")
        routes = {
            "/livez": lambda: text_response("ok"),
            "/large": lambda: Response(body=Body(LARGE)),
        }
        address = Address(host="127.0.0.1", port=0)
        server = HttpServer(
            address,
            routes,
            limits,
            access=lambda: self.file.current,
            refusals=ClientRefusals(lambda reason: self.refused.update([reason])),
        )
        server.start()
        self._servers.append(server)
        return server

    def context(self, client: Certificate | None = None) -> ssl.SSLContext:
        """What a client trusts, and what it shows."""
        context = ssl.create_default_context(cadata=self.authority.pem.decode())
        if client is not None:
            client.write(self.folder, "client")
            context.load_cert_chain(self.folder / "client.crt", self.folder / "client.key")
        return context

    def stop(self) -> None:
        for server in self._servers:
            server.stop(within_seconds=0)


def connection(
    server: HttpServer, context: ssl.SSLContext | None = None
) -> http.client.HTTPConnection:
    if context is None:
        return http.client.HTTPConnection("127.0.0.1", server.address.port, timeout=60)
    return http.client.HTTPSConnection(
        "127.0.0.1", server.address.port, timeout=60, context=context
    )


def ask(
    server: HttpServer,
    context: ssl.SSLContext | None = None,
    path: str = "/livez",
    headers: Mapping[str, str] = MappingProxyType({}),
) -> tuple[http.client.HTTPResponse, bytes]:
    with contextlib.closing(connection(server, context)) as client:
        client.request("GET", path, headers=headers)
        response = client.getresponse()
        return response, response.read()


def refused(server: HttpServer, context: ssl.SSLContext | None) -> bool:
    try:
        ask(server, context)
    except (ssl.SSLError, ConnectionError, http.client.BadStatusLine):
        return True
    return False


def basic(user: str, password: str) -> dict[str, str]:
    encoded = base64.b64encode(f"{user}:{password}".encode()).decode()
    return {"Authorization": f"Basic {encoded}"}


def old_ciphers() -> list[str]:
    """Every cipher of TLS 1.2 and before that the client's OpenSSL can speak with a server."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_ciphers("ALL:!aNULL:!PSK:!SRP:@SECLEVEL=0")
    return [each["name"] for each in context.get_ciphers() if each["protocol"] != "TLSv1.3"]


def speaks_only(context: ssl.SSLContext, cipher: str) -> ssl.SSLContext:
    """The client with TLS 1.2 and this cipher alone."""
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(f"{cipher}:@SECLEVEL=0")
    return context


def is_modern(cipher: str) -> bool:
    """Whether it is one of RFC 9325, 4.2, for a server with a key on an elliptic curve."""
    return cipher.startswith(("ECDHE-ECDSA-AES", "ECDHE-ECDSA-CHACHA20")) and cipher.endswith(
        ("-GCM-SHA256", "-GCM-SHA384", "-CHACHA20-POLY1305")
    )
