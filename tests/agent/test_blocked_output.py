# SPDX-License-Identifier: Apache-2.0
"""An agent that writes to a pipe that nobody empties serves, counts and ends all the same."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from simulator.simulation import Simulation
from tests.agent.agent_process import SOON, agent_arguments, until
from tests.controlplane.lifetime import end_with_parent

XIDS = 30


@dataclass(frozen=True)
class Blocked:
    """An agent whose standard error and output are full from its first line on."""

    process: subprocess.Popen[bytes]
    simulation: Simulation
    metrics_port: int
    probes_port: int
    reads: int
    """The other end of what it writes to."""

    def get(self, port: int, path: str) -> tuple[int, str]:
        """Status and text; 0 where nobody listens yet."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=SOON) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, ""
        except OSError:
            return 0, ""

    def metrics(self) -> list[str]:
        return self.get(self.metrics_port, "/metrics")[1].splitlines()

    def value(self, series: str) -> float:
        found = [line for line in self.metrics() if line.startswith(f"{series} ")]
        return float(found[0].rpartition(" ")[2]) if found else 0.0


def free_ports() -> tuple[int, int]:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("", 0)) as other:
        return one.getsockname()[1], other.getsockname()[1]


@pytest.fixture
def blocked(tmp_path: Path) -> Iterator[Blocked]:
    simulation, (metrics, probes) = Simulation.create("a30-pair", tmp_path), free_ports()
    reads, writes = os.pipe()
    os.set_blocking(writes, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writes, b"x" * 4096)
    os.set_blocking(writes, True)
    options = ("--standalone", "--print-labels", "--log-level", "debug")
    quick = ("--discover-interval", "1s", "--sample-interval", "1s")
    listen = ("--listen", f"127.0.0.1:{metrics}", "--probe-listen", f"127.0.0.1:{probes}")
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "gpuscape",
            *agent_arguments(simulation, *options, *quick, *listen, listen=None),
        ],
        stdout=writes,
        stderr=writes,
        preexec_fn=end_with_parent(signal.SIGTERM),
    )
    os.close(writes)
    try:
        yield Blocked(process, simulation, metrics, probes, reads)
    finally:
        process.kill()
        process.wait()
        os.close(reads)


def test_an_agent_whose_output_nobody_reads_serves_counts_every_xid_and_ends(
    blocked: Blocked,
) -> None:
    until(lambda: blocked.get(blocked.probes_port, "/readyz")[0] == 200)
    bus_id = next(iter(blocked.simulation.state.gpus))
    for code in range(XIDS):
        blocked.simulation.xid(bus_id, 900 + code)

    def counted() -> int:
        family = "gpuscape_xid_errors_total{"
        return sum(line.startswith(family) for line in blocked.metrics())

    until(lambda: counted() == XIDS)
    assert blocked.get(blocked.probes_port, "/livez")[0] == 200
    assert blocked.value("gpuscape_tick_stalled_seconds") < 10.0
    blocked.process.send_signal(signal.SIGTERM)
    assert blocked.process.wait(SOON) == 0


def test_once_its_output_is_read_the_log_goes_on_where_it_was(blocked: Blocked) -> None:
    until(lambda: blocked.get(blocked.probes_port, "/readyz")[0] == 200)
    text = b""

    def came() -> bool:
        nonlocal text
        text += os.read(blocked.reads, 1 << 16)
        return all(it in text for it in (b"listening", b"nvidia.com/gpu.count=2", b"finished"))

    until(came)
    assert b"log lines dropped" not in text
