"""What the extender costs kube-scheduler, beside a compiled one that does nothing.

The real kube-scheduler with the shipped profile binds a queue of pods that was full before it
started. All arms run in turns in the same rounds on the same control plane: without an
extender, with ours, and with a compiled one over the same transport.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import ssl
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from pathlib import Path
from statistics import median
from typing import Any

from tests.bench.clock import percentile
from tests.bench.page import Section
from tests.bench.programs import cpu_seconds, pss_mib
from tests.cluster import gpu_fleet
from tests.cluster.extender import extender
from tests.cluster.front import HOST, Connection
from tests.cluster.scheduling import ACCOUNT, SERVICE, Stage, configuration
from tests.controlplane.builds import binaries
from tests.controlplane.components import free_port
from tests.controlplane.families import IDLE_EXTENDER
from tests.controlplane.plane import Plane

MACHINES = ("dgx1-v100", "a100-pcie-pairs", "hgx-h100", "hgx-h100-rdma")
"""Eight GPUs each: a mesh, pairs, and NVSwitch twice."""

NONE, OURS, ZEROS, IDLE = "none", "ours", "zeros", "idle"
ARMS = (NONE, OURS, ZEROS, IDLE)
"""Without an extender; with ours; with the compiled one that gives each node a 0; with the same
that does not even look into the request, and answers an empty list."""

FAST_QPS = 5000
"""What binds must not be held up by: far above what the scheduler reaches."""
STOCK_QPS = {"qps": 50, "burst": 100}
"""kube-scheduler's own default."""

BIND_SECONDS = 300.0
QUIET_CPU_SECONDS = 0.02
"""Of each half second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One size of cluster, and how the scheduler is set up."""

    nodes: int
    pods: int
    rounds: int
    """Odd, so that a median is one of them."""
    waves: int = 1
    """How often in a round as many pods are bound, by the same scheduler."""
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
    Case(nodes=100, pods=230, rounds=9, waves=4),
    Case(nodes=100, pods=230, rounds=5, stock_client=True),
    Case(nodes=500, pods=1100, rounds=9),
    Case(nodes=500, pods=500, rounds=5, stock_client=True),
    Case(nodes=5000, pods=400, rounds=5),
    Case(nodes=5000, pods=800, rounds=5, percentage=None),
)

FLEET = 5000

Speeds = dict[str, list[float]]
"""Arm to pods a second, one for each round."""


def throughput() -> Section:
    """Clusters of a usual size."""
    return _throughput("Hundreds of nodes", [case for case in CASES if case.nodes < FLEET])


def throughput_of_a_fleet() -> Section:
    """The largest cluster that Kubernetes is meant for."""
    return _throughput("Thousands of nodes", [case for case in CASES if case.nodes >= FLEET])


def _throughput(title: str, cases: Sequence[Case]) -> Section:
    """Every case, on a control plane for each size."""
    measured: list[tuple[Case, Speeds]] = []
    for nodes in sorted({case.nodes for case in cases}):
        with cluster(nodes) as (stage, folder):
            measured += [(case, run(stage, folder, case)) for case in cases if case.nodes == nodes]
    return Section(
        title=title,
        text=(
            "kube-scheduler 1.37 with the shipped profile binds pods that ask for 1, 2, 4 or 8 "
            "GPUs on nodes of 8; all pods are bound in every arm, on small clusters several times "
            "over. Pods a second from the first "
            "bind to the last, by the audit log, without an extender, and what part of that is "
            "left with one: the helper; a compiled one that gives every node a 0; the same when "
            "it does not look into the request and answers an empty list. All over the same "
            "transport, TLS with client certificates. Ratios are the median of the rounds' own "
            "ratios. Scheduler, extender, API server and store share the cores. Client limits are "
            "far above what is reached but where it says stock (50 a second, bursts of 100)."
        ),
        columns=(
            "",
            "rounds",
            "without, pods/s",
            "helper",
            "compiled, zeros",
            "compiled, empty",
            "helper / compiled, zeros (target 0.80)",
            "helper / compiled, empty",
        ),
        rows=tuple(row(case, speeds) for case, speeds in measured),
    )


def row(case: Case, speeds: Speeds) -> tuple[str, ...]:
    """One case's figures."""
    return (
        case.title,
        str(case.rounds),
        f"{median(speeds[NONE]):.0f}",
        *(f"{ratio(speeds, arm, NONE):.2f}" for arm in (OURS, ZEROS, IDLE)),
        *(f"{ratio(speeds, OURS, arm):.2f}" for arm in (ZEROS, IDLE)),
    )


def ratio(speeds: Speeds, arm: str, of: str) -> float:
    """Median over the rounds of how much of one arm's speed the other has."""
    return median(one / other for one, other in zip(speeds[arm], speeds[of], strict=True))


def fleet(count: int) -> list[gpu_fleet.Written]:
    """So many nodes, of all machines in turns."""
    return [
        gpu_fleet.Written(name=f"gpu-{number:04}", machine=MACHINES[number % len(MACHINES)])
        for number in range(count)
    ]


@contextlib.contextmanager
def cluster(nodes: int) -> Iterator[tuple[Stage, Path]]:
    """A control plane with so many GPU nodes, and a folder."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        with Plane.start(folder / "plane", controller_manager=False) as plane:
            stage = Stage.create(plane, folder / "admin")
            made = fleet(nodes)
            gpu_fleet.add_nodes(plane, made)
            gpu_fleet.tell_states(plane, made)
            yield stage, folder


def run(stage: Stage, folder: Path, case: Case, arms: Sequence[str] = ARMS) -> Speeds:
    """All rounds of a case; each starts with another arm."""
    speeds: Speeds = {arm: [] for arm in arms}
    for number in range(case.rounds):
        first = number % len(arms)
        for arm in (*arms[first:], *arms[:first]):
            speeds[arm].append(bound_per_second(stage, folder, case, arm, seed=number))
    return speeds


def bound_per_second(stage: Stage, folder: Path, case: Case, arm: str, *, seed: int) -> float:
    """Bind all pods, in each wave once; afterwards they are gone again."""
    plane = stage.plane
    seconds = 0.0
    gpu_fleet.add_pods(plane, stage.namespace, case.pods, seed=seed)
    with serving(stage, folder, arm) as address:
        mark = plane.mark()
        scheduler = stage.start_scheduler(configured(stage, case, address))
        try:
            for wave in range(case.waves):
                if wave:
                    os.kill(scheduler, signal.SIGSTOP)
                    stage.remove_pods()
                    gpu_fleet.add_pods(plane, stage.namespace, case.pods, seed=seed)
                    mark = plane.mark()
                    os.kill(scheduler, signal.SIGCONT)
                plane.programs.wait(ACCOUNT, lambda: not waiting(stage), seconds=BIND_SECONDS)
                seconds += binding_seconds(plane, case.pods, since=mark)
        finally:
            plane.programs.stop(ACCOUNT)
    stage.remove_pods()
    return case.waves * (case.pods - 1) / seconds


def binding_seconds(plane: Plane, pods: int, *, since: int) -> float:
    """From the first bind to the last, of so many and no fewer."""
    bound = [
        datetime.fromisoformat(event["stageTimestamp"]).timestamp()
        for event in plane.audit(
            since=since, verb="create", resource="pods", subresource="binding", code=201
        )
    ]
    assert len(bound) == pods, f"{len(bound)} of {pods} pods were bound"
    return max(bound) - min(bound)


def configured(stage: Stage, case: Case, address: str | None) -> dict[str, Any]:
    """The shipped configuration as this case has it."""
    made = configuration(address, stage.client, leads=False)
    if case.percentage is None:
        del made["profiles"][0]["percentageOfNodesToScore"]
    limits = STOCK_QPS if case.stock_client else {"qps": FAST_QPS, "burst": FAST_QPS}
    return {**made, "clientConnection": limits}


@contextlib.contextmanager
def serving(stage: Stage, folder: Path, arm: str) -> Iterator[str | None]:
    """The arm's extender, where it has one."""
    match arm:
        case "none":
            yield None
        case "ours":
            with extender(stage, folder) as helper:
                settle(helper.process.pid)
                yield helper.address
        case _:
            with compiled(stage, answer="none" if arm == IDLE else "zeros") as address:
                yield address


def settle(pid: int) -> None:
    """Wait until a process has nothing to do: score tables are worked out after the start."""
    before, now = 0.0, cpu_seconds(pid)
    while now - before > QUIET_CPU_SECONDS:
        time.sleep(0.5)
        before, now = now, cpu_seconds(pid)


@contextlib.contextmanager
def compiled(stage: Stage, *, answer: str) -> Iterator[str]:
    """The compiled one, which has its certificate and key in one file."""
    programs, port = stage.plane.programs, free_port()
    both = stage.server.certificate.with_name("both.pem")
    both.write_bytes(stage.server.certificate.read_bytes() + stage.server.key.read_bytes())
    command: list[str | Path] = [
        binaries(IDLE_EXTENDER) / "idle-extender",
        f"-listen={HOST}:{port}",
        f"-certificate={both}",
        f"-client-ca={stage.server.authority}",
        f"-answer={answer}",
    ]
    programs.start(IDLE_EXTENDER.name, command)
    try:
        programs.wait(IDLE_EXTENDER.name, lambda: listens(port))
        yield f"https://{HOST}:{port}"
    finally:
        programs.stop(IDLE_EXTENDER.name)


def listens(port: int) -> bool:
    """Whether somebody does, there."""
    with socket.socket() as tried:
        return tried.connect_ex((HOST, port)) == 0


def waiting(stage: Stage) -> bool:
    """Whether any pod is not bound yet."""
    path = f"/api/v1/namespaces/{stage.namespace}/pods?fieldSelector=spec.nodeName%3D&limit=1"
    time.sleep(0.3)  # it costs the API server something
    return bool(stage.plane.demand("GET", path)["items"])


PODS_EACH = 4
CALLS = (100, 500, 5000)
"""Names in a request."""
BODIES = 20
"""Different requests of each kind."""
CALLS_EACH = 25


def answers() -> Section:
    """How fast the helper answers and what it needs, where the fleet is large and half full."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        with Plane.start(folder / "plane", controller_manager=False) as plane:
            stage = Stage.create(plane, folder / "admin")
            fill(stage)
            bodies = {names: requests(stage, names) for names in CALLS}
            with compiled(stage, answer="none") as address:
                floor = {names: seconds_of(stage, address, each) for names, each in bodies.items()}
            began = time.monotonic()
            with extender(stage, folder) as helper:
                synced = time.monotonic() - began
                settle(helper.process.pid)
                fresh = pss_mib(helper.process.pid)
                ours = {
                    names: seconds_of(stage, helper.address, each) for names, each in bodies.items()
                }
                used = pss_mib(helper.process.pid)
    return Section(
        title="The scheduler's helper in a large fleet",
        text=(
            f"{FLEET:,} nodes of 8 GPUs in {len(MACHINES)} topology classes, "
            f"{PODS_EACH} pods on each, on a real API server. Requests as kube-scheduler sends "
            "them, one after the other over one TLS connection with a client certificate, from "
            "the first byte to the last; beside them the compiled extender that does nothing. "
            "Memory is the proportional set size."
        ),
        columns=("", "p50", "p99"),
        rows=(
            *(
                row
                for names in CALLS
                for row in (
                    (f"{names:,} names{_BUDGET.get(names, '')}", *_milliseconds(ours[names])),
                    (f"{names:,} names, compiled", *_milliseconds(floor[names])),
                )
            ),
            ("ready after its start", f"{synced:.1f} s", ""),
            ("memory, ready", f"{fresh:.0f} MiB", ""),
            ("memory, after these requests (budget 150 MiB)", f"{used:.0f} MiB", ""),
        ),
    )


_BUDGET = {500: " (budget of p99 10 ms)", 5000: " (budget of p99 30 ms)"}


def fill(stage: Stage) -> None:
    """Make the fleet's nodes, pods and Leases."""
    plane = stage.plane
    nodes = fleet(FLEET)
    gpu_fleet.add_nodes(plane, nodes)
    gpu_fleet.add_bound_pods(plane, stage.namespace, nodes, pods_each=PODS_EACH)
    gpu_fleet.tell_states(plane, nodes, namespace=stage.namespace, pods_each=PODS_EACH)


def requests(stage: Stage, names: int) -> list[bytes]:
    """Bodies of calls with so many names, for pods of all sizes, the names in any order."""
    draw = random.Random(names)  # noqa: S311 (has to repeat)
    pods = [stage.pod(stage.add_pod(gpus, scheduler="nobody")) for gpus in gpu_fleet.SIZES]
    every = [node.name for node in fleet(FLEET)]
    return [
        json.dumps({"Pod": pod, "Nodes": None, "NodeNames": draw.sample(every, names)}).encode()
        for pod in pods
        for _ in range(BODIES // len(pods))
    ]


def seconds_of(stage: Stage, address: str, bodies: Sequence[bytes]) -> list[float]:
    """How long each of so many requests took; the first round of bodies is not counted."""
    context = stage.client.context(ssl.Purpose.SERVER_AUTH)
    seconds: list[float] = []
    port = int(address.rpartition(":")[2])
    with contextlib.closing(Connection(port, context, SERVICE)) as connection:
        for _ in range(1 + CALLS_EACH):
            for body in bodies:
                began = time.perf_counter()
                connection.request("POST", "/v1/prioritize", body)
                response = connection.getresponse()
                response.read()
                seconds.append(time.perf_counter() - began)
                assert response.status == HTTPStatus.OK, response.status
    return seconds[len(bodies) :]


def _milliseconds(seconds: Sequence[float]) -> tuple[str, str]:
    return f"{median(seconds) * 1000:.2f} ms", f"{percentile(seconds, 99) * 1000:.2f} ms"
