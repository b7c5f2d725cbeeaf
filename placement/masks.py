# SPDX-License-Identifier: Apache-2.0
"""Sets of GPUs of one node as the bits of a number; bit 0 is the first GPU of the annotation."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator


def members(mask: int) -> tuple[int, ...]:
    """The places in the set, lowest first."""
    return tuple(place for place in range(mask.bit_length()) if mask >> place & 1)


def union(places: Iterable[int]) -> int:
    """The set of these places."""
    mask = 0
    for place in places:
        mask |= 1 << place
    return mask


def subsets(mask: int, size: int) -> Iterator[int]:
    """All sets of ``size`` places within ``mask``."""
    return map(union, itertools.combinations(members(mask), size))


def pairs(mask: int) -> Iterator[tuple[int, int]]:
    """All pairs within the set, each once."""
    return itertools.combinations(members(mask), 2)
