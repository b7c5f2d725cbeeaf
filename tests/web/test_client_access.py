# SPDX-License-Identifier: Apache-2.0
"""What a server asks of a client's certificate before it answers."""

from __future__ import annotations

import pytest

from web.client_access import OPEN, has_allowed_name


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


def test_without_a_file_everybody_is_admitted() -> None:
    assert OPEN.admits(None)
