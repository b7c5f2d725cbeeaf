# SPDX-License-Identifier: Apache-2.0
"""The agent as the first process of a container: what a shell leaves behind in it is collected.

Judged from outside its PID namespace, by /proc.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from simulator.simulation import Simulation
from tests.agent.agent_process import SOON, agent_arguments, until
from tests.controlplane.lifetime import end_with_parent

SHELLS = 5


def children(agent: psutil.Process, name: str) -> list[str]:
    """How its children of this name are."""
    found: list[str] = []
    for child in agent.children():
        with contextlib.suppress(psutil.NoSuchProcess):  # it was collected
            if child.name() == name:
                found.append(child.status())
    return found


@pytest.mark.skipif(os.geteuid() != 0, reason="entering a PID namespace takes root")
def test_what_shells_leave_behind_in_the_agent_s_container_is_collected(tmp_path: Path) -> None:
    simulation = Simulation.create("a30-pair", tmp_path)
    with subprocess.Popen(
        [
            *("unshare", "--pid", "--fork", "--mount-proc", "--kill-child"),
            *(sys.executable, "-m", "gpuscape"),
            *agent_arguments(simulation, "--standalone", "--probe-listen", "127.0.0.1:0"),
        ],
        stderr=subprocess.DEVNULL,
        preexec_fn=end_with_parent(signal.SIGTERM),
    ) as process:
        until(lambda: len(psutil.Process(process.pid).children(recursive=True)) >= 2)  # its reader
        (agent,) = psutil.Process(process.pid).children()
        inside = ("nsenter", "--target", str(agent.pid), "--pid", "--mount")
        for _ in range(SHELLS):  # as with kubectl exec; what is left behind ends after its shell
            subprocess.run([*inside, "sh", "-c", "sleep 3 &"], check=True, timeout=SOON)
        assert children(agent, "sleep")
        until(lambda: children(agent, "sleep") == [])
        assert agent.is_running()
        agent.terminate()
        assert process.wait(SOON) == 0
