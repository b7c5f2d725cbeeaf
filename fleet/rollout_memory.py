# SPDX-License-Identifier: Apache-2.0
"""How the changes of each rollout ended so far: what canary and circuit breaker go by. Pure.

It stands in ``gpuscape.io/mig-rollouts`` on the leader's Lease, so that it outlives every
coordinator; a person who deletes the annotation lets stopped rollouts go on. Times are whole
seconds since 1970.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from enum import StrEnum
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from api import keys, limits
from api.mig_request_annotation import RequestId
from api.versioned import VersionedFormat

VERSION: Final = 1
MOST_ROLLOUTS: Final = 32
REMEMBERED_REQUESTS: Final = 8
_MOST_ASKED: Final = 64
FORGET_SECONDS: Final = 3600
"""A rollout that no node takes part in any more is forgotten after this time."""

Text = Annotated[str, Meta(max_length=256)]


class CountedEnd(StrEnum):
    """How one change counts."""

    APPLIED = "applied"
    PREVIOUS = "previous"
    HELD = "held"
    LATE = "late"
    """No end within the time that a change may take."""
    PLUGIN = "device-plugin-not-registered"
    """The layout is there, and the node does not offer it."""
    UNTOUCHED = "untouched"
    """Nothing was changed; does not count for canary or breaker."""
    GONE = "gone"
    """The node does not exist any more; does not count either."""


FAILURES: Final = frozenset(
    {CountedEnd.PREVIOUS, CountedEnd.HELD, CountedEnd.LATE, CountedEnd.PLUGIN}
)


class RolloutCounts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The counted ends of one rollout."""

    asked: Text
    """For people."""
    applied: int = 0
    failed: int = 0
    in_row: int = 0
    """Failures since the last success."""
    proven_at: int = 0
    """When the first change succeeded; 0: none has."""
    at: int = 0
    """When it was last counted, or taken part in."""
    requests: tuple[RequestId, ...] = ()
    """Those counted last, so that none counts twice."""


class RolloutMemory(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The rollouts, by the digest of what is asked for."""

    v: Literal[1]
    rollouts: dict[Text, RolloutCounts] = {}


EMPTY: Final = RolloutMemory(v=1)


def rollout_id(asked: str) -> str:
    """A short name of what nodes are asked for."""
    return hashlib.sha256(asked.encode()).hexdigest()[:12]


def counted(
    memory: RolloutMemory, asked: str, request: str, outcome: CountedEnd, now: int
) -> RolloutMemory:
    """The memory with one more end; unchanged where it is in there, or is one that never counts."""
    name = rollout_id(asked)
    before = memory.rollouts.get(name, RolloutCounts(asked=asked[:_MOST_ASKED]))
    if request in before.requests or outcome in (CountedEnd.UNTOUCHED, CountedEnd.GONE):
        return memory
    requests = (*before.requests, request)[-REMEMBERED_REQUESTS:]
    if outcome in FAILURES:
        after = msgspec.structs.replace(
            before, failed=before.failed + 1, in_row=before.in_row + 1, at=now, requests=requests
        )
    else:
        after = msgspec.structs.replace(
            before,
            applied=before.applied + 1,
            in_row=0,
            proven_at=before.proven_at or now,
            at=now,
            requests=requests,
        )
    kept = {it: counts for it, counts in memory.rollouts.items() if it != name}
    while len(kept) >= MOST_ROLLOUTS:
        # a rollout that was stopped goes on once it is forgotten: the least failed goes first
        del kept[min(kept, key=lambda it: (kept[it].failed, kept[it].at))]
    return RolloutMemory(v=1, rollouts=kept | {name: after})


def without_ended(memory: RolloutMemory, present: Collection[str], now: int) -> RolloutMemory:
    """The memory without rollouts that are over: ``present`` are the digests of the others."""
    kept = {
        name: counts
        for name, counts in memory.rollouts.items()
        if name in present or now - counts.at < FORGET_SECONDS
    }
    return memory if len(kept) == len(memory.rollouts) else RolloutMemory(v=1, rollouts=kept)


def encode(memory: RolloutMemory) -> str:
    """The annotation's text: compact JSON."""
    return FORMAT.encode(memory).decode()


def decode(text: str) -> RolloutMemory | None:
    """The annotation in ``text``; None for a major version other than ours. Raises BadInput."""
    return FORMAT.decode(text)


FORMAT: Final = VersionedFormat(
    name=f"annotation {keys.MIG_ROLLOUTS}",
    remedy="delete it, and stopped rollouts go on",
    content=RolloutMemory,
    version=VERSION,
    most_length=limits.MOST_ROLLOUTS_CHARACTERS,
)
