# SPDX-License-Identifier: Apache-2.0
"""State of the coordinator from its Lease: which one acts, a pause, failures of rollouts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from api import keys, names
from base.errors import BadInput
from base.text import rfc3339
from fleet import rollout_memory
from fleet.rollout_memory import EMPTY, RolloutCounts, RolloutMemory
from kube.api import LEASES, Api, Object
from kube.api_errors import ApiError
from kube.lease import Lease
from kube.present_objects import present_object

SILENT_SECONDS: Final = 120.0
"""Age of the last renewal from which a coordinator counts as silent.

A coordinator that acts renews every 10 s, and clocks differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorView:
    """State of the coordinator, from its Lease."""

    holder: str = ""
    """Name of the coordinator that acts; empty where none does."""
    renewed_at: str = ""
    """Time of the last renewal, RFC 3339."""
    is_paused: bool = False
    memory: RolloutMemory = EMPTY
    """Memory of rollouts; empty where that is damaged."""
    problem: str = ""
    """Why the state, or a part of it, could not be read."""

    @property
    def failed(self) -> tuple[RolloutCounts, ...]:
        """Rollouts with failures that are not over."""
        return tuple(rollout for rollout in self.memory.rollouts.values() if rollout.failed)

    def silent_seconds(self, now: float) -> float:
        """Seconds since the last renewal; 0 where its time is not known. ``now``: Unix time."""
        renewed = rfc3339.unix_seconds(self.renewed_at)
        return 0.0 if renewed is None else now - renewed

    def acts(self, now: float) -> bool:
        """Whether a coordinator holds the Lease and renews it."""
        return bool(self.holder) and self.silent_seconds(now) <= SILENT_SECONDS


def read_coordinator(api: Api, namespace: str) -> CoordinatorView:
    """Read the Lease; an error of the API server becomes ``problem``, nothing is raised."""
    try:
        lease = present_object(api, LEASES, names.COORDINATOR_LEASE, namespace=namespace)
    except ApiError as error:
        return CoordinatorView(problem=str(error))
    return CoordinatorView() if lease is None else coordinator_view(lease)


def coordinator_view(written: Object) -> CoordinatorView:
    """State of the coordinator that holds the Lease."""
    lease = Lease.from_object(written)
    notes = lease.metadata.annotations
    problem, memory = "", None
    try:
        memory = rollout_memory.decode(notes.get(keys.MIG_ROLLOUTS) or '{"v":1}')
    except BadInput as error:
        problem = str(error)
    return CoordinatorView(
        holder=lease.spec.holder_identity,
        renewed_at=lease.spec.renew_time,
        is_paused=notes.get(keys.MIG_PAUSED) == "true",
        memory=EMPTY if memory is None else memory,
        problem=problem,
    )
