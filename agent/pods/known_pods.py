# SPDX-License-Identifier: Apache-2.0
"""Pods of this node by the API server: UID and chosen labels, where pods may be read."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from agent.metrics.source_reports import WatchReport
from exporters.gpuscape.agent_metrics import AgentMetrics
from kube.api import Object
from kube.api_errors import Forbidden
from kube.informer import ObjectGone, ObjectSeen, WatchConnected, WatchEvent, WatchLost
from kube.objects.pod import Pod

SOURCE: Final = "pods"

_ILLEGAL = re.compile(r"[^a-zA-Z0-9_]")
_RIGHT = (
    "the agent may not read pods: apply deploy/pods, or switch off what asks for them:"
    " pod-uid-label, pod-labels, virtual-gpus"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownPod:
    """A pod's values that are kept."""

    namespace: str
    name: str
    uid: str
    static_uid: str | None = None
    """UID that the kubelet has for a static pod, and that its cgroup has; ``uid`` is its mirror's.
    """
    ended: bool
    """Whether the pod will never run again; it has no device any more, whoever still lists it."""
    labels: tuple[tuple[str, str], ...] = ()
    """Chosen labels, with names that Prometheus allows, sorted."""


class KnownPods:
    """The pods of this node. Any thread may call anything."""

    def __init__(
        self,
        *,
        labels: Sequence[re.Pattern[str]] | None,
        update_metrics: Callable[[Callable[[AgentMetrics], None]], None],
        wall: Callable[[], float] = time.time,
    ) -> None:
        """``labels``: what is found in a label's key for it to be kept; empty keeps all, None none.

        ``update_metrics`` gets changes of the metrics of the watch; ``wall`` is Unix time, only
        shown.
        """
        self._allowed = labels
        self._lock = threading.Lock()
        self._pods: dict[tuple[str, str], KnownPod] = {}
        self._watch = WatchReport(update_metrics, SOURCE, wall)

    def on_watch_event(self, event: WatchEvent) -> None:
        """Take one event of a watch of the pods."""
        match event:
            case ObjectSeen(object=seen):
                pod = self._known(seen)
                with self._lock:
                    self._pods[pod.namespace, pod.name] = pod
            case ObjectGone(namespace=namespace, name=name):
                with self._lock:
                    self._pods.pop((namespace or "", name), None)
            case WatchConnected():
                self._watch.connected()
            case WatchLost(error=error):
                self._watch.lost(_RIGHT if isinstance(error, Forbidden) else str(error))

    def named(self, namespace: str, name: str) -> KnownPod | None:
        """The pod of that name, if it is known."""
        with self._lock:
            return self._pods.get((namespace, name))

    def by_uid(self, uid: str) -> KnownPod | None:
        """The pod for which its kubelet has that UID, if it is known.

        A static pod only where no pod has that UID itself: whoever may create pods may write the
        annotations of another one's mirror.
        """
        with self._lock:
            pods = tuple(self._pods.values())
        by_static_uid = (pod for pod in pods if pod.static_uid == uid)
        return next((pod for pod in pods if pod.uid == uid), next(by_static_uid, None))

    def _known(self, seen: Object) -> KnownPod:
        pod = Pod.from_object(seen)
        meta = pod.metadata
        return KnownPod(
            namespace=meta.namespace,
            name=meta.name,
            uid=meta.uid,
            static_uid=pod.static_uid,
            ended=pod.is_finished,
            labels=() if self._allowed is None else chosen_labels(meta.labels, self._allowed),
        )


def chosen_labels(
    labels: Mapping[str, str], allowed: Sequence[re.Pattern[str]]
) -> tuple[tuple[str, str], ...]:
    """The labels whose key one of the patterns is found in, by :func:`label_name`, sorted.

    No pattern allows all. Of two keys that come to one name the first in alphabetical order is
    kept, whatever their values, so that the series stay the same ones.
    Source: dcgm-exporter's --kubernetes-pod-label-allowlist-regex, which keeps any of the two.
    """
    named: dict[str, str] = {}
    for key in sorted(labels):
        name = label_name(key)
        is_allowed = not allowed or any(pattern.search(key) for pattern in allowed)
        if is_allowed and name and not name.startswith("__"):  # those are Prometheus' own
            named.setdefault(name, labels[key])
    return tuple(sorted(named.items()))


def label_name(key: str) -> str:
    """A label's key with ``_`` for whatever Prometheus does not allow, and before a leading digit.

    Source: Prometheus' data model; dcgm-exporter, which lets the digit through.
    """
    name = _ILLEGAL.sub("_", key)
    return f"_{name}" if name[:1].isdigit() else name
