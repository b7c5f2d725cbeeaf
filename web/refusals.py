# SPDX-License-Identifier: Apache-2.0
"""Clients that a server refuses: counted by reason, and logged at a bounded rate.

A client without a password, with the wrong certificate or with plain HTTP where TLS is spoken
learns why from the answer or from TLS, if at all; whoever runs the server needs the same.
"""

from __future__ import annotations

import ipaddress
import logging
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Final

from base.bucket import Bucket
from base.log_once import LogOnce
from web.client_access import certificate_names

log = logging.getLogger(__name__)

_LOG_INTERVAL_SECONDS: Final = 60.0
_LOG_BURST: Final = 5
"""Lines of the log for each reason, before the limit of one a minute holds."""


class RefusalReason(StrEnum):
    """Why a connection or a request was refused; values of the label ``reason``."""

    PLAINTEXT = "plaintext"
    """Plain HTTP where TLS is spoken."""
    HANDSHAKE = "handshake"
    """No TLS: no version or cipher in common, the client trusts another authority, or noise."""
    NO_CERTIFICATE = "no_certificate"
    """The client showed no certificate where one is needed."""
    CERTIFICATE = "certificate"
    """The client's certificate is not of the authority, has ended or is broken."""
    NAME = "name"
    """The client's certificate has none of the allowed names."""
    CREDENTIALS = "credentials"
    """No password, or not the right one: answered with 401."""
    RATE = "rate_limit"
    """More requests than allowed: answered with 429."""
    REQUEST = "request"
    """No HTTP/1 request that is served: answered with a status from 400 to 431."""
    OVERLOAD = "overload"
    """No place was free in time: answered with 503."""
    RESOURCES = "resources"
    """The machine had no file descriptor, thread or memory for a connection."""


_REASONS: Final = {
    "HTTP_REQUEST": RefusalReason.PLAINTEXT,
    "HTTPS_PROXY_REQUEST": RefusalReason.PLAINTEXT,
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": RefusalReason.NO_CERTIFICATE,
}
"""Reasons of failed handshakes, by OpenSSL's name of the error."""


class ClientRefusals:
    """Counts and logs clients that one program's servers refuse. Thread-safe."""

    def __init__(
        self, count: Callable[[RefusalReason], None], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """``count`` adds one to a metric, and may be called from any thread."""
        self._count = count
        self._clock = clock
        self._lock = threading.Lock()
        self._buckets = {
            reason: Bucket(interval_seconds=_LOG_INTERVAL_SECONDS, burst=_LOG_BURST)
            for reason in RefusalReason
        }
        self._not_accepted = LogOnce()
        self._not_logged = dict.fromkeys(RefusalReason, 0)

    def refused(self, reason: RefusalReason, client: str, detail: str = "") -> None:
        """Count a refused client at this address, and log it unless too many come."""
        self._count(reason)
        with self._lock:
            if not self._buckets[reason].take(self._clock()):
                self._not_logged[reason] += 1
                return
            not_logged, self._not_logged[reason] = self._not_logged[reason], 0
        facts = {"reason": str(reason), "client": client}
        if detail:
            facts["detail"] = detail
        if not_logged:
            facts["more"] = f"{not_logged} not logged"
        log.warning("client refused", extra=facts)

    def not_accepted(self, error: Exception) -> None:
        """The machine had nothing left for a connection; logged once for each kind of error."""
        self._count(RefusalReason.RESOURCES)
        with self._lock:
            is_new = self._not_accepted.is_new(type(error), getattr(error, "errno", None))
        if is_new:
            log.warning("connection not accepted", extra={"why": str(error)})

    def no_handshake(self, error: ssl.SSLError, client: str) -> None:
        """Count a failed TLS handshake; a client that only went away is not refused."""
        if isinstance(error, ssl.SSLEOFError):
            return
        name = error.reason or ""
        if isinstance(error, ssl.SSLCertVerificationError):
            self.refused(RefusalReason.CERTIFICATE, client, error.verify_message)
        else:
            words = name.lower().replace("_", " ")
            self.refused(_REASONS.get(name, RefusalReason.HANDSHAKE), client, words)


def host_of(address: Any) -> str:
    """The host of a socket's address, an IPv4 one as such where it came through IPv6.

    Empty where it has none: the client has gone, or the socket is no Internet one.
    """
    if not isinstance(address, tuple) or not address:
        return ""
    host = str(address[0])
    try:
        parsed = ipaddress.ip_address(host)
    except ValueError:
        return host
    return str(getattr(parsed, "ipv4_mapped", None) or parsed)


def names_of(certificate: Mapping[str, Any] | None) -> str:
    """The names in a certificate for a person to read, such as ``CN=prometheus, DNS=a.b``.

    ``certificate`` is as :meth:`ssl.SSLSocket.getpeercert` gives it. Empty where there is none.
    """
    return ", ".join(f"{kind}={name}" for kind, name in certificate_names(certificate))
