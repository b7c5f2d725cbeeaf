# SPDX-License-Identifier: Apache-2.0
"""The device reader as the agent uses it: never blocks for ever, a broken GPU costs itself alone.

An NVML call can hang for ever and cannot be cancelled, so it is made in a child
process. When a frame misses its deadline, the GPU announced last is quarantined,
the child gets SIGTERM and is left alone, and another child starts with that GPU
skipped: at most one stuck child for each hung GPU, and a bounded number in all
(:mod:`discovery.reader.ending`). A hang while no GPU was announced (nvmlInit)
blames none, and no other child starts until that one has ended. Quarantined GPUs
are probed by a child of their own, so that a probe that hangs disturbs nothing.
"""

from __future__ import annotations

import functools
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator

import msgspec

from base.errors import Transient
from base.side_by_side import side_by_side
from discovery.driver_errors import DriverAbsent, DriverMismatch, ReaderGone, ReaderStuck, Released
from discovery.known_gpus import KnownGpus
from discovery.model import GpuSnapshot, GpuState, Reason
from discovery.reader.child import Child, Died, Hung
from discovery.reader.deadlines import Deadlines, slow_first_answer
from discovery.reader.ending import EndingReaders
from discovery.reader.protocol import (
    Answer,
    Discover,
    DriverFrame,
    Event,
    GpuFrame,
    Request,
    RequestRefused,
    Sample,
    SampleFrame,
    Start,
    Touching,
)
from discovery.reader.quarantine import Quarantine
from discovery.reader.reader_results import DiscoveryResult, ReaderHealth
from discovery.reader.standard_error import ReaderEnds
from discovery.sample import GpuSample, ReadingGroup

TERM_GRACE_SECONDS = 0.5
"""How long a terminated child is waited for before it counts as stuck."""

FAILURES_IN_A_ROW = 4
"""So many children may fail one after the other at one request, none isolating a GPU."""

EVENTS_KEPT = 1000

_RELEASED = "all NVML handles are released on request"

_REFUSALS: dict[str, type[Transient]] = {"absent": DriverAbsent, "mismatch": DriverMismatch}


class DeviceReader:
    """Reads all GPUs through disposable children; safe to call from several threads."""

    def __init__(
        self,
        start: Start,
        *,
        deadline_seconds: float = 5.0,
        init_seconds: float = 30.0,
        known_gpus: KnownGpus | None = None,
        on_news: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``init_seconds``: for first answers to a child, see :mod:`discovery.reader.deadlines`.

        ``known_gpus``: what is known from a reader before this one, of the same machine.
        ``on_news`` is called, in any thread, when an event came or something hung.
        """
        self._start = start
        self._leave_seconds = deadline_seconds
        self._deadlines = Deadlines(deadline_seconds, init_seconds, self._is_open)
        self._clock = clock
        self._asking = threading.Lock()  # one request at a time
        self._state = threading.RLock()  # guards everything below
        self._child: Child | None = None
        self._probing: dict[str, Child | None] = {}
        self._initialising: str | None = None
        self._latched = False  # a GPU did not answer, and may not before a new session
        self._ending = EndingReaders()
        self._ends = ReaderEnds()
        self._quarantine = Quarantine()
        self._known_gpus = KnownGpus() if known_gpus is None else known_gpus
        self._events: deque[Event] = deque(maxlen=EVENTS_KEPT)
        self._groups: tuple[ReadingGroup, ...] = ()  # asked for last, so a probe asks for them too
        self._on_news = on_news
        self._requests = self._starts = self._hangs = self._deaths = self._overflows = 0
        self._released = False
        self._closed = False

    def discover(self) -> DiscoveryResult:
        """Read everything.

        A GPU that hangs or is lost is in the result with its state. Raises
        DriverAbsent or DriverMismatch without a working driver, ReaderStuck when
        the driver as a whole hangs or no child may start, ReaderGone when the
        child keeps dying, Released while handles are closed on request. Where reading
        ends early nothing is returned: the GPUs that follow are not missing.
        """
        head: DriverFrame | None = None
        read: dict[str, GpuSnapshot] = {}
        for answer in self.answers(Discover(request=0)):
            match answer:
                case DriverFrame():
                    head = answer
                case GpuFrame():
                    read[answer.gpu.bus_id] = answer.gpu
        if head is None:
            raise ReaderGone("the device reader ended its answer without naming a driver")
        with self._state:
            now = self._clock()
            self._known_gpus.expect(head.listed, head.elsewhere, now)
            gpus = self._known_gpus.described(head.listed, read, self._quarantine)
            settling = self._known_gpus.settling(now)
            driver = self._known_gpus.driver(head.driver)
        return DiscoveryResult(driver=driver, gpus=gpus, settling=settling)

    def sample(self, groups: Iterable[ReadingGroup] = ()) -> tuple[GpuSample, ...]:
        """Readings of the GPUs that answer: those always made, and those of ``groups``.

        Raises as :meth:`discover` does.
        """
        samples: dict[str, GpuSample] = {}
        self._groups = tuple(groups)
        try:
            for answer in self.answers(Sample(request=0, groups=self._groups)):
                if isinstance(answer, SampleFrame):
                    samples[answer.sample.bus_id] = answer.sample
        except (ReaderStuck, ReaderGone):
            if not samples:
                raise
        return tuple(samples.values())

    def events(self) -> tuple[Event, ...]:
        """Events since the last call, in order; of more than EVENTS_KEPT the oldest are lost."""
        return tuple(self._events.popleft() for _ in range(len(self._events)))

    def probe(self) -> Iterator[str]:
        """Try the quarantined GPUs that are due; the bus id of each that answers, at once.

        They are tried side by side, since each may have to be initialised again. A GPU on which a
        child is still stuck is not tried: a second one would hang as well.
        """
        probes = (functools.partial(self._answers_again, it) for it in self._due_probes())
        yield from (bus_id for bus_id in side_by_side(probes, "probe") if bus_id is not None)

    def release(self, within_seconds: float = 4.0) -> bool:
        """Close every NVML handle and start no child until :meth:`resume`; True when all ended.

        Asks first, then SIGTERM, then SIGKILL: a handle left open blocks somebody's
        driver upgrade.
        """
        with self._state:
            self._released = True
            self._retire()
            ending = list(self._ending.children)
            ending += [child for child in self._probing.values() if child is not None]
        for push, share in ((Child.stop, 0.5), (Child.terminate, 0.25), (Child.kill, 0.25)):
            for each in ending:
                push(each)
            end = self._clock() + share * within_seconds
            ending = [each for each in ending if not each.wait(max(0.0, end - self._clock()))]
        return not ending

    def resume(self) -> None:
        """Allow children again after :meth:`release`; not after :meth:`close`."""
        with self._state:
            self._released = self._closed

    def close(self) -> None:
        """End for good within 1.5 s; a child that even SIGKILL does not end is left behind."""
        self._closed = True
        self.release(within_seconds=1.5)

    def health(self) -> ReaderHealth:
        """How the reader fares now."""
        with self._state:
            self._ending.reap(self._clock())
            return ReaderHealth(
                starts=self._starts,
                hangs=self._hangs,
                deaths=self._deaths,
                stuck=self._ending.stuck_count,
                quarantined=self._quarantine.bus_ids,
                why_quarantined=self._quarantine.reasons,
                missed_once=self._quarantine.missed_once,
                initialising=self._initialising,
                released=self._released,
                event_losses=self._hangs + self._deaths + self._overflows,
                pid=None if self._child is None else self._child.pid,
            )

    # asking

    def answers(self, message: Request) -> Iterator[Answer]:
        """Frames of one request; after a hang or a death, those of the next child's answer too.

        ``message`` gets a number of its own each time it is sent. Raises as :meth:`discover`.
        """
        with self._asking:
            left = FAILURES_IN_A_ROW
            while left:
                child = self._running(type(message))
                self._requests += 1
                numbered = msgspec.structs.replace(message, request=self._requests)
                try:
                    yield from self._accepted(child, numbered)
                except Hung as hung:
                    self._abandon(child, hung)
                except Died as died:
                    self._bury(child, died)
                else:
                    return
                isolated = not set(self._quarantine.bus_ids) <= set(child.skips)
                left = FAILURES_IN_A_ROW if isolated else left - 1
            raise ReaderGone(f"the device reader ended {FAILURES_IN_A_ROW} times in a row")

    def _accepted(self, child: Child, message: Request) -> Iterator[Answer]:
        for answer in child.ask(message, self._patience):
            if isinstance(answer, RequestRefused):
                self._retire()  # a new child loads the library anew, so no failure is latched
                self._known_gpus.driver_gone()
                raise _REFUSALS.get(answer.kind, Transient)(answer.text)
            if isinstance(answer, GpuFrame):
                with self._state:
                    self._quarantine.answered(answer.gpu.bus_id)
                    self._latched |= answer.gpu.state is not GpuState.PRESENT
            yield answer

    def _patience(self, call: Touching | None, waited_seconds: float) -> float:
        """How long to wait on for the working child; shows a first answer that takes long."""
        initialising = slow_first_answer(call, waited_seconds)
        with self._state:
            is_new = initialising not in (None, self._initialising)
            self._initialising = initialising
        if is_new:
            self._on_news()
        return self._deadlines.left(call, waited_seconds)

    def _is_open(self, bus_id: str | None) -> bool:
        with self._state:
            working = self._child is not None and bus_id in self._child.returned
            return working or self._ending.keeps_open(bus_id)

    def _running(self, kind: type[Request]) -> Child:
        """The child to ask, started if need be. Raises as :meth:`_started` does."""
        with self._state:
            skip = self._quarantine.bus_ids
            self._ending.reap(self._clock())
            if self._ending.why_start_none is None:
                if self._child is not None and not set(self._child.skips) <= set(skip):
                    self._retire()  # a GPU came back that this child leaves alone
                if kind is not Sample and self._latched and self._ending.may_leave:
                    self._retire()  # NVML counts GPUs at nvmlInit: one back on the bus is not seen
            if self._child is not None and not self._child.ended:
                return self._child
        child = self._started(msgspec.structs.replace(self._start, skip=skip))
        with self._state:
            self._stop_if_released(child)
            self._child = child
        return child

    def _started(self, start: Start) -> Child:
        """A new child. Raises ReaderStuck, ReaderGone or Released where there can be none.

        No lock is held while it starts, but that of requests: where it takes long, as on a
        hanging disk, nobody waits for it who asks for nothing.
        """
        with self._state:
            if self._released:
                raise Released(_RELEASED)
            self._ending.reap(self._clock())
            if (why := self._ending.why_start_none) is not None:
                raise ReaderStuck(why)
            self._starts += 1
        try:
            return Child(start, self._take, self._ends)
        except OSError as error:
            raise ReaderGone(f"the device reader cannot be started: {error}") from error

    def _stop_if_released(self, child: Child) -> None:
        """Raises Released if so; the child has no handle yet, and ends. The lock is held."""
        if self._released:
            child.stop()
            self._leave(child)
            raise Released(_RELEASED)

    def _take(self, event: Event) -> None:
        with self._state:
            self._overflows += len(self._events) == EVENTS_KEPT
            self._events.append(event)
        self._on_news()

    def _retire(self) -> None:
        """Let the working child end; the next request starts another."""
        with self._state:
            child, self._child, self._latched = self._child, None, False
            if child is not None:
                child.stop()
                self._leave(child)

    def _leave(self, child: Child) -> None:
        self._ending.leave(child, self._clock() + self._leave_seconds)

    def _terminate(self, child: Child, call: Touching | None) -> None:
        """SIGTERM for a child that missed its deadline in ``call``; it may be stuck from now on."""
        child.terminate()
        ended = child.wait(TERM_GRACE_SECONDS)
        with self._state:
            if not ended:
                self._ending.hang(child, call)

    # what may go wrong

    def _abandon(self, child: Child, hung: Hung) -> None:
        """Give up a child that missed its deadline; isolate its GPU, or raise ReaderStuck."""
        seconds = self._deadlines.of(hung.doing)
        self._ends.log_timeout(child.pid, hung.what, seconds)
        self._terminate(child, hung.doing)
        with self._state:
            why = f"no answer within {seconds:g} s"
            self._initialising = None
            self._hangs += 1
            self._child = None if child is self._child else self._child
            if hung.doing is not None and hung.doing.bus_id is not None:
                self._quarantine.isolate(hung.doing.bus_id, Reason.HUNG, why, self._clock())
        self._on_news()
        if hung.doing is not None and hung.doing.bus_id is None:
            raise ReaderStuck(f"the NVIDIA driver as a whole: {why}")

    def _bury(self, child: Child, died: Died) -> None:
        """Count a death, on the account of the GPU that was being read."""
        child.terminate()  # it may have broken the protocol and live on
        with self._state:
            self._child = None if child is self._child else self._child
            self._leave(child)
            self._initialising = None
            if self._released:
                return
            self._deaths += 1
            if died.doing is not None and died.doing.bus_id is not None:
                why = f"the device reader died on it: {died}"
                self._quarantine.crashed(died.doing.bus_id, why, self._clock())

    def _due_probes(self) -> list[str]:
        """Bus ids of the quarantined GPUs that are to be tried now."""
        with self._state:
            self._ending.reap(self._clock())
            due = [it for it in self._quarantine.due(self._clock()) if it not in self._probing]
            stuck = self._ending.stuck_bus_ids
            for bus_id in stuck.intersection(due):
                self._quarantine.missed(bus_id)
            room = 0 if self._released else self._ending.probes_allowed - len(self._probing)
            probes = [it for it in due if it not in stuck][: max(0, room)]
            for bus_id in probes:
                self._quarantine.postpone(bus_id, self._clock())
            self._probing |= dict.fromkeys(probes)
            return probes

    def _answers_again(self, bus_id: str) -> str | None:
        """Read one quarantined GPU in a child of its own; its bus id if it answers every call."""
        try:
            child = self._started(msgspec.structs.replace(self._start, only=(bus_id,)))
            with self._state:
                self._stop_if_released(child)
                self._probing[bus_id] = child
            return bus_id if self._answers_in(child, bus_id) else None
        except Transient:
            return None  # its next turn may have more luck
        finally:
            with self._state:
                del self._probing[bus_id]

    def _answers_in(self, child: Child, bus_id: str) -> bool:
        try:
            answers = list(child.ask(Discover(request=0), self._deadlines.left))
            answers += child.ask(Sample(request=1, groups=self._groups), self._deadlines.left)
        except (Hung, Died) as failed:
            self._terminate(child, failed.doing)
            with self._state:
                self._quarantine.missed(bus_id)
            return False
        answered = any(isinstance(answer, GpuFrame) for answer in answers)
        child.stop()
        with self._state:
            self._leave(child)
            if answered:
                self._quarantine.answered(bus_id)
        return answered
