# SPDX-License-Identifier: Apache-2.0
"""A machine file may bring a GPU model of its own: whole, or refused with line, key and fix."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from base.errors import BadInput
from cli.main import main
from simulator.description.machine_catalog import load_models, read_machine_file
from simulator.description.machine_schema import Model, OwnModel
from simulator.description.model_checks import own_model_problems
from tests import pages

PAGE = pages.page("docs/usage.md").partition("### A GPU model of your own")[2]
EXAMPLE = pages.blocks(PAGE, "yaml")[0]
"""The page's own machine file."""


def written(folder: Path, *edits: tuple[str, str]) -> Path:
    """The example with these pieces replaced."""
    text = EXAMPLE
    for old, new in edits:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    file = folder / "machine.yaml"
    file.write_text(text)
    return file


def shown(file: Path, *command: str) -> Any:
    result = CliRunner().invoke(main, [*command, "-o", "json", "--simulate", str(file)])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_the_example_is_a_machine_with_that_model(tmp_path: Path) -> None:
    file = written(tmp_path)

    labels = shown(file, "labels", "--mig-strategy=mixed")

    assert labels["nvidia.com/gpu.product"] == "NVIDIA-X100"
    assert labels["nvidia.com/gpu.memory"] == "65536"
    assert labels["nvidia.com/gpu.count"] == "2"
    assert labels["nvidia.com/mig.capable"] == "true"
    assert labels["nvidia.com/mig-1g.16gb.count"] == "2"
    configs = {each["name"] for each in shown(file, "mig", "configs")["configs"]}
    assert {"all-1g.16gb", "all-2g.32gb", "all-4g.64gb"} <= configs


def test_its_links_are_those_of_the_file(tmp_path: Path) -> None:
    machine = read_machine_file(written(tmp_path))
    (model,) = machine.models
    (direct,) = machine.direct

    assert (model.nvlink_links, direct.links) == (4, 4)
    with pytest.raises(BadInput, match="has 5 links here, but 'x100' has 4"):
        read_machine_file(written(tmp_path, ("links: 4}", "links: 5}")))


@pytest.mark.parametrize("name", load_models())
def test_the_models_that_come_with_gpuscape_pass_the_same_checks(name: str) -> None:
    model = load_models()[name]
    own = OwnModel(model="own", **{key: getattr(model, key) for key in Model.__struct_fields__})

    assert list(own_model_problems((own,), load_models())) == []
    assert own.alone == model


CONTRADICTIONS = (
    (
        ("model: x100\n    name", "model: t4\n    name"),
        "model",
        "'t4' is a model that comes with gpuscape",
    ),
    (("    vbios: 96.00.00.00.01\n", ""), "", "the key 'vbios' is missing"),
    (("    memory_mib: 65536\n", ""), "", "the key 'memory_mib' is missing"),
    (("memory_mib: 65536", "memory: 65536"), "memory", "unknown key; did you mean 'memory_mib'"),
    (("device_id: 0x23FF10DE", "device_id: 0x23FF"), "device_id", "10DE at the end"),
    (("reserved_mib: 500", "reserved_mib: 70000"), "reserved_mib", "more than the 65536 MiB"),
    (("nvlink_links: 4\n", "nvlink_links: 19\n"), "nvlink_links", "at most 18 links"),
    (("    nvlink_mbps: 26562\n", ""), "nvlink_mbps", "4 links needs nvlink_mbps"),
    (("starts: [0, 1, 2, 3]", "starts: [0, 1, 2, 4]"), "mig[0].starts", "1 memory units from 4"),
    (("starts: [0, 1, 2, 3]", "starts: [1, 0, 2, 3]"), "mig[0].starts", "ascending order"),
    (("starts: [0, 2]", "starts: [0, 3]"), "mig[1].starts", "2 memory units from 3"),
    (("starts: [0, 2]", "starts: [0, 1]"), "mig[1].max", "1 of it fit without overlap, not 2"),
    (("max: 4", "max: 5"), "mig[0].slices", "5 of 1 do not fit the GPU's 4"),
    (("memory_mib: 16128", "memory_mib: 16640"), "mig[0].memory_mib", "4 of 16640 do not fit"),
    (("multiprocessors: 30", "multiprocessors: 31"), "mig[0].multiprocessors", "4 of 31 do not"),
    (("name: 2g.32gb", "name: 2g.30gb"), "mig[1].name", "are called '2g.32gb'"),
    (("name: 2g.32gb, id: 5", "name: 2g.32gb, id: 14"), "mig[0].id", "two profiles have the id 14"),
    (("enum: 1, slices: 2", "enum: 1, slices: 1"), "mig[1].slices", "has 2 slices, not 1"),
    (("enum: 1,", "enum: 99,"), "mig[1].enum", "profiles 0 to 17"),
    (("size: 2,", "size: 0,"), "mig[1].size", "at least one memory unit"),
)


@pytest.mark.parametrize(("edit", "key", "reason"), CONTRADICTIONS)
def test_a_model_that_cannot_be_is_refused_with_its_line_and_key(
    edit: tuple[str, str], key: str, reason: str, tmp_path: Path
) -> None:
    file = written(tmp_path, edit)

    with pytest.raises(BadInput) as refusal:
        read_machine_file(file)

    place, _, told = str(refusal.value).partition(": models[0]")
    line = int(place.removeprefix(f"{file}:"))
    lines = file.read_text().splitlines()
    assert reason in told
    assert told.startswith(f".{key}: " if key else ": ")
    word = key.rpartition(".")[2] or "model: x100"
    first = word if word in file.read_text() else "model: x100"
    assert first in lines[line - 1]


def test_two_models_of_one_name_are_refused(tmp_path: Path) -> None:
    twice = EXAMPLE.partition("models:\n")[2].partition("gpus:\n")[0]

    with pytest.raises(BadInput, match="two models are called 'x100'"):
        read_machine_file(written(tmp_path, ("gpus:\n", f"{twice}gpus:\n")))
