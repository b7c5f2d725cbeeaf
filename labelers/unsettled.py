# SPDX-License-Identifier: Apache-2.0
"""Decisions while a GPU may yet give its first answer: no label changes on account of it.

A Node that has no labels yet gets what is known from the other GPUs. Its health is left out: the
GPU that is waited for may hang. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from api import keys
from discovery.model import GpuState, NodeSnapshot
from labelers.decision import Decision, Decisions, Keep, written

_HEALTH = frozenset(key.name for key in keys.HEALTHS)
_REASON = "the first answer of a GPU is being waited for"


def is_unsettled(snapshot: NodeSnapshot) -> bool:
    """Whether the first answer of a GPU is being waited for."""
    return any(gpu.state is GpuState.INITIALISING for gpu in snapshot.gpus)


def kept(decisions: Decisions) -> Mapping[str, Decision]:
    """The decisions as they hold while :func:`is_unsettled`: what is on the Node stays."""
    return {
        key: Keep(reason=_REASON, otherwise=None if key in _HEALTH else written(decision))
        for key, decision in decisions.items()
    }
