# SPDX-License-Identifier: Apache-2.0
"""Records Kubernetes Events within a budget, so that they never cost a cluster much.

Source: Kubernetes API events.k8s.io/v1. An Event is immutable but for its series, which
counts repetitions; the cluster forgets it after an hour by default.
"""

from __future__ import annotations

import hashlib
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from api import names
from base.backoff import Backoff
from base.bucket import Bucket
from base.text.safe_text import safe_line
from kube.api import EVENTS, NODES, Api, Object
from kube.api_errors import ApiError, Busy, Conflict, NotFound, Unauthorized, Unreachable
from kube.lease import micro_time

REMEMBERED = 100
"""Number of Events whose count is kept, by their names."""
LONGEST_NOTE = 1024
STEM = r"[a-z0-9](.{0,198}[a-z0-9])?"
"""The part of its subject's name in an Event's name, which leaves room for the digest behind it."""
DIGEST_DIGITS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class EventBudget:
    """Bounds on the Events that a program sends; those above them are dropped and counted."""

    burst: int
    """Events that may be sent at once, and that may wait while the server is away."""
    refill_seconds: float
    """Time after which one more Event may be sent, up to the burst."""
    repeat_seconds: float = 0.0
    """Time in which a subject gets no second Event of a reason; 0: no bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Event:
    body: Object
    time: datetime
    counts: bool
    """A repetition is counted in the series of the Event that exists."""

    @property
    def name(self) -> str:
        return str(self.body["metadata"]["name"])

    @property
    def namespace(self) -> str:
        return str(self.body["metadata"]["namespace"])


def node_regarding(name: str, uid: str) -> Mapping[str, str]:
    """The Node that an Event regards."""
    return {"apiVersion": NODES.api_version, "kind": NODES.kind, "name": name, "uid": uid}


class EventSink(Protocol):
    """Takes Events; :meth:`Recorder.record` has the meaning of the arguments."""

    def record(
        self,
        regarding: Mapping[str, str],
        *,
        reason: str,
        action: str,
        note: str,
        warning: bool = False,
    ) -> None: ...


class Recorder:
    """Takes Events at any time, and sends them when :meth:`flush` is called. Thread-safe."""

    def __init__(
        self,
        api: Api,
        *,
        controller: str,
        instance: str,
        budget: EventBudget,
        dropped: Callable[[], None] = lambda: None,
        backoff: Backoff | None = None,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """``controller`` reports, as ``instance`` (the name of its pod or machine).

        ``dropped`` is called for each Event that is not recorded.
        """
        self._on_drop = dropped
        self._api = api
        self._controller = controller
        self._instance = instance
        self._budget = budget
        self._bucket = Bucket(interval_seconds=budget.refill_seconds, burst=budget.burst)
        self._backoff = backoff or Backoff()
        self._clock = clock
        self._now = now
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._waiting: deque[_Event] = deque()
        self._recorded: dict[tuple[str, str], float] = {}
        self._send_at = clock()
        self._counts: dict[str, int] = {}
        self.dropped = 0
        """Events over the budget, or refused by the server."""

    def record(
        self,
        regarding: Mapping[str, str],
        *,
        reason: str,
        action: str,
        note: str,
        warning: bool = False,
        name: str | None = None,
    ) -> None:
        """Take one Event about ``regarding`` (apiVersion, kind, namespace, name, uid).

        Never blocks or raises. ``reason`` and ``action`` are words in CamelCase; ``note`` is cut
        at 1 KiB; of all three what is no plain text is escaped. With a ``name`` there is one Event
        of that name, whichever replica makes it, and it is never counted up; without a name the
        name follows from the content, and an Event of equal content is counted in its series.
        """
        note = safe_line(note)  # kubectl may show it as it is
        subject = f"{regarding.get('kind')}/{regarding.get('name')}/{regarding.get('uid')}"
        with self._lock:
            if not self._within_budget((subject, reason)):
                self._drop()
                return
            now = self._now()
            body: Object = {
                "metadata": {"namespace": regarding.get("namespace") or names.EVENT_NAMESPACE},
                "eventTime": micro_time(now),
                "reportingController": self._controller,
                "reportingInstance": self._instance,
                "regarding": dict(regarding),
                "reason": safe_line(reason),
                "action": safe_line(action),
                "note": note.encode()[:LONGEST_NOTE].decode(errors="ignore"),
                "type": "Warning" if warning else "Normal",
            }
            body["metadata"]["name"] = name or _name_by_content(body, note)
            self._waiting.append(_Event(body=body, time=now, counts=name is None))

    def flush(self) -> None:
        """Send the waiting Events; those that the server cannot take now are kept. Never raises."""
        with self._sending:
            while self._waiting and self._clock() >= self._send_at:
                try:
                    self._send(self._waiting[0])
                except (Busy, Unauthorized, Unreachable) as error:
                    self._send_at = self._clock() + self._backoff.failed(error.retry_after_seconds)
                    return
                except ApiError:
                    self._drop()
                self._backoff.succeeded()
                self._waiting.popleft()

    def _drop(self) -> None:
        self.dropped += 1
        self._on_drop()

    def _within_budget(self, key: tuple[str, str]) -> bool:
        now = self._clock()
        last, quiet_seconds = self._recorded.get(key), self._budget.repeat_seconds
        if last is not None and now - last < quiet_seconds:
            return False
        if len(self._waiting) >= self._budget.burst or not self._bucket.take(now):
            return False
        self._recorded = {
            event_key: recorded_at
            for event_key, recorded_at in (self._recorded | {key: now}).items()
            if now - recorded_at < quiet_seconds
        }
        return True

    def _send(self, event: _Event) -> None:
        """Create the Event, or count it as a repetition: a restarted program finds it by name."""
        if event.name in self._counts:
            try:
                self._repeat(event, self._counts[event.name] + 1)
            except NotFound:  # the cluster forgot it
                del self._counts[event.name]
            else:
                return
        try:
            self._api.create(EVENTS, event.body, namespace=event.namespace)
        except Conflict:
            if event.counts:
                # an empty patch changes nothing and answers with the object: no right to get
                existing = self._api.patch(EVENTS, event.name, {}, namespace=event.namespace)
                self._repeat(event, (existing.get("series") or {}).get("count", 1) + 1)
        else:
            if event.counts:
                self._remember(event.name, 1)

    def _repeat(self, event: _Event, count: int) -> None:
        series = {"count": count, "lastObservedTime": micro_time(event.time)}
        self._api.patch(EVENTS, event.name, {"series": series}, namespace=event.namespace)
        self._remember(event.name, count)

    def _remember(self, name: str, count: int) -> None:
        self._counts[name] = count
        if len(self._counts) > REMEMBERED:
            del self._counts[next(iter(self._counts))]


def _name_by_content(body: Object, note: str) -> str:
    """The name by an Event's content, so that a repetition finds the existing Event."""
    regarding = body["regarding"]
    content = (
        body["reportingController"],
        *sorted(regarding.items()),
        *(body["reason"], body["action"], note, body["type"]),
    )
    stem = re.match(STEM, regarding.get("name", ""))
    digest = hashlib.sha256(repr(content).encode()).hexdigest()[:DIGEST_DIGITS]
    return f"{stem[0] if stem else ''}.{digest}"
