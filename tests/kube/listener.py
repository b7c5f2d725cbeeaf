# SPDX-License-Identifier: Apache-2.0
"""An informer in a thread of its own, and the events that it reported."""

from __future__ import annotations

import queue
import threading

from base.backoff import Backoff
from kube.api import Api, ApiResource
from kube.informer import Informer, ObjectGone, ObjectSeen, WatchEvent, WatchLost
from tests.kube.clocks import none

DEADLINE_SECONDS = 60


class Listener:
    """Follows without waiting between watches."""

    def __init__(
        self,
        api: Api,
        resource: ApiResource,
        *,
        namespace: str | None = None,
        name: str | None = None,
        backoff: Backoff | None = None,
    ) -> None:
        self.events: queue.Queue[WatchEvent] = queue.Queue()
        self.informer = Informer(
            api,
            resource,
            self.events.put,
            namespace=namespace,
            name=name,
            backoff=backoff or Backoff(uniform=none),
            uniform=none,
        )
        self.thread = threading.Thread(target=self.informer.run, daemon=True)
        self.thread.start()

    def next(self) -> WatchEvent:
        """The next event."""
        return self.events.get(timeout=DEADLINE_SECONDS)

    def words(self, count: int) -> list[str]:
        """The next events in short."""
        return [word(self.next()) for _ in range(count)]

    def until(self, last: str) -> list[str]:
        """The events in short up to the one that begins so; of equal ones in a row, one."""
        words: list[str] = []
        while not words or not words[-1].startswith(last):
            if (found := word(self.next())) not in words[-1:]:
                words.append(found)
        return words


def word(event: WatchEvent) -> str:
    """One event in short: the label ``a`` of what is seen, and names."""
    match event:
        case ObjectSeen(object=thing):
            return f"seen {thing['metadata']['name']} {thing['metadata']['labels']['a']}"
        case ObjectGone(name=name):
            return f"gone {name}"
        case WatchLost(error=error):
            return f"down {error}"
        case other:
            return type(other).__name__
