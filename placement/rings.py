# SPDX-License-Identifier: Apache-2.0
"""Rings over the NVLinks of a set: how many lead through all of it and share no link. Pure.

All-reduce runs in such rings. Two GPUs that are joined by several NVLinks have as many links; a
set's GPUs are numbered from 0.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

Links = Sequence[Sequence[int]]
"""Links of each pair; symmetric, with a zero diagonal."""
Pair = tuple[int, int]
Spend = Callable[[int], None]
"""Counts steps of work; may raise to end it."""

_MOST_RINGS: Final = 2520
"""Rings that are tried at most: as many as lead through 8 GPUs that are all joined."""
_MOST_TRIES: Final = 20_000
"""Tries for one set at most; if they do not settle it, the most rings found so far count."""


def most_rings(links: Links, spend: Spend) -> int:
    """The most rings through all of at least three GPUs, where each link is in one of them."""
    n = len(links)
    bound = min(sum(row) for row in links) // 2  # a ring takes two links of each GPU
    room = {(i, j): links[i][j] for i, j in itertools.combinations(range(n), 2)}
    if not bound or len(set(room.values())) == 1:
        return bound  # where all pairs are alike all links can be parted into rings
    rings = (tuple((min(step), max(step)) for step in ring) for ring in _rings(links, spend))
    return _most_at_once(rings, room, bound, spend)


def most_relayed_rings(links: Links, spend: Spend) -> int:
    """The most rings, where a step between GPUs without a link may pass a third GPU of the set.

    Each link is in one ring for each of its directions.
    Source: NCCL 2.30, src/graph/paths.cc (PATH_NVB); github.com/NVIDIA/nccl/issues/819.
    """
    n = len(links)
    if not _is_joined(links):
        return 0
    room = {(i, j): links[i][j] for i in range(n) for j in range(n) if links[i][j]}

    def steps(i: int, j: int) -> Iterator[tuple[Pair, ...]]:
        if links[i][j]:
            yield ((i, j),)
            return
        for third in range(n):
            if links[i][third] and links[third][j]:
                yield (i, third), (third, j)

    everywhere = [[int(i != j) for j in range(n)] for i in range(n)]
    rings = (
        tuple(sorted(itertools.chain(*paths)))
        for ring in _rings(everywhere, spend)
        for turned in (ring, [(j, i) for i, j in ring])
        for paths in itertools.product(*(tuple(steps(i, j)) for i, j in turned))
    )
    return _most_at_once(rings, room, min(map(sum, links)), spend)


def has_ring(joined: Callable[[int, int], bool], gpus: Sequence[int], spend: Spend) -> bool:
    """Whether pairs that are joined lead through all of at least three GPUs and back."""
    links = [[int(i != j and joined(i, j)) for j in gpus] for i in gpus]
    return min(map(sum, links)) > 1 and next(_rings(links, spend), None) is not None


def _most_at_once(
    rings: Iterable[tuple[Pair, ...]], room: Mapping[Pair, int], bound: int, spend: Spend
) -> int:
    """The most of these rings for which there is room, each as often as there is; at most
    ``bound``, which they cannot exceed anyway."""
    distinct = dict.fromkeys(itertools.islice(rings, _MOST_RINGS))
    # the shortest first: the search below stops at the first that is too long
    each_uses = [Counter(ring) for ring in sorted(distinct, key=len)]
    unused = Counter(room)
    tries = best_count = 0

    def search(first: int, count: int) -> None:
        nonlocal tries, best_count
        best_count = max(best_count, count)
        for index in range(first, len(each_uses)):
            tries += 1
            spend(1)
            uses = each_uses[index]
            if best_count >= bound or tries > _MOST_TRIES:
                return
            if count + unused.total() // uses.total() <= best_count:
                return  # all that come after use as many links or more
            if all(unused[pair] >= times for pair, times in uses.items()):
                unused.subtract(uses)
                search(index, count + 1)  # the same once more: a pair may have several links
                unused.update(uses)

    search(0, 0)
    return best_count


def _rings(links: Links, spend: Spend) -> Iterator[list[Pair]]:
    """Steps of every ring through all joined GPUs, in one direction."""
    n = len(links)
    path = [0]

    def onward(unvisited: frozenset[int]) -> Iterator[list[Pair]]:
        spend(1)
        here = path[-1]
        if not unvisited:
            if links[here][0] and path[1] < here:  # of a ring's two directions the one
                yield [*itertools.pairwise(path), (here, 0)]
            return
        for gpu in sorted(unvisited):
            if links[here][gpu]:
                path.append(gpu)
                yield from onward(unvisited - {gpu})
                path.pop()

    yield from onward(frozenset(range(1, n)))


def _is_joined(links: Links) -> bool:
    """Whether links lead from each GPU of the set to each other."""
    seen = {0}
    for _ in links:
        seen |= {gpu for reached in seen for gpu, count in enumerate(links[reached]) if count}
    return len(seen) == len(links)
