# SPDX-License-Identifier: Apache-2.0
"""An experiment: several schedulers place the same pods, and their results are compared. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random
from typing import Final

from placement.class_tables import ScoreTables
from scheduler.placement_aims import ProductOrder
from scheduler.simulation import choosers
from scheduler.simulation.estimates import FigureDifference, compared, with_errors
from scheduler.simulation.fleet_replay import (
    Choose,
    NodeKind,
    Placed,
    ReplaySetup,
    Summary,
    replay,
    replay_summary,
)
from scheduler.simulation.job_spread import JobSpread, job_spread
from scheduler.simulation.size_warnings import warnings
from scheduler.simulation.workload import Arrival

OURS: Final = "gpuscape"
PARTS: Final = 10
"""Samples that a single run without seeds is cut into, in the order of arrival."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The fleet, pods and settings of an experiment."""

    kinds: tuple[NodeKind, ...]
    """The kind of each node."""
    runs: Sequence[Sequence[Arrival]]
    """Pods that arrive: one list for each seed, or one alone."""
    lag_seconds: float
    """Delay until a scheduler learns which GPUs a pod got."""
    first_seed: int
    lives: float | None
    """Mean lives of a pod that each run lasts; None for one run of given pods."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerResult:
    """Result of one scheduler over all runs."""

    scheduler: str
    never_placed: int
    """Pods that no node can hold."""
    all: Summary
    by_gpus: Mapping[int, Summary]
    """Number of GPUs that pods request to the summary of these pods."""
    samples: int
    """Number of samples behind the errors: seeds, or parts of a run."""
    compared: tuple[FigureDifference, ...] = ()
    """Comparisons of ours with every other scheduler; empty for others, and for too few runs."""
    jobs: JobSpread | None = None
    """None where no job has several pods."""
    warnings: tuple[str, ...] = ()
    """Warnings about runs that are too small; the same for all schedulers."""


def results(
    plan: Plan, tables: ScoreTables, order: ProductOrder = ProductOrder.FASTEST
) -> list[SchedulerResult]:
    """Results of the stock scheduler's two ways, of ours, and of one that knows the future."""
    schedulers: Mapping[str, Choose] = {
        "spread": choosers.spread,
        "pack": choosers.pack,
        OURS: choosers.ranked(tables, order),
        "foresight": choosers.foreseeing(choosers.predicted),
    }
    runs = {name: _runs(plan, choose) for name, choose in schedulers.items()}
    samples = {
        name: _parts(placed[0]) if plan.lives is None else placed for name, placed in runs.items()
    }
    figures = {name: list(map(replay_summary, parts)) for name, parts in samples.items()}
    ours = figures.pop(OURS)
    comparisons = compared(ours, figures)
    advice = "a longer file is needed" if plan.lives is None else "raise --pods or --seeds"
    pods = [sample.pods for sample in ours]
    warned = tuple(warnings(comparisons, samples=pods, advice=advice, lives=plan.lives))
    return [
        replace(
            _result(plan, name, parts),
            compared=comparisons if name == OURS else (),
            jobs=job_spread(runs[name]),
            warnings=warned,
        )
        for name, parts in samples.items()
    ]


def _runs(plan: Plan, choose: Choose) -> list[Sequence[Placed]]:
    setup = ReplaySetup(kinds=plan.kinds, give=choosers.predicted, lag_seconds=plan.lag_seconds)
    return [
        replay(setup, arrivals, choose, Random(seed))  # noqa: S311  # has to repeat
        for seed, arrivals in enumerate(plan.runs, plan.first_seed)
    ]


def _parts(placed: Sequence[Placed]) -> list[Sequence[Placed]]:
    """Equal parts of a run, each of consecutive pods; fewer than PARTS for fewer pods."""
    count = min(PARTS, len(placed))
    ends = [len(placed) * index // count for index in range(count + 1)] if count else []
    return [placed[begin:end] for begin, end in pairwise(ends)]


def _result(plan: Plan, scheduler: str, samples: Sequence[Sequence[Placed]]) -> SchedulerResult:
    placed = sum(map(len, samples))
    sizes = sorted({pod.wish.gpus for sample in samples for pod in sample})
    return SchedulerResult(
        scheduler=scheduler,
        never_placed=sum(map(len, plan.runs)) - placed,
        all=_summed(samples),
        by_gpus={
            size: _summed([[pod for pod in sample if pod.wish.gpus == size] for sample in samples])
            for size in sizes
        },
        samples=len(samples),
    )


def _summed(samples: Sequence[Sequence[Placed]]) -> Summary:
    """Summary of all pods, with the errors that the samples give."""
    pooled = replay_summary([pod for sample in samples for pod in sample])
    return with_errors(pooled, [replay_summary(sample) for sample in samples])
