# SPDX-License-Identifier: Apache-2.0
"""Whether what the agent reads from answers, as its own metrics and its log show it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from base.log_once import LogOnce
from exporters.gpuscape.agent_metrics import AgentMetrics

log = logging.getLogger(__name__)

Change = Callable[[AgentMetrics], None]


def source_report(
    change: Callable[[Change], None], source: str, wall: Callable[[], float] = time.time
) -> Callable[[bool], None]:
    """A function that takes whether ``source``, its name in metrics, could be read just now.

    ``change`` applies a change to the metrics; ``wall`` is Unix time, only shown.
    """

    def report(is_good: bool) -> None:
        now = wall()
        if is_good:
            change(lambda own: own.source_answered(source, now))
        else:
            change(lambda own: own.source_failed(source))

    return report


class WatchReport:
    """Whether one watch of the API server is connected. One thread."""

    def __init__(
        self, change: Callable[[Change], None], source: str, wall: Callable[[], float] = time.time
    ) -> None:
        """The arguments are those of :func:`source_report`."""
        self._source = source
        self._report = source_report(change, source, wall)
        self._losses = LogOnce()

    def connected(self) -> None:
        """The watch reports changes from now on."""
        self._report(True)
        self._losses.clear()

    def lost(self, why: str) -> None:
        """The watch reports nothing; each reason is logged once, not at every attempt."""
        self._report(False)
        if self._losses.is_new(why):
            log.warning("watch lost", extra={"source": self._source, "why": why})
