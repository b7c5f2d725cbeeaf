# SPDX-License-Identifier: Apache-2.0
"""Outcomes of single GPUs, from the actuator's answers to the Node's status. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from api.mig_outcome import GpuOutcome, Outcome
from api.mig_status_annotation import MOST_GPU_REASON, GpuOutcomeStatus
from base.text.safe_text import short_line

GpuOutcomes = tuple[GpuOutcomeStatus, ...]
"""By index, in ascending order."""


def of_request(gpus: Iterable[GpuOutcome]) -> GpuOutcomes:
    """The GPUs that a request changed, as a status shows them; empty unless it failed on one."""
    shown = merged(_shown(gpu, gpu.index) for gpu in gpus if gpu.index is not None)
    has_failed = any(gpu.outcome in (Outcome.STUCK, Outcome.ROLLED_BACK) for gpu in shown)
    return shown if has_failed else ()


def stuck(gpus: Iterable[GpuOutcomeStatus]) -> GpuOutcomes:
    """The GPUs that are stuck."""
    return tuple(gpu for gpu in gpus if gpu.outcome == Outcome.STUCK)


def still_stuck(before: GpuOutcomes, ended: Sequence[GpuOutcome]) -> GpuOutcomes:
    """The stuck GPUs, after a request that ``ended`` so on its GPUs."""
    touched = {gpu.index for gpu in ended}
    return stuck(merged((*(gpu for gpu in before if gpu.gpu not in touched), *of_request(ended))))


def merged(gpus: Iterable[GpuOutcomeStatus]) -> GpuOutcomes:
    """An outcome for each GPU: of several of one GPU the last."""
    by_index = {gpu.gpu: gpu for gpu in gpus}
    return tuple(by_index[index] for index in sorted(by_index))


def _shown(gpu: GpuOutcome, index: int) -> GpuOutcomeStatus:
    reason = short_line(gpu.reason, MOST_GPU_REASON)
    return GpuOutcomeStatus(gpu=index, outcome=gpu.outcome, reason=reason)
