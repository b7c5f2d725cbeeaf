# SPDX-License-Identifier: Apache-2.0
"""Feasible MIG layouts by brute force, from tables that are written down here once more.

Nothing of the simulator is used: profiles, places and engines are those that NVIDIA publishes in
the MIG user guide (`nvidia-smi mig -lgip`, `-lgipp`), so that a slip there is seen here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

Layout = tuple[tuple[str, int], ...]
"""Profile name and start of each instance, by start."""


@dataclass(frozen=True, slots=True)
class Row:
    """A profile: places, how many there may be, and its engines that are scarce."""

    size: int
    starts: tuple[int, ...]
    most: int
    engines: tuple[int, ...] = (0, 0, 0)
    """Decoders, JPEG, OFA."""


@dataclass(frozen=True, slots=True)
class Family:
    """GPUs that are cut alike."""

    rows: Mapping[str, Row]
    engines: tuple[int, ...]
    """Of the whole GPU."""


ANY = tuple(range(7))
SEVEN = Family(
    {
        "1g": Row(1, ANY, 7),
        "2g": Row(2, (0, 2, 4), 3, (1, 0, 0)),
        "3g": Row(4, (0, 4), 2, (2, 0, 0)),
        "4g": Row(4, (0,), 1, (2, 0, 0)),
        "7g": Row(8, (0,), 1, (5, 1, 1)),
        "1g double": Row(2, (0, 2, 4, 6), 4, (1, 0, 0)),
        "1g+me": Row(1, ANY, 1, (1, 1, 1)),
    },
    (5, 1, 1),
)
"""A100, and by the same counts Hopper and B200."""
FOUR = Family(
    {
        "1g": Row(1, (0, 1, 2, 3), 4),
        "2g": Row(2, (0, 2), 2, (2, 0, 0)),
        "4g": Row(4, (0,), 1, (4, 1, 1)),
        "1g+me": Row(1, (0, 1, 2, 3), 1, (1, 1, 1)),
        "2g+me": Row(2, (0, 2), 1, (2, 1, 1)),
    },
    (4, 1, 1),
)
"""A30."""
_QUARTERS, _HALVES = (0, 3, 6, 9), (0, 6)
TWELVE = Family(
    {
        "1g": Row(3, _QUARTERS, 4, (1, 1, 0)),
        "1g+me": Row(3, _QUARTERS, 1, (1, 1, 1)),
        "1g+gfx": Row(3, _QUARTERS, 4, (1, 1, 0)),
        "1g+me.all": Row(3, _QUARTERS, 1, (4, 4, 1)),
        "1g-me": Row(3, _QUARTERS, 4),
        "2g": Row(6, _HALVES, 2, (2, 2, 0)),
        "2g+gfx": Row(6, _HALVES, 2, (2, 2, 0)),
        "2g+me.all": Row(6, _HALVES, 1, (4, 4, 1)),
        "2g-me": Row(6, _HALVES, 2),
        "4g": Row(12, (0,), 1, (4, 4, 1)),
        "4g+gfx": Row(12, (0,), 1, (4, 4, 1)),
    },
    (4, 4, 1),
)
"""RTX PRO 6000 Blackwell."""


def layouts(family: Family, names: tuple[str, ...] = ()) -> Iterator[Layout]:
    """All that are allowed, of all profiles or those named; the empty one is one."""
    rows = {name: row for name, row in family.rows.items() if not names or name in names}

    def grow(made: Layout, unit: int) -> Iterator[Layout]:
        yield made
        for name, row in rows.items():
            for start in row.starts:
                more = (*made, (name, start))
                if start >= unit and _allowed(family, more):
                    yield from grow(more, start + row.size)

    return grow((), 0)


def multisets(family: Family, names: tuple[str, ...] = ()) -> set[frozenset[tuple[str, int]]]:
    """Which profiles there may be together, and how many of each; without the empty one."""
    found = {
        frozenset(Counter(name for name, _ in layout).items()) for layout in layouts(family, names)
    }
    return found - {frozenset()}


def maximal(sets: set[frozenset[tuple[str, int]]]) -> set[frozenset[tuple[str, int]]]:
    """Those that no other one contains."""
    counters = {one: Counter(dict(one)) for one in sets}
    return {one for one in sets if not any(counters[one] < other for other in counters.values())}


def _allowed(family: Family, layout: Layout) -> bool:
    counts = Counter(name for name, _ in layout)
    if any(count > family.rows[name].most for name, count in counts.items()):
        return False
    return all(
        sum(family.rows[name].engines[kind] for name, _ in layout) <= total
        for kind, total in enumerate(family.engines)
    )
