# SPDX-License-Identifier: Apache-2.0
"""SIGTERM ends the agent in time whatever it waits for, and no signal is lost on the way up."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from simulator.simulation import Simulation
from tests.agent.agent_process import agent_arguments, runs, until
from tests.controlplane.lifetime import end_with_parent

CLOSED_SECONDS = 5.0
"""By then no reader may hold NVML; 2 are promised, and a busy machine gets some more."""
GONE_SECONDS = 9.0
"""As the promise of 5 seconds. An agent that waits for what hangs takes 15 and more."""

PID_NAMESPACE = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child"]


@pytest.fixture
def simulation(tmp_path: Path) -> Simulation:
    return Simulation.create("a30-pair", tmp_path / "machine")


class Started:
    """An agent of which nothing is expected, such as that it ever listens."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

        # where it has process ids of its own, another program has started it
        self._is_agent = process.args[0] == sys.executable  # type: ignore[index]  # a list

    @property
    def pid(self) -> int:
        if self._is_agent:
            return self.process.pid
        return psutil.Process(self.process.pid).children()[0].pid

    def signal(self, *numbers: signal.Signals) -> None:
        for number in numbers:
            os.kill(self.pid, number)

    def ends(self, simulation: Simulation) -> None:
        """Send SIGTERM; it ends in time and with success, its readers first."""
        began, readers = time.monotonic(), psutil.Process(self.pid).children()
        self.signal(signal.SIGTERM)
        until(lambda: not any(map(runs, readers)), CLOSED_SECONDS)
        if self._is_agent:
            until(lambda: simulation.clients() == 0, CLOSED_SECONDS)
        assert self.process.wait(GONE_SECONDS - (time.monotonic() - began)) == 0


@contextlib.contextmanager
def started(
    simulation: Simulation,
    *options: str,
    before: tuple[str, ...] = (),
    python: tuple[str, ...] = (),
    stdout: int = subprocess.DEVNULL,
    stderr: int = subprocess.DEVNULL,
) -> Iterator[Started]:
    command = [*before, sys.executable, *python, "-m", "gpuscape"]
    command += agent_arguments(simulation, *options)
    with subprocess.Popen(
        command, stdout=stdout, stderr=stderr, preexec_fn=end_with_parent()
    ) as process:
        try:
            yield Started(process)
        finally:
            with contextlib.suppress(psutil.NoSuchProcess):
                for child in psutil.Process(process.pid).children(recursive=True):
                    child.kill()
            process.kill()


@pytest.fixture(params=["http", "https"])
def silent_cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A kubeconfig for an API server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as server:
        port = server.getsockname()[1]
        text = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": "c", "cluster": {"server": f"{request.param}://127.0.0.1:{port}"}}
            ],
            "users": [{"name": "u", "user": {"token": "t"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        file = tmp_path / "kubeconfig"
        file.write_text(json.dumps(text))
        yield file


def _fifo(path: Path) -> Path:
    os.mkfifo(path)
    return path


def _full_pipe() -> tuple[int, int]:
    """Both ends of a pipe that takes nothing more."""
    receiving, sending = os.pipe()
    fcntl.fcntl(sending, fcntl.F_SETPIPE_SZ, 4096)
    _fill(sending)
    return receiving, sending


def _fill(pipe: int) -> None:
    # by a description of its own: the one that the agent has stays one that blocks
    filling = os.open(f"/proc/self/fd/{pipe}", os.O_WRONLY | os.O_NONBLOCK)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(filling, b"x")
    os.close(filling)


def _reads(simulation: Simulation) -> Callable[[], bool]:
    return lambda: simulation.clients() == 1


def test_an_api_server_that_never_answers_does_not_delay_the_end(
    simulation: Simulation, silent_cluster: Path
) -> None:
    with started(simulation, "--kubeconfig", str(silent_cluster), "--start-spread", "0") as agent:
        until(_reads(simulation))
        time.sleep(1)  # for every tick and watch to wait for the server
        agent.ends(simulation)


def test_a_config_map_that_never_comes_does_not_delay_the_end(
    simulation: Simulation, silent_cluster: Path
) -> None:
    """Where the main thread waits for it for a moment, before anything is read."""
    counters = ("--counters-from", "here:counters")
    with started(simulation, "--kubeconfig", str(silent_cluster), *counters) as agent:
        until(lambda: bool(psutil.Process(agent.pid).net_connections()))
        agent.ends(simulation)


@pytest.mark.parametrize("option", ["--feature-file", "--counters", "--config"])
def test_a_file_that_blocks_does_not_delay_the_end(
    simulation: Simulation, tmp_path: Path, option: str
) -> None:
    """Of labels and counters while it runs, of settings before it runs."""
    file = tmp_path / "file"
    if option == "--counters":
        file.write_text("DCGM_FI_DEV_GPU_TEMP, gauge, x\n")
    else:
        _fifo(file)
    with started(simulation, "--standalone", option, str(file)) as agent:
        if option == "--counters":
            until(_reads(simulation))
            _fifo(tmp_path / "other").replace(file)
        # the agent waits for it from here on: the other end is open, and nothing comes
        with file.open("wb"):
            agent.ends(simulation)


def test_settings_that_block_at_a_hangup_do_not_delay_the_end(
    simulation: Simulation, tmp_path: Path
) -> None:
    file = tmp_path / "agent.yaml"
    file.write_text("")
    with started(simulation, "--standalone", "--config", str(file)) as agent:
        until(_reads(simulation))
        _fifo(tmp_path / "other").replace(file)
        agent.signal(signal.SIGHUP)
        with file.open("wb"):
            agent.ends(simulation)


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_an_output_that_blocks_does_not_delay_the_end(simulation: Simulation, stream: str) -> None:
    receiving, sending = os.pipe() if stream == "stderr" else _full_pipe()
    streams = {stream: sending}
    options = ("--standalone", "--print-labels", "--discover-interval", "1s")
    with started(simulation, *options, **streams) as agent:  # type: ignore[arg-type]  # by name
        until(_reads(simulation))
        if stream == "stderr":
            _fill(sending)
        time.sleep(2)  # for a tick to write
        agent.ends(simulation)
    os.close(receiving)
    os.close(sending)


def test_the_end_goes_before_hangups_that_wait(simulation: Simulation) -> None:
    with started(simulation, "--standalone") as agent:
        until(_reads(simulation))
        for _ in range(300):
            agent.signal(signal.SIGHUP)
            time.sleep(0.005)  # one by one: those that come together count once
        agent.ends(simulation)


@pytest.mark.parametrize("before", [(), tuple(PID_NAMESPACE)], ids=["process", "container"])
def test_signals_that_come_while_it_is_being_loaded_are_obeyed(
    simulation: Simulation, before: tuple[str, ...]
) -> None:
    """Not lost, as they are for the first process of a container, and not deadly."""
    _may_have_namespaces(before)
    with started(
        simulation,
        "--standalone",
        before=before,
        python=("-X", "importtime"),
        stderr=subprocess.PIPE,
    ) as agent:
        assert agent.process.stderr is not None
        lines = iter(agent.process.stderr)
        for line in lines:
            if line.rpartition(b"|")[2].strip() == b"click":
                break
        agent.signal(signal.SIGHUP, signal.SIGUSR1)
        missing = {b"settings reloaded", b"NVML handles released"}
        for line in lines:
            missing -= {message for message in missing if message in line}
            if not missing:
                break
        assert not missing
        agent.ends(simulation)


@pytest.mark.parametrize("before", [(), tuple(PID_NAMESPACE)], ids=["process", "container"])
def test_the_end_can_begin_before_there_are_settings(
    simulation: Simulation, tmp_path: Path, before: tuple[str, ...]
) -> None:
    _may_have_namespaces(before)
    file = _fifo(tmp_path / "agent.yaml")
    with (
        started(simulation, "--standalone", "--config", str(file), before=before) as agent,
        file.open("wb"),
    ):
        agent.ends(simulation)


def _may_have_namespaces(before: tuple[str, ...]) -> None:
    if before and (
        shutil.which(before[0]) is None
        or subprocess.run([*before, "true"], capture_output=True, check=False).returncode
    ):
        pytest.skip("this machine lets no user make PID namespaces")
