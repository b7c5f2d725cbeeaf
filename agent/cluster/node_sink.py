# SPDX-License-Identifier: Apache-2.0
"""Keeps our labels and annotations on the own Node: seldom a write, never a key of others.

The Node comes from a watch, so nothing is read before a write, and a patch has changed
keys only. Nothing is removed when the agent ends.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping
from typing import Any

from agent.cluster.refused_keys import RefusedKeys
from agent.cluster.rival_writers import RivalWriters
from agent.cluster.sink_reports import SinkReports
from agent.cluster.write_pace import FORBIDDEN_SECONDS, IDLE_SECONDS, WritePace, borrowed
from api.key_kinds import KeyLocation
from base.errors import Permanent
from kube.api import NODES, Api, Object
from kube.api_errors import ApiError, NotFound
from kube.versions import KnownVersions
from labelers.decision import Decisions, Value
from labelers.node_patch import NodePatch, former_labels, plan_node_patch, writers

_KEPT = ("name", "uid", "resourceVersion", "labels", "annotations", "managedFields")


class NodeSink:
    """Brings the Node to its desired keys. :meth:`tick` belongs to one thread, the rest to any."""

    def __init__(
        self,
        api: Api,
        name: str,
        *,
        may_write: Callable[[], bool],
        reports: SinkReports | None = None,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        """``may_write``: whether the agent is confined and holds its Lease, at each write."""
        self._api = api
        self._name = name
        self._may_write = may_write
        self._reports = reports or SinkReports(NODES.kind)
        self._pace = WritePace(uniform=uniform)
        self._rivals = RivalWriters()
        self._refusals = RefusedKeys()
        self._lock = threading.Lock()
        self._desired: tuple[Decisions, Decisions] | None = None
        self._meta: Mapping[str, Any] | None = None
        self._versions: KnownVersions[str] = KnownVersions()
        self._is_gone = False
        self._is_new = False

    def set_desired(self, labels: Decisions, annotations: Decisions) -> None:
        """Have the Node show this from now on."""
        with self._lock:
            self._desired = labels, annotations

    def observe(self, node: Object | None) -> None:
        """The Node as the watch shows it; None where there is none."""
        with self._lock:
            self._is_gone = node is None
            if node is None:
                self._meta = None
                self._versions.drop(self._name)
            else:
                self._take(node["metadata"])

    def begin_anew(self) -> None:
        """Take the next Node whatever its version: the watch was lost, and begins anew."""
        with self._lock:
            self._versions.forget()

    def tick(self, now: float) -> float:
        """Write what is due at this monotonic second; the seconds until the next time."""
        desired, meta = self._inputs()
        if desired is None or meta is None:
            return IDLE_SECONDS
        labels, annotations = desired
        labels = {**labels, **former_labels(meta, labels)}
        leave = self._rivals.resting(now)
        planned = plan_node_patch({"metadata": meta}, labels, annotations, leave=leave)
        self._reports.kept_out(planned.left_alone, planned.dropped)
        self._reports.shortened(_notes(annotations))
        self._report_refused(planned)
        planned = planned.without(self._refusals.left_out(now))
        if not planned.changed:
            if self._refusals.taken():
                return 0.0
            self._pace.settled()
            self._reports.well()
            return IDLE_SECONDS
        if not self._may_write():
            return FORBIDDEN_SECONDS
        wait = self._pace.wait(now, borrowed=borrowed(planned.changed))
        return wait if wait > 0 else self._write(planned, meta, now)

    def _inputs(self) -> tuple[tuple[Decisions, Decisions] | None, Mapping[str, Any] | None]:
        """Desired labels and annotations, and the Node's metadata; reacts to a new or lost Node."""
        with self._lock:
            desired, meta, is_gone = self._desired, self._meta, self._is_gone
            is_new, self._is_new = self._is_new, False
        if is_new:
            self._pace.restart()
            self._rivals.forget()
            self._refusals.forget()
        if is_gone:
            why = f"there is no Node {self._name}: waiting for it, unless node-name is wrong"
            self._reports.failed(why, lasting=True)
        return desired, meta

    def _report_refused(self, planned: NodePatch) -> None:
        """Report what of the plan is refused, once a search is over."""
        if not self._refusals.searching:
            reasons = self._refusals.reasons
            self._reports.refused({key: reasons[key] for key in planned.changed if key in reasons})

    def _write(self, planned: NodePatch, meta: Mapping[str, Any], now: float) -> float:
        """Send the patch. A reply that is lost does no harm: the watch shows what came of it."""
        self._pace.sent(now)
        try:
            node = self._api.patch(NODES, self._name, planned.patch)
        except ApiError as error:
            if isinstance(error, Permanent):
                self._refusals.refused(planned.changed.keys(), error, now)
                return 0.0
            self._reports.failed(str(error), lasting=False)
            return self._pace.failed(now, error, slowly=isinstance(error, NotFound))
        self._pace.succeeded()
        more = self._refusals.taken(planned.changed.keys())
        self._rivals.wrote(planned.changed, _undone(planned, meta), now)
        with self._lock:
            # the watch may have reported meanwhile that this Node was deleted
            if self._meta is not None and self._meta["uid"] == node["metadata"]["uid"]:
                self._take(node["metadata"])
        self._reports.wrote(len(planned.changed))
        return 0.0 if more else IDLE_SECONDS

    def _take(self, meta: Mapping[str, Any]) -> None:
        """Believe this from now on, unless it is older than what is known; the lock is held.

        A patch is answered with the newest Node, and the watch may yet send older ones:
        to believe them would repeat the write.
        """
        if not self._versions.take(self._name, meta):
            return
        if self._meta is None or self._meta["uid"] != meta["uid"]:
            self._is_new = True
        self._meta = {part: meta[part] for part in _KEPT if part in meta}


def _undone(planned: NodePatch, meta: Mapping[str, Any]) -> dict[str, str]:
    """Writers of the texts that a patch replaced, by key, from the Node's managedFields."""
    parts = (
        (KeyLocation.NODE_LABEL, planned.labels),
        (KeyLocation.NODE_ANNOTATION, planned.annotations),
    )
    return {
        key: ", ".join(writers(meta, where, key)) for where, changed in parts for key in changed
    }


def _notes(decisions: Decisions) -> dict[str, str]:
    """Keys whose texts leave something out, and what."""
    return {
        key: decision.note
        for key, decision in decisions.items()
        if isinstance(decision, Value) and decision.note
    }
