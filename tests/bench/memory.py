"""Memory and CPU of agent and device reader on a node of 8 GPUs with 7 MIG devices each.

The simulator is not part of either: the agent gets its machine ready-made, and the
reader is measured before it has loaded any library. What the simulator adds to the
reader is told apart. Source: Pss in /proc/<pid>/smaps_rollup.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import psutil

from tests.bench.launch import use_ready_machine
from tests.bench.page import Section
from tests.bench.programs import pss_mib

MACHINE = "dgx-a100-mig-single"
SETTLE_SECONDS = 5.0
CPU_SECONDS = 60.0
SAMPLE_SECONDS = 10.0
BUDGET_MIB = 96


def section() -> Section:
    """Run the agent as it runs on a node, and look at it from outside."""
    with tempfile.TemporaryDirectory() as folder, _agent(Path(folder)) as (agent, series):
        time.sleep(SETTLE_SECONDS)
        before = sum(agent.cpu_times()[:2])
        time.sleep(CPU_SECONDS)
        busy = sum(agent.cpu_times()[:2]) - before
        agent_mib = pss_mib(agent.pid)
        simulated_mib = sum(pss_mib(child.pid) for child in agent.children())
    cluster_mib = _in_cluster_mib()
    reader_mib = _reader_alone_mib()
    return Section(
        title="Memory and CPU of the agent",
        text=(
            f"8 GPUs with 7 MIG devices each, {series} series served, sampled every "
            f"{SAMPLE_SECONDS:g} s. Proportional set size, so what agent and reader share counts "
            "once; the simulator is left out of both, and with it the driver's own library. CPU is "
            f"the agent's over {CPU_SECONDS:g} s, without its reader, which ran the simulator. In "
            "a cluster: on a real API server, its Node watched, its Lease held, labels published."
        ),
        rows=(
            ("device reader", f"{reader_mib:.1f} MiB"),
            ("agent without a cluster", f"{agent_mib:.1f} MiB"),
            ("agent in a cluster", f"{cluster_mib:.1f} MiB"),
            (f"with its reader (budget {BUDGET_MIB} MiB)", f"{cluster_mib + reader_mib:.1f} MiB"),
            ("device reader with the simulator in it", f"{simulated_mib:.1f} MiB"),
            ("agent's share of one core (budget 1 %)", f"{100 * busy / CPU_SECONDS:.2f} %"),
        ),
    )


@contextlib.contextmanager
def _agent(folder: Path, *cluster: str) -> Iterator[tuple[psutil.Process, int]]:
    """The agent on a machine made beforehand, and how many series it serves.

    ``cluster``: kubeconfig and Node where it is to be part of one.
    """
    from discovery.simulator.simulation import Simulation

    simulation = Simulation.create(MACHINE, folder)
    command = [sys.executable, "-m", "tests.bench.memory", str(simulation.state_file), *cluster]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            yield psutil.Process(process.pid), _series(address)
        finally:
            process.terminate()


def _in_cluster_mib() -> float:
    """An agent that has published to a real API server."""
    from api import names
    from tests.agent.agent_process import until
    from tests.cluster.agents import Site, has_topology
    from tests.controlplane.plane import Plane

    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        with Plane.start(place / "plane", controller_manager=False) as plane:
            site = Site.create(plane, names.NAMESPACE)
            node = plane.make_node()
            token = plane.bound_token(site.namespace, names.AGENT, node)
            with _agent(place, str(plane.kubeconfig(token=token)), node) as (agent, _series):
                until(lambda: has_topology(site, node))
                time.sleep(SETTLE_SECONDS)
                return pss_mib(agent.pid)


def _series(address: str) -> int:
    """Series at the address, once the GPUs are among them."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        with urllib.request.urlopen(f"http://{address}/metrics") as response:  # ours
            lines = response.read().decode().splitlines()
        if any(line.startswith("DCGM_FI_DEV_FB_USED{") for line in lines):
            return sum(1 for line in lines if not line.startswith("#"))
        time.sleep(0.2)
    raise TimeoutError("the agent serves no GPU series")


def _reader_alone_mib() -> float:
    """A device reader that has loaded all of itself but no library."""
    from discovery.reader.child import Child
    from discovery.reader.protocol import Discover, Start

    child = Child(Start(library="/nonexistent/libnvidia-ml.so.1"), lambda _event: None)
    list(child.ask(Discover(request=1), 60.0))
    measured = pss_mib(child.pid)
    child.stop()
    child.wait(5.0)
    return measured


def _run(state_file: str, kubeconfig: str | None = None, node: str | None = None) -> int:
    """The agent itself, on a machine whose simulator it never loads."""
    from agent import main
    from agent.config import AgentSettings
    from web.address import Address
    from web.server import HttpServer

    class Told(HttpServer):
        def start(self) -> None:
            super().start()
            sys.stdout.write(f"127.0.0.1:{self.address.port}\n")
            sys.stdout.flush()

    settings = AgentSettings(
        standalone=kubeconfig is None,
        kubeconfig=None if kubeconfig is None else Path(kubeconfig),
        node_name=node,
        start_spread_seconds=0.0,
        listen=Address(host="127.0.0.1", port=0),
        probe_listen=Address(host="127.0.0.1", port=0),
        sample_interval_seconds=SAMPLE_SECONDS,
        log_level="error",
    )
    use_ready_machine(Path(state_file))
    with mock.patch.object(main, "HttpServer", Told):
        return main.run(lambda: settings)


if __name__ == "__main__":
    sys.exit(_run(*sys.argv[1:]))
