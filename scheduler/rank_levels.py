# SPDX-License-Identifier: Apache-2.0
"""Scores to the few levels that a scheduler extender has."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from placement.score import aims

BEST = 10
"""The most that kube-scheduler takes from an extender: MaxExtenderPriority."""
COSTS_OTHERS, FARTHER_FROM_NIC, OTHER_CLIQUE, OTHERS_TURN, BREAKS_WHOLE = 8, 7, 6, 5, 4
_SLOWER = 3
"""Highest rank of a slower set; it gets the part of it that its speed is of the best one's."""
NEUTRAL = 5
"""Rank of a node whose outcome was given up: below the best, above nodes known to be worse."""


def ranks(scores: Sequence[int | None]) -> list[int]:
    """0 to 10 for each score; None and 0, no data and no set, are 0.

    The best are 10, and only they. The others go by the first aim in which they
    fall short of the best, so that a trifle never weighs as much as slow links: 8 for
    a node that others need more, 1 for one that may refuse the pod or breaks its wish.
    """
    best = max(filter(None, scores), default=0)
    rank_of = {score: _rank(score, best) if score else 0 for score in set(scores)}
    return list(map(rank_of.__getitem__, scores))


@lru_cache(maxsize=2048)
def _rank(score: int, best_score: int) -> int:
    """Rank of one score, compared with the best score of the same call."""
    if score == best_score:
        return BEST
    own, best = aims(score), aims(best_score)
    if (own.taken, own.linked) != (best.taken, best.linked):
        return 1
    if own.speed != best.speed:
        return max(1, -(-_SLOWER * own.speed // best.speed))
    if own.whole != best.whole:
        return BREAKS_WHOLE
    if own.share != best.share:
        return OTHERS_TURN
    if own.clique != best.clique:
        return OTHER_CLIQUE
    if own.nic != best.nic:
        return FARTHER_FROM_NIC
    return COSTS_OTHERS
