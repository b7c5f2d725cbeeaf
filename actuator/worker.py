# SPDX-License-Identifier: Apache-2.0
"""The worker: one process that carries out one change of MIG layouts, or a self-test, with an NVML
session of its own, and ends.

A change that an earlier worker left open is ended first; a self-test refuses to begin then. A
change ignores what becomes of the process that started it: left in the middle it helps nobody, and
its own time is bounded. A self-test goes back then.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from actuator.boots.boot_wait import going_back, is_for_boot, mode_waits, seconds_to_wait
from actuator.boots.reboot_sentinel import REBOOT_FOLDER, RebootSentinel
from actuator.change import ChangeResult, apply, drive, give_up, result_of, resume
from actuator.change_record import ChangeRecord
from actuator.journal import Journal
from actuator.journal_owner import refuse_owned
from actuator.mig_world import StepFailed
from actuator.nvml_world import NvmlWorld
from actuator.restore import restore_layouts
from actuator.selftest import SelftestEdge, SelftestEvent, selftest
from actuator.worker_messages import (
    COLLECT_SECONDS,
    Calling,
    Failed,
    Logged,
    Order,
    SelftestRequest,
    WorkerMessage,
    by_part,
)
from api.mig_outcome import Outcome
from base.errors import GpuscapeError
from base.log import extra_facts
from discovery.host.driver_load import boot_id
from discovery.mig_state import whole_devices
from discovery.reader.protocol import Start
from kubelet.device_access.instance_access import open_access
from mig.mode_permission import ModePermission
from simulator.library_choice import choose_library

MOST_FACT_CHARACTERS: Final = 1000
"""Length of a fact in a log line at most, so that a line is short enough to be written at once."""


def carry_out(order: Order, on_call: Callable[[str], None] = lambda _bus_id: None) -> ChangeResult:
    """End the open changes, then carry out the request; without one, restore lost layouts.

    A stuck change is tried again only without another request: it waits for a person, and blocks
    only its own GPU. GPUs are given up before the first call of the driver, which may hang for
    them. A request that the journal has is not carried out again: it goes on, or its result is the
    same. ``on_call`` as in :class:`NvmlWorld`. Raises as :func:`actuator.change.apply`, and
    DriverAbsent, DriverMismatch or Transient where NVML cannot be initialised.
    """
    with _journal(order) as journal:
        _before_driver(order, journal)
        choose_library(order.start)
        start = _without_hung(order, journal)
        with NvmlWorld(start, by_part(order.users), on_call, order.pod_uid) as world:
            result = _with_boot(world, journal, order, _ended(world, journal, order))
            if result.refusal is not None:
                return result
            problems = _open_access(world, start)
            return msgspec.structs.replace(result, problems=problems)


def _before_driver(order: Order, journal: Journal) -> None:
    """Give GPUs up, and have no file ask for a boot that nobody waits for: the driver may hang.

    Where no boot may be asked for any more, the file of one that was is in its usual folder. After
    the boot the driver may come late, and a file in a folder that outlives boots asks for another.
    """
    waited = any(map(is_for_boot, journal.content().unended))
    if order.give_up:
        give_up(journal, order.give_up)
    if order.sentinel is None and waited:
        folder = Path(order.start.host_root, REBOOT_FOLDER.relative_to("/"))
        RebootSentinel(folder=str(folder), seconds=0.0).remove()
    elif order.sentinel and not _waiting(journal, boot_id(Path(order.start.host_root))):
        order.sentinel.remove()


def _waiting(journal: Journal, boot: str) -> list[ChangeRecord]:
    """Entries that wait since this boot for the next one."""
    unended = journal.content().unended
    return [record for record in unended if is_for_boot(record) and record.boot_asked == boot]


def _without_hung(order: Order, journal: Journal) -> Start:
    """What may be read: no GPU that hung, except that a restore tries those of earlier workers."""
    hung = set(order.hung)
    if order.request is not None:
        hung |= {record.bus_id for record in journal.content().unended if record.hung}
    return msgspec.structs.replace(order.start, skip=(*order.start.skip, *sorted(hung)))


def _ended(world: NvmlWorld, journal: Journal, order: Order) -> ChangeResult:
    """End the changes that are open, and the request's."""
    request = order.request
    change = order.change if request is None else request.change
    has_begun = bool(change and journal.content().of(change))
    ended = resume(
        world,
        journal,
        change=change,
        desired=() if request is None else request.desired.keys(),
        is_restore=request is None,
        hung=order.hung,
        sentinel=order.sentinel,
    )
    if request is None:
        return _without_request(world, journal, ended)
    if has_begun and ended is not None:
        return ended
    return apply(
        world,
        journal,
        request.desired,
        origin=request.origin,
        change=request.change,
        strategy=request.strategy,
        as_is=request.as_is,
        modes=ModePermission(by=request.mode_change, fallback=request.fallback),
        sentinel=order.sentinel,
    )


def _with_boot(
    world: NvmlWorld, journal: Journal, order: Order, result: ChangeResult
) -> ChangeResult:
    """Have the file that asks for a boot there if and only if a change waits for one.

    It is written once nothing but the boot is missing to the changes of all GPUs. Where that is not
    possible, those that wait go back.
    """
    sentinel, waiting = order.sentinel, _waiting(journal, world.boot())
    # an entry may be left that has ended, where the journal could not be written
    waiting = [record for record in waiting if mode_waits(world, record)]
    if sentinel is None:
        return result
    if not waiting:
        sentinel.remove()
        return result
    changes = sorted({record.change for record in waiting})
    if why := sentinel.write(f"gpuscape: a MIG mode waits for a boot, change {', '.join(changes)}"):
        sentinel.remove()  # on a full disk it is there, empty
        for record in waiting:
            drive(world, journal, going_back(record, why))
        request = order.request
        change = order.change if request is None else request.change
        if change and change not in changes:
            return result  # another change has gone back
        desired = () if request is None else request.desired.keys()
        return result_of(journal.content().of(change or changes[-1]), desired)
    seconds = seconds_to_wait(world, waiting, sentinel)
    return msgspec.structs.replace(result, boot_seconds=seconds)


def try_layouts(
    order: Order, request: SelftestRequest, report: Callable[[SelftestEvent], None]
) -> ChangeResult:
    """Test a GPU; an open change is left as it is. Raises as :func:`carry_out`."""
    choose_library(order.start)
    deadline = time.monotonic() + request.seconds

    def is_over() -> bool:
        stop_requested = bool(select.select([request.until], [], [], 0)[0])
        return stop_requested or time.monotonic() > deadline

    edge = SelftestEdge(report, is_over, time.monotonic)
    with _journal(order) as journal, NvmlWorld(order.start, by_part(order.users)) as world:
        result = selftest(world, journal, request.gpu, edge)
        if not result.has_begun:
            return result
        problems = (*result.problems, *_open_access(world, order.start))
        return msgspec.structs.replace(result, problems=problems)


@contextmanager
def _journal(order: Order) -> Iterator[Journal]:
    """The journal, unless an actuator owns it that did not start this worker. Raises as Journal."""
    with Journal(Path(order.journal)) as journal:
        if not order.owner:
            refuse_owned(journal.path)
        yield journal


def _without_request(
    world: NvmlWorld, journal: Journal, ended: ChangeResult | None
) -> ChangeResult:
    """Restore the layouts that a load of the driver took, except on GPUs of stuck changes."""
    restored = restore_layouts(world, journal)
    if ended is not None:
        return msgspec.structs.replace(ended, restored=restored)
    missing = [f"GPU {lost.gpu}: {lost.why_not}" for lost in restored if lost.why_not]
    some_restored = len(missing) < len(restored)
    return ChangeResult(
        outcome=Outcome.APPLIED if some_restored else Outcome.UNCHANGED,
        reason="; ".join(missing) if restored else "no change is open",
        restored=restored,
    )


def _open_access(world: NvmlWorld, start: Start) -> tuple[str, ...]:
    """Make new instances accessible to programs; the problems that remain."""
    devices: Mapping[str, bool] | None = None
    with suppress(StepFailed):  # then names are not judged, and the nodes are made all the same
        gpus = world.observe()
        # else what is on a GPU that cannot be read would count as gone
        if not world.unread and not start.skip:
            devices = whole_devices(gpus)
    stand_ins = start.simulation is not None
    return open_access(Path(start.host_root), devices, stand_ins=stand_ins).problems


class MessageWriter(logging.Handler):
    """Writes messages to a pipe; log lines are dropped if the pipe is full."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(logging.INFO)
        self._descriptor = descriptor

    def emit(self, record: logging.LogRecord) -> None:
        """Send a log line, if that does not make the change wait."""
        facts = {name: _short(value) for name, value in extra_facts(record).items()}
        message, level = _short(record.getMessage()), record.levelno
        line = Logged(logger=record.name, level=level, message=message, facts=facts)
        _, writable, _ = select.select([], [self._descriptor], [], 0)
        if writable:
            self.send(line)

    def send(self, message: WorkerMessage) -> None:
        """Write it, as long as the other end is there."""
        data = msgspec.json.encode(message) + b"\n"
        with suppress(OSError):
            while data:
                data = data[os.write(self._descriptor, data) :]


def _short(value: object) -> str:
    return str(value)[:MOST_FACT_CHARACTERS]


def main() -> None:
    """Entry point of the process: the order is its standard input."""
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=Order)
    # the default action ends the process also while a call of the driver does not return
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    lifetime_seconds = order.deadline_seconds + COLLECT_SECONDS
    signal.setitimer(signal.ITIMER_REAL, lifetime_seconds)
    writer = MessageWriter(os.dup(1))

    def announce(bus_id: str) -> None:
        signal.setitimer(signal.ITIMER_REAL, lifetime_seconds)
        writer.send(Calling(bus_id=bus_id))

    os.dup2(2, 1)  # what a library prints is no message
    root = logging.getLogger()
    root.handlers[:] = [writer]
    root.setLevel(logging.INFO)
    try:
        if order.selftest is not None:
            result = try_layouts(order, order.selftest, writer.send)
        else:
            result = carry_out(order, announce)
        writer.send(result)
    except GpuscapeError as error:
        writer.send(Failed(kind=type(error).__name__, text=str(error)))
