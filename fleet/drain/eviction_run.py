# SPDX-License-Identifier: Apache-2.0
"""Evicts the pods of one plan and waits until each is gone, within a deadline.

Whoever runs it undoes what is to be undone when it ends without success: pods that have left by
then come back elsewhere, or here once the node is no longer cordoned.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum

from base.errors import Permanent
from fleet.drain.drain_plan import DrainBlocker, DrainTerms
from fleet.drain.drain_pod import DrainPod
from fleet.drain.drain_view import refusal
from kube.api import EvictingApi
from kube.api_errors import ApiError, BudgetRefused


class RunState(StrEnum):
    """How far an eviction run is."""

    LEAVING = "leaving"
    GONE = "gone"
    """Every pod is gone, or another has its name."""
    REFUSED = "refused"
    """The API server refuses one for good; ``blockers`` has it."""
    LATE = "late"
    """The deadline has passed."""


class EvictionRun:
    """The evictions of one plan; one thread. Another run of the same pods may follow at any
    time, as after a restart: to evict a pod that leaves already changes nothing."""

    def __init__(
        self,
        api: EvictingApi,
        pods: Sequence[DrainPod],
        terms: DrainTerms,
        *,
        started_at: float,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        """``started_at``: second from which the deadline counts, by the clock of :meth:`tick`."""
        self._api = api
        self._pods = self._left = list(pods)
        self._terms = terms
        self._started_at = started_at
        self._uniform = uniform
        self._asked: set[str] = set()
        self._due: dict[str, float] = {}
        self._over: RunState | None = None
        self.blockers: dict[str, DrainBlocker] = {}
        """By UID of the pod: what refused it last."""

    def tick(self, now: float, present: Mapping[tuple[str, str], str]) -> RunState:
        """Ask for at most one eviction. Raises nothing that the API answers.

        ``present``: UIDs of the pods that exist, by namespace and name.
        """
        if self._over is not None:
            return self._over
        left = self._left = [
            pod for pod in self._pods if present.get((pod.namespace, pod.name)) == pod.uid
        ]
        for uid in self.blockers.keys() - {pod.uid for pod in left}:
            del self.blockers[uid]
        if not left:
            return self._ended(RunState.GONE)
        if now - self._started_at >= self._terms.deadline_seconds:
            return self._ended(RunState.LATE)
        due = [pod for pod in left if pod.uid not in self._asked]
        due = [pod for pod in due if self._due.get(pod.uid, now) <= now]
        return self._evict(due[0], now) if due else RunState.LEAVING

    def wait_seconds(self, now: float) -> float:
        """To the next tick that has something to do, changes of pods apart."""
        end = self._started_at + self._terms.deadline_seconds
        soonest = [self._due.get(pod.uid, now) for pod in self._left if pod.uid not in self._asked]
        return max(0.0, min([end, *soonest]) - now)

    def _evict(self, pod: DrainPod, now: float) -> RunState:
        try:
            self._api.evict(pod.name, namespace=pod.namespace, uid=pod.uid)
        except ApiError as error:
            return self._failed(pod, error, now)
        self._asked.add(pod.uid)
        self.blockers.pop(pod.uid, None)
        return RunState.LEAVING

    def _failed(self, pod: DrainPod, error: ApiError, now: float) -> RunState:
        is_final = isinstance(error, Permanent)
        if is_final or isinstance(error, BudgetRefused):
            blocker = refusal(pod, error)
            if blocker is not None:
                self.blockers[pod.uid] = blocker
                if is_final:
                    return self._ended(RunState.REFUSED)
        wait = self._terms.retry_seconds
        wait += self._uniform(0.0, wait)
        self._due[pod.uid] = now + max(wait, error.retry_after_seconds or 0.0)
        return RunState.LEAVING

    def _ended(self, state: RunState) -> RunState:
        self._over = state
        return state
