# SPDX-License-Identifier: Apache-2.0
"""A recording replays as the machine it was taken on, without telling which one that is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cli.main import main
from simulator.simulation import Crash, Hang, Return, Simulation

NVML_ERROR_DRIVER_NOT_LOADED, NVML_ERROR_GPU_IS_LOST = 9, 15


def gpuscape(*arguments: str) -> Result:
    """Run a command that must succeed."""
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    return result


def seen(machine: str | Path) -> dict[str, Any]:
    """The snapshot of a machine under a name that is always the same."""
    options = ["-o", "json", "--deadline", "1s", "--simulate", str(machine)]
    data: dict[str, Any] = json.loads(gpuscape("discover", *options).stdout)
    del data["host"]["name"]
    return data


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "machine.json"


def test_a_recording_replays_as_the_machine_it_was_taken_on(file: Path) -> None:
    gpuscape("record", "--no-anonymise", str(file), "--simulate", "dgx1-v100")
    assert seen(file) == seen("dgx1-v100")


def test_by_default_no_identity_of_the_machine_is_left_in_the_file(file: Path) -> None:
    gpuscape("record", str(file), "--simulate", "t4")
    text = file.read_text()
    gpus = seen("t4")["gpus"]
    assert len(gpus) == 4
    assert not [gpu for gpu in gpus if gpu["uuid"] in text or gpu["serial"] in text]


def test_errors_of_the_driver_are_recorded_too(file: Path, tmp_path: Path) -> None:
    machine = Simulation.create("t4", tmp_path / "machine")
    lost = seen(machine.state_file)["gpus"][1]["bus_id"]
    machine.fault(Return(code=NVML_ERROR_GPU_IS_LOST), bus_id=lost)
    gpuscape("record", "--no-anonymise", str(file), "--simulate", str(machine.state_file))
    machine.clear()
    assert [gpu["state"] for gpu in seen(file)["gpus"]] == ["present", "lost", "present", "present"]


SOON_HUNG = ("--deadline", "500ms", "--init-deadline", "500ms")


def test_a_gpu_that_hangs_is_left_out_and_named(file: Path, tmp_path: Path) -> None:
    machine = Simulation.create("t4", tmp_path / "machine")
    hung = seen(machine.state_file)["gpus"][2]["bus_id"]
    machine.fault(Hang(), bus_id=hung)
    options = [*SOON_HUNG, "--simulate", str(machine.state_file)]
    said = gpuscape("record", str(file), *options).stdout
    machine.clear()
    assert f"left out: {hung}: no answer within 0.5 s\n" in said
    assert hung not in {call.get("bus_id") for call in json.loads(file.read_text())["calls"]}


def test_a_gpu_that_ends_its_reader_is_left_out_too(file: Path, tmp_path: Path) -> None:
    machine = Simulation.create("t4", tmp_path / "machine")
    bad = seen(machine.state_file)["gpus"][2]["bus_id"]
    machine.fault(Crash(ending="exit"), "nvmlDeviceGetName", bus_id=bad)
    said = gpuscape("record", str(file), "--simulate", str(machine.state_file)).stdout
    assert f"left out: {bad}: the device reader died on it" in said
    assert "answers of 3 GPUs" in said


def refused(file: Path, machine: Simulation) -> str:
    """What is said of a recording that fails and leaves no file."""
    options = [*SOON_HUNG, "--simulate", str(machine.state_file)]
    result = CliRunner().invoke(main, ["record", str(file), *options])
    machine.clear()
    assert result.exit_code == 3
    assert not file.exists()
    return result.stderr


def test_a_driver_that_goes_before_the_recording_begins_leaves_no_empty_file(
    file: Path, tmp_path: Path
) -> None:
    """The device reader looks first; the recording's own session is the second."""
    machine = Simulation.create("t4", tmp_path / "machine")
    machine.fault(Return(code=NVML_ERROR_DRIVER_NOT_LOADED), "nvmlInit*", after=1)
    assert "nothing is recorded: the NVIDIA kernel module is not loaded" in refused(file, machine)


def test_a_machine_of_which_no_gpu_can_be_read_leaves_no_empty_file(
    file: Path, tmp_path: Path
) -> None:
    machine = Simulation.create("gb10", tmp_path / "machine")
    machine.fault(Hang(), bus_id=next(iter(machine.state.gpus)))
    assert "nothing is recorded: no GPU can be read: no answer" in refused(file, machine)


def test_without_a_driver_there_is_nothing_to_record(file: Path) -> None:
    result = CliRunner().invoke(main, ["record", str(file), "--simulate", "no-driver"])
    assert result.exit_code == 3
    assert not file.exists()


def not_written(*arguments: str) -> str:
    """The sentence of a recording that is refused."""
    result = CliRunner().invoke(main, ["record", *arguments, "--simulate", "t4"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert len(result.stderr.splitlines()) == 1
    return result.stderr


def test_a_folder_is_not_written(tmp_path: Path) -> None:
    assert not_written(str(tmp_path)).startswith(f"Error: cannot write the recording {tmp_path}: ")
    assert list(tmp_path.iterdir()) == []


def test_no_folders_are_made(tmp_path: Path) -> None:
    sentence = not_written(str(tmp_path / "new" / "machine.json"))
    assert f"there is no folder {tmp_path / 'new'}: create it" in sentence
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_there_is_replaced_only_by_force(file: Path) -> None:
    file.write_text("precious")
    assert "replace it with --force" in not_written(str(file))
    assert file.read_text() == "precious"

    gpuscape("record", "--force", str(file), "--simulate", "t4")

    assert len(seen(file)["gpus"]) == 4


def test_a_full_disk_is_named_with_the_fix() -> None:
    sentence = not_written("--force", "/dev/full")
    assert sentence == (
        "Error: cannot write the recording /dev/full: No space left on device: free some space,"
        " or name another place\n"
    )


def test_a_dash_is_standard_output(file: Path) -> None:
    written = gpuscape("record", "-", "--simulate", "t4")
    file.write_text(written.stdout)

    assert len(seen(file)["gpus"]) == 4
    assert not Path("-").exists()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "machine.json"),
        ("{", "machine.json"),
        ('{"schema": "other/1"}', "is no machine"),
        ('{"schema": "gpuscape-recording/1", "cals": []}', "cals"),
    ],
)
def test_a_damaged_recording_is_one_sentence_that_names_the_file(
    file: Path, text: str, sentence: str
) -> None:
    file.write_text(text)
    result = CliRunner().invoke(main, ["discover", "--simulate", str(file)])
    assert result.exit_code == 2
    assert sentence in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_an_unknown_machine_is_told_with_the_nearest_one() -> None:
    result = CliRunner().invoke(main, ["discover", "--simulate", "dgx-a10"])
    assert result.exit_code == 2
    assert "dgx-a100" in result.stderr
    assert len(result.stderr.splitlines()) == 1
