# SPDX-License-Identifier: Apache-2.0
"""Sends requests within their budget, with fresh credentials, and sorts their failures.

Uses the official package's transport, below its generated models: those cost memory
and refuse what a newer server adds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from urllib3 import HTTPResponse
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError

from kube.api_errors import ApiError, Busy, NotConnected, Unauthorized, Unreachable
from kube.api_server import ApiServer, ClientIdentity
from kube.error_answers import error, one_line
from kube.official import ApiException, RESTClientObject, tcp_keepalive_socket_options
from kube.request_limits import RequestLimits

KEEPALIVE = {"idle": 30, "interval": 10, "count": 3}
"""Seconds and probes: a peer that is gone is noticed after one minute."""

JSON = "application/json"

_OK = range(200, 300)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRequest:
    """A request to the API server."""

    action: str
    """The request in words, for messages: ``patch Node node-a``."""
    method: str
    path: str
    """Path with the query."""
    accept: str = JSON
    """Media type of the answer."""
    body: Mapping[str, Any] | None = None
    content_type: str | None = None
    read_seconds: float
    """Silence after which the connection counts as broken."""


class Transport:
    """The connections to one API server. Thread-safe."""

    def __init__(
        self, access: ApiServer, limits: RequestLimits, *, user_agent: str, connect_seconds: float
    ) -> None:
        self._access = access
        self._limits = limits
        self._user_agent = user_agent
        self._connect_seconds = connect_seconds
        self._rest = _connections(access)

    def send(self, request: ApiRequest) -> HTTPResponse:
        """Send a request; the answer is open, its status 2xx. Raises :mod:`kube.api_errors`.

        After a 401 the request is sent once more where the credentials have changed.
        """
        identity = self._access.identity()
        try:
            return self._once(request, identity)
        except Unauthorized:
            renewed = self._renewed()
            if renewed == identity:
                raise
        return self._once(request, renewed)

    def close(self) -> None:
        """Give back idle connections."""
        self._rest.close()

    def _once(self, request: ApiRequest, identity: ClientIdentity) -> HTTPResponse:
        self._limits.wait()
        if (closed_seconds := self._limits.closed_seconds()) > 0:
            raise Busy(
                f"{request.action}: not sent, the server asked for {closed_seconds:.0f} s without"
                " requests",
                retry_after_seconds=closed_seconds,
            )
        headers = {"Accept": request.accept, "User-Agent": self._user_agent}
        if request.content_type:
            headers["Content-Type"] = request.content_type
        if identity.authorization:
            headers["Authorization"] = identity.authorization
        try:
            answer = self._rest.request(  # type: ignore[no-untyped-call]  # typed for models only
                request.method,
                self._access.configuration.host + request.path,
                headers,
                request.body,
                _request_timeout=(self._connect_seconds, request.read_seconds),
            )
        except (ApiException, HTTPError, OSError) as failure:
            raise _unreachable(request, failure) from failure
        response: HTTPResponse = answer.response
        if response.status in _OK:
            return response
        raise self._failure(request, response, identity)

    def _failure(
        self, request: ApiRequest, response: HTTPResponse, identity: ClientIdentity
    ) -> ApiError:
        content = body(request, response)
        failure = error(
            request.action,
            response.status,
            content,
            headers=response.headers,
            account=identity.account or self._access.source,
        )
        if isinstance(failure, Busy) and failure.retry_after_seconds and b'"causes"' not in content:
            # Overload closes the gate for all threads. An eviction that a PodDisruptionBudget
            # refuses is a 429 too, and concerns that pod alone: it lists its causes.
            self._limits.close(failure.retry_after_seconds)
        return failure

    def _renewed(self) -> ClientIdentity:
        before = self._access.configuration
        self._access.renew()
        if self._access.configuration is not before:
            self._rest = _connections(self._access)
        return self._access.identity()


def body(request: ApiRequest, response: HTTPResponse) -> bytes:
    """The whole body of an answer; raises Unreachable where it breaks off."""
    try:
        return response.data
    except (HTTPError, OSError) as failure:
        raise _unreachable(request, failure) from failure


def _connections(access: ApiServer) -> RESTClientObject:
    configuration = access.configuration
    configuration.retries = False  # neither retries nor redirects: a token goes to one host only
    configuration.socket_options = tcp_keepalive_socket_options(**KEEPALIVE)
    return RESTClientObject(configuration)


def _unreachable(request: ApiRequest, failure: Exception) -> Unreachable:
    sent = not isinstance(failure, NewConnectionError | ConnectTimeoutError)
    kind = Unreachable if sent else NotConnected
    return kind(f"{request.action}: {one_line(str(failure))}")
