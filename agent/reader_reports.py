# SPDX-License-Identifier: Apache-2.0
"""State of the device readers, in the agent's own metrics and its log."""

from __future__ import annotations

import logging
from collections import Counter

from base.log import dropped_lines
from base.log_once import LogOnce
from discovery.reader.reader_results import ReaderHealth
from exporters.gpuscape.agent_metrics import AgentMetrics, LossSource

log = logging.getLogger(__name__)


class ReaderReports:
    """Counts what has happened since the last report; one thread."""

    def __init__(self) -> None:
        self._starts = self._losses = 0
        self._replacements = Counter[str]()
        self._initialising = LogOnce()

    def show(self, health: ReaderHealth, own: AgentMetrics) -> None:
        """Show how the readers of one machine fare now."""
        replacements = Counter(health.replaced)
        for reason in (replacements - self._replacements).elements():
            own.reader_replaced(reason)
        self._replacements = replacements
        starts = health.starts - replacements.total()  # those that replace one are counted above
        for _ in range(max(self._starts, 1), starts):
            own.reader_restarted()
        self._starts = max(self._starts, starts)
        own.gpu_events_lost(LossSource.NVML, health.event_losses - self._losses)
        self._losses = health.event_losses
        own.log_lines_dropped(dropped_lines())
        own.readers_stuck(health.stuck)
        own.gpus_quarantined(len(health.quarantined))
        own.reader_initialises(health.initialising is not None)
        if (step := health.initialising) is not None and self._initialising.is_new(step):
            log.info("device reader initialising", extra={"what": step})
