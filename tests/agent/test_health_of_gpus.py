# SPDX-License-Identifier: Apache-2.0
"""/health answers for GPUs where the settings say so, as dcgm-exporter's --health-require-gpus."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulator.simulation import Simulation
from tests.agent.agent_process import running, until


@pytest.mark.parametrize(
    ("machine", "arguments", "status"),
    [
        ("empty", ("--health-needs-gpus",), 503),
        ("empty", (), 200),
        ("t4", ("--health-needs-gpus",), 200),
    ],
)
def test_health_is_that_of_gpus_where_they_are_needed(
    machine: str, arguments: tuple[str, ...], status: int, tmp_path: Path
) -> None:
    simulation = Simulation.create(machine, tmp_path)

    with running(simulation, *arguments) as agent:
        until(lambda: agent.get("probes", "/readyz")[0] == 200)

        assert agent.get("metrics", "/health") == (
            status,
            "OK" if status == 200 else "The machine shows no GPU.\n",
        )
