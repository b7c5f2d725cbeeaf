# SPDX-License-Identifier: Apache-2.0
"""An API server that runs, as a client sees it: who one may be, and requests."""

from __future__ import annotations

import hashlib
import http.client
import json
import ssl
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.controlplane import components
from tests.controlplane.builds import binaries
from tests.controlplane.families import CONTROLLER_MANAGER_MINOR, KUBERNETES
from tests.controlplane.pki import Credential, Pki, write_whole

Object = dict[str, Any]

ADMIN = "admin"
REQUEST_SECONDS = 180.0
MERGE_PATCH = "application/merge-patch+json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the API server said; a body that is not JSON is under ``text``."""

    status: int
    body: Object


@dataclass(kw_only=True)
class Server:
    """Where it is, and whatever it takes to be let in. ``folder`` holds keys, logs, kubeconfigs."""

    minor: str
    folder: Path
    port: int
    patience_seconds: float = 0.0
    """How long a request waits for a server that cannot be reached."""
    _contexts: dict[Credential | None, ssl.SSLContext] = field(default_factory=dict, repr=False)

    @property
    def url(self) -> str:
        """Of the API server."""
        return f"https://{components.LOOPBACK}:{self.port}"

    @property
    def pki(self) -> Pki:
        """Its keys and certificates."""
        return Pki(folder=self.folder / "pki")

    @property
    def ca_file(self) -> Path:
        """What a client trusts."""
        return self.pki.ca_file

    def client(self, user: str, groups: Sequence[str] = ()) -> Credential:
        """A client certificate; ``admin`` may do everything."""
        return self.pki.client(user, ("system:masters",) if user == ADMIN else groups)

    def kubelet(self, node: str) -> Credential:
        """A kubelet's certificate, which NodeRestriction holds to that Node."""
        return self.client(f"system:node:{node}", ("system:nodes",))

    def kubeconfig(
        self,
        user: str = ADMIN,
        groups: Sequence[str] = (),
        *,
        token: str | None = None,
        token_file: Path | None = None,
    ) -> Path:
        """A kubeconfig of a user in these groups by certificate, or of whoever a token is."""
        if token:
            who = {"token": token}
        elif token_file:
            who = {"tokenFile": str(token_file)}
        else:
            node = user.removeprefix("system:node:")
            credential = self.client(user, groups) if node == user else self.kubelet(node)
            who = {
                "client-certificate": str(credential.certificate_file),
                "client-key": str(credential.key_file),
            }
        content = json.dumps(components.kubeconfig(self.url, self.ca_file, who))
        # named by what is in it: test processes share the folder
        name = hashlib.sha256(content.encode()).hexdigest()[:16]
        return write_whole(self.folder / f"{name}.kubeconfig", content.encode())

    def account_folder(self, folder: Path, namespace: str, token: str) -> dict[str, str]:
        """Fill a folder as a pod's account volume; the environment that belongs to it."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "token").write_text(token, encoding="utf-8")
        (folder / "ca.crt").write_bytes(self.ca_file.read_bytes())
        (folder / "namespace").write_text(namespace, encoding="utf-8")
        host = components.LOOPBACK
        return {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": str(self.port)}

    def request(
        self,
        method: str,
        path: str,
        body: Object | Sequence[Any] | None = None,
        *,
        token: str | None = None,
        certificate: Credential | None = None,
        content_type: str = "application/json",
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send one request, as the admin unless a token or certificate says who asks.

        Raises OSError or http.client.HTTPException where no answer comes.
        """
        if not token:
            certificate = certificate or self.client(ADMIN)
        sent = {"Content-Type": content_type, **(headers or {})}
        if token:
            sent["Authorization"] = f"Bearer {token}"
        content = None if body is None else json.dumps(body)
        deadline = time.monotonic() + self.patience_seconds
        while True:
            try:
                return self._sent(method, path, content, sent, certificate)
            except ConnectionError:
                if time.monotonic() >= deadline:
                    raise
            time.sleep(0.2)

    def _sent(
        self,
        method: str,
        path: str,
        content: str | None,
        headers: Mapping[str, str],
        certificate: Credential | None,
    ) -> Answer:
        connection = http.client.HTTPSConnection(
            components.LOOPBACK,
            self.port,
            timeout=REQUEST_SECONDS,
            context=self._context(certificate),
        )
        try:
            connection.request(method, path, content, headers)
            answer = connection.getresponse()
            return Answer(status=answer.status, body=_body(answer.read()))
        finally:
            connection.close()

    def demand(
        self,
        method: str,
        path: str,
        body: Object | Sequence[Any] | None = None,
        *,
        content_type: str = "application/json",
    ) -> Object:
        """As the admin, the body of an answer that must be a success. Raises AssertionError."""
        answer = self.request(method, path, body, content_type=content_type)
        if answer.status >= http.client.MULTIPLE_CHOICES:
            said = answer.body.get("message", answer.body)
            raise AssertionError(f"{method} {path}: {answer.status} {said}")
        return answer.body

    def kubectl(self, *arguments: str | Path, stdin: str | None = None) -> str:
        """What kubectl says as the admin. Raises AssertionError with its complaint."""
        done = self._kubectl(*arguments, stdin=stdin)
        if done.returncode:
            raise AssertionError(f"kubectl {' '.join(map(str, arguments))}: {done.stderr.strip()}")
        return done.stdout

    def kubectl_exit(self, *arguments: str | Path) -> tuple[int, str]:
        """Its exit code and what it says; ``exec`` ends as the command in the container does."""
        done = self._kubectl(*arguments, stdin=None)
        return done.returncode, done.stdout

    def _kubectl(
        self, *arguments: str | Path, stdin: str | None
    ) -> subprocess.CompletedProcess[str]:
        program = binaries(KUBERNETES[CONTROLLER_MANAGER_MINOR]) / "kubectl"
        options = (f"--kubeconfig={self.kubeconfig()}", f"--cache-dir={self.folder}/kubectl")
        return subprocess.run(
            [program, *options, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )

    def _context(self, certificate: Credential | None) -> ssl.SSLContext:
        if certificate not in self._contexts:
            context = ssl.create_default_context(cafile=self.ca_file)
            if certificate:
                context.load_cert_chain(certificate.certificate_file, certificate.key_file)
            self._contexts[certificate] = context
        return self._contexts[certificate]


def _body(content: bytes) -> Object:
    try:
        decoded = json.loads(content or b"{}")
    except ValueError:
        decoded = None
    return decoded if isinstance(decoded, dict) else {"text": content.decode()}
