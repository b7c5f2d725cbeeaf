"""The cluster to play with: it says how to use it, and nothing of it outlives it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from tests.agent.processes import until
from tests.controlplane.programs import ROOT
from tests.kubelet import play


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where the cluster's own comes: the path of a Unix socket has to be short."""
    with tempfile.TemporaryDirectory() as made:
        yield Path(made)


@pytest.fixture
def running(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A cluster of one node that says what it says to a pipe."""
    environment = {**os.environ, "TMPDIR": str(folder), "GRPC_VERBOSITY": "NONE"}
    with subprocess.Popen(
        [sys.executable, "-m", "tests.kubelet.play", "a30-pair"],
        cwd=ROOT,
        env=environment,
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
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_however_it_ends(
    running: subprocess.Popen[str], folder: Path, how: signal.Signals
) -> None:
    advice = said(running)
    programs = psutil.Process(running.pid).children(recursive=True)
    names = {program.name() for program in programs}
    assert {"kube-apiserver", "kube-scheduler", "allocator", "gpuscape"} <= names
    running.send_signal(how)
    until(lambda: not any(program.is_running() for program in programs))
    until(lambda: not list(folder.glob("gpuscape-cluster-*")))
    assert str(folder) in advice


@pytest.mark.cluster
def test_a_pod_of_the_advice_runs_and_the_lease_tells_it(running: subprocess.Popen[str]) -> None:
    lines = [line.strip() for line in said(running).splitlines()]
    shell("kubectl create", lines)
    until(lambda: '"used":"3"' in shell("kubectl -n gpuscape describe", lines))


def shell(command: str, lines: Sequence[str]) -> str:
    """What the line of the advice that begins so gives, after those that set it up."""
    chosen = [line for line in lines if line.startswith(("export", "alias", command))]
    script = "\n".join(("shopt -s expand_aliases", *chosen))
    return subprocess.run(
        ["bash", "-e"], input=script, check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def test_a_machine_that_is_not_known_is_refused_before_anything_starts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert play.main(["a30-pear"]) == 2
    (line,) = capsys.readouterr().out.splitlines()
    assert "a30-pair" in line
