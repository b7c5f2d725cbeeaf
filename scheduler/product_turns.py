# SPDX-License-Identifier: Apache-2.0
"""To which product of a fleet pods of one kind go first. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple, Self

from api.gpu_request import GpuRequest, wish
from scheduler.fleet_products import FleetProducts, Product, Tables, best_speed
from scheduler.scores.score import MOST_SHARE

_COMPARED = (wish(2), wish(4), wish(8))
"""Pods by whose best speeds products are called fast or slow."""
_DIGITS = 9
_MOST_ABOVE = 1.25
"""Pods of a size that hold more than so many times their part of a product fill its nodes, and go
to those larger than others, only in turn: without a limit small pods take whole fast nodes from
pods of 8."""
_HEADROOM, _LEAST_ROOM = 3, 0.15
"""Smaller pods go first to the largest nodes until they hold what is left of these by so many times
the GPUs of larger pods: then these wait no longer than with packing, and where there are none
nothing is kept for them. Pods that gain from the largest nodes have this part of them at least."""


class ProductAims(NamedTuple):
    """What pods of one kind find on a product."""

    best_speed: int
    """As :func:`scheduler.fleet_products.best_speed` has it."""
    fills: bool
    """Whether it counts that such a pod fills a node of it."""
    spares: bool
    """Whether it counts that such a pod breaks up a node of it that is entirely free."""
    share: int
    """MOST_SHARE for the product whose turn it is to take such a pod, one less for each behind."""
    fullest: bool = False
    """Whether the fullest node counts, by part, and not what other pods lose on it."""


BestSpeedsOf = Callable[[GpuRequest], Mapping[str, int]]
"""The best speed of each product for such a pod."""


class _Turns(NamedTuple):
    """Where such pods go first, and what counts before that."""

    order: Mapping[str, float]
    """The lower a product's number, the sooner."""
    filled: Collection[str] = ()
    spared: Collection[str] = ()
    fullest: bool = False


def product_aims(
    ask: GpuRequest, products: Mapping[str, str], fleet: FleetProducts, tables: Tables
) -> dict[str, ProductAims]:
    """What such a pod finds on each of these products, which are given with a class each.

    A node that the pod fills comes before turns, or each product would have nodes of its own that
    are filled in part. It is then the turn of the product of whose GPUs pods of its size hold the
    least part: so each size has its part of each product, and none is crowded out. A pod that is
    as fast on each of them, as one of single GPUs is, gains nothing from a fast product and goes to
    the slowest.

    Where some products have smaller nodes, the largest are kept for pods that need or gain from
    them. See :func:`_of_the_slowest` and :func:`_of_the_fastest`.
    """

    def best_speeds(ask: GpuRequest) -> Mapping[str, int]:
        return {each: best_speed(each, gen, ask, fleet, tables) for each, gen in products.items()}

    its = {each: fleet.find(each) or Product() for each in products}
    bests = best_speeds(ask)
    if len(products) < 2:
        turns = _Turns(dict.fromkeys(products, 0.0), spared=its)
    elif len(set(bests.values())) == 1:
        turns = _of_the_slowest(its, _slowness(best_speeds))
    else:
        turns = _of_the_fastest(ask.gpus, bests, its, best_speeds)
    places = sorted(set(turns.order.values()))
    return {
        each: ProductAims(
            best_speed=best,
            fills=each in turns.filled,
            spares=each in turns.spared,
            share=max(MOST_SHARE - places.index(turns.order[each]), 0),
            fullest=turns.fullest,
        )
        for each, best in bests.items()
    }


def _of_the_slowest(its: Mapping[str, Product], slowness: Mapping[str, float]) -> _Turns:
    """Of pods that are as fast everywhere: the slowest product first.

    Of smaller nodes that are the slowest they spare none, and fill these alone. Where the smaller
    nodes are not the slowest, they leave these to pods that gain there while there is room on the
    largest. Beyond it larger pods would be crowded out if all of these went there, and those that
    gain if none did: they go to the fullest node, of the largest to the slowest.
    """
    smallest, largest = _with_nodes_of(min, its), _with_nodes_of(max, its)
    if min(slowness[each] for each in smallest) == min(slowness.values()):
        return _Turns(slowness, filled=smallest, spared=largest)
    guests = _Guests.of(largest, _others(its, largest))
    if sum(guests.held.values()) <= guests.room:
        return _Turns(slowness, spared=largest)
    least = min(slowness[each] for each in largest)
    return _Turns(
        {each: slowness[each] - least if each in largest else 0.0 for each in its}, fullest=True
    )


def _of_the_fastest(
    size: int, bests: Mapping[str, int], its: Mapping[str, Product], best_speeds: BestSpeedsOf
) -> _Turns:
    """Of pods of a size that are faster on some products than on others: each in its turn.

    They fill the largest nodes, where they hold no more than their part or hardly more. Where there
    are smaller ones and the largest are the fastest, they go there first up to that part, while
    there is room beside larger pods. Turns are then among nodes of one size: often there is room on
    small ones alone, so that turns with these leave such pods less than their part.

    Where a smaller node is as fast as any, and where room is short, they go to the fullest node.
    """
    largest = _with_nodes_of(max, its)
    fastest = {each: its[each] for each, best in bests.items() if best == max(bests.values())}
    small = _others(its, largest)
    if small and (fastest.keys() & small.keys() or not _have_room(fastest, small, best_speeds)):
        return _Turns(dict.fromkeys(its, 0.0), fullest=True)
    held = {each: _held(product, size) for each, product in its.items()}
    filled = _near_their_part(largest, largest, size)
    if not small:
        return _Turns(held, filled, spared=its)
    first = _near_their_part(fastest, its, size)
    order = {each: 0.0 if each in first else 1 + _ahead(its, each, held) for each in its}
    return _Turns(order, filled, spared=its)


class _Guests(NamedTuple):
    """What pods that fit on smaller nodes hold of large ones."""

    gpus: int
    """Of the large nodes."""
    needed: int
    """Those that pods hold which fit on large nodes alone."""
    held: Mapping[int, int]
    """Those that pods of each other size hold."""

    @classmethod
    def of(cls, large: Mapping[str, Product], small: Mapping[str, Product]) -> Self:
        """On these large products, of pods that fit on nodes of the small ones."""
        most = max(product.n for product in small.values())
        held = Counter[int]()
        for product in large.values():
            held.update(product.held)
        needed = sum(gpus for size, gpus in held.items() if size > most)
        fitting = {size: gpus for size, gpus in held.items() if gpus and size <= most}
        return cls(sum(product.gpus for product in large.values()), needed, fitting)

    @property
    def room(self) -> int:
        """How many GPUs they may hold, so that larger pods wait no longer than with packing."""
        return self.gpus - _HEADROOM * self.needed


def _have_room(
    large: Mapping[str, Product], small: Mapping[str, Product], best_speeds: BestSpeedsOf
) -> bool:
    """Whether pods that gain from these products, but fit on small nodes, may have more of them."""
    guests = _Guests.of(large, small)
    gaining = [size for size in guests.held if _gains(best_speeds(wish(size)), small)]
    held = sum(guests.held[size] for size in gaining)
    return held <= max(_LEAST_ROOM * guests.gpus, guests.room)


def _gains(bests: Mapping[str, int], small: Collection[str]) -> bool:
    """Whether pods with these best speeds are faster on other products than on the small ones."""
    return max(bests.values()) > max(bests[each] for each in small)


def _held(product: Product, size: int) -> float:
    """Which part of a product's GPUs pods of a size hold; equal for equal parts, as division rounds
    these alike."""
    return product.held[size] / product.gpus if product.gpus else 0.0


def _ahead(products: Mapping[str, Product], name: str, held: Mapping[str, float]) -> int:
    """How many products with nodes of the same size come before one by what pods hold of them."""
    like = _node_size(products[name])
    return sum(
        _node_size(its) == like and held[each] < held[name] for each, its in products.items()
    )


def _others(its: Mapping[str, Product], than: Collection[str]) -> dict[str, Product]:
    return {each: product for each, product in its.items() if each not in than}


def _with_nodes_of(
    most: Callable[[Iterable[int]], int], products: Mapping[str, Product]
) -> dict[str, Product]:
    """Those with the largest nodes, or with the smallest."""
    size = most(map(_node_size, products.values()))
    return {each: product for each, product in products.items() if _node_size(product) == size}


def _node_size(product: Product) -> int:
    """The same for 8 GPUs and for 5 to 7, as of a node that has lost some."""
    return (product.n - 1).bit_length()


def _near_their_part(
    products: Mapping[str, Product], of: Mapping[str, Product], size: int
) -> set[str]:
    """Those of whose GPUs pods of a size hold no larger part than of all of these, or hardly."""
    held = sum(product.held[size] for product in of.values())
    gpus = sum(product.gpus for product in of.values())
    return {
        each
        for each, product in products.items()
        if product.held[size] * gpus <= _MOST_ABOVE * held * product.gpus
    }


def _slowness(best_speeds: BestSpeedsOf) -> dict[str, float]:
    """How fast products are where several GPUs matter, 0 to 1: the geometric mean, over the sizes
    that fit on a node, of their best speed to that of all."""
    by_size = [best_speeds(ask) for ask in _COMPARED]
    bests = {each: tuple([its[each] for its in by_size]) for each in by_size[0]}
    return dict(zip(bests, _means(tuple(bests.values())), strict=True))


@lru_cache(maxsize=64)
def _means(bests: tuple[tuple[int, ...], ...]) -> tuple[float, ...]:
    """Of each product, by its best speeds."""
    most = [max(column) for column in zip(*bests, strict=True)]
    return tuple([_mean(its, most) for its in bests])


def _mean(bests: Collection[int], most: Collection[int]) -> float:
    ratios = [its / best for its, best in zip(bests, most, strict=True) if its]
    return round(math.prod(ratios) ** (1 / len(ratios)), _DIGITS) if ratios else 0.0
