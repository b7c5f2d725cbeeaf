# SPDX-License-Identifier: Apache-2.0
"""Keeps our labels in the agent's NodeFeature, from which nfd-master puts them on the Node.

The agent may get the object but not watch it. So it is read at the start, after a write
that failed, about once an hour, and as soon as the Node loses a label that stood there:
then nfd-master has seen a change of the object that we have not.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Collection, Mapping

from agent.cluster import node_feature
from agent.cluster.refused_keys import RefusedKeys
from agent.cluster.sink_reports import SinkReports
from agent.cluster.write_pace import FORBIDDEN_SECONDS, IDLE_SECONDS, SPREAD, WritePace, borrowed
from api import names
from base.errors import Permanent
from kube.api import NODE_FEATURES, Api, Object
from kube.api_errors import ApiError, NotFound
from kube.present_objects import present_object
from labelers.decision import Decisions, Keep, Value
from labelers.diff import decided

CHECK_SECONDS = 3600.0
"""Time between two reads of the object when all is well, give or take half of it."""


class FeatureSink:
    """Brings the NodeFeature to its desired labels. One thread ticks; any may call the rest."""

    def __init__(
        self,
        api: Api,
        name: str,
        *,
        namespace: str,
        may_write: Callable[[], bool],
        manager: str = names.AGENT,
        reports: SinkReports | None = None,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        """``name`` of the Node, ``namespace`` of the NodeFeature, ``manager`` of our fields.

        ``may_write``: whether the agent is confined and holds its Lease, called before each write.
        """
        self._api = api
        self._node_name = name
        self._name = names.node_feature(name)
        self._namespace = namespace
        self._may_write = may_write
        self._manager = manager
        self._reports = reports or SinkReports(NODE_FEATURES.kind)
        self._uniform = uniform
        self._pace = WritePace(uniform=uniform)
        self._refusals = RefusedKeys()
        self._present: Object | None = None
        self._check_at = float("-inf")
        self._lock = threading.Lock()
        self._desired: Decisions | None = None
        self._node: Object | None = None
        self._shown: frozenset[str] = frozenset()
        self._is_new = False
        self._suspect = False

    def set_desired(self, labels: Decisions) -> None:
        """Have nfd-master put these labels on the Node from now on."""
        with self._lock:
            self._desired = labels

    def observe(self, node: Object | None) -> None:
        """The Node as the watch shows it; None where there is none."""
        with self._lock:
            if node is None:
                self._node = None
                return
            meta = node["metadata"]
            known = self._node
            if known is None or known["metadata"]["uid"] != meta["uid"]:
                self._is_new = True
                self._shown = frozenset()
            self._node = {"metadata": {"name": meta["name"], "uid": meta["uid"]}}
            labels = meta.get("labels") or {}
            self._suspect |= any(self._is_desired(key) for key in self._shown - labels.keys())
            self._shown = frozenset(key for key in labels if self._is_desired(key))

    def tick(self, now: float) -> float:
        """Read or write what is due at this monotonic second; the seconds until the next time."""
        with self._lock:
            desired, node = self._desired, self._node
            is_new, self._is_new = self._is_new, False
            suspect, self._suspect = self._suspect, False
        if is_new:
            self._pace.restart()
            self._refusals.forget()
        if is_new or suspect:
            self._check_at = now
        if desired is None or node is None:
            return IDLE_SECONDS
        if not self._may_write():
            return FORBIDDEN_SECONDS
        if (held := self._pace.held(now)) > 0:
            return held
        try:
            if now >= self._check_at:
                self._read(node, now)
            return self._write(node, desired, now)
        except ApiError as error:
            return self._failed(error, now)

    def _is_desired(self, key: str) -> bool:
        """Whether this label is to have a value; the lock is held."""
        return isinstance(decided(key, self._desired or {}), Value)

    def _read(self, node: Object, now: float) -> None:
        name, namespace = self._name, self._namespace
        self._present = present_object(self._api, NODE_FEATURES, name, namespace=namespace)
        self._check_at = now + CHECK_SECONDS * self._uniform(*SPREAD)
        uid = node["metadata"]["uid"]
        if self._present is not None and node_feature.is_doomed(self._present, uid):
            self._check_at = now + IDLE_SECONDS

    def _write(self, node: Object, desired: Decisions, now: float) -> float:
        """Create or patch the object when that is due; nothing where it is another's."""
        present = self._present
        if present is not None and not node_feature.is_ours(present, self._manager):
            why = f"somebody else made it in {self._namespace}; delete it, and it is made anew"
            self._reports.kept_out({self._name: why}, {})
            return IDLE_SECONDS
        labels = node_feature.feature_labels(present, desired)
        self._reports.kept_out({}, labels.dropped)
        self._report_refused(labels.texts)
        kept = dict.fromkeys(self._refusals.left_out(now), Keep(reason="it was refused"))
        labels = node_feature.feature_labels(present, {**desired, **kept})
        if present is not None:
            body = node_feature.feature_patch(present, self._node_name, labels.texts)
        else:
            body = node_feature.new_node_feature(node, labels.texts) if labels.texts else {}
        if not body:
            if self._refusals.taken():
                return 0.0
            self._pace.settled()
            self._reports.well()
            return IDLE_SECONDS
        changed = body.get("spec", {}).get("labels", {})
        wait = self._pace.wait(now, borrowed=borrowed(changed))
        return wait if wait > 0 else self._send(body, changed.keys(), now)

    def _report_refused(self, texts: Mapping[str, str]) -> None:
        """Report which labels are refused, once a search is over."""
        if not self._refusals.searching:
            present_labels = node_feature.NodeFeature.from_object(self._present or {}).spec.labels
            reasons = self._refusals.reasons.items()
            self._reports.refused(
                {key: why for key, why in reasons if texts.get(key) != present_labels.get(key)}
            )

    def _send(self, body: Object, keys: Collection[str], now: float) -> float:
        """Create the object, or patch the one there is; ``keys``: the labels that change."""
        self._pace.sent(now)
        try:
            if self._present is None:
                feature = self._api.create(NODE_FEATURES, body, namespace=self._namespace)
            else:
                feature = self._api.patch(
                    NODE_FEATURES, self._name, body, namespace=self._namespace
                )
        except ApiError as error:
            if not keys or not isinstance(error, Permanent):
                raise
            self._refusals.refused(keys, error, now)
            return 0.0
        self._present = feature
        self._pace.succeeded()
        more = self._refusals.taken(keys)
        self._reports.wrote(len(keys))
        return 0.0 if more else IDLE_SECONDS

    def _failed(self, error: ApiError, now: float) -> float:
        """Report it; the seconds to wait. Whatever became of a write: read before the next."""
        self._check_at = now
        unknown = isinstance(error, NotFound) and self._present is None
        why = f"{node_feature.NO_KIND} ({error})" if unknown else str(error)
        self._reports.failed(why, lasting=unknown or isinstance(error, Permanent))
        return self._pace.failed(now, error, slowly=unknown)
