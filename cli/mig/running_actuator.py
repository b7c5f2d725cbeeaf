# SPDX-License-Identifier: Apache-2.0
"""Commands on a node with a running actuator: they refuse, or let the actuator do the change."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final
from uuid import uuid4

from actuator.change import ChangeResult
from actuator.journal import JournalBusy
from actuator.journal_owner import owner_of, refuse_owned
from actuator.past_changes import JOURNAL_FOLDER
from api.actuator.actuator_client import SOCKET, NoAnswer, ask_actuator
from api.actuator.actuator_messages import (
    ActuatorRefusal,
    ChangeAnswer,
    RefusalAnswer,
    RestoreRequest,
    StateAnswer,
    StateRequest,
    UseAnswer,
)
from api.mig_outcome import Outcome
from base.errors import Transient
from cli.failures import BAD_INPUT, REFUSED, UNFINISHED, CommandFailure
from discovery.reader.protocol import Start

DEADLINE_SECONDS: Final = 330.0
"""Time to wait for the end of a change, for which the actuator's default limit is 300 s."""

_CODES: Final = {ActuatorRefusal.JOURNAL: BAD_INPUT, ActuatorRefusal.FAILED: UNFINISHED}


def refuse_owned_journal(journal: Path, start: Start) -> None:
    """Raise CommandFailure where an actuator owns this journal, or the machine's default one."""
    for folder in (journal,) if start.simulation is not None else (journal, JOURNAL_FOLDER):
        try:
            refuse_owned(folder)
        except JournalBusy as error:
            raise CommandFailure(str(error), REFUSED) from error


def refuse_actuator(socket: Path | None, start: Start) -> None:
    """Raise CommandFailure where an actuator answers on its socket.

    ``socket`` None: its default path; a simulated machine has no default.
    """
    if socket is None:
        if start.simulation is not None:
            return
        socket = SOCKET
    try:
        ask_actuator(socket, StateRequest())
    except NoAnswer:
        return
    except Transient:
        pass  # somebody is there, and says what is no answer
    why = f"an actuator serves {socket}, and changes MIG on this node: stop it first"
    raise CommandFailure(why, REFUSED)


def restored_by_actuator(
    change: str | None,
    journal: Path,
    socket: Path | None,
    start: Start,
    give_up: Sequence[str] = (),
) -> ChangeResult | None:
    """Let the actuator that owns this journal end ``change``; None where no actuator owns it.

    ``change`` None: restore the layouts that a reboot took. ``give_up``: UUIDs of GPUs. ``socket``
    None: its default path, which a simulated machine does not have. Raises CommandFailure where
    the actuator cannot be reached, refuses, or does not report an end.
    """
    owner = owner_of(journal)
    if not owner:
        return None
    if socket is None and start.simulation is None and SOCKET.exists():
        socket = SOCKET
    if socket is None:
        raise CommandFailure(
            f"{owner}, changes MIG on this node, and its socket is not here: name it with --socket,"
            " or run this in its container: kubectl exec POD -c actuator",
            REFUSED,
        )
    request = RestoreRequest(change=change or uuid4().hex, give_up=tuple(give_up))
    try:
        answer = ask_actuator(socket, request, timeout_seconds=DEADLINE_SECONDS)
    except Transient as error:
        raise CommandFailure(f"the end is not known: {owner}: {error}", UNFINISHED) from error
    match answer:
        case ChangeAnswer(outcome=Outcome.REFUSED):
            raise CommandFailure(f"refused by the actuator: {answer.reason}", REFUSED)
        case ChangeAnswer():
            return ChangeResult(outcome=answer.outcome, reason=answer.reason, gpus=answer.outcomes)
        case RefusalAnswer():
            code = _CODES.get(answer.refusal, REFUSED)
            raise CommandFailure(f"refused by the actuator: {answer.reason}", code)
        case StateAnswer() | UseAnswer():
            raise CommandFailure(f"{socket}: it answers something else", UNFINISHED)
