# SPDX-License-Identifier: Apache-2.0
"""One change at a time, each once: what becomes of a request.

It follows from what runs and what the journal has. The journal outlives this process, and so does
the knowledge which changes have ended: who asks
again for one, because he did not hear its end, is answered with it, and nothing is done again.
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
from actuator.change_record import ChangeOutcome, ChangeRecord, Direction
from actuator.journal import Journal, JournalBusy, JournalUnusable
from api.actuator_messages import (
    MOST_TEXT,
    ActuatorAnswer,
    ActuatorRefusal,
    ApplyRequest,
    ChangeAnswer,
    ChangeEnd,
    KnownChange,
    LayoutAsked,
    PodsOnGpus,
    RefusalAnswer,
    RestoreRequest,
    StateAnswer,
)
from base import threads
from base.backoff import Backoff
from base.errors import GpuscapeError
from discovery.driver_errors import DriverAbsent, DriverMismatch
from mig.gpu_layout import GpuLayout, WantedInstance

log = logging.getLogger(__name__)

RunChange = Callable[[ApplyRequest | RestoreRequest | None, PodsOnGpus], ChangeResult]
"""Carries a change out; without one it ends what is open, once the GPUs are given up that a
RestoreRequest names. Raises GpuscapeError."""
AT_START = "restore-at-start"
"""Stands for a change where layouts come back that a reboot took."""
FIRST_RETRY_SECONDS: Final = 2.0
LONGEST_RETRY_SECONDS: Final = 30.0
"""A driver that comes late is not to have the node wait for its layouts much longer than that."""
Reply = Callable[[ActuatorAnswer], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalContent:
    """What the journal has now."""

    open: ChangeRecord | None
    """That goes on or was stopped."""
    held: tuple[ChangeRecord, ...]
    verified: bool
    """It has layouts that come back after a reboot."""
    past: tuple[ChangeRecord, ...]
    """That have ended, the newest last."""

    def ended(self, change: str) -> ChangeRecord | None:
        """The one of this name among those that have ended."""
        return next((one for one in self.past if one.change == change), None)

    def unended(self, change: str) -> ChangeRecord | None:
        """The one of this name among the others."""
        found = (*(() if self.open is None else (self.open,)), *self.held)
        return next((one for one in found if one.change == change), None)


class Transactions:
    """Takes requests for changes. For one thread, apart from the one that carries a change out."""

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
        self._reply: Reply = _unheard
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
        """The change that is being carried out."""
        return self._running

    def stop(self) -> None:
        """Begin nothing any more."""
        self._stopping = True

    @property
    def due(self) -> float:
        """When :meth:`tick` has something to do, by the clock; infinite where it has nothing."""
        return math.inf if self._due is None or self._running is not None else self._due

    def tick(self) -> None:
        """Try again what was too early at the start, once it is time."""
        if self.due <= self._clock() and not self._stopping:
            self.resume()

    def resume(self) -> None:
        """Go on with the change that another process left open, if there is one.

        A held one is taken back once more, and layouts come back that a reboot or a load of the
        driver took. Where there is no driver yet, or another process has the journal,
        it is tried again later. A journal that cannot be used is left as it is, and each request
        will say so.
        """
        self._due = None
        try:
            content = self._content()
        except (JournalUnusable, JournalBusy) as error:
            log.warning("MIG journal not usable", extra={"why": str(error)})
            return
        unended = content.open or next(iter(content.held), None)
        if unended is not None:
            self._begin(unended.change, self._ended_later, _unheard)
        elif content.verified:
            self._begin(AT_START, self._ended_later, _unheard)

    def _ended_later(self) -> ChangeResult:
        """In the change's thread: keep why it came too early, for :meth:`finish`."""
        try:
            return self._run(None, ())
        except (DriverAbsent, DriverMismatch, JournalBusy) as error:
            self._too_early = error
            raise

    def state(self, change: str | None = None) -> StateAnswer:
        """What runs, what is open, what ended last, and what became of ``change``."""
        try:
            content = self._content()
        except (JournalUnusable, JournalBusy) as error:
            return StateAnswer(running=self._running, problem=str(error)[:MOST_TEXT])
        left = content.open or next(iter(content.held), None)
        known = None
        if change is not None:
            known = content.ended(change) or content.unended(change)
        return StateAnswer(
            running=self._running,
            open=None if left is None else _known(left),
            last=_known(content.past[-1]) if content.past else None,
            named=None if known is None else _known(known),
        )

    def ask(self, request: ApplyRequest | RestoreRequest, reply: Reply) -> None:
        """Meet a request: ``reply`` gets the answer now, or from :meth:`finish`."""
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
        left = content.open
        if left is not None and left.change != request.change:
            return reply(
                _refused(
                    ActuatorRefusal.CONFLICT,
                    f"change {left.change} has not ended: restore it",
                    left.change,
                )
            )
        is_new = isinstance(request, ApplyRequest) and left is None
        in_the_way = _held_on(request, content) if is_new else None
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
        reply, self._reply, self._running = self._reply, _unheard, None
        why, self._too_early = self._too_early, None
        if why is not None:
            seconds = self._backoff.failed()
            self._due = self._clock() + seconds
            log.warning("MIG restore waits", extra={"why": str(why), "seconds": seconds})
        reply(answer)

    def _answered_before(
        self, request: ApplyRequest | RestoreRequest, content: JournalContent
    ) -> ActuatorAnswer | None:
        """The answer to a request that was met before; None where there is something to do."""
        record = content.ended(request.change)
        left = content.unended(request.change)
        if record is None and left is not None:
            if left.outcome is ChangeOutcome.HELD and isinstance(request, ApplyRequest):
                record = left  # only who says restore has it tried again
            elif isinstance(request, ApplyRequest) and not _is_same(request, left):
                return _other(request.change)
        if record is None:
            return None
        if isinstance(request, ApplyRequest) and not _is_same(request, record):
            return _other(request.change)
        return _ended(record.change, _END[record.outcome], record.reason, again=True)

    def _begin(self, change: str, call: Callable[[], ChangeResult], reply: Reply) -> None:
        self._running, self._reply = change, reply
        try:
            threads.started(lambda: self._carry_out(change, call), "change")
        except threads.NoThread as error:
            self._running, self._reply = None, _unheard
            reply(_refused(ActuatorRefusal.FAILED, str(error)))

    def _carry_out(self, change: str, call: Callable[[], ChangeResult]) -> None:
        """In a thread of its own."""
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
        """Raises JournalUnusable."""
        with Journal(self._journal, lock=False) as journal:
            left = journal.load()  # first: a change that ends now is then in at least one of them
            return JournalContent(
                open=left,
                held=journal.held(),
                verified=bool(journal.verified()),
                past=journal.history(),
            )


def _unheard(_answer: ActuatorAnswer) -> None:
    """For a change that no client has asked for."""


_END = {
    ChangeOutcome.APPLIED: ChangeEnd.APPLIED,
    ChangeOutcome.PREVIOUS: ChangeEnd.PREVIOUS,
    ChangeOutcome.HELD: ChangeEnd.HELD,
    None: ChangeEnd.UNCHANGED,
}


def layout_of(asked: LayoutAsked) -> GpuLayout:
    """A layout as the planner has it. Raises ValueError for instances with MIG off."""
    instances = tuple(
        WantedInstance(
            one.profile,
            tuple(sorted(one.compute, reverse=True)),
            -1 if one.start is None else one.start,
        )
        for one in asked.instances
    )
    return GpuLayout(mig=asked.mig, instances=instances)


def _is_same(request: ApplyRequest, record: ChangeRecord) -> bool:
    """Whether a request asks for the change that a record has.

    A record has the GPUs that were affected alone, and its instances have got places.
    """
    return request.asked == record.asked and all(
        uuid in request.wanted and _shape(layout_of(request.wanted[uuid])) == _shape(layout)
        for uuid, layout in record.wanted.items()
    )


def _shape(layout: GpuLayout) -> tuple[bool, Counter[tuple[str, tuple[int, ...]]]]:
    return layout.mig, Counter((one.profile, one.compute) for one in layout.instances)


def _answer(change: str, result: ChangeResult) -> ActuatorAnswer:
    end = ChangeEnd.REFUSED if result.refusal is not None else _END[result.outcome]
    return _ended(change, end, result.reason)


def _ended(change: str, end: ChangeEnd, reason: str, *, again: bool = False) -> ChangeAnswer:
    return ChangeAnswer(change=change, end=end, reason=reason[:MOST_TEXT], again=again)


def _refused(refusal: ActuatorRefusal, reason: str, change: str | None = None) -> RefusalAnswer:
    return RefusalAnswer(refusal=refusal, reason=reason[:MOST_TEXT], change=change)


def _held_on(
    request: ApplyRequest | RestoreRequest, content: JournalContent
) -> RefusalAnswer | None:
    """Why a change of these GPUs cannot begin; one that is held is in no other GPU's way."""
    wanted = request.wanted.keys() if isinstance(request, ApplyRequest) else ()
    for one in content.held:
        stuck = ", ".join(sorted(one.concerns.intersection(wanted)))
        if stuck:
            why = f"change {one.change} is held on GPU {stuck}: restore it, or give the GPU up"
            return _refused(ActuatorRefusal.CONFLICT, why, one.change)
    return None


def _other(change: str) -> RefusalAnswer:
    return _refused(ActuatorRefusal.CONFLICT, f"{change} is the name of another change", change)


def _known(record: ChangeRecord) -> KnownChange:
    return KnownChange(
        change=record.change,
        asked=record.asked[:MOST_TEXT],
        started=record.started,
        gpus=tuple(sorted(record.concerns)),
        back=record.direction is Direction.BACK,
        end=None if record.outcome is None else _END[record.outcome],
        reason=record.reason[:MOST_TEXT],
    )
