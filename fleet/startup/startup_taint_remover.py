# SPDX-License-Identifier: Apache-2.0
"""Takes the startup taint off Nodes whose first MIG layout is there, and leaves all other taints.

Any thread may hand in events; one thread runs the tick.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from base.log_once import LogOnce
from fleet.startup.startup_taint import (
    StartupNode,
    StartupWait,
    counting_metadata,
    is_tainted,
    other_taints,
    startup_wait,
    tainted_since,
)
from kube.api import NODES, Api
from kube.api_errors import ApiError, Conflict, NotFound
from kube.informer import ObjectGone, ObjectSeen, WatchEvent
from kube.objects.node import Node
from kube.objects.typed_object import Metadata

log = logging.getLogger(__name__)

TICK_SECONDS: Final = 2.0
WRITES_A_TICK: Final = 20
"""Nodes written in one tick at most, so that a thousand ready Nodes are no storm of writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tainted:
    """A Node with the taint: what decides about it, and since when it is there."""

    metadata: Metadata
    since: float


class StartupTaintRemover:
    """Takes the startup taint off Nodes that are ready."""

    def __init__(
        self,
        api: Api,
        policy: Callable[[Metadata], StartupWait | None],
        *,
        leads: Callable[[], bool] = lambda: True,
        shows: Callable[[Collection[StartupNode]], None] = lambda _: None,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """``policy``: why the fleet policy keeps the taint of a Node, by its metadata.

        ``leads``: whether this coordinator may act now; ``shows``: takes the Nodes that have the
        taint after each tick, none while another coordinator leads.
        """
        self._api = api
        self._policy = policy
        self._leads = leads
        self._lock = threading.Lock()
        self._shows = shows
        self._wall = wall
        self._tainted: dict[str, _Tainted] = {}
        self._bare: set[str] = set()
        """Nodes that were last seen without the taint."""
        self._logged = LogOnce()

    @property
    def waiting(self) -> tuple[StartupNode, ...]:
        """Nodes that have the taint, why, and for how long."""
        with self._lock:
            tainted = dict(self._tainted)
        now = self._wall().timestamp()
        return tuple(
            StartupNode(
                node=name,
                wait=startup_wait(node.metadata, self._policy(node.metadata)),
                seconds=max(0.0, now - node.since),
            )
            for name, node in tainted.items()
        )

    def on_node(self, event: WatchEvent) -> None:
        """Take an event of the watch of Nodes."""
        match event:
            case ObjectSeen(object=seen):
                self._take(Node.from_object(seen))
            case ObjectGone(name=name):
                self._forget(name)

    def tick(self) -> float:
        """Take the taint off Nodes that are ready; the seconds until the next time.

        Raises nothing for what the API answers.
        """
        ready = [node.node for node in self.waiting if node.wait is StartupWait.READY]
        try:
            for name in ready[:WRITES_A_TICK]:
                self._release(name)
        except ApiError as error:
            if self._logged.is_new(str(error), "failure"):
                log.warning("startup taint not removed", extra={"why": str(error)})
        else:
            self._logged.clear("failure")
        self._shows(self.waiting if self._leads() else ())
        return TICK_SECONDS

    def _release(self, name: str) -> None:
        """Read a Node again, judge it again, and write it as it was read. Raises ApiError."""
        if not self._leads():
            return
        try:
            seen = self._api.get(NODES, name)
            node = Node.from_object(seen)
            self._take(node)
            meta = counting_metadata(node)
            wait = startup_wait(meta, self._policy(meta))
            if not is_tainted(node) or wait is not StartupWait.READY:
                return
            version, taints = node.metadata.resource_version, other_taints(seen) or None
            patch = {"metadata": {"resourceVersion": version}, "spec": {"taints": taints}}
            self._take(Node.from_object(self._api.patch(NODES, name, patch)))
        except NotFound:
            self._forget(name)
            return
        except Conflict:
            return  # somebody else wrote the Node: the next tick reads it again
        log.info("startup taint removed", extra={"node": name})

    def _take(self, node: Node) -> None:
        name = node.name
        with self._lock:
            if not is_tainted(node):
                self._tainted.pop(name, None)
                self._bare.add(name)
                return
            before = self._tainted.get(name)
            since = self._since(node) if before is None else before.since
            self._tainted[name] = _Tainted(metadata=counting_metadata(node), since=since)
            self._bare.discard(name)

    def _since(self, node: Node) -> float:
        """When a Node got the taint that it has for the first time: now, if it had been seen bare,
        or does not say since when it is there."""
        is_new = node.name in self._bare
        since = None if is_new else tainted_since(node)
        return self._wall().timestamp() if since is None else since

    def _forget(self, name: str) -> None:
        with self._lock:
            self._tainted.pop(name, None)
            self._bare.discard(name)
