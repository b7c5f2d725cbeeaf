# SPDX-License-Identifier: Apache-2.0
"""``gpuscape mig`` as a process on a simulated machine, and the journal that it keeps there."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from actuator.journal import Journal
from tests.actuator.simulated_node import SimulatedNode
from tests.agent.agent_process import GPUSCAPE, until
from tests.controlplane.lifetime import end_with_parent

CREATE: Final = "nvmlDeviceCreateGpuInstance*"


def journal(on: SimulatedNode) -> Path:
    """Where the command keeps it for a state file."""
    return on.simulation.state_file.with_name("mig-journal")


def ended(on: SimulatedNode) -> list[tuple[str, str]]:
    """Request and result of each change that has ended; its worker may still have the lock."""
    with Journal(journal(on), lock=False) as opened:
        return [(one.origin, str(one.outcome)) for one in opened.content().ended]


@contextmanager
def running(
    on: SimulatedNode, *arguments: str, reached: Callable[[], bool]
) -> Iterator[subprocess.Popen[str]]:
    """The command, once it has ``reached`` a point or ended; killed with the block."""
    with subprocess.Popen(
        [str(GPUSCAPE), "mig", *arguments, "--simulate", str(on.simulation.state_file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=end_with_parent(),
    ) as process:
        try:
            until(lambda: process.poll() is not None or reached())
            yield process
        finally:
            process.kill()
