"""Where the NVLinks of a machine's GPUs end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from discovery.simulator.machine import DirectLinks


@dataclass(frozen=True, slots=True)
class LinkEnd:
    """The far end of one link: a GPU's place in the machine's list, or None for a switch."""

    place: int | None = None


def link_ends(
    counts: Sequence[int], direct: Sequence[DirectLinks], *, switched: bool
) -> tuple[tuple[LinkEnd | None, ...], ...]:
    """By GPU and link: where it ends, None where it goes nowhere.

    ``counts`` are the links each GPU has. Direct links take the lowest free
    numbers at both ends, in the order they are listed.
    """
    if switched:
        return tuple((LinkEnd(),) * count for count in counts)
    used: list[list[LinkEnd]] = [[] for _ in counts]
    for pair in direct:
        used[pair.a] += [LinkEnd(pair.b)] * pair.links
        used[pair.b] += [LinkEnd(pair.a)] * pair.links
    return tuple(
        (*ends, *(None,) * (count - len(ends))) for ends, count in zip(used, counts, strict=True)
    )
