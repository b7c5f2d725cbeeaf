# SPDX-License-Identifier: Apache-2.0
"""A MIG device has its profile's name, or none where nothing says it; never a guessed one."""

from __future__ import annotations

from pathlib import Path

import pynvml
import pytest

from discovery.model import GpuSnapshot, Reason
from discovery.nvml.facts import read_gpu
from discovery.nvml.session import close_session, open_gpu, open_session
from simulator.description.machine_catalog import load_models
from simulator.description.machine_schema import MigInstanceSpec
from simulator.simulation import Return, Simulation
from tests import machines

MODELS = {name: model for name, model in load_models().items() if model.mig}
PROFILES = [(name, profile.name) for name, model in MODELS.items() for profile in model.mig]

UNKNOWN = Return(code=pynvml.NVML_ERROR_UNKNOWN)
MISSING = Return(code=pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)


def cut(directory: Path, model: str, profile: str, compute: tuple[int, ...] | None) -> Simulation:
    """One GPU of this model with one instance of this profile."""
    start = next(one.starts[0] for one in MODELS[model].mig if one.name == profile)
    instance = MigInstanceSpec(profile=profile, start=start, id=1, compute=compute)
    gpu = machines.gpu(0, model=model, mig=True, instances=(instance,))
    return machines.simulation(directory, gpu, models={model: MODELS[model]}, switched=False)


def read(simulated: Simulation) -> GpuSnapshot:
    (bus_id,) = simulated.state.gpus
    with simulated:
        open_session()
        handle, _ = open_gpu(bus_id)
        gpu = read_gpu(bus_id, handle, {})
        close_session()
    return gpu


def names(gpu: GpuSnapshot) -> list[str]:
    return [device.profile for device in gpu.mig_devices]


@pytest.mark.parametrize(("model", "profile"), PROFILES)
def test_a_device_has_its_profile_s_name_though_the_gpu_s_memory_is_unknown(
    model: str, profile: str, tmp_path: Path
) -> None:
    simulated = cut(tmp_path, model, profile, None)
    assert names(read(simulated)) == [profile]

    simulated.fault(UNKNOWN, "nvmlDeviceGetMemoryInfo*")

    assert names(read(simulated)) == [profile]


def test_a_part_of_an_instance_says_so_whatever_names_it(tmp_path: Path) -> None:
    simulated = cut(tmp_path, "h100-sxm5-80gb", "3g.40gb", (1, 2))
    simulated.fault(UNKNOWN, "nvmlDeviceGetMemoryInfo*")
    assert names(read(simulated)) == ["1c.3g.40gb", "2c.3g.40gb"]


def test_where_nothing_names_a_device_it_is_left_out_with_a_gap(tmp_path: Path) -> None:
    simulated = cut(tmp_path, "h100-sxm5-80gb", "1g.10gb", None)
    simulated.fault(UNKNOWN, "nvmlDeviceGetMemoryInfo*")
    simulated.fault(MISSING, "nvmlDeviceGetGpuInstanceProfileInfoV")

    gpu = read(simulated)

    gap = gpu.gap("mig_devices")
    assert names(gpu) == []
    assert gap is not None
    assert (gap.reason, gap.source) == (Reason.FAILED, "nvmlDeviceGetMemoryInfo")
