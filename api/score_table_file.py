# SPDX-License-Identifier: Apache-2.0
"""The score table of one topology class as a file, for a scheduler without scoring logic.

A plugin of kube-scheduler looks up in it what :mod:`scheduler.scores` computed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Final, Literal

import msgspec

from api.gpu_request import GpuRequest
from api.versioned import VersionedFormat

VERSION: Final = 3
"""Also of what scores are made of: scheduler.scores.score."""
_HASH_DIGITS = 16
_MOST_BYTES = 16 * 2**20
"""A table of 8 GPUs that is complete for pods of one container takes about 150 kB."""


class ScoreRow(msgspec.Struct, frozen=True, kw_only=True):
    """One wish: for each mask of free GPUs, ascending, its score and its likeliest set.

    A mask that is left out serves no such pod, as far as the table knows.
    """

    wish: GpuRequest
    free: tuple[int, ...]
    scores: tuple[int, ...]
    """With the speed relative to ``best``, and without what is of the fleet."""
    speeds: tuple[int, ...]
    """Expected, in hundredths of a GB/s: for a node whose product has a class with better sets."""
    sets: tuple[int, ...]
    """0 where the pod is most likely refused."""
    best: int
    """The best speed that the class has for the wish; 0 where nothing depends on it."""


class ScoreTableFile(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known of one class. Its rows are in the order of their wishes' text."""

    v: Literal[3] = VERSION
    gen: str
    hash: str = ""
    """First digits of the SHA-256 of the same with an empty hash: equal for equal tables."""
    rows: tuple[ScoreRow, ...]

    def score(self, free: int, wish: GpuRequest) -> int | None:
        """As the table has it; None for a wish that it does not have."""
        found = self.score_and_speed(free, wish)
        return None if found is None else found[0]

    def score_and_speed(self, free: int, wish: GpuRequest) -> tuple[int, int] | None:
        """The same with the expected speed; both 0 for GPUs that cannot serve the wish."""
        for row in self.rows:
            if row.wish == wish:
                both = zip(row.scores, row.speeds, strict=True)
                return dict(zip(row.free, both, strict=True)).get(free, (0, 0))
        return None


def with_hash(table: ScoreTableFile) -> ScoreTableFile:
    """The same with the hash of its content."""
    return msgspec.structs.replace(table, hash=_hash(table))


def encode(table: ScoreTableFile) -> bytes:
    """The bytes of the file: compact JSON, the same for equal tables."""
    return _FORMAT.encode(table)


def decode(data: bytes) -> ScoreTableFile | None:
    """The table in ``data``; None for a version other than ours.

    Raises BadInput for anything that ``encode`` did not write.
    """
    return _FORMAT.decode(data)


def _hash(table: ScoreTableFile) -> str:
    plain = msgspec.json.encode(msgspec.structs.replace(table, hash=""))
    return hashlib.sha256(plain).hexdigest()[:_HASH_DIGITS]


def _faults(found: ScoreTableFile) -> Iterator[str]:
    for at, row in enumerate(found.rows):
        if len({*map(len, (row.free, row.scores, row.speeds, row.sets))}) > 1:
            yield f"the columns of `rows[{at}]` differ in length"
    if found.hash != _hash(found):
        yield "`hash` is not that of its content"


_FORMAT: Final = VersionedFormat(
    name="score table",
    remedy="delete the file and it is written again",
    content=ScoreTableFile,
    version=VERSION,
    most_length=_MOST_BYTES,
    faults=_faults,
)
