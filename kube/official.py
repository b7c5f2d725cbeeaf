# SPDX-License-Identifier: Apache-2.0
"""The parts of the official package that programs use: configuration, transport, kubeconfigs.

Importing any module of ``kubernetes`` runs the package's own ``__init__``, which imports all of
it: models, the dynamic client, streams and what these rest on, 19 MiB for one REST client. Here
its packages are registered as the import system makes them, with their place on disk, and run
only when somebody uses a name that they define. No program of gpuscape does, so the image has
only these parts. The reasons are in docs/decisions/kubernetes-client.md.
"""

from __future__ import annotations

import importlib
import sys
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Protocol

_PACKAGES = ("kubernetes", "kubernetes.client", "kubernetes.utils")
_PARTS = ("kubernetes.client.configuration", "kubernetes.client.rest", "kubernetes.utils.keepalive")


class _Package(ModuleType):
    """A package that has not run."""

    def __getattr__(self, name: str) -> object:
        """Run the package, because it lacks this name so far."""
        importlib.reload(self)
        self.__class__ = ModuleType  # type: ignore[assignment]  # a plain one from now on
        return getattr(self, name)


def _load() -> None:
    """Load the parts without what they do not need.

    Where the whole package is loaded already, it stays. Where a version's modules need their
    packages to have run before them, they are forgotten, and whoever imports one gets them all.
    """
    if "kubernetes" in sys.modules:
        return
    try:
        for name in _PACKAGES:
            _register(name)
        for name in _PARTS:
            importlib.import_module(name)
    except (AttributeError, ImportError):
        for name in [name for name in sys.modules if name.partition(".")[0] == "kubernetes"]:
            del sys.modules[name]


def _register(name: str) -> None:
    """Let modules of the package be imported without running it."""
    if (spec := find_spec(name)) is None:
        raise ModuleNotFoundError(f"no package {name}")
    sys.modules[name] = package = module_from_spec(spec)
    package.__class__ = _Package
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, package)


class _KubeconfigLoader(Protocol):
    """What ``kubernetes.config`` is used for."""

    ConfigException: type[Exception]

    def load_kube_config(
        self, config_file: str, context: str | None, client_configuration: Configuration
    ) -> None:
        """Fill the configuration from the file. Raises what the file or a plugin brings about."""


_load()

from kubernetes.client.configuration import Configuration  # noqa: E402  # loaded above
from kubernetes.client.exceptions import ApiException  # noqa: E402
from kubernetes.client.rest import RESTClientObject, RESTResponse  # noqa: E402
from kubernetes.utils.keepalive import tcp_keepalive_socket_options  # noqa: E402


class IssuerClient:
    """The package's ``ApiClient`` as its kubeconfig loader uses it: to read an OIDC issuer."""

    def __init__(self, configuration: Configuration) -> None:
        self._transport = RESTClientObject(configuration)

    def call_api(self, method: str, url: str) -> RESTResponse:
        """Send one request without headers and body. Raises ApiException and urllib3's errors."""
        answer: RESTResponse = self._transport.request(  # type: ignore[no-untyped-call]
            method, url
        )
        return answer


def kubeconfig_loader() -> _KubeconfigLoader:
    """The module ``kubernetes.config``.

    It takes two names from ``kubernetes.client``. They are put there while it is imported, or that
    package would run and load every model.
    """
    client = sys.modules["kubernetes.client"]
    names = {"Configuration": Configuration, "ApiClient": IssuerClient}
    if isinstance(client, _Package):
        vars(client).update(names)
    try:
        return importlib.import_module("kubernetes.config")
    finally:
        if isinstance(client, _Package):
            for name in names:
                delattr(client, name)


__all__ = [
    "ApiException",
    "Configuration",
    "RESTClientObject",
    "kubeconfig_loader",
    "tcp_keepalive_socket_options",
]
