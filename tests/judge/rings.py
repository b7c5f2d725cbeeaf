# SPDX-License-Identifier: Apache-2.0
"""How many rings run at once through GPUs whose links carry so many channels each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import islice

Arc = tuple[int, int]
"""From one GPU to another: the two directions of a link are apart, and each is used once."""
Channels = dict[Arc, int]
"""How many channels each arc has room for; arcs without room are left out."""

_MOST_CUT = 8
"""Of more GPUs only each one alone is cut off, since there are too many parts."""
_MOST_RINGS = 10_000
_MOST_STEPS = 20_000
"""NCCL gives a search up too, after 16,384 steps. Source: NCCL 2.30, src/graph/search.h."""


def most_rings(gpus: Sequence[int], room: Channels, relayed: Collection[Arc] = ()) -> int:
    """The most rings through all GPUs that share no channel.

    ``relayed``: steps that may go through a third GPU of the set. For graphs with a great many
    rings it is the most that a bounded search finds.
    """
    bound = narrowest_cut(gpus, room)
    found = _one_by_one(gpus, dict(room), relayed) if bound else 0
    if found == bound:
        return found
    rings = sorted(set(islice(_rings(gpus, room, relayed), _MOST_RINGS)), key=len)
    return _Packing(gpus, rings, dict(room), bound, found).most()


def narrowest_cut(gpus: Sequence[int], room: Channels) -> int:
    """No more rings than this fit: every ring leaves every part of the set by a channel."""
    place = {gpu: at for at, gpu in enumerate(gpus)}
    arcs = [(place[here], place[there], room) for (here, there), room in room.items()]
    whole = (1 << len(gpus)) - 1
    parts = range(1, whole) if len(gpus) <= _MOST_CUT else (1 << at for at in range(len(gpus)))
    return min(
        sum(room for here, there, room in arcs if part >> here & 1 and not part >> there & 1)
        for part in parts
    )


def closes(gpus: Sequence[int], joined: Callable[[int, int], bool]) -> bool:
    """Whether a ring leads through all GPUs in steps between GPUs that are joined."""
    room = {(i, j): 1 for i in gpus for j in gpus if i != j and joined(i, j)}
    return next(_rings(gpus, room, ()), None) is not None


def _one_by_one(gpus: Sequence[int], room: Channels, relayed: Collection[Arc]) -> int:
    """How many rings fit where each takes the first way that is left."""
    count = 0
    while ring := next(_rings(gpus, room, relayed), None):
        count += 1
        for arc in ring:
            room[arc] -= 1
    return count


def _rings(
    gpus: Sequence[int], room: Channels, relayed: Collection[Arc]
) -> Iterator[tuple[Arc, ...]]:
    """The arcs of each ring, sorted; an arc stands there as often as the ring uses it."""
    start = gpus[0]
    used: Counter[Arc] = Counter()

    def steps(here: int, there: int) -> Iterator[tuple[Arc, ...]]:
        direct = ((here, there),)
        if _fits(direct, used, room):
            yield direct
        if (here, there) in relayed:
            for relay in gpus:
                path = ((here, relay), (relay, there))
                if relay not in (here, there) and _fits(path, used, room):
                    yield path

    def extend(here: int, left: frozenset[int]) -> Iterator[tuple[Arc, ...]]:
        for there in left or (start,):
            for path in steps(here, there):
                used.update(path)
                if left:
                    yield from extend(there, left - {there})
                else:
                    yield tuple(sorted(used.elements()))
                used.subtract(path)

    yield from extend(start, frozenset(gpus[1:]))


def _fits(path: tuple[Arc, ...], used: Counter[Arc], room: Channels) -> bool:
    return all(used[arc] < room.get(arc, 0) for arc in path)


class _Packing:
    """A search for the most rings at once, each as often as there is room."""

    def __init__(
        self,
        gpus: Sequence[int],
        rings: Sequence[tuple[Arc, ...]],
        room: Channels,
        bound: int,
        found: int,
    ) -> None:
        """``found``: as many are known to fit."""
        self._gpus = gpus
        self._rings = [Counter(ring) for ring in rings]
        self._room = room
        self._bound = bound
        self._best = found
        self._steps = 0

    def most(self) -> int:
        """The most that was found."""
        self._search(0, 0)
        return self._best

    def _search(self, first: int, count: int) -> None:
        self._best = max(self._best, count)
        for at in range(first, len(self._rings)):
            self._steps += 1
            if self._best >= self._bound or self._steps > _MOST_STEPS:
                return
            if count + self._least_left() <= self._best:
                return
            ring = self._rings[at]
            if all(self._room[arc] >= times for arc, times in ring.items()):
                self._take(ring, 1)
                self._search(at, count + 1)
                self._take(ring, -1)

    def _take(self, ring: Counter[Arc], times: int) -> None:
        for arc, uses in ring.items():
            self._room[arc] -= uses * times

    def _least_left(self) -> int:
        """Every ring leaves every GPU: no more rings are left than channels out of any GPU."""
        out = dict.fromkeys(self._gpus, 0)
        for (here, _), room in self._room.items():
            out[here] += room
        return min(out.values())
