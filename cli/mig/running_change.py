# SPDX-License-Identifier: Apache-2.0
"""Runs a change of MIG layouts for a person at a terminal, and says how it ended."""

from __future__ import annotations

import logging
import os
import signal
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final

import click

from actuator.change import ChangeResult
from actuator.journal import JournalBusy
from actuator.mig_world import StepFailed
from actuator.past_changes import JOURNAL_FOLDER, past_changes
from actuator.supervisor import WorkerDied, WorkerHung, run_change
from actuator.worker_messages import ChangeRequest, Order
from api.mig_outcome import Outcome
from base.log import extra_facts
from cli import terminal
from cli.failures import NO_DRIVER, REFUSED, UNDONE, UNFINISHED, CommandFailure
from cli.mig.mig_text import outcome_cell
from cli.terminal import TextTable
from discovery.reader.protocol import Start
from kubelet.device_access.instance_access import open_access

DEADLINE_SECONDS: Final = 300.0
"""Time limit of a change: sixteen GPUs take a few seconds, a driver that hangs never ends."""

EXIT_CODES: Final = """\
  5  refused: nothing was changed; the reason is printed
  6  rolled back: the change failed on some GPUs, which have the previous layout; the others have
     the desired one
  7  stuck on some GPUs, or stopped before its end: `gpuscape mig restore` continues"""
"""Help text on the exit codes that all commands which change GPUs share."""

ACCESS_LOGGER: Final = open_access.__module__

journal_option: Final = click.option(
    "--journal",
    type=click.Path(path_type=Path),
    help=f"The journal's folder.  [default: {JOURNAL_FOLDER}; next to the state file of a"
    " simulated machine]",
)
verbose_option: Final = click.option(
    "-v", "--verbose", is_flag=True, help="Show each step on standard error."
)


def journal_folder(chosen: Path | None, start: Start) -> Path:
    """Folder of a machine's journal: the chosen one, a simulated machine's own, or the default."""
    if chosen is not None:
        return chosen
    if start.simulation is not None:
        return Path(start.simulation).with_name("mig-journal")
    return JOURNAL_FOLDER


def refuse_unended(journal: Path, gpus: Collection[str]) -> None:
    """Raise CommandFailure where a change of one of these GPUs, by UUID, has not ended."""
    for entry in past_changes(journal).unended:
        if entry.gpu not in gpus:
            continue
        state = "is stuck" if entry.outcome is Outcome.STUCK else "runs, or was stopped,"
        raise CommandFailure(
            f"the change to {entry.origin}, begun at {entry.started}, {state} on GPU {entry.gpu}:"
            " run gpuscape mig restore to end it",
            REFUSED,
        )


def run_change_to_end(
    request: ChangeRequest | None,
    *,
    start: Start,
    journal: Path,
    verbose: bool,
    give_up: Sequence[str] = (),
) -> ChangeResult:
    """Run a change to its end, through Ctrl-C. Raises CommandFailure where the end is not known."""
    with watched_worker(
        journal, verbose=verbose, on_first_interrupt=lambda: _WAIT, sentence=_NOT_WAITED
    ):
        return run_change(
            Order(
                start=start,
                journal=str(journal.absolute()),
                request=request,
                give_up=tuple(give_up),
                deadline_seconds=DEADLINE_SECONDS,
            )
        )


@contextmanager
def watched_worker(
    journal: Path, *, verbose: bool, on_first_interrupt: Callable[[], bytes], sentence: str
) -> Iterator[None]:
    """Context around a worker: shows its log lines, and raises CommandFailure where it fails.

    The first Ctrl-C prints what ``on_first_interrupt`` returns; the second one stops waiting, and
    the failure says ``sentence``.
    """
    try:
        with _logged(verbose=verbose), _interrupts_explained(on_first_interrupt):
            yield
    except KeyboardInterrupt:
        raise CommandFailure(
            f"not waited for: {sentence}; see gpuscape mig history --journal {journal}", UNFINISHED
        ) from None
    except JournalBusy as error:
        raise CommandFailure(str(error), REFUSED) from error
    except (WorkerDied, WorkerHung) as error:
        raise CommandFailure(str(error), UNFINISHED) from error
    except StepFailed as error:
        raise CommandFailure(f"nothing was changed: {error}", NO_DRIVER) from error


def change_end_text(result: ChangeResult, journal: Path) -> str:
    """How a change ended, in one sentence or two."""
    outcomes = Counter(gpu.outcome for gpu in result.gpus)
    done = outcomes[Outcome.APPLIED] + outcomes[Outcome.UNCHANGED]
    others = "every other GPU has the desired layout" if done else "no GPU has the desired layout"
    match result.outcome:
        case Outcome.APPLIED:
            return "Done: every GPU has the desired layout."
        case Outcome.ROLLED_BACK if not done:
            return f"Rolled back, every GPU has the previous layout: {result.reason}"
        case Outcome.ROLLED_BACK:
            rolled_back = f"{outcomes[Outcome.ROLLED_BACK]} of {outcomes.total()} GPUs"
            return (
                f"Rolled back on {rolled_back}, which have the previous layout; {others}:"
                f" {result.reason}"
            )
        case Outcome.STUCK:
            return (
                f"Stuck: {result.reason}. Idle instances of a stuck GPU are gone. Remove the cause,"
                f" then run gpuscape mig restore --journal {journal}; give up a GPU that does not"
                " come back with --give-up GPU"
            )
    return f"Nothing was changed: {result.reason}."


def show_change_end(result: ChangeResult, journal: Path) -> None:
    """Print how a change ended; on each of its GPUs if there are several and not all is done."""
    terminal.note("", change_end_text(result, journal))
    if len(result.gpus) < 2 or result.outcome in (Outcome.APPLIED, Outcome.UNCHANGED):
        return
    terminal.note("")
    rows = tuple((gpu.gpu, outcome_cell(gpu.outcome), gpu.reason) for gpu in result.gpus)
    terminal.show_table(TextTable(header=("GPU", "OUTCOME", "REASON"), rows=rows))


def show_problems(result: ChangeResult) -> None:
    """Print what a person has to look at after a change."""
    terminal.note(*(f"Look at this: {problem}" for problem in result.problems))


def restored_lines(result: ChangeResult) -> Iterator[str]:
    """Lines on the layouts that a reboot or a load of the driver took, restored or not."""
    if not result.has_begun and not result.restored:
        yield "Nothing to do: no change is open, and no GPU lost its layout since the last one."
    for gpu in result.restored:
        if gpu.why_not:
            yield f"GPU {gpu.gpu}: its layout did not come back: {gpu.why_not}"
            continue
        yield f"GPU {gpu.gpu}: its layout is there again."
        if gpu.gone:
            yield (
                f"GPU {gpu.gpu}: these MIG devices are gone: {', '.join(gpu.gone)};"
                " delete the pods that use them"
            )


def change_end_document(result: ChangeResult | None) -> dict[str, Any]:
    """How a change ended, as plain values; without a result none was begun."""
    return {
        "outcome": None if result is None else result.outcome,
        "reason": None if result is None else result.reason or None,
        "outcomes": [
            {"gpu": gpu.gpu, "outcome": gpu.outcome, "reason": gpu.reason or None}
            for gpu in (() if result is None else result.gpus)
        ],
        "restored": [
            {"gpu": gpu.gpu, "why_not": gpu.why_not or None, "gone": list(gpu.gone)}
            for gpu in (() if result is None else result.restored)
        ],
        "problems": [] if result is None else list(result.problems),
    }


def change_exit_code(result: ChangeResult) -> int:
    """Exit code of a change's command; 0 where the GPUs have the desired layout."""
    match result.outcome:
        case Outcome.ROLLED_BACK:
            return UNDONE
        case Outcome.STUCK:
            return UNFINISHED
    return REFUSED if result.refusal is not None else 0


@contextmanager
def _interrupts_explained(on_first_interrupt: Callable[[], bytes]) -> Iterator[None]:
    """Print what ``on_first_interrupt`` returns at the first Ctrl-C; obey the second one."""
    interrupts = 0

    def count_interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal interrupts
        del number, frame
        interrupts += 1
        if interrupts > 1:
            raise KeyboardInterrupt
        os.write(2, on_first_interrupt())  # no buffer: this may interrupt a write to the same one

    previous_handler = signal.signal(signal.SIGINT, count_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous_handler)


_NOT_WAITED: Final = (
    "the change continues without this command, to the desired or the previous layout"
)
_WAIT: Final = (
    b"\nA change that has begun is not stopped halfway: waiting for its end."
    b" Ctrl-C again to stop waiting.\n"
)


class _LogLines(logging.Handler):
    """Prints log lines as plain sentences on standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.name == ACCESS_LOGGER:  # the result has the same, as sentences
            return
        facts = ", ".join(str(value) for value in extra_facts(record).values())
        terminal.note(f"{record.getMessage()}: {facts}" if facts else record.getMessage(), err=True)


@contextmanager
def _logged(*, verbose: bool) -> Iterator[None]:
    """Show what the change logs: warnings, with ``verbose`` all."""
    logger = logging.getLogger("actuator")
    level, propagates = logger.level, logger.propagate
    handler = _LogLines()
    logger.addHandler(handler)
    logger.setLevel(logging.INFO if verbose else logging.WARNING)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagates
