# SPDX-License-Identifier: Apache-2.0
"""What the coordinator's Lease says about all nodes: who acts, a pause, failures of rollouts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from api import keys, names
from base.errors import BadInput
from base.text import rfc3339
from cli import options
from fleet import rollout_memory
from fleet.rollout_memory import RolloutCounts
from kube.api import LEASES, Api, Object
from kube.api_errors import ApiError, NotFound

_SILENT_SECONDS: Final = 120.0
"""Without a renewal; a coordinator that acts renews every 10 s, and clocks differ."""
_AFTER_FAILURES: Final = (
    "a rollout that failures have stopped goes on by: gpuscape mig rollout resume --after-failures"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorView:
    """What the Lease says."""

    holder: str = ""
    """Who acts; empty: nobody."""
    renewed_at: str = ""
    """RFC 3339."""
    is_paused: bool = False
    failed: tuple[RolloutCounts, ...] = ()
    """Rollouts with failures that are not over."""
    problem: str = ""
    """Why something is not known."""


def namespace_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--namespace``: where the coordinator is."""
    return options.namespace("Where the coordinator is installed.")(function)


def read_coordinator(api: Api, namespace: str) -> CoordinatorView:
    """Read the Lease; what cannot be had is a problem in the answer, and raises nothing."""
    try:
        return coordinator_view(api.get(LEASES, names.COORDINATOR_LEASE, namespace=namespace))
    except NotFound:
        return CoordinatorView()
    except ApiError as error:
        return CoordinatorView(problem=str(error))


def coordinator_view(lease: Object) -> CoordinatorView:
    """What this Lease says."""
    notes, spec = lease["metadata"].get("annotations") or {}, lease.get("spec") or {}
    problem, memory = "", None
    try:
        memory = rollout_memory.decode(notes.get(keys.MIG_ROLLOUTS) or '{"v":1}')
    except BadInput as error:
        problem = str(error)
    rollouts = () if memory is None else memory.rollouts.values()
    return CoordinatorView(
        holder=spec.get("holderIdentity") or "",
        renewed_at=str(spec.get("renewTime") or ""),
        is_paused=notes.get(keys.MIG_PAUSED) == "true",
        failed=tuple(one for one in rollouts if one.failed),
        problem=problem,
    )


def coordinator_notes(view: CoordinatorView, now: float) -> Iterator[str]:
    """What keeps nodes waiting by it, a line each; ``now`` is Unix time."""
    if view.problem:
        yield f"coordinator not known: {view.problem}"
        if not view.holder:
            return
    if not view.holder:
        yield "no coordinator acts: no change begins (docs/mig-fleet.md)"
        return
    if (silent := _silent_seconds(view, now)) > _SILENT_SECONDS:
        yield f"the coordinator {view.holder} has not renewed its Lease for {silent:.0f} s"
    if view.is_paused:
        yield "paused by an admin, goes on by: gpuscape mig rollout resume"
    for one in view.failed:
        yield (
            f"asked by {one.asked}: {one.applied} succeeded, {one.failed} failed, the last"
            f" {one.in_row} in a row"
        )
    if view.failed:
        yield _AFTER_FAILURES


def coordinator_document(view: CoordinatorView) -> dict[str, Any]:
    """For -o json and yaml."""
    return {
        "holder": view.holder or None,
        "renewed": view.renewed_at or None,
        "paused": view.is_paused,
        "rollouts_with_failures": [
            {
                "asked": one.asked,
                "succeeded": one.applied,
                "failed": one.failed,
                "failed_in_row": one.in_row,
            }
            for one in view.failed
        ],
        "problem": view.problem or None,
    }


def _silent_seconds(view: CoordinatorView, now: float) -> float:
    """Since the last renewal; 0 where that is not known."""
    renewed = rfc3339.unix_seconds(view.renewed_at)
    return 0.0 if renewed is None else now - renewed
