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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from kubernetes.client.configuration import Configuration
from kubernetes.config import ConfigException, load_kube_config
from yaml import YAMLError

from base.errors import BadInput
from kube.api_errors import Unauthorized
from kube.error_answers import one_line

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
HOST = "KUBERNETES_SERVICE_HOST"
PORT = "KUBERNETES_SERVICE_PORT"
KUBECONFIG = "KUBECONFIG"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientIdentity:
    """What a request proves who we are with."""

    authorization: str | None = field(repr=False)
    """The header's value, None where a certificate does it."""
    certificate: tuple[str | None, ...] = ()
    """Files of certificate and key."""

    @property
    def account(self) -> str:
        """Whom a JSON web token speaks for, unverified and for messages only; else empty."""
        try:
            payload = (self.authorization or "").split(".")[1]
            claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
            return str(claims["sub"])
        except (IndexError, KeyError, TypeError, ValueError):
            return ""


class ApiServer(Protocol):
    """A way to one API server."""

    configuration: Configuration
    """Address, certificates, proxy. Files named in it are read at each TLS handshake."""
    source: str
    """Where it comes from, for messages."""

    def identity(self) -> ClientIdentity:
        """As of now; raises Unauthorized."""

    def renew(self) -> None:
        """Read anew what is kept, because the server refused it; raises Unauthorized."""


def find(
    kubeconfig: str | None = None,
    context: str | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
    service_account: Path = SERVICE_ACCOUNT,
) -> ApiServer:
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
        authority = folder / "ca.crt"
        for path in (self._token_file, authority):
            if not path.is_file():
                raise BadInput(f"{path} is missing: mount the account's token or name a kubeconfig")
        host = environ[HOST]
        self.configuration = Configuration(ssl_ca_cert=str(authority))
        bare = f"[{host}]" if ":" in host else host
        self.configuration.host = f"https://{bare}:{environ.get(PORT) or '443'}"

    def identity(self) -> ClientIdentity:
        """See :class:`ApiServer`."""
        try:
            token = self._token_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise Unauthorized(f"{self._token_file}: no token: {type(error).__name__}") from None
        return ClientIdentity(authorization=_header(f"Bearer {token}", str(self._token_file)))

    def renew(self) -> None:
        """Nothing is kept."""


class Kubeconfig:
    """A kubeconfig as kubectl reads it, with its exec and auth plugins."""

    def __init__(self, path: str, context: str | None = None) -> None:
        self.source = f"kubeconfig {path}"
        self._path = path
        self._context = context
        self.configuration = self._load()

    def identity(self) -> ClientIdentity:
        """See :class:`ApiServer`."""
        here = self.configuration
        try:
            value = here.get_api_key_with_prefix("BearerToken", "authorization")
        except Exception as error:  # a plugin that renews the token may fail in any way
            raise Unauthorized(f"{self.source}: no credentials: {_public(error)}") from None
        return ClientIdentity(
            authorization=_header(value, self.source) if value else None,
            certificate=(here.cert_file, here.key_file),
        )

    def renew(self) -> None:
        """All of it: token files, plugins, certificates."""
        try:
            self.configuration = self._load()
        except BadInput as error:
            raise Unauthorized(str(error)) from None

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
        return f"not usable ({type(error).__name__})"
    return one_line(str(error).partition("{")[0])
