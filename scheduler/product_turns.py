# SPDX-License-Identifier: Apache-2.0
"""Order of a fleet's products for pods of one kind: the product that they go to first. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple, Self

from api.gpu_request import GpuRequest, gpu_request
from placement.score import MOST_SHARE
from scheduler.fleet_products import FleetProducts, Product, Tables, best_speed

_COMPARED = (gpu_request(2), gpu_request(4), gpu_request(8))
"""Requests whose best speeds decide whether a product counts as fast or slow."""
_DIGITS = 9
"""Digits of a mean, so that equal products are equal numbers in whatever order they multiply."""
_MOST_ABOVE = 1.25
"""Pods of a size that hold more than so many times their part of a product fill its nodes, and go
to those larger than others, only in turn: without a limit small pods take whole fast nodes from
pods of 8."""
_HEADROOM, _LEAST_ROOM = 3, 0.15
"""Smaller pods go first to the largest nodes until they hold what is left of these by so many times
the GPUs of larger pods: then these wait no longer than with packing, and where there are none
nothing is kept for them. Pods that gain from the largest nodes have this part of them at least."""


class ProductAims(NamedTuple):
    """What counts for pods of one kind on the nodes of a product."""

    best_speed: int
    """Best speed of the product for such a pod (:func:`scheduler.fleet_products.best_speed`)."""
    fills: bool
    """Whether it counts that such a pod fills a node of it."""
    spares: bool
    """Whether it counts that such a pod breaks up a node of it that is entirely free."""
    share: int
    """MOST_SHARE for the product whose turn it is to take such a pod, one less for each behind."""
    fullest: bool = False
    """Whether the fullest node counts, by part, and not what other pods lose on it."""


BestSpeedsOf = Callable[[GpuRequest], Mapping[str, int]]
"""Gives the best speed of each product for a request."""


class _Turns(NamedTuple):
    """Order of the products for pods of one kind, and what counts before that order."""

    order: Mapping[str, float]
    """The lower a product's number, the sooner."""
    filled: Collection[str] = ()
    spared: Collection[str] = ()
    fullest: bool = False


def product_aims(
    ask: GpuRequest, class_by_product: Mapping[str, str], fleet: FleetProducts, tables: Tables
) -> dict[str, ProductAims]:
    """Product to what counts there for pods of this kind; each comes with one of its classes.

    A node that the pod fills comes before turns, or each product would have nodes of its own that
    are filled in part. It is then the turn of the product of whose GPUs pods of its size hold the
    least part: so each size has its part of each product, and none is crowded out. A pod that is
    as fast on each of them, as one of single GPUs is, gains nothing from a fast product and goes to
    the slowest.

    Where some products have smaller nodes, the largest are kept for pods that need or gain from
    them. See :func:`_slowest_first` and :func:`_fastest_in_turn`.
    """

    def best_speeds(ask: GpuRequest) -> Mapping[str, int]:
        return {
            name: best_speed(name, gen, ask, fleet, tables)
            for name, gen in class_by_product.items()
        }

    products = {name: fleet.find(name) or Product() for name in class_by_product}
    bests = best_speeds(ask)
    if len(class_by_product) < 2:
        turns = _Turns(dict.fromkeys(class_by_product, 0.0), spared=products)
    elif len(set(bests.values())) == 1:
        turns = _slowest_first(products, _relative_speeds(best_speeds))
    else:
        turns = _fastest_in_turn(ask.gpus, bests, products, best_speeds)
    places = sorted(set(turns.order.values()))
    return {
        name: ProductAims(
            best_speed=best,
            fills=name in turns.filled,
            spares=name in turns.spared,
            share=max(MOST_SHARE - places.index(turns.order[name]), 0),
            fullest=turns.fullest,
        )
        for name, best in bests.items()
    }


def _slowest_first(products: Mapping[str, Product], relative_speeds: Mapping[str, float]) -> _Turns:
    """Order for pods that are as fast on every product: the slowest product comes first.

    Of smaller nodes that are the slowest they spare none, and fill these alone. Where the smaller
    nodes are not the slowest, they leave these to pods that gain there while there is room on the
    largest. Beyond it larger pods would be crowded out if all of these went there, and those that
    gain if none did: they go to the fullest node, of the largest to the slowest.
    """
    smallest, largest = _with_nodes_of(min, products), _with_nodes_of(max, products)
    if min(relative_speeds[name] for name in smallest) == min(relative_speeds.values()):
        return _Turns(relative_speeds, filled=smallest, spared=largest)
    guests = _Guests.counted(largest, _without(products, largest))
    if sum(guests.held.values()) <= guests.room:
        return _Turns(relative_speeds, spared=largest)
    slowest = min(relative_speeds[name] for name in largest)
    return _Turns(
        {name: relative_speeds[name] - slowest if name in largest else 0.0 for name in products},
        fullest=True,
    )


def _fastest_in_turn(
    size: int, bests: Mapping[str, int], products: Mapping[str, Product], best_speeds: BestSpeedsOf
) -> _Turns:
    """Order for pods that are faster on some products than on others: each product in its turn.

    They fill the largest nodes, where they hold no more than their part or hardly more. Where there
    are smaller ones and the largest are the fastest, they go there first up to that part, while
    there is room beside larger pods. Turns are then among nodes of one size: often there is room on
    small ones alone, so that turns with these leave such pods less than their part.

    Where a smaller node is as fast as any, and where room is short, they go to the fullest node.
    """
    largest = _with_nodes_of(max, products)
    fastest = {name: products[name] for name, best in bests.items() if best == max(bests.values())}
    small = _without(products, largest)
    if small and (fastest.keys() & small.keys() or not _have_room(fastest, small, best_speeds)):
        return _Turns(dict.fromkeys(products, 0.0), fullest=True)
    held = {name: _held(product, size) for name, product in products.items()}
    filled = _near_their_part(largest, largest, size)
    if not small:
        return _Turns(held, filled, spared=products)
    first = _near_their_part(fastest, products, size)
    order = {name: 0.0 if name in first else 1 + _ahead(products, name, held) for name in products}
    return _Turns(order, filled, spared=products)


class _Guests(NamedTuple):
    """GPUs of large nodes that are held by pods which would fit on smaller nodes."""

    gpus: int
    """All GPUs of the large nodes."""
    needed: int
    """GPUs held by pods that fit on large nodes alone."""
    held: Mapping[int, int]
    """Size of pods that would fit on smaller nodes to the GPUs that they hold here."""

    @classmethod
    def counted(cls, large: Mapping[str, Product], small: Mapping[str, Product]) -> Self:
        """Count GPUs of the large products; guests are pods that fit on a small product's node."""
        small_node_gpus = max(product.n for product in small.values())
        held = Counter[int]()
        for product in large.values():
            held.update(product.held)
        needed = sum(gpus for size, gpus in held.items() if size > small_node_gpus)
        fitting = {size: gpus for size, gpus in held.items() if gpus and size <= small_node_gpus}
        return cls(sum(product.gpus for product in large.values()), needed, fitting)

    @property
    def room(self) -> int:
        """GPUs that guests may hold, so that larger pods wait no longer than with packing."""
        return self.gpus - _HEADROOM * self.needed


def _have_room(
    large: Mapping[str, Product], small: Mapping[str, Product], best_speeds: BestSpeedsOf
) -> bool:
    """Whether pods that gain from these products, but fit on small nodes, may have more of them."""
    guests = _Guests.counted(large, small)
    gaining = [size for size in guests.held if _gains(best_speeds(gpu_request(size)), small)]
    held = sum(guests.held[size] for size in gaining)
    return held <= max(_LEAST_ROOM * guests.gpus, guests.room)


def _gains(bests: Mapping[str, int], small: Collection[str]) -> bool:
    """Whether pods with these best speeds are faster on other products than on the small ones."""
    return max(bests.values()) > max(bests[name] for name in small)


def _held(product: Product, size: int) -> float:
    """Share of a product's GPUs that pods of a size hold; equal shares are equal floats, since
    division rounds them alike."""
    return product.held[size] / product.gpus if product.gpus else 0.0


def _ahead(products: Mapping[str, Product], name: str, held: Mapping[str, float]) -> int:
    """Products with nodes of the same size of which pods hold a smaller share, by ``held``."""
    node_size = _node_size(products[name])
    return sum(
        _node_size(product) == node_size and held[other] < held[name]
        for other, product in products.items()
    )


def _without(products: Mapping[str, Product], excluded: Collection[str]) -> dict[str, Product]:
    return {name: product for name, product in products.items() if name not in excluded}


def _with_nodes_of(
    extreme: Callable[[Iterable[int]], int], products: Mapping[str, Product]
) -> dict[str, Product]:
    """Products with the largest nodes (``extreme`` is max) or with the smallest (min)."""
    size = extreme(map(_node_size, products.values()))
    return {name: product for name, product in products.items() if _node_size(product) == size}


def _node_size(product: Product) -> int:
    """Size class of a product's nodes: 5 to 8 GPUs are one class, as a node may have lost some."""
    return (product.n - 1).bit_length()


def _near_their_part(
    products: Mapping[str, Product], all_products: Mapping[str, Product], size: int
) -> set[str]:
    """Products of which pods of a size hold hardly a larger share than of all products."""
    held = sum(product.held[size] for product in all_products.values())
    gpus = sum(product.gpus for product in all_products.values())
    return {
        name
        for name, product in products.items()
        if product.held[size] * gpus <= _MOST_ABOVE * held * product.gpus
    }


def _relative_speeds(best_speeds: BestSpeedsOf) -> dict[str, float]:
    """Product to its speed relative to the best product, 0 to 1: the geometric mean over the sizes
    that fit on a node."""
    by_size = [best_speeds(ask) for ask in _COMPARED]
    bests = {name: tuple([speeds[name] for speeds in by_size]) for name in by_size[0]}
    return dict(zip(bests, _means(tuple(bests.values())), strict=True))


@lru_cache(maxsize=64)
def _means(bests: tuple[tuple[int, ...], ...]) -> tuple[float, ...]:
    """Relative speed of each product, in the order of ``bests``: its best speeds, one a size."""
    best_by_size = [max(column) for column in zip(*bests, strict=True)]
    return tuple([_mean(speeds, best_by_size) for speeds in bests])


def _mean(speeds: Collection[int], best_by_size: Collection[int]) -> float:
    ratios = [speed / best for speed, best in zip(speeds, best_by_size, strict=True) if speed]
    return round(math.prod(ratios) ** (1 / len(ratios)), _DIGITS) if ratios else 0.0
