# SPDX-License-Identifier: Apache-2.0
"""The cluster with real nodes to play with: its advice works, and nothing of it outlives it."""

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

from tests.agent.agent_process import until
from tests.controlplane.builds import NotPreparedError
from tests.controlplane.programs import ROOT
from tests.node import cgroups, needs, real_play
from tests.node.real_node import SOON

LAST_LINE = "count=64"
"""Of the advice."""
GPU = r"GPU-[0-9a-f-]{36}"


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where the cluster's own comes: the path of a Unix socket has to be short."""
    with tempfile.TemporaryDirectory(prefix="gs-") as made:
        yield Path(made)


@pytest.fixture
def running(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A cluster as ``make cluster NODES=real`` starts it, its words in a pipe."""
    needs.demand()
    with subprocess.Popen(
        [sys.executable, "-m", real_play.__name__],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield process
        process.kill()


def said(process: subprocess.Popen[str], last: str) -> list[str]:
    """The lines until one has these words."""
    assert process.stdout
    lines = []
    for line in process.stdout:
        lines.append(line.strip())
        if last in line:
            break
    return lines


def shell(command: str, lines: Sequence[str]) -> str:
    """What the line of the advice that begins so gives, after the one that sets it up."""
    chosen = [line for line in lines if line.startswith(("export", command))]
    assert len(chosen) == 2, chosen
    return subprocess.run(
        ["bash", "-e"], input="\n".join(chosen), check=True, stdout=subprocess.PIPE, text=True
    ).stdout


@pytest.mark.cluster
@pytest.mark.timeout(600)
@pytest.mark.long
def test_a_pod_gets_linked_gpus_by_the_advice_and_nothing_is_left_after_ctrl_c(
    running: subprocess.Popen[str], folder: Path
) -> None:
    lines = said(running, LAST_LINE)
    programs = psutil.Process(running.pid).children(recursive=True)

    header, best, *_ = shell("gpuscape scheduler explain", lines).splitlines()
    assert header.split() == ["NODE", "RANK", "GPUS", "GB/S", "WHY"]
    assert best.split()[1] == "10"
    for made in (1, 2):
        shell("kubectl create", lines)
        until(lambda made=made: len(held(lines)) == made, SOON)  # type: ignore[misc]
    until(lambda: len(given(lines)) == 2, SOON)
    assert all(re.search(r"linked by \d+ NVLinks?$", words) for words in held(lines))
    first, second = given(lines)
    assert not first & second
    assert {len(first), len(second)} == {2}
    pods = shell("kubectl get pods -A", lines)
    for name in ("gpuscape-agent-", "gpuscape-scheduler-", "nvidia-device-plugin-"):
        assert len(re.findall(rf"{name}\S+ +1/1 +Running", pods)) == 2
    assert "io.containerd.runc.v2" in shell("on ", lines)

    running.send_signal(signal.SIGINT)
    assert said(running, "ended")[-1:] == ["ended"]
    assert running.wait(SOON) == 0
    assert not left(programs, folder)


@pytest.mark.cluster
@pytest.mark.timeout(600)
def test_nothing_is_left_when_it_is_killed_while_nodes_start(
    running: subprocess.Popen[str], folder: Path
) -> None:
    said(running, "starting node 2")
    programs = psutil.Process(running.pid).children(recursive=True)
    assert {"kube-apiserver", "kubelet", "containerd"} <= {it.name() for it in programs}

    running.kill()

    until(lambda: not left(programs, folder), SOON)


def held(lines: Sequence[str]) -> list[str]:
    """What pods hold, by words of the advice's command."""
    return re.findall(r"default/two-gpus-\S+ holds (.*)", shell("holders", lines))


def given(lines: Sequence[str]) -> list[set[str]]:
    """What each container was told, by its log."""
    return [set(re.findall(GPU, line)) for line in shell("kubectl logs", lines).splitlines()]


def left(programs: Sequence[psutil.Process], folder: Path) -> list[str]:
    """What is there though it should not: processes, cgroups of them, files."""
    alive = [it for it in programs if it.is_running()]
    started = [str(it.pid) for it in programs]
    made = [
        str(at)
        for hierarchy in cgroups.hierarchies()
        for at in hierarchy.folder.glob(f"{cgroups.PREFIX}*")
        if at.name.removeprefix(cgroups.PREFIX).partition("-")[0] in started
    ]
    return [*map(str, alive), *made, *map(str, folder.glob("gpuscape-real-*"))]


def test_where_no_real_node_can_run_it_says_why(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise NotPreparedError("no real node can run here: that takes root")

    monkeypatch.setattr(needs, "demand", refuse)

    assert real_play.main([]) == 1
    assert capsys.readouterr().out == "no real node can run here: that takes root\n"


def test_a_machine_that_is_not_known_is_refused_before_anything_starts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert real_play.main(["a30-pear"]) == 2
    (line,) = capsys.readouterr().out.splitlines()
    assert "a30-pair" in line


@pytest.mark.parametrize(
    ("nodes", "ran"),
    [("NODES=real", "tests.node.real_play"), ("NODES=", "tests.kubelet_nodes.play")],
)
def test_make_cluster_starts_the_kind_of_nodes_that_is_asked_for(nodes: str, ran: str) -> None:
    printed = _make(nodes, "MACHINES=a30-pair t4")
    assert printed.stdout.strip().endswith(f"-m {ran} a30-pair t4")


def test_make_cluster_refuses_another_kind_of_nodes() -> None:
    printed = _make("NODES=reel")
    assert printed.returncode
    assert "only NODES=real is" in printed.stderr


def _make(*arguments: str) -> subprocess.CompletedProcess[str]:
    """What make would run for the cluster, were its environment there.

    A make that runs these tests hands its own options on in variables: without them this
    one is asked as from a shell.
    """
    options = ("--dry-run", "--silent", "--old-file=.venv/.dev", "cluster")
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))
    }
    return subprocess.run(
        ["make", *options, *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
