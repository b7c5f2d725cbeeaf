# SPDX-License-Identifier: Apache-2.0
"""Takes requests and carries out one change at a time, each change once.

The answer to a request follows from the running change and the journal. The journal outlives this
process, and with it the changes that have ended: a client that requests an ended change again,
because it missed the answer, gets the outcome, and nothing is done again.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from actuator.change import ChangeResult
from actuator.change_record import ChangeRecord, Direction
from actuator.journal import Journal, JournalBusy, JournalUnusable
from api.actuator.actuator_messages import (
    MOST_TEXT,
    ActuatorAnswer,
    ActuatorRefusal,
    ApplyRequest,
    ChangeAnswer,
    KnownChange,
    PodsOnGpus,
    RefusalAnswer,
    RequestedLayout,
    RestoreRequest,
    StateAnswer,
)
from api.mig_outcome import Outcome
from base import threads
from base.backoff import Backoff
from base.errors import GpuscapeError
from discovery.driver_errors import DriverAbsent, DriverMismatch
from mig.gpu_layout import DesiredInstance, GpuLayout

log = logging.getLogger(__name__)

RunChange = Callable[[ApplyRequest | RestoreRequest | None, PodsOnGpus], ChangeResult]
"""Carries out a change; without an ApplyRequest it gives up the GPUs that a RestoreRequest names,
then ends the open changes. Raises GpuscapeError."""
AT_START = "restore-at-start"
"""Id in place of a change while layouts are restored after a reboot."""
FIRST_RETRY_SECONDS: Final = 2.0
LONGEST_RETRY_SECONDS: Final = 30.0
"""Longest pause between two tries: if the driver loads late, the node waits hardly longer."""
Reply = Callable[[ActuatorAnswer], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalContent:
    """The current content of the journal."""

    open: ChangeRecord | None
    """The open change: it goes on, or was interrupted."""
    stuck: tuple[ChangeRecord, ...]
    verified: bool
    """Whether it has layouts to restore after a reboot."""
    past: tuple[ChangeRecord, ...]
    """Ended changes, the newest last."""

    def ended(self, change: str) -> ChangeRecord | None:
        """The ended change of this id; None if there is none."""
        return next((record for record in self.past if record.change == change), None)

    def unended(self, change: str) -> ChangeRecord | None:
        """The open or stuck change of this id; None if there is none."""
        records = (*(() if self.open is None else (self.open,)), *self.stuck)
        return next((record for record in records if record.change == change), None)


class Transactions:
    """Takes requests for changes. All calls are from one thread; a change runs in another one."""

    def __init__(
        self,
        run: RunChange,
        journal: Path,
        wake: Callable[[], None],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``wake`` is called, by another thread, when :meth:`finish` has something to do.

        ``clock`` is monotonic, in seconds.
        """
        self._run = run
        self._journal = journal
        self._wake = wake
        self._running: str | None = None
        self._reply: Reply = _ignore_answer
        self._answer: ActuatorAnswer | None = None
        self._lock = threading.Lock()
        self._stopping = False
        self._clock = clock
        self._backoff = Backoff(
            first_seconds=FIRST_RETRY_SECONDS, longest_seconds=LONGEST_RETRY_SECONDS, uniform=None
        )
        self._too_early: GpuscapeError | None = None
        self._due: float | None = None

    @property
    def running(self) -> str | None:
        """Id of the change that is being carried out; None if there is none."""
        return self._running

    def stop(self) -> None:
        """Begin no further change."""
        self._stopping = True

    @property
    def due(self) -> float:
        """Time of the clock at which :meth:`tick` tries again; infinite if it has nothing to do."""
        return math.inf if self._due is None or self._running is not None else self._due

    def tick(self) -> None:
        """Try again, once it is due, to resume what came too early at the start."""
        if self.due <= self._clock() and not self._stopping:
            self.resume()

    def resume(self) -> None:
        """Go on with the change that another process left open, if there is one.

        A stuck change is rolled back once more, and layouts that a reboot or a load of the driver
        took are restored. If there is no driver yet, or another process has the journal, it is
        tried again later. A journal that cannot be used is left as it is; requests are refused.
        """
        self._due = None
        try:
            content = self._content()
        except (JournalUnusable, JournalBusy) as error:
            log.warning("MIG journal not usable", extra={"why": str(error)})
            return
        unended = content.open or next(iter(content.stuck), None)
        if unended is not None:
            self._begin(unended.change, self._ended_later, _ignore_answer)
        elif content.verified:
            self._begin(AT_START, self._ended_later, _ignore_answer)

    def _ended_later(self) -> ChangeResult:
        """Resume, in the change's thread; an error that may pass is kept for :meth:`finish`."""
        try:
            return self._run(None, ())
        except (DriverAbsent, DriverMismatch, JournalBusy) as error:
            self._too_early = error
            raise

    def state(self, change: str | None = None) -> StateAnswer:
        """The running, the open and the last ended change, and the state of ``change``."""
        try:
            content = self._content()
        except (JournalUnusable, JournalBusy) as error:
            return StateAnswer(running=self._running, problem=str(error)[:MOST_TEXT])
        unended = content.open or next(iter(content.stuck), None)
        known = None
        if change is not None:
            known = content.ended(change) or content.unended(change)
        return StateAnswer(
            running=self._running,
            open=None if unended is None else _known(unended),
            last=_known(content.past[-1]) if content.past else None,
            named=None if known is None else _known(known),
        )

    def ask(self, request: ApplyRequest | RestoreRequest, reply: Reply) -> None:
        """Take a request: ``reply`` gets the answer now, or from :meth:`finish`."""
        try:
            content = self._content()
        except JournalUnusable as error:
            return reply(_refused(ActuatorRefusal.JOURNAL, str(error)))
        before = self._answered_before(request, content)
        if before is not None:
            return reply(before)
        if self._stopping:
            return reply(_refused(ActuatorRefusal.STOPPING, "the actuator ends; ask the next one"))
        if self._running is not None:
            return reply(
                _refused(
                    ActuatorRefusal.BUSY, f"change {self._running} is under way", self._running
                )
            )
        unended = content.open
        if unended is not None and unended.change != request.change:
            return reply(
                _refused(
                    ActuatorRefusal.CONFLICT,
                    f"change {unended.change} has not ended: restore it",
                    unended.change,
                )
            )
        is_new = isinstance(request, ApplyRequest) and unended is None
        in_the_way = _stuck_on(request, content) if is_new else None
        if in_the_way is not None:
            return reply(in_the_way)
        carried = request if is_new or isinstance(request, RestoreRequest) else None
        self._begin(request.change, lambda: self._run(carried, request.pods), reply)
        return None

    def finish(self) -> None:
        """Answer the change that has ended meanwhile, if one has."""
        with self._lock:
            answer, self._answer = self._answer, None
        if answer is None:
            return
        reply, self._reply, self._running = self._reply, _ignore_answer, None
        why, self._too_early = self._too_early, None
        if why is not None:
            seconds = self._backoff.failed()
            self._due = self._clock() + seconds
            log.warning("MIG restore waits", extra={"why": str(why), "seconds": seconds})
        reply(answer)

    def _answered_before(
        self, request: ApplyRequest | RestoreRequest, content: JournalContent
    ) -> ActuatorAnswer | None:
        """The answer to a request that was carried out before; None if there is something to do."""
        record = content.ended(request.change)
        unended = content.unended(request.change)
        if record is None and unended is not None:
            if unended.outcome is Outcome.STUCK and isinstance(request, ApplyRequest):
                record = unended  # only a RestoreRequest tries it again
            elif isinstance(request, ApplyRequest) and not _is_same(request, unended):
                return _name_taken(request.change)
        if record is None:
            return None
        if isinstance(request, ApplyRequest) and not _is_same(request, record):
            return _name_taken(request.change)
        return _ended(record.change, record.outcome or Outcome.UNCHANGED, record.reason, again=True)

    def _begin(self, change: str, call: Callable[[], ChangeResult], reply: Reply) -> None:
        self._running, self._reply = change, reply
        try:
            threads.started(lambda: self._carry_out(change, call), "change")
        except threads.NoThread as error:
            self._running, self._reply = None, _ignore_answer
            reply(_refused(ActuatorRefusal.FAILED, str(error)))

    def _carry_out(self, change: str, call: Callable[[], ChangeResult]) -> None:
        """Carry a change out in a thread of its own, and keep the answer for :meth:`finish`."""
        try:
            answer = _answer(change, call())
        except JournalBusy as error:
            answer = _refused(ActuatorRefusal.BUSY, str(error))
        except JournalUnusable as error:
            answer = _refused(ActuatorRefusal.JOURNAL, str(error))
        except GpuscapeError as error:
            answer = _refused(ActuatorRefusal.FAILED, str(error), change)
        except Exception as error:  # or nobody would ever be answered
            log.exception("internal error", extra={"part": "change"})
            answer = _refused(ActuatorRefusal.FAILED, f"a defect: {type(error).__name__}", change)
        if isinstance(answer, RefusalAnswer) and self._too_early is None:
            log.warning("MIG change failed", extra={"change": change, "why": answer.reason})
        with self._lock:
            self._answer = answer
        self._wake()

    def _content(self) -> JournalContent:
        """The current content of the journal. Raises JournalUnusable."""
        with Journal(self._journal, lock=False) as journal:
            # read first: a change that ends meanwhile is then in at least one of them
            unended = journal.load()
            return JournalContent(
                open=unended,
                stuck=journal.stuck_changes(),
                verified=bool(journal.verified()),
                past=journal.history(),
            )


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


def _is_same(request: ApplyRequest, record: ChangeRecord) -> bool:
    """Whether a request is for the change that a record has.

    A record has only the affected GPUs, and its instances have places.
    """
    return request.origin == record.origin and all(
        uuid in request.desired and _shape(layout_of(request.desired[uuid])) == _shape(layout)
        for uuid, layout in record.desired.items()
    )


def _shape(layout: GpuLayout) -> tuple[bool, Counter[tuple[str, tuple[int, ...]]]]:
    return layout.mig, Counter(
        (instance.profile, instance.compute) for instance in layout.instances
    )


def _answer(change: str, result: ChangeResult) -> ActuatorAnswer:
    return _ended(change, result.outcome, result.reason)


def _ended(change: str, outcome: Outcome, reason: str, *, again: bool = False) -> ChangeAnswer:
    return ChangeAnswer(change=change, outcome=outcome, reason=reason[:MOST_TEXT], again=again)


def _refused(refusal: ActuatorRefusal, reason: str, change: str | None = None) -> RefusalAnswer:
    return RefusalAnswer(refusal=refusal, reason=reason[:MOST_TEXT], change=change)


def _stuck_on(
    request: ApplyRequest | RestoreRequest, content: JournalContent
) -> RefusalAnswer | None:
    """Refusal of a change of GPUs on which another change is stuck; None if there is none."""
    uuids = request.desired.keys() if isinstance(request, ApplyRequest) else ()
    for record in content.stuck:
        stuck = ", ".join(sorted(record.concerns.intersection(uuids)))
        if stuck:
            why = f"change {record.change} is stuck on GPU {stuck}: restore it, or give the GPU up"
            return _refused(ActuatorRefusal.CONFLICT, why, record.change)
    return None


def _name_taken(change: str) -> RefusalAnswer:
    return _refused(ActuatorRefusal.CONFLICT, f"{change} is the name of another change", change)


def _known(record: ChangeRecord) -> KnownChange:
    return KnownChange(
        change=record.change,
        origin=record.origin[:MOST_TEXT],
        started=record.started,
        gpus=tuple(sorted(record.concerns)),
        back=record.direction is Direction.BACK,
        outcome=record.outcome,
        reason=record.reason[:MOST_TEXT],
    )
