# SPDX-License-Identifier: Apache-2.0
"""Runs a change of MIG layouts for a person at a terminal, and says how it ended."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final

import click

from actuator.change import ChangeResult
from actuator.change_record import ChangeOutcome
from actuator.device_access.instance_access import open_access
from actuator.journal import JournalBusy
from actuator.mig_world import StepFailed
from actuator.past_changes import JOURNAL_FOLDER, past_changes
from actuator.supervisor import WorkerDied, WorkerHung, run_change
from actuator.worker_messages import ChangeRequest
from base.log import extra_facts
from cli import terminal
from cli.failures import NO_DRIVER, REFUSED, UNDONE, UNFINISHED, CommandFailure
from discovery.reader.protocol import Start

DEADLINE_SECONDS: Final = 300.0
"""Of one change: sixteen GPUs take a few seconds, a driver that hangs takes for ever."""

EXIT_CODES: Final = """\
  5  refused: nothing was changed; the reason is printed
  6  it failed and was undone: every GPU has the layout from before
  7  held, or stopped in the middle: `gpuscape mig restore` goes on"""
"""Of commands that change something, for their help."""

ACCESS_LOGGER: Final = open_access.__module__

Command = Callable[..., Any]


def journal_option(function: Command) -> Command:
    """Add ``--journal``."""
    return click.option(
        "--journal",
        type=click.Path(path_type=Path),
        help=f"The journal's folder.  [default: {JOURNAL_FOLDER}; next to the state file of a"
        " simulated machine]",
    )(function)


def verbose_option(function: Command) -> Command:
    """Add ``-v``."""
    return click.option("-v", "--verbose", is_flag=True, help="Show each step on standard error.")(
        function
    )


def journal_folder(chosen: Path | None, start: Start) -> Path:
    """Where the changes of a machine are written down; a simulated one has its own folder."""
    if chosen is not None:
        return chosen
    if start.simulation is not None:
        return Path(start.simulation).with_name("mig-journal")
    return JOURNAL_FOLDER


def refuse_unended(journal: Path, gpus: Collection[str]) -> None:
    """Raises CommandFailure where a change has not ended: the plan would be made on sand.

    One that is held is in the way of its own GPUs alone; ``gpus``: UUIDs of those to change.
    """
    found = past_changes(journal)
    for one in () if found is None else found.unended:
        is_held = one.outcome is ChangeOutcome.HELD
        stuck = sorted(one.concerns.intersection(gpus))
        if is_held and not stuck:
            continue
        state = f"is held on GPU {', '.join(stuck)}" if is_held else "goes on, or was stopped"
        raise CommandFailure(
            f"the change to {one.asked}, begun at {one.started}, {state}:"
            " end it with gpuscape mig restore",
            REFUSED,
        )


def ended_change(
    request: ChangeRequest | None,
    *,
    start: Start,
    journal: Path,
    verbose: bool,
    give_up: Sequence[str] = (),
) -> ChangeResult:
    """Run it to its end, through Ctrl-C. Raises CommandFailure where the end is not known."""
    with waited_for(journal, verbose=verbose, once=lambda: _WAIT, never=_NOT_WAITED):
        return run_change(
            request,
            source=start,
            journal=journal,
            deadline_seconds=DEADLINE_SECONDS,
            give_up=give_up,
        )


@contextmanager
def waited_for(
    journal: Path, *, verbose: bool, once: Callable[[], bytes], never: str
) -> Iterator[None]:
    """Around a worker: shows what it logs, and what becomes of it as CommandFailure.

    The first Ctrl-C calls ``once``, for what is to be printed then; the second one stops waiting,
    with ``never`` as the sentence for it.
    """
    try:
        with _logged(verbose=verbose), _interrupts_explained(once):
            yield
    except KeyboardInterrupt:
        raise CommandFailure(
            f"not waited for: {never}; see gpuscape mig history --journal {journal}", UNFINISHED
        ) from None
    except JournalBusy as error:
        raise CommandFailure(str(error), REFUSED) from error
    except (WorkerDied, WorkerHung) as error:
        raise CommandFailure(str(error), UNFINISHED) from error
    except StepFailed as error:
        raise CommandFailure(f"nothing was changed: {error}", NO_DRIVER) from error


def end_words(result: ChangeResult, journal: Path) -> str:
    """How it ended, in one sentence."""
    match result.outcome:
        case ChangeOutcome.APPLIED:
            return "Done: every GPU has the layout that was asked for."
        case ChangeOutcome.PREVIOUS:
            return f"Failed and undone, every GPU has the layout from before: {result.reason}"
        case ChangeOutcome.HELD:
            return (
                f"Held: {result.reason}. What was idle on these GPUs is gone, the others have the"
                f" layout from before. Mend the cause, then run gpuscape mig restore --journal"
                f" {journal}; a GPU that does not come back is given up with --give-up GPU"
            )
    return f"Nothing was changed: {result.reason}."


def restored_words(result: ChangeResult) -> Iterator[str]:
    """What became of layouts that a new load of the driver took."""
    if result.outcome is None and not result.restored:
        yield "Nothing to do: no change is open, and no GPU lost its layout since the last one."
    for one in result.restored:
        if one.why_not:
            yield f"GPU {one.gpu}: its layout did not come back: {one.why_not}"
            continue
        yield f"GPU {one.gpu}: its layout is there again."
        if one.gone:
            yield (
                f"GPU {one.gpu}: these MIG devices are not: {', '.join(one.gone)};"
                " delete the pods that hold one"
            )


def end_document(result: ChangeResult | None) -> dict[str, Any]:
    """How it ended, as plain values; without a result nothing was begun."""
    return {
        "outcome": None if result is None else result.outcome,
        "reason": None if result is None else result.reason or None,
        "restored": [
            {"gpu": one.gpu, "why_not": one.why_not or None, "gone": list(one.gone)}
            for one in (() if result is None else result.restored)
        ],
        "problems": [] if result is None else list(result.problems),
    }


def exit_code(result: ChangeResult) -> int:
    """0 where the GPUs are as wanted."""
    match result.outcome:
        case ChangeOutcome.PREVIOUS:
            return UNDONE
        case ChangeOutcome.HELD:
            return UNFINISHED
    return REFUSED if result.refusal is not None else 0


@contextmanager
def _interrupts_explained(once: Callable[[], bytes]) -> Iterator[None]:
    """The first Ctrl-C is answered with what ``once`` gives, the second one is obeyed."""
    asked = 0

    def take(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        del number, frame
        asked += 1
        if asked > 1:
            raise KeyboardInterrupt
        os.write(2, once())  # no buffer: this may interrupt a write to the same one

    before = signal.signal(signal.SIGINT, take)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


_NOT_WAITED: Final = "the change ends by itself, in the wanted layout or the previous one"
_WAIT: Final = (
    b"\nA change that is begun is not left in the middle: waiting for its end."
    b" Ctrl-C again to stop waiting.\n"
)


class _Lines(logging.Handler):
    """Log lines as plain sentences on standard error."""

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
    handler = _Lines()
    logger.addHandler(handler)
    logger.setLevel(logging.INFO if verbose else logging.WARNING)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagates
