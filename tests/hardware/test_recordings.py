# SPDX-License-Identifier: Apache-2.0
"""What a real GPU answered, recorded by ``gpuscape record``: labels, and what the simulator says.

The judges are not ours: the driver itself, and gpu-feature-discovery, which NVIDIA's own program
ran on the same machine (k8s-device-plugin v0.20.0); its labels stand beside the recording.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from api.mig_resources import MigStrategy
from cli.main import main
from labelers.compose import decide_labels
from labelers.label_settings import LabelSettings
from simulator import recording
from simulator.recording import Recording
from simulator.recording_file import RecordedCall
from simulator.simulation import Simulation
from tests.expected_keys import nvidia
from tests.observed import look_at

FOLDER = Path(__file__).parent / "recordings"
RECORDINGS = sorted(FOLDER.glob("*.json"))
SIMULATED = {"h100-80gb-hbm3": "hgx-h100", "h200": "hgx-h200"}
"""The simulated machine that has this model."""

PROFILES = "nvmlDeviceGetGpuInstanceProfileInfoV"
PLACEMENTS = "nvmlDeviceGetGpuInstancePossiblePlacements_v2"
FIELDS = "nvmlDeviceGetFieldValues"

UNLINKED = {
    "nvmlDeviceGetNvLinkState",  # the driver was loaded with NvLinkDisable=1
    *(f"field {number}" for number in (38, 45, 52, 59, 91, 138, 139)),  # NVML_FI_DEV_NVLINK_*
}
NEWER = {f"{PROFILES} 17"}
"""The driver knows 17 profiles (0 to 16), pynvml's simulated one more."""


@pytest.fixture(params=RECORDINGS, ids=lambda path: path.stem)
def path(request: pytest.FixtureRequest) -> Path:
    """A recording of one real GPU."""
    found: Path = request.param
    return found


@pytest.fixture
def simulated(path: Path, tmp_path: Path) -> Recording:
    """What the simulated machine with that model answers to the same command."""
    file = tmp_path / "simulated.json"
    made = CliRunner().invoke(main, ["record", "--simulate", SIMULATED[path.stem], str(file)])
    assert made.exit_code == 0, made.output
    return recording.load_recording(file)


def calls(taken: Recording, entry: str) -> list[RecordedCall]:
    """Those to the first GPU, or to none."""
    return [it for it in taken.calls if it.entry == entry and it.inputs.get("device", 1) == 1]


def codes(taken: Recording) -> dict[str, int]:
    """Return code by entry point and number, and of each field by its own number."""
    found = {}
    for call in taken.calls:
        if call.inputs.get("device", 1) == 1:
            number = call.inputs.get("profile", call.inputs.get("profileId"))
            name = call.entry if number is None else f"{call.entry} {number}"
            found[name] = call.code
        if call.entry == FIELDS and call.inputs["device"] == 1 and not call.code:
            values = call.outputs["values"]
            found |= {f"field {it['fieldId']}": it["nvmlReturn"] for it in values}
    return found


def answers(taken: Recording, entry: str) -> list[dict[str, Any]]:
    """Inputs and outputs of each call, without the tokens of handles."""
    return [
        {"inputs": it.inputs | {"device": None}, "code": it.code, "outputs": it.outputs}
        for it in calls(taken, entry)
    ]


def test_labels_are_those_that_nvidias_program_wrote_there(path: Path, tmp_path: Path) -> None:
    """All of ``nvidia.com/`` but the timestamp, which it was told to leave out."""
    machine = Simulation.replay(recording.load_recording(path), tmp_path, name="again")
    snapshot = look_at(machine, "node-a").snapshot
    values = decide_labels(snapshot, LabelSettings(mig_strategy=MigStrategy.NONE)).values
    ours = {key: values[key] for key in nvidia(values)}

    lines = path.with_suffix(".labels").read_text("utf-8").splitlines()
    assert ours == dict(line.split("=", 1) for line in lines)


@pytest.mark.parametrize("entry", [PROFILES, PLACEMENTS])
def test_the_simulator_has_the_drivers_mig_profiles(
    path: Path, simulated: Recording, entry: str
) -> None:
    """Sizes, engines, numbers, places and names."""
    real = [it for it in answers(recording.load_recording(path), entry) if not it["code"]]
    assert len(real) >= 7
    assert [it for it in answers(simulated, entry) if not it["code"]] == real


def test_the_simulator_knows_what_the_driver_knows(path: Path, simulated: Recording) -> None:
    """The same return code of every call and field, but of links where that machine has none."""
    real, ours = codes(recording.load_recording(path)), codes(simulated)
    differing = {name for name, code in real.items() if ours.get(name, code) != code}
    assert differing <= UNLINKED | NEWER


def test_pcie_counters_have_32_bits(path: Path) -> None:
    """So they are not served; see docs/real-gpu.md."""
    values = [
        value
        for call in calls(recording.load_recording(path), FIELDS)
        for value in call.outputs["values"]
        if value["fieldId"] in (197, 198)
    ]
    assert [it["valueType"] for it in values] == [1, 1]
