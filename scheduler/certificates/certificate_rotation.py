# SPDX-License-Identifier: Apache-2.0
"""Rotates the certificates in three Secrets, as :mod:`scheduler.certificates.renewal` decides.

Any number of these may run: each write names the version that was read, so of several that make
something at once the first one's is kept, and the others read it. One thread.
"""

from __future__ import annotations

import base64
import binascii
import logging
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from api import names
from base.log_once import LogOnce
from kube.api import SECRETS, Api, Object
from kube.api_errors import ApiError, Conflict
from kube.present_objects import present_object
from scheduler.certificates import key_pairs, renewal
from scheduler.certificates.key_pairs import KeyPair
from scheduler.certificates.renewal import Content, Contents

log = logging.getLogger(__name__)

CHECK_SECONDS: Final = 15.0
AGAIN_SECONDS: Final = 2.0
"""Pause after a request that failed, or that lost to another writer's."""
MOST_SKEW: Final = timedelta(minutes=15)
"""Difference of this clock from the API server's; with a larger one nothing is written."""

_FIELDS: Final[Mapping[str, str]] = {
    names.SCHEDULER_CA: "authority",
    names.SCHEDULER_TLS: "server",
    names.KUBE_SCHEDULER_TLS: "client",
}
"""Secret to the field of :class:`Contents`, in the order of writing: an authority is stored before
what it has signed."""


class CertificateRotation:
    """Keeps the Secrets of an installation up to date, in rounds."""

    def __init__(self, api: Api, *, namespace: str, clock: Callable[[], datetime]) -> None:
        """``clock``: the time of day, UTC."""
        self._api = api
        self._namespace = namespace
        self._clock = clock
        self._known: tuple[KeyPair, ...] = ()
        """The authorities of the last round that ended well."""
        self._logged = LogOnce()
        self.is_settled = False
        """Whether the last round found all Secrets, and left them as they should be."""

    def tick(self) -> float:
        """Make one round; seconds until the next."""
        is_settled = False
        try:
            is_settled = self._round()
        except Conflict:  # another was first: what it wrote is read next
            return AGAIN_SECONDS
        except ApiError as error:
            if self._logged.is_new(type(error)):
                log.warning("Secret not read or written", extra={"why": str(error)})
            return AGAIN_SECONDS
        finally:
            self.is_settled = is_settled
        self._logged.clear()
        return CHECK_SECONDS

    def _round(self) -> bool:
        """Read the Secrets and write those that differ from the desired; whether all of them exist.

        Raises Conflict where a Secret has changed meanwhile, and other errors of the API; what
        was written until then stands.
        """
        present = {name: self._read(name) for name in _FIELDS}
        contents = {name: _content(secret) for name, secret in present.items()}
        now = self._clock()
        desired = renewal.renewed(
            Contents(**{field: contents[name] for name, field in _FIELDS.items()}),
            now,
            namespace=self._namespace,
            known=self._known,
        )
        if present[names.SCHEDULER_CA] is None:
            return False  # nobody could go on with what is signed now
        for name, field in _FIELDS.items():
            secret, content = present[name], getattr(desired, field)
            if secret is None or content.items() <= contents[name].items():
                continue
            if not self._write(secret, content, now):
                return False
            _log_written(name, contents[name], content)
        if not renewal.is_trusted(desired.server, contents[names.KUBE_SCHEDULER_TLS]):
            action = "restart gpuscape-kube-scheduler"
            log.warning("kube-scheduler trusts no current authority", extra={"action": action})
        self._known = renewal.signing(desired.authority, now)
        return None not in present.values()

    def _read(self, name: str) -> Object | None:
        secret = present_object(self._api, SECRETS, name, namespace=self._namespace)
        if secret is None:
            if self._logged.is_new("missing", name):
                action = "apply the manifests again, or upgrade the release"
                log.warning("Secret missing", extra={"secret": name, "action": action})
            return None
        self._logged.clear(name)
        return secret

    def _write(self, secret: Object, content: Content, now: datetime) -> bool:
        """Write a Secret, unless this clock is wrong: a dry run returns the API server's time."""
        name = secret["metadata"]["name"]
        patch: dict[str, Any] = {
            "metadata": {"resourceVersion": secret["metadata"]["resourceVersion"]},
            "data": {key: base64.b64encode(value).decode() for key, value in content.items()},
        }
        tried = self._api.patch(SECRETS, name, patch, namespace=self._namespace, dry_run=True)
        server_time = _written_at(tried)
        if server_time is not None and abs(server_time - now) > MOST_SKEW:
            if self._logged.is_new("clock", "clock"):
                times = {"here": now.isoformat(), "there": server_time.isoformat()}
                log.error("clock differs from the API server's", extra=times)
            return False
        self._logged.clear("clock")
        self._api.patch(SECRETS, name, patch, namespace=self._namespace)
        return True


def _content(secret: Object | None) -> Content:
    """Decoded data of a Secret without undecodable values; empty for a missing Secret."""
    content = {}
    for key, text in ((secret or {}).get("data") or {}).items():
        try:
            content[key] = base64.b64decode(text)
        except (binascii.Error, TypeError):
            continue
    return content


def _written_at(secret: Object) -> datetime | None:
    """When a Secret was last written, by the API server's clock."""
    times = [
        datetime.fromisoformat(manager["time"])
        for manager in secret["metadata"].get("managedFields") or ()
        if manager.get("time")
    ]
    return max(times, default=None)


def _log_written(name: str, before: Content, after: Content) -> None:
    """Log what changed in a Secret, as far as people need it; never its contents."""
    certificate, trusted = renewal.CERTIFICATE, renewal.TRUSTED
    known = key_pairs.pem_certificates(before.get(trusted, b""))
    if after.get(certificate) != before.get(certificate):
        (new_certificate,) = key_pairs.pem_certificates(after[certificate])
        log.info(
            "certificate renewed", extra={"secret": name, "ends": new_certificate.ends.isoformat()}
        )
    elif all(authority in known for authority in key_pairs.pem_certificates(after[trusted])):
        log.info("trusted authorities fewer", extra={"secret": name})
    else:
        action = "start every kube-scheduler again within a year"
        log.info("certificate authority added", extra={"secret": name, "action": action})
