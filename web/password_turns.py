# SPDX-License-Identifier: Apache-2.0
"""The order in which passwords are checked: hosts take turns, each with its oldest check."""

from __future__ import annotations

import ipaddress
import threading
from collections import OrderedDict, deque
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Final

MOST_WAITING: Final = 160
"""Waiting checks above which those of clients that have gone are dropped; servers have fewer."""
_IPV6_HOST_BITS: Final = 64
"""Bits of an IPv6 address that count as the host: it may have any address of its network."""

Credentials = tuple[str, bytes]
"""A user's name, and a digest of the password."""


class PasswordCheck:
    """A check of a password against a hash, for all requests that bring it while it waits."""

    def __init__(self, credentials: Credentials, password: bytes, hashed: bytes) -> None:
        self.credentials = credentials
        self.password = password
        self.hashed = hashed
        self.answers: list[Future[bool]] = []
        """An answer for each request; cancelled when its client has gone."""

    def waiting(self) -> Iterator[Future[bool]]:
        """The answers that a client waits for; the caller sets each."""
        return (answer for answer in self.answers if answer.set_running_or_notify_cancel())

    @property
    def is_abandoned(self) -> bool:
        """Whether all clients have gone."""
        return all(answer.cancelled() for answer in self.answers)


class PasswordTurns:
    """Waiting checks; one thread takes them, and any thread puts them.

    A host that sends many wrong passwords keeps others waiting for one check each turn. Requests
    with the same credentials share a check, and a check whose client has gone keeps its place:
    where all clients come from one address, as through a proxy, the next request of a client that
    gave up finds its password checked.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._hosts: OrderedDict[str, deque[PasswordCheck]] = OrderedDict()
        """Checks by host, the host of the next turn first; none is empty."""
        self._waiting: dict[Credentials, PasswordCheck] = {}
        """All waiting checks, oldest first."""
        self._is_closed = False

    def put(self, host: str, check: PasswordCheck) -> Future[bool]:
        """The answer to a check: a new one, or the waiting one of the same credentials."""
        answer: Future[bool] = Future()
        with self._changed:
            known = self._waiting.get(check.credentials)
            if known is None:
                if len(self._waiting) >= MOST_WAITING:
                    self._drop_abandoned()
                known = self._waiting[check.credentials] = check
                self._hosts.setdefault(_network(host), deque()).append(check)
                self._changed.notify()
            known.answers.append(answer)
        return answer

    def take(self) -> PasswordCheck | None:
        """Wait for the next check, and take it; None after :meth:`close`."""
        with self._changed:
            while not self._hosts and not self._is_closed:
                self._changed.wait()
            if self._is_closed:
                return None
            host, checks = self._hosts.popitem(last=False)
            check = checks.popleft()
            if checks:
                self._hosts[host] = checks
            del self._waiting[check.credentials]
            return check

    def waiting(self) -> tuple[PasswordCheck, ...]:
        """All checks that wait, oldest first."""
        with self._changed:
            return tuple(self._waiting.values())

    def close(self) -> None:
        """Check no more passwords; ends the wait of :meth:`take`."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _drop_abandoned(self) -> None:
        """Drop the newest check whose clients have gone, if there is one; the lock is held."""
        for check in reversed(self._waiting.values()):
            if check.is_abandoned:
                break
        else:
            return
        del self._waiting[check.credentials]
        for host, checks in self._hosts.items():
            if check in checks:
                checks.remove(check)
                if not checks:
                    del self._hosts[host]
                return


def _network(host: str) -> str:
    """A host's address on IPv4, its network on IPv6; the text itself where it is no address."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if address.version == 4:
        return host
    return str(ipaddress.ip_network((address, _IPV6_HOST_BITS), strict=False))
