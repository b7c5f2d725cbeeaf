# SPDX-License-Identifier: Apache-2.0
"""The deadline of a change is for each GPU: supervisor and worker renew it with the next GPU."""

from __future__ import annotations

import io
import logging
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from actuator import supervisor, worker
from actuator.change import ChangeResult
from actuator.supervisor import WorkerHung, run_change
from actuator.worker_messages import Calling, Logged, Order, WorkerMessage
from api.mig_outcome import Outcome
from discovery.reader.protocol import Start

SECONDS = 60.0
APPLIED = ChangeResult(outcome=Outcome.APPLIED)
WORK = Logged(logger="tests.work", level=logging.INFO, message="work", facts={})
BUS_IDS = ("0000:10:00.0", "0000:11:00.0")


@pytest.fixture
def order(tmp_path: Path) -> Order:
    start = Start(host_root=str(tmp_path))
    return Order(start=start, journal=str(tmp_path / "journal"), deadline_seconds=SECONDS)


def write_worker(monkeypatch: pytest.MonkeyPatch, folder: Path, *messages: WorkerMessage) -> None:
    """Put a program in the worker's place that sends these messages, one after the other.

    Each log line of its work takes two thirds of the deadline on the supervisor's clock.
    """
    lines = [msgspec.json.encode(message).decode() for message in messages]
    program = folder / "worker.py"
    program.write_text(
        f"import time\nfor line in {lines!r}:\n    print(line, flush=True)\n    time.sleep(0.3)\n"
    )
    monkeypatch.setattr(supervisor, "PROGRAM", program)
    now = [1000.0]

    class Clock(logging.Handler):
        def emit(self, _record: logging.LogRecord) -> None:
            now[0] += SECONDS * 2 / 3

    logger = logging.getLogger(WORK.logger)
    monkeypatch.setattr(logger, "handlers", [Clock()])
    monkeypatch.setattr(logger, "level", logging.INFO)
    monkeypatch.setattr(supervisor, "time", SimpleNamespace(monotonic=lambda: now[0]))


def test_the_supervisor_gives_each_gpu_the_whole_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, order: Order
) -> None:
    """Two GPUs together take longer than the deadline, and each of them does not."""
    calls = [Calling(bus_id=bus_id) for bus_id in BUS_IDS]
    write_worker(monkeypatch, tmp_path, calls[0], WORK, calls[1], WORK, APPLIED)

    assert run_change(order) == APPLIED


def test_the_supervisor_gives_one_gpu_no_more_than_that(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, order: Order
) -> None:
    """Else a driver that answers slowly for ever would keep the change going for ever."""
    write_worker(monkeypatch, tmp_path, Calling(bus_id=BUS_IDS[0]), WORK, WORK, WORK, APPLIED)
    order = msgspec.structs.replace(order, hung=(BUS_IDS[0],))

    with pytest.raises(WorkerHung, match="did not end in time") as hung:
        run_change(order)

    assert hung.value.bus_id == BUS_IDS[0]


def test_the_alarm_of_the_worker_begins_anew_with_the_next_gpu(
    monkeypatch: pytest.MonkeyPatch, order: Order
) -> None:
    """The alarm ends a worker without a supervisor, and no worker that turned to another GPU."""
    remaining: list[float] = []

    def remaining_seconds() -> float:
        return signal.getitimer(signal.ITIMER_REAL)[0]

    def carry_out(_order: Order, on_call: Callable[[str], None]) -> ChangeResult:
        for bus_id in BUS_IDS:
            time.sleep(0.01)
            remaining.append(remaining_seconds())
            on_call(bus_id)
            remaining.append(remaining_seconds())
        return APPLIED

    task = io.TextIOWrapper(io.BytesIO(msgspec.json.encode(order)))
    monkeypatch.setattr(sys, "stdin", task)
    monkeypatch.setattr(worker, "carry_out", carry_out)
    monkeypatch.setattr(worker, "os", SimpleNamespace(dup=lambda _: 1, dup2=lambda *_: None))
    sent: list[WorkerMessage] = []
    monkeypatch.setattr(worker.MessageWriter, "send", lambda _, message: sent.append(message))
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", root.handlers[:])
    level, handler = root.level, signal.getsignal(signal.SIGALRM)
    try:
        worker.main()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        root.setLevel(level)

    assert sent == [*(Calling(bus_id=bus_id) for bus_id in BUS_IDS), APPLIED]
    first, renewed, second, again = remaining
    assert first < renewed
    assert second < again
