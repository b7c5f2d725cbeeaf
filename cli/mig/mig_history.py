# SPDX-License-Identifier: Apache-2.0
"""``gpuscape mig history``: the last changes of MIG layouts on this node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from actuator.change_record import (
    ChangeRecord,
    Direction,
    by_request,
    gpu_outcomes,
    request_outcome,
)
from actuator.past_changes import past_changes
from agent.single_reading import opened_machine
from api.mig_outcome import Outcome, joint_reason
from base.errors import BadInput
from cli import options, terminal
from cli.mig.mig_text import outcome_cell, outcome_text
from cli.mig.plan_text import layout_document
from cli.mig.running_change import journal_folder, journal_option
from cli.options import Load
from cli.terminal import Cell, TextTable

GIVEN_UP = "given up"


@click.command(
    epilog="""\b
Examples:
  gpuscape mig history
  gpuscape mig history -o wide
  gpuscape mig history --simulate /tmp/machine/state.json
  gpuscape mig history -o json | jq '.changes[] | select(.outcome != "applied")'

\b
Outcomes, for each GPU by itself:
  applied      the GPU has the desired layout
  rolled-back  it has the previous layout again; a self-test ends so, too
  stuck        neither could be reached: `gpuscape mig restore` goes on
  not ended    it goes on now, or was stopped: `gpuscape mig restore` goes on

\b
In json and yaml the outcome of a change is the worst of its GPUs.
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
    if journal is not None and not journal.is_dir():
        raise BadInput(f"there is no folder {journal}")
    changes = by_request((*history.ended, *history.unended))
    if output in ("json", "yaml"):
        terminal.print_data({"changes": [_document(entries) for entries in changes]}, output)
        return
    if not changes:
        terminal.note(f"No change of MIG is recorded in {folder}.")
        return
    terminal.show_table(history_table(changes, wide=output == "wide"))
    reasons = [
        f"{entry.started} {outcome_text(entry.outcome)}: GPU {entry.index}: {entry.reason}"
        for entries in changes
        for entry in entries
        if entry.reason
    ]
    if reasons:
        terminal.note("", *reasons)


def history_table(changes: Sequence[Sequence[ChangeRecord]], *, wide: bool) -> TextTable:
    """Table of changes by their entries.

    A row for GPUs of equal layouts and outcome; with ``wide`` for each GPU.
    """
    return TextTable(
        header=("STARTED", "OUTCOME", "GPU" if wide else "GPUS", "FROM", "TO", "ORIGIN"),
        rows=tuple(
            (entries[0].started if row == 0 else "", *cells, entries[0].origin if row == 0 else "")
            for entries in changes
            for row, cells in enumerate(_wide_rows(entries) if wide else _rows(entries))
        ),
    )


def _wide_rows(entries: Sequence[ChangeRecord]) -> Iterator[tuple[Cell, ...]]:
    for entry in entries:
        yield outcome_cell(entry.outcome), entry.gpu, str(entry.previous), _target(entry)


def _rows(entries: Sequence[ChangeRecord]) -> Iterator[tuple[Cell, ...]]:
    counts = Counter(
        (entry.outcome, str(entry.previous.anywhere), _target(entry, places=False))
        for entry in entries
    )
    for (outcome, before, after), count in counts.items():
        yield outcome_cell(outcome), str(count), before, after


def _target(entry: ChangeRecord, *, places: bool = True) -> str:
    if entry.given_up:
        return GIVEN_UP
    return str(entry.desired if places else entry.desired.anywhere)


def _document(entries: Sequence[ChangeRecord]) -> dict[str, Any]:
    first, gpus = entries[0], gpu_outcomes(entries)
    return {
        "change": first.change,
        "started": first.started,
        "origin": first.origin,
        "outcome": outcome_text(request_outcome(entries)).replace(" ", "-"),
        "going_back": any(entry.direction is Direction.BACK for entry in entries),
        "reason": joint_reason(gpus) or None,
        "gpus": [
            {
                "uuid": entry.gpu,
                "from": layout_document(entry.previous),
                "to": None if entry.given_up else layout_document(entry.desired),
                "outcome": outcome_text(entry.outcome).replace(" ", "-"),
                "reason": entry.reason or None,
                "stuck": entry.outcome is Outcome.STUCK,
                "given_up": entry.given_up,
            }
            for entry in entries
        ],
    }
