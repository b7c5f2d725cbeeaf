# SPDX-License-Identifier: Apache-2.0
"""What a device plugin sees of a simulated machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from api.mig_resources import MigStrategy
from discovery.model import GpuState
from simulator.simulation import Hang, Return, Simulation
from simulator.state.machine_state import MachineState
from tests.kubelet_nodes.hardware import Hardware
from tests.kubelet_nodes.offer import offer

LOST = Return(code=15)


@pytest.fixture
def simulation(tmp_path: Path) -> Simulation:
    return Simulation.create("a30-pair", tmp_path)


def states(hardware: Hardware) -> list[GpuState] | None:
    """Of the GPUs; None where nothing is new."""
    snapshot = hardware.news()
    return None if snapshot is None else [gpu.state for gpu in snapshot.gpus]


def test_what_did_not_change_is_no_news(simulation: Simulation) -> None:
    hardware = Hardware(simulation, "node-a")
    assert states(hardware) == [GpuState.PRESENT] * 2
    assert states(hardware) is None
    simulation.add_process("0000:17:00.0", 4711)
    assert states(hardware) is None


def test_a_lost_gpu_is_news_and_so_is_its_return(simulation: Simulation) -> None:
    hardware = Hardware(simulation, "node-a")
    hardware.news()
    simulation.fault(LOST, bus_id="0000:31:00.0")
    assert states(hardware) == [GpuState.PRESENT, GpuState.LOST]
    simulation.clear()
    assert states(hardware) == [GpuState.PRESENT] * 2


def test_a_machine_is_read_without_a_trace(simulation: Simulation) -> None:
    simulation.fault(LOST, bus_id="0000:31:00.0", times=1)
    simulation.log_calls()
    before = simulation.state
    Hardware(simulation, "node-a").news()
    assert simulation.state == before
    assert not simulation.calls()


def test_a_gpu_that_hangs_holds_nobody_up(simulation: Simulation) -> None:
    simulation.fault(Hang(), bus_id="0000:31:00.0")
    assert states(Hardware(simulation, "node-a")) == [GpuState.PRESENT] * 2


def test_a_machine_without_a_driver_offers_nothing(tmp_path: Path) -> None:
    snapshot = Hardware(Simulation.create("no-driver", tmp_path), "node-a").news()
    assert snapshot is not None
    assert offer(snapshot) == {}


def test_a_mig_layout_is_offered_as_soon_as_it_is_there(tmp_path: Path) -> None:
    cut = Simulation.create("dgx-a100-mig-single", tmp_path / "cut").state
    whole = Simulation.create("dgx-a100", tmp_path / "whole")
    hardware = Hardware(whole, "node-a")
    hardware.news()

    def with_mig(state: MachineState) -> MachineState:
        return replace(state, gpus=cut.gpus)

    whole.edit(with_mig)
    snapshot = hardware.news()
    assert snapshot is not None
    offered = offer(snapshot, strategy=MigStrategy.MIXED)
    assert {name: len(devices) for name, devices in offered.items()} == {
        "nvidia.com/mig-1g.5gb": 56
    }
