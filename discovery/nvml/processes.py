# SPDX-License-Identifier: Apache-2.0
"""The processes on one GPU, and how busy each keeps it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import partial
from typing import Any

from discovery.model import Reason
from discovery.nvml.calls import Calls, Handle
from discovery.nvml.conversions import BYTES, divided, whole
from discovery.sample import Process, ProcessKind

_LISTS = {
    ProcessKind.COMPUTE: "nvmlDeviceGetComputeRunningProcesses_v3",
    ProcessKind.GRAPHICS: "nvmlDeviceGetGraphicsRunningProcesses_v3",
    ProcessKind.MPS: "nvmlDeviceGetMPSComputeRunningProcesses_v3",
}
_UTILIZATION = "nvmlDeviceGetProcessUtilization"
_WHAT = "processes"

_PID = whole((1 << 31) - 1)
_INSTANCE = whole(0xFFFF)
_WHOLE_GPU = 0xFFFFFFFF
"""Instance id of a process on no MIG device. Source: nvmlProcessInfo_t, nvml.h."""
_MICROSECONDS = whole(1 << 62)
_SHARE = divided(100, 100)


class Utilization:
    """How busy processes keep their GPUs, from one sample to the next.

    The driver keeps samples of its own for some time, so a question without the time of the
    newest one that was seen would be answered with what was long ago.
    """

    def __init__(self) -> None:
        self._newest: dict[str, int] = {}

    def keep(self, bus_ids: Collection[str]) -> None:
        """Forget all other GPUs."""
        self._newest = {
            bus_id: newest for bus_id, newest in self._newest.items() if bus_id in bus_ids
        }

    def busy(self, calls: Calls, bus_id: str, handle: Handle) -> tuple[dict[int, float], bool]:
        """Pid to share since the last time, and whether all others were idle.

        The first time there is nothing yet. Source: nvml.h: the driver lists those alone that
        did something in its last period, and NOT_FOUND means that it has no such period.
        """
        since = self._newest.get(bus_id)
        tried = Calls()
        rows = tried.ask(_WHAT, _UTILIZATION, handle, since or 0)
        calls.gaps += [gap for gap in tried.gaps if gap.reason is not Reason.ABSENT]
        if rows is None:
            if tried.gaps[0].reason is Reason.ABSENT:
                self._newest.setdefault(bus_id, 0)
            return {}, False
        shares = [calls.part(_WHAT, _UTILIZATION, _share, row) for row in rows]
        listed = sorted(row for row in shares if row is not None)
        if listed:
            self._newest[bus_id] = max(since or 0, listed[-1][0])
        if since is None:
            return {}, False
        return {pid: share for _, pid, share in listed}, len(listed) == len(shares)


def read_processes(
    calls: Calls, bus_id: str, handle: Handle, utilization: Utilization, *, mig: bool
) -> tuple[Process, ...]:
    """All processes the driver lists, by pid; one that does several kinds of work has several.

    The memory of such a process is the same in each. Shares are known without MIG only.
    """
    processes: dict[tuple[object, ...], Process] = {}
    for kind, call in _LISTS.items():
        for row in calls.ask(_WHAT, call, handle) or ():
            process = calls.part(_WHAT, call, partial(_process, calls, call, kind), row)
            if process is not None:
                ids = (process.gpu_instance_id, process.compute_instance_id)
                processes[process.pid, kind, *ids] = process
    if not processes or mig:
        return tuple(sorted(processes.values(), key=_order))
    busy, others_idle = utilization.busy(calls, bus_id, handle)
    rest = 0.0 if others_idle else None
    return tuple(
        replace(process, busy_ratio=busy.get(process.pid, rest)) if process.pid else process
        for process in sorted(processes.values(), key=_order)
    )


def _order(process: Process) -> tuple[int, ...]:
    ids = (process.gpu_instance_id, process.compute_instance_id)
    return (process.pid, *(-1 if number is None else number for number in ids))


def _process(calls: Calls, call: str, kind: ProcessKind, row: Any) -> Process:
    """Without its ids it is nobody's; without its memory it is still there."""
    memory = row.usedGpuMemory  # pynvml makes None of NVML's "not available"
    return Process(
        pid=_PID(row.pid),
        kind=kind,
        memory_bytes=None if memory is None else calls.part(_WHAT, call, BYTES, memory),
        gpu_instance_id=_instance(row.gpuInstanceId),
        compute_instance_id=_instance(row.computeInstanceId),
    )


def _instance(number: int) -> int | None:
    return None if number == _WHOLE_GPU else _INSTANCE(number)


def _share(row: Any) -> tuple[int, int, float]:
    """Time, pid and share of one sample of the driver's."""
    return _MICROSECONDS(row.timeStamp), _PID(row.pid), _SHARE(row.smUtil)
