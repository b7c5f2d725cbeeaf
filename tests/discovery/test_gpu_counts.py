# SPDX-License-Identifier: Apache-2.0
"""What sysfs and NVML count, on simulated machines: a failed count is no count of 0."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pynvml
import pytest
from click.testing import CliRunner

from api import keys
from cli.failures import NO_DRIVER, REFUSED
from cli.main import main
from discovery.model import GpuState, NodeSnapshot
from discovery.node_host import NodeHost
from discovery.reader.device_reader import DeviceReader
from discovery.reader.protocol import Start
from health.node_health import count_faults
from labelers.compose import decide_labels
from labelers.decision import Keep
from labelers.label_settings import LabelSettings
from simulator.description.machine_schema import HostSpec, PciFunction
from simulator.simulation import Return, Simulation
from tests import machines

UNKNOWN = Return(code=pynvml.NVML_ERROR_UNKNOWN)
LOST = Return(code=pynvml.NVML_ERROR_GPU_IS_LOST)
COUNT = "nvmlDeviceGetCount*"
GPU_COUNT = "nvidia.com/gpu.count"
AUDIO = PciFunction(bus_id="0000:17:00.1", device_id=0x228E10DE, pci_class=0x040300)
SWITCH = PciFunction(bus_id="0000:05:00.0", device_id=0x22A310DE, pci_class=0x068000)


def snapshots(simulation: Simulation, times: int = 1) -> list[NodeSnapshot]:
    """So many readings by one new reader."""
    start = Start(host_root=str(simulation.host_root), simulation=str(simulation.state_file))
    place = NodeHost(root=simulation.host_root, name="node-a")
    with closing(DeviceReader(start)) as reader:
        readings = [reader.discover() for _ in range(times)]
    return [place.snapshot(it.driver, it.gpus, it.counts) for it in readings]


def faults(node: NodeSnapshot) -> list[str]:
    return [rule.reason for rule in count_faults(node)]


def labels(node: NodeSnapshot) -> dict[str, str]:
    return decide_labels(node, LabelSettings()).values


@pytest.fixture
def simulation(tmp_path: Path) -> Simulation:
    return machines.simulation(tmp_path / "four", *(machines.gpu(at) for at in range(4)))


def places(simulation: Simulation) -> list[str]:
    return list(simulation.state.gpus)


def test_sources_that_agree_are_no_fault(simulation: Simulation) -> None:
    (node,) = snapshots(simulation)
    assert (node.counts.sysfs, node.counts.nvml, faults(node)) == (4, 4, [])


def test_a_count_that_fails_where_sysfs_shows_nothing_removes_no_label(
    simulation: Simulation,
) -> None:
    simulation.hide_pci()
    simulation.fault(UNKNOWN, COUNT)
    (node,) = snapshots(simulation)
    decisions = decide_labels(node, LabelSettings()).decisions
    by_gpus = {key.name for key in (*keys.DRIVER, *keys.CAPABILITIES, *keys.RESOURCES)}
    by_gpus |= {key.name for key in (*keys.HARDWARE, *keys.LINKS)}
    assert {type(decisions[key]) for key in by_gpus} == {Keep}
    assert faults(node) == ["gpus-not-counted", "host-tree-missing"]
    assert labels(node)[keys.HEALTH] == "unknown"


def test_a_count_that_fails_later_makes_no_known_gpu_a_lost_one(simulation: Simulation) -> None:
    simulation.hide_pci()
    simulation.fault(UNKNOWN, COUNT, after=1)
    _, node = snapshots(simulation, times=2)
    assert [gpu.state for gpu in node.gpus] == [GpuState.UNREADABLE] * 4
    assert node.gpus[0].gaps[0].source == "nvmlDeviceGetCount"
    assert labels(node)[keys.EXPECTED] == "4"


def test_a_count_that_fails_where_sysfs_shows_the_gpus_changes_nothing(
    simulation: Simulation,
) -> None:
    (before,) = snapshots(simulation)
    simulation.fault(UNKNOWN, COUNT)
    (node,) = snapshots(simulation)
    assert (labels(node), faults(node)) == (labels(before), [])


@pytest.mark.parametrize("call", ["nvmlDeviceGetHandleByIndex*", "nvmlDeviceGetPciInfo*"])
def test_a_gpu_that_nvml_counts_and_gives_no_bus_id_of_is_expected(
    simulation: Simulation, call: str
) -> None:
    """Without PCI in sysfs a lost GPU refuses by index: its node has four GPUs, and not three."""
    simulation.hide_pci()
    simulation.fault(LOST, call, bus_id=places(simulation)[2])
    (node,) = snapshots(simulation)
    found = labels(node)
    assert (found[keys.EXPECTED], found[keys.FOUND]) == ("4", "3")
    assert found[keys.HEALTH_REASON] == "gpu-unaddressable"
    assert isinstance(decide_labels(node, LabelSettings()).decisions[GPU_COUNT], Keep)


def test_a_gpu_that_turns_up_is_not_counted_twice(simulation: Simulation) -> None:
    simulation.hide_pci()
    simulation.fault(LOST, "nvmlDeviceGetPciInfo*", bus_id=places(simulation)[2], times=1)
    before, node = snapshots(simulation, times=2)
    assert (len(before.gpus), before.counts.unaddressed) == (3, 1)
    assert (len(node.gpus), node.counts.unaddressed) == (4, 0)


def test_a_gpu_that_nvml_has_counted_is_expected_for_as_long_as_the_process_lives(
    simulation: Simulation,
) -> None:
    lost = places(simulation)[2]
    simulation.hide_pci()
    simulation.fault(LOST, "nvmlDeviceGetPciInfo*", bus_id=lost)
    start = Start(host_root=str(simulation.host_root), simulation=str(simulation.state_file))
    with closing(DeviceReader(start)) as reader:
        assert reader.discover().counts.unaddressed == 1
        simulation.remove_gpu(lost)
        assert reader.discover().counts.unaddressed == 1


def test_gpus_that_sysfs_hides_are_read_by_index_and_the_host_tree_is_at_fault(
    simulation: Simulation,
) -> None:
    simulation.hide_pci(*places(simulation)[:2])
    (node,) = snapshots(simulation)
    assert [gpu.state for gpu in node.gpus] == [GpuState.PRESENT] * 4
    assert (node.counts.sysfs, node.counts.nvml) == (2, 4)
    assert faults(node) == ["host-tree-missing"]
    assert labels(node)[keys.HEALTH_REASON] == "host-tree-missing"


def test_a_host_tree_without_any_pci_function_makes_an_empty_node_unsure(tmp_path: Path) -> None:
    simulation = Simulation.create("empty", tmp_path)
    assert faults(snapshots(simulation)[0]) == []
    simulation.hide_pci()
    (node,) = snapshots(simulation)
    assert isinstance(decide_labels(node, LabelSettings()).decisions[keys.MACHINE], Keep)


@pytest.mark.parametrize(
    "other", [{"driver": "vfio-pci"}, {"driver": "nouveau"}, {"driver": None}, {"excluded": True}]
)
def test_gpus_of_others_and_functions_that_are_no_gpu_are_no_difference(
    other: dict[str, str], tmp_path: Path
) -> None:
    gpus = (machines.gpu(0), machines.gpu(1, **other))
    functions = (AUDIO, SWITCH)
    (node,) = snapshots(machines.simulation(tmp_path, *gpus, functions=functions))
    assert (node.counts.sysfs, node.counts.nvml, faults(node)) == (1, 1, [])


@pytest.mark.parametrize("name", ["wsl2", "dgx-a100-mig-mixed", "gb10", "vgpu-guest", "hgx-h100"])
def test_these_machines_have_no_fault_of_counts(name: str, tmp_path: Path) -> None:
    assert faults(snapshots(Simulation.create(name, tmp_path))[0]) == []


def test_wsl2_is_known_by_its_kernel_where_its_device_node_is_not_shown(tmp_path: Path) -> None:
    simulation = Simulation.create("wsl2", tmp_path)
    (simulation.host_root / "dev/dxg").unlink()
    assert faults(snapshots(simulation)[0]) == ["host-tree-missing"]
    release = simulation.host_root / "proc/sys/kernel/osrelease"
    release.write_text("5.15.153.1-microsoft-standard-WSL2\n")
    assert faults(snapshots(simulation)[0]) == []


@pytest.fixture
def jetson(tmp_path: Path) -> Simulation:
    host = HostSpec(memory_gib=32, numa=("0-11",), gpus_in_sysfs=False)
    orin = machines.model(name="Orin (nvgpu)", mig=(), nvlink_links=0, memory_mib=None)
    simulation = machines.simulation(
        tmp_path / "jetson", machines.gpu(0), models={"small": orin}, host=host
    )
    (simulation.host_root / "dev/dxg").unlink()
    not_supported = Return(code=pynvml.NVML_ERROR_NOT_SUPPORTED)
    simulation.fault(not_supported, "nvmlDeviceGetPciInfo*")
    return simulation


def test_an_integrated_gpu_is_named_as_such_and_no_label_goes(jetson: Simulation) -> None:
    (node,) = snapshots(jetson)
    decisions = decide_labels(node, LabelSettings()).decisions
    assert (node.gpus, faults(node)) == ((), ["integrated-gpu"])
    assert isinstance(decisions[GPU_COUNT], Keep)
    assert labels(node)[keys.HEALTH_REASON] == "integrated-gpu"


@pytest.mark.parametrize("command", ["discover", "labels", "topo"])
def test_commands_end_otherwise_where_gpus_cannot_be_listed(
    jetson: Simulation, simulation: Simulation, command: str
) -> None:
    simulation.hide_pci()
    simulation.fault(UNKNOWN, COUNT)
    ends = {}
    for machine in (jetson, simulation):
        for options in ((), ("-o", "json")):
            arguments = [command, "--simulate", str(machine.state_file), *options]
            result = CliRunner().invoke(main, arguments)
            ends[machine.state_file, options] = result.exit_code
            assert not options or json.loads(result.stdout) is not None
            why = "integrated" if machine is jetson else "nvmlDeviceGetCount: Unknown Error"
            assert why in result.stderr
    assert list(ends.values()) == [REFUSED, REFUSED, NO_DRIVER, NO_DRIVER]
