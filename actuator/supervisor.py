# SPDX-License-Identifier: Apache-2.0
"""Runs one change of MIG layouts, or a self-test, in a worker process: a driver that hangs does not
hang the caller.

A worker that dies, or is killed at its deadline, leaves a journal that says how to go on; the next
worker does, whatever it was started for.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final
from uuid import uuid4

import msgspec

from actuator.change import ChangeResult
from actuator.journal import abandon_lock
from actuator.selftest import OfferedNow, SelftestEvent, TriedLayout
from actuator.worker_messages import (
    COLLECT_SECONDS,
    MOST_MESSAGE_BYTES,
    Calling,
    Failed,
    Logged,
    Order,
    WorkerMessage,
    raised,
)
from base.errors import Transient
from base.process.orphans import OwnProcess
from discovery.reader.standard_error import StandardError, exit_text

log = logging.getLogger(__name__)

PROGRAM = Path(__file__).parents[1] / "gpuscape" / "mig_worker.py"
"""Script that the process runs, by its path: an isolated Python may not find gpuscape."""

_GO_ON: Final = "the journal has what it was doing; gpuscape mig restore goes on from there"

_MESSAGES: Final[msgspec.json.Decoder[WorkerMessage]] = msgspec.json.Decoder(WorkerMessage)


class WorkerDied(Transient):
    """The worker ended without a result; what it did is in the journal and on the GPUs."""


class WorkerHung(Transient):
    """The worker did not end within its deadline and was killed."""

    def __init__(self, why: str, bus_id: str = "") -> None:
        """``bus_id``: of the GPU for which it was calling the driver; empty where for none."""
        super().__init__(why)
        self.bus_id = bus_id


def run_change(order: Order) -> ChangeResult:
    """Carry out the order's change, after ending those that are open; without one only that.

    The deadline is for each GPU: it begins anew when the worker turns to another one. A worker that
    misses it is killed. If it was calling the driver for a GPU, another one goes on without that
    GPU, whose change is stuck. The worker's log lines come
    through this process's loggers of the same names. Raises WorkerHung and WorkerDied; what the
    worker raises, under the same name: JournalBusy, JournalUnusable, StepFailed, DriverAbsent,
    DriverMismatch, BadInput, Transient; and Transient where no process can be started. An interrupt
    leaves the worker to end by itself.
    """
    if order.request is not None and not order.request.change:  # two workers carry out one change
        request = msgspec.structs.replace(order.request, change=str(uuid4()))
        order = msgspec.structs.replace(order, request=request)
    while True:
        try:
            with contextlib.closing(_Worker(order)) as worker:
                return worker.result()
        except WorkerHung as error:
            if not error.bus_id or error.bus_id in order.hung:
                raise
            log.warning("MIG GPU hangs", extra={"bus_id": error.bus_id, "why": str(error)})
            order = msgspec.structs.replace(order, hung=(*order.hung, error.bus_id))


def run_selftest(order: Order, on_result: Callable[[SelftestEvent], None]) -> ChangeResult:
    """Carry out the order's self-test; ``on_result`` gets each result as it comes.

    Raises as :func:`run_change`; in the middle of the test the journal then has a change that goes
    back.
    """
    with contextlib.closing(_Worker(order)) as worker:
        return worker.result(on_result)


class _Worker:
    """A worker process, until it is closed."""

    def __init__(self, order: Order) -> None:
        """Raises Transient if the process cannot be started."""
        self._error = StandardError()
        self._order = order
        self._bus_id = ""
        """GPU for which the worker calls the driver."""
        self._deadline = 0.0
        self._output, writes_to = os.pipe()
        try:
            with tempfile.TemporaryFile() as orders:  # a pipe could make us wait for the worker
                orders.write(msgspec.json.encode(order))
                orders.seek(0)
                self._process = OwnProcess(
                    [sys.executable, "-I", PROGRAM],
                    stdin=orders,
                    stdout=writes_to,
                    stderr=self._error.writer,
                    env={},
                    close_fds=True,
                    pass_fds=() if order.selftest is None else (order.selftest.until,),
                    start_new_session=True,  # Ctrl-C is for the caller
                )
        except OSError as error:
            self.close()
            why = error.strerror or error
            raise Transient(f"no process for the MIG change can be started: {why}") from error
        finally:
            os.close(writes_to)
            self._error.writer.close()

    def close(self) -> None:
        """Stop reading from the process."""
        os.close(self._output)
        self._error.close()

    def result(
        self, on_result: Callable[[SelftestEvent], None] = lambda _event: None
    ) -> ChangeResult:
        """The result; until then, pass on log lines and tried layouts.

        Raises WorkerHung, WorkerDied and what the worker raised.
        """
        self._deadline = time.monotonic() + self._order.deadline_seconds
        for line in self._lines():
            try:
                message = _MESSAGES.decode(line)
            except msgspec.DecodeError as error:
                self._collect(0)
                raise WorkerDied(f"the MIG worker sent nonsense: {error}; {_GO_ON}") from error
            match message:
                case Logged():
                    _log(message)
                case Calling():
                    self._bus_id = message.bus_id
                    self._deadline = time.monotonic() + self._order.deadline_seconds
                case TriedLayout() | OfferedNow():
                    on_result(message)
                case _:
                    self._collect(COLLECT_SECONDS)  # what it gives back at its end may hang as well
                    if isinstance(message, Failed):
                        raise raised(message)
                    return message
        self._collect(max(self._deadline - time.monotonic(), COLLECT_SECONDS))
        status = self._process.returncode
        how = "it does not end" if status is None else exit_text(status)
        raise WorkerDied(f"the MIG worker gave no result: {how}{self._printed()}; {_GO_ON}")

    def _lines(self) -> Iterator[bytes]:
        """The worker's output, line by line, until it closes it. Raises WorkerHung."""
        kept = b""
        with selectors.DefaultSelector() as ready:
            ready.register(self._output, selectors.EVENT_READ)
            ready.register(self._error, selectors.EVENT_READ)
            while (remaining_seconds := self._deadline - time.monotonic()) > 0:
                for key, _ in ready.select(remaining_seconds):
                    if key.fileobj is self._error:
                        if not self._error.read():
                            ready.unregister(self._error)
                        continue
                    data = os.read(self._output, 1 << 16)
                    if not data or len(kept) > MOST_MESSAGE_BYTES:
                        return
                    *lines, kept = (kept + data).split(b"\n")
                    yield from lines
        self._collect(0)
        gone = ""
        if self._process.returncode is None:
            gone = f"; process {self._process.pid} hangs in the driver and cannot be ended"
            abandon_lock(Path(self._order.journal))
        why = f"the MIG worker did not end in time and was killed{gone}; {_GO_ON}"
        raise WorkerHung(why, self._bus_id)

    def _collect(self, seconds: float) -> None:
        """Wait for the process to end, then kill it; one that hangs in the kernel is left alone."""
        for patience in (seconds, COLLECT_SECONDS):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(patience)
                return
            self._process.kill()

    def _printed(self) -> str:
        """The last lines of the worker's standard error, for a message."""
        self._error.read()
        lines = self._error.last_lines
        return f"; it printed: {lines}" if lines else ""


def _log(line: Logged) -> None:
    logger = logging.getLogger(line.logger)
    if logger.isEnabledFor(line.level):
        logger.handle(
            logger.makeRecord(
                line.logger, line.level, "", 0, line.message, (), None, extra=dict(line.facts)
            )
        )
