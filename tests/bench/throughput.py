# SPDX-License-Identifier: Apache-2.0
"""What the extender costs kube-scheduler, beside a compiled one that does nothing.

The real kube-scheduler with the shipped profile binds a queue of pods that was full while it
was stopped. All arms have a scheduler each on the same control plane, and take turns in the same
rounds: without an extender, with ours, and with a compiled one over the same transport.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any, NamedTuple

from scheduler.simulation.estimates import student
from tests.bench.extender import FLEET, compiled, fleet, settle
from tests.bench.page import Section
from tests.cluster import gpu_fleet
from tests.cluster.extender import Extender, extender
from tests.cluster.scheduling import Stage, configuration

NONE, OURS, ZEROS, IDLE = "none", "ours", "zeros", "idle"
ARMS = (NONE, OURS, ZEROS, IDLE)
"""Without an extender; with ours; with the compiled one that gives each node a 0; with the same
that does not even look into the request, and answers an empty list."""

FAST_QPS = 5000
"""What binds must not be held up by: far above what the scheduler reaches."""
STOCK_QPS = {"qps": 50, "burst": 100}
"""kube-scheduler's own default."""

BIND_SECONDS = 300.0
_TWO_SIDED = 0.9
"""Confidence of an interval of which one end alone has 95 %."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One size of cluster, and how the scheduler is set up."""

    nodes: int
    pods: int
    rounds: int
    runs: int = 1
    """Each has a control plane of its own."""
    percentage: int | None = 100
    """Of nodes that fit, how many are scored; None: kube-scheduler's own choice."""
    stock_client: bool = False

    @property
    def title(self) -> str:
        """For the page."""
        sampled = ", a sample of them" if self.percentage is None else ""
        limits = ", stock client limits" if self.stock_client else ""
        return f"{self.nodes:,} nodes{sampled}{limits}"


CASES = (
    Case(nodes=100, pods=230, rounds=15, runs=2),
    Case(nodes=100, pods=230, rounds=5, stock_client=True),
    Case(nodes=500, pods=1100, rounds=15, runs=2),
    Case(nodes=500, pods=500, rounds=5, stock_client=True),
    Case(nodes=5000, pods=400, rounds=5),
    Case(nodes=5000, pods=800, rounds=5, percentage=None),
)

Speeds = dict[str, list[float]]
"""Arm to pods a second, one for each round."""


def hundreds() -> Section:
    """Clusters of a usual size."""
    return _throughput("Hundreds of nodes", [case for case in CASES if case.nodes < FLEET])


def thousands() -> Section:
    """The largest cluster that Kubernetes is meant for."""
    return _throughput("Thousands of nodes", [case for case in CASES if case.nodes >= FLEET])


def _throughput(title: str, cases: Sequence[Case]) -> Section:
    """Every case, on a control plane for each size and run."""
    rows: list[tuple[str, ...]] = []
    for nodes in sorted({case.nodes for case in cases}):
        asked = [case for case in cases if case.nodes == nodes]
        for number in range(max(case.runs for case in asked)):
            with cluster(nodes) as (stage, folder):
                rows += [
                    row(case, number, run(stage, folder, case))
                    for case in asked
                    if number < case.runs
                ]
    return Section(
        title=title,
        text=(
            "kube-scheduler 1.37 with the shipped profile binds pods that ask for 1, 2, 4 or 8 "
            "GPUs on nodes of 8; all pods are bound in every arm. Pods a second from the first "
            "bind to the last, by the audit log, without an extender, and what part of that is "
            "left with one: the extender; a compiled one that gives every node a 0; the same when "
            "it does not look into the request and answers an empty list. All over the same "
            "transport, TLS with client certificates. Each has a scheduler of its own and a turn "
            "in each round, while the others stand still; ratios are the geometric mean of the "
            "rounds' own ratios, and to the compiled one also what the mean is at least with 95 % "
            "confidence (one-sided, Student's t). Scheduler, extender, API server and store share "
            "the cores. Client limits are far above what is reached but where it says stock (50 a "
            "second, bursts of 100)."
        ),
        columns=(
            "",
            "rounds",
            "without, pods/s",
            "extender",
            "compiled, zeros",
            "compiled, empty",
            "extender / compiled, zeros (target 0.80)",
            "extender / compiled, empty",
        ),
        rows=tuple(rows),
    )


def row(case: Case, number: int, speeds: Speeds) -> tuple[str, ...]:
    """The figures of a case's run, counted from 0."""
    return (
        f"{case.title}, run {number + 1}" if case.runs > 1 else case.title,
        str(case.rounds),
        f"{median(speeds[NONE]):.0f}",
        *(f"{ratio(speeds, arm, NONE).mean:.2f}" for arm in (OURS, ZEROS, IDLE)),
        *(
            f"{its.mean:.2f}, at least {its.least:.2f}"
            for its in (ratio(speeds, OURS, arm) for arm in (ZEROS, IDLE))
        ),
    )


class Ratio(NamedTuple):
    """How much of one arm's speed another has."""

    mean: float
    """Geometric, over the rounds."""
    least: float
    """The mean is no less with 95 % confidence."""


def ratio(speeds: Speeds, arm: str, of: str) -> Ratio:
    """Of rounds that both arms had, two at least."""
    logs = [math.log(one / other) for one, other in zip(speeds[arm], speeds[of], strict=True)]
    middle, freedom = fmean(logs), len(logs) - 1
    error = stdev(logs) / math.sqrt(len(logs))
    least = middle - student(_TWO_SIDED, freedom) * error
    return Ratio(mean=math.exp(middle), least=math.exp(least))


@contextlib.contextmanager
def cluster(nodes: int) -> Iterator[tuple[Stage, Path]]:
    """A control plane with so many GPU nodes, and a folder."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        with Stage.running(folder) as stage:
            made = fleet(nodes)
            gpu_fleet.add_nodes(stage.plane, made)
            gpu_fleet.tell_states(stage.plane, made)
            yield stage, folder


def run(stage: Stage, folder: Path, case: Case, arms: Sequence[str] = ARMS) -> Speeds:
    """All rounds of a case; each starts with another arm."""
    speeds: Speeds = {arm: [] for arm in arms}
    with contextlib.ExitStack() as running:
        schedulers = {
            arm: running.enter_context(scheduler(stage, folder, case, arm)) for arm in arms
        }
        for number in range(case.rounds):
            first = number % len(arms)
            for arm in (*arms[first:], *arms[:first]):
                with helping(schedulers[arm]):
                    speeds[arm].append(bound_per_second(stage, case, arm, schedulers, seed=number))
    return speeds


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduler:
    """A kube-scheduler that runs."""

    pid: int
    helper: Extender | None
    """Ours, if it has that: it runs in its own turns only, since its watches cost the API server
    something."""


@contextlib.contextmanager
def scheduler(stage: Stage, folder: Path, case: Case, arm: str) -> Iterator[Scheduler]:
    """An arm's, for pods that name the arm as their scheduler."""
    programs = stage.plane.programs
    with contextlib.ExitStack() as running:
        address = helper = None
        if arm == OURS:
            helper = running.enter_context(extender(stage, folder))
            address = helper.address
            helper.kill()
        elif arm != NONE:
            answer = "none" if arm == IDLE else "zeros"
            address = running.enter_context(compiled(stage, answer=answer))
        pid = stage.start_scheduler(configured(stage, case, address, arm), arm)
        running.callback(programs.stop, arm)
        yield Scheduler(pid=pid, helper=helper)


@contextlib.contextmanager
def helping(arm: Scheduler) -> Iterator[None]:
    """Have our helper run for a turn, where that arm has one."""
    if arm.helper is None:
        yield
        return
    arm.helper.start_again()
    try:
        settle(arm.helper.process.pid)  # score tables are worked out after the start
        yield
    finally:
        arm.helper.kill()


@contextlib.contextmanager
def stopped(pids: Sequence[int]) -> Iterator[None]:
    """These processes stand still, until somebody has one go on, or until the end."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def bound_per_second(
    stage: Stage, case: Case, arm: str, schedulers: Mapping[str, Scheduler], *, seed: int
) -> float:
    """Have an arm bind all pods, while no other scheduler does anything; then they are gone."""
    plane = stage.plane
    pids = [each.pid for each in schedulers.values()]
    settle(*pids)
    with stopped(pids):
        gpu_fleet.add_pods(plane, stage.namespace, case.pods, scheduler=arm, seed=seed)
        mark = plane.mark()
        os.kill(schedulers[arm].pid, signal.SIGCONT)
        plane.programs.wait(arm, lambda: not waiting(stage), seconds=BIND_SECONDS)
    bound = [
        datetime.fromisoformat(event["stageTimestamp"]).timestamp()
        for event in plane.audit(
            since=mark, verb="create", resource="pods", subresource="binding", code=201
        )
    ]
    assert len(bound) == case.pods, f"{arm}: {len(bound)} of {case.pods} pods were bound"
    stage.remove_pods()
    return (len(bound) - 1) / (max(bound) - min(bound))


def configured(stage: Stage, case: Case, address: str | None, profile: str) -> dict[str, Any]:
    """The shipped configuration as this case has it."""
    made = configuration(address, stage.client, profile=profile, leads=False)
    if case.percentage is None:
        del made["profiles"][0]["percentageOfNodesToScore"]
    limits = STOCK_QPS if case.stock_client else {"qps": FAST_QPS, "burst": FAST_QPS}
    return {**made, "clientConnection": limits}


def waiting(stage: Stage) -> bool:
    """Whether any pod is not bound yet."""
    path = f"/api/v1/namespaces/{stage.namespace}/pods?fieldSelector=spec.nodeName%3D&limit=1"
    time.sleep(0.3)  # it costs the API server something
    return bool(stage.plane.demand("GET", path)["items"])
