# SPDX-License-Identifier: Apache-2.0
"""``gpuscape mig cancel``: undoes what has not begun of one Node's MIG change."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import click

from base.errors import Transient
from cli import options, terminal
from cli.failures import REFUSED, UNFINISHED, CommandFailure
from cli.mig.cluster.change_facts_reader import ChangeFactsReader
from cli.mig.cluster.cluster_nodes import kubeconfig_client
from cli.mig.cluster.coordinator_notes import namespace_option
from cli.mig.cluster.node_completion import complete_nodes
from cli.options import Load
from fleet.stages.cancellation import Cancellation, CancelVerdict, cancellation, remaining
from kube.api import NODES, Api
from kube.api_errors import AdmissionRefused, Conflict, Forbidden

_PROGRAM: Final = "gpuscape-mig-cancel"
_TRIES: Final = 5
_POLL_SECONDS: Final = 1.0
BEGUN: Final = 1
"""Exit code where the change had begun, so that not all of it was undone."""
_MEANINGS: Final[Mapping[CancelVerdict, tuple[str, int]]] = {
    CancelVerdict.NOTHING: ("Nothing to cancel", 0),
    CancelVerdict.CANCELS: ("Cancelled", 0),
    CancelVerdict.BEGUN: ("Has begun", BEGUN),
    CancelVerdict.STUCK: ("Not cancelled", BEGUN),
    CancelVerdict.REFUSED: ("Refused, nothing was changed", REFUSED),
}
"""Title and exit code of each verdict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelEnd:
    """How it stood when the command ended its wait."""

    left: tuple[str, ...] = ()
    """What was not over."""
    outcome: str = ""
    """Outcome of the newest request, by the agent's status; empty: it has none."""


@click.command(
    epilog="""\b
Examples:
  gpuscape mig cancel gpu-7 --dry-run      what would be undone; nothing is written
  gpuscape mig cancel gpu-7
  gpuscape mig cancel gpu-7 --timeout 0    write it, and do not wait
  gpuscape mig why gpu-7                   where it stands

\b
It removes the desired layout: the annotation gpuscape.io/mig-layout, and the label
nvidia.com/mig.config if that is obeyed. Then the agent ends its request, and the coordinator
uncordons the node and puts back the autoscalers' guards and the labels that it paused; the command
waits for that. The GPUs stay as they are.

\b
What is not undone:
  - a change that has begun: it goes on to its end, the desired layout or, if it fails, the
    previous one; no further attempt follows
  - a change that is stuck: gpuscape mig why has the command to end it
  - a cordon that somebody else set, or that gpuscape.io/keep-cordoned keeps

\b
If the fleet policy would write a layout again, nothing is written, and the command that opens the
policy is shown. If no coordinator acts and nothing has begun, the command itself puts back what the
coordinator did to the node. Each write is for the Node as it was read: if it changed meanwhile, all
is decided anew.

\b
It needs the rights of gpuscape mig why, of these at least get of the Node and of the policy's
ConfigMap, and patch of the Node.

\b
Exit codes:
  0  cancelled, or there was nothing to cancel
  1  the change had begun, or is stuck: it goes on, or it has ended
  2  bad input, a node that is not there
  4  the cluster could not be read
  5  refused, and nothing was changed: the fleet policy, or a missing right
  7  written, and not all was over within --timeout: run it again, or see gpuscape mig why"""
)
@click.argument("node", metavar="NODE", shell_complete=complete_nodes)
@click.option("--dry-run", is_flag=True, help="Have the API server try the write; write nothing.")
@click.option(
    "--timeout",
    default=120.0,
    show_default=True,
    metavar="SECONDS",
    type=click.FloatRange(min=0),
    help="How long to wait until all is over.",
)
@namespace_option
@options.output("table", "json", "yaml")
@options.settings("kubeconfig")
def command(
    load: Load, node: str, dry_run: bool, timeout: float, namespace: str, output: str
) -> None:
    """Undo what has not begun of NODE's MIG change, and say what has."""
    with contextlib.closing(kubeconfig_client(_PROGRAM, load().kubeconfig)) as api:
        reader = ChangeFactsReader(api, namespace)
        decided = write_cancellation(api, reader, node, dry_run=dry_run)
        end = CancelEnd()
        if not dry_run and decided.verdict in (CancelVerdict.CANCELS, CancelVerdict.BEGUN):
            end = _wait(reader, node, timeout)
    _show(decided, node, end, output, dry_run=dry_run)
    _, code = _MEANINGS[decided.verdict]
    raise click.exceptions.Exit(code or (UNFINISHED if end.left else 0))


def write_cancellation(
    api: Api, reader: ChangeFactsReader, node: str, *, dry_run: bool
) -> Cancellation:
    """Decide, and write it on the Node as it was read; again where that has changed."""
    for _ in range(_TRIES):
        decided = cancellation(reader.read(node), reader.now)
        if decided.patch is None:
            return decided
        try:
            api.patch(NODES, node, decided.patch, dry_run=dry_run)
        except Conflict:
            continue  # kubelets write their Nodes all the time
        except (Forbidden, AdmissionRefused) as error:
            text = f"nothing was changed: you may not patch nodes: {error}"
            raise CommandFailure(text, REFUSED) from error
        return decided
    raise Transient(f"Node {node} changes too often: run it again")


def _wait(reader: ChangeFactsReader, node: str, timeout: float) -> CancelEnd:
    """Wait until all is over. Each change of what is left is printed."""
    ends_at = time.monotonic() + timeout
    shown: tuple[str, ...] = ()
    while True:
        facts = reader.read(node, change_alone=True)
        left, status = remaining(facts, reader.now), facts.node.status
        if not left or time.monotonic() >= ends_at:
            return CancelEnd(left=left, outcome="" if status is None else status.outcome)
        if left != shown:
            terminal.note(f"Waiting: {'; '.join(left)}", err=True)
            shown = left
        time.sleep(_POLL_SECONDS)


def _show(decided: Cancellation, node: str, end: CancelEnd, output: str, *, dry_run: bool) -> None:
    if output in ("json", "yaml"):
        terminal.print_data(_document(decided, node, end, dry_run=dry_run), output)
        return
    title, _ = _MEANINGS[decided.verdict]
    if dry_run and decided.verdict is CancelVerdict.CANCELS:
        title = "Would be cancelled"
    terminal.note(f"{title}: {decided.text}.")
    if decided.undone:
        terminal.note("Would be undone:" if dry_run else "Undone:")
        terminal.note(*(f"  {part}" for part in decided.undone))
    if end.left:
        terminal.note("Not over yet:", *(f"  {part}" for part in end.left))
    elif end.outcome:
        terminal.note(f"Over; the request's outcome: {end.outcome}.")
    terminal.note(*(f"Note: {text}" for text in decided.notes))
    if decided.command:
        terminal.note(f"Next: {decided.command}")


def _document(decided: Cancellation, node: str, end: CancelEnd, *, dry_run: bool) -> dict[str, Any]:
    """The result for -o json and yaml; between versions, keys are only added."""
    return {
        "node": node,
        "verdict": decided.verdict,
        "text": decided.text,
        "dry_run": dry_run,
        "written": decided.patch is not None and not dry_run,
        "undone": list(decided.undone),
        "left": list(end.left),
        "outcome": end.outcome or None,
        "notes": list(decided.notes),
        "command": decided.command or None,
    }
