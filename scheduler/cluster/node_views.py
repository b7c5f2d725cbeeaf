# SPDX-License-Identifier: Apache-2.0
"""A node as scoring sees it at one moment."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Protocol

import msgspec


class NoView(StrEnum):
    """Why a node cannot be scored: it scores 0 and is counted under this reason."""

    UNKNOWN_NODE = "unknown_node"
    NO_TOPOLOGY = "no_topology"
    BAD_TOPOLOGY = "bad_topology"
    OTHER_VERSION = "other_version"
    """Of the topology or of the state."""
    NO_STATE = "no_state"
    BAD_STATE = "bad_state"
    OTHER_GENERATION = "other_generation"
    """The state's masks follow another topology than the Node carries."""
    STALE = "stale"
    """The agent has not renewed its Lease for the Lease's duration."""


class ScoringView(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """What is known of a node whose agent has renewed its Lease lately.

    Its hash is kept: a call looks up thousands, and most of them are equal.
    """

    gen: str
    """Its topology class: the key of its score table."""
    free: int
    """Mask of the GPUs that nobody has, those that bound pods will have taken out already."""
    ok: int
    """Mask of the GPUs that are allocated whole."""
    sure: bool = True
    """Whether the masks agree with the number of GPUs that bound pods ask for."""
    clique: str | None = None
    """NVLink clique across nodes, from label ``nvidia.com/gpu.clique``."""


class Fleet(Protocol):
    """All nodes. Thread-safe; never waits for anything."""

    def views(self, nodes: Iterable[str]) -> list[ScoringView | NoView]:
        """Of these nodes at one moment, in their order."""

    def nodes_of(self, job: str) -> Iterable[str]:
        """Nodes that have pods of this job."""
