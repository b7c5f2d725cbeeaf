# SPDX-License-Identifier: Apache-2.0
"""Whether the agent's ticks are being run, for metrics, log and the end of the process."""

from __future__ import annotations

import logging

from base.tick_watch import TickWatch
from exporters.gpuscape.agent_metrics import AgentMetrics

log = logging.getLogger(__name__)

EXIT_TICK_STOPPED = 70
"""A part of the agent runs no longer. EX_SOFTWARE of sysexits.h."""


class TickHealth:
    """Shows how the ticks fare; for the main thread, which needs none of them."""

    def __init__(self, watch: TickWatch, own: AgentMetrics) -> None:
        self._watch = watch
        self._own = own

    def has_stopped(self) -> bool:
        """Whether a tick has stopped for good, which is logged: the process has to end."""
        stall = self._watch.check()
        self._own.ticks_stalled(0.0 if stall is None else stall.seconds)
        if stall is None or not stall.has_stopped:
            return False
        why = "its run does not end" if stall.running else "it is due and no thread runs it"
        facts = {"tick": stall.tick, "seconds": round(stall.seconds), "why": why}
        log.error("tick stopped", extra=facts)
        return True
