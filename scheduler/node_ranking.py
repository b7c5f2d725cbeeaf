# SPDX-License-Identifier: Apache-2.0
"""What each node is worth to one pod."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from api.gpu_request import GpuRequest
from scheduler.cluster.node_views import Fleet, NoView, ScoringView
from scheduler.pod_request import PodRequest
from scheduler.rank_levels import ranks
from scheduler.scores.class_tables import ScoreTables
from scheduler.scores.score import in_clique
from scheduler.scores.score_table import PlacementOutcome

_AT_ONCE = 16
"""So many new outcomes of small classes fit into a request; each takes up to a millisecond."""


class OutcomeUnknown(Exception):  # no error: the caller, who wants known outcomes only, calls again
    """An outcome that is needed is not computed yet."""


_Outcomes = Mapping[tuple[str, int], PlacementOutcome | None]
"""By class and free GPUs; None while it is being worked out."""


class RankedNode(NamedTuple):
    """One node, compared with the others of the same call. Tuples: a call makes thousands."""

    node: str
    view: ScoringView | NoView
    outcome: PlacementOutcome | None
    """None where the node cannot be scored, and while its table is being worked out."""
    clique: bool
    """Whether it is in the NVLink clique that has most of the job's nodes."""
    score: int
    """The outcome's, and the clique; 0 where the node is not known to serve the pod."""
    rank: int
    """Score that the scheduler gets, 0 to 10."""


class _Judged(NamedTuple):
    """What all nodes with equal views share; the rest of a :class:`RankedNode`."""

    outcome: PlacementOutcome | None
    clique: bool
    score: int
    rank: int


class Ranking(NamedTuple):
    """Scores for the scheduler, and what is counted of them."""

    ranks: list[int]
    unseen: Mapping[NoView, int]
    """How many nodes cannot be scored, by reason."""


class NodeRanker:
    """Judges nodes for pods. Thread-safe; never waits."""

    def __init__(self, fleet: Fleet, tables: ScoreTables) -> None:
        self._fleet = fleet
        self._tables = tables

    def judge(self, ask: PodRequest, nodes: Sequence[str]) -> list[RankedNode]:
        """Verdicts in the order of ``nodes``; the same for the same fleet."""
        views = self._fleet.views(nodes)
        judged = self._judged(ask, dict.fromkeys(views))
        return [
            RankedNode(node, view, *judged[view]) for node, view in zip(nodes, views, strict=True)
        ]

    def rank(self, ask: PodRequest, nodes: Sequence[str], *, only_known: bool = False) -> Ranking:
        """The ranks of the nodes alone, many times as fast: most nodes of a fleet have equal views.

        ``only_known``: raises OutcomeUnknown where an outcome would be worked out for them.
        """
        views = self._fleet.views(nodes)
        seen = Counter(views)
        judged = self._judged(ask, seen, only_known=only_known)
        rank_of = {view: each.rank for view, each in judged.items()}
        return Ranking(
            ranks=list(map(rank_of.__getitem__, views)),
            unseen={view: count for view, count in seen.items() if isinstance(view, NoView)},
        )

    def _judged(
        self, ask: PodRequest, views: Collection[ScoringView | NoView], *, only_known: bool = False
    ) -> Mapping[ScoringView | NoView, _Judged]:
        """Each of these views, no two of which are equal."""
        known = self._outcomes(ask.wish, views, only_known=only_known)
        cliques = self._cliques(ask)
        outcomes = [
            known[view.gen, view.free] if isinstance(view, ScoringView) else None for view in views
        ]
        inside = [isinstance(view, ScoringView) and view.clique in cliques for view in views]
        scores = [_score(*each) for each in zip(outcomes, inside, strict=True)]
        levels = map(_level, views, ranks(scores))
        return dict(zip(views, map(_Judged, outcomes, inside, scores, levels), strict=True))

    def _outcomes(
        self, wish: GpuRequest, views: Iterable[ScoringView | NoView], *, only_known: bool
    ) -> _Outcomes:
        """Of all classes and free sets there are; a few that are new are worked out at once."""
        found: dict[tuple[str, int], PlacementOutcome | None] = {}
        at_once = _AT_ONCE
        for view in views:
            if isinstance(view, NoView) or (view.gen, view.free) in found:
                continue
            table = self._tables.find(view.gen)
            outcome = table.known(view.free, wish) if table else None
            if table and outcome is None and at_once and table.fits_a_request(wish):
                if only_known:
                    raise OutcomeUnknown
                at_once -= 1
                outcome = table.outcome(view.free, wish)
            found[view.gen, view.free] = outcome
        return found

    def _cliques(self, ask: PodRequest) -> Collection[str]:
        """Those with the most nodes of the pod's job."""
        if ask.job is None:
            return ()
        views = self._fleet.views(set(self._fleet.nodes_of(ask.job)))
        nodes = Counter(
            view.clique for view in views if isinstance(view, ScoringView) and view.clique
        )
        most = max(nodes.values(), default=0)
        return {clique for clique, count in nodes.items() if count == most}


def _score(outcome: PlacementOutcome | None, inside: bool) -> int:
    if outcome is None or not outcome.score:
        return 0
    return in_clique(outcome.score) if inside else outcome.score


def _level(view: ScoringView | NoView, level: int) -> int:
    """One less, but never no data, for a node whose GPUs and pods do not agree."""
    is_unsure = isinstance(view, ScoringView) and not view.sure
    return level - 1 if is_unsure and level > 1 else level
