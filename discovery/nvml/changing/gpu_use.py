# SPDX-License-Identifier: Apache-2.0
"""Who is on a GPU now, and which of the machine's device files is its own."""

from __future__ import annotations

from dataclasses import dataclass

from discovery.driver_errors import MigUnread
from discovery.nvml.calls import Calls
from discovery.nvml.conversions import whole
from discovery.nvml.mig_gpu import gpu_processes
from discovery.nvml.session import open_gpu
from discovery.sample import Process


@dataclass(frozen=True, slots=True, kw_only=True)
class UseNow:
    """The use of one GPU at one moment."""

    processes: tuple[Process, ...]
    """As of :attr:`discovery.mig_state.MigGpu.processes`."""
    minor: int | None
    """Of its device file ``/dev/nvidiaN``; None where the driver gives none."""


def read_gpu_use(bus_id: str) -> UseNow:
    """The use of the GPU at this bus id.

    Raises MigUnread where its programs cannot be listed, and GpuLost, DriverAbsent or
    DriverMismatch when it is gone, or the whole session is.
    """
    handle, gap = open_gpu(bus_id)
    calls = Calls()
    processes = () if gap is not None else gpu_processes(calls, bus_id, handle)
    if gap is not None or calls.gaps:
        why = gap or calls.gaps[0]
        raise MigUnread(f"GPU {bus_id}: its programs are not known: {why.source}: {why.detail}")
    minor = Calls().ask("minor", "nvmlDeviceGetMinorNumber", handle, convert=whole(0xFFFF))
    return UseNow(processes=processes, minor=minor)
