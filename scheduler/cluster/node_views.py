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
    """The version of the topology or of the state is another one."""
    NO_STATE = "no_state"
    BAD_STATE = "bad_state"
    OTHER_GENERATION = "other_generation"
    """The state's masks follow another topology than the Node carries."""
    STALE = "stale"
    """The agent has not renewed its Lease for the Lease's duration."""


class NoOutcome(StrEnum):
    """Why a node with a view is not scored for a pod: it is counted under this reason too."""

    PENDING = "pending"
    """Its outcome is being computed: from one of the next requests on it is scored."""
    TOO_MANY_GPUS = "too_many_gpus"
    """The node has more than any score table covers."""
    TOO_MANY_CLASSES = "too_many_classes"
    """The fleet has more topology classes than there is room for, and this was used least."""
    TOO_MANY_CONTAINERS = "too_many_containers"
    """More containers of the pod ask for GPUs than can be foreseen on such a node."""
    GIVEN_UP = "given_up"
    """Its outcome takes too much work: the node is ranked as neither good nor bad."""


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
    product: str = ""
    """Label ``nvidia.com/gpu.product`` and number of GPUs, as ``model/8``. Without that label the
    class is a product of its own."""

    def __post_init__(self) -> None:
        if not self.product:
            msgspec.structs.force_setattr(self, "product", self.gen)


View = ScoringView | NoView


class Fleet(Protocol):
    """All nodes. Thread-safe; never waits for anything."""

    def views(self, nodes: Iterable[str]) -> list[View]:
        """Views of these nodes at one moment, in their order."""

    def nodes_of(self, job: str) -> Iterable[str]:
        """Nodes that have pods of this job, those of its first pods first."""
