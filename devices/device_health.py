# SPDX-License-Identifier: Apache-2.0
"""Health of one device as the kubelet is told it: sick by its cause, and well again. Pure.

Seconds are those of the caller's monotonic clock.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final

SIGHTINGS: Final = 2
"""Readings with a soft cause, one after the other, that make a device unhealthy."""
FIRST_WAIT_SECONDS: Final = 60.0
LONGEST_WAIT_SECONDS: Final = 3600.0
DAY_SECONDS: Final = 86_400.0
MOST_FLAPS: Final = 3
"""Times within a day that a device becomes unhealthy; after the last one it stays so."""


class CauseSeverity(IntEnum):
    """How a reading judges a device, from the one health table."""

    NONE = 0
    """No cause holds."""
    UNKNOWN = 1
    """Nobody could read it: it neither makes a device unhealthy nor healthy again."""
    SOFT = 2
    """It works and needs attention."""
    FATAL = 3
    """Work on it fails, or will."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """What one reading says of a device."""

    reading: int
    """Number of the reading: the same number is the same reading seen again."""
    severity: CauseSeverity
    reason: str = ""
    """Short word of the health table; empty without a cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceHealth:
    """Health of a device; a new one is healthy."""

    healthy: bool = True
    reason: str = ""
    """Cause that made it unhealthy, or the last one since."""
    stuck: bool = False
    """It was unhealthy too often within a day: it stays so until the program starts again."""
    soft_readings: int = 0
    """Readings with a soft cause, one after the other."""
    last_reading: int | None = None
    gone_since: float | None = None
    """When the cause was first seen gone; None while it holds, and for a healthy device."""
    wait_seconds: float = FIRST_WAIT_SECONDS
    """Time that the cause has to be gone before the device is healthy again."""
    became_unhealthy: tuple[float, ...] = ()
    """When it became unhealthy, within the last day, oldest first."""

    @property
    def due(self) -> float | None:
        """When it is healthy again if nothing else is seen; None where that is not foreseen."""
        if self.healthy or self.stuck or self.gone_since is None:
            return None
        return self.gone_since + self.wait_seconds


def after(health: DeviceHealth, sighting: Sighting, now: float) -> DeviceHealth:
    """Health of the device once a reading, or the passing of time, has been taken into account.

    A fatal cause makes it unhealthy at once, a soft one with its second reading in a row. It is
    healthy again when no cause was seen for ``wait_seconds``. That doubles each time it becomes
    unhealthy again, up to an hour, until a day has passed without it. The third time within a day
    is final.
    """
    is_new = sighting.reading != health.last_reading
    soft = _soft_readings(health, sighting, is_new)
    health = replace(health, last_reading=sighting.reading, soft_readings=soft)
    if sighting.severity is CauseSeverity.UNKNOWN:
        return replace(health, gone_since=None)
    if sighting.severity is CauseSeverity.NONE:
        return health if health.healthy else _recovering(health, now)
    if not health.healthy:
        return replace(health, gone_since=None, reason=sighting.reason)
    if sighting.severity is CauseSeverity.FATAL or soft >= SIGHTINGS:
        return _fallen(health, sighting.reason, now)
    return health


def _soft_readings(health: DeviceHealth, sighting: Sighting, is_new: bool) -> int:
    if sighting.severity is CauseSeverity.NONE:
        return 0
    return health.soft_readings + (is_new and sighting.severity is CauseSeverity.SOFT)


def _recovering(health: DeviceHealth, now: float) -> DeviceHealth:
    since = now if health.gone_since is None else health.gone_since
    if health.stuck or now - since < health.wait_seconds:
        return replace(health, gone_since=since)
    return replace(health, healthy=True, reason="", gone_since=None, soft_readings=0)


def _fallen(health: DeviceHealth, reason: str, now: float) -> DeviceHealth:
    recent = tuple(time for time in health.became_unhealthy if now - time < DAY_SECONDS)
    wait = min(2 * health.wait_seconds, LONGEST_WAIT_SECONDS) if recent else FIRST_WAIT_SECONDS
    return replace(
        health,
        healthy=False,
        reason=reason,
        stuck=len(recent) + 1 >= MOST_FLAPS,
        gone_since=None,
        wait_seconds=wait,
        became_unhealthy=(*recent, now),
    )
