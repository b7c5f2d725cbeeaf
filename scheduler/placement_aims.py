# SPDX-License-Identifier: Apache-2.0
"""Aims by which a pod's nodes are compared, and what the candidates' products add to them. Pure.

A product is a model of GPUs and a number of them in one node. A pod that gains from faster links
goes to the fastest set that is free, any other to the slowest product.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from api.gpu_request import GpuRequest, gpu_request
from placement.score_table import PlacementOutcome, ScoreTable
from scheduler.cluster.node_views import ScoringView, View

KEPT_WHOLE, KEPT_OF_MANY, MANY_WHOLE = 2, 1, 9
"""Free nodes of a product that are kept for pods that fill them: the second number while so many
candidates that are as large are entirely free, else the first. Found by a search
(docs/decisions/scheduling.md)."""
IN_CLIQUE: Final = 2
_COMPARED: Final = (gpu_request(2), gpu_request(4), gpu_request(8))
"""Requests whose best speeds decide whether a product counts as fast or slow."""
_DIGITS: Final = 9
"""Digits of a mean, so that equal products are equal numbers in whatever order they multiply."""
_FULL_SPEED: Final = 50_000


class ProductOrder(StrEnum):
    """Product to which pods of several GPUs go first."""

    FASTEST = "fastest"
    CHEAPEST = "cheapest"
    """The slowest, as single GPUs always do."""
    OFF = "off"
    """None: a set is compared with the best of its own product."""


class Aims(NamedTuple):
    """What nodes are compared by: of two the first field that differs decides, more is better."""

    taken: int
    """Percent of the odds that the node takes the pod and does not refuse it."""
    linked: int = 0
    """Percent of the odds that the pod's link wish is met."""
    job: int = 0
    """1 on the product of the pod's job, IN_CLIQUE in its NVLink clique."""
    product: int = 0
    """0 where the pod breaks up one of the few free nodes that are kept whole, else 1; with
    CHEAPEST the product's place."""
    speed: int = 0
    """Expected speed, in hundredths of a GB/s. The slower the product the more, below 0, where a
    node is broken up that is kept whole; with OFF in parts of the product's best."""
    slowest: int = 0
    """Place of the product, the slowest last, where the pod gains nothing from a faster one."""
    nic: int = 0
    """Closeness to a NIC, 0 to 50."""
    kept: int = 0
    """What others are expected to lose, in hundredths of a GPU, below 0."""


class ProductAims(NamedTuple):
    """What counts on the nodes of a product, for one pod among the candidates of one call."""

    best_speed: int
    """Best speed of the product for the pod, in hundredths of a GB/s; 0 for single GPUs."""
    place: int
    """The higher, the slower the product; 0 for all where the pod gains from a faster one."""
    keeps_whole: bool
    """Whether the pod is not to break up a free node of it."""
    is_jobs: bool
    """Whether the pod's job runs on it."""


FindTable = Callable[[str], ScoreTable | None]
"""Score table of a topology class; None where there is none."""


def product_aims(
    wish: GpuRequest,
    candidates: Mapping[View, int],
    find: FindTable,
    order: ProductOrder,
    job_product: str | None,
) -> dict[str, ProductAims]:
    """Product to what counts there. ``candidates``: each view to the number of its nodes."""
    classes: dict[str, set[str]] = defaultdict(set)
    whole: dict[str, int] = defaultdict(int)
    node_gpus: dict[str, int] = defaultdict(int)
    for view, count in candidates.items():
        if isinstance(view, ScoringView):
            classes[view.product].add(view.gen)
            node_gpus[view.product] = max(node_gpus[view.product], view.ok.bit_count())
            if is_whole(view):
                whole[view.product] += count
    bests = {name: _best(gens, wish, find) for name, gens in classes.items()}
    gains = len(set(bests.values())) > 1
    if (gains and order is not ProductOrder.CHEAPEST) or len(classes) < 2:
        places = dict.fromkeys(classes, 0)
    else:
        places = _places(classes, find)
    keeps = gains and order is ProductOrder.FASTEST

    def kept(name: str) -> int:
        as_large = sum(
            count for other, count in whole.items() if node_gpus[other] >= node_gpus[name]
        )
        return KEPT_OF_MANY if as_large >= MANY_WHOLE else KEPT_WHOLE

    return {
        name: ProductAims(
            best_speed=best,
            place=places[name],
            keeps_whole=keeps and whole[name] <= kept(name),
            is_jobs=name == job_product,
        )
        for name, best in bests.items()
    }


def node_aims(
    outcome: PlacementOutcome,
    view: ScoringView,
    wish: GpuRequest,
    product: ProductAims,
    order: ProductOrder,
    *,
    in_clique: bool,
) -> Aims | None:
    """The aims of a node with this outcome; None where it cannot serve the pod."""
    if not outcome.taken:
        return None
    breaks = product.keeps_whole and is_whole(view) and wish.gpus < view.ok.bit_count()
    speed = outcome.speed
    if breaks:
        speed = -product.best_speed
    elif order is ProductOrder.OFF:
        speed = _FULL_SPEED * speed // max(product.best_speed, 1)
    is_cheapest = order is ProductOrder.CHEAPEST and wish.several
    return Aims(
        taken=outcome.taken,
        linked=int(outcome.linked * 100),
        job=IN_CLIQUE if in_clique else int(product.is_jobs),
        product=product.place if is_cheapest else int(not breaks),
        speed=speed,
        slowest=product.place,
        nic=int(outcome.nic * 10) if wish.nic else 0,
        kept=-outcome.cost,
    )


def is_whole(view: ScoringView) -> bool:
    """Whether the node has GPUs that work, and none of these is in use."""
    return view.ok > 0 and not view.ok & ~view.free


def _best(gens: set[str], wish: GpuRequest, find: FindTable) -> int:
    """The best that any of these classes is known to have."""
    found = [table.known_best_speed(wish) for gen in gens if (table := find(gen))]
    return max((speed for speed in found if speed is not None), default=0)


def _places(classes: Mapping[str, set[str]], find: FindTable) -> dict[str, int]:
    """Product to its place, the fastest first: by the mean over the sizes that fit on a node."""
    by_size = [
        {name: _best(gens, wish, find) for name, gens in classes.items()} for wish in _COMPARED
    ]
    means = {
        name: _mean([(speeds[name], max(speeds.values())) for speeds in by_size])
        for name in classes
    }
    order = sorted(set(means.values()), reverse=True)
    return {name: order.index(mean) for name, mean in means.items()}


def _mean(speeds: list[tuple[int, int]]) -> float:
    """Geometric mean of speeds, each to the best; sizes that do not fit have none."""
    ratios = [speed / best for speed, best in speeds if speed]
    return round(math.prod(ratios) ** (1 / len(ratios)), _DIGITS) if ratios else 0.0
