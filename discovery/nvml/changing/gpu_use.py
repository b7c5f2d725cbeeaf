# SPDX-License-Identifier: Apache-2.0
"""Who is on a GPU now, as far as the driver lists it."""

from __future__ import annotations

from discovery.driver_errors import MigUnread
from discovery.nvml.calls import Calls
from discovery.nvml.mig_gpu import gpu_processes
from discovery.nvml.session import open_gpu
from discovery.sample import Process


def programs_now(bus_id: str) -> tuple[Process, ...]:
    """The programs on the GPU at this bus id, as of :attr:`discovery.mig_state.MigGpu.processes`.

    Raises MigUnread where they cannot be listed, and GpuLost, DriverAbsent or DriverMismatch when
    the GPU is gone, or the whole session is.
    """
    handle, gap = open_gpu(bus_id)
    calls = Calls()
    processes = () if gap is not None else gpu_processes(calls, bus_id, handle)
    if gap is not None or calls.gaps:
        why = gap or calls.gaps[0]
        raise MigUnread(f"GPU {bus_id}: its programs are not known: {why.source}: {why.detail}")
    return processes
