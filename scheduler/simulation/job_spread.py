# SPDX-License-Identifier: Apache-2.0
"""How far the pods of a job are spread over GPU models. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from scheduler.simulation.fleet_replay import Placed


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpread:
    """Figures about the jobs of which several pods were placed."""

    jobs: int
    mean_products: float
    """Mean number of products that a job's pods are on; 1 where each job stays on one."""


def job_spread(runs: Sequence[Sequence[Placed]]) -> JobSpread | None:
    """Figures over all runs, where a name is another job in each; None without such a job."""
    products: dict[tuple[int, str], list[str]] = defaultdict(list)
    for run, placed in enumerate(runs):
        for pod in placed:
            if pod.job is not None and pod.kind is not None and not pod.lost:
                products[run, pod.job].append(pod.kind.product or pod.kind.gen)
    counts = [len(set(names)) for names in products.values() if len(names) > 1]
    return JobSpread(jobs=len(counts), mean_products=fmean(counts)) if counts else None
