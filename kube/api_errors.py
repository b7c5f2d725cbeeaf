# SPDX-License-Identifier: Apache-2.0
"""Errors of the Kubernetes API, sorted by what the caller does next."""

from __future__ import annotations

from base.errors import GpuscapeError, Permanent, Transient


class ApiError(GpuscapeError):
    """Base of all errors of the Kubernetes API; its text names the request and the cause."""

    retry_after_seconds: float | None = None
    """Seconds of the server's Retry-After; None without one."""


class Unreachable(ApiError, Transient):
    """No whole answer came: refused, reset, timed out, TLS. A write may have happened."""


class NotConnected(Unreachable):
    """No connection came about, so nothing was sent."""


class Busy(ApiError, Transient):
    """The server cannot answer now: 429 or 5xx."""

    def __init__(self, text: str, *, retry_after_seconds: float | None = None) -> None:
        """``retry_after_seconds``: seconds of the server's Retry-After, if there was one."""
        super().__init__(text)
        self.retry_after_seconds = retry_after_seconds


class BudgetRefused(Busy):
    """429 of an eviction: a PodDisruptionBudget does not allow it now."""


class Unauthorized(ApiError, Transient):
    """401: the token is not, or no longer, good; a rotated one may be."""


class NotFound(ApiError, Transient):
    """404: no such object, or no such kind of object in this cluster."""


class Conflict(ApiError, Transient):
    """409: it exists already, or changed since the resourceVersion that was sent."""


class Expired(ApiError, Transient):
    """410: the resourceVersion is too old to watch from."""


class Forbidden(ApiError, Permanent):
    """403: the account's roles do not allow it."""


class NamespaceTerminating(Forbidden):
    """403: the namespace is being deleted; nothing is made there any more, and its pods go."""


class SeveralBudgets(ApiError, Permanent):
    """500 of an eviction: several PodDisruptionBudgets select the pod, so it is never evicted."""


class AdmissionRefused(ApiError, Permanent):
    """An admission policy or webhook refused the object's content; sending it again cannot help."""

    def __init__(self, text: str, *, policy: str, message: str = "") -> None:
        """``policy``: name of the ValidatingAdmissionPolicy, or of the webhook, that refused.

        ``message``: all that it answered, where ``text`` is cut.
        """
        super().__init__(text)
        self.policy = policy
        self.message = message or text


class Invalid(ApiError, Permanent):
    """400 or 422 by the object's own validation, or another answer that makes no sense here."""
