# SPDX-License-Identifier: Apache-2.0
"""Readings that settings add to those that the agent always makes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from agent.gpu_errors.kernel_records import SxidSeen
from discovery.model import NodeSnapshot
from discovery.reader.protocol import Event
from discovery.sample import GpuSample, ReadingGroup
from exporters.device_user_names import NO_JOBS, NO_POD_USES, JobIds, PodUses
from exporters.gpuscape.process_use import ProcessUse


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtraReadings:
    """Readings in addition to those that are always made; each part may be missing."""

    groups: tuple[ReadingGroup, ...] = ()
    """Readings of the GPUs."""
    processes: Callable[[Iterable[GpuSample]], tuple[ProcessUse, ...]] = lambda _samples: ()
    of_pods: Callable[[Iterable[GpuSample]], PodUses] = lambda _samples: NO_POD_USES
    jobs: Callable[[NodeSnapshot], JobIds] = lambda _snapshot: NO_JOBS
    kernel_log: Callable[[float], tuple[Event | SxidSeen, ...]] = lambda _now: ()
    """Errors that the kernel logged since the last call; it never waits."""


NO_EXTRA_READINGS = ExtraReadings()
