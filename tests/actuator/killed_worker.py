# SPDX-License-Identifier: Apache-2.0
"""Workers that are killed before or after one of their effects: real processes, forked from one
that has everything imported."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Final

import pynvml

import actuator.journal
import actuator.nvml_world
import actuator.smi_reset
from actuator.change import ChangeResult
from actuator.worker import carry_out
from actuator.worker_messages import Order

CALLS: Final = (
    "nvmlDeviceSetMigMode",
    "nvmlDeviceCreateGpuInstanceWithPlacement",
    "nvmlGpuInstanceCreateComputeInstanceWithPlacement",
    "nvmlGpuInstanceDestroy",
    "nvmlComputeInstanceDestroy",
)
"""What changes a GPU."""
FILES: Final = ("fsync", "replace", "unlink")
"""What changes the journal, with ``open`` for a new file."""

_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload([__name__, "simulator.simulation"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """How one worker fared."""

    killed: bool
    result: ChangeResult | None
    """None for one that was killed."""
    effects: tuple[str, ...]
    """Names of the calls, in their order; of one that was killed none."""


def run(order: Order, moment: int | None = None) -> Run:
    """Carry out an order in a process that is killed at a moment: 2n is before effect n, 2n + 1
    after it."""
    ours, theirs = _forks.Pipe(duplex=False)
    process = _forks.Process(target=_carry_out, args=(order, moment, theirs))
    process.start()
    theirs.close()
    try:
        result, effects = ours.recv()
    except EOFError:
        result, effects = None, ()
    process.join()
    killed = process.exitcode == -signal.SIGKILL
    if not killed and (process.exitcode or result is None):
        raise AssertionError(f"the worker ended with {process.exitcode}")
    ours.close()
    process.close()
    return Run(killed=killed, result=result, effects=effects)


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Effects:
    """Counts calls, and kills this process at one of them."""

    def __init__(self, moment: int | None, kill: Callable[[], None] = _kill) -> None:
        self.names: list[str] = []
        self._moment = moment
        self._kill = kill

    def counted(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*args: Any, **more: Any) -> Any:
            number = len(self.names)
            self.names.append(name)
            self._kill_at(2 * number)
            try:
                return call(*args, **more)
            finally:  # also after one that fails, as a look for a file that is not there
                self._kill_at(2 * number + 1)

        return counting

    def _kill_at(self, moment: int) -> None:
        if moment == self._moment:
            self._kill()


class JournalOs:
    """The module os, for the journal alone."""

    def __init__(self, effects: Effects) -> None:
        for name in FILES:
            setattr(self, name, effects.counted(name, getattr(os, name)))
        self._open_to_write = effects.counted("open", os.open)

    def open(self, name: str, flags: int, *more: Any, **where: Any) -> int:
        """Counted where it makes a file, and not where it reads one."""
        call = self._open_to_write if flags & os.O_CREAT else os.open
        return int(call(name, flags, *more, **where))

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)


def _carry_out(order: Order, moment: int | None, results: Connection) -> None:
    effects = Effects(moment)
    for name in CALLS:
        setattr(pynvml, name, effects.counted(name, getattr(pynvml, name)))
    vars(actuator.smi_reset)["smi_answer"] = effects.counted(
        "smi_answer", actuator.smi_reset.smi_answer
    )
    vars(actuator.journal)["os"] = JournalOs(effects)
    vars(actuator.nvml_world)["openers"] = lambda *_, **__: {}  # a look at all of /proc
    results.send((carry_out(order), tuple(effects.names)))
