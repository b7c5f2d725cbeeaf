# SPDX-License-Identifier: Apache-2.0
"""GPU use of processes, and the pods that they run in.

Only where the agent counts processes as the node does (``hostPID: true`` in a pod): elsewhere
the driver reports none of the others, and a pid of one namespace is somebody else in another.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from agent.pods.known_pods import KnownPod
from agent.processes.pids import ProcessOwner, missing, process_owner
from discovery.host.process_pods import hidden_own_pod, pod_of_process
from discovery.model import Bytes, Gap, Reason
from discovery.sample import GpuSample, Process, ProcessKind
from exporters.device_user_names import PodUse, PodUses
from exporters.gpuscape.process_use import OTHER, OfPod, ProcessUse

log = logging.getLogger(__name__)

MOST: Final = 20
"""Processes of a GPU, those on its GPU instances together, that have series of their own."""

MOST_FOR_PODS: Final = 1000
"""Processes of a GPU whose pods are looked up; of a GPU with more nothing is known."""

ByUid = Callable[[str], KnownPod | None]
"""Looks up a pod by the UID that its kubelet has for it, where pods may be read."""
Number = TypeVar("Number", int, float)


def nobody_named(_uid: str) -> None:
    """The lookup of an agent that may not read pods: none is known."""


class GpuProcesses:
    """Joins the processes of samples to their pods. One thread asks."""

    def __init__(
        self, root: Path, *, by_uid: ByUid = nobody_named, pod_uid: str | None = None
    ) -> None:
        """``root`` is the host's, with ``proc`` below it; ``pod_uid``: the agent's own pod."""
        self._proc = root / "proc"
        self._own_pod = hidden_own_pod(self._proc, pod_uid)
        self._by_uid = by_uid
        self._allowed: bool | None = None

    def uses(self, samples: Iterable[GpuSample]) -> tuple[ProcessUse, ...]:
        """Use of these GPUs by processes, in the samples' order; nothing without the host's
        pids.
        """
        if not self._has_pids():
            return ()
        ask = partial(process_owner, self._proc, own_pod=self._own_pod)
        return tuple(use for sample in samples for use in process_uses(sample, ask, self._by_uid))

    def of_pods(self, samples: Iterable[GpuSample]) -> PodUses:
        """Use of these GPUs by pods; nothing is known without the host's pids."""
        if not self._has_pids():
            return {}
        uses_by_gpu = {sample.bus_id: pod_uses(sample, self._pod) for sample in samples}
        return {bus_id: uses for bus_id, uses in uses_by_gpu.items() if uses is not None}

    def _pod(self, pid: int) -> str | None:
        """UID that the API server has for the pod of a process: for a static pod its mirror's."""
        uid = pod_of_process(self._proc, pid, self._own_pod)
        known = None if uid is None else self._by_uid(uid)
        return uid if known is None else known.uid

    def _has_pids(self) -> bool:
        if self._allowed is None:  # a process never changes its PID namespace
            why = missing(self._proc)
            if why is not None:
                log.warning("GPU processes unavailable", extra={"why": why})
            self._allowed = why is None
        return self._allowed


def process_uses(
    sample: GpuSample,
    ask: Callable[[int], ProcessOwner],
    by_uid: ByUid = nobody_named,
    *,
    max_rows: int = MOST,
) -> tuple[ProcessUse, ...]:
    """Use of one GPU by processes: those with the most memory first, then the sum of the others.

    ``ask`` is called for the first ``max_rows``, which have rows of their own. The others are one
    sum for each GPU instance. What the driver does not report of a process is None, and in no sum.
    """
    ranked = sorted(_loads(sample.processes), key=_rank)
    rest: dict[int | None, list[_Load]] = {}
    for load in ranked[max_rows:]:
        rest.setdefault(load.gpu_instance_id, []).append(load)
    return (
        *(_named(sample.bus_id, load, ask(load.pid), by_uid) for load in ranked[:max_rows]),
        *(_others(sample.bus_id, instance, loads) for instance, loads in rest.items()),
    )


def pod_uses(
    sample: GpuSample, ask: Callable[[int], str | None]
) -> dict[tuple[int | None, str], PodUse] | None:
    """Use of one GPU by each pod's processes, by instance and UID; None where not all are known.

    ``ask`` returns the UID of the pod that a pid runs in. What is unknown of one of a pod's
    processes is unknown of the pod. On a GPU that ran nothing all were idle, whatever the driver
    reports of them: it lists those alone that did something.
    """
    loads = _loads(sample.processes)
    if len(loads) > MOST_FOR_PODS or any(_hides_processes(gap) for gap in sample.gaps):
        return None
    by_pod: dict[tuple[int | None, str], list[_Load]] = {}
    for load in loads:
        if (uid := ask(load.pid)) is not None:
            by_pod.setdefault((load.gpu_instance_id, uid), []).append(load)
    idle = sample.gpu_busy_ratio == 0
    return {
        key: PodUse(
            memory_bytes=_whole(load.memory_bytes for load in pod_loads),
            busy_ratio=0.0 if idle else _capped(_whole(load.busy_ratio for load in pod_loads)),
        )
        for key, pod_loads in by_pod.items()
    }


def _hides_processes(gap: Gap) -> bool:
    """Processes may be missing: not where the GPU has no such kind of work, as under MIG."""
    if gap.what == "state":
        return True  # the GPU was lost on the way
    if gap.what != "processes" or "RunningProcesses" not in gap.source:
        return False
    return gap.reason is not Reason.UNSUPPORTED or "GetComputeRunning" in gap.source


def _whole(values: Iterable[Number | None]) -> Number | None:
    """The sum, where all are known."""
    amounts = list(values)
    known = [value for value in amounts if value is not None]
    return sum(known) if len(known) == len(amounts) else None


def _capped(share: float | None) -> float | None:
    """The driver measures each process at its own moment, so that a sum may pass the whole."""
    return None if share is None else min(1.0, share)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Load:
    """Use of a GPU, or of one of its instances, by one process."""

    pid: int
    gpu_instance_id: int | None
    kinds: tuple[ProcessKind, ...]
    memory_bytes: Bytes | None
    busy_ratio: float | None


def _loads(rows: Sequence[Process]) -> list[_Load]:
    """Loads of the processes, one for each process and GPU instance.

    The driver lists a process once for each kind of its work, each time with all it has, and
    once for each compute instance, with what it has there. Pid 0 is one that it does not name.
    """
    grouped: dict[tuple[int, int | None], dict[int | None, list[Process]]] = {}
    for row in rows:
        if row.pid > 0:
            parts = grouped.setdefault((row.pid, row.gpu_instance_id), {})
            parts.setdefault(row.compute_instance_id, []).append(row)
    return [
        _Load(
            pid=pid,
            gpu_instance_id=instance,
            kinds=tuple(sorted({row.kind for part in parts.values() for row in part})),
            memory_bytes=_sum(_most(row.memory_bytes for row in part) for part in parts.values()),
            busy_ratio=_sum(_most(row.busy_ratio for row in part) for part in parts.values()),
        )
        for (pid, instance), parts in grouped.items()
    ]


def _rank(load: _Load) -> tuple[int, int]:
    """The most memory first; a process whose memory is unknown comes last."""
    return (1 if load.memory_bytes is None else -load.memory_bytes, load.pid)


def _named(bus_id: str, load: _Load, owner: ProcessOwner, by_uid: ByUid) -> ProcessUse:
    return ProcessUse(
        bus_id=bus_id,
        gpu_instance_id=load.gpu_instance_id,
        pid=str(load.pid),
        name=owner.name,
        kinds=load.kinds,
        pod=None if owner.pod_uid is None else _pod(owner.pod_uid, by_uid(owner.pod_uid)),
        memory_bytes=load.memory_bytes,
        busy_ratio=load.busy_ratio,
    )


def _others(bus_id: str, instance: int | None, loads: Sequence[_Load]) -> ProcessUse:
    return ProcessUse(
        bus_id=bus_id,
        gpu_instance_id=instance,
        pid=OTHER,
        memory_bytes=_sum(load.memory_bytes for load in loads),
        busy_ratio=_sum(load.busy_ratio for load in loads),
    )


def _pod(uid: str, known: KnownPod | None) -> OfPod:
    if known is None:
        return OfPod(uid=uid)
    return OfPod(uid=known.uid, namespace=known.namespace, name=known.name)


def _sum(values: Iterable[Number | None]) -> Number | None:
    """The sum of those that are known; None where none is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _most(values: Iterable[Number | None]) -> Number | None:
    return max((value for value in values if value is not None), default=None)
