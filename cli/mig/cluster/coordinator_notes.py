# SPDX-License-Identifier: Apache-2.0
"""What users are shown of the coordinator's state, and the option that says where it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from cli import options
from fleet.status.coordinator_view import CoordinatorView

_AFTER_FAILURES: Final = (
    "to continue a rollout that failures have stopped: gpuscape mig rollout resume --after-failures"
)


namespace_option: Final = options.namespace("Where the coordinator is installed.")
"""Adds ``--namespace``: where the coordinator is."""


def coordinator_notes(view: CoordinatorView, now: float) -> Iterator[str]:
    """Reasons why all nodes wait for the coordinator, a line each; ``now`` is Unix time."""
    if view.problem:
        yield f"coordinator not known: {view.problem}"
        if not view.holder:
            return
    if not view.holder:
        yield "no coordinator acts: no change begins (docs/mig-fleet.md)"
        return
    if not view.acts(now):
        silent = view.silent_seconds(now)
        yield f"the coordinator {view.holder} has not renewed its Lease for {silent:.0f} s"
    if view.is_paused:
        yield "paused by an admin; to continue: gpuscape mig rollout resume"
    for rollout in view.failed:
        yield (
            f"desired by {rollout.desired}: {rollout.applied} succeeded, {rollout.failed} failed,"
            f" the last {rollout.in_row} in a row"
        )
    if view.failed:
        yield _AFTER_FAILURES


def coordinator_document(view: CoordinatorView) -> dict[str, Any]:
    """The coordinator's state as plain values, for -o json and yaml."""
    return {
        "holder": view.holder or None,
        "renewed": view.renewed_at or None,
        "paused": view.is_paused,
        "rollouts_with_failures": [
            {
                "desired": rollout.desired,
                "succeeded": rollout.applied,
                "failed": rollout.failed,
                "failed_in_row": rollout.in_row,
            }
            for rollout in view.failed
        ],
        "problem": view.problem or None,
    }
