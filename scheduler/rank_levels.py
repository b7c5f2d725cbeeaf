# SPDX-License-Identifier: Apache-2.0
"""Aims of nodes to the few levels that a scheduler extender has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

from scheduler.placement_aims import Aims

BEST: Final = 10
"""The most that kube-scheduler takes from an extender: MaxExtenderPriority."""
LEVELS: Final[Mapping[str, int]] = {
    "taken": 1,
    "linked": 1,
    "job": 2,
    "product": 3,
    "speed": 6,
    "slowest": 6,
    "nic": 7,
    "kept": 8,
}
"""Rank of a node by the first aim in which it falls short of the best; of a slower set the highest
rank, of which it gets more the nearer it is to the best one."""
NEUTRAL: Final = 5
"""Rank of a node whose outcome was given up: below the best, above nodes known to be far worse."""


def ranks(aims: Sequence[Aims | None]) -> list[int]:
    """0 to 10 for each node; None, no data and no set, is 0.

    The best are 10, and only they. The others go by the first aim in which they
    fall short of the best, so that a trifle never weighs as much as slow links: 8 for
    a node that others need more, 1 for one that may refuse the pod or breaks its wish.
    """
    best = max(filter(None, aims), default=None)
    if best is None:
        return [0] * len(aims)
    rank_of = {own: _rank(own, best) if own else 0 for own in set(aims)}
    return list(map(rank_of.__getitem__, aims))


def shortfall(own: Aims, best: Aims) -> str:
    """Name of the first aim in which a node falls short of a better one."""
    return next(
        name for name, mine, theirs in zip(Aims._fields, own, best, strict=True) if mine != theirs
    )


@lru_cache(maxsize=2048)
def _rank(own: Aims, best: Aims) -> int:
    """Rank of one node, compared with the best one of the same call."""
    if own == best:
        return BEST
    short = shortfall(own, best)
    level = LEVELS[short]
    if short != "speed":
        return level
    lowest = LEVELS["product"] + 1
    return lowest + (level - lowest) * max(own.speed, 0) // max(best.speed, 1)
