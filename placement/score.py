# SPDX-License-Identifier: Apache-2.0
"""The one number that outcomes are compared by: of its aims the first that differs decides.

Each aim has a field of bits, the weightiest first, so that a greater number is a better
outcome whoever reads it, and whatever classes of nodes the two come from.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Final

BROKEN, KEPT_WHOLE, FILLED = range(3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Aims:
    """Parts of a score, the weightiest first; more is better in each."""

    taken: int
    """Percent of the odds that the node takes the pod and does not refuse it."""
    linked: int = 0
    """Percent of the odds that the pod's link wish is met."""
    speed: int = 0
    """Expected speed, in parts of FULL_SPEED, which is the best that the node's product has."""
    whole: int = KEPT_WHOLE
    """FILLED where the pod takes all that is free on the node, BROKEN where it breaks up a node
    that is entirely free, else KEPT_WHOLE."""
    share: int = 0
    """MOST_SHARE for the product whose turn it is. Not in tables: it is of the fleet."""
    clique: int = 0
    """1 in the NVLink clique of the pod's job. Not in tables: it is not of the node alone."""
    nic: int = 0
    """Closeness to a NIC, 0 to 50."""
    kept: int = 0
    """MOST_KEPT less what others are expected to lose, in hundredths of a GPU."""


_BITS: Final = {
    "taken": 7, "linked": 7, "speed": 16, "whole": 2, "share": 3, "clique": 1, "nic": 6, "kept": 11,
}  # fmt: skip
"""53 in all: what every JSON reader holds exactly."""
_ORDER: Final = tuple((field.name, _BITS[field.name]) for field in fields(Aims))


def _place(name: str) -> int:
    """Number of bits below a field."""
    names = list(_BITS)
    return sum(_BITS[below] for below in names[names.index(name) + 1 :])


_CLIQUE: Final = 1 << _place("clique")
_SHARE: Final = _place("share")
_SPEED: Final = _place("speed")
_WHOLE: Final = _place("whole")
_BUT_SPEED: Final = ~((1 << _BITS["speed"]) - 1 << _SPEED)

FULL_SPEED: Final = 50_000
MOST_SHARE: Final = (1 << _BITS["share"]) - 1
MOST_KEPT: Final = (1 << _BITS["kept"]) - 1


def score(aims: Aims) -> int:
    """The score as one number; an aim outside of its field counts as the field's nearest."""
    number = 0
    for name, bits in _ORDER:
        largest = (1 << bits) - 1
        number = number << bits | min(max(getattr(aims, name), 0), largest)
    return number


@lru_cache(maxsize=4096)
def aims(score: int) -> Aims:
    """The aims that a score was made of."""
    values = {}
    for name, bits in reversed(_ORDER):
        values[name] = score & (1 << bits) - 1
        score >>= bits
    return Aims(**values)


def relative_speed(speed: int, best: int) -> int:
    """The aim for a speed of which ``best`` is the best, both in one unit; all are equal to a pod
    without a speed, whose best is 0."""
    return min(FULL_SPEED * speed // best, FULL_SPEED) if best else FULL_SPEED


def with_speed(score: int, speed: int) -> int:
    """The score of the same outcome with another aim for its speed."""
    return score & _BUT_SPEED | speed << _SPEED


def without_filling(score: int) -> int:
    """The score of the same outcome where it is not counted that the pod fills the node."""
    whole = score >> _WHOLE & (1 << _BITS["whole"]) - 1
    return score - (FILLED - KEPT_WHOLE << _WHOLE) if whole == FILLED else score


def without_sparing(score: int) -> int:
    """The score of the same outcome where it is not counted that the pod breaks up the node."""
    whole = score >> _WHOLE & (1 << _BITS["whole"]) - 1
    return score + (KEPT_WHOLE - BROKEN << _WHOLE) if whole == BROKEN else score


def with_fullness(score: int, part: float) -> int:
    """The score of the same outcome where the fullest node counts, 0 to 1, and not what others
    lose."""
    return score & ~MOST_KEPT | round(MOST_KEPT * part)


def completed_score(score: int, *, share: int, in_clique: bool) -> int:
    """A table's score, completed with the aims that depend on more than the node."""
    return score | share << _SHARE | (_CLIQUE if in_clique else 0)
