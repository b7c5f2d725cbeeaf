# SPDX-License-Identifier: Apache-2.0
"""User names and passwords of HTTP's basic authentication, checked with bcrypt.

A check takes its time by design, so it runs in a thread of its own, one at a time, and is not
repeated for a user whose password was right; clients' hosts take turns. How long it takes does not
show which users exist.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import secrets
import weakref
from collections.abc import Callable, Mapping

import bcrypt

from base import threads
from web.password_turns import PasswordCheck, PasswordTurns

_PASSWORD_BYTES = 72
"""Bytes of a password that enter a bcrypt hash; tools cut longer ones, the library refuses them."""


def _matches(password: bytes, hashed: bytes) -> bool:
    try:
        return bcrypt.checkpw(password[:_PASSWORD_BYTES], hashed)
    except ValueError:  # a hash that only looked like one
        return False


class _Checks:
    """What the thread that checks passwords has; not the Passwords, which it would keep alive."""

    def __init__(self, users: Mapping[str, bytes], matches: Callable[[bytes, bytes], bool]) -> None:
        self._users = users
        self._matches = matches
        self.turns = PasswordTurns()
        self.verified: dict[str, bytes] = {}
        """The digest of each user's right password, once it was used: no more than users."""

    def run(self) -> None:
        """Check passwords one after the other until the turns are closed."""
        for check in iter(self.turns.take, None):
            self._decide(check)

    def _decide(self, check: PasswordCheck) -> None:
        name, digest = check.credentials
        try:
            right = self._matches(check.password, check.hashed) and name in self._users
        except Exception as error:  # for whoever waits
            for answer in check.waiting():
                answer.set_exception(error)
            return
        if right:
            self.verified[name] = digest
        for answer in check.waiting():
            answer.set_result(right)


class Passwords:
    """Checks names and passwords against the hashes of the configured users, at least one."""

    def __init__(
        self, users: Mapping[str, bytes], *, matches: Callable[[bytes, bytes], bool] = _matches
    ) -> None:
        """``matches`` checks a password against a hash; it may be slow."""
        self._users = users
        self._names = sorted(users)
        self._secret = secrets.token_bytes(32)
        self._checks = _Checks(users, matches)
        self._is_running = False
        weakref.finalize(self, self._checks.turns.close)

    async def admit(self, authorization: str, host: str = "") -> bool:
        """Whether this ``Authorization`` header holds a user's name and password.

        ``host`` is the client's address: hosts take turns. For one thread, the event loop's.
        Raises NoThread, and tries again at the next request, while there is no thread to be had
        for the first check.
        """
        credentials = _credentials(authorization)
        if credentials is None:
            return False
        name, password = credentials
        digest = self._digest(password)
        known = name in self._users
        # an unknown name always costs a whole check, against a hash that is the same each time;
        # were results reused for it, a quick answer would show that the password is somebody's
        user = name if known else self._stand_in(name)
        if known and hmac.compare_digest(self._checks.verified.get(name, b""), digest):
            return True
        if not self._is_running:
            # a daemon, unlike an executor's threads: the program's end waits for no check
            threads.started(self._checks.run, "passwords")
            self._is_running = True
        check = PasswordCheck((name, digest), password, self._users[user])
        return await asyncio.wrap_future(self._checks.turns.put(host, check))

    def _digest(self, text: bytes) -> bytes:
        return hashlib.blake2b(text, key=self._secret).digest()

    def _stand_in(self, name: str) -> str:
        digest = self._digest(name.encode("utf-8", "surrogateescape"))
        return self._names[int.from_bytes(digest, "big") % len(self._names)]


def _credentials(authorization: str) -> tuple[str, bytes] | None:
    """Name and password. Source: RFC 7617."""
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        name, colon, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
    except (binascii.Error, ValueError):
        return None
    return (name.decode("utf-8", "surrogateescape"), password) if colon else None
