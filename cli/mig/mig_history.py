# SPDX-License-Identifier: Apache-2.0
"""``gpuscape mig history``: the last changes of MIG layouts on this node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from actuator.change_record import ChangeRecord, Direction
from actuator.past_changes import PastChanges, past_changes
from agent.single_reading import opened_machine
from api.mig_outcome import Outcome
from base.errors import BadInput
from cli import options, terminal
from cli.mig.plan_text import layout_document, layout_text
from cli.mig.running_change import journal_folder, journal_option
from cli.options import Load
from cli.terminal import Cell, Styled, TextTable
from mig.gpu_layout import GpuLayout

UNENDED = "not ended"
GIVEN_UP = "given up"
_CELLS: Mapping[Outcome, Cell] = {
    Outcome.APPLIED: Styled("applied", "green"),
    Outcome.ROLLED_BACK: Styled("rolled-back", "yellow"),
    Outcome.STUCK: Styled("stuck", "bold red"),
}


@click.command(
    epilog="""\b
Examples:
  gpuscape mig history
  gpuscape mig history -o wide
  gpuscape mig history --simulate /tmp/machine/state.json
  gpuscape mig history -o json | jq '.changes[] | select(.outcome != "applied")'

\b
Outcomes:
  applied      the GPUs have the desired layout
  rolled-back  they have the previous layout again; a self-test ends so, too
  stuck        on some GPUs neither could be reached: `gpuscape mig restore` goes on
  not ended    it goes on now, or was stopped: `gpuscape mig restore` goes on

\b
The journal keeps the last 50 changes, the newest last. What was refused, and what was unchanged, is
not listed. A change never takes an instance that is in use, so there is no list of whom
it disturbed."""
)
@journal_option
@options.output("table", "wide", "json", "yaml")
@options.settings("simulate")
def command(load: Load, journal: Path | None, output: str) -> None:
    """List the last changes: their origin, both layouts, and the outcome."""
    with opened_machine(load()) as start:
        folder = journal_folder(journal, start)
        history = past_changes(folder)
    if history is None and journal is not None:
        raise BadInput(f"there is no folder {journal}")
    history = history or PastChanges(unended=(), ended=(), remembers=False)
    changes = (*history.ended, *history.unended)
    if output in ("json", "yaml"):
        terminal.print_data({"changes": [_document(change) for change in changes]}, output)
        return
    if not changes:
        terminal.note(f"No change of MIG is recorded in {folder}.")
        return
    terminal.show_table(history_table(changes, wide=output == "wide"))
    reasons = [
        f"{change.started} {_outcome_name(change)}: {change.reason}"
        for change in changes
        if change.reason
    ]
    if reasons:
        terminal.note("", *reasons)


def history_table(changes: Sequence[ChangeRecord], *, wide: bool) -> TextTable:
    """Table of changes, a row for each pair of layouts of a change; with ``wide`` for each GPU."""
    gpu_column = "GPU" if wide else "GPUS"
    return TextTable(
        header=("STARTED", "OUTCOME", gpu_column, "FROM", "TO", "ORIGIN"),
        rows=tuple(
            (
                change.started if row == 0 else "",
                _outcome_cell(change) if row == 0 else "",
                *cells,
                change.origin if row == 0 else "",
            )
            for change in changes
            for row, cells in enumerate(_gpu_rows(change, wide=wide))
        ),
    )


def _gpu_rows(change: ChangeRecord, *, wide: bool) -> Iterator[tuple[Cell, ...]]:
    if wide:
        for uuid, layout in change.previous.items():
            yield uuid, layout_text(layout), layout_text(change.desired[uuid])
        for uuid, layout in change.given_up.items():
            yield uuid, layout_text(layout), GIVEN_UP
        return
    pairs: dict[tuple[str, str], int] = {}
    for uuid, layout in change.previous.items():
        pair = (
            layout_text(_without_places(layout)),
            layout_text(_without_places(change.desired[uuid])),
        )
        pairs[pair] = pairs.get(pair, 0) + 1
    for layout in change.given_up.values():
        pair = layout_text(_without_places(layout)), GIVEN_UP
        pairs[pair] = pairs.get(pair, 0) + 1
    for (before, after), count in pairs.items():
        yield str(count), before, after


def _without_places(layout: GpuLayout) -> GpuLayout:
    """The layout without the places of its instances, which make a line long."""
    return replace(
        layout, instances=tuple(replace(instance, start=-1) for instance in layout.instances)
    )


def _outcome_name(change: ChangeRecord) -> str:
    return UNENDED if change.outcome is None else str(change.outcome)


def _outcome_cell(change: ChangeRecord) -> Cell:
    return (
        Styled(_outcome_name(change), "bold yellow")
        if change.outcome is None
        else _CELLS[change.outcome]
    )


def _document(change: ChangeRecord) -> dict[str, Any]:
    return {
        "change": change.change,
        "started": change.started,
        "origin": change.origin,
        "outcome": _outcome_name(change).replace(" ", "-"),
        "going_back": change.direction is Direction.BACK,
        "reason": change.reason or None,
        "gpus": [
            {
                "uuid": uuid,
                "from": layout_document(layout),
                "to": layout_document(change.desired[uuid]),
                "stuck": change.outcome is Outcome.STUCK and uuid in change.concerns,
                "given_up": False,
            }
            for uuid, layout in change.previous.items()
        ]
        + [
            {
                "uuid": uuid,
                "from": layout_document(layout),
                "to": None,
                "stuck": False,
                "given_up": True,
            }
            for uuid, layout in change.given_up.items()
        ],
    }
