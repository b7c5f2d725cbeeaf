# SPDX-License-Identifier: Apache-2.0
"""Each number within a struct is checked by itself: one that cannot be is garbage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pynvml as nv
import pytest
from msgspec import structs

from discovery.model import GpuSnapshot, Reason
from discovery.nvml.conversions import Garbage
from discovery.nvml.mig import checked_sizes
from simulator.description.machine_catalog import load_machine
from simulator.simulation import Simulation
from simulator.state.edits import with_gpu_changed
from tests import build
from tests.observed import look_at

MACHINE = "hgx-h100"
NOT_AVAILABLE = 0xFFFFFFFF


def attributes(**changed: int) -> Any:
    """A 1c.2g.20gb, but for these fields."""
    value = nv.c_nvmlDeviceAttributes()
    plain = {
        "memorySizeMB": 20096,
        "multiprocessorCount": 16,
        "gpuInstanceSliceCount": 2,
        "computeInstanceSliceCount": 1,
    }
    for name, number in (plain | changed).items():
        setattr(value, name, number)
    return value


def test_attributes_that_can_be_are_read() -> None:
    sizes = checked_sizes(attributes())
    assert (sizes.memory_bytes, sizes.gpu_instance_slices) == (20096 << 20, 2)


@pytest.mark.parametrize("name", [name for name, *_ in nv.c_nvmlDeviceAttributes._fields_])
def test_an_attribute_out_of_its_range_is_garbage(name: str) -> None:
    with pytest.raises(Garbage):
        checked_sizes(attributes(**{name: NOT_AVAILABLE}))


@pytest.mark.parametrize(
    "changed",
    [
        {"gpuInstanceSliceCount": 9},
        {"computeInstanceSliceCount": 3},
        {"computeInstanceSliceCount": 0},
        {"memorySizeMB": 0},
    ],
)
def test_slices_and_memory_that_no_instance_has_are_garbage(changed: dict[str, int]) -> None:
    with pytest.raises(Garbage):
        checked_sizes(attributes(**changed))


@pytest.fixture
def simulation(tmp_path: Path) -> Simulation:
    return Simulation.create(MACHINE, tmp_path)


def first(simulation: Simulation, **fabric: Any) -> GpuSnapshot:
    """The first GPU, registered as the machine says but for these fields."""
    gpu = load_machine(MACHINE).gpus[0]
    assert gpu.fabric is not None
    changed = structs.replace(gpu.fabric, **fabric)
    simulation.edit(with_gpu_changed(gpu.bus_id, fabric=changed))
    return look_at(simulation, MACHINE).snapshot.gpus[0]


@pytest.mark.parametrize(
    "fabric",
    [
        {"state": 4},
        {"state": NOT_AVAILABLE},
        {"status": 1000},
        {"clique_id": NOT_AVAILABLE},
        {"cluster_uuid": "ffffffff-ffff-ffff-ffff-ffffffffffff"},
    ],
)
def test_a_registration_with_one_senseless_field_is_unknown(
    simulation: Simulation, fabric: dict[str, Any]
) -> None:
    gpu = first(simulation, **fabric)
    gap = gpu.gap("fabric")
    assert (build.nvidia(gpu).fabric, gap and gap.reason) == (None, Reason.GARBAGE)


def test_a_senseless_health_of_the_fabric_leaves_the_registration(simulation: Simulation) -> None:
    gpu = first(simulation, health_mask=NOT_AVAILABLE)
    gap = gpu.gap("fabric.health_mask")
    fabric = build.nvidia(gpu).fabric
    assert fabric is not None
    assert fabric.registered
    assert (fabric.health_mask, gap and gap.reason) == (None, Reason.GARBAGE)
