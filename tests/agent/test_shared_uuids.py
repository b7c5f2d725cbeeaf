# SPDX-License-Identifier: Apache-2.0
"""The whole agent while the driver reports one UUID for two GPUs."""

from __future__ import annotations

from pathlib import Path

from msgspec import structs
from prometheus_client.parser import text_string_to_metric_families

from simulator.simulation import Simulation
from simulator.state.machine_state import MachineState
from tests.agent.agent_process import AgentProcess, running, until

FIRST = "GPU-5c3b2d5e-0000-4000-8000-000000000001"
SECOND = "GPU-5c3b2d5e-0000-4000-8000-000000000002"
QUICK = ("--discover-interval", "1s", "--sample-interval", "500ms")


def _report(simulation: Simulation, *uuids: str) -> None:
    """The driver reports these, GPU by GPU."""

    def change(state: MachineState) -> MachineState:
        assert state.machine is not None
        specs = zip(state.machine.gpus, uuids, strict=True)
        gpus = tuple(structs.replace(gpu, uuid=uuid) for gpu, uuid in specs)
        return structs.replace(state, machine=structs.replace(state.machine, gpus=gpus))

    simulation.edit(change)


def _labels_of(agent: AgentProcess, metric: str) -> list[dict[str, str]]:
    families = text_string_to_metric_families(agent.metrics())
    return [
        sample.labels for family in families for sample in family.samples if sample.name == metric
    ]


def _uuids(agent: AgentProcess) -> list[str | None]:
    return [labels.get("UUID") for labels in _labels_of(agent, "DCGM_FI_DEV_GPU_TEMP")]


def test_gpus_with_one_uuid_are_counted_and_served_without_it_until_they_have_two(
    tmp_path: Path,
) -> None:
    simulation, file = Simulation.create("a30-pair", tmp_path), tmp_path / "features"
    _report(simulation, FIRST, FIRST)
    with running(simulation, *QUICK, "--feature-file", str(file)) as agent:
        until(lambda: _uuids(agent) == [None, None])
        until(lambda: file.exists() and "nvidia.com/gpu.count=2\n" in file.read_text())
        temperatures = _labels_of(agent, "DCGM_FI_DEV_GPU_TEMP")
        assert [labels["gpu"] for labels in temperatures] == ["0", "1"]
        assert FIRST not in agent.metrics()
        (shared,) = [line for line in agent.logged if line["message"] == "identity shared"]
        assert FIRST in str(shared["why"])

        _report(simulation, FIRST, SECOND)
        until(lambda: _uuids(agent) == [FIRST, SECOND])
