# SPDX-License-Identifier: Apache-2.0
"""Certificates and their keys as PEM: made, read back and matched. Pure but for new keys.

The one module that loads ``cryptography``. What cannot be read is passed over: the caller makes
what it then lacks.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from typing import Final, TypeVar

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LARGEST_SKEW: Final = timedelta(hours=1)
"""Validity starts so long before a certificate is made, for machines whose clocks are late."""

_UNREADABLE: Final = (
    *(ValueError, TypeError, UnsupportedAlgorithm),
    *(x509.InvalidVersion, x509.UnsupportedGeneralNameType),
)
"""Exceptions of the library for damaged text, encrypted keys and unknown kinds."""

_Extension = TypeVar("_Extension", bound=x509.ExtensionType)
_BLOCK: Final = re.compile(rb"-----BEGIN ([A-Z ]+)-----[^-]+-----END \1-----\n?")


class Usage(Enum):
    """Purpose of a certificate that is not an authority's."""

    SERVER = ExtendedKeyUsageOID.SERVER_AUTH
    CLIENT = ExtendedKeyUsageOID.CLIENT_AUTH


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateHolder:
    """The program that a certificate is issued to."""

    name: str
    """Common name; at most 64 characters."""
    dns_names: tuple[str, ...]
    usage: Usage


@dataclass(frozen=True, slots=True)
class Certificate:
    """An X.509 certificate; two are equal if their bytes are."""

    parsed: x509.Certificate

    @property
    def pem(self) -> bytes:
        """The certificate in PEM, as files have it."""
        return self.parsed.public_bytes(Encoding.PEM)

    @property
    def begins(self) -> datetime:
        """Start of validity."""
        return self.parsed.not_valid_before_utc

    @property
    def ends(self) -> datetime:
        """End of validity."""
        return self.parsed.not_valid_after_utc

    def age(self, now: datetime) -> float:
        """Share of the validity that is over: 0 at its start, 1 at its end."""
        return (now - self.begins) / (self.ends - self.begins)

    def is_for(self, holder: CertificateHolder) -> bool:
        """Whether it has the holder's first DNS name and may be used for the holder's purpose."""
        alternative = self._extension(x509.SubjectAlternativeName)
        dns = () if alternative is None else alternative.get_values_for_type(x509.DNSName)
        usages = self._extension(x509.ExtendedKeyUsage)
        return holder.dns_names[0] in dns and (usages is None or holder.usage.value in usages)

    def is_authority(self) -> bool:
        """Whether it may sign other certificates."""
        constraints = self._extension(x509.BasicConstraints)
        return constraints is not None and constraints.ca

    def is_signed_by(self, other: Certificate) -> bool:
        """Whether the key of ``other`` has signed it."""
        try:
            self.parsed.verify_directly_issued_by(other.parsed)
        except (*_UNREADABLE, InvalidSignature):
            return False
        return True

    def _extension(self, kind: type[_Extension]) -> _Extension | None:
        try:
            return self.parsed.extensions.get_extension_for_class(kind).value
        except (*_UNREADABLE, x509.ExtensionNotFound, x509.DuplicateExtension):
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPair:
    """A certificate with its key."""

    certificate: Certificate
    key_pem: bytes = field(repr=False)
    """Not encrypted; never in a log."""

    def can_sign(self) -> bool:
        """Whether it is an authority with an elliptic-curve key, as from :func:`authority`."""
        key = load_pem_private_key(self.key_pem, None)
        return self.certificate.is_authority() and isinstance(key, ec.EllipticCurvePrivateKey)


def pem_certificates(pem: bytes) -> tuple[Certificate, ...]:
    """All readable certificates of a PEM text, in their order."""
    certificates = (_certificate(block[0]) for block in _BLOCK.finditer(pem))
    return tuple(certificate for certificate in certificates if certificate is not None)


def key_pairs(pem: bytes, key_pem: bytes) -> tuple[KeyPair, ...]:
    """The certificates whose keys are there too, in the certificates' order."""
    keys = dict(_keys(key_pem))
    return tuple(
        KeyPair(certificate=certificate, key_pem=keys[public])
        for certificate in pem_certificates(pem)
        if (public := _der(certificate.parsed.public_key())) in keys
    )


def authority(name: str, now: datetime, life: timedelta) -> KeyPair:
    """A new authority, which signs certificates and no other authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    constraints = x509.BasicConstraints(ca=True, path_length=0)
    builder = _builder(name, now, life, key, constraints).issuer_name(_named(name))
    return _signed(builder, key, key)


def issued(issuer: KeyPair, holder: CertificateHolder, now: datetime, life: timedelta) -> KeyPair:
    """A new certificate, signed by the authority ``issuer``, with which it ends at the latest."""
    key = ec.generate_private_key(ec.SECP256R1())
    signer = load_pem_private_key(issuer.key_pem, None)
    if not isinstance(signer, ec.EllipticCurvePrivateKey):
        raise TypeError("an authority that cannot sign")
    life = min(life, issuer.certificate.ends - now)
    names = x509.SubjectAlternativeName([x509.DNSName(dns_name) for dns_name in holder.dns_names])
    issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    constraints = x509.BasicConstraints(ca=False, path_length=None)
    builder = (
        _builder(holder.name, now, life, key, constraints)
        .issuer_name(issuer.certificate.parsed.subject)
        .add_extension(x509.ExtendedKeyUsage([holder.usage.value]), critical=False)
        .add_extension(names, critical=False)
        .add_extension(issuer_key, critical=False)
    )
    return _signed(builder, signer, key)


def _builder(
    name: str,
    now: datetime,
    life: timedelta,
    key: ec.EllipticCurvePrivateKey,
    constraints: x509.BasicConstraints,
) -> x509.CertificateBuilder:
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=constraints.ca,
        crl_sign=constraints.ca,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    return (
        x509.CertificateBuilder()
        .subject_name(_named(name))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - LARGEST_SKEW)
        .not_valid_after(now + life)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(constraints, critical=True)
        .add_extension(usage, critical=True)
    )


def _signed(
    builder: x509.CertificateBuilder,
    signer: ec.EllipticCurvePrivateKey,
    key: ec.EllipticCurvePrivateKey,
) -> KeyPair:
    certificate = builder.sign(signer, hashes.SHA256())
    key_pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return KeyPair(certificate=Certificate(certificate), key_pem=key_pem)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _certificate(block: bytes) -> Certificate | None:
    with contextlib.suppress(*_UNREADABLE):
        certificate = Certificate(x509.load_pem_x509_certificate(block))
        _der(certificate.parsed.public_key())
        if certificate.begins < certificate.ends:
            return certificate
    return None


def _keys(pem: bytes) -> Iterator[tuple[bytes, bytes]]:
    """For each private key its public key, in DER, and its own PEM text."""
    for block in _BLOCK.finditer(pem):
        try:
            public = load_pem_private_key(block[0], None).public_key()
        except _UNREADABLE:
            continue
        yield _der(public), block[0]


def _der(public: PublicKeyTypes) -> bytes:
    return public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
