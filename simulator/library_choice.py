# SPDX-License-Identifier: Apache-2.0
"""The library that pynvml loads in a process: the driver's, one by its path, or a simulated one."""

from __future__ import annotations

from pathlib import Path

from discovery.nvml.session import use_library
from discovery.reader.protocol import Start


def choose_library(start: Start) -> None:
    """Let pynvml load what ``start`` names: a simulated machine, a library, or the loader's choice.

    Raises BadInput for a state file that is none.
    """
    if start.simulation is not None:
        from simulator.simulation import Simulation  # never loaded on real hardware

        Simulation.open(Path(start.simulation)).install()
    elif start.library is not None:
        use_library(start.library)
