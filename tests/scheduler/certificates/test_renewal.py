# SPDX-License-Identifier: Apache-2.0
"""What the Secrets should hold as time goes by, and after every kind of damage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import pairwise

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from scheduler.certificates import key_pairs, renewal
from scheduler.certificates.key_pairs import Certificate
from scheduler.certificates.renewal import AUTHORITY_LIFE, LIFE, Content, Contents
from tests.scheduler.certificates.secrets import BEGIN, EMPTY, NAMESPACE
from tests.web import certificates as foreign

DAY = timedelta(days=1)
SECOND = timedelta(seconds=1)
STEP = 4 * DAY
"""Between two looks at a history."""


def renewed(found: Contents, at: datetime = BEGIN) -> Contents:
    return renewal.renewed(found, at, namespace=NAMESPACE)


parsed = lru_cache(key_pairs.pem_certificates)


def of(content: Content) -> Certificate:
    """The certificate of one side."""
    (found,) = parsed(content["tls.crt"])
    return found


def trusted(content: Content) -> tuple[Certificate, ...]:
    """The authorities that one side trusts."""
    return parsed(content["ca.crt"])


def accepts(trusting: Content, shown: Content, at: datetime) -> bool:
    """Whether one side accepts the other's certificate, by signature and time."""
    is_good = of(shown).begins <= at < of(shown).ends
    return is_good and any(
        of(shown).is_signed_by(one) and one.begins <= at < one.ends for one in trusted(trusting)
    )


FIRST = renewed(EMPTY)


def test_from_nothing_both_sides_get_what_the_other_accepts() -> None:
    assert accepts(FIRST.client, FIRST.server, BEGIN)
    assert accepts(FIRST.server, FIRST.client, BEGIN)
    assert of(FIRST.server).is_for(renewal.server(NAMESPACE))
    assert of(FIRST.client).is_for(renewal.client_holder(NAMESPACE))
    assert not of(FIRST.client).is_for(renewal.server(NAMESPACE))
    assert "ca.key" not in FIRST.server.keys() | FIRST.client.keys()


def test_a_long_namespace_has_a_certificate_too() -> None:
    """A common name has at most 64 characters."""
    made = renewal.renewed(EMPTY, BEGIN, namespace="n" * 63)

    assert of(made.server).is_for(renewal.server("n" * 63))


def test_what_is_good_stays_as_it_is_to_the_byte() -> None:
    assert renewed(FIRST, BEGIN) == FIRST
    assert renewed(FIRST, BEGIN + LIFE * 0.66) == FIRST


def test_a_certificate_is_renewed_after_two_thirds_of_its_life_by_the_same_authority() -> None:
    due = of(FIRST.server).begins + (of(FIRST.server).ends - of(FIRST.server).begins) * 2 / 3

    before, after = renewed(FIRST, due - SECOND), renewed(FIRST, due)

    assert before == FIRST
    assert of(after.server) != of(FIRST.server)
    assert of(after.client) != of(FIRST.client)
    assert after.authority == FIRST.authority
    assert after.server["tls.key"] != FIRST.server["tls.key"]
    assert of(after.server).ends == due + LIFE


def times(end: timedelta) -> Iterator[datetime]:
    """From the beginning on."""
    at = BEGIN
    while at < BEGIN + end:
        yield at
        at += STEP


@pytest.fixture(scope="module")
def history() -> list[tuple[datetime, Contents]]:
    """What the Secrets hold over 22 years."""
    made, found = [], FIRST
    for at in times(22 * LIFE):
        found = renewed(found, at)
        made.append((at, found))
    return made


def test_in_22_years_neither_side_is_ever_refused(
    history: list[tuple[datetime, Contents]],
) -> None:
    for at, now in history:
        assert accepts(now.client, now.server, at), at
        assert accepts(now.server, now.client, at), at


def test_nor_by_files_that_are_days_old_on_either_side(
    history: list[tuple[datetime, Contents]],
) -> None:
    """What a kubelet mounts is late, and on each node by another time."""
    for (_, before), (at, now) in pairwise(history):
        assert accepts(before.client, now.server, at), at
        assert accepts(now.client, before.server, at), at
        assert accepts(before.server, now.client, at), at
        assert accepts(now.server, before.client, at), at


def test_a_kube_scheduler_that_reads_once_in_20_months_whom_it_trusts_is_never_without(
    history: list[tuple[datetime, Contents]],
) -> None:
    between = 600 * DAY // STEP
    for (_, started), (at, now) in zip(history, history[between:], strict=False):
        assert accepts(started.client, now.server, at), at


def test_no_alert_is_raised_of_the_end_of_anything(
    history: list[tuple[datetime, Contents]],
) -> None:
    """GpuscapeSchedulerCertificateEnds fires 30 days before the first of all ends."""
    for at, now in history:
        ends = [it.ends for it in (of(now.server), of(now.client), *trusted(now.server))]
        assert min(ends) > at + 60 * DAY


def test_an_authority_has_its_successor_long_before_that_one_signs(
    history: list[tuple[datetime, Contents]],
) -> None:
    (old,) = trusted(FIRST.server)
    counts = [len(trusted(now.client)) for _, now in history]
    announced = history[counts.index(2)][0]
    signs = next(at for at, now in history if not of(now.server).is_signed_by(old))
    forgotten = next(at for at, now in history if old not in trusted(now.client))

    assert max(counts) == 2
    assert abs(announced - BEGIN - AUTHORITY_LIFE * 2 / 3) < STEP + DAY
    assert signs - announced > 600 * DAY
    assert signs < forgotten < old.ends - 60 * DAY


def emptied(which: str, found: Contents = FIRST) -> Contents:
    return replace(found, **{which: {}})


@pytest.mark.parametrize("side", ["server", "client"])
def test_a_side_that_is_lost_is_made_again_and_the_rest_stays(side: str) -> None:
    after = renewed(emptied(side))

    assert of(getattr(after, side)) != of(getattr(FIRST, side))
    assert after.authority == FIRST.authority
    others = {it.name for it in fields(Contents)} - {side, "authority"}
    for other in others:
        assert getattr(after, other) == getattr(FIRST, other)
    assert accepts(FIRST.client, after.server, BEGIN)
    assert accepts(FIRST.server, after.client, BEGIN)


def test_a_lost_authority_is_replaced_and_what_it_signed_goes_on_to_be_used() -> None:
    """Running programs trust it still, so there is time to start kube-scheduler again."""
    after = renewed(emptied("authority"))

    assert of(after.server) == of(FIRST.server)
    assert of(after.client) == of(FIRST.client)
    assert set(trusted(after.server)) > set(trusted(FIRST.server))
    assert set(trusted(after.client)) > set(trusted(FIRST.client))
    assert renewed(after, BEGIN + 100 * DAY) == after


def test_a_lost_authority_that_is_known_comes_back() -> None:
    known = renewal.signing(FIRST.authority, BEGIN)

    after = renewal.renewed(emptied("authority"), BEGIN, namespace=NAMESPACE, known=known)

    assert after == FIRST


def test_a_known_authority_does_not_take_the_place_of_one_that_is_there() -> None:
    """Somebody has replaced it on purpose."""
    other = renewed(EMPTY)
    known = renewal.signing(FIRST.authority, BEGIN)

    assert renewal.renewed(other, BEGIN, namespace=NAMESPACE, known=known) == other


@pytest.mark.parametrize("key", ["ca.crt", "ca.key"])
def test_an_authority_without_its_other_half_is_none(key: str) -> None:
    half = {name: value for name, value in FIRST.authority.items() if name != key}

    after = renewed(replace(FIRST, authority=half))

    assert len(renewal.signing(after.authority, BEGIN)) == 1
    assert after.authority["ca.key"] != FIRST.authority["ca.key"]


@pytest.mark.parametrize("side", ["server", "client"])
@pytest.mark.parametrize("key", ["tls.crt", "tls.key"])
@pytest.mark.parametrize("damage", [b"", b"nonsense", "another's"])
def test_a_damaged_half_makes_a_new_whole(side: str, key: str, damage: bytes | str) -> None:
    other = "client" if side == "server" else "server"
    put = getattr(FIRST, other)[key] if isinstance(damage, str) else damage
    found = replace(FIRST, **{side: {**getattr(FIRST, side), key: put}})

    after = renewed(found)

    made = getattr(after, side)
    (pair,) = key_pairs.key_pairs(made["tls.crt"], made["tls.key"])
    assert pair.certificate != of(getattr(FIRST, side))
    assert accepts(FIRST.client, after.server, BEGIN)
    assert accepts(FIRST.server, after.client, BEGIN)


@pytest.mark.parametrize("damage", [b"", b"nonsense"])
def test_damaged_authorities_of_a_side_are_put_back_and_its_certificate_stays(
    damage: bytes,
) -> None:
    assert renewed(replace(FIRST, client={**FIRST.client, "ca.crt": damage})) == FIRST


def test_the_certificate_of_the_other_side_is_none_of_this_side() -> None:
    after = renewed(replace(FIRST, client=FIRST.server, server=FIRST.client))

    assert of(after.server).is_for(renewal.server(NAMESPACE))
    assert of(after.client).is_for(renewal.client_holder(NAMESPACE))


@pytest.mark.parametrize("side", ["server", "client"])
def test_a_certificate_of_an_authority_that_nobody_trusts_is_made_again(side: str) -> None:
    stranger = getattr(renewed(EMPTY), side)
    put = {key: stranger[key] for key in ("tls.crt", "tls.key")}

    after = renewed(replace(FIRST, **{side: {**getattr(FIRST, side), **put}}))

    assert of(getattr(after, side)) != of(stranger)
    assert accepts(FIRST.client, after.server, BEGIN)
    assert accepts(FIRST.server, after.client, BEGIN)


def test_what_may_sign_nothing_is_not_trusted() -> None:
    added = FIRST.client["ca.crt"] + FIRST.server["tls.crt"]

    assert renewed(replace(FIRST, client={**FIRST.client, "ca.crt": added})) == FIRST


@pytest.mark.parametrize("kind", ["a certificate of its own", "an RSA key"])
def test_what_cannot_sign_is_no_authority(kind: str) -> None:
    if kind == "an RSA key":
        key = rsa.generate_private_key(65537, 2048)
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "theirs")])
        made = x509.CertificateBuilder().subject_name(name).issuer_name(name).serial_number(1)
        made = made.public_key(key.public_key()).not_valid_before(BEGIN)
        made = made.not_valid_after(BEGIN + AUTHORITY_LIFE)
        limits = x509.BasicConstraints(ca=True, path_length=None)
        made = made.add_extension(limits, critical=True)
        certificate = made.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)
        key_pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    else:
        certificate, key_pem = FIRST.server["tls.crt"], FIRST.server["tls.key"]

    after = renewed(replace(EMPTY, authority={"ca.crt": certificate, "ca.key": key_pem}))

    (authority,) = renewal.signing(after.authority, BEGIN)
    assert authority.key_pem != key_pem
    assert accepts(after.client, after.server, BEGIN)


def test_one_for_another_namespace_is_made_again() -> None:
    after = renewal.renewed(FIRST, BEGIN, namespace="elsewhere")

    assert of(after.server).is_for(renewal.server("elsewhere"))
    assert after.authority == FIRST.authority


def test_what_a_clock_ahead_has_made_is_made_again() -> None:
    """Nobody accepts it yet."""
    ahead = renewed(EMPTY, BEGIN + 400 * DAY)

    after = renewed(ahead, BEGIN)

    assert accepts(after.client, after.server, BEGIN)
    assert accepts(after.server, after.client, BEGIN)


def test_a_clock_that_is_an_hour_late_makes_and_keeps_the_same() -> None:
    assert renewed(FIRST, BEGIN - timedelta(hours=1)) == FIRST


def by_hand() -> Contents:
    """What the commands of docs/scheduler.md once left: an authority whose key is elsewhere."""
    authority = foreign.authority("gpuscape-scheduler.gpuscape.svc", days=3650)
    name = (x509.DNSName(renewal.server(NAMESPACE).dns_names[0]),)
    sides = [
        foreign.issued(authority, f"{side}.x", name, days=365) for side in ("server", "client")
    ]
    server, client = (
        {"ca.crt": authority.pem, "tls.crt": it.pem, "tls.key": it.key_pem()} for it in sides
    )
    return Contents(authority={}, server=server, client=client)


def test_certificates_made_by_hand_are_replaced_while_both_authorities_are_trusted() -> None:
    found = by_hand()
    at = of(found.server).begins + DAY

    after = renewed(found, at)

    assert of(after.server) == of(found.server)
    assert accepts(after.client, after.server, at)
    assert accepts(found.client, after.server, at)
    assert accepts(after.server, found.client, at)
    later = at + 2 * LIFE / 3
    changed = renewed(after, later)
    assert of(changed.server) != of(found.server)
    assert set(trusted(found.server)) < set(trusted(changed.server))
    assert trusted(renewed(changed, later + 25 * timedelta(hours=1)).server) == (
        trusted(changed.server)[0],
    )


def test_who_trusts_an_authority_takes_what_it_signed_and_who_trusts_none_has_not_started() -> None:
    other = renewed(EMPTY)

    assert renewal.is_trusted(FIRST.server, FIRST.client)
    assert renewal.is_trusted(FIRST.server, {})
    assert not renewal.is_trusted(FIRST.server, other.client)
