# SPDX-License-Identifier: Apache-2.0
"""When a starting agent may ask the API server for what: the more agents there are, the later.

Thousands of agents may start together, and none of them sees the others. So the first request
of each is for the DaemonSet, whose status has the number of agents, and everything else waits
for a moment that is drawn by this number. docs/decisions/start-turn.md has the reasons, and
tests/agent/cluster/test_fleet_start.py counts the requests of a fleet.
"""

from __future__ import annotations

import logging
import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from api import names
from base.backoff import Backoff
from base.errors import Permanent, Transient
from base.log_once import LogOnce
from kube.api import DAEMON_SETS, Api
from kube.api_errors import ApiError, NotFound

log = logging.getLogger(__name__)

LARGEST = 5000
"""Nodes of the largest cluster that Kubernetes supports; assumed where agents are not counted.
Source: kubernetes.io, considerations for large clusters."""
FIRST_SECONDS = 4.0
"""The first request is made at a random moment within this."""
AT_ONCE = 2000
"""Agents of a fleet that may all open their watches as soon as they have counted themselves."""
WATCH_SECONDS = (0.004, 0.018)
"""When more agents open their watches, for each agent: 20 to 90 s for 5,000."""
WRITE_SECONDS = (0.006, 0.025)
"""When agents write first, for each agent: 30 to 125 s for 5,000.

No sooner, since the first requests of a fleet leave little of the budget while it starts; and not
much later, since an agent that starts again up to a minute after its last heartbeat should renew
its Lease before that is stale, 180 s after the heartbeat. Up to 4,500 agents always do.
"""
CONFINE_WITHIN_SECONDS = 45.0
"""Longest wait for the policy checks where the spread is a setting: a policy that does not hold
is noticed within a minute."""
PATIENCE_SECONDS = 60.0
"""How long an agent waits for the number of agents, since its start."""
UNKNOWN_SECONDS = 0.5
"""Time between two checks whether the moments are known."""
DONE_SECONDS = 24 * 3600.0


class NotCounted(ApiError, Transient):
    """The controller of DaemonSets has not yet counted the nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartMoments:
    """Moments at which an agent's requests may begin, on the monotonic clock."""

    watch: float
    """Watches: none before this."""
    confine: float
    """The dry runs that try the admission policies."""
    write: float
    """The first write: of the Lease, then of the Node."""


def moments_for(agents: int, now: float, uniform: Callable[[float, float], float]) -> StartMoments:
    """The moments of one of so many agents that have just counted themselves, by a draw.

    It is one draw for all, which keeps watch and policies before the write.
    """
    counted = min(agents, LARGEST)
    draw = uniform(0.0, 1.0)
    write = counted * _between(WRITE_SECONDS, draw)
    watch = counted * _between(WATCH_SECONDS, draw) if counted > AT_ONCE else 0.0
    confine = counted * WRITE_SECONDS[1] * draw
    return StartMoments(watch=now + watch, confine=now + confine, write=now + write)


def moments_within(
    seconds: float, now: float, uniform: Callable[[float, float], float]
) -> StartMoments:
    """The moments where an administrator has set the spread: the watch is opened at once.

    The root lets few write early, while the others of a fleet open their watches.
    """
    confine = uniform(0.0, min(seconds, CONFINE_WITHIN_SECONDS))
    write = seconds * math.sqrt(uniform(0.0, 1.0))
    return StartMoments(watch=now, confine=now + confine, write=now + write)


class StartupSpread:
    """Moments at which an agent may begin, among the agents of a fleet that start together.

    The request is made in :meth:`ask`; any thread may call the other methods.

    While the API server does not answer, the agent goes on asking for a minute, then takes the
    cluster for the largest there is. So it does at once where it may not read its DaemonSet.
    """

    def __init__(
        self,
        api: Api,
        *,
        namespace: str,
        spread_seconds: float | None,
        clock: Callable[[], float] = time.monotonic,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        """``spread_seconds``: the time within which to write first, whatever the number of
        agents; then nothing is asked. ``clock`` is monotonic, the one of :meth:`ask`.
        """
        self._api = api
        self._namespace = namespace
        self._clock = clock
        self._uniform = uniform
        self._backoff = Backoff(uniform=uniform)
        self._logged = LogOnce()
        start = clock()
        self._ask_at = start + uniform(0.0, FIRST_SECONDS)
        self._patient_until = start + PATIENCE_SECONDS
        self._moments: StartMoments | None = None
        if spread_seconds is not None:
            self._moments = moments_within(spread_seconds, start, uniform)

    def ask(self, now: float) -> float:
        """Ask for the number of agents when that is due; the seconds until the next time."""
        if self._moments is not None:
            return DONE_SECONDS
        due = min(self._ask_at, self._patient_until)
        if now < due:
            return due - now
        agents = LARGEST if now >= self._patient_until else self._answer(now)
        if agents is None:
            return max(0.0, min(self._ask_at, self._patient_until) - now)
        log.info("start spread chosen", extra={"agents": agents})
        self._moments = moments_for(agents, self._clock(), self._uniform)
        return DONE_SECONDS

    def until_watch(self) -> float:
        """Seconds until watches may be opened, 0 for now; while that is not known, until the next
        check. So are the next two."""
        return self._until(None if self._moments is None else self._moments.watch, self._clock())

    def until_confine(self, now: float) -> float:
        """Seconds until the policies may be tried."""
        return self._until(None if self._moments is None else self._moments.confine, now)

    def until_write(self, now: float) -> float:
        """Seconds until the Lease may be written."""
        return self._until(None if self._moments is None else self._moments.write, now)

    def _until(self, moment: float | None, now: float) -> float:
        return UNKNOWN_SECONDS if moment is None else max(0.0, moment - now)

    def _answer(self, now: float) -> int | None:
        """The number of agents to go by; None where it is to be asked for again."""
        try:
            return self._counted()
        except ApiError as error:
            if not isinstance(error, NotCounted) and self._logged.is_new(str(error)):
                log.warning("agents not counted", extra={"why": str(error)})
            if isinstance(error, Permanent | NotFound):
                return LARGEST
            self._ask_at = now + self._backoff.failed(error.retry_after_seconds)
            return None

    def _counted(self) -> int:
        """Number of the DaemonSet's nodes. Raises ApiError; NotCounted while that is not known."""
        daemon_set = self._api.get(DAEMON_SETS, names.AGENT_DAEMON_SET, namespace=self._namespace)
        agents = (daemon_set.get("status") or {}).get("desiredNumberScheduled")
        if not isinstance(agents, int) or agents < 1:
            raise NotCounted(f"DaemonSet {names.AGENT_DAEMON_SET}: its status has no number yet")
        return agents


def _between(bounds: tuple[float, float], draw: float) -> float:
    return bounds[0] + (bounds[1] - bounds[0]) * draw
