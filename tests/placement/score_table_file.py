# SPDX-License-Identifier: Apache-2.0
"""The score table of one topology class as a file, for a scheduler without scoring logic.

A plugin of kube-scheduler would look up in it what :mod:`placement` computed; there is none yet.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Final, Literal

import msgspec

from api.gpu_request import GpuRequest
from api.versioned import VersionedFormat

VERSION: Final = 3
"""Version of the format and of the formula behind scores: placement.score."""
_HASH_DIGITS = 16
_MOST_BYTES = 16 * 2**20
"""A table of 8 GPUs that is complete for pods of one container takes about 150 kB."""


class ScoreRow(msgspec.Struct, frozen=True, kw_only=True):
    """Scores of one pod request: for each mask of free GPUs, ascending, score and likeliest set.

    A mask that is left out serves no such pod, as far as the table knows.
    """

    wish: GpuRequest
    free: tuple[int, ...]
    scores: tuple[int, ...]
    """Score of each mask: its speed is relative to ``best``, and the fleet's state is left out."""
    speeds: tuple[int, ...]
    """Expected speed of each mask in hundredths of a GB/s, for a node whose product has a class
    with better sets."""
    sets: tuple[int, ...]
    """Likeliest set of GPUs of each mask; 0 where the pod is most likely refused."""
    best: int
    """The best speed that the class has for the request; 0 where nothing depends on it."""


class ScoreTableFile(msgspec.Struct, frozen=True, kw_only=True):
    """The score table of one topology class; its rows are in the order of their requests' text."""

    v: Literal[3] = VERSION
    gen: str
    hash: str = ""
    """First digits of the SHA-256 of the table with an empty hash: equal for equal tables."""
    rows: tuple[ScoreRow, ...]

    def score(self, free: int, wish: GpuRequest) -> int | None:
        """The score of a request for these free GPUs; None for a request not in the table."""
        score_and_speed = self.score_and_speed(free, wish)
        return None if score_and_speed is None else score_and_speed[0]

    def score_and_speed(self, free: int, wish: GpuRequest) -> tuple[int, int] | None:
        """Score and expected speed of a request; both 0 for GPUs that cannot serve it.

        None for a request that is not in the table.
        """
        for row in self.rows:
            if row.wish == wish:
                both = zip(row.scores, row.speeds, strict=True)
                return dict(zip(row.free, both, strict=True)).get(free, (0, 0))
        return None


def with_hash(table: ScoreTableFile) -> ScoreTableFile:
    """The table with the hash of its content."""
    return msgspec.structs.replace(table, hash=_hash(table))


def _hash(table: ScoreTableFile) -> str:
    plain = msgspec.json.encode(msgspec.structs.replace(table, hash=""))
    return hashlib.sha256(plain).hexdigest()[:_HASH_DIGITS]


def _faults(table: ScoreTableFile) -> Iterator[str]:
    for index, row in enumerate(table.rows):
        if len({*map(len, (row.free, row.scores, row.speeds, row.sets))}) > 1:
            yield f"the columns of `rows[{index}]` differ in length"
    if table.hash != _hash(table):
        yield "`hash` is not that of its content"


_FORMAT: Final = VersionedFormat(
    name="score table",
    remedy="delete the file and it is written again",
    content=ScoreTableFile,
    version=VERSION,
    most_length=_MOST_BYTES,
    faults=_faults,
)
encode, decode = _FORMAT.encode, _FORMAT.decode
