# SPDX-License-Identifier: Apache-2.0
"""Which password is checked next: each host in turn, and of a host the one that came first."""

from __future__ import annotations

import ipaddress
import threading
from collections import OrderedDict, deque
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Final

MOST_WAITING: Final = 160
"""Checks that wait, before those are dropped whose clients have gone; a server has fewer places."""
_IPV6_HOST_BITS: Final = 64
"""A host on IPv6 may have any address of its network."""

Credentials = tuple[str, bytes]
"""A user's name, and a digest of the password."""


class PasswordCheck:
    """One password against one hash, for all requests that came with it while it waits."""

    def __init__(self, credentials: Credentials, password: bytes, hashed: bytes) -> None:
        self.credentials = credentials
        self.password = password
        self.hashed = hashed
        self.answers: list[Future[bool]] = []
        """One for each request; cancelled when its client has gone."""

    def waiting(self) -> Iterator[Future[bool]]:
        """The answers that somebody waits for; each is to be set."""
        return (answer for answer in self.answers if answer.set_running_or_notify_cancel())

    @property
    def is_abandoned(self) -> bool:
        """Whether all clients have gone."""
        return all(answer.cancelled() for answer in self.answers)


class PasswordTurns:
    """Checks that wait, taken by one thread and put by any.

    A host that sends many wrong passwords keeps others waiting for one check each turn. Requests
    with the same credentials share a check, and one whose client has gone keeps its place: where
    all clients come from one address, as through a proxy, the next request of a client that gave
    up finds its password checked.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._hosts: OrderedDict[str, deque[PasswordCheck]] = OrderedDict()
        """Whose turn is next comes first; none is empty."""
        self._waiting: dict[Credentials, PasswordCheck] = {}
        """Oldest first."""
        self._is_closed = False

    def put(self, host: str, check: PasswordCheck) -> Future[bool]:
        """Have it checked, together with one of the same credentials that waits; the answer."""
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
        """Wait for the next check, and take it; None once they are closed."""
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
        """Have nothing checked any more."""
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
    """The address, of IPv6 the network; the text as it is where it is no address."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if address.version == 4:
        return host
    return str(ipaddress.ip_network((address, _IPV6_HOST_BITS), strict=False))
