# SPDX-License-Identifier: Apache-2.0
"""``gpuscape mig restore``: ends a change that was stopped in the middle, or is held, and brings
back layouts that a reboot took."""

from __future__ import annotations

from pathlib import Path

import click

from actuator.change_record import ChangeOutcome
from actuator.past_changes import past_changes
from cli import options, terminal
from cli.failures import UNFINISHED
from cli.mig.mig_history import history_table
from cli.mig.running_actuator import restored_by_actuator
from cli.mig.running_change import (
    end_document,
    end_words,
    ended_change,
    journal_folder,
    journal_option,
    restored_words,
    verbose_option,
)
from cli.observe import machine
from cli.options import Load


@click.command(
    epilog="""\b
Examples:
  gpuscape mig restore
  gpuscape mig restore --journal /mnt/disk/mig --verbose
  kubectl exec POD -c actuator -- gpuscape mig restore    where an actuator runs

\b
A change that was stopped goes on in its direction: to the layout that was asked for, or back to
the one from before where that had failed. One that is held goes back once more: mend the cause
that `gpuscape mig history` shows first. What is in use is left alone, as `gpuscape mig apply`
does it.

\b
No GPU keeps its instances over a reboot or a load of the driver. What the last change left on a
GPU comes back at the same places, so that its MIG devices have the same UUIDs: unless the GPU is
in use, has instances already, needs a reset, or had another layout meanwhile.

\b
Where an actuator runs on the node, it is asked on its socket to do it.

\b
Beta, as `gpuscape mig apply` is: no real GPU has been changed by it yet.

\b
Exit codes:
  0  the change has ended, in the wanted layout or in the one from before, or there was none, and
     every layout that a reboot took is there again
  2  bad input: a journal that is damaged, of another version, or cannot be written
  3  the GPUs could not be read
  5  refused: another process is making a change, or the actuator's socket is not known
  7  held again, or stopped in the middle; or a layout that a reboot took did not come back"""
)
@journal_option
@click.option(
    "--socket",
    type=click.Path(path_type=Path),
    help="The actuator's socket, for where one runs.  [default: its usual place; none of a"
    " simulated machine]",
)
@verbose_option
@options.output("table", "json", "yaml")
@options.settings(*options.READING)
@click.pass_context
def command(
    ctx: click.Context,
    load: Load,
    journal: Path | None,
    socket: Path | None,
    verbose: bool,
    output: str,
) -> None:
    """Go on with a change that was stopped or is held; bring back what a reboot took (beta)."""
    settings = load()
    with machine(settings) as start:
        folder = journal_folder(journal, start)
        found = past_changes(folder)
        unended = None if found is None else found.unended
        if found is None or (unended is None and not found.remembers):
            if output == "table":
                terminal.note(f"Nothing to do: no change in {folder} is open, and none has ended.")
            else:
                terminal.data(end_document(None), output)
            return
        if output == "table" and unended is not None:
            terminal.show(history_table([unended], wide=True))
        change = None if unended is None else unended.change
        asked = restored_by_actuator(change, folder, socket, start)
        result = asked or ended_change(None, start=start, journal=folder, verbose=verbose)
    if output == "table":
        if unended is not None or asked is not None:
            terminal.note("", end_words(result, folder))
        for line in () if asked is not None else restored_words(result):
            terminal.note(line)
        for problem in result.problems:
            terminal.note(f"Look at this: {problem}")
    else:
        terminal.data(end_document(result), output)
    if result.outcome is ChangeOutcome.HELD or any(one.why_not for one in result.restored):
        ctx.exit(UNFINISHED)
