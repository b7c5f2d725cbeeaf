# SPDX-License-Identifier: Apache-2.0
"""Products of a fleet: how many GPUs they have, and who holds them. Pure.

A product is a model of GPUs and a number of them in one node: what nodes are that were bought
alike. Nodes of one product whose links differ, as where one is degraded, are of several classes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from api.gpu_request import GpuRequest
from scheduler.pod_request import PodRequest

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
