# SPDX-License-Identifier: Apache-2.0
"""The agent's Lease: its heartbeat, the state it shows, and the right to write for its node.

Of several agents on one node one holds the Lease, the others read only. The holder
may be sure of it for less time after its last renewal than any other waits before it
takes over, so no two write at once, whatever the clocks of the wall say. The right
ends at once when the server shows another holder, and 150 s after its last answer.
"""

from __future__ import annotations

import contextlib
import logging
import random
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from api import keys, names
from base import threads
from base.backoff import Backoff
from base.errors import Permanent
from base.log_once import LogOnce
from kube import lease as leases
from kube.api import LEASES, Api, Object
from kube.api_errors import ApiError, Conflict, NotFound
from kube.lease import Lease, LeaseStep, ObservedLease, next_step
from kube.objects.typed_object import Metadata
from kube.present_objects import present_object

log = logging.getLogger(__name__)

DURATION_SECONDS: Final = 180
"""Silence after which other agents and the schedulers count this one as gone."""
RENEW_SECONDS = 60.0
SURE_SECONDS = 150.0
"""How long a renewal gives the right to write; the rest is for requests on their way."""
STATE_SECONDS = 2.0
"""The least time between two writes of the state."""
CHECK_SECONDS = 10.0
"""Time between two reads of a Lease that another agent holds."""
LEAVE_SECONDS = 2.0

_NEVER = float("-inf")


State = Callable[[str | None], str]
"""Text of the state now, which follows on the one that stands on the Lease."""


class Heartbeat:
    """Renews the Lease of the agent's node, with the state on it; any thread may call anything.

    Requests are made in :meth:`beat` and :meth:`leave` alone, and neither raises for
    what the API answers: a beat waits longer then, and :attr:`failure` is the reason.
    """

    def __init__(
        self,
        api: Api,
        *,
        node_name: str,
        node: Callable[[], Object | None],
        identity: str,
        namespace: str = names.NAMESPACE,
        rolled_back: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        """``node``: the Node as last seen; while it gives None no Lease is made.

        ``identity``: the pod's UID, so that a container started anew goes on at once.
        ``rolled_back`` is called when an answer proves that the store was put back to a backup.
        ``clock``: monotonic, the one of :meth:`beat`; ``wall`` is only written.
        """
        self._api = api
        self._name = names.agent_lease(node_name)
        self._namespace = namespace
        self._node = node
        self._identity = identity
        self._rolled_back = rolled_back
        self._clock = clock
        self._wall = wall
        self._backoff = Backoff(uniform=uniform)
        self._asking = threading.Lock()
        self._lease: Object | None = None  # ours as last answered; None: read before a write
        self._seen: ObservedLease | None = None
        self._sure_until = self._renew_at = self._state_at = _NEVER
        self._state: State | None = None
        self._leaving = False
        self._logged = LogOnce()
        self.shown: str | None = None
        """The state on the Lease as last seen: what the first one after a start follows on."""
        self.failure: ApiError | None = None
        """Error of the last beat; None where it went well."""

    @property
    def holds(self) -> bool:
        """Whether this agent may write for its node now; then no other does."""
        return not self._leaving and self._clock() < self._sure_until

    @property
    def other(self) -> str | None:
        """Identity of the agent that holds the Lease instead of this one, as last seen."""
        holder = "" if self._seen is None else self._seen.holder
        return holder if holder not in ("", self._identity) else None

    def show(self, state: State) -> None:
        """Have the next beats write this state, if it is not there yet."""
        self._state = state

    def beat(self, now: float) -> float:
        """Do what is due at the monotonic second ``now``; the seconds until more will be."""
        with self._asking:
            if self._leaving:
                return RENEW_SECONDS
            try:
                wait = self._step(now)
            except ApiError as error:
                return self._failed(error, now)
            self._backoff.succeeded()
            self.failure = None
            return wait

    def leave(self) -> None:
        """Stop writing, and empty the Lease so that the next agent need not wait.

        Takes 2 s at most: when the API is slow, the next agent waits after all.
        """
        held, self._leaving = self.holds, True
        # a request on its way may be the one that makes the Lease ours
        if held or self._asking.locked():
            # requests cannot be cancelled, and the process must end in time
            try:
                threads.started(self._empty, "leave").join(LEAVE_SECONDS)
            except threads.NoThread as error:
                _not_released(error)

    # parts of a beat

    def _step(self, now: float) -> float:
        lease = self._lease
        if lease is not None:
            return self._renew(lease, now)
        node = self._node()
        if node is None:
            return CHECK_SECONDS
        if self._seen is None and _is_untouched(node):
            with contextlib.suppress(Conflict):  # there is one after all
                self._create(node, now)
                return self._wait(now)
        lease = self._read()
        match next_step(self._seen, exists=lease is not None, identity=self._identity, now=now):
            case LeaseStep.CREATE:
                self._create(node, now)
            case LeaseStep.TAKE_OVER if lease is not None:
                self._take_over(lease, now)
            case LeaseStep.RENEW if lease is not None:
                return self._renew(lease, now)
            case _:
                if self._logged.is_new(("held by another", self.other)):
                    holder = {"lease": self._name, "holder": self.other}
                    log.warning("Lease held by another agent", extra=holder)
                return CHECK_SECONDS
        return self._wait(now)

    def _read(self) -> Object | None:
        lease = present_object(self._api, LEASES, self._name, namespace=self._namespace)
        if lease is None:
            self.shown = None
            self._lost()
            return None
        self._saw(lease)
        if _holder(lease) != self._identity:
            self._lost()
        return lease

    def _create(self, node: Object, now: float) -> None:
        body = leases.lease_object(
            self._name,
            holder=self._identity,
            duration_seconds=DURATION_SECONDS,
            wall_time=self._wall(),
            node=node,
            annotations=self._annotations(now),
        )
        self._written(self._api.create(LEASES, body, namespace=self._namespace), now)

    def _take_over(self, lease: Object, now: float) -> None:
        patch = leases.takeover(
            lease,
            holder=self._identity,
            duration_seconds=DURATION_SECONDS,
            wall_time=self._wall(),
            annotations=self._annotations(now),
        )
        self._patch(lease, patch, now)

    def _renew(self, lease: Object, now: float) -> float:
        self._lease = lease
        annotations = self._annotations(now)
        if annotations or now >= self._renew_at or self._owners(lease):
            patch = leases.renewal(lease, wall_time=self._wall(), annotations=annotations)
            patch["spec"]["leaseDurationSeconds"] = DURATION_SECONDS  # where somebody edited it
            self._patch(lease, patch, now)
        return self._wait(now)

    def _patch(self, lease: Object, patch: Object, now: float) -> None:
        patch["metadata"] |= self._owners(lease)
        self._written(self._api.patch(LEASES, self._name, patch, namespace=self._namespace), now)

    def _written(self, lease: Object, now: float) -> None:
        """The Lease is ours since the request was sent, at ``now`` or later."""
        before = self.shown
        self._saw(lease)
        if self.shown != before:
            self._state_at = now + STATE_SECONDS
        self._lease = lease
        self._sure_until = now + SURE_SECONDS
        self._renew_at = now + RENEW_SECONDS
        if self._logged.is_new("acquired"):
            log.info("Lease acquired", extra={"lease": self._name})

    def _saw(self, lease: Object) -> None:
        if leases.is_rolled_back(self._seen, lease):
            log.warning("API server's store rolled back", extra={"lease": self._name})
            self._rolled_back()
        self._seen = leases.observe(self._seen, lease, self._clock())
        self.shown = Metadata.from_object(lease["metadata"]).annotations.get(keys.STATE)

    def _failed(self, error: ApiError, now: float) -> float:
        """Whatever was done of the request, the next beat reads the Lease first."""
        self._lease = None
        if isinstance(error, Conflict | NotFound):
            self._lost()
        if isinstance(error, Permanent):  # perhaps for its state: let the heartbeat go on without
            self._state_at = now + RENEW_SECONDS
        self.failure = error
        if self._logged.is_new(("not written", str(error))):
            log.warning("Lease not written", extra={"lease": self._name, "why": str(error)})
        return self._backoff.failed(error.retry_after_seconds)

    def _lost(self) -> None:
        """Give up the right to write: only a write that succeeds brings it back."""
        self._sure_until = self._renew_at = _NEVER

    def _empty(self) -> None:
        with self._asking:
            try:
                lease = self._lease or self._read()
                if lease is not None and _holder(lease) == self._identity:
                    patch = leases.release_patch(lease, wall_time=self._wall())
                    self._api.patch(LEASES, self._name, patch, namespace=self._namespace)
            except ApiError as error:
                _not_released(error)

    # what is due

    def _annotations(self, now: float) -> dict[str, str]:
        """The state as an annotation; empty where the Lease has it, or was written too recently."""
        pending = self._pending()
        return {} if pending is None or now < self._state_at else {keys.STATE: pending}

    def _pending(self) -> str | None:
        """The state to write; None where the Lease has it."""
        text = None if self._state is None else self._state(self.shown)
        return None if text == self.shown else text

    def _owners(self, lease: Object) -> dict[str, Any]:
        """Patch that makes our Node, by its present UID, the only owner; empty where it is."""
        node = self._node()
        owners = Metadata.from_object(lease["metadata"]).owner_references
        if node is None or [owner.uid for owner in owners] == [node["metadata"]["uid"]]:
            return {}
        return {"ownerReferences": [leases.owner(node)]}

    def _wait(self, now: float) -> float:
        pending = self._pending() is not None
        due = min(self._renew_at, self._state_at) if pending else self._renew_at
        return max(0.0, due - now)


def _not_released(error: Exception) -> None:
    log.info("Lease not released", extra={"why": str(error)})


def _holder(lease: Object) -> str:
    """Identity of the Lease's holder; empty where it has none."""
    return Lease.from_object(lease).spec.holder_identity


def _is_untouched(node: Object) -> bool:
    """Whether no agent seems to have been here: then a Lease is created without a read."""
    return keys.TOPOLOGY not in Metadata.from_object(node["metadata"]).annotations
