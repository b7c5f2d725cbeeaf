# SPDX-License-Identifier: Apache-2.0
"""Address of the API server and the credentials: of a pod's service account, or a kubeconfig.

No message quotes a token.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from base.errors import BadInput
from kube.api_errors import Unauthorized
from kube.api_server import ApiServer, ClientIdentity, header
from kube.official import Configuration

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
HOST = "KUBERNETES_SERVICE_HOST"
PORT = "KUBERNETES_SERVICE_PORT"
KUBECONFIG = "KUBECONFIG"


def find(
    kubeconfig: str | None = None,
    context: str | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
    service_account: Path = SERVICE_ACCOUNT,
) -> ApiServer:
    """The configured kubeconfig, else the pod's service account, else kubectl's kubeconfig.

    Raises BadInput where there is none, or where it cannot be used.
    """
    if kubeconfig is None:
        if environ.get(HOST):
            return ServiceAccount(service_account, environ)
        kubeconfig = environ.get(KUBECONFIG) or str(Path("~/.kube/config").expanduser())
        if not any(Path(path).exists() for path in kubeconfig.split(os.pathsep)):
            raise BadInput(
                f"no cluster: not in a pod, and no kubeconfig at {kubeconfig}: "
                f"name one with --kubeconfig or in {KUBECONFIG}"
            )
    from kube.kubeconfig import Kubeconfig  # here, since it loads what no pod needs: 17 MiB

    return Kubeconfig(kubeconfig, context)


class ServiceAccount:
    """The service account in a pod. The kubelet rotates its files, so nothing of them is kept."""

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
        return ClientIdentity(authorization=header(f"Bearer {token}", str(self._token_file)))

    def renew(self) -> None:
        """Do nothing: no credentials are kept."""
