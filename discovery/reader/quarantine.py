# SPDX-License-Identifier: Apache-2.0
"""GPUs that are left alone, with the reason and the next try; the clock is passed in."""

from __future__ import annotations

import math
from dataclasses import dataclass

from discovery.model import Reason

PROBE_FIRST_SECONDS = 5.0
PROBE_LONGEST_SECONDS = 30.0
MISSES_TO_CONFIRM = 2
"""Deadlines that a GPU misses before it counts as hung for good: one may be a stall."""
MISSES_APART_SECONDS = 60.0
"""A miss so long after the last one is a first one again, when the GPU answered in between."""
CRASHES_TO_ISOLATE = 2
"""Deaths of the reader on one GPU in a row before it is left alone: one may be anybody's."""


@dataclass(slots=True)
class Held:
    """A GPU that is skipped until a probe of it succeeds."""

    reason: Reason
    why: str
    due_seconds: float
    misses: int
    interval_seconds: float = PROBE_FIRST_SECONDS


class Quarantine:
    """GPUs on which a driver call hung or the reader died; times are monotonic seconds."""

    def __init__(self) -> None:
        self._held: dict[str, Held] = {}
        self._crashes: dict[str, int] = {}
        self._missed_at: dict[str, float] = {}

    @property
    def bus_ids(self) -> tuple[str, ...]:
        """The GPUs to skip, in the order they were isolated."""
        return tuple(self._held)

    @property
    def reasons(self) -> dict[str, Reason]:
        """Why each of them is skipped, by bus id."""
        return {bus_id: held.reason for bus_id, held in self._held.items()}

    def held(self, bus_id: str) -> Held | None:
        """Why a GPU is skipped; None if it is not."""
        return self._held.get(bus_id)

    def isolate(self, bus_id: str, reason: Reason, why: str, now: float) -> None:
        """Skip a GPU; its first probe is due PROBE_FIRST_SECONDS later."""
        # one missed deadline may be a busy machine: a second one soon after confirms the hang
        again = now - self._missed_at.get(bus_id, -math.inf) < MISSES_APART_SECONDS
        misses = MISSES_TO_CONFIRM if again or reason is not Reason.HUNG else 1
        self._held[bus_id] = Held(reason, why, now + PROBE_FIRST_SECONDS, misses)
        self._missed_at[bus_id] = now

    def remember(self, bus_id: str, why: str) -> None:
        """Skip a GPU that hung for another agent; its probe is due after the others' answers."""
        self._held[bus_id] = Held(Reason.HUNG, why, math.inf, MISSES_TO_CONFIRM)

    def try_remembered(self, now: float) -> None:
        """The other GPUs have answered: probes of the remembered ones are due."""
        for held in self._held.values():
            if math.isinf(held.due_seconds):
                held.due_seconds = now

    @property
    def hung_for_good(self) -> frozenset[str]:
        """GPUs that are skipped since they hang, as more than one missed deadline shows."""
        return frozenset(
            bus_id
            for bus_id, held in self._held.items()
            if held.reason is Reason.HUNG and held.misses >= MISSES_TO_CONFIRM
        )

    def missed(self, bus_id: str) -> None:
        """A GPU that is skipped has missed another deadline, or its call has not returned yet."""
        if (held := self._held.get(bus_id)) is not None:
            held.misses += 1

    @property
    def missed_once(self) -> frozenset[str]:
        """GPUs that are skipped for a single deadline that they missed."""
        return frozenset(
            bus_id for bus_id, held in self._held.items() if held.misses < MISSES_TO_CONFIRM
        )

    def crashed(self, bus_id: str, why: str, now: float) -> None:
        """Count a death of the reader while it read this GPU; isolate it when they go on."""
        self._crashes[bus_id] = self._crashes.get(bus_id, 0) + 1
        if self._crashes[bus_id] >= CRASHES_TO_ISOLATE:
            self.isolate(bus_id, Reason.FAILED, why, now)

    def answered(self, bus_id: str) -> None:
        """The GPU was read: it is free, and earlier deaths no longer count."""
        self._held.pop(bus_id, None)
        self._crashes.pop(bus_id, None)

    def due(self, now: float) -> tuple[str, ...]:
        """The GPUs to probe now, the one that has waited longest first."""
        due = {bus_id: held.due_seconds for bus_id, held in self._held.items()}
        return tuple(sorted((bus_id for bus_id in due if due[bus_id] <= now), key=due.__getitem__))

    def postpone(self, bus_id: str, now: float) -> None:
        """A probe begins: should it fail, the next one comes after twice the time."""
        held = self._held[bus_id]
        held.interval_seconds = min(2 * held.interval_seconds, PROBE_LONGEST_SECONDS)
        held.due_seconds = now + held.interval_seconds
