# SPDX-License-Identifier: Apache-2.0
"""The reader of one machine: its device reader and its kernel log, whatever else is set.

It stays while the settings name the same machine, so that reading settings again starts no reader,
loses no event and forgets no GPU that hangs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from msgspec.structs import replace

from agent.gpu_errors.kernel_log import PATH as KERNEL_LOG
from agent.gpu_errors.kernel_log import KernelLog
from agent.gpu_records import GpuRecords
from agent.process_control import ProcessControl
from agent.settings.agent_settings import AgentSettings
from agent.settings.machine_from_settings import start_of
from discovery.reader.device_reader import DeviceReader
from discovery.reader.protocol import ReaderLimits


class MachineReader:
    """The device reader and the kernel log of the machine that the settings name."""

    def __init__(
        self, settings: AgentSettings, records: GpuRecords, control: ProcessControl
    ) -> None:
        """Raises BadInput as :func:`start_of`; nothing is read yet."""
        self._settings = settings
        self.records = records
        self._on_news: Callable[[], None] = _nothing
        self._kernel_log: KernelLog | None = None
        with contextlib.ExitStack() as undo:
            self.start = undo.enter_context(start_of(settings))
            self.reader = DeviceReader(
                replace(self.start, limits=_limits(settings)),
                deadline_seconds=settings.deadline_seconds,
                init_seconds=settings.init_deadline_seconds,
                leaves_slow_gpus=True,
                age_seconds=settings.reader_age_seconds,
                known_gpus=records.known_gpus,
                on_news=lambda: self._on_news(),
            )
            undo.enter_context(control.closed_first(self.reader.close))
            self._ending = undo.pop_all()

    def serves(self, settings: AgentSettings) -> bool:
        """Whether it reads what these settings name."""
        if _named(settings) != _named(self._settings):
            return False
        if settings.simulate is not None:
            return True
        with start_of(settings) as start:  # the library may be elsewhere now
            return start == self.start

    def report_news(self, on_news: Callable[[], None]) -> None:
        """Call this from now on, in any thread, when an event came or something hung."""
        self._on_news = on_news

    def kernel_log(self, settings: AgentSettings) -> KernelLog | None:
        """The kernel log where the settings ask for it, read on from where it was."""
        if not settings.kernel_log:
            self._close_kernel_log()
        elif self._kernel_log is None:
            self._kernel_log = KernelLog(settings.host_root / KERNEL_LOG)
        return self._kernel_log

    def close(self) -> None:
        """End the device reader and whatever was made for it."""
        self._close_kernel_log()
        self._ending.close()

    def _close_kernel_log(self) -> None:
        if self._kernel_log is not None:
            self._kernel_log.close()
            self._kernel_log = None


def _named(settings: AgentSettings) -> tuple[object, ...]:
    deadlines = settings.deadline_seconds, settings.init_deadline_seconds
    limits = _limits(settings), settings.reader_age_seconds
    return settings.simulate, settings.host_root, settings.library, deadlines, limits


def _limits(settings: AgentSettings) -> ReaderLimits:
    return ReaderLimits(
        memory_bytes=(settings.reader_memory_mebibytes << 20) or None,
        descriptors=settings.reader_descriptors or None,
    )


def _nothing() -> None:
    pass
