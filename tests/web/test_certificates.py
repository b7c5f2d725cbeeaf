# SPDX-License-Identifier: Apache-2.0
"""When certificates end."""

from __future__ import annotations

import datetime
import ssl

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from tests.web.certificates import authority, issued
from web.certificates import ends

KEYS = (ec.generate_private_key(ec.SECP256R1()), rsa.generate_private_key(65537, 2048))
BEGIN = datetime.datetime(1951, 1, 1, tzinfo=datetime.UTC)
ENDS = st.integers(1, 365 * 7000).map(lambda days: BEGIN + days * datetime.timedelta(days=1.1))


def ending(
    at: datetime.datetime, key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey = KEYS[0]
) -> bytes:
    """A certificate, PEM."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "x" * 60)] * 3)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name)
    builder = builder.public_key(key.public_key()).serial_number(1 << 150)
    builder = builder.not_valid_before(BEGIN).not_valid_after(at)
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)


@given(ENDS, st.sampled_from(KEYS))
def test_the_end_of_a_certificate_is_found(
    at: datetime.datetime, key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
) -> None:
    """Years are of two digits before 2050, and of four from then on."""
    assert ends(ending(at, key)) == (at.replace(microsecond=0).timestamp(),)


def test_each_certificate_of_a_file_has_its_end_and_keys_have_none() -> None:
    by = authority()
    own = issued(by)
    file = b"# a comment\n" + own.key_pem() + own.pem + b"\n" + by.pem

    found = [
        it.certificate.not_valid_after_utc.replace(microsecond=0).timestamp() for it in (own, by)
    ]
    assert ends(file) == tuple(found)
    assert ends(b"") == ends(own.key_pem()) == ()


def pem(der: bytes) -> bytes:
    """Whatever it is, as a certificate's PEM."""
    return ssl.DER_cert_to_PEM_cert(der).encode()


WHOLE = ssl.PEM_cert_to_DER_cert(ending(BEGIN + datetime.timedelta(days=30000)).decode())
CHANGES = st.dictionaries(st.integers(0, len(WHOLE) - 1), st.integers(0, 255), max_size=3)


@given(CHANGES, st.integers(0, len(WHOLE)))
def test_a_certificate_that_is_cut_or_changed_gives_an_end_or_an_error(
    changes: dict[int, int], length: int
) -> None:
    """And nothing else: no other exception, no loop."""
    der = bytes(changes.get(at, byte) for at, byte in enumerate(WHOLE[:length]))

    try:
        found = ends(pem(der))
    except ValueError:
        return
    assert len(found) == 1


@pytest.mark.parametrize("der", [b"\x30", b"\x30\x84\xff", b"\x30\x02\x30\x00", b"\x30\x00"])
def test_what_is_no_certificate_is_an_error(der: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        ends(pem(der))


@pytest.mark.parametrize(
    ("der", "sentence"),
    [
        (b"\x30", "it ends too soon"),
        (b"\x30\x02\x30", "it ends too soon"),
        (WHOLE[:-1], "it ends too soon"),
        (b"\x30\x04\x30\x02\x02\x00", "no validity where a certificate has it"),
        (
            bytes.fromhex("3012 3010 020100 3000 3000 3007 0401 61 0402 6262"),
            "its end is no time: b'bb'",
        ),
    ],
)
def test_why_a_certificate_cannot_be_read_is_said(der: bytes, sentence: str) -> None:
    with pytest.raises(ValueError, match=r".+") as error:
        ends(pem(der))
    assert str(error.value) == sentence
