"""Whether what the agent reads from answers, as its own metrics show it."""

from __future__ import annotations

import time
from collections.abc import Callable

from exporters.gpuscape.agent_metrics import AgentMetrics

Change = Callable[[AgentMetrics], None]


def source_report(
    change: Callable[[Change], None], source: str, wall: Callable[[], float] = time.time
) -> Callable[[bool], None]:
    """What takes whether ``source``, its name in metrics, could be read just now.

    ``change`` applies a change to the metrics; ``wall`` is Unix time, only shown.
    """

    def report(is_good: bool) -> None:
        at = wall()
        if is_good:
            change(lambda own: own.source_answered(source, at))
        else:
            change(lambda own: own.source_failed(source))

    return report
