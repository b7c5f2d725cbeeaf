# SPDX-License-Identifier: Apache-2.0
"""Passwords are checked slowly, once, and alike for users that there are and that there are not."""

from __future__ import annotations

import asyncio
import base64
import functools
import threading

import bcrypt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from base.threads import NoThread
from tests.fakes.thread_limit import allow_threads
from web.passwords import Passwords


def header(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


class Hashes:
    """Stands in for bcrypt: a hash is the password itself; counts what is checked."""

    def __init__(self) -> None:
        self.checked: list[tuple[bytes, bytes]] = []

    def matches(self, password: bytes, hashed: bytes) -> bool:
        self.checked.append((password, hashed))
        return password == hashed


def asked(passwords: Passwords, *headers: str) -> list[bool]:
    async def ask() -> list[bool]:
        return [await passwords.admit(each) for each in headers]

    return asyncio.run(ask())


USERS = {"alice": b"a-word", "bob": b"b-word"}


def test_the_right_password_of_each_user_is_admitted() -> None:
    passwords = Passwords(USERS, matches=Hashes().matches)

    assert asked(passwords, header("alice", "a-word"), header("bob", "b-word")) == [True, True]


@pytest.mark.parametrize(
    "given",
    [
        header("alice", "b-word"),
        header("alice", ""),
        header("carol", "a-word"),
        header("carol", "b-word"),
        header("", ""),
        "",
        "Basic",
        "Basic ä",
        "Basic YWxpY2U=",
        "Bearer YWxpY2U6YS13b3Jk",
    ],
)
def test_everybody_else_is_not(given: str) -> None:
    assert asked(Passwords(USERS, matches=Hashes().matches), given) == [False]


def test_a_right_password_is_checked_once_and_a_wrong_one_each_time() -> None:
    hashes = Hashes()
    passwords = Passwords(USERS, matches=hashes.matches)
    right, wrong = header("alice", "a-word"), header("alice", "x")

    answers = asked(passwords, right, right, wrong, wrong, right)

    assert answers == [True, True, False, False, True]
    assert [password for password, _ in hashes.checked] == [b"a-word", b"x", b"x"]


def test_an_unknown_user_costs_one_check_as_a_known_one_does() -> None:
    hashes = Hashes()
    passwords = Passwords(USERS, matches=hashes.matches)

    asked(passwords, header("alice", "x"), header("carol", "x"), header("carol", "x"))

    assert len(hashes.checked) == 3
    stand_ins = [hashed for _, hashed in hashes.checked[1:]]
    assert stand_ins[0] == stand_ins[1]
    assert stand_ins[0] in USERS.values()


def test_unknown_users_cost_what_the_known_ones_cost_and_not_one_of_them() -> None:
    """Each name has a stand-in of its own, so a dear hash is no sign of a user."""
    hashes = Hashes()
    passwords = Passwords(USERS, matches=hashes.matches)

    asked(passwords, *(header(f"user{at}", "x") for at in range(100)))

    assert {hashed for _, hashed in hashes.checked} == set(USERS.values())


def test_an_unknown_user_with_a_right_password_of_another_costs_a_check_each_time() -> None:
    """Answered from what was checked before, it would be told by time from a known user."""
    hashes = Hashes()
    passwords = Passwords({"alice": b"a-word"}, matches=hashes.matches)
    alice, carol = header("alice", "a-word"), header("carol", "a-word")

    answers = asked(passwords, alice, alice, carol, carol, alice)

    assert answers == [True, True, False, False, True]
    assert len(hashes.checked) == 3  # one of alice's, each of carol's


def test_requests_go_on_while_a_password_is_checked() -> None:
    checking, let_go = threading.Event(), threading.Event()

    def slow(_password: bytes, _hashed: bytes) -> bool:
        checking.set()
        return let_go.wait(60)

    passwords = Passwords(USERS, matches=slow)

    async def ask() -> tuple[bool, bool]:
        first = asyncio.create_task(passwords.admit(header("alice", "a-word")))
        while not checking.is_set():
            await asyncio.sleep(0)
        second = await passwords.admit("")
        let_go.set()
        return second, await first

    assert asyncio.run(ask()) == (False, True)


def test_the_check_of_a_client_that_gave_up_is_made_in_its_turn_and_its_next_request_is_quick() -> (
    None
):
    checking, let_go = threading.Event(), threading.Event()
    checked: list[bytes] = []

    def slow(password: bytes, _hashed: bytes) -> bool:
        checked.append(password)
        checking.set()
        return let_go.wait(60)

    passwords = Passwords(USERS, matches=slow)

    async def ask() -> bool:
        first = asyncio.create_task(passwords.admit(header("alice", "first")))
        gone = asyncio.create_task(passwords.admit(header("bob", "b-word")))
        last = asyncio.create_task(passwords.admit(header("alice", "last")))
        while not checking.is_set():
            await asyncio.sleep(0)
        gone.cancel()
        await asyncio.wait([gone])
        let_go.set()
        return await first and await last and await passwords.admit(header("bob", "b-word"))

    assert asyncio.run(ask())
    assert checked == [b"first", b"b-word", b"last"]


def test_its_thread_ends_with_it() -> None:
    before = set(threading.enumerate())
    passwords = Passwords(USERS, matches=Hashes().matches)
    asked(passwords, header("alice", "a-word"), header("bob", "b-word"))
    (thread,) = set(threading.enumerate()) - before

    del passwords
    thread.join(60)

    assert not thread.is_alive()
    assert thread.daemon  # the program's end does not wait for a check


def test_a_check_that_fails_is_an_error_and_the_next_one_is_made() -> None:
    def fails_once(password: bytes, _hashed: bytes) -> bool:
        if password == b"broken":
            raise LookupError
        return True

    passwords = Passwords(USERS, matches=fails_once)

    with pytest.raises(LookupError):
        asked(passwords, header("alice", "broken"))
    assert asked(passwords, header("alice", "fine")) == [True]


@pytest.mark.parametrize("version", ["2a", "2b", "2x", "2y"])
def test_hashes_of_every_version_that_tools_write_are_understood(version: str) -> None:
    hashed = bcrypt.hashpw(b"word", bcrypt.gensalt(4)).replace(b"$2b$", f"${version}$".encode())

    answers = asked(Passwords({"a": hashed}), header("a", "word"), header("a", "words"))

    assert answers == [True, False]


def test_a_password_longer_than_bcrypt_takes_is_cut_as_by_those_who_hash() -> None:
    hashed = bcrypt.hashpw(b"x" * 72, bcrypt.gensalt(4))

    answers = asked(Passwords({"a": hashed}), header("a", "x" * 100), header("a", "x" * 71))

    assert answers == [True, False]


def test_a_hash_that_bcrypt_does_not_take_lets_nobody_in() -> None:
    assert asked(Passwords({"a": b"$2y$10$x"}), header("a", "word")) == [False]


def test_without_a_thread_nobody_is_let_in_and_the_next_request_tries_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    passwords, right = Passwords(USERS, matches=Hashes().matches), header("alice", "a-word")
    allow_threads(monkeypatch, 0)
    for _ in range(2):
        with pytest.raises(NoThread):
            asked(passwords, right)

    allow_threads(monkeypatch, 1)
    assert asked(passwords, right, header("bob", "b-word")) == [True, True]


@functools.cache
def passwords() -> Passwords:
    """Made by the first test that needs them: a thread of theirs checks the passwords."""
    return Passwords({"a": bcrypt.hashpw(b"word", bcrypt.gensalt(4))})


@given(st.text() | st.binary(max_size=100).map(lambda it: "Basic " + base64.b64encode(it).decode()))
def test_any_header_is_answered_and_lets_nobody_in(given: str) -> None:
    assert asked(passwords(), given) == [False]


# wrong passwords that keep coming


class Attacked:
    """Passwords whose checks a test lets go one by one, and the order in which they were made."""

    def __init__(self) -> None:
        self.order: list[bytes] = []
        self._go = threading.Semaphore(0)
        self.passwords = Passwords(USERS, matches=self._matches)

    def _matches(self, password: bytes, hashed: bytes) -> bool:
        assert self._go.acquire(timeout=60)
        self.order.append(password)
        return password == hashed

    def ask(self, user: str, password: str, host: str) -> asyncio.Task[bool]:
        return asyncio.create_task(self.passwords.admit(header(user, password), host))

    def allow(self, count: int) -> None:
        self._go.release(count)

    async def let_go(self, count: int) -> None:
        """Have so many checks made."""
        before = len(self.order)
        self.allow(count)
        while len(self.order) < before + count:
            await asyncio.sleep(0.001)


def test_the_right_password_waits_for_one_check_of_each_other_host() -> None:
    async def run() -> tuple[bool, int]:
        of = Attacked()
        wrong = [of.ask("alice", f"x{at}", f"10.0.0.{at % 2}") for at in range(60)]
        await asyncio.sleep(0)
        right = of.ask("alice", "a-word", "10.0.0.9")
        made = 0
        while not right.done():
            await of.let_go(1)
            made += 1
            await asyncio.sleep(0.01)
        admitted = await right
        for task in wrong:
            task.cancel()
        await of.let_go(59 - made)
        return admitted, made

    admitted, made = asyncio.run(run())
    assert admitted
    assert made <= 5  # the one under way, one of each host, and one that ends before it is seen


def test_from_one_host_a_client_that_gives_up_is_let_in_at_a_later_request() -> None:
    """However many wrong ones come in the meantime."""

    async def run() -> list[bool]:
        of, wrong, answers = Attacked(), list[asyncio.Task[bool]](), list[bool]()
        for scrape in range(3):
            wrong += [of.ask("alice", f"x{scrape}-{at}", "10.0.0.1") for at in range(60)]
            await asyncio.sleep(0)
            right = of.ask("alice", "a-word", "10.0.0.1")
            await asyncio.sleep(0)
            await of.let_go(40)
            done, _ = await asyncio.wait([right], timeout=0.05)
            answers.append(bool(done) and right.result())
            right.cancel()
        for task in wrong:
            task.cancel()
        await of.let_go(180 + 1 - 120)
        return answers

    assert asyncio.run(run()) == [False, True, True]


def test_one_wrong_password_of_many_requests_is_checked_once_for_all_that_wait() -> None:
    async def run() -> list[bytes]:
        of = Attacked()
        tasks = [of.ask("alice", "x", f"10.0.0.{at}") for at in range(60)]
        await asyncio.sleep(0)
        of.allow(2)  # the first may be under way when the others come
        assert await asyncio.gather(*tasks) == [False] * 60
        return of.order

    assert len(asyncio.run(run())) <= 2
