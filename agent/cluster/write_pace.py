# SPDX-License-Identifier: Apache-2.0
"""When a sink may send its next write, so that thousands of agents never overload the cluster.

A Node is stored whole at each write and sent to all who watch Nodes, so a node's agent writes
seldom, whatever happens to it. Source: Kubernetes enhancement 589, "Efficient Node Heartbeats";
docs/decisions/publishing.md has what was measured.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

from api import keys
from base.backoff import Backoff
from base.bucket import Bucket
from base.errors import Permanent
from kube.api_errors import ApiError, NotConnected

DEBOUNCE_SECONDS = 10.0
"""Wait after a change: keys that change together are written together."""
GAP_SECONDS = 60.0
"""Sustained interval between two requests."""
BURST = 3
SLOW_SECONDS = 300.0
"""Before a request that was refused for good is tried again: somebody may have helped."""
IDLE_SECONDS = 60.0
"""Longest time between two checks for something to write; a change hastens one."""
FORBIDDEN_SECONDS = 5.0
"""Time between two checks whether writing is allowed."""
SPREAD = (0.5, 1.5)
"""Share of a fixed wait that is really waited, so that a fleet does not return together."""


URGENT = {keys.HEALTH: 1, keys.HEALTH_REASON: 1, keys.FOUND: 1, keys.MIG_REQUEST: 3}
"""Keys that are written without waiting for other changes, to the requests that each may borrow
from the minutes to come. They are about a GPU that fails, and about a MIG change, which begins and
ends with its request: the node may be cordoned meanwhile."""


def borrowed(changed: Iterable[str]) -> int:
    """How many requests a write that changes these keys may borrow; 0: it has to wait its turn."""
    return max((URGENT.get(key, 0) for key in changed), default=0)


class WritePace:
    """First write at once, then calmly; every request that was sent counts, whatever came of it.

    So answers that are lost, a server that is overloaded and somebody who undoes our writes all
    cost one request a minute at most. The monotonic time in seconds is passed in.
    """

    def __init__(self, *, uniform: Callable[[float, float], float] = random.uniform) -> None:
        self._uniform = uniform
        self._backoff = Backoff(uniform=uniform)
        self._bucket = Bucket(interval_seconds=GAP_SECONDS, burst=BURST)
        self._held_until = float("-inf")
        self._since: float | None = None
        self._calm = False

    def restart(self) -> None:
        """There is a new object to write: what went before has nothing to do with it."""
        self._backoff.succeeded()
        self._held_until = float("-inf")
        self._since = None
        self._calm = False

    def settled(self) -> None:
        """There is nothing to write."""
        self._since = None
        self._calm = True

    def held(self, now: float) -> float:
        """Seconds until a request may be sent to the server again after a failure."""
        return max(0.0, self._held_until - now)

    def wait(self, now: float, *, borrowed: int = 0) -> float:
        """Seconds until what there is to write may be sent, 0 for now.

        The first write is sent at once, others when 10 s have gone by since there was
        something to write. What may borrow requests from the next minutes does not wait for that.
        """
        if self._since is None:
            self._since = now
        debounced = self._since + DEBOUNCE_SECONDS if self._calm and not borrowed else self._since
        affordable = self._bucket.wait_seconds(now, borrowed=borrowed)
        return max(affordable, debounced - now, self._held_until - now)

    def sent(self, now: float) -> None:
        """A write is on its way."""
        self._bucket.reserve(now)

    def succeeded(self) -> None:
        """The API server took the write."""
        self._backoff.succeeded()
        self.settled()

    def failed(self, now: float, error: ApiError, *, slowly: bool = False) -> float:
        """Seconds to wait after a failure; long where only a person can help, or ``slowly``."""
        if isinstance(error, NotConnected):
            self._bucket.give_back()  # the server has had no work, and labels are late already
        if slowly or isinstance(error, Permanent):
            wait = SLOW_SECONDS * self._uniform(*SPREAD)
        else:
            wait = self._backoff.failed(error.retry_after_seconds)
        self._held_until = now + wait
        return wait
