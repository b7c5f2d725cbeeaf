# SPDX-License-Identifier: Apache-2.0
"""Records about the GPUs of one machine, apart from the settings with which it is read."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from agent.gpu_errors.error_log import ErrorLog
from agent.gpu_errors.sxid_book import SxidBook
from agent.gpu_errors.xid_book import XidBook
from agent.gpu_errors.xid_merge import XidMerge
from discovery.known_node_gpus import KnownGpus
from exporters.dcgm.windows import Windows
from exporters.gpuscape.waste import WasteRecord


@dataclass(slots=True)
class GpuRecords:
    """Places and identities, errors and times of a machine's GPUs; they outlive the settings."""

    known_gpus: KnownGpus = field(default_factory=KnownGpus)
    xids: XidBook = field(default_factory=XidBook)
    xid_merge: XidMerge = field(default_factory=XidMerge)
    sxids: SxidBook = field(default_factory=SxidBook)
    error_log: ErrorLog = field(default_factory=ErrorLog)
    waste: WasteRecord = field(default_factory=WasteRecord)
    restored: bool = False
    """Set once the records of another process have been taken over, if there were any."""
    writing: threading.Lock = field(default_factory=threading.Lock)
    """Held by who writes them to a file."""
    _windows: Windows | None = None

    def windows(self, xid_seconds: float, clock_event_seconds: float) -> Windows:
        """Counts within windows of these lengths: those kept so far, unless a length is new."""
        lengths = (xid_seconds, clock_event_seconds)
        if self._windows is None or self._windows.lengths != lengths:
            self._windows = Windows(*lengths, counted=self.xids.record.xids)
        return self._windows
