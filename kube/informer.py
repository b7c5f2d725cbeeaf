# SPDX-License-Identifier: Apache-2.0
"""Keeps a watch on one object, or on all of a kind, across every failure of the connection."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from base.backoff import Backoff
from base.defects import Defects
from kube.api import Api, ApiResource, Change, Object, Watch
from kube.api_errors import ApiError, Expired, Unreachable

RESYNC_SECONDS = (1.0, 5.0)
"""Wait before all objects are read anew, spread: a restarted server forgets the versions of all
watches at once."""
LASTING_SECONDS = 30.0
"""A watch that was open for so long has worked; the waits then begin with the shortest again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectSeen:
    """An object exists in this form; reported again after a reconnect although nothing changed."""

    object: Object


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectGone:
    """An object exists no more; a new object of the same name is reported after this."""

    namespace: str | None
    name: str
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheSynced:
    """All objects that exist have been reported; an object that was not does not exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchConnected:
    """The watch has sent its first message: reported first, and after each WatchLost.

    The versions that come after it do not compare with those that came before: the server's store
    may have been put back to a backup in between.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchLost:
    """Nothing is reported until WatchConnected, and objects reported before may have changed."""

    error: ApiError


WatchEvent = ObjectSeen | ObjectGone | CacheSynced | WatchConnected | WatchLost


class Informer:
    """Runs watch after watch, and reports all events in order, in the thread of :meth:`run`.

    A watch starts where the last one ended when its time was up. At first, where that is too far
    back and after a loss it starts without a resourceVersion: the server sends all objects that
    exist, and a bookmark behind them. So no right to list is needed, absence is known without
    another request, and a store that was put back to a backup while it was away is read as it is.
    A watch counts as connected from its first message on, whatever the status of its answer.
    """

    def __init__(
        self,
        api: Api,
        resource: ApiResource,
        on_event: Callable[[WatchEvent], None],
        *,
        namespace: str | None = None,
        name: str | None = None,
        fields: Mapping[str, str] | None = None,
        metadata_only: bool = False,
        keep: Callable[[Object], bool] = lambda _object: True,
        backoff: Backoff | None = None,
        clock: Callable[[], float] = time.monotonic,
        uniform: Callable[[float, float], float] = random.uniform,
        defects: Defects | None = None,
    ) -> None:
        """``name`` None follows all, or those with these ``fields``; ``metadata_only`` leaves out
        all but their metadata.

        Objects that ``keep`` is false of are passed over, and reported as gone where they were
        reported before, so that a few among very many cost little. Neither it nor ``on_event``
        may raise; what they raise, or an object without a name, is one of the ``defects``.
        """
        self._api = api
        self._resource = resource
        self._on_event = on_event
        self._namespace = namespace
        self._name = name
        self._fields = fields
        self._metadata_only = metadata_only
        self._keep = keep
        self._backoff = backoff or Backoff(uniform=uniform)
        self._clock = clock
        self._uniform = uniform
        self._defects = defects or Defects()
        self._part = f"watch {resource.plural}"
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._watch: Watch | None = None
        self._version: str | None = None
        # objects that were reported: those that vanish while no watch is open are reported as gone
        self._uids: dict[tuple[str | None, str], str] = {}
        self._unseen: set[tuple[str | None, str]] | None = None  # a set while syncing
        self._up = False
        self._is_outdated = False

    def run(self, delay: Callable[[], float] = lambda: 0.0) -> None:
        """Follow until :meth:`close`; before that wait until ``delay``, called repeatedly, is 0."""
        while (wait := delay()) > 0 and not self._closed.wait(wait):
            pass
        while not self._closed.is_set():
            self._closed.wait(self._watch_once())

    def close(self) -> None:
        """Stop, from any thread; nothing is reported from then on. A request under way runs out."""
        self._closed.set()
        with self._lock:
            if self._watch is not None:
                self._watch.close()

    def start_anew(self) -> None:
        """Read all objects again, from any thread: the server's store was put back to a backup."""
        with self._lock:
            self._is_outdated = True
            if self._watch is not None:
                self._watch.close()

    def _watch_once(self) -> float:
        """Run one watch from its start to its end; seconds to wait before the next."""
        try:
            self._read_watch()
        except Expired as error:
            if self._version is None:  # not even the objects that exist have come
                return self._lost(error)
            # no loss: the server answers, and sends all objects again within seconds
            self._version = None
            return max(self._backoff.failed(), self._uniform(*RESYNC_SECONDS))
        except ApiError as error:
            return self._lost(error)
        except Exception as error:  # or nothing would be followed any more
            self._defects.report(self._part, error)
            return self._lost(Unreachable(f"{self._part}: {error!r} at what came"))
        # its time was up; a wait even so, for a proxy may end each watch after its first message
        return self._backoff.failed()

    def _lost(self, error: ApiError) -> float:
        """Report the loss, and begin with all objects next time; seconds to wait before that."""
        self._up = False
        self._version = None
        self._report(WatchLost(error=error))
        return self._backoff.failed(error.retry_after_seconds)

    def _read_watch(self) -> None:
        with self._lock:
            if self._is_outdated:
                self._is_outdated = self._up = False
                self._version = None
        opened_at, is_empty = self._clock(), True
        watch = self._api.watch(
            self._resource,
            namespace=self._namespace,
            name=self._name,
            fields=self._fields,
            metadata_only=self._metadata_only,
            resource_version=self._version,
        )
        with self._lock:
            self._watch = watch
        # what the server does not name until its bookmark has gone while no watch was open
        self._unseen = None if self._version else set(self._uids)
        try:
            if self._closed.is_set():
                return
            self._check_store()  # start_anew may have come before there was a watch to close
            for change in watch:
                is_empty = False
                if not self._up:
                    self._up = True
                    self._report(WatchConnected())
                self._take(change)
            self._check_end(is_empty=is_empty)
        finally:
            with self._lock:
                self._watch = None
            watch.close()
            # a watch that ends early must not reset the backoff: the next would follow at once
            is_synced = not is_empty and self._unseen is None
            if is_synced and self._clock() - opened_at >= LASTING_SECONDS:
                self._backoff.succeeded()

    def _check_end(self, *, is_empty: bool) -> None:
        """Raises Unreachable for a watch that did not end because its time was up."""
        if self._closed.is_set():
            return
        self._check_store()
        # bookmarks come about once a minute, so a watch that lasted its time is never empty
        if is_empty:
            raise Unreachable(f"{self._part}: the server ended it without a message")
        if self._unseen is not None:
            raise Unreachable(f"{self._part}: the server ended it before all objects had come")

    def _check_store(self) -> None:
        """Raises Unreachable for a watch that began in the past of a store that was put back."""
        if self._is_outdated:
            raise Unreachable(f"{self._part}: the server's store was put back to a backup")

    def _take(self, change: Change) -> None:
        meta = change.object["metadata"]
        if change.type == "BOOKMARK":
            self._end_sync()
        # an object that no longer fits has gone for the caller, as if it were deleted
        elif change.type == "DELETED" or not self._keep(change.object):
            self._object_gone((meta.get("namespace"), meta["name"]))
        else:
            self._object_seen(change.object)
        if self._unseen is None:  # a version from amid the first objects would skip the others
            self._version = meta["resourceVersion"]

    def _object_seen(self, seen: Object) -> None:
        meta = seen["metadata"]
        key = (meta.get("namespace"), meta["name"])
        # deleted and made again while no watch was open: callers keep state by UID or name
        if self._uids.get(key, meta["uid"]) != meta["uid"]:
            self._object_gone(key)
        self._uids[key] = meta["uid"]
        if self._unseen is not None:
            self._unseen.discard(key)
        self._report(ObjectSeen(object=seen))

    def _object_gone(self, key: tuple[str | None, str]) -> None:
        uid = self._uids.pop(key, None)
        if self._unseen is not None:
            self._unseen.discard(key)
        if uid is not None:
            self._report(ObjectGone(namespace=key[0], name=key[1], uid=uid))

    def _end_sync(self) -> None:
        if self._unseen is None:
            return
        # by text: a namespace may be None, which Python does not compare with text
        for key in sorted(self._unseen, key=str):
            self._object_gone(key)
        self._unseen = None
        self._report(CacheSynced())

    def _report(self, event: WatchEvent) -> None:
        if self._closed.is_set():
            return
        with self._defects.contained(self._part):
            self._on_event(event)
