# SPDX-License-Identifier: Apache-2.0
"""What a person may write after --simulate, and what is said of what cannot be meant."""

from __future__ import annotations

from pathlib import Path

import pynvml as nv
import pytest

from base.errors import BadInput
from simulator import recording
from simulator.recording import Recording
from simulator.simulation import Simulation, simulate
from tests import machines

MACHINE = """\
summary: mine
sources: []
host: {machine_type: Mine, memory_gib: 8, numa: ["0-3"]}
driver: {version: "535.1", nvml: "12.535.1", cuda: 12020}
gpus:
  - {model: t4, bus_id: "0000:01:00.0"}
"""


def names(simulation: Simulation) -> list[str]:
    with machines.session(simulation) as handle:
        return [nv.nvmlDeviceGetName(handle(at)) for at in range(nv.nvmlDeviceGetCount())]


def test_a_name_makes_the_machine_with_its_host(tmp_path: Path) -> None:
    """State and host tree lie in the directory."""
    simulation = simulate("dgx1-v100", tmp_path)

    assert names(simulation) == ["Tesla V100-SXM2-32GB"] * 8
    assert simulation.state_file.is_relative_to(tmp_path)
    assert len(list((simulation.host_root / "dev").glob("nvidia[0-9]"))) == 8


def test_a_machine_file_makes_that_machine(tmp_path: Path) -> None:
    """Named after its file."""
    file = tmp_path / "mine.yaml"
    file.write_text(MACHINE)

    simulation = simulate(str(file), tmp_path / "made")

    assert names(simulation) == ["Tesla T4"]
    assert simulation.state.name == "mine"


def test_a_state_file_is_opened_as_it_is(tmp_path: Path) -> None:
    """Not copied: faults set by others show."""
    there = machines.simulation(tmp_path / "there")

    simulation = simulate(str(there.state_file), tmp_path / "unused")
    there.set_driver("mismatch")

    assert simulation.state.driver == "mismatch"
    assert not (tmp_path / "unused").exists()


def test_a_recording_is_replayed(tmp_path: Path) -> None:
    """One of a machine without a library has none here either."""
    file = tmp_path / "recorded.json"
    recording.save_recording(Recording(library=False), file)

    with simulate(str(file), tmp_path / "made"):
        assert machines.code_of(nv.nvmlInit) == nv.NVML_ERROR_LIBRARY_NOT_FOUND


@pytest.mark.parametrize(
    ("spec", "content", "why"),
    [
        ("dgx-a10", None, "did you mean 'dgx-a100'"),
        ("dgx-a10", None, "simulate --list"),
        ("missing.json", None, "missing.json"),
        ("./nowhere/machine.yaml", None, "machine.yaml"),
        ("typo.yaml", MACHINE.replace("summary", "sumary"), "typo.yaml:1: .*did you mean"),
        ("other.json", '{"schema": "something/1"}', "no machine"),
        ("list.json", "[1]", "no machine"),
        ("cut.json", '{\n"schema": "gpuscape-rec', "cut.json:2: not valid JSON"),
        ("old.json", '{"schema": "gpuscape-recording/0"}', "no machine"),
        (
            "state.json",
            '{"schema": "gpuscape-simulation/1", "name": 3}',
            "state.json:1: name: expected",
        ),
        (
            "calls.json",
            '{"schema": "gpuscape-recording/1", "calls": [{"entry": "nvmlDeviceGetNme"}]}',
            r"calls.json: calls\[0\]: .*nvmlDeviceGetNme",
        ),
    ],
)
def test_what_cannot_be_meant_is_said_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: str, content: str | None, why: str
) -> None:
    """With the file, line or key, and where it helps the nearest names."""
    monkeypatch.chdir(tmp_path)
    if content is not None:
        Path(spec).write_text(content)

    with pytest.raises(BadInput, match=why) as raised:
        simulate(spec, tmp_path / "made")

    assert "\n" not in str(raised.value)
