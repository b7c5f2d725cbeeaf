# SPDX-License-Identifier: Apache-2.0
"""Counts outcomes and retries in the node's statuses since the agent's start, for metrics. Pure."""

from __future__ import annotations

from collections import Counter

from api.mig_status_annotation import MigStatusAnnotation
from base.text import rfc3339
from exporters.desired_layout_metrics import PHASES_WITHOUT_LAYOUT, RETRIED_ENDS, DesiredLayoutState


class OutcomeCounts:
    """Takes one status after the other and keeps the counts. One thread."""

    def __init__(self, *, enforced: bool) -> None:
        """``enforced``: the agent makes changes."""
        self._enforced = enforced
        self._phase = ""
        self._since = 0.0
        self._request = self._end = ""
        self._ended_plan = ""
        """Digest of the layouts of the newest request that has ended."""
        self._ends: Counter[str] = Counter()
        self._retries: Counter[str] = Counter()
        self.desired_layout: DesiredLayoutState | None = None
        """State of the requested layout; None where none is requested, as far as is known."""

    def go_on_from(self, shown: MigStatusAnnotation) -> None:
        """Take what the Node showed when the agent started: nothing of it is counted."""
        self._phase, self._since = shown.phase, rfc3339.unix_seconds(shown.since) or 0.0
        self._request, self._end = shown.request, shown.outcome
        self._ended_plan = shown.plan if shown.outcome else ""

    def take(self, status: MigStatusAnnotation, now: float, *, is_of_request: bool) -> None:
        """Take the status as it is now; ``now`` is Unix time.

        ``is_of_request``: its plan is that of its request, and not that of a newer desired layout.
        """
        if status.request != self._request:
            again = bool(status.plan) and status.plan == self._ended_plan
            if again and self._end in RETRIED_ENDS:
                self._retries[self._end] += 1
            self._request, self._end = status.request, ""
        if status.outcome and status.outcome != self._end:
            self._ends[status.outcome] += 1
            self._end, self._ended_plan = status.outcome, status.plan if is_of_request else ""
        if status.phase != self._phase or not self._since:
            self._phase, self._since = status.phase, now
        if status.phase in PHASES_WITHOUT_LAYOUT:
            self.desired_layout = None
            return
        self.desired_layout = DesiredLayoutState(
            phase=self._phase,
            since_seconds=self._since,
            ends=dict(self._ends),
            retries=dict(self._retries),
            enforced=self._enforced,
        )
