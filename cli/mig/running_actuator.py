# SPDX-License-Identifier: Apache-2.0
"""Where an actuator changes MIG on the node, a command leaves it to that."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final
from uuid import uuid4

from actuator.change import ChangeResult
from actuator.change_record import ChangeOutcome
from actuator.journal import JournalBusy
from actuator.journal_owner import owner_of, refuse_owned
from actuator.past_changes import JOURNAL_FOLDER
from api.actuator_client import SOCKET, NoAnswer, ask_actuator
from api.actuator_messages import (
    ActuatorRefusal,
    ChangeAnswer,
    ChangeEnd,
    RefusalAnswer,
    RestoreRequest,
    StateAnswer,
    StateRequest,
    UseAnswer,
)
from base.errors import Transient
from cli.failures import BAD_INPUT, REFUSED, UNFINISHED, CommandFailure
from discovery.reader.protocol import Start

DEADLINE_SECONDS: Final = 330.0
"""For the end of a change, which the actuator gives 300 seconds unless it is set otherwise."""

_CODES: Final = {ActuatorRefusal.JOURNAL: BAD_INPUT, ActuatorRefusal.FAILED: UNFINISHED}
_OUTCOMES: Final = {
    ChangeEnd.APPLIED: ChangeOutcome.APPLIED,
    ChangeEnd.PREVIOUS: ChangeOutcome.PREVIOUS,
    ChangeEnd.HELD: ChangeOutcome.HELD,
    ChangeEnd.UNCHANGED: None,
}


def refuse_owned_journal(journal: Path, start: Start) -> None:
    """Raises CommandFailure where an actuator has this journal, or the machine's usual one."""
    for folder in (journal,) if start.simulation is not None else (journal, JOURNAL_FOLDER):
        try:
            refuse_owned(folder)
        except JournalBusy as error:
            raise CommandFailure(str(error), REFUSED) from error


def refuse_actuator(socket: Path | None, start: Start) -> None:
    """Raises CommandFailure where an actuator answers on its socket.

    None stands for its usual place; of a simulated machine there is none.
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
    raise CommandFailure(
        f"an actuator serves {socket}, and changes MIG on this node: stop it first", REFUSED
    )


def restored_by_actuator(
    change: str | None,
    journal: Path,
    socket: Path | None,
    start: Start,
    give_up: Sequence[str] = (),
) -> ChangeResult | None:
    """How the actuator that has this journal ended ``change``; None where no actuator has it.

    ``change`` None: bring back what a reboot took. ``give_up``: UUIDs of GPUs. ``socket`` None: its
    usual place, none of a simulated machine. Raises CommandFailure where it cannot be asked,
    refuses, or does not say.
    """
    who = owner_of(journal)
    if not who:
        return None
    if socket is None and start.simulation is None and SOCKET.exists():
        socket = SOCKET
    if socket is None:
        raise CommandFailure(
            f"{who}, changes MIG on this node, and its socket is not here: name it with --socket,"
            " or run this in its container: kubectl exec POD -c actuator",
            REFUSED,
        )
    request = RestoreRequest(change=change or uuid4().hex, give_up=tuple(give_up))
    try:
        answer = ask_actuator(socket, request, timeout_seconds=DEADLINE_SECONDS)
    except Transient as error:
        raise CommandFailure(f"the end is not known: {who}: {error}", UNFINISHED) from error
    match answer:
        case ChangeAnswer(end=ChangeEnd.REFUSED):
            raise CommandFailure(f"refused by the actuator: {answer.reason}", REFUSED)
        case ChangeAnswer():
            return ChangeResult(outcome=_OUTCOMES[answer.end], reason=answer.reason)
        case RefusalAnswer():
            code = _CODES.get(answer.refusal, REFUSED)
            raise CommandFailure(f"refused by the actuator: {answer.reason}", code)
        case StateAnswer() | UseAnswer():
            raise CommandFailure(f"{socket}: it answers something else", UNFINISHED)
