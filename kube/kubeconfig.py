# SPDX-License-Identifier: Apache-2.0
"""A kubeconfig as kubectl reads it, by the official package's loader.

Import it only where a kubeconfig is read: the loader comes with OAuth and a second HTTP client.
Secrets stay in here: no message quotes a token, a key, or a part of a kubeconfig that
may hold one.
"""

from __future__ import annotations

import binascii
import os
from pathlib import Path
from typing import Final

from yaml import YAMLError

from base.errors import BadInput
from kube.api_errors import Unauthorized
from kube.api_server import ClientIdentity, header
from kube.error_answers import one_line
from kube.official import Configuration, kubeconfig_loader

_LOADER: Final = kubeconfig_loader()


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
            authorization=header(value, self.source) if value else None,
            certificate=(here.cert_file, here.key_file),
        )

    def renew(self) -> None:
        """Load the kubeconfig again: token files, plugins, certificates."""
        try:
            self.configuration = self._load()
        except BadInput as error:
            raise Unauthorized(str(error)) from None

    def _load(self) -> Configuration:
        if not any(Path(path).expanduser().exists() for path in self._path.split(os.pathsep)):
            raise BadInput(f"{self.source}: no such file")
        configuration = Configuration()
        try:
            _LOADER.load_kube_config(self._path, self._context, client_configuration=configuration)
        except Exception as error:  # the loader meets files of any shape with errors of any kind
            raise BadInput(f"{self.source}: {_public(error)}") from None
        if configuration.host.startswith("https:") and not _has_credentials(configuration):
            # a plugin that fails is only logged by the loader, and we would go on as nobody
            raise BadInput(f"{self.source}: no token or certificate in it, or its plugin failed")
        return configuration


def _has_credentials(configuration: Configuration) -> bool:
    return bool(configuration.api_key or configuration.cert_file)


def _public(error: Exception) -> str:
    """The part of an error that may be shown: the loader quotes the kubeconfig with its secrets.

    So texts end where such a quotation begins, and errors of kinds that nobody meant for
    people are named by their kind alone.
    """
    if not isinstance(error, _LOADER.ConfigException | YAMLError | OSError | binascii.Error):
        return f"not usable ({type(error).__name__})"
    return one_line(str(error).partition("{")[0])
