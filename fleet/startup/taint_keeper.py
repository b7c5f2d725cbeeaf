# SPDX-License-Identifier: Apache-2.0
"""Takes the startup taint off Nodes whose first MIG layout is there, and leaves all other taints.

Any thread may tell what is seen; one thread runs the tick.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from base.log_once import LogOnce
from fleet.startup.startup_taint import (
    PolicyWord,
    counting_metadata,
    is_tainted,
    obstacle,
    other_taints,
)
from kube.api import NODES, Api, Object
from kube.api_errors import ApiError, Conflict, NotFound
from kube.follower import ObjectGone, ObjectSeen, WatchEvent

log = logging.getLogger(__name__)

TICK_SECONDS: Final = 2.0
WRITES_A_TICK: Final = 20
"""So that a thousand Nodes which are ready at once are no storm of writes."""


class TaintKeeper:
    """The Nodes with the startup taint, and when it goes."""

    def __init__(
        self,
        api: Api,
        policy: Callable[[Mapping[str, Any]], PolicyWord],
        *,
        leads: Callable[[], bool] = lambda: True,
    ) -> None:
        """``policy``: what the fleet policy says about a Node, by its metadata; ``leads``: whether
        this coordinator may act now."""
        self._api = api
        self._policy = policy
        self._leads = leads
        self._lock = threading.Lock()
        self._tainted: dict[str, Mapping[str, Any]] = {}
        self._logged = LogOnce()

    @property
    def waiting(self) -> Mapping[str, str]:
        """Nodes that have the taint, and why it stays; empty text where it is about to go."""
        with self._lock:
            tainted = dict(self._tainted)
        return {name: obstacle(meta, self._policy(meta)) for name, meta in tainted.items()}

    def on_node(self, event: WatchEvent) -> None:
        """Take an event of the watch of Nodes."""
        match event:
            case ObjectSeen(object=node):
                self._take(node)
            case ObjectGone(name=name):
                self._forget(name)

    def tick(self) -> float:
        """Take the taint off Nodes that are ready; the seconds until the next time.

        Raises nothing for what the API answers.
        """
        ready = [name for name, why in self.waiting.items() if not why]
        try:
            for name in ready[:WRITES_A_TICK]:
                self._release(name)
        except ApiError as error:
            if self._logged.is_new(str(error), "failure"):
                log.warning("startup taint not removed", extra={"why": str(error)})
        else:
            self._logged.clear("failure")
        return TICK_SECONDS

    def _release(self, name: str) -> None:
        """Read a Node again, judge it again, and write it as it was read. Raises ApiError."""
        if not self._leads():
            return
        try:
            node = self._api.get(NODES, name)
            self._take(node)
            meta = counting_metadata(node)
            if not is_tainted(node) or obstacle(meta, self._policy(meta)):
                return
            version = node["metadata"]["resourceVersion"]
            patch = {
                "metadata": {"resourceVersion": version},
                "spec": {"taints": other_taints(node) or None},
            }
            self._take(self._api.patch(NODES, name, patch))
        except NotFound:
            self._forget(name)
            return
        except Conflict:
            return  # somebody else wrote the Node: the next tick reads it again
        log.info("startup taint removed", extra={"node": name})

    def _take(self, node: Object) -> None:
        with self._lock:
            if is_tainted(node):
                self._tainted[node["metadata"]["name"]] = counting_metadata(node)
            else:
                self._tainted.pop(node["metadata"]["name"], None)

    def _forget(self, name: str) -> None:
        with self._lock:
            self._tainted.pop(name, None)
