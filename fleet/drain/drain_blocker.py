# SPDX-License-Identifier: Apache-2.0
"""Reasons why no pod of a node is evicted. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from base.words import first_names
from fleet.drain.drain_pod import DrainPod

_MOST_NAMED = 5


class BlockerKind(StrEnum):
    """Why pods cannot leave."""

    DAEMON_SET = "daemon-set"
    MIRROR = "mirror-pod"
    LOCAL_DATA = "local-data"
    UNMANAGED = "unmanaged"
    DO_NOT_DISRUPT = "do-not-disrupt"
    GRACE = "grace-period"
    BUDGET = "disruption-budget"
    SEVERAL_BUDGETS = "several-disruption-budgets"
    NOT_PLACED = "not-placed"
    """The pod was bound to the node, and the agent does not say yet which GPUs it has."""
    NOT_FOUND = "not-found"
    """The agent names a pod that asks for no GPU, or that the API does not have."""
    UNLISTED = "unlisted"
    """The agent's list has no room for all pods."""
    PROGRAM = "program"
    """A program that is no pod's is in the way."""
    REFUSED = "refused"
    """The API server refuses the eviction, for another reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainBlocker:
    """A reason why no pod is evicted."""

    kind: BlockerKind
    name: str
    """``namespace/name`` of the pod or of the PodDisruptionBudget; of a pod that is not known its
    key, and a program's name."""
    owner: str = ""
    """``Kind namespace/name`` of what the pod belongs to; empty: nothing that is known."""
    text: str
    """A sentence for people."""


def blocker_of(pod: DrainPod, kind: BlockerKind, text: str) -> DrainBlocker:
    """A blocker with the pod's name and owner."""
    return DrainBlocker(kind=kind, name=pod.meta.full_name, owner=pod.owner, text=text)


def named(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    return first_names(names, _MOST_NAMED)
