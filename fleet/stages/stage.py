# SPDX-License-Identifier: Apache-2.0
"""Stages of a change of a Node's MIG layout: their names, states and what is in the way. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class StageName(StrEnum):
    """Stages in their order."""

    DESIRED = "desired"
    """Somebody wrote a desired layout."""
    EVALUATED = "evaluated"
    """The agent has a plan for it, or the GPUs have it."""
    REQUESTED = "requested"
    """The agent asks for a permit."""
    SLOT = "slot"
    """The coordinator gave the node one of its slots."""
    CORDONED = "cordoned"
    DRAINED = "drained"
    """No device user is in the way."""
    PAUSED = "paused"
    """The GPU operator's parts that keep GPUs open are paused."""
    CHANGED = "changed"
    """The actuator changed the GPUs."""
    VERIFIED = "verified"
    """The layout was read back."""
    ALLOCATABLE = "allocatable"
    """The node offers what the layout has."""
    UNCORDONED = "uncordoned"


class StageState(StrEnum):
    """State of a stage."""

    DONE = "done"
    NOW = "now"
    """The change stands here."""
    AHEAD = "ahead"
    NOT_NEEDED = "not-needed"
    UNKNOWN = "unknown"
    """It is over, and nothing in the cluster says any more whether it was needed."""


class StageBlockerKind(StrEnum):
    """What is in the way."""

    POD = "pod"
    BUDGET = "disruption-budget"
    PROGRAM = "program"
    NODE = "node"
    """Another node has the slot, or goes first; or this Node is not available."""
    GPU = "gpu"
    LAYOUT = "layout"
    AGENT = "agent"
    ACTUATOR = "actuator"
    COORDINATOR = "coordinator"
    PAUSE = "pause"
    WINDOW = "window"
    ROLLOUT = "rollout"
    """The rollout is stopped by failures, or its first node has to prove the layout."""
    CORDON = "cordon"
    SETTING = "setting"


@dataclass(frozen=True, slots=True)
class StageBlocker:
    """Somebody or something that is in the way."""

    kind: StageBlockerKind
    name: str = ""
    """``namespace/name`` of a pod or a budget, else a name; empty where the kind says all."""
    text: str = ""
    """A sentence for people, which may be empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A stage of a change: its state and times, in seconds since 1970."""

    name: StageName
    state: StageState
    text: str = ""
    ended_at: float | None = None
    """When it was done; None: it is not, or its time is not known."""
    seconds: float | None = None
    """How long it took, or takes until now; None: not known."""
    blockers: tuple[StageBlocker, ...] = ()
    retry_at: float | None = None
    """When the next attempt is possible; None: not known, or at once."""
    command: str = ""
    """Next command for a person; empty where there is nothing to do but to wait."""
    unread: tuple[str, ...] = ()
    """What could not be read for it, a sentence each."""


def standing_at(
    name: StageName,
    text: str,
    *blockers: StageBlocker,
    command: str = "",
    retry_at: float | None = None,
) -> Stage:
    """The stage at which a change stands."""
    return Stage(
        name=name,
        state=StageState.NOW,
        text=text,
        blockers=blockers,
        command=command,
        retry_at=retry_at,
    )
