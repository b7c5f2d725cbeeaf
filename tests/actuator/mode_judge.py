# SPDX-License-Identifier: Apache-2.0
"""Judges how requests ended that may switch the MIG mode of GPUs, by the simulator's state before
and after.

It shares no code with the actuator and the planner: modes, instances and layouts are plain values
here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

Shape = tuple[tuple[str, tuple[int, ...]], ...]
"""Profile and compute slices of each GPU instance, sorted, wherever it is."""
Instance = tuple[str, int, tuple[int, ...], int]
"""Profile, first memory unit, compute slices and birth, which is another one when made anew."""

PATIENCE_SECONDS: Final = 30.0
"""A client that is gone by then is no reason to go back: a pod that is removed has 30 s to end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuTruth:
    """A GPU in the simulator's state."""

    mode: bool
    pending: bool
    instances: frozenset[Instance]

    @property
    def shape(self) -> Shape:
        """Its instances without their places."""
        return tuple(sorted((profile, compute) for profile, _, compute, _ in self.instances))

    @property
    def places(self) -> frozenset[tuple[str, int, tuple[int, ...]]]:
        """Its instances without their births."""
        return frozenset(instance[:3] for instance in self.instances)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeCase:
    """What happened on one GPU."""

    before: GpuTruth
    """When the journal did not have the request yet."""
    after: GpuTruth
    desired: tuple[bool, Shape] | None
    """Mode and instances; None: the request does not name the GPU."""
    troubles: frozenset[str]
    """What was drawn to go wrong on it."""
    client_seconds: float
    """How long a client has the GPU open; 0: there is none."""
    used: frozenset[Instance]
    """Instances with a program."""
    is_lost: bool
    """It does not answer at the end, or a reset of it does not end."""
    rebooted: bool
    """The node was booted after the journal had the request: no GPU keeps instances then."""
    outcome: str | None
    reason: str
    unended: bool
    """Whether the journal has a change of this GPU that has not ended."""


def mistakes(case: ModeCase, *, is_alone: bool) -> Iterator[str]:
    """What is wrong with the end of one GPU. ``is_alone``: no other GPU's client was waited for."""
    if (case.outcome == "stuck") != case.unended:
        yield "a change has not ended although it is not stuck, or the other way round"
    if case.desired is None and case.outcome is not None:
        yield "an outcome of a GPU that the request does not name"
        return
    if case.is_lost and case.outcome != "stuck" and case.desired is not None:
        return  # it was lost after its end
    if not case.rebooted and not case.is_lost and case.used - case.after.instances:
        yield "an instance in use was destroyed"
    match case.outcome:
        case None | "unchanged" | "refused":
            yield from _touched(case)
        case "applied":
            yield from _not_desired(case)
        case "rolled-back":
            yield from _not_previous(case)
        case "stuck":
            yield from _not_named(case)
    if case.outcome == "unchanged":
        yield from _not_desired(case)
    if case.before.mode != case.before.pending and case.outcome not in (None, "refused"):
        yield "a mode that somebody else had asked for was taken"
    if case.outcome in ("rolled-back", "stuck"):
        passes = 0 < case.client_seconds <= PATIENCE_SECONDS and is_alone
        if not case.troubles or (passes and case.troubles == {"client"}):
            yield f"{case.outcome}, and nothing kept it from its layout: {case.reason}"


def _touched(case: ModeCase) -> Iterator[str]:
    is_gone = (case.rebooted or case.is_lost) and not case.after.instances
    # the layout of an unchanged GPU was desired too, so it comes back after a boot
    is_back = case.rebooted and case.outcome == "unchanged"
    is_same = case.after.instances == case.before.instances or (
        is_back and case.after.places == case.before.places
    )
    if not (is_same or is_gone):
        yield "a GPU was touched that had nothing to do"
    if case.rebooted:
        if case.after.pending != case.before.pending:
            yield "the mode of a GPU was touched that had nothing to do"
    elif (case.after.mode, case.after.pending) != (case.before.mode, case.before.pending):
        yield "the mode of a GPU was touched that had nothing to do"


def _not_desired(case: ModeCase) -> Iterator[str]:
    assert case.desired is not None
    mode, shape = case.desired
    if (case.after.mode, case.after.pending) != (mode, mode):
        yield f"{case.outcome} without the desired mode"
    if case.after.shape != shape:
        yield f"{case.outcome} without the desired instances"


def _not_previous(case: ModeCase) -> Iterator[str]:
    was = case.before.mode
    if (case.after.mode, case.after.pending) != (was, was):
        yield "rolled back without the previous mode, or with one that waits"
    is_gone = case.rebooted and not case.after.instances
    if case.after.places != case.before.places and not is_gone:
        yield "rolled back without the previous instances at their places"


def _not_named(case: ModeCase) -> Iterator[str]:
    if not case.reason:
        yield "stuck without a reason"
    is_waiting = case.after.mode != case.after.pending and not case.is_lost
    if is_waiting and f"-mig {int(case.after.mode)}" not in case.reason:
        yield f"a mode waits that nobody is told of: {case.reason}"


def restored_mistakes(
    case: ModeCase, restored: GpuTruth, *, unended: bool, given_up: bool
) -> Iterator[str]:
    """What is wrong with a GPU once nothing is in the way and the node was told to restore."""
    if unended:
        yield "a change has not ended although nothing is in its way"
    if case.outcome != "stuck":
        if restored != case.after and not case.is_lost:
            yield "a GPU was touched that was not stuck"
        return
    if given_up:
        return
    was = case.before.mode
    if (restored.mode, restored.pending) != (was, was):
        yield "restored without the previous mode, or with one that waits"
    if restored.places != case.before.places:
        yield "restored without the previous instances at their places"
