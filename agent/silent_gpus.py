# SPDX-License-Identifier: Apache-2.0
"""GPUs that do not answer: marked in a snapshot, and logged whenever that changes."""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import replace

from base.log_once import LogOnce
from discovery.model import Gap, GpuState, NodeSnapshot, Reason
from health.node_health import count_faults, expected_gpus

log = logging.getLogger(__name__)


def with_hung(snapshot: NodeSnapshot, bus_ids: Collection[str]) -> NodeSnapshot:
    """The snapshot with those of its GPUs marked that hang by now."""
    gap = Gap(what="state", reason=Reason.HUNG, source="device reader", detail="quarantined")
    gpus = tuple(
        replace(gpu, state=GpuState.HUNG, gaps=(gap,))
        if gpu.bus_id in bus_ids and gpu.state is GpuState.PRESENT
        else gpu
        for gpu in snapshot.gpus
    )
    return replace(snapshot, gpus=gpus)


class SilentGpus:
    """The GPUs that did not answer when they were logged last."""

    def __init__(self) -> None:
        self._logged, self._miscounted = LogOnce(), LogOnce()

    def log_changes(self, snapshot: NodeSnapshot) -> None:
        """Log which GPUs do not answer, whenever that changes."""
        awaited = any(gpu.state is GpuState.INITIALISING for gpu in snapshot.gpus)
        fine = (GpuState.PRESENT, GpuState.INITIALISING)
        silent = {g.bus_id: g.state for g in snapshot.gpus if g.state not in fine}
        if silent:
            if self._logged.is_new(silent):
                named = ", ".join(f"{bus_id} {state}" for bus_id, state in silent.items())
                log.warning("GPUs not responding", extra={"gpus": named})
        elif not awaited and self._logged.clear():
            log.info("all GPUs responding")
        self._log_counts(snapshot)

    def _log_counts(self, snapshot: NodeSnapshot) -> None:
        """Log that the sources count GPUs differently, whenever that changes."""
        faults = ", ".join(rule.reason for rule in count_faults(snapshot))
        if not faults:
            if self._miscounted.clear():
                log.info("GPU counts agree")
        elif self._miscounted.is_new((faults, snapshot.counts)):
            counts = snapshot.counts
            log.warning(
                "GPU counts differ",
                extra={
                    "why": faults,
                    "sysfs": _number(counts.sysfs),
                    "nvml": _number(counts.nvml),
                    "node": expected_gpus(snapshot),
                },
            )


def _number(count: int | None) -> int | str:
    return "none" if count is None else count
