# SPDX-License-Identifier: Apache-2.0
"""Scores that a node's view was found to have, so that the next request need not make them again.

Between two requests few nodes change: of a hundred views one or two are new.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from api.gpu_request import GpuRequest
from scheduler.cluster.node_views import View
from scheduler.placement_aims import Aims, ProductAims

_MOST_SCORES: Final = 8192
"""Scores that are kept, over all questions: one to two MiB. With one more all are dropped."""
_MOST_STEPS: Final = 16
"""Containers of a pod whose scores are kept, at most: a pod may have thousands."""


class ScoreQuestion(NamedTuple):
    """Everything that the score of a view depends on, except the view itself."""

    wish: GpuRequest
    aims: frozenset[tuple[str, ProductAims]]
    """Aims that depend on all candidates and not on a node alone, by product."""
    cliques: frozenset[str]
    """NVLink cliques that have most of the job's nodes."""


class KnownScores:
    """Scores by question and view. Thread-safe.

    None ever becomes wrong: a view's class is a hash of all that its score table is made of.
    """

    def __init__(self, max_scores: int = _MOST_SCORES) -> None:
        self._max_scores = max_scores
        self._scores: dict[ScoreQuestion, dict[View, Aims | None]] = {}

    def find(self, question: ScoreQuestion) -> Mapping[View, Aims | None]:
        """The scores that are known; the mapping grows with :meth:`add`, and loses none."""
        return self._scores.get(question, {})

    def add(self, question: ScoreQuestion, scores: Mapping[View, Aims | None]) -> None:
        """Keep these as well."""
        if len(question.wish.steps) > _MOST_STEPS:
            return
        kept = sum(map(len, list(self._scores.values())))
        if kept + len(scores) > self._max_scores:
            self._scores = {}  # a thread that reads an old mapping still has it
        self._scores.setdefault(question, {}).update(scores)
