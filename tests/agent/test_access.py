"""What a server asks before it answers: names of certificates, tokens."""

from __future__ import annotations

import pytest

from agent.access import OPEN, Bucket, has_allowed_name


@pytest.mark.parametrize(
    ("names", "allowed", "has"),
    [
        ((("DNS", "a"), ("DNS", "b")), ("b", "c"), True),
        ((("DNS", "a"),), ("A",), False),
        ((("DNS", "*.a"),), ("x.a",), False),
        ((("IP Address", "10.0.0.1"),), ("10.0.0.1",), True),
        ((("IP Address", "FE80:0:0:0:0:0:0:1\n"),), ("fe80::1",), True),
        ((("URI", "spiffe://a/b"),), ("spiffe://a/b",), True),
        ((("DirName", (("countryName", "X"),)),), ("X",), False),
        ((), ("a",), False),
        ((("DNS", "a"),), (), False),
    ],
)
def test_a_name_counts_letter_for_letter(
    names: tuple[tuple[str, str], ...], allowed: tuple[str, ...], has: bool
) -> None:
    assert has_allowed_name({"subjectAltName": names}, allowed) is has


def test_a_certificate_without_names_has_none() -> None:
    assert not has_allowed_name({}, ("a",))


def test_tokens_run_out_and_come_back_one_an_interval() -> None:
    bucket = Bucket(interval_seconds=10, burst=2)

    taken = [bucket.take(now) for now in (100, 100, 100, 109.9, 110, 110, 119.9, 120)]

    assert taken == [True, True, False, False, True, False, False, True]


def test_there_are_never_more_tokens_than_the_burst() -> None:
    bucket = Bucket(interval_seconds=1, burst=2)

    assert [bucket.take(1000) for _ in range(3)] == [True, True, False]


def test_without_a_file_everybody_is_admitted() -> None:
    assert OPEN.admits(None)
