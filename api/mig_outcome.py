# SPDX-License-Identifier: Apache-2.0
"""Outcomes of a change of MIG layouts: one enum for annotations, messages, journal and metrics."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from base.text.number_ranges import number_ranges


class Outcome(StrEnum):
    """How a change ended."""

    APPLIED = "applied"
    """The GPUs have the desired layouts, read back."""
    UNCHANGED = "unchanged"
    """The GPUs had the desired layouts already, or no change was open."""
    ROLLED_BACK = "rolled-back"
    """The change failed on some GPUs: these have the previous layouts, the others the desired ones.
    """
    REFUSED = "refused"
    """There is no plan, or it would disturb a device user; nothing was touched."""
    CANCELLED = "cancelled"
    """Nothing was touched: another layout is desired, or the attempt was called off."""
    EXPIRED = "expired"
    """Nothing was touched: there was no permit in time. The agent does not try again by itself."""
    STUCK = "stuck"
    """Some GPUs could reach neither layout: their idle instances are destroyed, and a person
    decides. The other GPUs have the desired layout, or the previous one."""


class GpuOutcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a change ended on one GPU."""

    gpu: str
    """UUID."""
    outcome: Outcome
    """Applied, unchanged, rolled-back or stuck."""
    reason: str = ""
    index: int | None = None
    """Its index when the change began, for people; None where nothing had to be changed."""


_WORST_FIRST: Final = (Outcome.STUCK, Outcome.ROLLED_BACK, Outcome.APPLIED)


def joint_outcome(gpus: Iterable[GpuOutcome]) -> Outcome:
    """The worst outcome of a change's GPUs; unchanged if there is none."""
    outcomes = {gpu.outcome for gpu in gpus}
    return next((outcome for outcome in _WORST_FIRST if outcome in outcomes), Outcome.UNCHANGED)


def joint_reason(gpus: Sequence[GpuOutcome]) -> str:
    """The reasons of a change's GPUs in one line, the worst outcome first, each with its GPUs."""
    alike: dict[tuple[Outcome, str], list[GpuOutcome]] = {}
    for gpu in sorted(gpus, key=lambda gpu: gpu.outcome is not Outcome.STUCK):
        if gpu.reason:
            alike.setdefault((gpu.outcome, gpu.reason), []).append(gpu)
    return "; ".join(f"GPU {_numbers(group)}: {reason}" for (_, reason), group in alike.items())


def _numbers(gpus: Iterable[GpuOutcome]) -> str:
    """Indices as ranges; UUIDs of those without an index."""
    indices = number_ranges((gpu.index for gpu in gpus if gpu.index is not None), separator=", ")
    return ", ".join(filter(None, (indices, *(gpu.gpu for gpu in gpus if gpu.index is None))))
