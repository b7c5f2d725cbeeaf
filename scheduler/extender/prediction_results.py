# SPDX-License-Identifier: Apache-2.0
"""Results of predictions: metrics of their quality, and the Event on a pod with unlinked GPUs."""

from __future__ import annotations

import logging
from collections.abc import Callable

from placement.class_tables import ScoreTables
from scheduler.cluster.predictions import PredictionCheck, is_ideal, is_unlinked
from scheduler.extender.extender_metrics import ExtenderMetrics

log = logging.getLogger(__name__)


def count_prediction(
    tables: ScoreTables,
    metrics: ExtenderMetrics,
    unlinked: Callable[[PredictionCheck], None] | None,
    landing: PredictionCheck,
) -> None:
    """Count and log how good the prediction was for a pod that got its GPUs.

    Speeds are compared only while the node's class is known. ``unlinked`` is called with a pod that
    requested linked GPUs and has others.
    """
    table = tables.find(landing.gen)
    ideal = None if table is None else is_ideal(landing, table)
    is_missed = table is not None and is_unlinked(landing, table)
    metrics.landed(odds=landing.chance, ideal=ideal, unlinked=is_missed)
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
    if is_missed and unlinked is not None:
        unlinked(landing)
