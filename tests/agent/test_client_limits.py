# SPDX-License-Identifier: Apache-2.0
"""The agent at the machine's limits: few descriptors, many clients."""

from __future__ import annotations

import contextlib
import resource
import signal
import socket
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from simulator.simulation import Simulation
from tests.agent.agent_process import AgentProcess, running, until

QUICK = ("--discover-interval", "3s", "--sample-interval", "500ms", "--deadline", "1s")
FEW = 64
REFUSED_FOR_RESOURCES = 'gpuscape_http_refusals_total{reason="resources"}'


@pytest.fixture
def simulation(tmp_path: Path) -> Simulation:
    return Simulation.create("a30-pair", tmp_path)


@contextlib.contextmanager
def idle_clients(agent: AgentProcess, server: str, number: int) -> Iterator[None]:
    """So many connections that send nothing, or have had an answer and keep the connection."""
    host, port = agent.address(server).rsplit(":", 1)
    with contextlib.ExitStack() as ending:
        for at in range(number):
            client = ending.enter_context(socket.create_connection((host, int(port)), timeout=60))
            if at % 2:
                with contextlib.suppress(ConnectionError):
                    client.sendall(b"GET / HTTP/1.1\r\nHost: node\r\n\r\n")
        yield


def test_idle_clients_take_no_descriptor_that_probes_scrapes_and_a_new_reader_need(
    simulation: Simulation,
) -> None:
    with running(simulation, *QUICK, limits={resource.RLIMIT_NOFILE: FEW}) as agent:
        until(lambda: agent.gpus("present") == 2)
        with idle_clients(agent, "metrics", 200), idle_clients(agent, "probes", 200):
            answers = [
                agent.get(server, path)[0]
                for server, path in (
                    ("probes", "/livez"),
                    ("probes", "/readyz"),
                    ("metrics", "/metrics"),
                )
            ]
            reader = agent.reader()
            reader.kill()
            until(lambda: any(other.pid != reader.pid for other in agent.readers()))
            until(lambda: "DCGM_FI_DEV_GPU_TEMP{" in agent.metrics())
        errors = [line for line in agent.logged if line["level"] == "ERROR"]

    assert answers == [200, 200, 200]
    assert (errors, agent.said) == ([], "")


def test_without_a_descriptor_scrapes_wait_and_one_line_says_so(simulation: Simulation) -> None:
    with running(simulation, *QUICK) as agent:
        until(lambda: agent.gpus("present") == 2)
        host, port = agent.address("metrics").rsplit(":", 1)
        pid = agent.process.pid
        before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, before[1]))
        with socket.create_connection((host, int(port)), timeout=60) as late:
            late.sendall(b"GET /health HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n")
            until(lambda: bool(_not_accepted(agent)))
            time.sleep(1)  # for some more attempts
            resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
            answer = late.makefile("rb").read()
        counted = [line for line in agent.metrics().splitlines() if REFUSED_FOR_RESOURCES in line]

    assert answer.startswith(b"HTTP/1.1 200 ")
    assert len(_not_accepted(agent)) == 1
    assert float(counted[0].rpartition(" ")[2]) > 1
    assert agent.said == ""


def _not_accepted(agent: AgentProcess) -> list[dict[str, object]]:
    return [line for line in agent.logged if line["message"] == "connection not accepted"]


def _asked(address: str) -> socket.socket:
    """A connection that has sent its request as soon as it was made."""
    host, port = address.rsplit(":", 1)
    client = socket.create_connection((host, int(port)), timeout=60)
    client.sendall(b"GET /metrics HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n")
    return client


def _status(client: socket.socket) -> int:
    """That of the answer; 0 where the connection ended without a whole one."""
    try:
        with client, client.makefile("rb") as reading:
            head, _, body = reading.read().partition(b"\r\n\r\n")
    except ConnectionError:
        return 0
    lengths = [line for line in head.split(b"\r\n") if line.startswith(b"Content-Length: ")]
    if not lengths or int(lengths[0].split()[1]) != len(body):
        return 0
    return int(head.split()[1])


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """Enough for a socket for each of 2,000 clients in this process."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.usefixtures("many_descriptors")
def test_each_of_2000_scrapes_at_once_is_answered(simulation: Simulation) -> None:
    with running(simulation, *QUICK) as agent:
        until(lambda: agent.gpus("present") == 2)
        address = agent.address("metrics")
        agent.process.send_signal(signal.SIGSTOP)  # so that all of them come at once
        clients = [_asked(address) for _ in range(2000)]
        agent.process.send_signal(signal.SIGCONT)
        statuses = Counter(map(_status, clients))

    assert statuses.keys() <= {200, 503}, statuses
    assert statuses[200] > 0
