# SPDX-License-Identifier: Apache-2.0
"""A host whose sysfs shows no NVIDIA PCI function, as WSL2 and sandboxes: all works by index."""

from __future__ import annotations

import json
from ctypes import Structure, c_char
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from cli.main import main
from discovery.model import Reason
from discovery.nvml.calls import Calls
from discovery.nvml.conversions import Garbage, bus_id
from simulator.description.machine_schema import HostSpec, PciFunction
from simulator.simulation import Simulation
from tests import machines
from tests.agent.agent_process import running, until

BUS_ID = "0000:01:00.0"
BASIC_RENDER = PciFunction(bus_id="8756:00:00.0", device_id=0x008E1414, pci_class=0x030200)
"""What newer versions of Windows show in place of the GPU. Source: microsoft/WSL issue 9821."""


def gpuscape(*arguments: str) -> str:
    """What a command that must succeed prints."""
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_wsl2_shows_no_pci_at_all(tmp_path: Path) -> None:
    root = Simulation.create("wsl2", tmp_path).host_root
    assert not (root / "sys/bus").exists()
    assert (root / "dev/dxg").exists()


def test_discover_and_labels_find_the_gpu() -> None:
    found = json.loads(gpuscape("discover", "--simulate", "wsl2", "-o", "json"))
    assert [(gpu["bus_id"], gpu["state"]) for gpu in found["gpus"]] == [(BUS_ID, "present")]
    labels = json.loads(gpuscape("labels", "--simulate", "wsl2", "-o", "json"))
    assert labels["nvidia.com/gpu.product"] == "NVIDIA-GeForce-RTX-5080"
    assert labels["nvidia.com/gpu.machine"] == "unknown"
    assert labels["gpuscape.io/gpu.health"] == "healthy"


def test_a_recording_of_it_replays(tmp_path: Path) -> None:
    file = tmp_path / "machine.json"
    gpuscape("record", "--no-anonymise", str(file), "--simulate", "wsl2")
    recorded, simulated = (
        json.loads(gpuscape("discover", "--simulate", machine, "-o", "json"))
        for machine in (str(file), "wsl2")
    )
    assert recorded["gpus"] == simulated["gpus"]


def test_the_agent_reads_it_and_is_ready(tmp_path: Path) -> None:
    with running(Simulation.create("wsl2", tmp_path)) as agent:
        until(lambda: agent.gpus("present") == 1)
        until(lambda: "DCGM_FI_DEV_GPU_TEMP{" in agent.metrics())
        assert agent.get("probes", "/readyz")[0] == 200


def test_foreign_functions_change_nothing(tmp_path: Path) -> None:
    host = HostSpec(memory_gib=8, numa=("0-3",), gpus_in_sysfs=False)
    simulation = machines.simulation(
        tmp_path, machines.gpu(0), host=host, functions=(BASIC_RENDER,)
    )
    found = json.loads(gpuscape("discover", "--simulate", str(simulation.state_file), "-o", "json"))
    assert [gpu["state"] for gpu in found["gpus"]] == ["present"]


class _Info(Structure):
    """nvmlPciInfo_t as pynvml has it where it decodes nothing."""

    _fields_ = [("busId", c_char * 32)]


@pytest.mark.parametrize(
    "info", [_Info(busId=b"00000000:01:00.0"), SimpleNamespace(busId="00000000:01:00.0")]
)
def test_a_bus_id_may_be_bytes_or_text_by_the_version_of_pynvml(info: object) -> None:
    assert bus_id(info) == BUS_ID


@pytest.mark.parametrize("text", ["", "nonsense", b"\xff\xff", "0000:zz:00.0"])
def test_what_is_no_bus_id_is_garbage(text: str | bytes) -> None:
    with pytest.raises(Garbage):
        bus_id(SimpleNamespace(busId=text))


def test_what_this_version_of_pynvml_has_otherwise_costs_one_reading(tmp_path: Path) -> None:
    """An exception would end the device reader, again and again."""
    calls = Calls()
    with machines.session(machines.simulation(tmp_path)) as gpu:
        assert calls.ask("uuid", "nvmlNoSuchFunction", gpu(0)) is None
        assert calls.ask("model", "nvmlDeviceGetName", gpu(0), convert=lambda it: it.value) is None
    assert [(gap.what, gap.reason) for gap in calls.gaps] == [
        ("uuid", Reason.FAILED),
        ("model", Reason.FAILED),
    ]
