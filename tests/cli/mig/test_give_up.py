# SPDX-License-Identifier: Apache-2.0
"""A GPU that is lost holds itself alone, until ``gpuscape mig restore --give-up`` takes it out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result

from actuator.journal import Journal
from actuator.worker_messages import Order
from cli import agreement
from cli.failures import BAD_INPUT, NO_DRIVER, REFUSED, UNFINISHED
from cli.main import main
from mig.gpu_layout import layout_from_counts
from simulator.simulation import Return
from tests import machines
from tests.actuator import killed_worker
from tests.actuator.simulated_node import FIVE, SimulatedNode, node
from tests.cli.mig.mig_process import journal

LAYOUT = layout_from_counts({"3g.20gb": 1, "1g.5gb": 3})
HALVES = '{"1": {"3g.20gb": 2}}'
BUS_ID = machines.gpu(0).bus_id


@pytest.fixture
def on(tmp_path: Path) -> SimulatedNode:
    """Of a change of two GPUs the worker was killed, and the first GPU has fallen off the bus."""
    made = node(tmp_path, *FIVE, count=3)
    uuids = [gpu.uuid for gpu in made.gpus()]
    request = made.request(LAYOUT)
    order = Order(
        start=made.start,
        journal=str(journal(made)),
        request=type(request)(desired=dict.fromkeys(uuids[:2], LAYOUT), origin="a test"),
        users=(),
        deadline_seconds=240,
    )
    assert killed_worker.run(order, 40).killed
    made.simulation.fault(Return(code=15), bus_id=BUS_ID)
    return made


@pytest.fixture
def uuid(on: SimulatedNode) -> str:
    """Of the lost GPU, by the journal."""
    with Journal(journal(on), lock=False) as opened:
        record, _ = opened.content().unended
    return record.gpu


def run(on: SimulatedNode, *arguments: str, answer: str | None = None) -> Result:
    simulated = ("--simulate", str(on.simulation.state_file))
    return CliRunner().invoke(main, ("mig", *arguments, *simulated), input=answer)


def test_a_lost_gpu_holds_itself_and_others_take_their_next_layout(on: SimulatedNode) -> None:
    held = run(on, "restore")
    assert held.exit_code == UNFINISHED, held.output
    assert "GPU 0: the driver lists no such GPU" in held.output
    assert len(on.found(1)) == 4  # the second GPU has the layout, whatever became of the first

    applied = run(on, "apply", HALVES, "--yes")
    of_all = run(on, "apply", '{"all": {"3g.20gb": 2}}', "--yes")
    of_it = run(on, "apply", '{"0": {"3g.20gb": 2}}', "--yes")

    assert applied.exit_code == 0, applied.output
    assert {one[:2] for one in on.found(1)} == {("3g.20gb", 0), ("3g.20gb", 4)}
    for refused in (of_all, of_it):
        assert refused.exit_code == NO_DRIVER, refused.output
        assert "to leave it as it is, name the other GPUs in LAYOUT" in refused.output


@pytest.mark.parametrize("named_by", ["index", "uuid", "bus id"])
def test_a_gpu_that_is_given_up_ends_the_change_and_its_layout_stays_in_the_history(
    on: SimulatedNode, uuid: str, named_by: str
) -> None:
    """Without a word to the driver; nothing else is to be restored afterwards."""
    run(on, "restore")
    word = {"index": "0", "uuid": uuid, "bus id": BUS_ID.upper()}[named_by]

    result = run(on, "restore", "--give-up", word, "--yes", "-o", "json")

    assert result.exit_code == 0, result.output
    [given_up] = json.loads(result.stdout)["given_up"]
    assert given_up["gpu"] == uuid
    assert len(given_up["previous"]["instances"]) == len(FIVE)
    [past] = json.loads(run(on, "history", "-o", "json").stdout)["changes"]
    row = next(one for one in past["gpus"] if one["uuid"] == uuid)
    assert (row["from"], row["to"], row["given_up"]) == (given_up["previous"], None, True)
    assert past["outcome"] == "rolled-back"
    again = run(on, "restore")
    assert (again.exit_code, "Nothing to do" in again.output) == (0, True), again.output


def test_the_question_says_what_is_done_and_no_does_nothing(
    on: SimulatedNode, uuid: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked as apply asks."""
    run(on, "restore")
    monkeypatch.setattr(agreement, "is_interactive", lambda: True)

    no = run(on, "restore", "--give-up", "0", answer="n\n")
    with Journal(journal(on), lock=False) as opened:
        assert len(opened.content().unended) == 1
    yes = run(on, "restore", "--give-up", "0", answer="y\n")

    assert no.exit_code == REFUSED, no.output
    assert f"GPU 0 {uuid} {BUS_ID} is taken out of the change to a test." in no.output
    assert "the history keeps its layout from before: 1 x 1g.5gb at 0" in no.output
    assert yes.exit_code == 0, yes.output
    assert f"Given up: {uuid}." in yes.output


def test_what_cannot_be_given_up_is_refused_with_what_can(on: SimulatedNode, uuid: str) -> None:
    """Bad words, and nobody to ask."""
    unknown = run(on, "restore", "--give-up", "7", "--yes")
    silent = run(on, "restore", "--give-up", "0")

    assert unknown.exit_code == BAD_INPUT
    assert "--give-up 7: no GPU of an open change" in unknown.output
    assert f"there are: 0 {uuid} {BUS_ID}; 1 GPU-" in unknown.output
    assert silent.exit_code == BAD_INPUT
    assert "add --yes to give the GPU up" in silent.output


def test_the_shell_completes_gpus_that_can_be_given_up(on: SimulatedNode, uuid: str) -> None:
    """By UUID, from the journal that is named."""
    complete = ShellComplete(main, {}, "gpuscape", "_GPUSCAPE_COMPLETE")
    words = ["mig", "restore", "--journal", str(journal(on)), "--give-up"]

    found = [item.value for item in complete.get_completions(words, uuid[:9])]

    assert uuid in found
