# SPDX-License-Identifier: Apache-2.0
"""TLS of our servers: certificates and keys become a context for connections."""

from __future__ import annotations

import contextlib
import os
import ssl
from collections.abc import Iterator, Mapping

from base.errors import BadInput
from base.files import read_bytes
from web.web_config import ClientCertificate, Pem, TlsConfig, TlsVersion

_VERSIONS = {
    TlsVersion.TLS12: ssl.TLSVersion.TLSv1_2,
    TlsVersion.TLS13: ssl.TLSVersion.TLSv1_3,
}
_VERIFY = {
    ClientCertificate.NONE: ssl.CERT_NONE,
    ClientCertificate.IF_SHOWN: ssl.CERT_OPTIONAL,
    ClientCertificate.REQUIRED: ssl.CERT_REQUIRED,
}

Material = Mapping[str, bytes]
"""PEM bytes by :attr:`Pem.place`. Equal material makes equal contexts."""


def read_material(tls: TlsConfig) -> Material:
    """The certificates and keys as they are now. Raises BadInput that names file, line and key."""
    pems = (tls.certificate, tls.key, tls.client_authorities)
    return {pem.place: _bytes(pem) for pem in pems if pem is not None}


def context_of(tls: TlsConfig, material: Material) -> ssl.SSLContext:
    """The context for new connections. Raises BadInput that names file, line and key."""
    context = server_context()
    context.minimum_version = _VERSIONS[tls.lowest]
    context.maximum_version = _VERSIONS[tls.highest]
    if tls.ciphers:
        context.set_ciphers(":".join(tls.ciphers))
    if tls.server_chooses:
        context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    else:
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    if tls.curve is not None:
        context.set_ecdh_curve(tls.curve)
    _load_certificate(context, tls, material)
    context.verify_mode = _VERIFY[tls.client_certificate]
    if tls.client_authorities is not None:
        _trust(context, tls.client_authorities, material)
    return context


def server_context() -> ssl.SSLContext:
    """A context with the rules of all our servers: TLS 1.2 or later, HTTP/1.1, no renegotiation.

    Ciphers encrypt and authenticate in one step (AEAD) and keep the past secret when the key gets
    out (forward secrecy): of TLS 1.2 those of RFC 9325, 4.2. A web configuration may choose others.

    Every connection is negotiated anew: a ticket would outlive the certificates it was
    made with.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("ECDHE+AESGCM:ECDHE+CHACHA20")
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET
    context.num_tickets = 0
    context.set_alpn_protocols(["http/1.1"])
    return context


def _bytes(pem: Pem) -> bytes:
    if pem.path is None:
        return (pem.text or "").encode()
    try:
        return read_bytes(pem.path)
    except BadInput as error:
        if pem.place == str(pem.path):
            raise  # it names the file
        raise BadInput(f"{pem.place}: {error}") from error


def _load_certificate(context: ssl.SSLContext, tls: TlsConfig, material: Material) -> None:
    certificate, key = material[tls.certificate.place], material[tls.key.place]
    if b"ENCRYPTED" in key:
        raise BadInput(f"{tls.key.place}: the key is encrypted: nobody is there to type a password")
    try:
        # files are all that OpenSSL takes here: those read before, lest they have changed
        with _file_of(certificate) as certificate_path, _file_of(key) as key_path:
            context.load_cert_chain(certificate_path, key_path, password=lambda: b"")
    except (ssl.SSLError, OSError) as error:
        if not _holds_certificate(certificate):
            raise BadInput(f"{tls.certificate.place}: there is no certificate (PEM)") from error
        reason = "there is no private key (PEM)"
        if isinstance(error, ssl.SSLError) and error.reason == "KEY_VALUES_MISMATCH":
            reason = "the key is not that of the certificate"
        raise BadInput(f"{tls.key.place}: {reason}") from error


@contextlib.contextmanager
def _file_of(content: bytes) -> Iterator[str]:
    """A path that gives these bytes: in memory, so that no key gets onto a disk."""
    descriptor = os.memfd_create("pem", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, content)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _holds_certificate(content: bytes) -> bool:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cadata=_ascii(content))
    except (ssl.SSLError, ValueError):
        return False
    return True


def _trust(context: ssl.SSLContext, authorities: Pem, material: Material) -> None:
    try:
        context.load_verify_locations(cadata=_ascii(material[authorities.place]))
    except (ssl.SSLError, ValueError) as error:
        raise BadInput(f"{authorities.place}: there is no certificate (PEM)") from error


def _ascii(content: bytes) -> str:
    """The PEM text in ASCII, as Python needs it; comments of bundles may have other characters."""
    return content.decode("ascii", "ignore")
