# SPDX-License-Identifier: Apache-2.0
"""The device reader processes of one machine: which one works, which ones end, which GPUs are left.

One process works at a time; the next one has answered before the one that it replaces ends, so that
GPUs stay open and no XID is missed. Its rules, which :mod:`discovery.reader.device_reader` names,
are kept here.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

import msgspec

from discovery.driver_errors import ReaderGone, ReaderStuck, Released
from discovery.model import GpuSnapshot, GpuState, Reason
from discovery.reader.child import Child, Died, Hung, Slow
from discovery.reader.deadlines import SLOW_SECONDS, Deadlines, slow_first_answer
from discovery.reader.ending import EndingReaders
from discovery.reader.protocol import Event, Grown, ReadMig, Request, Sample, Start, Touching
from discovery.reader.quarantine import Quarantine
from discovery.reader.reader_events import ReaderEvents
from discovery.reader.reader_results import ReaderHealth
from discovery.reader.reader_use import ReaderUse
from discovery.reader.single_gpus import SingleGpuReaders
from discovery.reader.standard_error import ReaderEnds

TERM_GRACE_SECONDS = 0.5
"""How long a terminated child is waited for before it counts as stuck."""

_RELEASED = "all NVML handles are released on request"


class ReaderChildren:
    """Starts, replaces and ends the processes; may be used from several threads."""

    def __init__(
        self,
        start: Start,
        *,
        deadline_seconds: float,
        init_seconds: float,
        leaves_slow_gpus: bool,
        age_seconds: float,
        on_news: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Parameters as of :class:`discovery.reader.device_reader.DeviceReader`."""
        self._start = start
        self._leave_seconds = deadline_seconds
        self._init_seconds = init_seconds
        self._leaves_slow_gpus = leaves_slow_gpus
        self.deadlines = Deadlines(deadline_seconds, init_seconds, self._is_open)
        self._on_news = on_news
        self._clock = clock
        # reentrant: patience() holds it while the deadlines call _is_open, which takes it again
        self.state = threading.RLock()  # guards everything below
        self.quarantine = Quarantine()
        self._child: Child | None = None
        self._former: Child | None = None
        self._single = SingleGpuReaders()
        self._ending = EndingReaders()
        self._ends = ReaderEnds()
        self._use = ReaderUse(age_seconds, self._ends.paced)
        self._left_out: dict[type[Request], frozenset[str]] = {}
        self._initialising: str | None = None
        self._latched = False  # a GPU did not answer, and may not before a new session
        self._events = ReaderEvents()
        self._starts = self._hangs = self._deaths = 0
        self._released = False
        self._closed = False

    def working(self, kind: type[Request]) -> Child:
        """The child to ask, started if need be. Raises as :meth:`started` does."""
        with self.state:
            self._tidy()
            skip = self._left_alone()
            if self._ending.why_start_none is None and self._is_outdated(kind, skip):
                self._leave(self._former)
                self._former, self._child, self._latched = self._child, None, False
            if self._child is not None and not self._child.ended:
                return self._child
        # without the lock: a start may take seconds, and a release must not wait for it
        child = self.started(msgspec.structs.replace(self._start, skip=skip))
        with self.state:
            self.stop_if_released(child)  # it may have been released meanwhile
            # the caller's lock of requests admits one start at a time
            self._child = child
            self._use.begin(self._clock())
        return child

    def _is_outdated(self, kind: type[Request], skip: tuple[str, ...]) -> bool:
        """Whether the child that works is to be replaced now."""
        if self._child is None:
            return False
        if not set(self._child.skips) <= set(skip):
            return True  # a GPU came back that this child leaves alone
        if not self._child.ended and self._use.is_used_up(self._child.pid, self._clock()):
            return True
        # NVML counts GPUs at nvmlInit: one back on the bus is not seen
        return kind is not Sample and self._latched and self._ending.may_leave

    def _left_alone(self) -> tuple[str, ...]:
        """Bus ids that a child that starts now has to skip."""
        return tuple(dict.fromkeys((*self.quarantine.bus_ids, *sorted(self._single.waiting))))

    def has_answered(self, child: Child, message: Request) -> None:
        """A request was answered in full: the child that this one replaced is not needed now."""
        with self.state:
            self.quarantine.try_remembered(self._clock())
            self._left_out[type(message)] = frozenset(child.skips)
            # a MIG reading registers for no XIDs: until a discovery they come from the former child
            opens_all = not isinstance(message, ReadMig)
            if child is self._child and opens_all:
                former, self._former = self._former, None
                self._leave(former)

    def remember(self, hung: Iterable[str]) -> None:
        """Probe these GPUs, which hung for another agent, after the others have answered."""
        with self.state:
            for bus_id in sorted(hung):
                self.quarantine.remember(bus_id, "it hung before this agent started")

    def gpu_answered(self, gpu: GpuSnapshot) -> None:
        """The child that works has read this GPU."""
        with self.state:
            self.quarantine.answered(gpu.bus_id)
            self._leave(self._single.let_go(gpu.bus_id))
            self._latched |= gpu.state is not GpuState.PRESENT

    def skipped(self, kind: type[Request]) -> frozenset[str]:
        """GPUs that the newest answer of this kind leaves out though none is quarantined."""
        with self.state:
            return self._left_out.get(kind, frozenset()).difference(self.quarantine.bus_ids)

    def started(self, start: Start) -> Child:
        """A new child. Raises ReaderStuck, ReaderGone or Released where there can be none.

        No lock is held while it starts, but that of requests: where it takes long, as on a
        hanging disk, nobody waits for it who asks for nothing.
        """
        with self.state:
            if self._released:
                raise Released(_RELEASED)
            self._ending.reap(self._clock())
            if (why := self._ending.why_start_none) is not None:
                raise ReaderStuck(why)
            self._starts += 1
        try:
            child = Child(start, self._take, self._ends)
        except OSError as error:
            raise ReaderGone(f"the device reader cannot be started: {error}") from error
        with self.state:
            self._events.opened(child)
        return child

    def stop_if_released(self, child: Child) -> None:
        """Raises Released if so; the child has no handle yet, and ends. The lock is held."""
        if self._released:
            self._leave(child)
            raise Released(_RELEASED)

    def retire(self) -> None:
        """Let the working child end now; the next request starts another."""
        with self.state:
            child, self._child, self._latched = self._child, None, False
            former, self._former = self._former, None
            self._leave(child)
            self._leave(former)

    def patience(self, call: Touching | None, waited_seconds: float) -> float:
        """How long the working child is waited for; raises Slow for a GPU to be left to it."""
        initialising = slow_first_answer(call, waited_seconds)
        with self.state:
            # reported once for each GPU, not at every second of waiting
            is_new = initialising not in (None, self._initialising)
            self._initialising = initialising
            remaining_seconds = self.deadlines.remaining_seconds(call, waited_seconds)
            slow = self._to_be_left(call, waited_seconds) if remaining_seconds > 0 else None
        if is_new:
            self._on_news()
        if slow is not None:
            raise Slow(slow)
        return remaining_seconds

    def _to_be_left(self, call: Touching | None, waited_seconds: float) -> str | None:
        """The GPU that takes so long for its answer that another child reads the others.

        Not before such a child could have started: where the machine is busy all takes longer.
        """
        start_seconds = None if self._child is None else self._child.start_seconds
        if not self._leaves_slow_gpus or waited_seconds < max(SLOW_SECONDS, start_seconds or 0.0):
            return None
        if call is None or not call.asks or call.bus_id in self._single.holding:
            return None
        return call.bus_id if self._room > 0 else None

    def leave_to(self, child: Child, bus_id: str) -> None:
        """This child waits for the answer of this GPU from now on, and does nothing else."""
        with self.state:
            self._initialising = None
            self._single.wait(bus_id, child)
            self._forget(child)

    def take_back(self, child: Child, bus_id: str) -> None:
        """The child works on after all: there is no thread to wait for this GPU."""
        with self.state:
            self._single.end_wait(bus_id)
            self._child = child

    def end_wait(self, bus_id: str, child: Child | None) -> None:
        """Nobody waits for this GPU any more. ``child`` has had its answer, and keeps it open."""
        with self.state:
            self._single.end_wait(bus_id)
            if child is not None:
                self._leave(self._single.let_go(bus_id))
                if self._released:
                    self._leave(child)
                else:
                    self._single.hold(bus_id, child, self._clock() + self._init_seconds)
        self._on_news()

    def due_probes(self) -> list[str]:
        """Bus ids of the quarantined GPUs that are to be tried now; they count as waited for."""
        with self.state:
            self._tidy()
            now, waiting = self._clock(), self._single.waiting
            due = [bus_id for bus_id in self.quarantine.due(now) if bus_id not in waiting]
            stuck = self._ending.stuck_bus_ids
            # its child still hangs in the driver: a second one would only hang next to it
            for bus_id in stuck.intersection(due):
                self.quarantine.missed(bus_id)
            room = 0 if self._released else self._room
            # room is negative while more children wait for one GPU than may get stuck
            probes = [bus_id for bus_id in due if bus_id not in stuck][: max(0, room)]
            for bus_id in probes:
                self.quarantine.postpone(bus_id, now)
                self._single.wait(bus_id, None)
            return probes

    @property
    def _room(self) -> int:
        """Number of GPUs that may still get a child of their own; each child may get stuck."""
        return self._ending.probes_allowed - len(self._single)

    def start_probe(self, bus_id: str) -> Child:
        """A child for this GPU alone. Raises as :meth:`started`."""
        child = self.started(msgspec.structs.replace(self._start, only=(bus_id,)))
        with self.state:
            self.stop_if_released(child)
            self._single.wait(bus_id, child)
        return child

    def probe_failed(self, bus_id: str) -> None:
        """A GPU that was probed has hung, or its child died."""
        with self.state:
            self.quarantine.missed(bus_id)

    def probe_answered(self, bus_id: str) -> None:
        """A GPU that was probed answers every call."""
        with self.state:
            self.quarantine.answered(bus_id)

    def abandon(self, child: Child, hung: Hung) -> None:
        """Give up a child that missed its deadline; isolate its GPU, or raise ReaderStuck."""
        seconds = self.deadlines.seconds_for(hung.call)
        self._ends.log_timeout(child.pid, hung.target, seconds)
        self.terminate(child, hung.call)
        with self.state:
            why = f"no answer within {seconds:g} s"
            self._initialising = None
            self._hangs += 1
            self._forget(child)
            if hung.call is not None and hung.call.bus_id is not None:
                self._leave(self._single.let_go(hung.call.bus_id))
                self.quarantine.isolate(hung.call.bus_id, Reason.HUNG, why, self._clock())
        self._on_news()
        if hung.call is not None and hung.call.bus_id is None:
            raise ReaderStuck(f"the NVIDIA driver as a whole: {why}")

    def bury(self, child: Child, died: Died) -> None:
        """Count a death, on the account of the GPU that was being read."""
        child.terminate()  # it may have broken the protocol and live on
        with self.state:
            self._forget(child)
            self._leave(child)
            self._initialising = None
            # release() ends children on purpose, by signals too: such an end is no death
            if self._released:
                return
            self._deaths += 1
            if died.call is not None and died.call.bus_id is not None:
                why = f"the device reader died on it: {died}"
                self.quarantine.crashed(died.call.bus_id, why, self._clock())

    def terminate(self, child: Child, call: Touching | None) -> None:
        """SIGTERM for a child that missed its deadline in ``call``; it may be stuck from now on."""
        child.terminate()
        ended = child.wait(TERM_GRACE_SECONDS)
        with self.state:
            self._events.closed(child)
            # not killed: a SIGKILL during a driver call may leave the GPU unusable until a reset
            if not ended:
                self._ending.hang(child, call)

    def _forget(self, child: Child) -> None:
        """This child works no longer."""
        if child is self._child:
            self._child = None

    def leave(self, child: Child) -> None:
        """Ask a child to close its handles and end."""
        with self.state:
            self._leave(child)

    def _leave(self, child: Child | None) -> None:
        if child is not None:
            child.stop()
            self._events.closed(child)
            # closing NVML may hang as well: past this time it counts as stuck
            self._ending.leave(child, self._clock() + self._leave_seconds)

    def _tidy(self) -> None:
        self._ending.reap(self._clock())
        for bus_id in self._single.overdue(self._clock()):
            self._leave(self._single.let_go(bus_id))

    def _is_open(self, bus_id: str | None) -> bool:
        with self.state:
            children = (child for child in (self._child, self._former) if child is not None)
            if any(bus_id in child.returned and not child.ended for child in children):
                return True
            return self._single.keeps_open(bus_id) or self._ending.keeps_open(bus_id)

    def _take(self, child: Child, event: Event | Grown) -> None:
        with self.state:
            if isinstance(event, Grown):
                if child is self._child:  # another one is about to end anyway
                    self._use.grown = event
            elif not self._events.add(child, event):
                return
        self._on_news()

    def events(self) -> tuple[Event, ...]:
        """Events since the last call, in order; of more than EVENTS_KEPT the oldest are lost."""
        return self._events.taken()

    def release(self, within_seconds: float) -> bool:
        """Close every NVML handle and start no child until :meth:`resume`; True when all ended.

        Asks first, then SIGTERM, then SIGKILL: a handle left open blocks somebody's
        driver upgrade.
        """
        with self.state:
            self._released = True
            self.retire()
            ending = [*self._ending.children, *self._single.children]
        # half of the time for a clean end, which closes NVML; a quarter for each signal
        for push, share in ((Child.stop, 0.5), (Child.terminate, 0.25), (Child.kill, 0.25)):
            for child in ending:
                push(child)
            end = self._clock() + share * within_seconds
            ending = [child for child in ending if not child.wait(max(0.0, end - self._clock()))]
        return not ending

    def resume(self) -> None:
        """Allow children again after :meth:`release`; not after :meth:`close`."""
        with self.state:
            self._released = self._closed

    def close(self) -> None:
        """End for good within 1.5 s; a child that even SIGKILL does not end is left behind."""
        self._closed = True
        self.release(within_seconds=1.5)

    def health(self) -> ReaderHealth:
        """How the readers fare now."""
        with self.state:
            self._tidy()
            # a quarantined GPU is waited for by its probe, and reported as quarantined already
            awaited = self._single.waiting.difference(self.quarantine.bus_ids)
            return ReaderHealth(
                starts=self._starts,
                hangs=self._hangs,
                deaths=self._deaths,
                replaced=dict(self._use.replaced),
                outgrown=self._use.grown is not None,
                stuck=self._ending.stuck_count,
                quarantined=self.quarantine.bus_ids,
                why_quarantined=self.quarantine.reasons,
                missed_once=self.quarantine.missed_once,
                awaited=awaited,
                initialising=self._initialising or min(awaited, default=None),
                released=self._released,
                event_losses=self._hangs + self._deaths + self._events.overflows,
                pid=None if self._child is None else self._child.pid,
            )
