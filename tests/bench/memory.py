# SPDX-License-Identifier: Apache-2.0
"""Memory and CPU of agent and device reader on a node of 8 GPUs with 7 MIG devices each.

The simulator is not part of either: the agent gets its machine ready-made, and the
reader is measured before it has loaded any library. What the simulator adds to the
reader is told apart. Source: Pss in /proc/<pid>/smaps_rollup.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from api import names
from discovery.reader.child import Child
from discovery.reader.protocol import Discover, Start
from simulator.simulation import Simulation
from tests.agent.agent_process import SOON, until
from tests.bench.launch import HOST
from tests.bench.page import Section
from tests.bench.programs import agent_command, pss_mib, resident_kib
from tests.cluster.agents import Site, has_topology
from tests.controlplane.components import free_port
from tests.controlplane.plane import Plane

MACHINE = "dgx-a100-mig-single"
SETTLE_SECONDS = 5.0
CPU_SECONDS = 60.0
BUDGET_MIB = 64


def section() -> Section:
    """Run the agent as it runs on a node, and look at it from outside."""
    with (
        tempfile.TemporaryDirectory() as folder,
        _agent(Path(folder), "--standalone") as (agent, port),
    ):
        time.sleep(SETTLE_SECONDS)
        before = sum(agent.cpu_times()[:2])
        time.sleep(CPU_SECONDS)
        busy = sum(agent.cpu_times()[:2]) - before
        series = _series(port)
        agent_mib = pss_mib(agent.pid)
        simulated_mib = sum(pss_mib(child.pid) for child in agent.children())
    cluster = _in_cluster()
    return Section(
        title="Memory and CPU of the agent",
        text=(
            f"8 GPUs with 7 MIG devices each, {series} series served, sampled every 10 s. In a "
            "cluster: as a pod of its service account on a real API server, its Node watched, its "
            "Lease held, labels published. The simulator is left out of agent and reader, and with "
            "it the driver's own library. Memory is the proportional set size: a file that several "
            "processes map counts in parts. Some of them are the benchmark's own, so the row below "
            "the budget counts each file once and whole, as on a node where no other program comes "
            "from the same image; what is not files is in both the same. CPU is the agent's over "
            f"{CPU_SECONDS:g} s, without its reader, which ran the simulator."
        ),
        rows=(
            ("device reader", f"{cluster.reader_mib:.1f} MiB"),
            ("agent without a cluster", f"{agent_mib:.1f} MiB"),
            ("agent in a cluster", f"{cluster.agent_mib:.1f} MiB"),
            (
                f"with its reader (budget {BUDGET_MIB} MiB)",
                f"{cluster.agent_mib + cluster.reader_mib:.1f} MiB",
            ),
            ("both, each file once and whole", f"{cluster.alone_mib:.1f} MiB"),
            ("of which gRPC's library", f"{cluster.grpc_mib:.1f} MiB"),
            ("device reader with the simulator in it", f"{simulated_mib:.1f} MiB"),
            ("agent's share of one core (budget 1 %)", f"{100 * busy / CPU_SECONDS:.2f} %"),
        ),
    )


@contextlib.contextmanager
def _agent(
    folder: Path, *options: str, environment: Mapping[str, str] | None = None
) -> Iterator[tuple[psutil.Process, int]]:
    """The agent on a machine made beforehand, and its port, once it serves the GPUs.

    ``options`` and ``environment`` are those of its container, for a node of its own.
    """
    state_file, port = Simulation.create(MACHINE, folder).state_file, free_port()
    command = agent_command(state_file, port, *options)
    with subprocess.Popen(command, env={**os.environ, **(environment or {})}) as process:
        try:
            _series(port)
            yield psutil.Process(process.pid), port
        finally:
            process.terminate()


@dataclass(frozen=True, slots=True, kw_only=True)
class InCluster:
    """Memory of agent and device reader on a node of a cluster."""

    agent_mib: float
    reader_mib: float
    alone_mib: float
    """Both, had no other process mapped their files."""
    grpc_mib: float
    """Of the file that is gRPC's library."""


def _in_cluster() -> InCluster:
    """An agent that has published to a real API server, as a pod of its service account."""
    with tempfile.TemporaryDirectory() as folder:
        account = Path(folder) / "account"
        with Plane.start(Path(folder) / "plane", controller_manager=False) as plane:
            site = Site.create(plane, names.NAMESPACE)
            node = plane.make_node()
            token = plane.bound_token(site.namespace, names.AGENT, node)
            environment = plane.account_folder(account, site.namespace, token)
            options = ("--service-account", str(account), "--node-name", node)
            with (
                _agent(Path(folder), *options, environment=environment) as (agent, _port),
                _reader_alone() as reader,
            ):
                until(lambda: has_topology(site, node))
                time.sleep(SETTLE_SECONDS)
                return _measured(agent.pid, reader)


def _measured(agent: int, reader: int) -> InCluster:
    of_agent, of_reader = resident_kib(agent), resident_kib(reader)
    files = of_agent | of_reader  # a file counts as the process has it that has most of it
    files[""] = of_agent[""] + of_reader[""]
    return InCluster(
        agent_mib=pss_mib(agent),
        reader_mib=pss_mib(reader),
        alone_mib=files.total() / 1024,
        grpc_mib=sum(kib for file, kib in files.items() if "cygrpc" in file) / 1024,
    )


def _series(port: int) -> int:
    """Series at the port, once the GPUs are among them."""
    end = time.monotonic() + SOON
    while time.monotonic() < end:
        with (
            contextlib.suppress(OSError),
            urllib.request.urlopen(f"http://{HOST}:{port}/metrics") as response,  # ours
        ):
            lines = response.read().decode().splitlines()
            if any(line.startswith("DCGM_FI_DEV_FB_USED{") for line in lines):
                return sum(1 for line in lines if not line.startswith("#"))
        time.sleep(0.2)
    raise TimeoutError("the agent serves no GPU series")


@contextlib.contextmanager
def _reader_alone() -> Iterator[int]:
    """A device reader that has loaded all of itself but no library; its process id."""
    child = Child(Start(library="/nonexistent/libnvidia-ml.so.1"), lambda _child, _event: None)
    try:
        list(child.ask(Discover(request=1), lambda _call, waited: SOON - waited))
        yield child.pid
    finally:
        child.stop()
        child.wait(5.0)
