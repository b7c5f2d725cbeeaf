# SPDX-License-Identifier: Apache-2.0
"""Desired contents of the Secrets, from the current ones and the time. Pure but for new keys.

kube-scheduler reads the authorities that it trusts once, when it starts, and its certificate anew
for each connection (Kubernetes 1.32 to 1.37: ``pkg/scheduler/extender.go`` takes
``TLSConfigFor`` of client-go, which reloads ``certFile`` and ``keyFile`` and not ``caFile``). So
certificates are renewed at any time, and an authority is made long before it signs: in between
kube-scheduler has to be started once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from api import names
from scheduler.certificates import key_pairs
from scheduler.certificates.key_pairs import (
    LARGEST_SKEW,
    Certificate,
    CertificateHolder,
    KeyPair,
    Usage,
)

LIFE: Final = timedelta(days=365)
"""Validity of a server's or client's certificate."""
AUTHORITY_LIFE: Final = timedelta(days=3650)
"""Validity of an authority's certificate."""
RENEWED: Final = 2 / 3
"""Share of its validity after which a certificate is renewed, or an authority gets a successor."""
RELIEVED: Final = 5 / 6
"""Share after which the successor signs; by then every kube-scheduler has to trust it."""
FORGOTTEN: Final = 29 / 30
"""Share after which an authority is no longer trusted. By then the last certificate that it signed
has ended; and it is gone before an alert about its own end."""
OVERLAP: Final = timedelta(days=1)
"""Authorities of replaced certificates stay trusted for so long: files in pods update late."""

CERTIFICATE: Final = "tls.crt"
"""Keys of the Secrets; so are the next three."""
KEY: Final = "tls.key"
TRUSTED: Final = "ca.crt"
TRUSTED_KEYS: Final = "ca.key"

Content = Mapping[str, bytes]
"""Contents of a Secret: key to value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """Contents of all three Secrets; its repr shows none of it."""

    authority: Content = field(repr=False)
    """Authorities, the oldest first, and their keys."""
    server: Content = field(repr=False)
    """The extender's certificate and key, and the authorities that it trusts."""
    client: Content = field(repr=False)
    """kube-scheduler's certificate and key, and the authorities that it trusts."""


def server(namespace: str) -> CertificateHolder:
    """The extender, by its Service's names; kube-scheduler connects to the first."""
    service = f"{names.SCHEDULER}.{namespace}"
    return CertificateHolder(
        name=names.SCHEDULER,
        dns_names=(f"{service}.svc", f"{service}.svc.cluster.local", service, names.SCHEDULER),
        usage=Usage.SERVER,
    )


def client_holder(namespace: str) -> CertificateHolder:
    """kube-scheduler. Its name is not checked: any client with a certificate of the authority may
    connect."""
    name = names.KUBE_SCHEDULER_TLS.removesuffix("-tls")
    return CertificateHolder(name=name, dns_names=(f"{name}.{namespace}.svc",), usage=Usage.CLIENT)


def renewed(
    current: Contents, now: datetime, *, namespace: str, known: Iterable[KeyPair] = ()
) -> Contents:
    """Desired contents of the Secrets; the current ones if nothing is due, missing or damaged.

    ``known`` are authorities that the Secret had before. They are taken where it has none any
    more, so that kube-scheduler goes on trusting what is signed.
    """
    authorities = signing(current.authority, now) or usable(known, now)
    if not authorities or authorities[-1].certificate.age(now) >= RENEWED:
        name = f"{names.SCHEDULER} authority {now:%Y-%m-%dT%H:%M:%SZ}"
        authorities = (*authorities, key_pairs.authority(name, now, AUTHORITY_LIFE))
    signer = next(
        authority for authority in authorities if authority.certificate.age(now) < RELIEVED
    )
    own = tuple(authority.certificate for authority in authorities)
    before = _still_trusted((current.server, current.client), now)
    sides = [
        _kept(side, holder, (*own, *before), now) or key_pairs.issued(signer, holder, now, LIFE)
        for side, holder in (
            (current.server, server(namespace)),
            (current.client, client_holder(namespace)),
        )
    ]
    trusted = _trusted(own, before, sides, now)
    return Contents(
        authority={
            TRUSTED: _joined(own),
            TRUSTED_KEYS: b"".join(authority.key_pem for authority in authorities),
        },
        server={TRUSTED: trusted, CERTIFICATE: sides[0].certificate.pem, KEY: sides[0].key_pem},
        client={TRUSTED: trusted, CERTIFICATE: sides[1].certificate.pem, KEY: sides[1].key_pem},
    )


def signing(authority: Content, now: datetime) -> tuple[KeyPair, ...]:
    """Authorities of a Secret that can sign and are still trusted, the oldest first."""
    held = key_pairs.key_pairs(authority.get(TRUSTED, b""), authority.get(TRUSTED_KEYS, b""))
    return usable((pair for pair in held if pair.can_sign()), now)


def usable(pairs: Iterable[KeyPair], now: datetime) -> tuple[KeyPair, ...]:
    """Pairs that are still trusted at their age (:data:`FORGOTTEN`), the oldest first."""
    alive = {
        pair.certificate: pair for pair in pairs if _is_alive(pair.certificate, now, FORGOTTEN)
    }
    return tuple(sorted(alive.values(), key=lambda pair: pair.certificate.begins))


def is_trusted(server: Content, client: Content) -> bool:
    """Whether a client with these trusted authorities accepts the server's certificate.

    True for a client that has none yet: it has not started.
    """
    trusted = key_pairs.pem_certificates(client.get(TRUSTED, b""))
    shown = key_pairs.pem_certificates(server.get(CERTIFICATE, b""))[:1]
    return not trusted or any(
        certificate.is_signed_by(authority) for certificate in shown for authority in trusted
    )


def _is_alive(certificate: Certificate, now: datetime, until: float) -> bool:
    """Whether less than this share of its validity is over, and it does not start in the future.

    A certificate from the future was made by a wrong clock.
    """
    return certificate.begins <= now + LARGEST_SKEW and certificate.age(now) < until


def _still_trusted(sides: Iterable[Content], now: datetime) -> tuple[Certificate, ...]:
    """Authorities that either side trusts, our own or not."""
    listed = (
        certificate
        for side in sides
        for certificate in key_pairs.pem_certificates(side.get(TRUSTED, b""))
    )
    alive = (
        certificate
        for certificate in listed
        if certificate.is_authority() and _is_alive(certificate, now, FORGOTTEN)
    )
    return tuple(dict.fromkeys(alive))


def _kept(
    side: Content, holder: CertificateHolder, trusted: Iterable[Certificate], now: datetime
) -> KeyPair | None:
    """The present key pair, if it fits the holder, is trusted and not due for renewal."""
    held = key_pairs.key_pairs(side.get(CERTIFICATE, b""), side.get(KEY, b""))
    return next(
        (
            pair
            for pair in held
            if _is_alive(pair.certificate, now, RENEWED)
            and pair.certificate.is_for(holder)
            and any(pair.certificate.is_signed_by(other) for other in trusted)
        ),
        None,
    )


def _trusted(
    own: tuple[Certificate, ...],
    before: tuple[Certificate, ...],
    sides: Iterable[KeyPair],
    now: datetime,
) -> bytes:
    """PEM of the trusted authorities: our own, and for a while those that signed earlier
    certificates."""
    used = [pair.certificate for pair in sides]
    is_fresh = any(now - LARGEST_SKEW - certificate.begins < OVERLAP for certificate in used)
    predecessors = (
        authority
        for authority in before
        if authority not in own
        and (is_fresh or any(certificate.is_signed_by(authority) for certificate in used))
    )
    return _joined((*own, *predecessors))


def _joined(certificates: Iterable[Certificate]) -> bytes:
    return b"".join(certificate.pem for certificate in certificates)
