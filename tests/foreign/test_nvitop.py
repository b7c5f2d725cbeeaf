# SPDX-License-Identifier: Apache-2.0
"""nvitop, an NVML monitor that people use, shows every machine as we do."""

from __future__ import annotations

import json

import pytest

from discovery.model import GpuSnapshot
from tests.catalog import WITH_DRIVER, by_kind
from tests.foreign.foreign_programs import foreign
from tests.observed import look_at

SHARING_MEMORY = ("gb10",)
"""GPUs without memory of their own, for which nvitop shows the memory of its host."""

DEVICES = """
import json
from nvitop import Device
def known(value):
    return None if value == "N/A" else value
print(json.dumps([
    [gpu.index, gpu.name(), gpu.uuid(), known(gpu.memory_total()),
     [device.uuid() for device in gpu.mig_devices()]]
    for gpu in Device.all()
]))
"""


@pytest.mark.parametrize("name", by_kind(WITH_DRIVER))
def test_nvitop_shows_the_machine(name: str) -> None:
    """Its screen has a row for each GPU, and the values behind it are ours."""
    with foreign(name) as there:
        devices = json.loads(there.python("-c", DEVICES))
        screen = there.python("-m", "nvitop", "--once", "--no-unicode", "--colorful")
        snapshot = look_at(there.simulation, name).snapshot

    expected = [row(gpu) for gpu in snapshot.gpus]
    if name in SHARING_MEMORY:
        assert devices != expected
        devices = [[*gpu[:3], None, *gpu[4:]] for gpu in devices]
    assert devices == expected
    for gpu in snapshot.gpus:
        assert f" 0000{gpu.bus_id.upper()} " in screen


def row(gpu: GpuSnapshot) -> list[object]:
    """What nvitop is to say of a GPU."""
    devices = [device.uuid for device in gpu.mig_devices or ()]
    return [gpu.index, gpu.model, gpu.uuid, gpu.memory_bytes, devices]
