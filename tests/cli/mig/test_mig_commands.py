# SPDX-License-Identifier: Apache-2.0
"""``gpuscape mig`` on every simulated machine, and from the command line to the device reader."""

from __future__ import annotations

import json
from pathlib import Path

import pynvml
import pytest
import yaml
from click.testing import CliRunner
from msgspec.structs import replace

from cli.main import main
from simulator.description.machine_catalog import load_machine, load_models, machine_names
from simulator.description.machine_schema import GpuInstanceProfile
from simulator.simulation import Simulation
from simulator.state import edits
from simulator.state.machine_state import ComputeInstance, GpuInstance
from tests.cli.mig.conftest import CUT, RunMig
from tests.goldens import Goldens

MODELS = load_models()


def middle(machine: str) -> str:
    """The profile of two slices of the machine's first GPU with MIG; elsewhere any name."""
    for gpu in load_machine(machine).gpus:
        for profile in MODELS[gpu.model].mig:
            if profile.enum == pynvml.NVML_GPU_INSTANCE_PROFILE_2_SLICE:
                return profile.name
    return "2g.10gb"


@pytest.mark.parametrize("machine", machine_names())
def test_what_the_commands_print(
    run_mig: RunMig, machine: str, tmp_path: Path, goldens: Goldens
) -> None:
    simulation = Simulation.create(machine, tmp_path)
    text = ""
    reading = ("status -o wide", "explain", f"explain {middle(machine)}", "export")
    planning = ("configs", "plan all-balanced", "assert all-balanced")
    for line in (*reading, *planning):
        result = run_mig(*line.split(), on=simulation)
        text += f"$ gpuscape mig {line}\n{result.output}[exit {result.exit_code}]\n"
    goldens.check_text(f"{machine}/mig.txt", text)


OF_EACH_MODEL = {
    gpu.model: replace(machine, gpus=(gpu,))
    for machine in map(load_machine, machine_names())
    for gpu in machine.gpus
    if MODELS[gpu.model].mig
}
"""A machine with one GPU of it."""


@pytest.mark.parametrize("model", OF_EACH_MODEL)
def test_a_grid_fits_into_80_columns(run_mig: RunMig, model: str, tmp_path: Path) -> None:
    """Whatever the GPU: up to 12 memory units, full of the smallest instances, all in use."""
    simulation = Simulation.create(OF_EACH_MODEL[model], tmp_path)
    (bus_id,), profiles = simulation.state.gpus, MODELS[model].mig
    fill(simulation, bus_id, profiles[0])
    lines = [
        line
        for shown in ((), *((one.name,) for one in profiles))
        for line in run_mig("explain", *shown, on=simulation).output.splitlines()
    ]
    assert any("taken by" in line for line in lines)
    assert [line for line in lines if len(line) > 80] == []


def fill(simulation: Simulation, bus_id: str, profile: GpuInstanceProfile) -> None:
    """Put an instance of a profile wherever there may be one, each with two programs."""
    whole = ComputeInstance(id=0, slices=profile.slices, start=0)
    instances = tuple(
        GpuInstance(id=at, profile=profile.name, start=start, compute=(whole,))
        for at, start in enumerate(profile.starts)
    )
    simulation.edit(edits.with_gpu_changed(bus_id, mig=True, mig_pending=True, instances=instances))
    for one in instances:
        for pid in (4_190_000 + one.id, 4_190_100 + one.id):
            simulation.add_process(bus_id, pid, gpu_instance_id=one.id, compute_instance_id=0)


def test_through_the_device_reader_the_same_is_printed(goldens: Goldens) -> None:
    printed = ""
    for arguments in (("status", "-o", "wide"), ("export",)):
        printed += CliRunner().invoke(main, ("mig", *arguments, "--simulate", CUT)).output
    golden = (goldens.root / CUT / "mig.txt").read_text("utf-8")
    parts = {part.partition("\n")[0]: part.partition("\n")[2] for part in golden.split("$ ")}
    there = [parts["gpuscape mig status -o wide"], parts["gpuscape mig export"]]
    assert printed == "".join(text.removesuffix("[exit 0]\n") for text in there)


def test_a_recording_is_read_like_the_machine(tmp_path: Path) -> None:
    file = tmp_path / "machine.json"
    run = CliRunner().invoke
    assert run(main, ("record", str(file), "--no-anonymise", "--simulate", CUT)).exit_code == 0
    for arguments in (("status", "-o", "json"), ("explain", "1g.5gb"), ("export",)):
        there = run(main, ("mig", *arguments, "--simulate", CUT))
        replayed = run(main, ("mig", *arguments, "--simulate", str(file)))
        assert (replayed.exit_code, replayed.output) == (0, there.output)


def test_without_a_driver_there_is_one_sentence_and_code_3() -> None:
    result = CliRunner().invoke(main, ("mig", "status", "--simulate", "no-driver"))
    assert result.exit_code == 3
    assert "--simulate dgx-a100" in result.output


def test_json_and_yaml_hold_the_same(run_mig: RunMig, simulated: Simulation) -> None:
    for command in (("status",), ("explain",), ("explain", "1g.5gb"), ("export",)):
        as_json = run_mig(*command, "-o", "json", on=simulated).output
        as_yaml = run_mig(*command, "-o", "yaml", on=simulated).output
        assert json.loads(as_json) == yaml.safe_load(as_yaml)


def test_profiles_are_completed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMP_WORDS", "gpuscape mig explain 1g.24gb+")
    monkeypatch.setenv("COMP_CWORD", "3")
    monkeypatch.setenv("_GPUSCAPE_COMPLETE", "bash_complete")
    output = CliRunner().invoke(main, prog_name="gpuscape").output
    assert {"plain,1g.24gb+me", "plain,1g.24gb+gfx"} <= set(output.splitlines())
