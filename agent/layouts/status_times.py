# SPDX-License-Identifier: Apache-2.0
"""Times of day in a Node's MIG status: of the status itself, and of the layouts that are there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from api.mig_status_annotation import MigPhase, MigStatusAnnotation
from base.text import rfc3339

PODS_SECONDS: Final = 60.0
"""Least time between two statuses or requests that differ in the pods alone: these come and go."""


class StatusTimes:
    """Times of the statuses that one agent shows, each in turn. One thread."""

    def __init__(self, wall: Callable[[], float], *, restarts_plugin: bool) -> None:
        """``wall`` is Unix time; ``restarts_plugin``: the plugin then offers what is there."""
        self._wall = wall
        self._restarts_plugin = restarts_plugin
        self._last: MigStatusAnnotation | None = None
        """The newest status, with its time; the Node may not have it yet."""
        self._current: tuple[str, str] | None = None
        """Digest of layouts and the time since when the GPUs have them; None while they do not."""

    def timed(
        self, status: MigStatusAnnotation, shown: MigStatusAnnotation | None
    ) -> MigStatusAnnotation:
        """The status with its time: that of an equal one that the Node shows, or will show."""
        status = self._with_current_since(status)
        for known in (shown, self._last):
            if known is not None and is_equal(
                replace(status, current_since=known.current_since), known
            ):
                if status.current_since == known.current_since:
                    return known
                self._last = replace(status, since=known.since)
                return self._last
        self._last = replace(status, since=rfc3339.whole_seconds(self._wall()))
        return self._last

    def _with_current_since(self, status: MigStatusAnnotation) -> MigStatusAnnotation:
        """The status with allocatable resources and their time, once the layouts are there."""
        is_there = status.phase == MigPhase.UNCHANGED and status.allocatable
        if not (is_there and self._restarts_plugin):
            self._current = None
            return replace(status, allocatable={}, current_since="")
        if self._current is None or self._current[0] != status.plan:
            self._current = status.plan, rfc3339.whole_seconds(self._wall())
        return replace(status, current_since=self._current[1])


def is_equal(status: MigStatusAnnotation, other: MigStatusAnnotation) -> bool:
    """Whether two statuses are equal but for their times."""
    return replace(status, since="") == replace(other, since="")
