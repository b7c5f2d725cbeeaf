# SPDX-License-Identifier: Apache-2.0
"""Machines that this process serves to others."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from simulator.clibrary.machine_server import MachineServer
from simulator.simulation import Simulation
from tests.controlplane.lifetime import end_with_parent

NAMES = """
import pynvml as nv
nv.nvmlInit()
gpus = [nv.nvmlDeviceGetHandleByIndex(at) for at in range(nv.nvmlDeviceGetCount())]
print([(nv.nvmlDeviceGetName(gpu), nv.nvmlDeviceGetUUID(gpu)) for gpu in gpus])
"""
"""Prints name and UUID of each GPU."""

CODE_OF = """
import sys
import pynvml as nv
def code_of(call):
    try:
        call()
    except nv.NVMLError as error:
        return error.value
    return 0
"""
"""Begins programs that look at return codes."""


@dataclass(frozen=True, slots=True)
class Served:
    """A machine that this process serves, and how others reach it."""

    simulation: Simulation
    server: MachineServer
    folder: Path
    """Of the library."""

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to load the library."""
        return with_library_in(self.folder)

    def command(self, code: str, *arguments: str) -> Sequence[str]:
        """A Python process that runs ``code``."""
        return python(code, *arguments)

    def run(self, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run Python code in a process of its own, with the library in reach."""
        return run_python(self.folder, code, *arguments)


def run_python(folder: Path, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python code in a process of its own, with the library of this folder in reach."""
    return subprocess.run(
        python(code, *arguments),
        env=with_library_in(folder),
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=end_with_parent(),
    )


def python(code: str, *arguments: str) -> Sequence[str]:
    """The command of a Python process that runs ``code``."""
    return [sys.executable, "-c", code, *arguments]


def with_library_in(folder: Path) -> dict[str, str]:
    """The environment of a process that finds the library in this folder."""
    return {**os.environ, "LD_LIBRARY_PATH": str(folder)}


Serve = Callable[[Simulation], Served]
