# SPDX-License-Identifier: Apache-2.0
"""The score table file of one class, made from its outcomes."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping

import msgspec

from api.gpu_request import GpuRequest, Link, gpu_request
from placement.score_table import PlacementOutcome
from tests.placement.score_table_file import ScoreRow, ScoreTableFile, with_hash


def all_gpu_requests(n: int) -> Iterator[GpuRequest]:
    """All requests of pods with one container, on nodes with ``n`` GPUs."""
    sizes, nics = range(1, n + 1), (False, True)
    for gpus, link, nic in itertools.product(sizes, Link, nics):
        yield gpu_request(gpus, link=link, nic=nic)


def table_file(
    gen: str,
    outcomes: Mapping[tuple[int, GpuRequest], PlacementOutcome],
    best_speed: Callable[[GpuRequest], int],
) -> ScoreTableFile:
    """The file of a class with these outcomes, by free GPUs and wish.

    ``best_speed``: gives the best speed of the class for a wish, in hundredths of a GB/s.
    """
    by_wish: dict[GpuRequest, dict[int, PlacementOutcome]] = defaultdict(dict)
    for (free, request), outcome in outcomes.items():
        by_wish[request][free] = outcome
    rows = [_row(request, by_free, best_speed(request)) for request, by_free in by_wish.items()]
    rows.sort(key=lambda row: msgspec.json.encode(row.wish))
    return with_hash(ScoreTableFile(gen=gen, rows=tuple(rows)))


def _row(request: GpuRequest, outcomes: Mapping[int, PlacementOutcome], best: int) -> ScoreRow:
    served = [(free, outcomes[free]) for free in sorted(outcomes) if outcomes[free].score]
    return ScoreRow(
        wish=request,
        free=tuple(free for free, _ in served),
        scores=tuple(outcome.score for _, outcome in served),
        speeds=tuple(outcome.speed for _, outcome in served),
        best=best,
        sets=tuple(outcome.likely for _, outcome in served),
    )
