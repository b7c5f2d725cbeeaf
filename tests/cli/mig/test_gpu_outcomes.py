# SPDX-License-Identifier: Apache-2.0
"""The commands show how a change ended on each GPU, in text and as documents."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cli.failures import UNDONE, UNFINISHED
from cli.main import main
from simulator.simulation import Return
from tests import machines
from tests.actuator.simulated_node import FIVE, SimulatedNode, node

HALVES = '{"all": {"3g.20gb": 2}}'
CREATE = "nvmlDeviceCreateGpuInstanceWithPlacement"


@pytest.fixture
def on(tmp_path: Path) -> SimulatedNode:
    """Three GPUs, of which the second makes no instance at its first try."""
    made = node(tmp_path, *FIVE, count=3)
    made.simulation.fault(Return(code=999), CREATE, bus_id=machines.gpu(1).bus_id, times=1)
    return made


def run(on: SimulatedNode, *arguments: str) -> Result:
    simulated = ("--simulate", str(on.simulation.state_file))
    return CliRunner().invoke(main, ("mig", *arguments, *simulated))


def lines(result: Result) -> list[list[str]]:
    """The words of each line."""
    return [line.split() for line in result.stdout.splitlines()]


def test_a_gpu_that_fails_is_in_a_table_with_those_that_have_the_layout(on: SimulatedNode) -> None:
    uuids = [gpu.uuid for gpu in on.gpus()]

    result = run(on, "apply", HALVES, "--yes")

    assert result.exit_code == UNDONE, result.output
    assert "Rolled back on 1 of 3 GPUs, which have the previous layout" in result.stdout
    assert "every other GPU has the desired layout" in result.stdout
    table = [words[:2] for words in lines(result) if words and words[0] in uuids]
    assert table == [
        [uuids[0], "applied"],
        [uuids[1], "rolled-back"],
        [uuids[2], "applied"],
    ]
    [change] = json.loads(run(on, "history", "-o", "json").stdout)["changes"]
    assert change["outcome"] == "rolled-back"
    assert [gpu["outcome"] for gpu in change["gpus"]] == ["applied", "rolled-back", "applied"]


def test_the_document_has_each_gpu_also_where_nothing_was_to_be_done(on: SimulatedNode) -> None:
    uuids = [gpu.uuid for gpu in on.gpus()]
    run(on, "apply", '{"0": {"3g.20gb": 2}}', "--yes")

    document = json.loads(run(on, "apply", HALVES, "--yes", "-o", "json").stdout)

    assert document["outcome"] == "rolled-back"
    assert {one["gpu"]: (one["outcome"], bool(one["reason"])) for one in document["outcomes"]} == {
        uuids[0]: ("unchanged", False),
        uuids[1]: ("rolled-back", True),
        uuids[2]: ("applied", False),
    }


def test_a_change_of_all_gpus_that_goes_well_needs_no_table(tmp_path: Path) -> None:
    on = node(tmp_path, count=2)

    result = run(on, "apply", HALVES, "--yes")

    assert result.exit_code == 0, result.output
    assert "Done: every GPU has the desired layout." in result.stdout
    assert "OUTCOME" not in result.stdout


def test_the_status_and_a_restore_show_the_gpu_that_is_stuck(tmp_path: Path) -> None:
    on = node(tmp_path, *FIVE, count=2)
    first, second = (gpu.uuid for gpu in on.gpus())
    bus_id = machines.gpu(0).bus_id
    on.simulation.fault(Return(code=999), CREATE, bus_id=bus_id)

    stuck = run(on, "apply", HALVES, "--yes")
    status = run(on, "status")
    document = json.loads(run(on, "status", "-o", "json").stdout)
    on.simulation.clear()
    restored = run(on, "restore")

    assert stuck.exit_code == UNFINISHED, stuck.output
    table = [words[:2] for words in lines(stuck) if words and words[0] in (first, second)]
    assert table == [[first, "stuck"], [second, "applied"]]
    assert ["GPU", "CHANGE", "TO", "REASON"] in lines(status)
    assert any(words[:2] == ["0", "stuck"] for words in lines(status))
    [unended] = document["unended"]
    assert (unended["gpu"], unended["outcome"]) == (first, "stuck")
    assert CREATE in unended["reason"]
    assert restored.exit_code == 0, restored.output
    assert json.loads(run(on, "status", "-o", "json").stdout)["unended"] == []


def test_a_journal_that_cannot_be_read_is_a_problem_of_the_status(tmp_path: Path) -> None:
    on = node(tmp_path, count=1)
    folder = on.simulation.state_file.with_name("mig-journal")
    folder.mkdir(mode=0o700)
    (folder / "change.json").write_text("{")

    result = run(on, "status")

    assert result.exit_code == 0, result.output
    assert "Look at this:" in result.stdout
    assert "change.json" in result.stdout
