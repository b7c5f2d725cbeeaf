# SPDX-License-Identifier: Apache-2.0
"""A GPU has recovered from an error when it needed something, and needs it no longer. Pure.

Which of the needs a driver reports depends on its branch and on the GPU:

- all branches: a lost GPU answers no call before it was reset or came back on the bus
  (NVML_ERROR_GPU_IS_LOST, NVML_ERROR_RESET_REQUIRED);
- all branches, GPUs before Ampere: pages wait for the driver to be loaded anew or the GPU to be
  reset (nvmlDeviceGetRetiredPagesPendingStatus; NVIDIA Dynamic Page Retirement);
- all branches, Ampere and later: rows wait for a reset (nvmlDeviceGetRemappedRows; NVIDIA GPU
  Memory Error Management); not reported while there are GPU instances;
- since R565: the action that the driver asks for, 0 once it asks for none
  (NVML_FI_DEV_GET_GPU_RECOVERY_ACTION; NVML's change log, NVIDIA GPU Memory Error Management).
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from discovery.model import GpuSnapshot, GpuState, NvidiaFacts


class Need(StrEnum):
    """Recovery that a GPU needed after an error, in words for the log."""

    RETURN = "it was lost"
    ACTION = "the driver asked for a recovery action"
    ROWS = "memory rows waited for a reset"
    PAGES = "memory pages waited for a reset"


def needs(gpu: GpuSnapshot) -> frozenset[Need]:
    """Recoveries that the GPU needs now, as far as they are known."""
    return frozenset(need for need, stands in _states(gpu) if stands)


def is_met(needed: frozenset[Need], gpu: GpuSnapshot) -> bool:
    """The GPU answers, and is known to need none of what it ``needed`` any more.

    What it does not report now is not known, and not met.
    """
    over = {need for need, stands in _states(gpu) if stands is False}
    return bool(needed) and needed <= over


def _states(gpu: GpuSnapshot) -> Iterator[tuple[Need, bool | None]]:
    """Whether each need stands; None where it is not known. Of a silent GPU all else is old."""
    if gpu.state is not GpuState.PRESENT:
        yield Need.RETURN, True if gpu.state is GpuState.LOST else None
        return
    yield Need.RETURN, False
    if gpu.nvidia is not None:
        yield from _driver_states(gpu.nvidia)


def _driver_states(gpu: NvidiaFacts) -> Iterator[tuple[Need, bool | None]]:
    yield Need.ACTION, None if gpu.recovery_action is None else gpu.recovery_action != 0
    yield Need.ROWS, None if gpu.remapped_rows is None else gpu.remapped_rows.pending
    yield Need.PAGES, gpu.retired_pages_pending
