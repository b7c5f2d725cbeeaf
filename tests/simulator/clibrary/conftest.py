# SPDX-License-Identifier: Apache-2.0
"""Machines that are served until the test ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from simulator.clibrary.compiler import place_library
from simulator.clibrary.machine_server import MachineServer
from simulator.simulation import Simulation
from tests.simulator.clibrary.serving import Serve, Served


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Serve a machine until the test ends."""
    with ExitStack() as ending:

        def start(simulation: Simulation) -> Served:
            folder = tmp_path / "library"
            place_library(folder)
            server = MachineServer(simulation, folder)
            ending.callback(server.close)
            server.start()
            return Served(simulation, server, folder)

        yield start
