# SPDX-License-Identifier: Apache-2.0
"""Keys and certificates of a control plane, all P-256, all in one folder.

``ca.crt`` signs the server's and every client's certificate; a client is a user name and its
groups. ``sa.key`` signs the tokens of service accounts.
"""

from __future__ import annotations

import datetime
import ipaddress
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFE = datetime.timedelta(days=7)
_PEM = serialization.Encoding.PEM
_HOSTS: list[x509.GeneralName] = [
    x509.DNSName("localhost"),
    x509.DNSName("kubernetes.default.svc"),
    x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
    x509.IPAddress(ipaddress.ip_address("10.96.0.1")),  # of service kubernetes
]
_MAY_SIGN = x509.KeyUsage(
    key_cert_sign=True,
    crl_sign=True,
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """A certificate and its key; both may be in one file."""

    certificate_file: Path
    key_file: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Pki:
    """What lies in the folder; made by :meth:`create`, used by anybody who knows the folder."""

    folder: Path

    @property
    def ca_file(self) -> Path:
        """The authority that clients trust, and that the server trusts for clients."""
        return self.folder / "ca.crt"

    @property
    def account_key_file(self) -> Path:
        """Signs service account tokens; the API server checks them by its public half."""
        return self.folder / "sa.key"

    @property
    def server(self) -> Credential:
        """The API server's own."""
        return self._named("server")

    @classmethod
    def create(cls, folder: Path) -> Pki:
        """Make the authority, the server's certificate and the token key."""
        folder.mkdir(parents=True)
        made = cls(folder=folder)
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name("gpuscape-test")
        builder = _builder(name, name, key.public_key(), signer=key.public_key())
        for extension in (x509.BasicConstraints(ca=True, path_length=None), _MAY_SIGN):
            builder = builder.add_extension(extension, critical=True)
        write_whole(folder / "ca.key", _private(key))
        write_whole(made.ca_file, builder.sign(key, hashes.SHA256()).public_bytes(_PEM))
        write_whole(made.account_key_file, _private(ec.generate_private_key(ec.SECP256R1())))
        made._sign("server", _name("kube-apiserver"), x509.SubjectAlternativeName(_HOSTS))
        return made

    def client(self, user: str, groups: Sequence[str] = ()) -> Credential:
        """The certificate of a user in these groups; made at the first call."""
        name = "+".join(("client", user, *groups)).replace("/", "_")
        if not self._named(name).certificate_file.exists():
            self._sign(name, _name(user, groups))
        return self._named(name)

    def _named(self, name: str) -> Credential:
        # one file, so that processes that make it at once do not mix their halves
        both = self.folder / f"{name}.pem"
        return Credential(certificate_file=both, key_file=both)

    def _sign(
        self, file: str, subject: x509.Name, hosts: x509.SubjectAlternativeName | None = None
    ) -> None:
        authority = x509.load_pem_x509_certificate(self.ca_file.read_bytes())
        signer = serialization.load_pem_private_key((self.folder / "ca.key").read_bytes(), None)
        assert isinstance(signer, ec.EllipticCurvePrivateKey)
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(subject, authority.subject, key.public_key(), signer=signer.public_key())
        if hosts:
            usage = ExtendedKeyUsageOID.SERVER_AUTH
            builder = builder.add_extension(hosts, critical=False)
        else:
            usage = ExtendedKeyUsageOID.CLIENT_AUTH
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        signed = builder.sign(signer, hashes.SHA256()).public_bytes(_PEM)
        write_whole(self._named(file).certificate_file, signed + _private(key))


def _name(user: str, groups: Sequence[str] = ()) -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    # longer names than the standard's 64 characters are taken by the API server
    common = x509.NameAttribute(NameOID.COMMON_NAME, user, _validate=False)
    return x509.Name([*attributes, common])


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    *,
    signer: ec.EllipticCurvePublicKey,
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(
        subject_name=subject,
        issuer_name=issuer,
        public_key=key,
        serial_number=x509.random_serial_number(),
        not_valid_before=now - datetime.timedelta(hours=1),
        not_valid_after=now + LIFE,
    )
    # Python 3.13 checks strictly and wants both
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    return builder.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(signer), critical=False
    )


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    # the form whose public half the API server finds by itself
    form = serialization.PrivateFormat.TraditionalOpenSSL
    return key.private_bytes(_PEM, form, serialization.NoEncryption())


def write_whole(file: Path, content: bytes) -> Path:
    """Write it so that another process finds all of it or nothing; the file."""
    beside = file.with_name(f".{secrets.token_hex(8)}")
    beside.write_bytes(content)
    beside.chmod(0o600)
    return beside.replace(file)
