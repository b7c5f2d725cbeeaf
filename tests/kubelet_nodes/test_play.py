# SPDX-License-Identifier: Apache-2.0
"""The cluster to play with: it says how to use it, and nothing of it outlives it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from simulator.simulation import Simulation
from tests.agent.agent_process import AgentEndedError, AgentProcess, until
from tests.controlplane.programs import ROOT
from tests.kubelet_nodes import play


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where the cluster's own comes: the path of a Unix socket has to be short."""
    with tempfile.TemporaryDirectory() as made:
        yield Path(made)


@pytest.fixture
def machines() -> Sequence[str]:
    """Those of its nodes; none: as many and which it likes."""
    return ["a30-pair"]


@pytest.fixture
def running(folder: Path, machines: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """A cluster that says what it says to a pipe, as started where nothing is set up for gRPC."""
    environment = {name: text for name, text in os.environ.items() if not name.startswith("GRPC_")}
    with subprocess.Popen(
        [sys.executable, "-m", "tests.kubelet_nodes.play", *machines],
        cwd=ROOT,
        env=environment | {"TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield process
        process.kill()


def said(process: subprocess.Popen[str]) -> str:
    """All until the advice is complete."""
    assert process.stdout
    lines = []
    for line in process.stdout:
        lines.append(line)
        if "count=64" in line:
            break
    return "".join(lines)


@pytest.mark.cluster
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "how", [pytest.param(signal.SIGTERM, marks=pytest.mark.long), signal.SIGKILL]
)
def test_nothing_is_left_however_it_ends(
    running: subprocess.Popen[str], folder: Path, how: signal.Signals
) -> None:
    advice = said(running)
    leaves_nothing(running, folder, how)
    assert str(folder) in advice


def leaves_nothing(running: subprocess.Popen[str], folder: Path, how: signal.Signals) -> None:
    """It ends by this signal, and so do all its programs, and its folder is gone."""
    programs = psutil.Process(running.pid).children(recursive=True)
    names = {program.name() for program in programs}
    assert {"kube-apiserver", "kube-scheduler", "allocator", "gpuscape"} <= names
    running.send_signal(how)
    until(lambda: not any(program.is_running() for program in programs))
    until(lambda: not list(folder.glob("gpuscape-cluster-*")))


@pytest.mark.cluster
@pytest.mark.timeout(300)
@pytest.mark.parametrize("machines", [[]])
def test_its_advice_shows_that_pods_of_two_are_given_linked_gpus_and_ctrl_c_leaves_nothing(
    running: subprocess.Popen[str], folder: Path
) -> None:
    """On machines where not all are; until one of them has no two linked GPUs left."""
    lines = [line.strip() for line in said(running).splitlines()]
    header, best, *_ = shell("gpuscape scheduler explain", lines).splitlines()
    assert header.split() == ["NODE", "RANK", "GPUS", "GB/S", "WHY"]
    # each node is the last free one of its model, so the slowest is taken
    assert best.split()[:2] == ["dgx1-v100", "10"]
    assert "NV" in shell("gpuscape topo", lines)
    for made in range(1, 6):
        shell("kubectl create", lines)
        until(lambda made=made: len(held(lines)) == made)  # type: ignore[misc]
    assert all(re.search(r"linked by \d+ NVLinks?$", words) for words in held(lines))
    assert "two-gpus-" in shell("kubectl get pods", lines)
    assert shell("kubectl gpuscape free", lines).startswith("NODE")
    leaves_nothing(running, folder, signal.SIGINT)


@pytest.mark.cluster
@pytest.mark.long
@pytest.mark.timeout(300)
def test_an_agent_that_dies_at_its_start_is_named_and_all_ends(
    running: subprocess.Popen[str], folder: Path
) -> None:
    """With its last lines and without a trace."""
    assert running.stdout
    lines = list(iter(running.stdout.readline, "starting node a30-pair\n"))
    until(lambda: bool(agents(running.pid)))
    (agent,) = agents(running.pid)
    agent.kill()
    said = running.stdout.read()

    assert lines
    assert said.startswith("the agent of a30-pair ended with -9; its last lines:\n")
    assert running.wait() == 1
    until(lambda: not list(folder.glob("gpuscape-cluster-*")))


def agents(pid: int) -> list[psutil.Process]:
    """Those that this process has started."""
    children = psutil.Process(pid).children()
    return [it for it in children if {"gpuscape", "agent"} <= {Path(w).name for w in it.cmdline()}]


def test_of_an_agent_that_ends_before_it_listens_the_last_lines_are_known(tmp_path: Path) -> None:
    ends = "for n in $(seq 20); do echo line $n >&2; done; exit 3"
    simulation = Simulation.create("a30-pair", tmp_path)
    with (
        subprocess.Popen(["sh", "-c", ends], stderr=subprocess.PIPE, text=True) as process,
        pytest.raises(AgentEndedError) as failed,
    ):
        AgentProcess(process, simulation)

    head, *lines = str(failed.value).splitlines()
    assert head == "ended with 3; its last lines:"
    assert lines == [f"line {number}" for number in range(6, 21)]


def held(lines: Sequence[str]) -> list[str]:
    """What pods hold, by words of the advice's command."""
    return re.findall(r"default/two-gpus-\S+ holds (.*)", shell("holders", lines))


def shell(command: str, lines: Sequence[str]) -> str:
    """What the line of the advice that begins so gives, after the one that sets it up."""
    chosen = [line for line in lines if line.startswith(("export", command))]
    assert len(chosen) == 2
    return subprocess.run(
        ["bash", "-e"], input="\n".join(chosen), check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def test_a_machine_that_is_not_known_is_refused_before_anything_starts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert play.main(["a30-pear"]) == 2
    (line,) = capsys.readouterr().out.splitlines()
    assert "a30-pair" in line
