# SPDX-License-Identifier: Apache-2.0
"""What boards and slots are like: windows, limits, PCIe links, and what rights hide."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pynvml as nv
import pytest

from discovery.host.pci import DEVICES
from discovery.sample import ReadingGroup
from simulator.description.machine_catalog import load_machine, load_models, machine_names
from simulator.simulation import Simulation
from tests import machines
from tests.observed import look_at

MIB = 1 << 20
FIRST = machines.gpu(0).bus_id


@contextmanager
def handles(simulated: Simulation) -> Iterator[list[Any]]:
    """Handles of all its GPUs, in an open session."""
    with machines.session(simulated) as handle:
        yield [handle(at) for at in range(nv.nvmlDeviceGetCount())]


def regions(simulated: Simulation, bus_id: str) -> list[int]:
    """Sizes of the regions in a function's ``resource`` file."""
    text = (simulated.host_root / DEVICES / bus_id / "resource").read_text()
    rows = [[int(number, 16) for number in line.split()] for line in text.splitlines()]
    return [end - start + 1 if end else 0 for start, end, _ in rows]


# the window to the memory


@pytest.mark.parametrize(
    ("machine", "mib"),
    [("dgx-a100", 65536), ("hgx-h100", 131072), ("hgx-h200", 262144), ("t4", 256)],
)
def test_the_window_to_a_gpu_s_memory_is_a_power_of_two(
    machine: str, mib: int, tmp_path: Path
) -> None:
    simulated = Simulation.create(machine, tmp_path)
    with handles(simulated) as found:
        assert nv.nvmlDeviceGetBAR1MemoryInfo(found[0]).bar1Total == mib * MIB
    assert regions(simulated, load_machine(machine).gpus[0].bus_id)[1] == mib * MIB


def test_a_mig_device_has_its_share_of_the_window(tmp_path: Path) -> None:
    """As in the MIG user guide's outputs of an A100 40GB."""
    simulated = Simulation.create("dgx-a100-mig-mixed", tmp_path)
    with handles(simulated) as found:
        devices = [nv.nvmlDeviceGetMigDeviceHandleByIndex(found[4], at) for at in range(3)]
        sizes = [nv.nvmlDeviceGetBAR1MemoryInfo(device).bar1Total // MIB for device in devices]
    assert sizes == [32767, 16383, 8191]


def test_regions_of_one_machine_do_not_overlap(tmp_path: Path) -> None:
    simulated = Simulation.create("hgx-b200", tmp_path)
    taken: list[tuple[int, int]] = []
    for file in sorted((simulated.host_root / DEVICES).glob("*/resource")):
        rows = [
            [int(number, 16) for number in line.split()] for line in file.read_text().splitlines()
        ]
        assert len(rows) in (13, 17)
        taken += [(start, end) for start, end, flags in rows if flags == 0x14220C]
    taken.sort()
    assert len(taken) == 16
    assert all(end < start for (_, end), (start, _) in pairwise(taken))


# limits


def test_a_gpu_with_unified_memory_says_neither_limits_nor_memory_its_clock_nor_window(
    tmp_path: Path,
) -> None:
    simulated = Simulation.create("gb10", tmp_path)
    with handles(simulated) as (gb10,):
        codes = {
            machines.code_of(lambda call=call: call(gb10))  # type: ignore[misc]
            for call in (
                nv.nvmlDeviceGetMemoryInfo,
                nv.nvmlDeviceGetBAR1MemoryInfo,
                nv.nvmlDeviceGetPowerManagementLimit,
                nv.nvmlDeviceGetPowerManagementDefaultLimit,
                nv.nvmlDeviceGetPowerManagementLimitConstraints,
                nv.nvmlDeviceGetEnforcedPowerLimit,
                lambda gpu: nv.nvmlDeviceGetClockInfo(gpu, nv.NVML_CLOCK_MEM),
                lambda gpu: nv.nvmlDeviceGetMaxClockInfo(gpu, nv.NVML_CLOCK_MEM),
                nv.nvmlDeviceGetFanSpeed,
            )
        }
        assert nv.nvmlDeviceGetPowerUsage(gb10) > 0
        assert nv.nvmlDeviceGetClockInfo(gb10, nv.NVML_CLOCK_SM) > 0
        link = (
            nv.nvmlDeviceGetMaxPcieLinkGeneration(gb10),
            nv.nvmlDeviceGetMaxPcieLinkWidth(gb10),
            nv.nvmlDeviceGetCurrPcieLinkGeneration(gb10),
            nv.nvmlDeviceGetCurrPcieLinkWidth(gb10),
        )
    assert codes == {nv.NVML_ERROR_NOT_SUPPORTED}
    assert link == (1, 1, 1, 1)
    (sample,) = look_at(simulated, "gb10", (ReadingGroup.LIMITS, ReadingGroup.BAR1)).samples
    assert sample.bar1 is None
    assert sample.power_limits is None
    assert sample.memory_clock_hertz is None
    assert sample.power_watts is not None


@pytest.mark.parametrize(("machine", "watts"), [("hgx-b200", 1000), ("gb200", 1200)])
def test_a_busy_gpu_of_a_kilowatt_and_more_is_read_as_such(
    machine: str, watts: int, tmp_path: Path
) -> None:
    simulated = Simulation.create(machine, tmp_path)
    gpus = load_machine(machine).gpus
    for pid, gpu in enumerate(gpus, 71):
        simulated.add_process(gpu.bus_id, pid, percent=100)

    samples = look_at(simulated, machine, (ReadingGroup.LIMITS,)).samples

    drawn = [sample.power_watts or 0.0 for sample in samples]
    limits = [sample.power_limits for sample in samples]
    assert min(drawn) > 0.98 * watts
    assert sum(drawn) > 0.98 * watts * len(gpus)
    assert [limit and limit.highest for limit in limits] == [watts] * len(gpus)


# PCIe links


def test_links_to_boards_differ_by_slot_and_fall_back_while_idle(tmp_path: Path) -> None:
    simulated = Simulation.create("mixed", tmp_path)
    bus_ids = [gpu.bus_id for gpu in load_machine("mixed").gpus]
    simulated.add_process(bus_ids[2], 71, percent=50)

    found = {
        sample.bus_id: (sample.pcie.generation, sample.pcie.width)
        for sample in look_at(simulated, "mixed", (ReadingGroup.PCIE,)).samples
        if sample.pcie is not None
    }

    assert [found[bus_id] for bus_id in bus_ids] == [(4, 16), (4, 16), (3, 16), (1, 8), (1, 16)]
    with handles(simulated) as gpus:
        most = [nv.nvmlDeviceGetMaxPcieLinkGeneration(gpu) for gpu in gpus]
    assert most == [4, 4, 3, 3, 3]


def test_lanes_that_failed_to_train_are_missing_now_and_not_at_most(tmp_path: Path) -> None:
    simulated = machines.simulation(tmp_path)
    simulated.set_readings(FIRST, pcie_lanes=4)
    with handles(simulated) as (gpu, _):
        assert nv.nvmlDeviceGetCurrPcieLinkWidth(gpu) == 4
        assert nv.nvmlDeviceGetMaxPcieLinkWidth(gpu) == 16


# rights


@pytest.mark.parametrize("machine", machine_names())
def test_capability_files_are_those_of_mig(machine: str, tmp_path: Path) -> None:
    spec, models = load_machine(machine), load_models()
    root = Simulation.create(machine, tmp_path).host_root
    names = {
        str(file.relative_to(root / "proc/driver/nvidia/capabilities"))
        for file in root.glob("proc/driver/nvidia/capabilities/**/*")
        if file.is_file()
    }
    nodes = {file.name for file in root.glob("dev/nvidia-caps/*")}

    capable = spec.driver is not None and any(models[gpu.model].mig for gpu in spec.gpus)
    assert ({"mig/config", "mig/monitor"} <= names) == capable
    assert len(nodes) == len(names)
    made = sum(1 + len(one.compute or (1,)) for gpu in spec.gpus for one in gpu.instances)
    assert len(names) == made + 2 * capable


def test_numbers_of_capabilities_are_those_of_the_driver(tmp_path: Path) -> None:
    """GPU instance 2 of GPU 4; in the guide gpu0/gi0 has 3 and its first compute instance 4."""
    root = Simulation.create("dgx-a100-mig-mixed", tmp_path).host_root
    capabilities = root / "proc/driver/nvidia/capabilities"
    told = (capabilities / "gpu4/mig/gi2/access").read_text().splitlines()
    minor = 3 + 9 * (4 * 15 + 2)
    assert told[0] == f"DeviceFileMinor: {minor}"
    assert (root / f"dev/nvidia-caps/nvidia-cap{minor + 1}").is_file()
    listed = (root / "proc/driver/nvidia-caps/mig-minors").read_text().splitlines()
    assert listed[:4] == ["config 1", "monitor 2", "gpu0/gi0/access 3", "gpu0/gi0/ci0/access 4"]
    assert f"gpu4/gi2/access {minor}" in listed
    assert f"gpu4/gi2/ci0/access {minor + 1}" in listed


def test_what_a_process_may_not_see_is_not_there_and_comes_back_with_the_right(
    tmp_path: Path,
) -> None:
    simulated = Simulation.create("dgx-a100-mig-single", tmp_path)
    monitor = simulated.host_root / "dev/nvidia-caps/nvidia-cap2"
    simulated.revoke("mig-monitor", "mig-access", "pci-config")
    assert not monitor.exists()
    assert {file.name for file in monitor.parent.iterdir()} == {"nvidia-cap1"}
    with handles(simulated) as found:
        code = machines.code_of(lambda: nv.nvmlDeviceGetGpuInstanceById(found[0], 0))
        listed = machines.code_of(lambda: nv.nvmlDeviceGetMigDeviceHandleByIndex(found[0], 0))
    assert (code, listed) == (nv.NVML_ERROR_NO_PERMISSION, nv.NVML_ERROR_NOT_FOUND)

    simulated.revoke()

    assert monitor.exists()
    with handles(simulated) as found:
        nv.nvmlDeviceGetMigDeviceHandleByIndex(found[0], 0)
