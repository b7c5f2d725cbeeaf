# SPDX-License-Identifier: Apache-2.0
"""Results of predictions: metrics of their quality, and the Event on a pod with unlinked GPUs."""

from __future__ import annotations

import logging
from collections.abc import Callable

from placement.class_tables import ScoreTables
from scheduler.cluster.predictions import PredictionCheck, is_ideal, is_unlinked
from scheduler.extender.extender_metrics import ExtenderMetrics

log = logging.getLogger(__name__)


class PredictionResults:
    """Counts and logs how good the prediction was for each pod that got its GPUs."""

    def __init__(
        self,
        tables: ScoreTables,
        metrics: ExtenderMetrics,
        unlinked: Callable[[PredictionCheck], None] | None,
    ) -> None:
        """``unlinked`` is called with pods that requested linked GPUs and have others."""
        self._tables = tables
        self._metrics = metrics
        self._unlinked = unlinked

    def take(self, landing: PredictionCheck) -> None:
        """Count one prediction. Speeds are compared only while the node's class is known."""
        table = self._tables.find(landing.gen)
        ideal = None if table is None else is_ideal(landing, table)
        unlinked = table is not None and is_unlinked(landing, table)
        self._metrics.landed(odds=landing.chance, ideal=ideal, unlinked=unlinked)
        log.info(
            "GPUs allocated to pod",
            extra={
                "pod": f"{landing.ask.namespace}/{landing.ask.name}",
                "node": landing.node,
                "gpus": f"{landing.actual:x}",
                "odds": landing.chance,
                "ideal": ideal,
            },
        )
        if unlinked and self._unlinked is not None:
            self._unlinked(landing)
