# SPDX-License-Identifier: Apache-2.0
"""``gpuscape mig restore``: ends a change that was stopped in the middle, or is held."""

from __future__ import annotations

from pathlib import Path

import click

from actuator.change_record import ChangeOutcome
from actuator.past_changes import past_changes
from cli import options, terminal
from cli.failures import UNFINISHED
from cli.mig.mig_history import history_table
from cli.mig.running_change import (
    access_problems,
    end_document,
    end_words,
    ended_change,
    journal_folder,
    journal_option,
    verbose_option,
)
from cli.observe import machine
from cli.options import Load


@click.command(
    epilog="""\b
Examples:
  gpuscape mig restore
  gpuscape mig restore --journal /mnt/disk/mig --verbose

\b
A change that was stopped goes on in its direction: to the layout that was asked for, or back to
the one from before where that had failed. One that is held goes back once more: mend the cause
that `gpuscape mig history` shows first. What is in use is left alone, as `gpuscape mig apply`
does it.

\b
Beta: tested on simulated GPUs alone. No real GPU has been changed by it yet.

\b
Exit codes:
  0  the change has ended, in the wanted layout or in the one from before, or there was none
  2  bad input: a journal that is damaged, of another version, or cannot be written
  3  the GPUs could not be read
  5  refused: another process is making a change
  7  held again, or stopped in the middle"""
)
@journal_option
@verbose_option
@options.output("table", "json", "yaml")
@options.settings(*options.READING)
@click.pass_context
def command(
    ctx: click.Context, load: Load, journal: Path | None, verbose: bool, output: str
) -> None:
    """Go on with a change that was stopped in the middle, or is held (beta)."""
    settings = load()
    with machine(settings) as start:
        folder = journal_folder(journal, start)
        found = past_changes(folder)
        unended = None if found is None else found.unended
        if unended is None:
            if output == "table":
                terminal.note(f"Nothing to do: no change in {folder} is open.")
            else:
                terminal.data(end_document(None, ()), output)
            return
        if output == "table":
            terminal.show(history_table([unended], wide=True))
        result = ended_change(None, start=start, journal=folder, verbose=verbose)
        problems = access_problems(start, settings)
    if output == "table":
        terminal.note(f"\n{end_words(result, folder)}")
        for problem in problems:
            terminal.note(f"Look at this: {problem}")
    else:
        terminal.data(end_document(result, problems), output)
    if result.outcome is ChangeOutcome.HELD:
        ctx.exit(UNFINISHED)
