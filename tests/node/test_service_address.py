# SPDX-License-Identifier: Apache-2.0
"""What pods are answered who ask for a Service's name: bytes as RFC 1035 has them."""

from __future__ import annotations

import socket

import pytest

from tests.node.service_address import ADDRESS, answer

HOST = "one.two.svc"
A, AAAA = 1, 28


def query(name: str, kind: int = A) -> bytes:
    labels = b"".join(bytes((len(it),)) + it.encode() for it in name.split("."))
    return b"\x12\x34\x01\x00\x00\x01" + bytes(6) + labels + bytes((0, 0, kind, 0, 1))


@pytest.mark.parametrize("name", [HOST, "One.Two.svc", "one.two.svc.cluster.local"])
def test_the_service_s_name_has_its_address(name: str) -> None:
    asked = query(name)
    given = answer(asked, HOST)
    assert given[:8] == b"\x12\x34\x85\x80\x00\x01\x00\x01"
    assert given[12:].startswith(asked[12:])
    assert given.endswith(b"\x00\x04" + socket.inet_aton(ADDRESS))


@pytest.mark.parametrize(
    ("asked", "code"), [(query(HOST, AAAA), 0), (query("one.two.svc.two.svc"), 3)]
)
def test_nothing_else_is_answered(asked: bytes, code: int) -> None:
    given = answer(asked, HOST)
    assert (given[3] & 15, given[6:8], given[12:]) == (code, b"\x00\x00", asked[12:])


@pytest.mark.parametrize("garbage", [b"", bytes(12), query(HOST)[:-8]])
def test_garbage_is_refused(garbage: bytes) -> None:
    with pytest.raises((ValueError, IndexError)):
        answer(garbage, HOST)
