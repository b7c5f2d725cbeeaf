# SPDX-License-Identifier: Apache-2.0
"""State of the coordinator from its Lease: which one acts, a pause, failures of rollouts."""

from __future__ import annotations

from dataclasses import dataclass

from api import keys, names
from base.errors import BadInput
from fleet import rollout_memory
from fleet.rollout_memory import RolloutCounts
from kube.api import LEASES, Api, Object
from kube.api_errors import ApiError, NotFound
from kube.lease import Lease


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorView:
    """State of the coordinator, from its Lease."""

    holder: str = ""
    """Name of the coordinator that acts; empty where none does."""
    renewed_at: str = ""
    """Time of the last renewal, RFC 3339."""
    is_paused: bool = False
    failed: tuple[RolloutCounts, ...] = ()
    """Rollouts with failures that are not over."""
    problem: str = ""
    """Why the state, or a part of it, could not be read."""


def read_coordinator(api: Api, namespace: str) -> CoordinatorView:
    """Read the Lease; an error of the API server becomes ``problem``, nothing is raised."""
    try:
        return coordinator_view(api.get(LEASES, names.COORDINATOR_LEASE, namespace=namespace))
    except NotFound:
        return CoordinatorView()
    except ApiError as error:
        return CoordinatorView(problem=str(error))


def coordinator_view(written: Object) -> CoordinatorView:
    """State of the coordinator that holds the Lease."""
    lease = Lease.from_object(written)
    notes = lease.metadata.annotations
    problem, memory = "", None
    try:
        memory = rollout_memory.decode(notes.get(keys.MIG_ROLLOUTS) or '{"v":1}')
    except BadInput as error:
        problem = str(error)
    rollouts = () if memory is None else memory.rollouts.values()
    return CoordinatorView(
        holder=lease.spec.holder_identity,
        renewed_at=lease.spec.renew_time,
        is_paused=notes.get(keys.MIG_PAUSED) == "true",
        failed=tuple(rollout for rollout in rollouts if rollout.failed),
        problem=problem,
    )
