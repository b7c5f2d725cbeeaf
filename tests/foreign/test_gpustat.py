# SPDX-License-Identifier: Apache-2.0
"""gpustat, an NVML monitor that people use, shows every machine as we do."""

from __future__ import annotations

import json

import pytest

from discovery.model import GpuSnapshot
from discovery.sample import GpuSample, ReadingGroup
from tests.catalog import WITH_DRIVER, by_kind
from tests.foreign.foreign_programs import foreign
from tests.observed import look_at

MIB = 1 << 20


@pytest.mark.parametrize("name", by_kind(WITH_DRIVER))
def test_gpustat_shows_the_machine(name: str) -> None:
    """What a driver does not give is null there as it is none here."""
    with foreign(name) as there:
        shown = json.loads(there.python("-m", "gpustat", "--json"))
        seen = look_at(there.simulation, name, (ReadingGroup.LIMITS,))

    assert shown["driver_version"] == seen.snapshot.driver.version
    columns = ("index", "name", "uuid", "memory.total", "enforced.power.limit")
    found = [[gpu[column] for column in columns] for gpu in shown["gpus"]]
    samples = {sample.bus_id: sample for sample in seen.samples}
    assert found == [row(gpu, samples[gpu.bus_id]) for gpu in seen.snapshot.gpus]


def row(gpu: GpuSnapshot, sample: GpuSample) -> list[object]:
    """What gpustat is to say of a GPU: whole mebibytes and watts."""
    memory = None if gpu.memory_bytes is None else gpu.memory_bytes // MIB
    enforced = None if sample.power_limits is None else sample.power_limits.enforced
    watts = None if enforced is None else int(enforced)
    return [gpu.index, gpu.model, gpu.uuid, memory, watts]
