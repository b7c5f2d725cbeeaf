# SPDX-License-Identifier: Apache-2.0
"""Products of a fleet: how many GPUs they have, and who holds them. Pure.

A product is a model of GPUs and a number of them in one node: what nodes are that were bought
alike. Nodes of one product whose links differ, as where one is degraded, are of several classes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple, Protocol

from api.gpu_request import GpuRequest, wish
from scheduler.pod_request import PodRequest
from scheduler.scores.score import MOST_SHARE

_COMPARED = (wish(2), wish(4), wish(8))
"""Pods by whose best speeds products are called fast or slow."""
_DIGITS = 9
_MOST_ABOVE = 1.25
"""Pods of a size that hold more than so many times their part of a product fill its nodes, and go
to those larger than others, only in turn: without a limit small pods take whole fast nodes from
pods of 8."""
_MOST_KEPT = 64
"""Best speeds of a product that are kept: a fleet has few kinds of pods."""
_MOST_KEPT_STEPS = 8
"""Of a pod whose best speed is kept: it may have thousands of containers."""


class BestSpeeds(Protocol):
    """The score table of one class, as far as it is used here."""

    def known_best_speed(self, wish: GpuRequest) -> int | None:
        """The best that the class has, in hundredths of a GB/s; None where it is not known yet."""


class Tables(Protocol):
    """The tables of all classes."""

    def find(self, gen: str) -> BestSpeeds | None:
        """That of one class."""


def product_name(label: str | None, n: int, gen: str) -> str:
    """The product of a node by its label ``nvidia.com/gpu.product`` and number of GPUs.

    Without a label the topology class is a product of its own.
    """
    return f"{label}/{n}" if label else gen


def counted_size(ask: PodRequest) -> int:
    """As what size a pod counts among those that hold GPUs; 0: not at all.

    A pod without a container that has several GPUs gains nothing from a fast set, and one that is
    pinned to some nodes did not choose them.
    """
    return 0 if ask.pinned or not ask.wish.several else ask.wish.gpus


@dataclass(slots=True)
class Product:
    """One product as it is now."""

    n: int = 0
    """GPUs of each of its nodes."""
    gpus: int = 0
    """Of all its nodes, whether they are free or not."""
    classes: Counter[str] = field(default_factory=Counter)
    """Topology class to number of nodes."""
    held: Counter[int] = field(default_factory=Counter)
    """Size of pods to the number of GPUs that such pods hold."""
    best_speeds: dict[GpuRequest, int] = field(default_factory=dict)
    """What :func:`best_speed` found, once all classes had been computed; another dict with each
    change of the classes, so that who still reckons with the old ones does no harm."""


class ProductAims(NamedTuple):
    """What pods of one kind find on a product."""

    best_speed: int
    """As :func:`best_speed` has it."""
    fills: bool
    """Whether it counts that such a pod fills a node of it."""
    spares: bool
    """Whether it counts that such a pod breaks up a node of it that is entirely free."""
    share: int
    """MOST_SHARE for the product whose turn it is to take such a pod, one less for each behind."""


class FleetProducts:
    """Counts that follow each change of a node or pod. Reads need no lock; changes do."""

    def __init__(self) -> None:
        self._products: dict[str, Product] = {}

    def find(self, product: str) -> Product | None:
        """A product that some node is of."""
        return self._products.get(product)

    def add_node(
        self, product: str, gen: str, n: int, held: Mapping[int, int], by: int = 1
    ) -> None:
        """A node is there, with so many GPUs of which pods of these sizes hold some; ``by`` -1:
        it is there no more."""
        its = self._products.setdefault(product, Product())
        its.n = n
        its.gpus += by * n
        its.classes[gen] += by
        if not its.classes[gen]:
            del its.classes[gen]
        its.best_speeds = {}
        for size, gpus in held.items():
            its.held[size] += by * gpus
        if not its.classes:
            del self._products[product]

    def add_pod(self, product: str, size: int, by: int = 1) -> None:
        """A pod that counts as one of this size holds GPUs of a node; ``by`` -1: no more."""
        its = self._products.get(product)
        if its is not None and size:
            its.held[size] += by * size


def best_speed(
    product: str, gen: str, ask: GpuRequest, fleet: FleetProducts, tables: Tables
) -> int:
    """The best that any class of a product is known to have, in hundredths of a GB/s; 0 for a pod
    without a container that has several GPUs.

    ``gen``: a class of it.
    """
    found = fleet.find(product) or Product()
    kept = found.best_speeds
    if (best := kept.get(ask)) is not None:
        return best
    classes = tuple(found.classes)
    if gen not in classes:  # it changes just now
        classes, kept = (gen,), {}
    known = [table.known_best_speed(ask) for each in classes if (table := tables.find(each))]
    speeds = [each for each in known if each is not None]
    best = max(speeds, default=0)
    is_small = len(ask.steps) <= _MOST_KEPT_STEPS
    if is_small and len(speeds) == len(classes) and len(kept) < _MOST_KEPT:
        kept[ask] = best
    return best


def product_aims(
    ask: GpuRequest, products: Mapping[str, str], fleet: FleetProducts, tables: Tables
) -> dict[str, ProductAims]:
    """What such a pod finds on each of these products, which are given with a class each.

    A node that the pod fills comes before turns, or each product would have nodes of its own that
    are filled in part. That counts for a pod that is faster on some products than on others on the
    largest nodes, and for any other pod on the smallest, so that it leaves the largest alone.

    It is then the turn of the product of whose GPUs pods of its size hold the least part: so each
    size has its part of each product, and none is crowded out. A pod that is as fast on each of
    them, as one of single GPUs is, gains nothing from a fast product and goes to the slowest.

    Where some products have smaller nodes, the largest are kept for pods that need or gain from
    them. Of a pod that is as fast everywhere no smaller node is spared that is entirely free. One
    that is fastest on the largest goes there first, until pods of its size hold their part or
    hardly more. Turns are then among nodes of one size: often there is room on small ones alone, so
    that turns with these leave such pods less than their part.
    """
    bests = {each: best_speed(each, gen, ask, fleet, tables) for each, gen in products.items()}
    its = {each: fleet.find(each) or Product() for each in products}
    filled: Collection[str] = ()
    spared: Collection[str] = its
    if len(products) < 2:
        order = dict.fromkeys(products, 0.0)
    elif len(set(bests.values())) > 1:
        order = {each: _held(product, ask.gpus) for each, product in its.items()}
        largest = _with_nodes_of(max, its)
        filled = _near_their_part(largest, largest, ask.gpus)
        fastest = {each: its[each] for each in largest if bests[each] == max(bests.values())}
        if fastest and len(largest) < len(its):
            first = _near_their_part(fastest, its, ask.gpus)
            order = {each: 0.0 if each in first else 1 + _ahead(its, each, order) for each in its}
    else:
        order = _slowness(products, fleet, tables)
        filled = _with_nodes_of(min, its)
        spared = _with_nodes_of(max, its)
    turns = sorted(set(order.values()))
    return {
        each: ProductAims(
            best_speed=best,
            fills=each in filled,
            spares=each in spared,
            share=max(MOST_SHARE - turns.index(order[each]), 0),
        )
        for each, best in bests.items()
    }


def _held(product: Product, size: int) -> float:
    """Which part of a product's GPUs pods of a size hold; equal for equal parts, as division rounds
    these alike."""
    return product.held[size] / product.gpus if product.gpus else 0.0


def _ahead(products: Mapping[str, Product], name: str, held: Mapping[str, float]) -> int:
    """How many products with nodes of the same size come before one by what pods hold of them."""
    n = products[name].n
    return sum(its.n == n and held[each] < held[name] for each, its in products.items())


def _with_nodes_of(
    most: Callable[[Iterable[int]], int], products: Mapping[str, Product]
) -> dict[str, Product]:
    """Those with the largest nodes, or with the smallest."""
    n = most(product.n for product in products.values())
    return {each: product for each, product in products.items() if product.n == n}


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


def _slowness(
    products: Mapping[str, str], fleet: FleetProducts, tables: Tables
) -> dict[str, float]:
    """How fast products are where several GPUs matter, 0 to 1: the geometric mean, over the sizes
    that fit on a node, of their best speed to that of all."""
    bests = tuple(
        [
            tuple([best_speed(each, gen, ask, fleet, tables) for ask in _COMPARED])
            for each, gen in products.items()
        ]
    )
    return dict(zip(products, _means(bests), strict=True))


@lru_cache(maxsize=64)
def _means(bests: tuple[tuple[int, ...], ...]) -> tuple[float, ...]:
    """Of each product, by its best speeds."""
    most = [max(column) for column in zip(*bests, strict=True)]
    return tuple([_mean(its, most) for its in bests])


def _mean(bests: Collection[int], most: Collection[int]) -> float:
    ratios = [its / best for its, best in zip(bests, most, strict=True) if its]
    return round(math.prod(ratios) ** (1 / len(ratios)), _DIGITS) if ratios else 0.0
