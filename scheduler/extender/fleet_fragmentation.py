# SPDX-License-Identifier: Apache-2.0
"""Worth of a fleet's free GPUs to pods that need linked ones, by topology class."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from placement.class_tables import ScoreTables
from scheduler.cluster.node_views import Fleet, NoView, ScoringView
from scheduler.extender.extender_metrics import ClassUse, FleetUse, NodeVisibility

_VISIBILITY: Final = {True: NodeVisibility.SURE, False: NodeVisibility.UNSURE}


def fleet_use(fleet: Fleet, nodes: Iterable[str], tables: ScoreTables, *, synced: bool) -> FleetUse:
    """Visibility of all nodes now, and the worth of their free GPUs."""
    views = fleet.views(nodes)
    by_class: dict[str, list[ScoringView]] = defaultdict(list)
    for view in views:
        if isinstance(view, ScoringView):
            by_class[view.gen].append(view)
    return FleetUse(
        synced=synced,
        views=[view if isinstance(view, NoView) else _VISIBILITY[view.sure] for view in views],
        classes=[_class_use(gen, alike, tables) for gen, alike in sorted(by_class.items())],
    )


def _class_use(gen: str, views: list[ScoringView], tables: ScoreTables) -> ClassUse:
    """Use of one class; worth is 0 for nodes with more GPUs than can be evaluated quickly."""
    table = tables.find(gen)
    masks = [view.free for view in views]
    use = ClassUse(gen=gen, nodes=len(views), free=sum(map(int.bit_count, masks)))
    if table is None or not table.is_quick:
        return use
    return replace(
        use,
        worth=sum(map(table.linked_worth, masks)),
        best_worth=sum(table.most_worth(mask.bit_count()) for mask in masks),
    )
