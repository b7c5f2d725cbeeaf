# SPDX-License-Identifier: Apache-2.0
"""The Lease ``coordinator``: which of several coordinators acts, and what all of them remember.

The holder may be sure of it for less time after its last renewal than any other waits before it
takes over, so no two act at once, whatever the clocks of the wall say. The memory of rollouts and
the admin's pause switch stand on the same Lease.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final

from api import keys, limits, names
from base.backoff import Backoff
from base.log_once import LogOnce
from fleet import rollout_memory
from fleet.rollout_memory import RolloutMemory
from fleet.status.coordinator_view import coordinator_view
from kube import lease as leases
from kube.api import LEASES, Api, Object
from kube.api_errors import ApiError, Conflict, NotFound
from kube.lease import LeaseStep, ObservedLease, next_step
from kube.present_objects import present_object

log = logging.getLogger(__name__)

DURATION_SECONDS: Final = 30
"""Silence after which another coordinator takes over."""
RENEW_SECONDS: Final = 10.0
SURE_SECONDS: Final = 20.0
"""How long a renewal gives the right to act; the rest is for requests on their way."""
CHECK_SECONDS: Final = 5.0
"""Time between two reads of a Lease that another coordinator holds."""
_NEVER: Final = float("-inf")


class Leadership:
    """Holds the coordinators' Lease, or waits for it. Any thread may call anything."""

    def __init__(
        self,
        api: Api,
        *,
        identity: str,
        namespace: str = names.NAMESPACE,
        rolled_back: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        """``identity``: a name that no other coordinator has, such as its pod's. ``rolled_back``
        is called when an answer proves that the store was put back to a backup.

        ``clock``: monotonic, the one of :meth:`beat`; ``wall`` is only written.
        """
        self._api = api
        self._identity = identity[: limits.MOST_HOLDER_CHARACTERS]
        self._namespace = namespace
        self._rolled_back = rolled_back
        self._clock = clock
        self._wall = wall
        self._backoff = Backoff(longest_seconds=CHECK_SECONDS, uniform=uniform)
        self._asking = threading.Lock()
        self._lease: Object | None = None  # as last answered while ours; None: read before a write
        self._seen: ObservedLease | None = None
        self._sure_until = _NEVER
        self._logged = LogOnce()
        self.memory = rollout_memory.EMPTY
        """Memory of rollouts on the Lease; empty where that is damaged."""
        self.is_paused = False
        """Whether an admin's ``gpuscape.io/mig-paused`` stands on the Lease."""

    @property
    def leads(self) -> bool:
        """Whether this coordinator may act now; then no other does."""
        return self._clock() < self._sure_until

    def beat(self, now: float) -> float:
        """Do what is due at the monotonic second ``now``; the seconds until more will be.

        Never raises for what the API answers.
        """
        with self._asking:
            try:
                wait = self._step(now)
            except ApiError as error:
                self._failed(error)
                wait = self._backoff.failed(error.retry_after_seconds)
            else:
                self._backoff.succeeded()
                self._logged.clear("failure")
        if self._logged.is_new(self.leads, "leads"):
            if self.leads:
                log.info("leadership acquired", extra={"holder": self._identity})
            else:
                holder = "" if self._seen is None else self._seen.holder
                log.info("leadership not held", extra={"holder": holder})
        return wait

    def remember(self, memory: RolloutMemory) -> None:
        """Write the memory on the Lease, as its holder. Raises ApiError; then it may be there."""
        with self._asking:
            lease = self._lease
            if lease is None or not self.leads:
                raise Conflict(f"Lease {names.COORDINATOR_LEASE}: not held now")
            notes = {keys.MIG_ROLLOUTS: rollout_memory.encode(memory) if memory.rollouts else None}
            try:
                self._write(lease, leases.renewal(lease, wall_time=self._wall(), annotations=notes))
            except ApiError as error:
                self._failed(error)
                raise

    def leave(self) -> None:
        """Act no more, and empty the Lease, so that the next coordinator need not wait."""
        held, self._sure_until = self.leads, _NEVER
        with self._asking:
            if held and self._lease is not None:
                try:
                    self._patch(leases.release_patch(self._lease, wall_time=self._wall()))
                except ApiError as error:
                    log.info("Lease not released", extra={"why": str(error)})
            self._lease = None

    def _step(self, now: float) -> float:
        if self._lease is not None:
            return self._renew(self._lease)
        name, namespace = names.COORDINATOR_LEASE, self._namespace
        lease = present_object(self._api, LEASES, name, namespace=namespace)
        if lease is not None:
            self._saw(lease)
        match next_step(self._seen, exists=lease is not None, identity=self._identity, now=now):
            case LeaseStep.CREATE:
                body = leases.lease_object(
                    name,
                    holder=self._identity,
                    duration_seconds=DURATION_SECONDS,
                    wall_time=self._wall(),
                )
                asked_at = self._clock()
                self._written(self._api.create(LEASES, body, namespace=namespace), asked_at)
            case LeaseStep.TAKE_OVER if lease is not None:
                patch = leases.takeover(
                    lease,
                    holder=self._identity,
                    duration_seconds=DURATION_SECONDS,
                    wall_time=self._wall(),
                )
                self._write(lease, patch)
            case LeaseStep.RENEW if lease is not None:
                return self._renew(lease)
            case _:
                return CHECK_SECONDS
        return RENEW_SECONDS

    def _renew(self, lease: Object) -> float:
        self._write(lease, leases.renewal(lease, wall_time=self._wall()))
        return RENEW_SECONDS

    def _write(self, lease: Object, patch: Object) -> None:
        # so that a write by another coordinator in between is a Conflict
        patch["metadata"]["resourceVersion"] = lease["metadata"]["resourceVersion"]
        # before the request: the others count from its write, which cannot come earlier
        asked_at = self._clock()
        self._written(self._patch(patch), asked_at)

    def _patch(self, patch: Mapping[str, object]) -> Object:
        return self._api.patch(LEASES, names.COORDINATOR_LEASE, patch, namespace=self._namespace)

    def _written(self, lease: Object, asked_at: float) -> None:
        """The Lease is ours since the request was sent, or later."""
        self._saw(lease)
        self._lease = lease
        self._sure_until = asked_at + SURE_SECONDS

    def _saw(self, lease: Object) -> None:
        if leases.is_rolled_back(self._seen, lease):
            log.warning("API server's store rolled back", extra={"lease": names.COORDINATOR_LEASE})
            self._rolled_back()
        self._seen = leases.observe(self._seen, lease, self._clock())
        view = coordinator_view(lease)
        self.is_paused, self.memory = view.is_paused, view.memory
        if view.problem and self._logged.is_new(view.problem, "memory"):
            log.warning("memory of rollouts damaged", extra={"why": view.problem})

    def _failed(self, error: ApiError) -> None:
        """Whatever was done of the request, the next beat reads the Lease first."""
        self._lease = None
        if isinstance(error, Conflict | NotFound):
            self._sure_until = _NEVER
        if self._logged.is_new(str(error), "failure"):
            facts = {"lease": names.COORDINATOR_LEASE, "why": str(error)}
            log.warning("Lease not written", extra=facts)
