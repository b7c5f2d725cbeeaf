"""Score tables as bytes, for fronts that look up and have no scoring logic of their own."""

from __future__ import annotations

import hashlib
import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Final, Literal

import msgspec

from api.gpu_request import GpuRequest, Link, wish
from base.errors import BadInput
from scheduler.scores.score_table import PlacementOutcome

VERSION: Final = 2
"""Also of what scores are made of: scheduler.scores.score."""
_HASH_DIGITS = 16


class ScoreRow(msgspec.Struct, frozen=True, kw_only=True):
    """One wish: for each mask of free GPUs, ascending, its score and its likeliest set.

    A mask that is left out serves no such pod, as far as the sheet knows.
    """

    wish: GpuRequest
    free: tuple[int, ...]
    scores: tuple[int, ...]
    sets: tuple[int, ...]
    """0 where the pod is most likely refused."""


class ScoreTableFile(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known of one class. Its rows are in the order of their wishes' text."""

    v: Literal[2] = VERSION
    gen: str
    hash: str = ""
    """First digits of the SHA-256 of the same with an empty hash: equal for equal tables."""
    rows: tuple[ScoreRow, ...]

    def score(self, free: int, wish: GpuRequest) -> int | None:
        """As the table has it; None for a wish that it does not have."""
        for row in self.rows:
            if row.wish == wish:
                return dict(zip(row.free, row.scores, strict=True)).get(free, 0)
        return None


class _Versioned(msgspec.Struct):
    v: int


def every_wish(n: int) -> Iterator[GpuRequest]:
    """Those of pods with one container, on nodes with so many GPUs."""
    sizes, nics = range(1, n + 1), (False, True)
    for gpus, link, nic in itertools.product(sizes, Link, nics):
        yield wish(gpus, link=link, nic=nic)


def sheet(gen: str, outcomes: Mapping[tuple[int, GpuRequest], PlacementOutcome]) -> ScoreTableFile:
    """The sheet of a class with these outcomes."""
    by_wish: dict[GpuRequest, dict[int, PlacementOutcome]] = defaultdict(dict)
    for (free, asked), outcome in outcomes.items():
        by_wish[asked][free] = outcome
    rows = [_row(asked, found) for asked, found in by_wish.items()]
    rows.sort(key=lambda row: msgspec.json.encode(row.wish))
    plain = ScoreTableFile(gen=gen, rows=tuple(rows))
    return msgspec.structs.replace(plain, hash=_hash(plain))


def encode(sheet: ScoreTableFile) -> bytes:
    """Compact JSON; the same for the same sheet."""
    return msgspec.json.encode(sheet)


def decode(data: bytes) -> ScoreTableFile | None:
    """The sheet in ``data``; None for a version other than ours.

    Raises BadInput for anything that ``encode`` did not write.
    """
    try:
        if msgspec.json.decode(data, type=_Versioned).v != VERSION:
            return None
        found = msgspec.json.decode(data, type=ScoreTableFile)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise _damaged(str(error)) from error
    if found.hash != _hash(found):
        raise _damaged("its hash is not that of its content")
    return found


def _row(asked: GpuRequest, outcomes: Mapping[int, PlacementOutcome]) -> ScoreRow:
    served = [(free, outcomes[free]) for free in sorted(outcomes) if outcomes[free].score]
    return ScoreRow(
        wish=asked,
        free=tuple(free for free, _ in served),
        scores=tuple(outcome.score for _, outcome in served),
        sets=tuple(outcome.likely for _, outcome in served),
    )


def _hash(sheet: ScoreTableFile) -> str:
    plain = msgspec.json.encode(msgspec.structs.replace(sheet, hash=""))
    return hashlib.sha256(plain).hexdigest()[:_HASH_DIGITS]


def _damaged(why: str) -> BadInput:
    return BadInput(f"score table is damaged: {why}; delete the file and it is written again")
