# SPDX-License-Identifier: Apache-2.0
"""The agent where the machine gives it few threads, or none more."""

from __future__ import annotations

import contextlib
import http.client
import resource
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import bcrypt
import psutil
import pytest

from simulator.simulation import Simulation
from tests.agent.agent_process import (
    GPUSCAPE,
    SOON,
    AgentProcess,
    agent_arguments,
    running,
    until,
)
from tests.controlplane.lifetime import end_with_parent
from tests.fakes.thread_limit import STACK_BYTES, limits_of

QUICK = ("--discover-interval", "1s", "--sample-interval", "1s")
BAD_INPUT = 2
THREADS_AT_START = 13
"""With a state file: with so many it starts, and has none left for its device reader."""


@pytest.fixture
def simulation(tmp_path: Path) -> Simulation:
    return Simulation.create("a30-pair", tmp_path)


@contextlib.contextmanager
def _no_more_threads(agent: AgentProcess) -> Iterator[None]:
    pid = agent.process.pid
    taken = psutil.Process(pid).memory_info().vms
    before = resource.prlimit(
        pid, resource.RLIMIT_AS, (taken + STACK_BYTES // 2, resource.RLIM_INFINITY)
    )
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_AS, before)


def _logged(agent: AgentProcess, message: str) -> list[dict[str, object]]:
    return [line for line in agent.logged if line["message"] == message]


def _started(arguments: list[str], threads: int) -> subprocess.Popen[str]:
    tie = end_with_parent(signal.SIGTERM)

    def prepare() -> None:
        tie()
        for number, limit in limits_of(threads).items():
            resource.setrlimit(number, (limit, resource.getrlimit(number)[1]))

    return subprocess.Popen(
        [GPUSCAPE, *arguments], stderr=subprocess.PIPE, text=True, preexec_fn=prepare
    )


def test_with_too_few_threads_it_ends_at_once_with_one_sentence_that_names_limit_and_fix(
    simulation: Simulation, tmp_path: Path
) -> None:
    file = ("--state-file", str(tmp_path / "state"))
    arguments = agent_arguments(simulation, "--standalone", *file)
    processes = [_started(arguments, threads) for threads in range(THREADS_AT_START)]
    ends = []
    for process in processes:
        _, said = process.communicate(timeout=SOON)
        ends.append((process.returncode, said.splitlines()))

    assert [status for status, _ in ends] == [BAD_INPUT] * len(ends)
    for _, lines in ends:
        assert [line for line in lines if not line.startswith("{")] == lines[-1:]
        assert lines[-1].startswith("Error: cannot start the thread ")
        assert "RLIMIT_NPROC" in lines[-1]
        assert "pids.max" in lines[-1]
    assert {lines[-1].split("'")[1].partition("-")[0] for _, lines in ends} == {
        *("end", "signals", "lines", "state", "http", "errands", "clock", "ticks")
    }


def test_without_a_thread_for_its_device_reader_it_serves_and_reads_once_there_is_one(
    simulation: Simulation, tmp_path: Path
) -> None:
    options = (*QUICK, "--state-file", str(tmp_path / "state"))
    with running(simulation, *options, limits=limits_of(THREADS_AT_START)) as agent:
        until(lambda: bool(_logged(agent, "discovery cycle finished")))
        assert "cannot start the thread 'reader'" in str(
            _logged(agent, "discovery cycle finished")[0]["driver"]
        )
        assert 'gpuscape_source_up{source="nvml"} 0.0' in agent.metrics()
        assert agent.get("probes", "/livez")[0] == 200
        resource.prlimit(
            agent.process.pid, resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        )
        until(lambda: agent.gpus("present") == 2)
        assert _logged(agent, "internal error") == []
        assert agent.said == ""


def test_a_hangup_without_threads_changes_nothing_and_says_why(simulation: Simulation) -> None:
    limits = {resource.RLIMIT_STACK: STACK_BYTES}
    with running(simulation, *QUICK, limits=limits) as agent:
        until(lambda: agent.gpus("present") == 2)
        with _no_more_threads(agent):
            agent.signal(signal.SIGHUP)
            until(lambda: bool(_logged(agent, "settings rejected, previous ones kept")))
            (line,) = _logged(agent, "settings rejected, previous ones kept")
            assert "RLIMIT_NPROC" in str(line["why"])
            assert agent.gpus("present") == 2
        agent.signal(signal.SIGHUP)
        until(lambda: bool(_logged(agent, "settings reloaded")))
        until(lambda: agent.gpus("present") == 2)


def test_without_a_thread_to_check_passwords_a_client_is_to_come_again(
    simulation: Simulation, tmp_path: Path
) -> None:
    hashed = bcrypt.hashpw(b"a-word", bcrypt.gensalt(4)).decode()
    web_config = tmp_path / "web.yaml"
    web_config.write_text(f"basic_auth_users: {{ann: {hashed}}}\n")
    options = (*QUICK, "--web-config-file", str(web_config))

    def asked() -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection(agent.address("metrics"), timeout=SOON)
        with contextlib.closing(connection):
            credentials = {"Authorization": "Basic YW5uOmEtd29yZA=="}  # ann:a-word
            connection.request("GET", "/metrics", headers=credentials)
            answer = connection.getresponse()
            answer.read()
            return answer

    limits = {resource.RLIMIT_STACK: STACK_BYTES}
    with running(simulation, *options, limits=limits) as agent:
        until(lambda: bool(_logged(agent, "discovery cycle finished")))
        with _no_more_threads(agent):
            refused = [asked() for _ in range(3)]
        assert [answer.status for answer in refused] == [503] * 3
        assert all(answer.headers["Retry-After"] for answer in refused)
        assert asked().status == 200
        assert len(_logged(agent, "connection not accepted")) == 1
        assert _logged(agent, "request failed") == []
