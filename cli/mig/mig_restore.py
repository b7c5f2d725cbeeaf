# SPDX-License-Identifier: Apache-2.0
"""``gpuscape mig restore``: ends a change that was stopped or is stuck, and brings back layouts
that a reboot took."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from actuator.change_record import by_request
from actuator.past_changes import JOURNAL_FOLDER, past_changes
from agent.single_reading import opened_machine
from api.mig_outcome import Outcome
from base.errors import Permanent
from cli import options, terminal
from cli.agreement import require_agreement
from cli.failures import UNFINISHED
from cli.mig.given_up_gpus import GivenUpGpu, given_up_gpus, gpus_to_give_up
from cli.mig.mig_history import history_table
from cli.mig.running_actuator import restored_by_actuator
from cli.mig.running_change import (
    change_end_document,
    journal_folder,
    journal_option,
    restored_lines,
    run_change_to_end,
    show_change_end,
    show_problems,
    verbose_option,
)
from cli.options import Load


def _complete_gpus(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """UUIDs of the GPUs that can be given up, by the journal at its usual place or as named."""
    del parameter
    try:
        history = past_changes(ctx.params.get("journal") or JOURNAL_FOLDER)
    except Permanent:
        return []
    return [gpu.uuid for gpu in gpus_to_give_up(history) if gpu.uuid.startswith(incomplete)]


@click.command(
    epilog="""\b
Examples:
  gpuscape mig restore
  gpuscape mig restore --journal /mnt/disk/mig --verbose
  gpuscape mig restore --give-up 4 --yes
  kubectl exec POD -c actuator -- gpuscape mig restore    where an actuator runs

\b
A change that was stopped continues on each of its GPUs: to the desired layout, or back to the
previous one if the change had failed there. A stuck change is rolled back once more: first remove
the cause, which `gpuscape mig history` shows. What is in use is left alone, as by `gpuscape mig
apply`. A change is stuck only on the GPUs that have neither layout: the others can be changed.
A change that waits for a boot of the node is rolled back, unless its GPU has the mode already.

\b
To give up a GPU that does not come back, use --give-up with its index when the change began, its
UUID or its bus id. Its change ends as it is. This calls no driver and does nothing to the GPU. The
history keeps the layout that it had. Without --yes the command asks for confirmation.

\b
No GPU keeps its instances over a reboot or a load of the driver. The layout that the last change
left on a GPU comes back at the same places, so that its MIG devices have the same UUIDs. It does
not if the GPU is in use, has instances already, needs a reset, or had another layout meanwhile.

\b
If an actuator runs on the node, the command asks it through its socket.

\b
Beta, like `gpuscape mig apply`: it has changed no real GPU yet.

\b
Exit codes:
  0  the change was applied or rolled back, or none was open; and every layout that a reboot took
     is there again
  2  bad input: a journal that is damaged, of another version, or not writable; --give-up with a
     GPU that is in no open change, or without a terminal and --yes
  3  the GPUs could not be read
  5  refused: another process makes a change, the actuator's socket is not known, or the answer
     was no
  7  still stuck, or stopped before its end; or a layout that a reboot took did not come back"""
)
@journal_option
@click.option(
    "--socket",
    type=click.Path(path_type=Path),
    help="The actuator's socket, for where one runs.  [default: its usual place; none of a"
    " simulated machine]",
)
@click.option(
    "--give-up",
    "words",
    metavar="GPU",
    multiple=True,
    shell_complete=_complete_gpus,
    help="Take a GPU out of its stuck change: its index, UUID or bus id. May be repeated.",
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@verbose_option
@options.output("table", "json", "yaml")
@options.settings(*options.READING)
@click.pass_context
def command(
    ctx: click.Context,
    load: Load,
    journal: Path | None,
    socket: Path | None,
    words: tuple[str, ...],
    yes: bool,
    verbose: bool,
    output: str,
) -> None:
    """Continue a change that was stopped or is stuck; bring back what a reboot took (beta)."""
    settings = load()
    with opened_machine(settings) as start:
        folder = journal_folder(journal, start)
        history = past_changes(folder)
        unended = history.unended
        given_up = given_up_gpus(words, history)
        if not (unended or history.remembers):
            if output == "table":
                terminal.note(f"Nothing to do: no change in {folder} is open, and none has ended.")
            else:
                terminal.print_data(change_end_document(None) | {"given_up": []}, output)
            return
        if output == "table" and unended:
            terminal.show_table(history_table(by_request(unended), wide=True))
        _check_agreed(given_up, output, yes=yes)
        change = unended[-1].change if unended else None
        uuids = [gpu.uuid for gpu in given_up]
        actuator_result = restored_by_actuator(change, folder, socket, start, uuids)
        result = actuator_result or run_change_to_end(
            None, start=start, journal=folder, verbose=verbose, give_up=uuids
        )
    if output == "table":
        if given_up:
            terminal.note("", f"Given up: {', '.join(uuids)}.")
        if result.has_begun if given_up else unended or actuator_result is not None:
            show_change_end(result, folder)
        if actuator_result is None:
            terminal.note(*restored_lines(result))
        show_problems(result)
    else:
        document = change_end_document(result)
        terminal.print_data(document | {"given_up": [gpu.document() for gpu in given_up]}, output)
    if result.outcome is Outcome.STUCK or any(gpu.why_not for gpu in result.restored):
        ctx.exit(UNFINISHED)


def _check_agreed(given_up: Sequence[GivenUpGpu], output: str, *, yes: bool) -> None:
    """End the command here where no GPU may be given up."""
    if not given_up:
        return
    if output == "table":
        terminal.note("", *(gpu.text() for gpu in given_up))
    question = "Give it up?" if len(given_up) == 1 else "Give them up?"
    require_agreement(question, purpose=" to give the GPU up", yes=yes, output=output)
