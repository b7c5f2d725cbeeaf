# SPDX-License-Identifier: Apache-2.0
"""What foreign programs find of a machine that is served, and that it is gone afterwards."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from base.errors import BadInput
from cli.failures import NO_DRIVER
from simulator.clibrary.served_machine import served_machine
from simulator.description.machine_catalog import machine_names
from simulator.simulation import Simulation, simulate
from tests import machines
from tests.agent.agent_process import GPUSCAPE
from tests.catalog import by_kind


def discovered(*options: str | Path) -> subprocess.CompletedProcess[str]:
    """``gpuscape discover``, in a process of its own."""
    return subprocess.run(
        [GPUSCAPE, "discover", "-o", "json", *options],
        env={**os.environ, "GPUSCAPE_NODE_NAME": "node-a"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("name", by_kind(machine_names()))
def test_our_own_reader_sees_the_same_through_the_library(name: str, tmp_path: Path) -> None:
    """The whole snapshot of each machine: on hardware it is read in this way."""
    simulation = Simulation.create(name, tmp_path)
    ours = discovered("--simulate", simulation.state_file)

    with served_machine(simulation) as machine:
        library = machine.library or tmp_path / "none"
        through = discovered("--library", library, "--host-root", machine.driver_root)

    if machine.library is None:
        assert ours.returncode == NO_DRIVER
        return
    assert json.loads(through.stdout) == json.loads(ours.stdout)


def test_everything_lies_below_the_driver_root(tmp_path: Path) -> None:
    """Library, device nodes and procfs, where NVIDIA's programs look; nothing when it ended."""
    simulation = machines.simulation(tmp_path)

    with served_machine(simulation) as machine:
        assert machine.library == tmp_path / "root/usr/lib64/libnvidia-ml.so.1"
        assert machine.library.is_file()
        assert (machine.driver_root / "dev/nvidia0").exists()
        assert (machine.sysfs_root / "bus/pci/devices/0000:10:00.0/resource").exists()
        assert "nvidia " in (machine.driver_root / "proc/modules").read_text("utf-8")
        assert machine.state_file == simulation.state_file

    assert list((tmp_path / "root/usr/lib64").iterdir()) == []


def test_a_machine_without_a_driver_has_no_library(tmp_path: Path) -> None:
    with served_machine(Simulation.create("no-driver", tmp_path)) as machine:
        assert machine.library is None
        assert not (machine.driver_root / "usr").exists()


def test_a_recording_is_served_as_a_machine_is(tmp_path: Path) -> None:
    """What was never called when it was recorded is not found, as with an older driver."""
    file = tmp_path / "recording.json"
    subprocess.run([GPUSCAPE, "record", file, "--simulate", "a30-pair"], check=True)
    simulation = simulate(str(file), tmp_path / "replayed")
    ours = discovered("--simulate", simulation.state_file)

    with served_machine(simulation) as machine:
        assert machine.library
        through = discovered("--library", machine.library, "--host-root", machine.driver_root)

    assert json.loads(through.stdout) == json.loads(ours.stdout)


def test_a_folder_that_takes_nothing_is_named(tmp_path: Path) -> None:
    simulation = machines.simulation(tmp_path)
    (simulation.host_root / "usr").touch()

    with pytest.raises(BadInput, match="cannot serve the machine in"), served_machine(simulation):
        raise AssertionError
