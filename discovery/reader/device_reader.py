# SPDX-License-Identifier: Apache-2.0
"""The device reader as the agent uses it: never blocks for ever, a broken GPU costs itself alone.

An NVML call can hang for ever and cannot be cancelled, so it is made in a child
process. When a frame misses its deadline, the GPU announced last is quarantined,
the child gets SIGTERM and is left alone, and another child starts with that GPU
skipped: at most one stuck child for each hung GPU, and a bounded number in all
(:mod:`discovery.reader.ending`). A GPU that takes long for its first answer is left
to its child before that deadline: another child reads the others meanwhile. A hang
while no GPU was announced (nvmlInit) blames none, and no other child starts until
that one has ended. Quarantined GPUs are probed by a child of their own, so that a
probe that hangs disturbs nothing.
"""

from __future__ import annotations

import functools
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator

import msgspec

from base import threads
from base.concurrent_calls import concurrently
from base.errors import Transient
from discovery.driver_errors import DriverAbsent, DriverMismatch, ReaderGone, ReaderStuck
from discovery.known_node_gpus import KnownGpus
from discovery.model import GpuSnapshot
from discovery.reader.child import Child, Died, Hung, Slow
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
)
from discovery.reader.reader_children import ReaderChildren
from discovery.reader.reader_results import DiscoveryResult, ReaderHealth
from discovery.sample import GpuSample, ReadingGroup

FAILURES_IN_A_ROW = 4
"""So many children may fail one after the other at one request, none isolating a GPU."""

_REFUSALS: dict[str, type[Transient]] = {"absent": DriverAbsent, "mismatch": DriverMismatch}


class DeviceReader:
    """Reads all GPUs through disposable children; safe to call from several threads."""

    def __init__(
        self,
        start: Start,
        *,
        deadline_seconds: float = 5.0,
        init_seconds: float = 30.0,
        leaves_slow_gpus: bool = False,
        age_seconds: float = math.inf,
        known_gpus: KnownGpus | None = None,
        on_news: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``init_seconds``: for first answers to a child, see :mod:`discovery.reader.deadlines`.

        ``leaves_slow_gpus``: the others are read while a GPU takes long for its first answer, and
        it is in the results, ``initialising``, until it has come; else all results wait for it.
        ``age_seconds``: a child that has worked for so long is replaced by another one, as is one
        that takes more than ``start.limits``; the next one has answered before it ends.
        ``known_gpus``: what is known from a reader before this one, of the same machine.
        ``on_news`` is called, in any thread, when an event came, something hung or has answered.
        """
        self._clock = clock
        self._request_lock = threading.Lock()  # one request at a time
        self._children = ReaderChildren(
            start,
            deadline_seconds=deadline_seconds,
            init_seconds=init_seconds,
            leaves_slow_gpus=leaves_slow_gpus,
            age_seconds=age_seconds,
            on_news=on_news,
            clock=clock,
        )
        self._known_gpus = KnownGpus() if known_gpus is None else known_gpus
        self._groups: tuple[ReadingGroup, ...] = ()  # of the last sample; a probe reads them too
        self._requests = 0

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
        awaited = self._children.skipped(Discover)
        with self._children.state:
            now = self._clock()
            counts = self._known_gpus.expect(head.listed, head.elsewhere, now, head.counts)
            gpus = self._known_gpus.described(head.listed, read, self._children.quarantine, awaited)
            settling = self._known_gpus.settling(now)
            awaits = self._known_gpus.awaits_record
            driver = self._known_gpus.driver(head.driver)
        return DiscoveryResult(
            driver=driver, gpus=gpus, counts=counts, settling=settling, awaits_record=awaits
        )

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
        return self._children.events()

    def probe(self) -> Iterator[str]:
        """Try the quarantined GPUs that are due; the bus id of each that answers, at once.

        They are tried side by side, since each may have to be initialised again. A GPU on which a
        child is still stuck is not tried: a second one would hang as well.
        """
        probes = (
            functools.partial(self._answers_again, bus_id) for bus_id in self._children.due_probes()
        )
        yield from (bus_id for bus_id in concurrently(probes, "probe") if bus_id is not None)

    def release(self, within_seconds: float = 4.0) -> bool:
        """Close every NVML handle and start no child until :meth:`resume`; True when all ended.

        Asks first, then SIGTERM, then SIGKILL: a handle left open blocks somebody's
        driver upgrade.
        """
        return self._children.release(within_seconds)

    def resume(self) -> None:
        """Allow children again after :meth:`release`; not after :meth:`close`."""
        self._children.resume()

    def close(self) -> None:
        """End for good within 1.5 s; a child that even SIGKILL does not end is left behind."""
        self._children.close()

    def health(self) -> ReaderHealth:
        """How the reader fares now."""
        return self._children.health()

    # asking

    def answers(self, message: Request) -> Iterator[Answer]:
        """Frames of one request; after a hang or a death, those of the next child's answer too.

        ``message`` gets a number of its own each time it is sent. Raises as :meth:`discover`.
        """
        with self._request_lock:
            self._children.remember(self._known_gpus.take_hung_before())
            attempts_left = FAILURES_IN_A_ROW
            while attempts_left:
                child = self._children.working(type(message))
                self._requests += 1
                numbered = msgspec.structs.replace(message, request=self._requests)
                try:
                    yield from self._accepted(child, numbered)
                except Slow:
                    continue  # no failure: another child reads the other GPUs
                except Hung as hung:
                    self._children.abandon(child, hung)
                except Died as died:
                    self._children.bury(child, died)
                else:
                    return
                # with one more GPU set aside the next child gets further: no failure in a row
                isolated = not set(self._children.quarantine.bus_ids) <= set(child.skips)
                attempts_left = FAILURES_IN_A_ROW if isolated else attempts_left - 1
            raise ReaderGone(f"the device reader ended {FAILURES_IN_A_ROW} times in a row")

    def _accepted(self, child: Child, message: Request) -> Iterator[Answer]:
        """Raises Slow where the child is left to the GPU that it waits for."""
        answers = child.ask(message, self._children.patience)
        while True:
            try:
                for answer in answers:
                    self._accept(answer)
                    yield answer
            except Slow as slow:
                if self._is_left_to(child, slow.bus_id):
                    raise
                answers = child.go_on(self._children.deadlines.remaining_seconds)
            else:
                self._children.has_answered(child, message)
                return

    def _accept(self, answer: Answer) -> None:
        if isinstance(answer, RequestRefused):
            self._children.retire()  # a new child loads the library anew: no failure is latched
            self._known_gpus.driver_gone()
            raise _REFUSALS.get(answer.kind, Transient)(answer.text)
        if isinstance(answer, GpuFrame):
            self._children.gpu_answered(answer.gpu)

    # one GPU alone

    def _is_left_to(self, child: Child, bus_id: str) -> bool:
        """Have a thread wait for the answer of this GPU; False where there is none for it."""
        self._children.leave_to(child, bus_id)
        wait = functools.partial(self._wait_for, child, bus_id)
        try:
            threads.started(wait, "first answer")
        except threads.NoThread:
            self._children.take_back(child, bus_id)
            return False
        return True

    def _wait_for(self, child: Child, bus_id: str) -> None:
        """Wait for what is left of the child's answer, in a thread of its own."""
        holder = None
        try:
            for answer in child.last_answers(self._children.deadlines.remaining_seconds):
                if isinstance(answer, RequestRefused):
                    self._children.leave(child)
                    return
            holder = child
        except Hung as hung:
            self._children.abandon(child, hung)
        except Died as died:
            self._children.bury(child, died)
        finally:
            self._children.end_wait(bus_id, holder)

    def _answers_again(self, bus_id: str) -> str | None:
        """Read one quarantined GPU in a child of its own; its bus id if it answers every call."""
        holder = None
        try:
            child = self._children.start_probe(bus_id)
            holder = child if self._answers_in(child, bus_id) else None
        except Transient:
            pass  # its next turn may have more luck
        finally:
            self._children.end_wait(bus_id, holder)
        return None if holder is None else bus_id

    def _answers_in(self, child: Child, bus_id: str) -> bool:
        patience = self._children.deadlines.remaining_seconds
        try:
            answers = list(child.ask(Discover(request=0), patience))
            answers += child.ask(Sample(request=1, groups=self._groups), patience)
        except (Hung, Died) as failed:
            self._children.terminate(child, failed.call)
            self._children.probe_failed(bus_id)
            return False
        if any(isinstance(answer, GpuFrame) for answer in answers):
            self._children.probe_answered(bus_id)
            return True
        self._children.leave(child)
        return False
