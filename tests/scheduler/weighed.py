# SPDX-License-Identifier: Apache-2.0
"""Outcomes of a table as nodes are compared by them, where no product and no job counts."""

from __future__ import annotations

from api.gpu_request import GpuRequest
from placement.score_table import ScoreTable
from scheduler.cluster.node_views import ScoringView
from scheduler.placement_aims import Aims, ProductAims, ProductOrder, node_aims

NO_PRODUCT = ProductAims(best_speed=0, place=0, keeps_whole=False, is_jobs=False)
NOTHING = Aims(taken=0)
"""Less than any node that can serve the pod."""


def weighed(table: ScoreTable, free: int, wish: GpuRequest) -> Aims:
    """Aims of a node of this class with these free GPUs."""
    seen = ScoringView(gen="1" * 10, free=free, ok=(1 << table.n) - 1)
    outcome = table.outcome(free, wish)
    found = node_aims(outcome, seen, wish, NO_PRODUCT, ProductOrder.FASTEST, in_clique=False)
    return found or NOTHING
