# SPDX-License-Identifier: Apache-2.0
"""The process that calls simulated NVML: what a fault does to it, and who it is as a client."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Protocol

from simulator.driver import clients
from simulator.state.machine_state import NvmlClient

CRASH_STATUS = 70
"""EX_SOFTWARE: exit status of a process that a fault ends by exit."""


class CallingProcess(Protocol):
    """The process that calls NVML: this one, or another one that is served."""

    @property
    def client(self) -> NvmlClient:
        """Identity of the process."""

    def has_gone(self) -> bool:
        """Nobody waits for the call's answer any more."""

    def deaf_to_sigterm(self) -> AbstractContextManager[None]:
        """It ignores SIGTERM within."""

    def crash(self, ending: str, prints: str) -> None:
        """It writes ``prints`` to its standard error and ends: by ``exit``, else by a signal."""

    def leak(self, memory_bytes: int, descriptors: int) -> None:
        """It has so much memory and so many descriptors more, for as long as it lives."""


class ThisProcess:
    """This process is the caller."""

    def __init__(self) -> None:
        self.client = clients.this_process()
        self._leaked_memory: list[bytes] = []
        self._leaked_descriptors: list[int] = []

    def has_gone(self) -> bool:
        """Never: the call would have gone with it."""
        return False

    @contextmanager
    def deaf_to_sigterm(self) -> Iterator[None]:
        """Ignore SIGTERM in the whole process, from whichever thread.

        By libc, because Python changes signal handlers in the main thread only.
        """
        libc = ctypes.CDLL(None)
        libc.signal.restype = ctypes.c_void_p
        libc.signal.argtypes = (ctypes.c_int, ctypes.c_void_p)
        before = libc.signal(signal.SIGTERM, int(signal.SIG_IGN))
        try:
            yield
        finally:
            libc.signal(signal.SIGTERM, before)

    def crash(self, ending: str, prints: str) -> None:
        """End at once; what standard error does not take is lost, as in C."""
        _print(prints.encode())
        if ending == "exit":
            os._exit(CRASH_STATUS)
        os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)  # the signal is on its way

    def leak(self, memory_bytes: int, descriptors: int) -> None:
        """Memory that is written to, since the kernel gives no other."""
        self._leaked_memory.append(b"\1" * memory_bytes)
        self._leaked_descriptors += [os.open(os.devnull, os.O_RDONLY) for _ in range(descriptors)]


def _print(data: bytes) -> None:
    with suppress(OSError):
        while data:
            data = data[os.write(2, data) :]
