# SPDX-License-Identifier: Apache-2.0
"""Who may ask: user names and passwords of HTTP's basic authentication, checked with bcrypt.

A check takes its time by design, so it runs in a thread of its own, one at a time, and is not
repeated for a user whose password was right. How long it takes does not show which users exist.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import functools
import hashlib
import hmac
import queue
import secrets
import weakref
from collections.abc import Callable, Mapping
from concurrent.futures import Future

import bcrypt

from base import threads

_PASSWORD_BYTES = 72
"""More does not enter a bcrypt hash; tools that make hashes cut, and the library refuses."""


def _matches(password: bytes, hashed: bytes) -> bool:
    try:
        return bcrypt.checkpw(password[:_PASSWORD_BYTES], hashed)
    except ValueError:  # a hash that only looked like one
        return False


class _Check:
    """One password against one hash; cancelled when the client has gone."""

    def __init__(self, password: bytes, hashed: bytes) -> None:
        self.password = password
        self.hashed = hashed
        self.answer: Future[bool] = Future()


def _run(checks: queue.SimpleQueue[_Check | None], matches: Callable[[bytes, bytes], bool]) -> None:
    """Check one after the other; None ends it."""
    for check in iter(checks.get, None):
        if check.answer.set_running_or_notify_cancel():
            try:
                check.answer.set_result(matches(check.password, check.hashed))
            except Exception as error:  # for whoever waits
                check.answer.set_exception(error)


class Passwords:
    """Checks names and passwords against the hashes of the configured users, at least one."""

    def __init__(
        self, users: Mapping[str, bytes], *, matches: Callable[[bytes, bytes], bool] = _matches
    ) -> None:
        """``matches`` checks a password against a hash; it may be slow."""
        self._users = users
        self._names = sorted(users)
        self._secret = secrets.token_bytes(32)
        self._verified: dict[str, bytes] = {}
        """The digest of each user's right password, once it was used: no more than users."""
        self._checks: queue.SimpleQueue[_Check | None] = queue.SimpleQueue()
        # a daemon, unlike an executor's threads: the program's end waits for no check
        self._run = functools.partial(_run, self._checks, matches)
        self._is_running = False
        weakref.finalize(self, self._checks.put, None)

    async def admit(self, authorization: str) -> bool:
        """Whether this ``Authorization`` header holds a user's name and password.

        For one thread, the event loop's. Raises NoThread, and tries again at the next request,
        while there is no thread to be had for the first check.
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
        if known and hmac.compare_digest(self._verified.get(name, b""), digest):
            return True
        if not self._is_running:
            threads.started(self._run, "passwords")
            self._is_running = True
        check = _Check(password, self._users[user])
        self._checks.put(check)
        right = await asyncio.wrap_future(check.answer)
        if right and known:
            self._verified[user] = digest
        return right and known

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
