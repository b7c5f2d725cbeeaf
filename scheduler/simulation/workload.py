# SPDX-License-Identifier: Apache-2.0
"""Pods that come one after the other: read from a file, or drawn from a mix of sizes."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from types import MappingProxyType
from typing import Final

from api.gpu_request import GpuRequest, Link, gpu_request
from base.errors import BadInput

SUBMITTED, LASTS, GPUS = "submit_seconds", "duration_seconds", "gpus"
LINK, NIC, JOB = "link", "nic", "job"
_NEEDED = (SUBMITTED, LASTS, GPUS)
_NIC_WORDS = {"": False, "false": False, "true": True}
MOST_BYTES: Final = 256 << 20
"""Size of a file at most: some millions of pods, a line each."""
MOST_GPUS = 1024
"""GPUs of a pod at most: as many as a topology annotation may have."""

USUAL: Mapping[int, float] = MappingProxyType({1: 0.5, 2: 0.25, 4: 0.2, 8: 0.05})
"""Half of the pods ask for one GPU, every twentieth for eight. Assumed: docs/scheduler-quality.md
has the results for this mix and for that of a trace."""
PUBLISHED: Mapping[int, float] = MappingProxyType({1: 3911, 2: 222, 4: 206, 8: 556})
"""Pods that ask for whole GPUs, by how many; those that ask for eight have most of the GPUs.
Source: github.com/alibaba/clusterdata, cluster-trace-gpu-v2023, openb_pod_list_multigpu50.csv."""
USUAL_SECONDS = 600.0
"""About the median time that a pod with whole GPUs lives: 587 s. The mean is fifty times that.
Source: the same trace, openb_pod_list_default.csv, deletion_time less scheduled_time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A pod that arrives: when, with how many GPUs, and for how long."""

    at_seconds: float
    lasts_seconds: float
    """Duration from the moment that the pod has its GPUs."""
    wish: GpuRequest
    job: str | None = None
    """Name of the pod's job, equal for all its pods; None for a pod on its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """Pods whose sizes, gaps and lives are drawn."""

    sizes: Mapping[int, float] = field(default_factory=lambda: USUAL)
    """Number of GPUs to how often it is requested, in any unit."""
    load: float = 0.85
    """Share of all GPUs that are requested at a time."""
    pods: int = 8000
    mean_seconds: float = USUAL_SECONDS
    job_pods: int = 1
    """Pods of a job, which have one size and come at the same moment; 1 for pods on their own."""

    def lives(self, gpus: int) -> float:
        """Mean lives of a pod that all of these take to arrive at a fleet with so many GPUs."""
        return self.pods * self.mean_size / (self.load * gpus)

    @property
    def mean_size(self) -> float:
        """GPUs that a pod requests on average."""
        shares = self.sizes.items()
        return sum(size * share for size, share in shares) / sum(self.sizes.values())


def drawn_arrivals(mix: Mix, gpus: int, chance: Random) -> tuple[Arrival, ...]:
    """Arrivals for a fleet with so many GPUs: Poisson, with exponential lives."""
    sizes, shares = zip(*sorted(mix.sizes.items()), strict=True)
    jobs_per_second = mix.load * gpus / (mix.mean_size * mix.mean_seconds * mix.job_pods)
    arrivals: list[Arrival] = []
    now = 0.0
    while len(arrivals) < mix.pods:
        now += chance.expovariate(jobs_per_second)
        (size,) = chance.choices(sizes, shares)
        job = f"job-{len(arrivals)}" if mix.job_pods > 1 else None
        arrivals += [
            Arrival(
                at_seconds=now,
                lasts_seconds=chance.expovariate(1 / mix.mean_seconds),
                wish=gpu_request(size),
                job=job,
            )
            for _ in range(mix.job_pods)
        ]
    return tuple(arrivals[: mix.pods])


def read_arrivals(text: str, source: str) -> tuple[Arrival, ...]:
    """The arrivals of a CSV file, by time; its first line names the columns.

    ``submit_seconds``, ``duration_seconds`` and ``gpus`` have to be there; ``link`` and ``nic``
    are as the pod annotations, pods with the same text in ``job`` are of one job; other columns are
    passed over. Raises BadInput that names the line and the column.
    """
    rows = csv.DictReader(io.StringIO(text, newline=""), restval="")
    missing = [name for name in _NEEDED if name not in (rows.fieldnames or ())]
    if missing:
        raise BadInput(f"{source}:1: no column {', '.join(missing)}; name it in the first line")
    try:
        arrivals = [_arrival(row, f"{source}:{rows.line_num}") for row in rows]
    except csv.Error as error:
        raise BadInput(f"{source}:{rows.line_num + 1}: not CSV: {error}") from error
    if not arrivals:
        raise BadInput(f"{source} has no pods: give one a line")
    return tuple(sorted(arrivals, key=lambda arrival: arrival.at_seconds))


def _arrival(row: Mapping[str, str], place: str) -> Arrival:
    gpus = _number(row, GPUS, place)
    if not (gpus.is_integer() and 1 <= gpus <= MOST_GPUS):
        raise BadInput(f"{place}: {GPUS} is {row[GPUS]!r}, not a whole number of 1 to {MOST_GPUS}")
    link, nic = row.get(LINK) or Link.ANY, row.get(NIC) or ""
    if link not in list(Link):
        raise BadInput(f"{place}: {LINK} is {link!r}, not one of {', '.join(Link)}")
    if nic not in _NIC_WORDS:
        raise BadInput(f"{place}: {NIC} is {nic!r}, not true or false")
    return Arrival(
        at_seconds=_number(row, SUBMITTED, place),
        lasts_seconds=_number(row, LASTS, place),
        wish=gpu_request(int(gpus), link=Link(link), nic=_NIC_WORDS[nic]),
        job=row.get(JOB) or None,
    )


def _number(row: Mapping[str, str], column: str, place: str) -> float:
    try:
        number = float(row[column])
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise BadInput(f"{place}: {column} is {row[column]!r}, not a number of 0 or more")
    return number
