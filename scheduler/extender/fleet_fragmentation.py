# SPDX-License-Identifier: Apache-2.0
"""Worth of a fleet's free GPUs to pods that need linked ones, by topology class."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from placement.class_tables import ScoreTables
from scheduler.cluster.node_views import Fleet, NoView, ScoringView
from scheduler.extender.extender_metrics import ClassUse, FleetUse, NodeVisibility


def fleet_use(fleet: Fleet, nodes: Iterable[str], tables: ScoreTables, *, synced: bool) -> FleetUse:
    """Visibility of all nodes now, and the worth of their free GPUs."""
    views = fleet.views(nodes)
    by_class: dict[str, list[ScoringView]] = defaultdict(list)
    for view in views:
        if isinstance(view, ScoringView):
            by_class[view.gen].append(view)
    return FleetUse(
        synced=synced,
        views=[
            view
            if isinstance(view, NoView)
            else NodeVisibility.SURE
            if view.sure
            else NodeVisibility.UNSURE
            for view in views
        ],
        classes=[
            _class_use(gen, class_views, tables) for gen, class_views in sorted(by_class.items())
        ],
    )


def _class_use(gen: str, views: list[ScoringView], tables: ScoreTables) -> ClassUse:
    """Use of one class; worth is 0 for nodes with more GPUs than can be evaluated quickly."""
    table = tables.find(gen)
    quick = table is not None and table.is_quick
    return ClassUse(
        gen=gen,
        nodes=len(views),
        free=sum(view.free.bit_count() for view in views),
        worth=sum(table.linked_worth(view.free) for view in views) if table and quick else 0.0,
        best_worth=sum(table.most_worth(view.free.bit_count()) for view in views)
        if table and quick
        else 0.0,
    )
