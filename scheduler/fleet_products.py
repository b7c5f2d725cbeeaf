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
"""Containers of a pod whose best speed is kept, at most: a pod may have thousands."""


class BestSpeeds(Protocol):
    """The score table of one class, as far as it is used here."""

    def known_best_speed(self, wish: GpuRequest) -> int | None:
        """The best that the class has, in hundredths of a GB/s; None where it is not known yet."""


class Tables(Protocol):
    """The tables of all classes."""

    def find(self, gen: str) -> BestSpeeds | None:
        """The score table of one class; None where there is none."""


def product_name(label: str | None, n: int, gen: str) -> str:
    """The product of a node by its label ``nvidia.com/gpu.product`` and number of GPUs.

    Without a label the topology class is a product of its own.
    """
    return f"{label}/{n}" if label else gen


def counted_size(ask: PodRequest) -> int:
    """Size by which a pod counts among the holders of a product's GPUs; 0 where it does not count.

    A pod without a container that has several GPUs gains nothing from a fast set, and one that is
    pinned to some nodes did not choose them.
    """
    return 0 if ask.pinned or not ask.wish.several else ask.wish.gpus


@dataclass(slots=True)
class Product:
    """Nodes and GPUs of a product, as they are now."""

    n: int = 0
    """GPUs of each of its nodes."""
    gpus: int = 0
    """GPUs of all its nodes together, free or not."""
    classes: Counter[str] = field(default_factory=Counter)
    """Topology class to number of nodes."""
    held: Counter[int] = field(default_factory=Counter)
    """Size of pods to the number of GPUs that such pods hold."""
    best_speeds: dict[GpuRequest, int] = field(default_factory=dict)
    """Results of :func:`best_speed` for which all classes were computed. Each change of the classes
    puts a new dict here, so that a thread that still uses the old one does no harm."""


class FleetProducts:
    """Counts that follow each change of a node or pod. Reads need no lock; changes do."""

    def __init__(self) -> None:
        self._products: dict[str, Product] = {}

    def find(self, product: str) -> Product | None:
        """A product that some node is of."""
        return self._products.get(product)

    def add_node(
        self, product: str, gen: str, n: int, held: Mapping[int, int], sign: int = 1
    ) -> None:
        """Count a node with ``n`` GPUs; ``held``: size of pods to the GPUs that they hold on it.

        ``sign`` -1: the node is gone.
        """
        counts = self._products.setdefault(product, Product())
        counts.n = n
        counts.gpus += sign * n
        counts.classes[gen] += sign
        if not counts.classes[gen]:
            del counts.classes[gen]
        counts.best_speeds = {}
        for size, gpus in held.items():
            counts.held[size] += sign * gpus
        if not counts.classes:
            del self._products[product]

    def add_pod(self, product: str, size: int, sign: int = 1) -> None:
        """Count a pod of this size that holds GPUs of a node; ``sign`` -1: it has freed them."""
        counts = self._products.get(product)
        if counts is not None and size:
            counts.held[size] += sign * size


def best_speed(
    product: str, gen: str, ask: GpuRequest, fleet: FleetProducts, tables: Tables
) -> int:
    """The best that any class of a product is known to have, in hundredths of a GB/s; 0 for a pod
    without a container that has several GPUs.

    ``gen``: a class of it.
    """
    counts = fleet.find(product) or Product()
    kept = counts.best_speeds
    if (best := kept.get(ask)) is not None:
        return best
    classes = tuple(counts.classes)
    if gen not in classes:  # it changes just now
        classes, kept = (gen,), {}
    known = [
        table.known_best_speed(ask)
        for topology_class in classes
        if (table := tables.find(topology_class))
    ]
    speeds = [speed for speed in known if speed is not None]
    best = max(speeds, default=0)
    is_small = len(ask.steps) <= _MOST_KEPT_STEPS
    if is_small and len(speeds) == len(classes) and len(kept) < _MOST_KEPT:
        kept[ask] = best
    return best
