# SPDX-License-Identifier: Apache-2.0
"""Certificates are made as TLS wants them, and read back whatever stands around them."""

from __future__ import annotations

import ssl
from datetime import timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from hypothesis import given
from hypothesis import strategies as st

from scheduler.certificates import key_pairs
from scheduler.certificates.key_pairs import LARGEST_SKEW, CertificateHolder, Usage
from tests.scheduler.certificates.secrets import BEGIN
from tests.web import certificates as foreign

DAY = timedelta(days=1)
HOLDER = CertificateHolder(name="one", dns_names=("one.ns.svc", "one"), usage=Usage.SERVER)
AUTHORITY = key_pairs.authority("authority", BEGIN, 100 * DAY)
MADE = key_pairs.issued(AUTHORITY, HOLDER, BEGIN, 10 * DAY)
PEM, KEY = MADE.certificate.pem, MADE.key_pem


def test_a_certificate_says_what_it_is_for_and_an_authority_signs_no_other() -> None:
    of, by = MADE.certificate.parsed.extensions, AUTHORITY.certificate.parsed.extensions
    names = of.get_extension_for_class(x509.SubjectAlternativeName).value
    usage = of.get_extension_for_class(x509.KeyUsage).value
    limits = by.get_extension_for_class(x509.BasicConstraints)

    assert names.get_values_for_type(x509.DNSName) == ["one.ns.svc", "one"]
    assert not of.get_extension_for_class(x509.BasicConstraints).value.ca
    assert (usage.digital_signature, usage.key_cert_sign) == (True, False)
    assert limits.critical
    assert limits.value.path_length == 0
    assert (
        of.get_extension_for_class(x509.AuthorityKeyIdentifier).value.key_identifier
        == by.get_extension_for_class(x509.SubjectKeyIdentifier).value.digest
    )


def test_it_is_for_its_holder_and_its_usage_alone() -> None:
    other = CertificateHolder(name="one", dns_names=("two.ns.svc",), usage=Usage.SERVER)
    client = CertificateHolder(name="one", dns_names=("one.ns.svc",), usage=Usage.CLIENT)

    assert MADE.certificate.is_for(HOLDER)
    assert not MADE.certificate.is_for(other)
    assert not MADE.certificate.is_for(client)


def test_its_life_begins_before_it_was_made_and_never_outlasts_its_authority() -> None:
    long = key_pairs.issued(AUTHORITY, HOLDER, BEGIN, 500 * DAY)

    assert MADE.certificate.begins == BEGIN - LARGEST_SKEW
    assert MADE.certificate.ends == BEGIN + 10 * DAY
    assert long.certificate.ends == AUTHORITY.certificate.ends
    assert MADE.certificate.age(BEGIN - LARGEST_SKEW) == 0
    assert MADE.certificate.age(BEGIN + 10 * DAY) == 1


def test_a_key_is_never_shown() -> None:
    assert "PRIVATE" not in repr(MADE)
    assert "key_pem" not in repr(MADE)


@pytest.mark.parametrize("other", ["another key", "the same name"])
def test_only_the_authoritys_key_counts_as_its_signature(other: str) -> None:
    named = "authority" if other == "the same name" else "other"
    another = key_pairs.authority(named, BEGIN, 100 * DAY)

    assert MADE.certificate.is_signed_by(AUTHORITY.certificate)
    assert not MADE.certificate.is_signed_by(another.certificate)


def test_pairs_are_found_by_their_keys_whatever_the_order_and_what_stands_between() -> None:
    second = key_pairs.issued(AUTHORITY, HOLDER, BEGIN, DAY)
    lone = key_pairs.issued(AUTHORITY, HOLDER, BEGIN, DAY)
    pem = b"# one\n" + PEM + lone.certificate.pem + b"subject=two\n" + second.certificate.pem
    keys = second.key_pem + b"\n\n" + KEY

    found = key_pairs.key_pairs(pem, keys)

    assert [it.certificate for it in found] == [MADE.certificate, second.certificate]
    assert [load_pem_private_key(it.key_pem, None).public_key() for it in found] == [
        it.certificate.parsed.public_key() for it in found
    ]


@pytest.mark.parametrize(
    "damaged",
    [b"", b"\xff\x00", PEM[:200], PEM.replace(b"MII", b"AAA", 1), KEY, PEM.lower()],
    ids=["nothing", "no text", "half", "other bytes", "a key", "lower case"],
)
def test_what_is_damaged_is_passed_over_and_what_is_good_beside_it_is_read(damaged: bytes) -> None:
    assert key_pairs.pem_certificates(damaged) == ()
    assert key_pairs.pem_certificates(damaged + b"\n" + PEM)[-1:] == (MADE.certificate,)
    assert key_pairs.key_pairs(PEM, damaged) in ((), (MADE,))


@pytest.mark.filterwarnings("ignore::cryptography.utils.CryptographyDeprecationWarning")
@given(st.integers(0, len(PEM) - 1), st.binary(min_size=1, max_size=3))
def test_any_damage_gives_a_certificate_or_none(at: int, put: bytes) -> None:
    changed = PEM[:at] + put + PEM[at + len(put) :]

    for found in key_pairs.pem_certificates(changed):
        found.is_for(HOLDER)
        found.is_authority()
        found.is_signed_by(AUTHORITY.certificate)
        key_pairs.key_pairs(changed, KEY)


def test_a_version_that_there_is_not_is_damage() -> None:
    """The library has an error of its own for it."""
    der = MADE.certificate.parsed.public_bytes(Encoding.DER)
    at = der.index(bytes.fromhex("a003020102"))
    changed = ssl.DER_cert_to_PEM_cert(der[: at + 4] + b"\x06" + der[at + 5 :]).encode()

    assert key_pairs.pem_certificates(changed + PEM) == (MADE.certificate,)


def test_a_certificate_that_ends_before_it_begins_is_passed_over() -> None:
    der = MADE.certificate.parsed.public_bytes(Encoding.DER)
    begins, ends = (
        f"{moment:%y%m%d%H%M%SZ}".encode()
        for moment in (MADE.certificate.begins, MADE.certificate.ends)
    )
    assert begins + b"\x17\r" + ends in der
    turned = der.replace(begins + b"\x17\r" + ends, ends + b"\x17\r" + begins)

    assert key_pairs.pem_certificates(ssl.DER_cert_to_PEM_cert(turned).encode()) == ()


def test_an_encrypted_key_is_none() -> None:
    key = load_pem_private_key(KEY, None)
    locked = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x"))

    assert key_pairs.key_pairs(PEM, locked) == ()


@pytest.mark.parametrize("kind", ["RSA", "Ed25519"])
def test_an_authority_with_a_key_of_another_kind_cannot_sign(kind: str) -> None:
    key = (
        rsa.generate_private_key(65537, 2048)
        if kind == "RSA"
        else ed25519.Ed25519PrivateKey.generate()
    )
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    made = key_pairs.KeyPair(certificate=AUTHORITY.certificate, key_pem=pem)

    assert AUTHORITY.can_sign()
    assert not MADE.can_sign()
    assert not made.can_sign()


def test_one_that_a_person_made_is_read_and_may_have_any_usage() -> None:
    """By the commands of docs/scheduler.md there is no extended key usage in it."""
    theirs = foreign.authority()
    names = (x509.DNSName("one.ns.svc"),)
    given_ = foreign.issued(theirs, names=names)

    (found,) = key_pairs.key_pairs(given_.pem, given_.key_pem())

    assert found.certificate.is_for(HOLDER)
    assert found.certificate.is_signed_by(key_pairs.pem_certificates(theirs.pem)[0])
