# SPDX-License-Identifier: Apache-2.0
"""Certificates made for a test: an authority, and what it signs."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

DAY = datetime.timedelta(days=1)
SERVER_NAMES = (x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1")))


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """A certificate with its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def pem(self) -> bytes:
        """The certificate."""
        return self.certificate.public_bytes(Encoding.PEM)

    def key_pem(self, password: bytes = b"") -> bytes:
        """The key, encrypted where there is a password."""
        encryption = BestAvailableEncryption(password) if password else NoEncryption()
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)

    def write(self, folder: Path, name: str = "tls") -> None:
        """``name``.crt and ``name``.key."""
        (folder / f"{name}.crt").write_bytes(self.pem)
        (folder / f"{name}.key").write_bytes(self.key_pem())


def authority(name: str = "authority", *, days: float = 1) -> Certificate:
    """One that signs others."""
    return _signed(name, (), None, days)


def issued(
    by: Certificate,
    name: str = "node-a",
    names: Sequence[x509.GeneralName] = SERVER_NAMES,
    *,
    days: float = 1,
) -> Certificate:
    """One for a server or a client, good for so many days."""
    return _signed(name, names, by, days)


def _signed(
    name: str, names: Sequence[x509.GeneralName], by: Certificate | None, days: float
) -> Certificate:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if by is None else by.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - DAY)
        .not_valid_after(now + days * DAY)
        .add_extension(x509.BasicConstraints(ca=by is None, path_length=None), critical=True)
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    certificate = builder.sign(key if by is None else by.key, hashes.SHA256())
    return Certificate(certificate=certificate, key=key)
