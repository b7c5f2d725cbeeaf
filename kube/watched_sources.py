# SPDX-License-Identifier: Apache-2.0
"""Several kinds of objects, watched for one cache: threads, and which watches are lost."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final, Generic, TypeVar

from base import threads
from kube.api_errors import ApiError, Forbidden
from kube.informer import CacheSynced, Informer, WatchConnected, WatchEvent, WatchLost

log = logging.getLogger(__name__)

_END_SECONDS: Final = 5.0

S = TypeVar("S", bound=StrEnum)


class WatchedSources(Generic[S]):
    """Base: watches, each in a thread of its own. Subclasses take the objects."""

    def __init__(
        self,
        informers: Mapping[S, Informer],
        *,
        synced: Callable[[S], None],
        rights: str,
        connected: Callable[[S], None] = lambda _source: None,
    ) -> None:
        """``synced`` is called when all objects of a source were seen, ``connected`` when a watch
        begins anew; ``rights``: the folder of deploy/ that gives the right to watch.
        """
        self._informers = informers
        self._synced = synced
        self._connected = connected
        self._rights = rights
        self._down: dict[S, str] = {}
        self._threads: list[threading.Thread] = []

    @property
    def down(self) -> Mapping[S, str]:
        """Sources whose watch is lost now, each with its reason; empty while all are connected."""
        return dict(self._down)

    def start(self) -> None:
        """Open the watches: the cache follows the cluster from now on."""
        for source, informer in self._informers.items():
            self._threads.append(threads.started(informer.run, f"watch-{source}"))

    def start_anew(self) -> None:
        """Read all objects again: the server's store was put back to a backup."""
        for informer in self._informers.values():
            informer.start_anew()

    def close(self) -> None:
        """Close the watches; waits a little for the threads, which end with the program anyway."""
        for informer in self._informers.values():
            informer.close()
        for thread in self._threads:
            thread.join(_END_SECONDS)

    def _connection(self, source: S, event: WatchEvent) -> None:
        """Take an event of the connection, not of an object."""
        match event:
            case CacheSynced():
                self._synced(source)
                log.info("cache synced", extra={"source": source})
            case WatchConnected():
                self._connected(source)
                if self._down.pop(source, None) is not None:
                    log.info("watch reconnected", extra={"source": source})
            case WatchLost(error=error):
                why = self._why(source, error)
                if why != self._down.get(source):  # once, not at every attempt
                    log.warning("watch lost", extra={"source": source, "why": why})
                self._down[source] = why

    def _why(self, source: S, error: ApiError) -> str:
        if isinstance(error, Forbidden):
            return f"{error}; the account may not watch {source}: apply {self._rights}"
        return str(error)
