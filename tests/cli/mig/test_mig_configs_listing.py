# SPDX-License-Identifier: Apache-2.0
"""``gpuscape mig configs`` and ``assert``: what configurations mean here, and whether they hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from mig.configs.default_configs import listed_configs
from mig.configs.mig_config_file import parse_mig_configs
from simulator.simulation import Simulation
from simulator.state import edits
from tests.cli.mig.conftest import RunMig

CONFIGS = """version: v1
mig-configs:
  three:
  - {devices: [4, 6], mig-enabled: true, mig-devices: {"3g.20gb": 3}}
  - {devices: [5], mig-enabled: true, mig-devices: {"7g.40gb": 1}}
  twos:
  - {devices: [0], mig-enabled: true, mig-devices: {"2g.10gb": 4}}
  elsewhere:
  - {device-filter: "0x233010DE", devices: all, mig-enabled: false}
"""
HOLDS = '{"5": {"7g.40gb": 1}}'


@pytest.fixture
def file(tmp_path: Path) -> str:
    """A file with one that does not fit everywhere, and one for another model."""
    path = tmp_path / "configs.yaml"
    path.write_text(CONFIGS)
    return str(path)


# configs


def test_each_configuration_has_its_gpus_and_whether_it_fits(
    run_mig: RunMig, simulated: Simulation, file: str
) -> None:
    result = run_mig("configs", "-f", file, on=simulated)
    assert result.exit_code == 0
    assert result.output.splitlines()[:8] == [
        "CONFIGURATION  GPUS  LAYOUT       FITS  NOW",
        "three          4, 6  3 x 3g.20gb  no    -",
        "               5     1 x 7g.40gb  yes   5",
        "twos           0     4 x 2g.10gb  no    -",
        "elsewhere      -     -            no    -",
        "",
        "three: GPU 4, 6: 3 of 3g.20gb, of which the GPU allows 2",
        "twos: GPU 0: 4 of 2g.10gb, of which the GPU allows 3",
    ]
    assert result.output.splitlines()[8].startswith(f"elsewhere: {file}:9: mig-configs.elsewhere")
    data = json.loads(run_mig("configs", "-f", file, "-o", "json", on=simulated).output)
    assert [
        [(one["gpus"], one["fits"], one["now"]) for one in config["layouts"]]
        for config in data["configs"]
    ] == [[([4, 6], False, []), ([5], True, [5])], [([0], False, [])], []]
    assert "no GPU here is 0x233010DE" in data["configs"][2]["refused"]
    as_yaml = run_mig("configs", "-f", file, "-o", "yaml", on=simulated).output
    assert yaml.safe_load(as_yaml) == data


def test_where_places_are_not_reported_it_is_open_whether_instances_fit(
    run_mig: RunMig, simulated: Simulation
) -> None:
    data = json.loads(run_mig("configs", "-o", "json", on=simulated).output)
    fits = {
        one["name"]: {str(each["gpus"]): each["fits"] for each in one["layouts"]}
        for one in data["configs"]
    }
    assert fits["all-7g.40gb"] == {"[0, 1, 2, 3]": None, "[4, 5, 6, 7]": True}
    assert fits["all-enabled"] == {"[0, 1, 2, 3, 4, 5, 6, 7]": True}


def test_the_file_that_is_written_has_the_same_configurations(
    run_mig: RunMig, simulated: Simulation, tmp_path: Path
) -> None:
    written = tmp_path / "default.yaml"
    written.write_text(run_mig("configs", "-o", "mig-parted", on=simulated).output)
    assert yaml.safe_load(written.read_text())["version"] == "v1"
    here = json.loads(run_mig("configs", "-o", "json", on=simulated).output)["configs"]
    read = run_mig("configs", "-f", str(written), "-o", "json", on=simulated).output
    assert json.loads(read)["configs"] == here
    assert len(here) == 10


def test_the_configurations_of_all_models_are_written_without_gpus(run_mig: RunMig) -> None:
    text = run_mig("configs", "--all-models", "--simulate", "no-driver", on=None).output
    assert parse_mig_configs(text, "f").configs == listed_configs().configs


# assert


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ((HOLDS,), 0),
        (('{"5": {"7c.7g.40gb": 1, "1g.5gb": 0}}',), 0),
        (('{"5": {"7g.40gb": 1}, "0": "on"}',), 1),
        (('{"4-7": {"1g.5gb": 7}}', "--mode-only"), 0),
        (('{"3-7": {"1g.5gb": 7}}', "--mode-only"), 1),
        (('{"4": {"3g.20gb@4": 1, "2g.10gb@0": 1, "1g.5gb": 2}}',), 0),
        (('{"4": {"3g.20gb@0": 1, "2g.10gb@4": 1, "1g.5gb": 2}}',), 1),
        (("all-1g.6gb",), 2),
        (('{"9": "off"}',), 2),
    ],
)
def test_the_exit_code_says_whether_the_gpus_are_as_wanted(
    run_mig: RunMig, simulated: Simulation, arguments: tuple[str, ...], code: int
) -> None:
    assert run_mig("assert", *arguments, on=simulated).exit_code == code


def test_what_differs_is_said(run_mig: RunMig, simulated: Simulation) -> None:
    wanted = '{"0": "on", "4": {"3g.20gb": 2}, "5": {"7g.40gb": 1}}'
    assert run_mig("assert", wanted, on=simulated).output.splitlines() == [
        "GPU  DIFFERENCE",
        "0    MIG is off, desired on",
        "4    missing: 3g.20gb",
        "     surplus: 1g.5gb at 2, 1g.5gb at 3, 2g.10gb at 0",
    ]
    result = run_mig("assert", wanted, "-o", "json", on=simulated)
    data = json.loads(result.output)
    assert result.exit_code == 1
    assert [one["index"] for one in data["differing"]] == [0, 4]
    assert len(data["compared"]) == 3
    assert run_mig("assert", HOLDS, on=simulated).output == "As desired: 1 GPU.\n"


def test_a_mode_that_waits_is_not_the_wanted_one(
    run_mig: RunMig, simulated: Simulation, bus_ids: list[str]
) -> None:
    simulated.edit(edits.with_gpu_changed(bus_ids[5], mig=True, mig_pending=False))
    result = run_mig("assert", HOLDS, "--mode-only", on=simulated)
    assert result.exit_code == 1
    assert "MIG will be off after a reset, desired on" in result.output


OVERLAPPING = """version: v1
mig-configs:
  migrated:
  - {devices: [4], mig-enabled: true, mig-devices: {7g.40gb: 1}}
  - {devices: [4, 5], mig-enabled: true, mig-devices: {3g.20gb: 2}}
"""


def test_a_file_of_a_migration_is_taken_as_it_is(
    run_mig: RunMig, simulated: Simulation, tmp_path: Path
) -> None:
    """With ``--overlap last`` the last entry of a GPU decides; without it the file is refused."""
    file = tmp_path / "config.yaml"
    file.write_text(OVERLAPPING)
    halves = '{"4,5": {"3g.20gb": 2}}'

    def documents(*layout: str) -> list[Any]:
        plan, compared = (
            json.loads(run_mig(command, *layout, "-o", "json", on=simulated).output)
            for command in ("plan", "assert")
        )
        return [plan["gpus"], compared["compared"], compared["differing"]]

    options = ("-f", str(file), "--overlap", "last")
    [listed] = json.loads(run_mig("configs", *options, "-o", "json", on=simulated).output)[
        "configs"
    ]

    [layout] = listed["layouts"]
    assert layout["gpus"] == [4, 5]
    assert [instance["profile"] for instance in layout["instances"]] == ["3g.20gb"] * 2
    assert documents(*options) == documents(halves)
    for command in ("plan", "assert"):
        refused = run_mig(command, "-f", str(file), on=simulated)
        assert refused.exit_code == 2
        assert f"{file}:5: mig-configs.migrated[1].devices: GPU 4" in refused.output
        assert f"gets another layout from {file}:4: mig-configs.migrated[0]" in refused.output
        assert "--overlap last" in refused.output


def test_a_file_is_checked_without_gpus(run_mig: RunMig, file: str) -> None:
    """The machine has no driver."""
    options = ("--valid-config", "--simulate", "no-driver")
    assert run_mig("assert", "-f", file, "three", *options, on=None).exit_code == 0
    assert run_mig("assert", "-f", file, "four", *options, on=None).exit_code == 2
    assert run_mig("assert", "-f", file, *options, on=None).exit_code == 2
