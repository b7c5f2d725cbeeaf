# SPDX-License-Identifier: Apache-2.0
"""The GPUs of a node that labels describe, and the decisions where there are none."""

from __future__ import annotations

from dataclasses import replace

from discovery.model import GpuSnapshot, NodeSnapshot
from labelers.decision import Absent, Keep, gap_text


def all_gpus(snapshot: NodeSnapshot) -> tuple[GpuSnapshot, ...]:
    """The GPUs of the node, answering or not, in the order of their places."""
    return snapshot.gpus


def answering(snapshot: NodeSnapshot) -> tuple[GpuSnapshot, ...]:
    """The GPUs that answered in this cycle; all labels about hardware describe these."""
    return snapshot.answering


def nvidia_part(snapshot: NodeSnapshot) -> NodeSnapshot:
    """The node with its NVIDIA GPUs alone: NVIDIA's own labels describe no others."""
    gpus = tuple(gpu for gpu in snapshot.gpus if gpu.nvidia is not None)
    return replace(snapshot, gpus=gpus)


def all_answer(snapshot: NodeSnapshot) -> bool:
    """Whether no GPU is silent; only then a feature that none of them has is known to be gone."""
    is_whole = not snapshot.counts.unaddressed
    return is_whole and len(answering(snapshot)) == len(all_gpus(snapshot))


def without_gpus(snapshot: NodeSnapshot) -> Keep | Absent | None:
    """The decision for a node without GPUs, or without a driver; None for a node with GPUs.

    Absent only when the driver itself reports that there is none, and sysfs shows none either.
    """
    if snapshot.is_driverless:
        return Keep(reason=f"no driver answers: {gap_text(snapshot.driver.gaps, 'version')}")
    if all_gpus(snapshot):
        return None
    unsure = snapshot.counts.why_unsure
    return Keep(reason=unsure) if unsure else Absent(reason="this node has no NVIDIA GPU")


def without_answers(snapshot: NodeSnapshot) -> Keep | Absent | None:
    """The decision where no GPU answered; None when at least one did."""
    if answering(snapshot):
        return None
    return without_gpus(snapshot) or Keep(reason="no GPU answered")


def unsure(snapshot: NodeSnapshot, reason: str, best_known: object) -> Keep:
    """Keep the label; a node without it gets ``best_known``, once GPUs had time to answer."""
    return Keep(reason=reason, otherwise=None if snapshot.settling else str(best_known))
