"""The one Event about a pod: it asked for linked GPUs and did not get them.

Its name is made from the pod's UID, so that there is one whatever the number of replicas, and
whatever the number of restarts: who comes second finds it there, and that is all right.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from api import keys, names
from base.backoff import Backoff
from kube.api import EVENTS, Api, Object
from kube.api_errors import ApiError, Busy, Conflict, Unauthorized, Unreachable
from kube.lease import micro_time
from scheduler.cluster.predictions import PredictionCheck
from scheduler.scores.masks import members

REASON: Final = "GpusNotLinked"
ACTION: Final = "Allocating"
BURST = 50
GAP_SECONDS = 5.0
"""The burst grows back one by one in this time: Events help people, and never cost much."""


class PodEvents:
    """Takes what happened at any moment, sends it when :meth:`flush` is called. Thread-safe."""

    def __init__(
        self,
        api: Api,
        *,
        instance: str,
        backoff: Backoff | None = None,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """``instance``: who reports, the name of its pod or machine."""
        self._api = api
        self._instance = instance
        self._backoff = backoff or Backoff()
        self._clock = clock
        self._now = now
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._waiting: deque[Object] = deque()
        self._full_at = self._send_at = clock()
        self.dropped = 0
        """Events over the budget, or refused by the server."""

    def unlinked(self, landing: PredictionCheck) -> None:
        """The pod wanted linked GPUs and has others; never blocks or raises."""
        body = event(landing, instance=self._instance, at=self._now())
        with self._lock:
            full_at = max(self._full_at, self._clock()) + GAP_SECONDS
            if full_at - self._clock() > BURST * GAP_SECONDS or len(self._waiting) >= BURST:
                self.dropped += 1
                return
            self._full_at = full_at
            self._waiting.append(body)

    def flush(self) -> None:
        """Send what waits; what the server cannot take now is kept for later. Never raises."""
        with self._sending:
            while self._waiting and self._clock() >= self._send_at:
                body = self._waiting[0]
                try:
                    self._api.create(EVENTS, body, namespace=body["metadata"]["namespace"])
                except (Busy, Unauthorized, Unreachable) as error:
                    self._send_at = self._clock() + self._backoff.failed(error)
                    return
                except Conflict:
                    pass  # another replica was first, or our own first try arrived after all
                except ApiError:
                    self.dropped += 1
                self._backoff.succeeded()
                self._waiting.popleft()


def event(landing: PredictionCheck, *, instance: str, at: datetime) -> Object:
    """The Event's body."""
    pod = landing.ask
    gpus = ", ".join(map(str, members(landing.actual)))
    return {
        "metadata": {"name": names.pod_event(pod.uid), "namespace": pod.namespace},
        "eventTime": micro_time(at),
        "reportingController": names.SCHEDULER,
        "reportingInstance": instance,
        "regarding": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": pod.namespace,
            "name": pod.name,
            "uid": pod.uid,
        },
        "reason": REASON,
        "action": ACTION,
        "note": (
            f"The pod wishes GPUs joined by NVLink ({keys.LINK}=nvlink) and was given GPUs {gpus}"
            f" of {landing.node}, which are not all joined by it. It runs, but slower; deleting"
            " it lets it try again."
        ),
        "type": "Warning",
    }
