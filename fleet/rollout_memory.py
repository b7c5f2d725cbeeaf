# SPDX-License-Identifier: Apache-2.0
"""Outcomes of each rollout's changes so far, by which canary and circuit breaker decide. Pure.

Nodes are counted, not changes: an agent that reports one outcome after the other moves the count of
failed nodes by one at most, and its reports about another node's request count for nothing. A
failure that it reports may be what another node's success ends a row for; that success then ends
no later row, so that the row may be longer than without it, and stops the rollout sooner.
It stands in ``gpuscape.io/mig-rollouts`` on the leader's Lease, so that it outlives every
coordinator; a person who deletes the annotation lets stopped rollouts go on. Times are whole
seconds since 1970.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from api import keys, limits
from api.mig_outcome import Outcome
from api.versioned import VersionedFormat

VERSION: Final = 2
MOST_ROLLOUTS: Final = 32
REMEMBERED_REQUESTS: Final = 8
REMEMBERED_NODES: Final = 8
"""Nodes that a rollout remembers of each kind; one that failed before so many others may count
twice."""
_MOST_DESIRED: Final = 32
_DIGITS: Final = 8
FORGET_SECONDS: Final = 3600
"""A rollout that no node takes part in any more is forgotten after this time."""

Text = Annotated[str, Meta(max_length=256)]
Digests = Annotated[str, Meta(pattern=rf"^([0-9a-f]{{{_DIGITS}}})*$")]
"""Digests one after the other, since the Lease has room for 500 characters of a rollout."""


class UnreportedEnd(StrEnum):
    """How a change counts without an outcome of its agent."""

    LATE = "late"
    """There is no outcome within the time that a change may take."""
    PLUGIN = "device-plugin-not-registered"
    """The layout is there, and the node does not offer it."""
    GONE = "gone"
    """The node does not exist any more; does not count for canary or breaker."""


CountedOutcome = Outcome | UnreportedEnd
"""How one change counts."""
FAILURES: Final[frozenset[CountedOutcome]] = frozenset(
    {Outcome.ROLLED_BACK, Outcome.STUCK, UnreportedEnd.LATE, UnreportedEnd.PLUGIN}
)


class RolloutCounts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The counted outcomes of one rollout. Each node counts once, by its newest outcome."""

    desired: Text
    """Beginning of the desired layout, for people."""
    applied: int = 0
    """Changes, for people."""
    failed: int = 0
    """Nodes."""
    in_row: int = 0
    """Nodes that failed in a row, since a success of another node."""
    failed_at: int = 0
    """When the last failure was counted."""
    proven_at: int = 0
    """When the layout was proven; 0: it is not."""
    counted_at: int = 0
    """Time when an outcome was last counted."""
    counted: Digests = ""
    """Requests that were counted last, each with its node, so that none counts twice."""
    failed_nodes: Digests = ""
    """Failed nodes, in the order in which they failed."""
    reset_by: Digests = ""
    """Nodes whose success has ended a row: none does so twice."""
    reported_by: Digests = ""
    """The first node that reported a success of which the Node shows nothing."""


class RolloutMemory(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The rollouts, by the digest of the desired layout."""

    v: Literal[2]
    rollouts: dict[Text, RolloutCounts] = {}


EMPTY: Final = RolloutMemory(v=VERSION)


def rollout_id(rollout: str) -> str:
    """A short name of a rollout."""
    return _digest(rollout, 12)


def node_digest(uid: str) -> str:
    """A short name of a node."""
    return _digest(uid, _DIGITS)


def has_failed(counts: RolloutCounts, uid: str) -> bool:
    """Whether a node's newest end is a failure."""
    return node_digest(uid) in _split(counts.failed_nodes)


def is_counted(memory: RolloutMemory, rollout: str, uid: str, request: str) -> bool:
    """Whether the end of a node's request is in there; another node's of the same id is not."""
    counts = memory.rollouts.get(rollout_id(rollout))
    return counts is not None and _node_request(uid, request) in _split(counts.counted)


def is_full(memory: RolloutMemory) -> bool:
    """Whether a rollout that is not in there would push out one that has failed."""
    rollouts = memory.rollouts.values()
    return len(rollouts) >= MOST_ROLLOUTS and all(counts.failed for counts in rollouts)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEnd:
    """How one node's change ended."""

    rollout: str
    """Name of the rollout, as :attr:`fleet.mig_node.MigNode.rollout`."""
    uid: str
    """UID of the Node."""
    request: str
    outcome: CountedOutcome
    is_shown: bool = False
    """The kubelet offers what the layout has, and did not before: not the agent's word alone."""


def with_end(memory: RolloutMemory, end: NodeEnd, now: int) -> RolloutMemory:
    """The memory with one more end; unchanged where it is in there, or is one that never counts."""
    name = rollout_id(end.rollout)
    text = "".join(
        character if character.isprintable() else " " for character in end.rollout[:_MOST_DESIRED]
    )
    before = memory.rollouts.get(name, RolloutCounts(desired=text))
    counts = end.outcome in FAILURES or end.outcome is Outcome.APPLIED
    if not counts or is_counted(memory, end.rollout, end.uid, end.request):
        return memory
    failed = end.outcome in FAILURES
    after = _failed(before, end, now) if failed else _succeeded(before, end, now)
    ends = _with(before.counted, _node_request(end.uid, end.request), REMEMBERED_REQUESTS)
    after = msgspec.structs.replace(after, counted_at=now, counted=ends)
    kept = {key: counts for key, counts in memory.rollouts.items() if key != name}
    while len(kept) >= MOST_ROLLOUTS:
        # a rollout that was stopped goes on once it is forgotten: the least failed goes first
        del kept[min(kept, key=lambda key: (kept[key].failed, kept[key].counted_at))]
    return RolloutMemory(v=VERSION, rollouts=kept | {name: after})


def _failed(before: RolloutCounts, end: NodeEnd, now: int) -> RolloutCounts:
    node = node_digest(end.uid)
    if has_failed(before, end.uid):
        return before
    return msgspec.structs.replace(
        before,
        failed=before.failed + 1,
        in_row=before.in_row + 1,
        failed_at=now,
        failed_nodes=_with(before.failed_nodes, node, REMEMBERED_NODES),
    )


def _succeeded(before: RolloutCounts, end: NodeEnd, now: int) -> RolloutCounts:
    """Drop the node's own failure; end the row of others' failures, unless it ended one before."""
    node = node_digest(end.uid)
    failed_nodes, reset_by = _split(before.failed_nodes), before.reset_by
    row = failed_nodes[-before.in_row :] if before.in_row else ()
    in_row = before.in_row - (node in row)
    if in_row and node not in _split(reset_by):
        in_row, reset_by = 0, _with(reset_by, node, REMEMBERED_NODES)
    is_proof = end.is_shown or before.reported_by not in ("", node)
    return msgspec.structs.replace(
        before,
        applied=before.applied + 1,
        failed=before.failed - (node in failed_nodes),
        in_row=in_row,
        proven_at=before.proven_at or (now if is_proof else 0),
        failed_nodes="".join(digest for digest in failed_nodes if digest != node),
        reset_by=reset_by,
        reported_by=before.reported_by or node,
    )


def _node_request(uid: str, request: str) -> str:
    return _digest(f"{uid}/{request}", _DIGITS)


def _split(digests: str) -> tuple[str, ...]:
    return tuple(digests[start : start + _DIGITS] for start in range(0, len(digests), _DIGITS))


def _with(digests: str, new: str, limit: int) -> str:
    return (digests + new)[-limit * _DIGITS :]


def _digest(text: str, length: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def without_ended(memory: RolloutMemory, present: Collection[str], now: int) -> RolloutMemory:
    """The memory without rollouts that are over: ``present`` are the digests of the others."""
    rollouts, recent = memory.rollouts.items(), now - FORGET_SECONDS
    kept = {name: its for name, its in rollouts if name in present or its.counted_at > recent}
    return memory if len(kept) == len(memory.rollouts) else RolloutMemory(v=VERSION, rollouts=kept)


FORMAT: Final = VersionedFormat(
    name=f"annotation {keys.MIG_ROLLOUTS}",
    remedy="delete it, and stopped rollouts go on",
    content=RolloutMemory,
    version=VERSION,
    most_length=limits.MOST_ROLLOUTS_CHARACTERS,
)
encode, decode = FORMAT.text, FORMAT.decode
