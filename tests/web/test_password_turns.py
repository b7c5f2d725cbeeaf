# SPDX-License-Identifier: Apache-2.0
"""Whose password is checked next."""

from __future__ import annotations

import pytest

from web.password_turns import MOST_WAITING, PasswordCheck, PasswordTurns


def put(turns: PasswordTurns, host: str, name: str) -> PasswordCheck:
    check = PasswordCheck((name, b""), b"", b"")
    turns.put(host, check)
    return check


def order(turns: PasswordTurns, count: int) -> list[str]:
    taken = [turns.take() for _ in range(count)]
    return [check.credentials[0] for check in taken if check is not None]


def test_hosts_take_turns_and_of_each_the_first_comes_first() -> None:
    turns = PasswordTurns()
    for host, name in (
        ("a", "a1"),
        ("a", "a2"),
        ("a", "a3"),
        ("b", "b1"),
        ("c", "c1"),
        ("b", "b2"),
    ):
        put(turns, host, name)
    assert order(turns, 6) == ["a1", "b1", "c1", "a2", "b2", "a3"]


@pytest.mark.parametrize(
    ("hosts", "turn"),
    [
        (("2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"), [0, 2, 1]),
        (("10.0.0.1", "10.0.0.1", "10.0.0.2"), [0, 2, 1]),
        (("fe80::1%eth0", "fe80::2%eth0", ""), [0, 2, 1]),
        (("", "", "name"), [0, 2, 1]),
    ],
)
def test_a_network_of_ipv6_is_one_host(hosts: tuple[str, ...], turn: list[int]) -> None:
    turns = PasswordTurns()
    for number, host in enumerate(hosts):
        put(turns, host, str(number))
    assert order(turns, 3) == [str(number) for number in turn]


def test_the_same_credentials_wait_once_whatever_their_host_and_again_after_that() -> None:
    turns = PasswordTurns()
    first = put(turns, "a", "x")
    put(turns, "b", "x")
    assert len(first.answers) == 2
    assert order(turns, 1) == ["x"]
    put(turns, "b", "x")
    assert order(turns, 1) == ["x"]


def test_of_very_many_that_gave_up_the_newest_is_dropped_and_of_those_that_wait_none() -> None:
    turns = PasswordTurns()
    checks = [put(turns, f"h{number}", str(number)) for number in range(MOST_WAITING)]
    for number in (3, 7):
        checks[number].answers[0].cancel()
    added, waiting = list[str](), [str(number) for number in range(MOST_WAITING)]
    for name, dropped in (("x", "7"), ("y", "3"), ("z", None)):
        put(turns, "last", name)
        added.append(name)
        waiting = [number for number in waiting if number != dropped]
        assert [check.credentials[0] for check in turns.waiting()] == [*waiting, *added]
    assert order(turns, len(waiting) + 3) == [*waiting, *added]


def test_once_closed_nothing_is_taken() -> None:
    turns = PasswordTurns()
    put(turns, "a", "x")
    turns.close()
    assert turns.take() is None
