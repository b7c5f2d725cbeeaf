"""Events, with a budget: they help people, and never cost the program or the cluster much.

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

from base.backoff import Backoff
from kube.api import EVENTS, Api, Object
from kube.api_errors import ApiError, Busy, Conflict, NotFound, Unauthorized, Unreachable
from kube.lease import micro_time

BURST = 25
GAP_SECONDS = 300.0
"""One Event of a reason about a subject in this time; and the burst grows back one by one."""
REMEMBERED = 100
LONGEST_NOTE = 1024
STEM = r"[a-z0-9](.{0,198}[a-z0-9])?"
"""What an Event's name has of its subject's: as far as there is room for the digest behind it."""
DIGEST_DIGITS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class _Event:
    name: str
    body: Object
    at: datetime


class Recorder:
    """Takes Events at any moment, sends them when :meth:`flush` is called. Thread-safe."""

    def __init__(
        self,
        api: Api,
        *,
        controller: str,
        instance: str,
        namespace: str,
        backoff: Backoff | None = None,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """``controller`` reports, as ``instance`` (its pod), Events that live in ``namespace``."""
        self._api = api
        self._controller = controller
        self._instance = instance
        self._namespace = namespace
        self._backoff = backoff or Backoff()
        self._clock = clock
        self._now = now
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._waiting: deque[_Event] = deque()
        self._recorded: dict[tuple[str, str], float] = {}
        self._full_at = clock()
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
    ) -> None:
        """Take one Event about ``regarding`` (apiVersion, kind, name, uid); never blocks or raises.

        ``reason`` and ``action`` are words in CamelCase; ``note`` is cut at 1 KiB.
        """
        subject = f"{regarding.get('kind')}/{regarding.get('name')}/{regarding.get('uid')}"
        with self._lock:
            if not self._within_budget((subject, reason)):
                self.dropped += 1
                return
            self._waiting.append(self._event(regarding, reason, action, note, warning))

    def flush(self) -> None:
        """Send what waits; what the server cannot take now is kept for later. Never raises."""
        with self._sending:
            while self._waiting and self._clock() >= self._send_at:
                try:
                    self._send(self._waiting[0])
                except (Busy, Unauthorized, Unreachable) as error:
                    self._send_at = self._clock() + self._backoff.failed(error)
                    return
                except ApiError:
                    self.dropped += 1
                self._backoff.succeeded()
                self._waiting.popleft()

    def _within_budget(self, key: tuple[str, str]) -> bool:
        now = self._clock()
        last = self._recorded.get(key)
        if last is not None and now - last < GAP_SECONDS:
            return False
        full_at = max(self._full_at, now) + GAP_SECONDS
        if full_at - now > BURST * GAP_SECONDS or len(self._waiting) >= BURST:
            return False
        self._full_at = full_at
        self._recorded = {
            kept: at for kept, at in self._recorded.items() if now - at < GAP_SECONDS
        } | {key: now}
        return True

    def _event(
        self, regarding: Mapping[str, str], reason: str, action: str, note: str, warning: bool
    ) -> _Event:
        at = self._now()
        kind = "Warning" if warning else "Normal"
        said = (self._controller, *sorted(regarding.items()), reason, action, note, kind)
        digest = hashlib.sha256(repr(said).encode()).hexdigest()[:DIGEST_DIGITS]
        stem = re.match(STEM, regarding.get("name", ""))
        name = f"{stem[0] if stem else ''}.{digest}"
        body: Object = {
            "metadata": {"name": name, "namespace": self._namespace},
            "eventTime": micro_time(at),
            "reportingController": self._controller,
            "reportingInstance": self._instance,
            "regarding": dict(regarding),
            "reason": reason,
            "action": action,
            "note": note.encode()[:LONGEST_NOTE].decode(errors="ignore"),
            "type": kind,
        }
        return _Event(name=name, body=body, at=at)

    def _send(self, event: _Event) -> None:
        """Make it, or count one more of it: its name says all it says, so a restart finds it."""
        if event.name in self._counts:
            try:
                self._repeat(event, self._counts[event.name] + 1)
            except NotFound:  # the cluster forgot it
                del self._counts[event.name]
            else:
                return
        try:
            self._api.create(EVENTS, event.body, namespace=self._namespace)
            self._remember(event.name, 1)
        except Conflict:
            # an empty patch changes nothing and answers with the object: no right to get is needed
            there = self._api.patch(EVENTS, event.name, {}, namespace=self._namespace)
            self._repeat(event, (there.get("series") or {}).get("count", 1) + 1)

    def _repeat(self, event: _Event, count: int) -> None:
        series = {"count": count, "lastObservedTime": micro_time(event.at)}
        self._api.patch(EVENTS, event.name, {"series": series}, namespace=self._namespace)
        self._remember(event.name, count)

    def _remember(self, name: str, count: int) -> None:
        self._counts[name] = count
        if len(self._counts) > REMEMBERED:
            del self._counts[next(iter(self._counts))]
