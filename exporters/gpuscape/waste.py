# SPDX-License-Identifier: Apache-2.0
"""Time for which GPUs were held, and held without use, added up from sample to sample.

A GPU or GPU instance is idle once its busy ratio has been below :data:`IDLE_BELOW_RATIO` in
every sample for :data:`WINDOW_SECONDS`, with nobody new among its device users in that time. Idle
seconds are counted from there on: the window itself never is, so that pauses of a job, its
start and its end are no waste. Where nothing measures how busy a device is, there is no value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from discovery.gpu_part import GpuPart

IDLE_BELOW_RATIO = 0.01
WINDOW_SECONDS = 900.0
RESUME_SECONDS = 300.0
"""After a longer pause a GPU's idle window begins anew: it may have been busy meanwhile."""

Held = frozenset[tuple[str, str, str]]
"""Namespace, pod and container of each device user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuUse:
    """Use of one GPU without GPU instances, or of one GPU instance, in one sample."""

    entity: GpuPart
    at_seconds: float | None
    """Time of the reading, monotonic; None where the device was not read."""
    held_by: Held | None
    """Device users of the device; None where no source reports them."""
    busy_ratio: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Seconds for which a GPU or GPU instance was held and idle; they only grow."""

    use: GpuUse
    """The newest use."""
    allocated_seconds: float = 0.0
    idle_seconds: float | None = None
    """Beyond the window; None until its busy ratio was known once."""
    idle_for_seconds: float | None = None
    """Seconds held and below the threshold without a break; None where that is not known."""

    @property
    def idle(self) -> bool | None:
        """Whether the device is idle for at least the window; None if not held or not measured."""
        if not self.use.held_by or self.idle_for_seconds is None:
            return None
        return self.idle_for_seconds >= WINDOW_SECONDS

    @property
    def unmeasured(self) -> bool:
        """Whether the device is held and nothing measures how busy it is."""
        return bool(self.use.held_by) and self.use.busy_ratio is None


Waste = Mapping[GpuPart, Times]

NOTHING_SEEN: Waste = {}


class WasteRecord:
    """The times of each GPU and instance, as they grow; what renders them may be replaced."""

    def __init__(self, times: Waste = NOTHING_SEEN) -> None:
        """``times`` go on from where they were left."""
        self.times = times
        self._paused: Waste = times
        self._resumed_at: float | None = None

    def pause(self) -> None:
        """Begin a time without readings, which counts neither as allocated nor as idle.

        The times of a device stay as they were left until it is read again with its device users,
        and how busy it is where that was measured; for RESUME_SECONDS after the first reading of
        any.
        """
        self._paused, self._resumed_at = self.times, None

    def add(self, uses: Iterable[GpuUse]) -> None:
        """Add these uses to the times, as :func:`step` does; a paused device may go on here."""
        uses = tuple(uses)
        before = dict(self.times)
        for use in uses:
            if (paused := self._paused.get(use.entity)) and _ends_pause(paused, use):
                before[use.entity] = _after_pause(paused, use)
                self._paused = {
                    entity: times for entity, times in self._paused.items() if entity != use.entity
                }
        self._give_up(uses)
        self.times = {**step(before, uses), **self._paused}

    def _give_up(self, uses: Iterable[GpuUse]) -> None:
        """Forget paused devices that were not read again within RESUME_SECONDS."""
        now = max((use.at_seconds for use in uses if use.at_seconds is not None), default=None)
        if now is None:
            return
        if self._resumed_at is None:
            self._resumed_at = now
        if now - self._resumed_at > RESUME_SECONDS:
            self._paused = NOTHING_SEEN


def _ends_pause(paused: Times, use: GpuUse) -> bool:
    measured = use.busy_ratio is not None or paused.idle_for_seconds is None
    return use.at_seconds is not None and use.held_by is not None and measured


def _after_pause(paused: Times, use: GpuUse) -> Times:
    """The times as they were left, at the moment when ``use`` ends the pause."""
    paused_at, now = paused.use.at_seconds, use.at_seconds
    short = paused_at is not None and now is not None and now - paused_at <= RESUME_SECONDS
    return replace(
        paused,
        use=replace(paused.use, at_seconds=None),
        idle_for_seconds=paused.idle_for_seconds if short else None,
    )


def step(before: Waste, uses: Iterable[GpuUse]) -> Waste:
    """The times with these uses added; what is not among them is forgotten.

    A use seen before, at the same time and with the same device users, changes nothing.
    """
    return {use.entity: _stepped(before.get(use.entity), use) for use in uses}


def _stepped(before: Times | None, use: GpuUse) -> Times:
    if before is None:
        before = Times(use=replace(use, held_by=None))
    passed = _passed(before.use, use)
    idle_for = _idle_for(before, use, passed)
    idle = before.idle_seconds
    if use.busy_ratio is not None:
        beyond = (idle_for or 0.0) - max(WINDOW_SECONDS, before.idle_for_seconds or 0.0)
        idle = (idle or 0.0) + max(0.0, beyond)
    held_throughout = before.use.held_by and use.held_by
    return Times(
        use=use,
        allocated_seconds=before.allocated_seconds + (passed if held_throughout else 0.0),
        idle_seconds=idle,
        idle_for_seconds=idle_for,
    )


def _passed(before: GpuUse, use: GpuUse) -> float:
    """Seconds between two uses; 0 where either was not read."""
    if before.at_seconds is None or use.at_seconds is None:
        return 0.0
    return max(0.0, use.at_seconds - before.at_seconds)


def _idle_for(before: Times, use: GpuUse, passed: float) -> float | None:
    """Seconds for which the device has been held and idle.

    None where that is not known; 0 where it is busy, free, or has a new device user.
    """
    if use.busy_ratio is None or use.held_by is None or use.at_seconds is None:
        return None
    if not use.held_by or use.busy_ratio >= IDLE_BELOW_RATIO:
        return 0.0
    if before.use.held_by is None or use.held_by - before.use.held_by:
        return 0.0
    return (before.idle_for_seconds or 0.0) + passed
