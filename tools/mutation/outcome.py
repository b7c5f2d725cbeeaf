# SPDX-License-Identifier: Apache-2.0
"""Count what became of the mutants, and show it as tables."""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

NOTICED: Final = "noticed"
SURVIVED: Final = "survived"
WITHOUT: Final = "without a test"
TIMED_OUT: Final = "timed out"
IMPORTED: Final = "imported"
"""Not known yet: the function runs while modules are imported, so a new process must try it."""
CONTROL: Final = "unbroken:"
"""Stands before the name of a mutant whose tests are to be run with nothing broken."""
OUTCOMES: Final = (NOTICED, TIMED_OUT, SURVIVED, WITHOUT)
_HEADER: Final = """\
| {} | mutants | tried | noticed | timed out | survived | without a test | share | 95 % |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
"""


def sample(names: Sequence[str], size: int, seed: str) -> list[str]:
    """``size`` of the names, the same ones for the same seed; all where there are no more."""
    if len(names) <= size:
        return list(names)
    return random.Random(seed).sample(sorted(names), size)  # noqa: S311 - not for secrets


def renewed(
    every: Iterable[str], kept: Mapping[str, str], latest: Mapping[str, str]
) -> dict[str, str]:
    """What became of mutants after some were tried anew: mutant to outcome.

    ``every`` has those that there are now; of the others nothing is left.
    """
    merged = {**kept, **latest}
    return {name: merged[name] for name in every if name in merged}


def interval(noticed: int, tried: int) -> tuple[float, float]:
    """Wilson's interval of the share at 95 %; 0 to 1 of nothing tried."""
    if not tried:
        return 0.0, 1.0
    z, share = 1.96, noticed / tried
    middle = share + z * z / (2 * tried)
    spread = z * math.sqrt(share * (1 - share) / tried + z * z / (4 * tried * tried))
    return tuple(  # type: ignore[return-value]
        min(1.0, max(0.0, bound / (1 + z * z / tried)))
        for bound in (middle - spread, middle + spread)
    )


def module(name: str) -> str:
    """The module that a mutant is of: what stands before mutmut's ``x_`` and ``xǁ``."""
    return name.removeprefix(CONTROL).rpartition(".")[0]


def table(outcomes: Mapping[str, str], known: Iterable[str]) -> str:
    """Markdown, a row for each package.

    ``outcomes`` is mutant to outcome, ``known`` has all mutants, tried or not. A mutant that makes
    its tests hang counts as noticed; one that no test reaches does not.
    """
    return _table("package", outcomes, known, lambda name: name.partition(".")[0])


def module_table(outcomes: Mapping[str, str], known: Iterable[str]) -> str:
    """Markdown, a row for each module; see :func:`table`."""
    return _table("module", outcomes, known, module)


def _table(
    head: str, outcomes: Mapping[str, str], known: Iterable[str], group_of: Callable[[str], str]
) -> str:
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for name, outcome in outcomes.items():
        counts[group_of(name)][outcome] += 1
    totals = Counter(group_of(name) for name in known)
    return _HEADER.format(head) + "".join(
        _row(name, total, counts[name]) for name, total in sorted(totals.items())
    )


def _row(name: str, total: int, count: Counter[str]) -> str:
    tried = sum(count[outcome] for outcome in OUTCOMES)
    noticed = count[NOTICED] + count[TIMED_OUT]
    share = f"{100 * noticed / tried:.0f} %" if tried else ""
    low, high = (round(100 * bound) for bound in interval(noticed, tried))
    # a module of which all was tried has no interval
    between = "" if not tried or tried == total else f"{low} to {high}"
    cells = [total, tried, *(count[outcome] for outcome in OUTCOMES), share, between]
    return f"| {name} | {' | '.join(map(str, cells))} |\n"
