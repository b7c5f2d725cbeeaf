# SPDX-License-Identifier: Apache-2.0
"""``gpuscape mig history``: the last changes of MIG layouts on this node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from actuator.change_record import ChangeOutcome, ChangeRecord, Direction
from actuator.past_changes import PastChanges, past_changes
from base.errors import BadInput
from cli import options, terminal
from cli.mig.planned_words import layout_document, layout_words
from cli.mig.running_change import journal_folder, journal_option
from cli.observe import machine
from cli.options import Load
from cli.terminal import Cell, Styled, TextTable
from mig.gpu_layout import GpuLayout

UNENDED = "not ended"
GIVEN_UP = "given up"
_RESULTS: Mapping[ChangeOutcome, Cell] = {
    ChangeOutcome.APPLIED: Styled("applied", "green"),
    ChangeOutcome.PREVIOUS: Styled("previous", "yellow"),
    ChangeOutcome.HELD: Styled("held", "bold red"),
}


@click.command(
    epilog="""\b
Examples:
  gpuscape mig history
  gpuscape mig history -o wide
  gpuscape mig history --simulate /tmp/machine/state.json
  gpuscape mig history -o json | jq '.changes[] | select(.result != "applied")'

\b
Results:
  applied    the GPUs got the layout that was asked for
  previous   they did not, and have the one from before again; so ends a self-test, too
  held       on some GPUs neither could be reached: `gpuscape mig restore` goes on
  not ended  it goes on now, or was stopped: `gpuscape mig restore` goes on

\b
The journal keeps the last 50 changes, the newest last. What was refused, and what was already as
wanted, is no change. A change never takes an instance that is in use, so there is no list of whom
it disturbed."""
)
@journal_option
@options.output("table", "wide", "json", "yaml")
@options.settings("simulate")
def command(load: Load, journal: Path | None, output: str) -> None:
    """List the last changes: what was asked, from which layout to which, and the result."""
    with machine(load()) as start:
        folder = journal_folder(journal, start)
        found = past_changes(folder)
    if found is None and journal is not None:
        raise BadInput(f"there is no folder {journal}")
    found = found or PastChanges(unended=(), ended=(), remembers=False)
    changes = (*found.ended, *found.unended)
    if output in ("json", "yaml"):
        terminal.data({"changes": [_document(one) for one in changes]}, output)
        return
    if not changes:
        terminal.note(f"No change of MIG is recorded in {folder}.")
        return
    terminal.show(history_table(changes, wide=output == "wide"))
    reasons = [f"{one.started} {_word(one)}: {one.reason}" for one in changes if one.reason]
    if reasons:
        terminal.note("", *reasons)


def history_table(changes: Sequence[ChangeRecord], *, wide: bool) -> TextTable:
    """A row for each change and pair of layouts; with ``wide`` for each GPU."""
    last = "GPU" if wide else "GPUS"
    return TextTable(
        header=("STARTED", "RESULT", last, "FROM", "TO", "ASKED"),
        rows=tuple(
            (
                one.started if at == 0 else "",
                _result(one) if at == 0 else "",
                *cells,
                one.asked if at == 0 else "",
            )
            for one in changes
            for at, cells in enumerate(_gpus(one, wide=wide))
        ),
    )


def _gpus(one: ChangeRecord, *, wide: bool) -> Iterator[tuple[Cell, ...]]:
    if wide:
        for uuid, layout in one.previous.items():
            yield uuid, layout_words(layout), layout_words(one.wanted[uuid])
        for uuid, layout in one.given_up.items():
            yield uuid, layout_words(layout), GIVEN_UP
        return
    pairs: dict[tuple[str, str], int] = {}
    for uuid, layout in one.previous.items():
        pair = layout_words(_anywhere(layout)), layout_words(_anywhere(one.wanted[uuid]))
        pairs[pair] = pairs.get(pair, 0) + 1
    for layout in one.given_up.values():
        pair = layout_words(_anywhere(layout)), GIVEN_UP
        pairs[pair] = pairs.get(pair, 0) + 1
    for (before, after), count in pairs.items():
        yield str(count), before, after


def _anywhere(layout: GpuLayout) -> GpuLayout:
    """Without the places, which make a line long."""
    return replace(layout, instances=tuple(replace(one, start=-1) for one in layout.instances))


def _word(one: ChangeRecord) -> str:
    return UNENDED if one.outcome is None else str(one.outcome)


def _result(one: ChangeRecord) -> Cell:
    return Styled(_word(one), "bold yellow") if one.outcome is None else _RESULTS[one.outcome]


def _document(one: ChangeRecord) -> dict[str, Any]:
    return {
        "change": one.change,
        "started": one.started,
        "asked": one.asked,
        "result": _word(one).replace(" ", "-"),
        "going_back": one.direction is Direction.BACK,
        "reason": one.reason or None,
        "gpus": [
            {
                "uuid": uuid,
                "from": layout_document(layout),
                "to": layout_document(one.wanted[uuid]),
                "held": one.outcome is ChangeOutcome.HELD and uuid in one.concerns,
                "given_up": False,
            }
            for uuid, layout in one.previous.items()
        ]
        + [
            {
                "uuid": uuid,
                "from": layout_document(layout),
                "to": None,
                "held": False,
                "given_up": True,
            }
            for uuid, layout in one.given_up.items()
        ],
    }
