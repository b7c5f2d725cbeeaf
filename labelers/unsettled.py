# SPDX-License-Identifier: Apache-2.0
"""Decisions while a GPU, or what the Node knew before, is waited for: no label changes for it.

A Node that has no labels yet gets what is known from the other GPUs. Its health is left out: the
GPU that is waited for may hang, and there may be more GPUs than those that are known. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from api import keys
from discovery.model import GpuState, NodeSnapshot
from labelers.decision import Decision, Decisions, Keep, written_value

_HEALTH = frozenset(key.name for key in keys.HEALTHS)


def why_unsettled(snapshot: NodeSnapshot) -> str:
    """The GPU or reading that is being waited for, as a sentence; empty where there is none."""
    if any(gpu.state is GpuState.INITIALISING for gpu in snapshot.gpus):
        return "the first answer of a GPU is being waited for"
    if snapshot.awaits_record and snapshot.settling:
        return "what the Node knew of its GPUs before has not been read yet"
    return ""


def kept(decisions: Decisions, why: str) -> Mapping[str, Decision]:
    """The decisions as they hold while ``why`` is so: what is on the Node stays."""
    return {
        key: Keep(reason=why, otherwise=None if key in _HEALTH else written_value(decision))
        for key, decision in decisions.items()
    }
