# SPDX-License-Identifier: Apache-2.0
"""The GPUs that a pod got, compared with those that were predicted.

Pure. The kubelet chooses the devices, so a prediction is only ever judged afterwards, by the
state that the node's agent writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from api.gpu_request import Link
from placement.best_effort import Odds
from placement.masks import subsets
from placement.score_table import ScoreTable
from scheduler.pod_request import PodRequest

# 8 GPUs split among 8 containers in 40,320 ways (8!), 16 in 20 trillion
_MOST_GPUS_TO_SPLIT = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionCheck:
    """A newly bound pod's actual GPUs, from its node's state, with the prediction for it."""

    ask: PodRequest
    node: str
    gen: str
    """The node's topology class."""
    predicted: Odds
    """The last prediction before it showed up; empty where there was none: it may show up before
    the watch reports the binding."""
    actual: int
    """Mask of all GPUs of the pod."""

    @property
    def chance(self) -> float | None:
        """Odds that the prediction gave to the actual GPUs, 0 to 1; None without a prediction.

        0 is a miss: the actual set was not among the predicted ones.
        """
        return float(self.predicted.get(self.actual, 0)) if self.predicted else None


def speed(landing: PredictionCheck, table: ScoreTable) -> float | None:
    """GB/s of the slowest container's GPUs; None where it is unknown or there is none.

    The state does not say which container has which of the pod's GPUs: the best split counts.
    Containers with one GPU have no speed, and take none away.
    """
    splits = _possible(landing)
    return max((min(map(table.gbps, groups)) for groups in splits), default=None)


def is_ideal(landing: PredictionCheck, table: ScoreTable) -> bool | None:
    """No set of the node's class is faster; None where there is no speed to compare."""
    gbps = speed(landing, table)
    return None if gbps is None else gbps >= table.ideal(landing.ask.wish)


def is_unlinked(landing: PredictionCheck, table: ScoreTable) -> bool:
    """Whether the pod requested GPUs joined by NVLink and surely has others.

    One GPU alone is joined to nothing and misses nothing.
    """
    if landing.ask.wish.link is not Link.NVLINK:
        return False
    splits = [*_possible(landing)]
    return bool(splits) and not any(all(map(table.is_linked, groups)) for groups in splits)


def _possible(landing: PredictionCheck) -> Iterator[tuple[int, ...]]:
    """Ways in which the pod's containers with several GPUs may have them; none where it is not
    known, or there is no such container."""
    # containers that run at the same time
    sizes = tuple(step.gpus for step in landing.ask.wish.steps if not step.ends)
    if sum(sizes) != landing.actual.bit_count() or max(sizes, default=0) < 2:
        return
    if len(sizes) > 1 and sum(sizes) > _MOST_GPUS_TO_SPLIT:
        return
    for groups in _splits(landing.actual, sizes):
        yield tuple(group for group in groups if group.bit_count() > 1)


def _splits(mask: int, sizes: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """All ways to deal the set out in groups of these sizes."""
    if not sizes:
        yield ()
        return
    for group in subsets(mask, sizes[0]):
        rests = _splits(mask & ~group, sizes[1:])
        yield from ((group, *rest) for rest in rests)
