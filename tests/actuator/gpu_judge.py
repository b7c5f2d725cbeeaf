# SPDX-License-Identifier: Apache-2.0
"""Judges how a request ended on each of its GPUs, by the instances before and after.

It knows what the driver did, which GPUs were asked for, and what went wrong on which of them. It
shares no code with the actuator and the planner: layouts are plain tuples here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

Instance = tuple[str, int, tuple[int, ...]]
"""Profile, first memory unit and compute slices of a GPU instance."""
Shape = tuple[tuple[str, tuple[int, ...]], ...]
"""Profiles and compute slices of a GPU's instances, sorted, wherever they are."""

APPLIED, UNCHANGED, ROLLED_BACK, STUCK = "applied", "unchanged", "rolled-back", "stuck"

POSSIBLE: Final[Mapping[str, frozenset[str]]] = {
    "": frozenset({APPLIED}),
    "passes": frozenset({APPLIED}),
    "fails": frozenset({ROLLED_BACK}),
    "fails twice": frozenset({ROLLED_BACK, STUCK}),
    "user": frozenset({APPLIED, ROLLED_BACK}),
    "lost": frozenset({STUCK}),
    "hung": frozenset({STUCK}),
}
"""What went wrong on a GPU, to the outcomes that this allows. Nothing on another GPU counts."""
WORST: Final = (STUCK, ROLLED_BACK, APPLIED, UNCHANGED)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuCase:
    """What happened on one GPU."""

    before: frozenset[Instance]
    after: frozenset[Instance]
    desired: Shape | None
    """None: the request does not name the GPU."""
    fault: str
    """What went wrong on it, a key of :data:`POSSIBLE`; empty if nothing did."""
    killed: bool
    """Whether a process died while it carried out the request, on whichever GPU."""
    used: frozenset[Instance]
    """Instances that had a user at some time; none of them may be destroyed."""
    destroyed: frozenset[Instance]
    """Instances that were there before and are gone, or were made anew."""
    outcome: str | None
    """In the request's result; None: it is not in it."""
    unended: bool
    """Whether the journal has a change of this GPU that has not ended."""


def mistakes(case: GpuCase) -> Iterator[str]:
    """What is wrong with the end of one GPU."""
    if case.used & case.destroyed:
        yield "an instance in use was destroyed"
    if (case.outcome == STUCK) != case.unended:
        yield "a change has not ended although it is not stuck, or the other way round"
    is_idle = case.desired is None or case.outcome in (None, UNCHANGED)
    if is_idle and (case.after != case.before or case.destroyed):
        yield "a GPU was touched that had nothing to do"
    if case.desired is None:
        if case.outcome is not None:
            yield "an outcome of a GPU that was not asked for"
        return
    if case.outcome is None:
        return
    is_there_before = shape(case.before) == case.desired
    if (case.outcome == UNCHANGED) != is_there_before:
        yield "unchanged, and it was not so before; or the other way round"
    elif not is_there_before and case.outcome not in _possible(case):
        yield f"{case.outcome} after the fault: {case.fault or 'none'}"
    if case.outcome == APPLIED and shape(case.after) != case.desired:
        yield "applied without the desired layout"
    if case.outcome == ROLLED_BACK and case.after != case.before:
        yield "rolled back without the previous layout at its places"
    if case.outcome == STUCK and case.fault not in ("lost", "hung") and case.after - case.used:
        yield "idle instances are left on a stuck GPU"


def _possible(case: GpuCase) -> frozenset[str]:
    """A process that died may have been the one that would have met the fault."""
    possible = POSSIBLE[case.fault]
    return possible | {APPLIED} if case.killed else possible


def joint_mistakes(outcome: str, gpus: Mapping[str, GpuCase]) -> Iterator[str]:
    """What is wrong with the end of the request as a whole."""
    outcomes = {case.outcome for case in gpus.values()}
    if outcome == "refused":
        if outcomes != {None}:
            yield "refused, and something was begun"
        return
    if outcome != next(worst for worst in WORST if worst in outcomes):
        yield "the outcome is not the worst of the GPUs"
    for uuid, case in gpus.items():
        if case.desired is not None and case.outcome is None:
            yield f"{uuid} has no outcome"


def shape(instances: frozenset[Instance]) -> Shape:
    """The instances without their places."""
    return tuple(sorted((profile, compute) for profile, _, compute in instances))
