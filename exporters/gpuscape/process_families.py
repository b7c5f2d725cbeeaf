# SPDX-License-Identifier: Apache-2.0
"""Use of each GPU and GPU instance by processes, with their pods. Pure."""

from __future__ import annotations

from collections.abc import Callable

from discovery.sample import ReadingGroup
from exporters.gpuscape.gpuscape_family import INSTANCE, GpuscapeFamily, Series
from exporters.gpuscape.node_view import NodeView
from exporters.gpuscape.process_use import ProcessUse

_LABELS = (*INSTANCE, "pid", "process", "kind", "namespace", "pod", "pod_uid")


def _uses(read: Callable[[ProcessUse], float | None]) -> Callable[[NodeView], Series]:
    """Processes on GPUs that answer."""

    def series(node: NodeView) -> Series:
        names = {gpu.gpu.bus_id: gpu.labels for gpu in node.gpus}
        for use in node.processes:
            if use.bus_id in names:
                yield (*names[use.bus_id], *_words(use)), read(use)

    return series


def _words(use: ProcessUse) -> tuple[str, ...]:
    pod = use.pod
    return (
        "" if use.gpu_instance_id is None else str(use.gpu_instance_id),
        use.pid,
        use.name or "",
        ",".join(use.kinds),
        "" if pod is None else pod.namespace or "",
        "" if pod is None else pod.name or "",
        "" if pod is None else pod.uid,
    )


_WHO = "; the processes with the most memory one by one, the rest under pid other"

FAMILIES: tuple[GpuscapeFamily, ...] = (
    GpuscapeFamily(
        name="gpuscape_process_memory_bytes",
        help="Frame buffer of the GPU or GPU instance that a process uses.",
        labels=_LABELS,
        series=_uses(lambda use: use.memory_bytes),
        groups=(ReadingGroup.PROCESSES,),
        source=f"nvmlDeviceGet*RunningProcesses, and the cgroup of each pid{_WHO}",
    ),
    GpuscapeFamily(
        name="gpuscape_process_busy_ratio",
        help="Share of the time for which kernels of a process ran; absent while MIG is on.",
        labels=_LABELS,
        series=_uses(lambda use: use.busy_ratio),
        groups=(ReadingGroup.PROCESSES,),
        source=f"nvmlDeviceGetProcessUtilization, and the cgroup of each pid{_WHO}",
    ),
)
