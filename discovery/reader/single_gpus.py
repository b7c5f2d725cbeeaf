# SPDX-License-Identifier: Apache-2.0
"""Device readers that have to do with one GPU alone: the working reader leaves that GPU to them.

A reader waits for the first answer of a GPU, or probes one that is quarantined. When the GPU has
answered, its reader keeps it open until the working reader has it open too: without persistence
mode the driver would have to initialise it again. Source: NVIDIA Driver Persistence.
"""

from __future__ import annotations

from discovery.reader.child import Child


class SingleGpuReaders:
    """Readers of single GPUs by the bus id of their GPU; its user holds a lock."""

    def __init__(self) -> None:
        self._waiting: dict[str, Child | None] = {}
        self._holding: dict[str, tuple[Child, float]] = {}

    def wait(self, bus_id: str, child: Child | None) -> None:
        """An answer of this GPU is being waited for; None: the reader is about to start."""
        self._waiting[bus_id] = child

    def end_wait(self, bus_id: str) -> None:
        """The GPU has answered, or nobody waits for it any more."""
        del self._waiting[bus_id]

    def hold(self, bus_id: str, child: Child, until: float) -> None:
        """The GPU has answered; this reader keeps it open, at most until this moment."""
        self._holding[bus_id] = child, until

    def let_go(self, bus_id: str) -> Child | None:
        """The reader that kept this GPU open, to be ended now; None: there is none."""
        child, _ = self._holding.pop(bus_id, (None, 0.0))
        return child

    def overdue(self, now: float) -> tuple[str, ...]:
        """GPUs that the working reader has not opened in time, or whose reader has ended."""
        return tuple(
            bus_id
            for bus_id, (child, until) in self._holding.items()
            if until <= now or child.ended
        )

    @property
    def waiting(self) -> frozenset[str]:
        """GPUs whose answer is being waited for."""
        return frozenset(self._waiting)

    @property
    def holding(self) -> frozenset[str]:
        """GPUs that have answered, and are kept open."""
        return frozenset(self._holding)

    def keeps_open(self, bus_id: str | None) -> bool:
        """Whether one of these readers has this GPU open; None: the driver."""
        return any(bus_id in child.returned and not child.ended for child in self.children)

    @property
    def children(self) -> tuple[Child, ...]:
        """All readers of single GPUs that have been started."""
        waiting = (child for child in self._waiting.values() if child is not None)
        return (*waiting, *(child for child, _ in self._holding.values()))

    def __len__(self) -> int:
        return len(self._waiting) + len(self._holding)
