# SPDX-License-Identifier: Apache-2.0
"""Takes requests and carries out one change at a time, each change once.

The answer to a request follows from the running change and the journal. The journal outlives this
process, and with it the changes that have ended: a client that requests an ended change again,
because it missed the answer, gets the outcome, and nothing is done again.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from actuator.boots.boot_wait import is_for_boot
from actuator.boots.reboot_sentinel import RebootSentinel
from actuator.change import ChangeResult, result_of
from actuator.change_record import (
    ChangeRecord,
    Direction,
    RecordedChanges,
    gpu_outcomes,
    request_outcome,
)
from actuator.journal import Journal, JournalBusy, JournalUnusable
from api.actuator.actuator_messages import (
    MOST_GPU_TEXT,
    MOST_TEXT,
    ActuatorAnswer,
    ActuatorRefusal,
    ApplyRequest,
    ChangeAnswer,
    KnownChange,
    RefusalAnswer,
    RequestedLayout,
    RestoreRequest,
    StateAnswer,
)
from api.mig_outcome import GpuOutcome, Outcome
from base import threads
from base.backoff import Backoff
from base.errors import GpuscapeError
from discovery.driver_errors import DriverAbsent, DriverMismatch
from mig.gpu_layout import DesiredInstance, GpuLayout

log = logging.getLogger(__name__)

ActuatorTask = ApplyRequest | RestoreRequest | None
"""A client's request; None: go on with what the journal has."""
RunChange = Callable[[ActuatorTask], ChangeResult]
"""Carries out a change; without an ApplyRequest it gives up the GPUs that a RestoreRequest names,
then ends the open changes. Raises GpuscapeError."""
AT_START = "restore-at-start"
"""Id in place of a change while layouts are restored after a reboot."""
FIRST_RETRY_SECONDS: Final = 2.0
LONGEST_RETRY_SECONDS: Final = 30.0
"""Longest pause between two tries: if the driver loads late, the node waits hardly longer."""
Reply = Callable[[ActuatorAnswer], None]


class Transactions:
    """Takes requests for changes. All calls are from one thread; a change runs in another one."""

    def __init__(
        self,
        run: RunChange,
        journal: Path,
        wake: Callable[[], None],
        *,
        clock: Callable[[], float] = time.monotonic,
        sentinel: RebootSentinel | None = None,
    ) -> None:
        """``wake`` is called, by another thread, when :meth:`finish` has something to do.

        ``clock`` is monotonic, in seconds; ``sentinel``: the file that asks for a boot, None where
        no boot may be asked for.
        """
        self._run = run
        self._journal = journal
        self._wake = wake
        self.running: str | None = None
        """Id of the change that is being carried out; None if there is none."""
        self._reply: Reply = _ignore_answer
        self._ended: tuple[ActuatorTask, ChangeResult | Exception] | None = None
        """Written by the one change's thread at its end, before it wakes the other thread."""
        self._stopping = False
        self._clock = clock
        self._sentinel = sentinel
        self._backoff = Backoff(
            first_seconds=FIRST_RETRY_SECONDS, longest_seconds=LONGEST_RETRY_SECONDS, uniform=None
        )
        self._due: float | None = None

    def stop(self) -> None:
        """Begin no further change."""
        self._stopping = True

    @property
    def due(self) -> float:
        """Time of the clock at which :meth:`tick` tries again; infinite if it has nothing to do."""
        return math.inf if self._due is None or self.running is not None else self._due

    def tick(self) -> None:
        """Resume, once it is due, what came too early at the start, or waits for a boot."""
        if self.due <= self._clock() and not self._stopping:
            self.resume()

    def resume(self) -> None:
        """Go on with the changes that another process left open, if there are any.

        A stuck change is rolled back once more, and layouts that a reboot or a load of the driver
        took are restored. If there is no driver yet, or another process has the journal, it is
        tried again later. A journal that cannot be used is left as it is; requests are refused. A
        change that was due is tried again then too.
        """
        due, self._due = self._due, None
        try:
            with Journal(self._journal, lock=False) as journal:
                content, verified = journal.content(), journal.verified()
        except (JournalUnusable, JournalBusy) as error:
            log.warning("MIG journal not usable", extra={"why": str(error)})
            self._due = None if due is None else self._clock() + LONGEST_RETRY_SECONDS
            return
        unended = _first_unended(content)
        if unended or verified:
            change = unended[0].change if unended else AT_START
            self._begin(change, None, _ignore_answer)

    def state(self, change: str | None = None) -> StateAnswer:
        """The running, the open and the last ended change, and the state of ``change``."""
        try:
            content = self._content()
        except (JournalUnusable, JournalBusy) as error:
            return StateAnswer(running=self.running, problem=str(error)[:MOST_TEXT])
        return StateAnswer(
            running=self.running,
            open=self._known(_first_unended(content)),
            last=self._known(_last_ended(content)),
            named=None if change is None else self._known(content.of(change)),
            stuck=_shortened(gpu_outcomes(content.unended)),  # an open entry has no outcome
            no_reboot="" if self._sentinel is None else self._sentinel.why_not(),
        )

    def _known(self, records: Sequence[ChangeRecord]) -> KnownChange | None:
        """A change by its entries; None if there are none."""
        if not records:
            return None
        unended = [record for record in records if record.outcome in (None, Outcome.STUCK)]
        result = result_of(records)
        waits = self._sentinel is not None and any(map(is_for_boot, records))
        return KnownChange(
            change=records[0].change,
            origin=records[0].origin[:MOST_TEXT],
            started=records[0].started,
            gpus=tuple(sorted(record.gpu for record in unended or records)),
            back=any(record.direction is Direction.BACK for record in unended or records),
            outcome=request_outcome(records),
            reason=result.reason[:MOST_TEXT],
            outcomes=_shortened(result.gpus),
            awaits_boot=str(self._sentinel.file) if self._sentinel and waits else "",
        )

    def ask(self, request: ApplyRequest | RestoreRequest, reply: Reply) -> None:
        """Take a request: ``reply`` gets the answer now, or from :meth:`finish`."""
        answer = self._answer_at_once(request)
        if answer is None:
            self._begin(request.change, request, reply)
        else:
            reply(answer)

    def _answer_at_once(self, request: ApplyRequest | RestoreRequest) -> ActuatorAnswer | None:
        """The answer to a request for which nothing is to be done; None if there is something."""
        try:
            content = self._content()
        except JournalUnusable as error:
            return _refused(ActuatorRefusal.JOURNAL, str(error))
        before = self._answered_before(request, content)
        if before is not None:
            return before
        if self._stopping:
            return _refused(ActuatorRefusal.STOPPING, "the actuator ends; ask the next one")
        if self.running is not None:
            why = f"change {self.running} is under way"
            return _refused(ActuatorRefusal.BUSY, why, self.running)
        return _in_the_way(request, content)

    def finish(self) -> None:
        """Answer the change that has ended meanwhile, if one has."""
        if self._ended is None:
            return
        (task, result), self._ended = self._ended, None
        change, reply = self.running or "", self._reply
        self.running, self._reply = None, _ignore_answer
        boot_seconds = 0.0
        answer: ActuatorAnswer
        if isinstance(result, ChangeResult):
            answer, boot_seconds = _answer(change, result), result.boot_seconds
            if isinstance(task, ApplyRequest):  # its mode may no longer wait, and it is not done
                state = self.state(change)
                answer = state if state.named is not None and state.named.awaits_boot else answer
            else:
                self._due = None  # this was the restore that was due
        elif task is None and isinstance(result, DriverAbsent | DriverMismatch | JournalBusy):
            answer = _failure(change, result)
            self._resume_later(result)
        else:
            answer = _failure(change, result)
            log.warning("MIG change failed", extra={"change": change, "why": answer.reason})
        if self._has_waiting():
            # a worker may have left the file unwritten, or the end of the change
            due = self._clock() + (boot_seconds or LONGEST_RETRY_SECONDS)
            self._due = due if self._due is None else min(self._due, due)
        reply(answer)

    def _resume_later(self, why: Exception) -> None:
        seconds = self._backoff.failed()
        self._due = self._clock() + seconds
        log.warning("MIG restore waits", extra={"why": str(why), "seconds": seconds})

    def _has_waiting(self) -> bool:
        """Whether a change waits for a boot; also where the journal cannot be read just now."""
        try:
            return self._sentinel is not None and any(map(is_for_boot, self._content().unended))
        except (JournalUnusable, JournalBusy):
            return True

    def _answered_before(
        self, request: ApplyRequest | RestoreRequest, content: RecordedChanges
    ) -> ActuatorAnswer | None:
        """The answer to a request that was carried out before; None if there is something to do."""
        records = content.of(request.change)
        if not records:
            return None
        outcomes = {record.outcome for record in records}
        desired: Collection[str] = ()
        if isinstance(request, ApplyRequest):
            if not _is_same(request, records):
                why = f"{request.change} is the name of another change"
                return _refused(ActuatorRefusal.CONFLICT, why, request.change)
            desired = request.desired.keys()
        elif Outcome.STUCK in outcomes:  # only a RestoreRequest tries a stuck change again
            return None
        if None in outcomes:
            return None
        return _answer(request.change, result_of(records, desired), again=True)

    def _begin(self, change: str, task: ActuatorTask, reply: Reply) -> None:
        self.running, self._reply = change, reply
        try:
            threads.started(lambda: self._carry_out(task), "change")
        except threads.NoThread as error:
            self.running, self._reply = None, _ignore_answer
            if task is None:
                self._resume_later(error)
            reply(_refused(ActuatorRefusal.FAILED, str(error)))

    def _carry_out(self, task: ActuatorTask) -> None:
        """Carry a change out in a thread of its own, and keep its end for :meth:`finish`."""
        ended: ChangeResult | Exception
        try:
            ended = self._run(task)
        except Exception as error:  # or nobody would ever be answered
            ended = error
        self._ended = task, ended
        self._wake()

    def _content(self) -> RecordedChanges:
        """The current content of the journal. Raises JournalUnusable."""
        with Journal(self._journal, lock=False) as journal:
            return journal.content()


def _ignore_answer(_answer: ActuatorAnswer) -> None:
    """The reply for a change that no client has requested."""


def layout_of(requested_layout: RequestedLayout) -> GpuLayout:
    """The planner's form of a requested layout. Raises ValueError for instances with MIG off."""
    instances = tuple(
        DesiredInstance(
            instance.profile,
            tuple(sorted(instance.compute, reverse=True)),
            -1 if instance.start is None else instance.start,
        )
        for instance in requested_layout.instances
    )
    return GpuLayout(mig=requested_layout.mig, instances=instances)


def _is_same(request: ApplyRequest, records: Iterable[ChangeRecord]) -> bool:
    """Whether a request is for the change that these entries have.

    Entries are of affected GPUs only, and their instances have places.
    """
    return all(
        request.origin == record.origin
        and record.gpu in request.desired
        and layout_of(request.desired[record.gpu]).anywhere == record.desired.anywhere
        for record in records
    )


def _answer(change: str, result: ChangeResult, *, again: bool = False) -> ActuatorAnswer:
    return ChangeAnswer(
        change=change,
        outcome=result.outcome,
        reason=result.reason[:MOST_TEXT],
        outcomes=_shortened(result.gpus),
        again=again,
    )


def _failure(change: str, error: Exception) -> RefusalAnswer:
    """The answer for a change whose end is not known, or that could not begin."""
    match error:
        case JournalBusy():
            return _refused(ActuatorRefusal.BUSY, str(error))
        case JournalUnusable():
            return _refused(ActuatorRefusal.JOURNAL, str(error))
        case GpuscapeError():
            return _refused(ActuatorRefusal.FAILED, str(error), change)
    log.error("internal error", extra={"part": "change"}, exc_info=error)
    return _refused(ActuatorRefusal.FAILED, f"a defect: {type(error).__name__}", change)


def _shortened(gpus: Iterable[GpuOutcome]) -> tuple[GpuOutcome, ...]:
    """Outcomes with reasons that an answer has room for."""
    return tuple(msgspec.structs.replace(gpu, reason=gpu.reason[:MOST_GPU_TEXT]) for gpu in gpus)


def _refused(refusal: ActuatorRefusal, reason: str, change: str | None = None) -> RefusalAnswer:
    return RefusalAnswer(refusal=refusal, reason=reason[:MOST_TEXT], change=change)


def _in_the_way(
    request: ApplyRequest | RestoreRequest, content: RecordedChanges
) -> RefusalAnswer | None:
    """Refusal because of another change that has not ended; None if there is none.

    A layout is refused for GPUs of a change that has not ended, and a restore for a change that was
    interrupted: its client restores it by its id.
    """
    for record in content.unended:
        is_open = record.outcome is None
        blocks = record.gpu in request.desired if isinstance(request, ApplyRequest) else is_open
        if blocks and record.change != request.change:
            state = "has not ended on" if is_open else "is stuck on"
            why = f"{state} GPU {record.gpu}: restore it, or give the GPU up"
            return _refused(
                ActuatorRefusal.CONFLICT, f"change {record.change} {why}", record.change
            )
    return None


def _first_unended(content: RecordedChanges) -> tuple[ChangeRecord, ...]:
    """The entries of the change that goes on or was interrupted, else of one that is stuck."""
    open_first = sorted(content.unended, key=lambda record: record.outcome is not None)
    return content.of(open_first[0].change) if open_first else ()


def _last_ended(content: RecordedChanges) -> tuple[ChangeRecord, ...]:
    """The entries of the change that ended last."""
    unended = {record.change for record in content.unended}
    ended = [record.change for record in content.ended if record.change not in unended]
    return content.of(ended[-1]) if ended else ()
