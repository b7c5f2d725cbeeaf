# SPDX-License-Identifier: Apache-2.0
"""Writes the layouts of the fleet policy to Nodes: watches its ConfigMap, keeps Nodes in step.

A policy with a mistake changes nothing: what was written stays, and nothing more is written until
it is mended. Any thread may hand in events; one thread runs the tick.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from api import names
from base.errors import BadInput
from base.log_once import LogOnce
from fleet.mig_node import DrainMode
from fleet.policy.assigned_layouts import AssignedNode, Assignment, assigned
from fleet.policy.fleet_policy import FleetPolicy, parse_fleet_policy
from fleet.startup.startup_taint import StartupWait
from kube.api import NODES, Api, Object
from kube.api_errors import ApiError, Conflict, NotFound
from kube.informer import CacheSynced, ObjectGone, ObjectSeen, WatchEvent
from kube.objects.typed_object import Metadata
from kube.present_objects import present_objects

log = logging.getLogger(__name__)

KEY: Final = "policy.yaml"
TICK_SECONDS: Final = 5.0
WRITES_A_TICK: Final = 20
"""Nodes written in one tick at most, so that a policy for a whole fleet is no storm of writes."""
_NO_POLICY: Final = FleetPolicy(entries=())
_UNREAD: Final = object()
"""No text yet, not even that there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyState:
    """The state of the policy, for people and metrics."""

    revision: str
    """Revision of the policy; empty where there is none."""
    problem: str = ""
    """Why the ConfigMap is not obeyed."""
    is_paused: bool = False
    nodes: Mapping[Assignment, int] = field(default_factory=dict)


class FleetPolicySync:
    """Follows the fleet policy, and writes its layouts to Nodes while this coordinator leads."""

    def __init__(self, api: Api, *, leads: Callable[[], bool] = lambda: True) -> None:
        """``leads``: whether this coordinator may act now; another one does else."""
        self._api = api
        self._leads = leads
        self._lock = threading.Lock()
        self._is_known = False
        self._text: str | None = None
        self._read: object = _UNREAD
        self._policy = _NO_POLICY
        self._problem = ""
        self._seen: dict[str, AssignedNode] = {}
        """Nodes that the policy concerns, by name."""
        self._logged = LogOnce()

    @property
    def state(self) -> PolicyState:
        """The state of the policy now."""
        with self._lock:
            return PolicyState(
                revision=self._policy.revision if self._policy.entries else "",
                problem=self._problem,
                is_paused=self._policy.paused,
                nodes=Counter(node.assignment for node in self._seen.values()),
            )

    @property
    def drains(self) -> Mapping[str, DrainMode]:
        """How pods leave, by Node, where the Node's entry sets it."""
        with self._lock:
            written = {name: node.written for name, node in self._seen.items() if node.written}
            return {name: entry.drain for name, entry in written.items() if entry.drain}

    def startup_wait(self, metadata: Metadata) -> StartupWait | None:
        """Why the policy keeps a Node's startup taint; None: it writes nothing more to the Node."""
        with self._lock:
            if not self._is_known or self._read != self._text or self._problem:
                return StartupWait.POLICY_UNKNOWN
            assigned_node = assigned(self._policy, metadata)
        waits = (Assignment.DUE, Assignment.DISPUTED)
        is_due = assigned_node is not None and assigned_node.assignment in waits
        return StartupWait.POLICY_DUE if is_due else None

    # events

    def on_config_map(self, event: WatchEvent) -> None:
        """Take an event of the watch of the one ConfigMap."""
        with self._lock:
            match event:
                case ObjectSeen(object=config_map):
                    self._text = (config_map.get("data") or {}).get(KEY, "")
                case ObjectGone():
                    self._text = None
                case CacheSynced():
                    self._is_known = True

    def on_node(self, event: WatchEvent) -> None:
        """Take an event of the watch of Nodes."""
        with self._lock:
            match event:
                case ObjectSeen(object=node):
                    self._judge(node)
                case ObjectGone(name=name):
                    self._seen.pop(name, None)

    # writes

    def tick(self) -> float:
        """Read the policy where it changed, and write Nodes that are due; seconds until the next.

        Raises nothing for what the API answers.
        """
        with self._lock:
            known, text = self._is_known, self._text
        if not known or not self._leads():
            return TICK_SECONDS
        try:
            if text != self._read:
                self._take(text)
                self._read = text
            self._write_due()
        except ApiError as error:
            if self._logged.is_new(str(error), "failure"):
                log.warning("fleet policy not carried out", extra={"why": str(error)})
        else:
            self._logged.clear("failure")
        return TICK_SECONDS

    def _take(self, text: str | None) -> None:
        """Judge all Nodes by another text. Raises ApiError."""
        try:
            policy = _NO_POLICY if text is None else parse_fleet_policy(text, names.MIG_POLICY)
        except BadInput as error:
            with self._lock:
                self._problem = str(error)
            log.warning("fleet policy refused", extra={"why": str(error)})
            return
        nodes = list(present_objects(self._api, NODES, metadata_only=True))
        with self._lock:
            self._policy, self._problem = policy, ""
            self._seen.clear()
            for node in nodes:
                self._judge(node)
        if policy.entries:
            facts = {"revision": policy.revision, "entries": len(policy.entries)}
            log.info("fleet policy taken", extra={**facts, "paused": policy.paused})
        else:
            log.info("no fleet policy")

    def _judge(self, node: Object) -> None:
        """Judge a Node by the policy; the lock is held."""
        metadata = Metadata.from_object(node["metadata"])
        assigned_node = assigned(self._policy, metadata)
        if assigned_node is None:
            self._seen.pop(metadata.name, None)
            return
        self._seen[assigned_node.node] = assigned_node
        self._warn(assigned_node)

    def _warn(self, assigned_node: AssignedNode) -> None:
        if assigned_node.assignment is not Assignment.DISPUTED:
            self._logged.clear(assigned_node.node)
        elif self._logged.is_new(assigned_node.entries, assigned_node.node):
            entries = ", ".join(assigned_node.entries)
            facts = {"node": assigned_node.node, "entries": entries}
            log.warning("fleet policy disagrees", extra=facts)

    def _write_due(self) -> None:
        with self._lock:
            if self._problem or self._policy.paused:
                return
            due = [name for name, node in self._seen.items() if node.patch is not None]
        for name in due[:WRITES_A_TICK]:
            if not self._leads():
                return
            try:
                self._write(name)
            except NotFound:
                with self._lock:
                    self._seen.pop(name, None)
            except Conflict:
                continue  # the next tick reads it again

    def _write(self, name: str) -> None:
        """Read a Node again, judge it again, and write what is due. Raises ApiError."""
        node = self._api.get(NODES, name)
        with self._lock:
            self._judge(node)
            assigned_node = self._seen.get(name)
        if assigned_node is None or assigned_node.patch is None:
            return
        version = node["metadata"]["resourceVersion"]
        patch = {"metadata": {"annotations": dict(assigned_node.patch), "resourceVersion": version}}
        after = self._api.patch(NODES, name, patch)
        with self._lock:
            self._judge(after)
        log.info("MIG layout written", extra={"node": name, "entry": assigned_node.entries[0]})
