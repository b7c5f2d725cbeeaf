# SPDX-License-Identifier: Apache-2.0
"""Facts of GPUs that are asked for every ten minutes only, while a session is open.

Names, numbers and the far ends of links stay as they are while the GPU answers under its UUID; a
GPU that is taken away, reset or given another firmware is lost first, or has its handles released.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from discovery.model import GpuSnapshot, GpuState, Reason
from discovery.nvml.facts import LASTING

WHOLE_SECONDS: Final = 600.0
"""After this a GPU is read whole again."""


class LastingFacts:
    """GPUs that were read whole, by bus id; for one thread."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._known: dict[str, tuple[float, GpuSnapshot]] = {}

    def of(self, bus_id: str) -> GpuSnapshot | None:
        """The GPU as it was read whole; None where that is too long ago, or was not whole."""
        at, gpu = self._known.get(bus_id, (0.0, None))
        return gpu if self._clock() - at < WHOLE_SECONDS else None

    def keep(self, gpu: GpuSnapshot) -> None:
        """Know this GPU, which was just read."""
        if gpu.state is not GpuState.PRESENT or not _is_whole(gpu):
            self._known.pop(gpu.bus_id, None)
            return
        at = self._clock() if self.of(gpu.bus_id) is None else self._known[gpu.bus_id][0]
        self._known[gpu.bus_id] = at, gpu


def _is_whole(gpu: GpuSnapshot) -> bool:
    """Whether asking again would give no more: what failed may answer the next time."""
    return gpu.uuid is not None and all(
        gap.reason is Reason.UNSUPPORTED for gap in gpu.gaps if gap.what in LASTING
    )
