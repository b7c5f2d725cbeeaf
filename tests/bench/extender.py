# SPDX-License-Identifier: Apache-2.0
"""How fast the extender answers and what it needs, beside a compiled one that does nothing."""

from __future__ import annotations

import contextlib
import json
import random
import socket
import ssl
import tempfile
import time
from collections.abc import Iterator, Sequence
from http import HTTPStatus
from pathlib import Path
from statistics import median

from tests.bench.clock import percentile
from tests.bench.page import Section
from tests.bench.programs import cpu_seconds, pss_mib
from tests.cluster import gpu_fleet
from tests.cluster.extender import extender
from tests.cluster.front import HOST, Connection
from tests.cluster.scheduling import SERVICE, Stage
from tests.controlplane.builds import binaries
from tests.controlplane.components import free_port
from tests.controlplane.families import IDLE_EXTENDER

MACHINES = ("dgx1-v100", "a100-pcie-pairs", "hgx-h100", "hgx-h100-rdma")
"""Eight GPUs each: a mesh, pairs, and NVSwitch twice."""

QUIET_CPU_SECONDS = 0.02
"""Of each half second."""

FLEET = 5000


def fleet(count: int) -> list[gpu_fleet.Written]:
    """So many nodes, of all machines in turns."""
    return [
        gpu_fleet.Written(name=f"gpu-{number:04}", machine=MACHINES[number % len(MACHINES)])
        for number in range(count)
    ]


def settle(*pids: int) -> None:
    """Wait until processes have nothing to do."""
    before, now = 0.0, sum(map(cpu_seconds, pids))
    while now - before > QUIET_CPU_SECONDS * len(pids):
        time.sleep(0.5)
        before, now = now, sum(map(cpu_seconds, pids))


@contextlib.contextmanager
def compiled(stage: Stage, *, answer: str) -> Iterator[str]:
    """The compiled one, which has its certificate and key in one file."""
    programs, port = stage.plane.programs, free_port()
    name = f"{IDLE_EXTENDER.name}-{answer}"
    both = stage.server.certificate.with_name("both.pem")
    both.write_bytes(stage.server.certificate.read_bytes() + stage.server.key.read_bytes())
    command: list[str | Path] = [
        binaries(IDLE_EXTENDER) / "idle-extender",
        f"-listen={HOST}:{port}",
        f"-certificate={both}",
        f"-client-ca={stage.server.authority}",
        f"-answer={answer}",
    ]
    programs.start(name, command)
    try:
        programs.wait(name, lambda: listens(port))
        yield f"https://{HOST}:{port}"
    finally:
        programs.stop(name)


def listens(port: int) -> bool:
    """Whether somebody does, there."""
    with socket.socket() as tried:
        return tried.connect_ex((HOST, port)) == 0


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
        with Stage.running(folder) as stage:
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
        title="The scheduler extender in a large fleet",
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
