# SPDX-License-Identifier: Apache-2.0
"""What the Secrets should hold, from what they hold and the time. Pure but for new keys.

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
"""Of a certificate; so is the next one of an authority."""
AUTHORITY_LIFE: Final = timedelta(days=3650)
RENEWED: Final = 2 / 3
"""The part of its life after which a certificate is renewed, and an authority has a successor."""
RELIEVED: Final = 5 / 6
"""The part after which the successor signs; by then every kube-scheduler has to trust it."""
FORGOTTEN: Final = 29 / 30
"""The part after which an authority is trusted no more. What it signed last has ended by then, and
no alert is raised about its own end."""
OVERLAP: Final = timedelta(days=1)
"""What replaced certificates were signed by stays trusted for so long: files in pods are late."""

CERTIFICATE: Final = "tls.crt"
"""Keys of the Secrets; so are the next three."""
KEY: Final = "tls.key"
TRUSTED: Final = "ca.crt"
TRUSTED_KEYS: Final = "ca.key"

Content = Mapping[str, bytes]
"""What one Secret holds, by its keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """What all three Secrets hold; nothing of it is shown."""

    authority: Content = field(repr=False)
    """Authorities, the oldest first, and their keys."""
    server: Content = field(repr=False)
    """The extender's certificate and key, and the authorities that it trusts."""
    client: Content = field(repr=False)
    """The same of kube-scheduler."""


def server(namespace: str) -> CertificateHolder:
    """The extender, by its Service's names; the one that kube-scheduler asks for is the first."""
    service = f"{names.SCHEDULER}.{namespace}"
    return CertificateHolder(
        name=names.SCHEDULER,
        dns_names=(f"{service}.svc", f"{service}.svc.cluster.local", service, names.SCHEDULER),
        usage=Usage.SERVER,
    )


def client(namespace: str) -> CertificateHolder:
    """kube-scheduler. The name is not asked for: whoever is signed by the authority may ask."""
    name = names.KUBE_SCHEDULER_TLS.removesuffix("-tls")
    return CertificateHolder(name=name, dns_names=(f"{name}.{namespace}.svc",), usage=Usage.CLIENT)


def renewed(
    found: Contents, at: datetime, *, namespace: str, known: Iterable[KeyPair] = ()
) -> Contents:
    """What they should hold: the same where nothing is due, missing or damaged.

    ``known`` are authorities that the Secret had before. They are taken where it has none any
    more, so that kube-scheduler goes on trusting what is signed.
    """
    authorities = signing(found.authority, at) or usable(known, at)
    if not authorities or authorities[-1].certificate.age(at) >= RENEWED:
        name = f"{names.SCHEDULER} authority {at:%Y-%m-%dT%H:%M:%SZ}"
        authorities = (*authorities, key_pairs.authority(name, at, AUTHORITY_LIFE))
    signer = next(it for it in authorities if it.certificate.age(at) < RELIEVED)
    own = tuple(it.certificate for it in authorities)
    before = _still_trusted((found.server, found.client), at)
    sides = [
        _kept(side, holder, (*own, *before), at) or key_pairs.issued(signer, holder, at, LIFE)
        for side, holder in ((found.server, server(namespace)), (found.client, client(namespace)))
    ]
    trusted = _trusted(own, before, sides, at)
    return Contents(
        authority={
            TRUSTED: _joined(own),
            TRUSTED_KEYS: b"".join(it.key_pem for it in authorities),
        },
        server={TRUSTED: trusted, CERTIFICATE: sides[0].certificate.pem, KEY: sides[0].key_pem},
        client={TRUSTED: trusted, CERTIFICATE: sides[1].certificate.pem, KEY: sides[1].key_pem},
    )


def signing(authority: Content, at: datetime) -> tuple[KeyPair, ...]:
    """The authorities that can be used of what their Secret holds, the oldest first."""
    held = key_pairs.key_pairs(authority.get(TRUSTED, b""), authority.get(TRUSTED_KEYS, b""))
    return usable((it for it in held if it.can_sign()), at)


def usable(pairs: Iterable[KeyPair], at: datetime) -> tuple[KeyPair, ...]:
    """Those in the part of their lives in which they are trusted, the oldest first."""
    alive = {it.certificate: it for it in pairs if _is_alive(it.certificate, at, FORGOTTEN)}
    return tuple(sorted(alive.values(), key=lambda it: it.certificate.begins))


def is_trusted(server: Content, client: Content) -> bool:
    """Whether whoever trusts what ``client`` has takes the server's certificate.

    Who trusts nobody yet has not started.
    """
    trusted = key_pairs.certificates(client.get(TRUSTED, b""))
    shown = key_pairs.certificates(server.get(CERTIFICATE, b""))[:1]
    return not trusted or any(it.is_signed_by(one) for it in shown for one in trusted)


def _is_alive(certificate: Certificate, at: datetime, until: float) -> bool:
    """One from the future was made by a clock that was wrong."""
    return certificate.begins <= at + LARGEST_SKEW and certificate.age(at) < until


def _still_trusted(sides: Iterable[Content], at: datetime) -> tuple[Certificate, ...]:
    """Authorities that either side trusts, our own or not."""
    found = (it for side in sides for it in key_pairs.certificates(side.get(TRUSTED, b"")))
    alive = (it for it in found if it.is_authority() and _is_alive(it, at, FORGOTTEN))
    return tuple(dict.fromkeys(alive))


def _kept(
    side: Content, holder: CertificateHolder, trusted: Iterable[Certificate], at: datetime
) -> KeyPair | None:
    """The certificate that is there, if it is good and not due."""
    held = key_pairs.key_pairs(side.get(CERTIFICATE, b""), side.get(KEY, b""))
    return next(
        (
            it
            for it in held
            if _is_alive(it.certificate, at, RENEWED)
            and it.certificate.is_for(holder)
            and any(it.certificate.is_signed_by(other) for other in trusted)
        ),
        None,
    )


def _trusted(
    own: tuple[Certificate, ...],
    before: tuple[Certificate, ...],
    sides: Iterable[KeyPair],
    at: datetime,
) -> bytes:
    """Our authorities, and for a while those that signed what was used or is used."""
    used = [it.certificate for it in sides]
    is_fresh = any(at - LARGEST_SKEW - it.begins < OVERLAP for it in used)
    others = (
        it
        for it in before
        if it not in own and (is_fresh or any(one.is_signed_by(it) for one in used))
    )
    return _joined((*own, *others))


def _joined(certificates: Iterable[Certificate]) -> bytes:
    return b"".join(it.pem for it in certificates)
