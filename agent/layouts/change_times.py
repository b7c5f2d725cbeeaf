# SPDX-License-Identifier: Apache-2.0
"""Times of day of a change, and how often its request is written anew."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from agent.layouts.change_state import RequestState
from agent.layouts.retry_times import Retry
from agent.layouts.shown_request import ShownRequest
from agent.layouts.status_times import PODS_SECONDS
from api.mig_request_annotation import MigRequestAnnotation
from base.text import rfc3339


class ChangeTimes:
    """Times of day as RFC 3339; each stays with its request or retry. One thread."""

    def __init__(self, clock: Callable[[], float], wall: Callable[[], float]) -> None:
        """``clock`` is the one of the steps; ``wall`` is Unix time."""
        self._clock = clock
        self._wall = wall
        self._retry: tuple[Retry, str] | None = None
        self._requested: tuple[str, str] | None = None
        """A request's id, and when the change was first requested."""

    def of_retry(self, retry: Retry) -> str:
        """When the request is tried again."""
        if self._retry is None or self._retry[0] is not retry:
            self._retry = retry, self._day_time(retry.not_before)
        return self._retry[1]

    def of_request(self, request: RequestState, shown: ShownRequest) -> str:
        """When the change was first requested."""
        if self._requested is None or self._requested[0] != request.id:
            known = shown.since if shown.request == request.id else ""
            self._requested = request.id, known or self._day_time(request.requested_at)
        return self._requested[1]

    def seconds_since(self, moment: str) -> float:
        """Seconds since a time of day; 0 where that is not known, or to come."""
        start = rfc3339.unix_seconds(moment)
        return 0.0 if start is None else max(self._wall() - start, 0.0)

    def _day_time(self, moment: float) -> str:
        return rfc3339.whole_seconds(self._wall() + moment - self._clock())


class RequestPace:
    """Holds back requests that differ from the last one in their pods alone. One thread."""

    def __init__(self) -> None:
        self._last: tuple[MigRequestAnnotation, float] | None = None

    def paced(self, annotation: MigRequestAnnotation, now: float) -> MigRequestAnnotation:
        """The request, or the last one where nobody needs to know the difference yet."""
        if self._last is not None:
            last, changed_at = self._last
            is_late = now - changed_at >= PODS_SECONDS
            if last == annotation or (not is_late and _differ_in_users(last, annotation)):
                return last
        self._last = annotation, now
        return annotation


def _differ_in_users(last: MigRequestAnnotation, annotation: MigRequestAnnotation) -> bool:
    """Whether both name users that are in the way, and differ in nothing else."""
    is_used = all(request.pods or request.programs for request in (last, annotation))
    return is_used and _without_users(last) == _without_users(annotation)


def _without_users(request: MigRequestAnnotation) -> MigRequestAnnotation:
    return replace(request, pods=(), other_pods=(), unlisted=0, programs=())
