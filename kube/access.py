"""Where the API server is and who we are to it: a pod's service account, or a kubeconfig.

The only module that knows the official package's configuration. Secrets stay in it:
no message of it quotes a token, a key, or a part of a kubeconfig that may hold one.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from kubernetes.client.configuration import Configuration
from kubernetes.config import ConfigException, load_kube_config
from yaml import YAMLError

from discovery.errors import BadInput
from kube.answers import one_line
from kube.errors import Unauthorized

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
HOST = "KUBERNETES_SERVICE_HOST"
PORT = "KUBERNETES_SERVICE_PORT"
KUBECONFIG = "KUBECONFIG"


class Access(Protocol):
    """A way to one API server."""

    configuration: Configuration
    """Address, certificates, proxy. Files named in it are read at each TLS handshake."""
    source: str
    """Where it comes from, for messages."""

    def authorization(self) -> str | None:
        """The header's value, None where a certificate identifies us; raises Unauthorized."""

    def renew(self) -> bool:
        """After a 401: whether the credentials are others now, so that asking again may help."""

    def account(self) -> str:
        """Who we are, as far as known; else empty."""


def find(
    kubeconfig: str | None = None,
    context: str | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
    service_account: Path = SERVICE_ACCOUNT,
) -> Access:
    """The kubeconfig given, else the pod's service account, else kubectl's kubeconfig.

    Raises BadInput where there is none or it does not work.
    """
    if kubeconfig is not None:
        return Kubeconfig(kubeconfig, context)
    if environ.get(HOST):
        return ServiceAccount(service_account, environ)
    usual = environ.get(KUBECONFIG) or str(Path("~/.kube/config").expanduser())
    if not any(Path(path).exists() for path in usual.split(os.pathsep)):
        raise BadInput(f"no cluster: not in a pod, and no kubeconfig at {usual}: name one")
    return Kubeconfig(usual, context)


class ServiceAccount:
    """What the kubelet mounts into a pod. It rotates both files, so nothing of them is kept."""

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        self.source = f"service account in {folder}"
        self._token_file = folder / "token"
        self._last = ""
        authority = folder / "ca.crt"
        for path in (self._token_file, authority):
            if not path.is_file():
                raise BadInput(f"{path} is missing: mount the account's token or name a kubeconfig")
        host = environ[HOST]
        self.configuration = Configuration(ssl_ca_cert=str(authority))
        bare = f"[{host}]" if ":" in host else host
        self.configuration.host = f"https://{bare}:{environ.get(PORT) or '443'}"

    def authorization(self) -> str | None:
        """See :class:`Access`."""
        try:
            self._last = self._token_file.read_text().strip()
        except OSError as error:
            raise Unauthorized(f"no token: {self._token_file}: {error.strerror}") from error
        return _header(f"Bearer {self._last}", str(self._token_file))

    def renew(self) -> bool:
        """See :class:`Access`."""
        before = self._last
        self.authorization()
        return self._last != before

    def account(self) -> str:
        """See :class:`Access`."""
        return _subject(self._last)


class Kubeconfig:
    """A kubeconfig as kubectl reads it, with its exec and auth plugins."""

    def __init__(self, path: str, context: str | None = None) -> None:
        self.source = f"kubeconfig {path}"
        self._path = path
        self._context = context
        self.configuration = self._load()

    def authorization(self) -> str | None:
        """See :class:`Access`."""
        try:
            value = self.configuration.get_api_key_with_prefix("BearerToken", "authorization")
        except Exception as error:  # a plugin that renews the token may fail in any way
            raise Unauthorized(f"{self.source}: no credentials: {_public(error)}") from None
        return _header(str(value), self.source) if value else None

    def renew(self) -> bool:
        """See :class:`Access`. Reads all of it anew: token files, plugins, certificates."""
        before = self._identity()
        try:
            self.configuration = self._load()
        except BadInput as error:
            raise Unauthorized(str(error)) from None
        return self._identity() != before

    def account(self) -> str:
        """See :class:`Access`."""
        return _subject((self.authorization() or "").removeprefix("Bearer ")) or self.source

    def _load(self) -> Configuration:
        if not any(Path(path).expanduser().exists() for path in self._path.split(os.pathsep)):
            raise BadInput(f"{self.source}: no such file")
        configuration = Configuration()
        try:
            load_kube_config(  # type: ignore[no-untyped-call]  # typed for models only
                self._path, self._context, client_configuration=configuration
            )
        except Exception as error:  # the loader meets files of any shape with errors of any kind
            raise BadInput(f"{self.source}: {_public(error)}") from None
        if configuration.host.startswith("https:") and not _has_credentials(configuration):
            # a plugin that fails is only logged by the loader, and we would go on as nobody
            raise BadInput(f"{self.source}: no token or certificate in it, or its plugin failed")
        return configuration

    def _identity(self) -> tuple[str | None, ...]:
        here = self.configuration
        return self.authorization(), here.cert_file, here.key_file


def _header(value: str, source: str) -> str:
    """The value itself; raises Unauthorized for one that http.client would quote in an error."""
    if value == "Bearer " or not (value.isascii() and value.isprintable()):
        raise Unauthorized(f"{source}: holds no token")
    return value


def _has_credentials(configuration: Configuration) -> bool:
    return bool(configuration.api_key or configuration.cert_file)


def _public(error: Exception) -> str:
    """What of an error may be shown: the loader quotes the kubeconfig, where tokens and keys stand.

    So texts end where such a quotation begins, and errors of kinds that nobody meant for
    people are named by their kind alone.
    """
    if not isinstance(error, ConfigException | YAMLError | OSError | binascii.Error):
        return f"not a kubeconfig ({type(error).__name__})"
    return one_line(str(error).partition("{")[0])


def _subject(token: str) -> str:
    """Whom a JSON web token speaks for; nothing is verified, it is for messages only."""
    try:
        payload = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return str(claims["sub"])
    except (IndexError, KeyError, TypeError, ValueError):
        return ""
