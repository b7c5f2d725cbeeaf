# SPDX-License-Identifier: Apache-2.0
"""Ranks of nodes for a pod."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from api.gpu_request import GpuRequest
from placement.class_tables import ScoreTables
from placement.score_table import MOST_GPUS, PlacementOutcome
from scheduler.cluster.node_views import Fleet, NoOutcome, NoView, ScoringView, View
from scheduler.known_scores import KnownScores, ScoreQuestion
from scheduler.placement_aims import Aims, FindTable, ProductOrder, node_aims, product_aims
from scheduler.pod_request import PodRequest
from scheduler.rank_levels import NEUTRAL, ranks

_AT_ONCE = 16
"""New outcomes of small classes that fit into a request; each takes up to a millisecond."""


class OutcomeUnknown(Exception):  # no error: the caller, who wants known outcomes only, calls again
    """An outcome that is needed is not computed yet."""


class RankedNode(NamedTuple):
    """Rank of a node among the nodes of the same call. A tuple, as a call makes thousands."""

    node: str
    view: View
    outcome: PlacementOutcome | None
    """None where the node cannot be scored, and while its table is being worked out."""
    aims: Aims | None
    """None if the node is not known to serve the pod."""
    rank: int
    """Score that the scheduler gets, 0 to 10."""


class Ranking(NamedTuple):
    """Scores for the scheduler, and what is counted of them."""

    ranks: list[int]
    unseen: Mapping[NoView | NoOutcome, int]
    """How many nodes cannot be scored, by reason."""


class NodeRanker:
    """Judges nodes for pods. Thread-safe; never waits."""

    def __init__(
        self, fleet: Fleet, tables: ScoreTables, order: ProductOrder = ProductOrder.FASTEST
    ) -> None:
        self._fleet = fleet
        self._tables = tables
        self._order = order
        self._known = KnownScores()

    def judge(self, ask: PodRequest, nodes: Sequence[str]) -> list[RankedNode]:
        """Verdicts in the order of ``nodes``; the same for the same fleet."""
        views = self._fleet.views(nodes)
        distinct = Counter(views)
        find = cache(self._tables.find)  # in one call the table of a class stays the same
        question = self._question(ask, distinct, find)
        evaluated = self._evaluated(question, distinct, find, only_known=False)
        levels = ranks([aims for _, aims in evaluated.values()])
        judged = {
            view: (outcome, aims, _level(view, outcome, level))
            for (view, (outcome, aims)), level in zip(evaluated.items(), levels, strict=True)
        }
        return [
            RankedNode(node, view, *judged[view]) for node, view in zip(nodes, views, strict=True)
        ]

    def rank(self, ask: PodRequest, nodes: Sequence[str], *, only_known: bool = False) -> Ranking:
        """The ranks of the nodes alone, many times as fast: most nodes of a fleet have equal views,
        and most views had their score in an earlier call.

        ``only_known``: raises OutcomeUnknown where an outcome would be worked out for them.
        """
        views = self._fleet.views(nodes)
        distinct = Counter(views)
        find = cache(self._tables.find)  # in one call the table of a class stays the same
        question = self._question(ask, distinct, find)
        score_of, unsettled = self._scores(question, distinct, find, only_known=only_known)
        scores = list(map(score_of.__getitem__, distinct))
        rank_of = dict(zip(distinct, ranks(scores), strict=True))
        unseen: Counter[NoView | NoOutcome] = Counter()
        if unsettled:
            for view, outcome in unsettled.items():
                rank_of[view] = _level(view, outcome, rank_of[view])
                reason = unscored(view, outcome, ask.wish, self._tables)
                if reason and score_of[view] is None:
                    unseen[reason] += distinct[view]
        return Ranking(ranks=list(map(rank_of.__getitem__, views)), unseen=unseen)

    def _scores(
        self,
        question: ScoreQuestion,
        views: Mapping[View, int],
        find: FindTable,
        *,
        only_known: bool,
    ) -> tuple[Mapping[View, Aims | None], Mapping[View, PlacementOutcome | None]]:
        """Aims of these views and maybe of more; then the outcomes of the unsettled views, which
        have none or are not sure: they are evaluated anew in each call."""
        known = self._known.find(question)
        if known.keys() >= views.keys():
            return known, {}
        new_views = [view for view in views if view not in known]
        new = self._evaluated(question, new_views, find, only_known=only_known)
        unsettled = {
            view: outcome
            for view, (outcome, aims) in new.items()
            if aims is None or isinstance(view, NoView) or not view.sure
        }
        scores = {view: new[view][1] if view in new else known[view] for view in views}
        # an unsettled score may change without its view, once its outcome is computed
        settled = {view: aims for view, (_, aims) in new.items() if view not in unsettled}
        self._known.add(question, settled)
        return scores, unsettled

    def _question(
        self, ask: PodRequest, views: Mapping[View, int], find: FindTable
    ) -> ScoreQuestion:
        """Everything that the scores of these views depend on, except the views themselves."""
        job_product, cliques = self._job(ask)
        aims = product_aims(ask.wish, views, find, self._order, job_product)
        return ScoreQuestion(ask.wish, frozenset(aims.items()), cliques)

    def _evaluated(
        self, question: ScoreQuestion, views: Iterable[View], find: FindTable, *, only_known: bool
    ) -> dict[View, tuple[PlacementOutcome | None, Aims | None]]:
        """Outcome and aims of each of these views, in order; None for a node that cannot be scored,
        and where the outcome is not known.

        A few new outcomes are computed at once. Views of one class and free set share an outcome.
        """
        wish, products, at_once = question.wish, dict(question.aims), _AT_ONCE
        outcomes: dict[tuple[str, int], PlacementOutcome | None] = {}
        evaluated: dict[View, tuple[PlacementOutcome | None, Aims | None]]
        evaluated = dict.fromkeys(views, (None, None))
        for view in evaluated:
            if isinstance(view, NoView):
                continue
            gen, free = place = view.gen, view.free
            if place not in outcomes:
                table = find(gen)
                outcome = table.kept(free, wish) if table else None
                if table and outcome is None and at_once and table.fits_a_request(wish):
                    if only_known:
                        raise OutcomeUnknown
                    at_once -= 1
                    outcome = table.outcome(free, wish)
                elif table and outcome is None:
                    outcome = table.known(free, wish)
                outcomes[place] = outcome
            if (outcome := outcomes[place]) is not None:
                in_clique, product = view.clique in question.cliques, products[view.product]
                aims = node_aims(outcome, view, wish, product, self._order, in_clique=in_clique)
                evaluated[view] = outcome, aims
        return evaluated

    def _job(self, ask: PodRequest) -> tuple[str | None, frozenset[str]]:
        """Product with most nodes of the pod's job, of equals that of its first pods, and the
        NVLink cliques with most of them."""
        if ask.job is None:
            return None, frozenset()
        views = [
            view
            for view in self._fleet.views(self._fleet.nodes_of(ask.job))
            if isinstance(view, ScoringView)
        ]
        products = Counter(view.product for view in views).most_common(1)
        cliques = Counter(view.clique for view in views if view.clique)
        most_nodes = max(cliques.values(), default=0)
        return (
            products[0][0] if products else None,
            frozenset([clique for clique, count in cliques.items() if count == most_nodes]),
        )


def unscored(
    view: View,
    outcome: PlacementOutcome | None,
    wish: GpuRequest,
    tables: ScoreTables,
) -> NoOutcome | NoView | None:
    """Why a node was not scored; None where it was, also with 0 as it cannot take the pod."""
    if isinstance(view, NoView):
        return view
    if outcome is None and tables.find(view.gen) is None:
        is_large = (view.ok | view.free).bit_length() > MOST_GPUS
        return NoOutcome.TOO_MANY_GPUS if is_large else NoOutcome.TOO_MANY_CLASSES
    if outcome is None:
        return NoOutcome.PENDING
    if outcome.given_up:
        return NoOutcome.GIVEN_UP
    if not outcome.sets and wish.gpus <= view.free.bit_count():
        return NoOutcome.TOO_MANY_CONTAINERS
    return None


def _level(view: View, outcome: PlacementOutcome | None, level: int) -> int:
    """The rank, one less (but not below 1) where the node's GPUs and pods do not agree; in the
    middle where the outcome was given up."""
    if outcome is not None and outcome.given_up:
        return NEUTRAL
    is_unsure = isinstance(view, ScoringView) and not view.sure
    return level - 1 if is_unsure and level > 1 else level
