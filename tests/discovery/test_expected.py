# SPDX-License-Identifier: Apache-2.0
"""Which GPUs are expected to answer: those of the NVIDIA driver, and those known before."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from api import keys
from discovery.model import GpuState, NodeSnapshot
from discovery.node_host import NodeHost
from discovery.reader.device_reader import DeviceReader
from discovery.reader.protocol import Start
from labelers.annotations import node_annotations
from labelers.compose import decide_labels
from labelers.decision import Value
from labelers.label_settings import LabelSettings
from simulator.simulation import Return, Simulation
from tests import machines

NVML_ERROR_UNKNOWN = 999
NOT_OURS = {
    "nouveau": {"driver": "nouveau"},
    "vfio": {"driver": "vfio-pci"},
    "unbound": {"driver": None},
    "excluded": {"excluded": True},
}


def reader_of(simulation: Simulation) -> DeviceReader:
    return DeviceReader(
        Start(host_root=str(simulation.host_root), simulation=str(simulation.state_file))
    )


def look(reader: DeviceReader, simulation: Simulation) -> NodeSnapshot:
    reading = reader.discover()
    place = NodeHost(root=simulation.host_root, name="node-a")
    return place.snapshot(reading.driver, reading.gpus, reading.counts)


@pytest.mark.parametrize("facts", NOT_OURS.values(), ids=NOT_OURS)
def test_a_gpu_that_is_not_the_drivers_is_not_expected_and_withholds_nothing(
    facts: dict[str, Any], tmp_path: Path
) -> None:
    simulation = machines.simulation(tmp_path, machines.gpu(0, **facts), machines.gpu(1))
    with closing(reader_of(simulation)) as reader:
        node = look(reader, simulation)
    labels = decide_labels(node, LabelSettings()).values
    assert [(gpu.bus_id, gpu.index) for gpu in node.gpus] == [(machines.gpu(1).bus_id, 0)]
    assert (labels[keys.HEALTH], labels[keys.EXPECTED]) == ("healthy", "1")
    assert labels["nvidia.com/gpu.count"] == "1"
    assert isinstance(node_annotations(node)[keys.TOPOLOGY], Value)


def test_a_gpu_of_the_driver_that_never_answers_is_counted_and_unhealthy(tmp_path: Path) -> None:
    simulation = machines.simulation(tmp_path)
    silent = machines.gpu(1).bus_id
    simulation.fault(Return(code=NVML_ERROR_UNKNOWN), bus_id=silent)
    with closing(reader_of(simulation)) as reader:
        node = look(reader, simulation)
    labels = decide_labels(node, LabelSettings()).values
    assert [gpu.state for gpu in node.gpus] == [GpuState.PRESENT, GpuState.UNREADABLE]
    assert (labels[keys.EXPECTED], labels[keys.FOUND]) == ("2", "1")
    assert labels["nvidia.com/gpu.count"] == "2"
    assert (labels[keys.HEALTH], labels[keys.HEALTH_REASON]) == ("unhealthy", "gpu-unreadable")


def test_a_gpu_that_was_known_stays_expected_until_another_driver_has_it(tmp_path: Path) -> None:
    simulation = machines.simulation(tmp_path)
    at, there = (machines.gpu(place).bus_id for place in (0, 1))
    driver = simulation.host_root / "sys/bus/pci/devices" / at / "driver"
    with closing(reader_of(simulation)) as reader:
        look(reader, simulation)
        own = driver.readlink()
        driver.unlink()
        simulation.remove_gpu(at)
        unbound = look(reader, simulation)
        driver.symlink_to(own.with_name("vfio-pci"))
        given_away = look(reader, simulation)
    assert [gpu.state for gpu in unbound.gpus] == [GpuState.LOST, GpuState.PRESENT]
    assert [gpu.bus_id for gpu in given_away.gpus] == [there]
    assert decide_labels(given_away, LabelSettings()).values[keys.HEALTH] == "healthy"
