"""A follower in a thread of its own, and what it told."""

from __future__ import annotations

import queue
import threading

from base.backoff import Backoff
from kube.api import Api, ApiResource
from kube.follower import Follower, News, ObjectGone, ObjectSeen, WatchLost
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
        self.news: queue.Queue[News] = queue.Queue()
        self.follower = Follower(
            api,
            resource,
            self.news.put,
            namespace=namespace,
            name=name,
            backoff=backoff or Backoff(uniform=none),
            uniform=none,
        )
        self.thread = threading.Thread(target=self.follower.run, daemon=True)
        self.thread.start()

    def next(self) -> News:
        """What is told next."""
        return self.news.get(timeout=DEADLINE_SECONDS)

    def words(self, count: int) -> list[str]:
        """The next news in short."""
        return [word(self.next()) for _ in range(count)]

    def until(self, last: str) -> list[str]:
        """The news in short up to the one that begins so; a thing told twice in a row, once."""
        words: list[str] = []
        while not words or not words[-1].startswith(last):
            if (told := word(self.next())) not in words[-1:]:
                words.append(told)
        return words


def word(news: News) -> str:
    """One piece of news in short: the label ``a`` of what is seen, and names."""
    match news:
        case ObjectSeen(object=thing):
            return f"seen {thing['metadata']['name']} {thing['metadata']['labels']['a']}"
        case ObjectGone(name=name):
            return f"gone {name}"
        case WatchLost(error=error):
            return f"down {error}"
        case other:
            return type(other).__name__
