# SPDX-License-Identifier: Apache-2.0
"""Layouts that are there and layouts that are wanted then, drawn by a seed. Pure.

Every second one begins on a GPU that is busy and fragmented: programs on some of its instances,
holes between them, now and then an instance without a compute instance that a stopped change left.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import dataclass
from typing import Final

from tests.bench.mig_changes.gpu_start import Desired, GpuStart, InstanceStart
from tests.bench.mig_changes.published_places import (
    PUBLISHED,
    Placed,
    PublishedModel,
    least_change,
)

_INFEASIBLE: Final = 0.1
"""Of the wanted layouts no GPU can have so many."""
_SIMILAR: Final = 0.6
"""So many of the others keep most of what is there."""
MOST_ORDERS: Final = 24
"""A layout has no more orders to create it in: whoever tries all, again and again, tries so many.
Seven instances of as many profiles have 5,040."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """One GPU, and what it is to become."""

    model: str
    there: tuple[Placed, ...]
    busy: frozenset[Placed]
    hollow: frozenset[Placed]
    """Without a compute instance."""
    wanted: Counter[str]
    least: tuple[int, int] | None
    """As of :func:`least_change`."""

    @property
    def fragmented(self) -> bool:
        """Whether it begins busy."""
        return bool(self.busy)

    @property
    def starts(self) -> tuple[GpuStart, ...]:
        """What is there."""
        return (GpuStart(instances=tuple(map(self._instance, self.there))),)

    @property
    def desired(self) -> Desired:
        """What it is to become, of the only GPU."""
        return {0: self.wanted}

    @property
    def is_possible(self) -> bool:
        """Whether a GPU can have it."""
        return self.least is not None

    def _instance(self, place: Placed) -> InstanceStart:
        profile, start = place
        whole = () if place in self.hollow else ((0, int(profile.partition("g.")[0])),)
        busy = frozenset({0} if place in self.busy else ())
        return InstanceStart(profile=profile, start=start, compute=whole, busy=busy)


def transitions(count: int, seed: str = "mig") -> list[Transition]:
    """So many, the models in turns; the first ones are the same whatever ``count`` is."""
    rng = random.Random(seed)  # noqa: S311  # the same each time
    models = list(PUBLISHED)
    return [
        _transition(rng, models[at // 2 % len(models)], busy=bool(at % 2)) for at in range(count)
    ]


def orders(wanted: Counter[str]) -> int:
    """In how many orders these can be created."""
    return math.factorial(wanted.total()) // math.prod(map(math.factorial, wanted.values()))


def _transition(rng: random.Random, name: str, *, busy: bool) -> Transition:
    model = PUBLISHED[name]
    there = drawn_places(rng, model)
    used: frozenset[Placed] = frozenset()
    hollow: frozenset[Placed] = frozenset()
    if busy:
        while not used:
            used = frozenset(one for one in there if rng.random() < 0.4)
        idle = [one for one in there if one not in used]
        if idle and rng.random() < 0.2:
            hollow = frozenset({rng.choice(idle)})
    present = Counter(profile for profile, _ in there)
    wanted = present
    while wanted == present or orders(wanted) > MOST_ORDERS:
        wanted = _wanted(rng, model, there)
    least = least_change(model, there, used, wanted)
    return Transition(model=name, there=there, busy=used, hollow=hollow, wanted=wanted, least=least)


def drawn_places(rng: random.Random, model: PublishedModel) -> tuple[Placed, ...]:
    """Places in the order in which they were drawn, as many as fit of a random number."""
    places = [(name, at) for name, one in model.profiles.items() for at in one.starts]
    rng.shuffle(places)
    most = rng.randint(1, 7)
    found: list[Placed] = []
    for one in places:
        if len(found) < most and model.fits([*found, one]):
            found.append(one)
    return tuple(sorted(found, key=lambda one: one[1]))


def _wanted(rng: random.Random, model: PublishedModel, there: tuple[Placed, ...]) -> Counter[str]:
    kind = rng.random()
    if kind < _INFEASIBLE:
        wanted: Counter[str] = Counter()
        while model.feasible(wanted):
            wanted[rng.choice(list(model.profiles))] += 1
        return wanted
    similar = kind < _INFEASIBLE + _SIMILAR * (1 - _INFEASIBLE)
    return drawn_layout(rng, model, there if similar else ())


def drawn_layout(
    rng: random.Random, model: PublishedModel, there: tuple[Placed, ...]
) -> Counter[str]:
    """A layout that a GPU can have, with most of what is there."""
    wanted = Counter(name for name, _ in there if rng.random() < 0.7)
    for _ in range(rng.randint(1, 6)):
        more = wanted + Counter([rng.choice(list(model.profiles))])
        if model.feasible(more):
            wanted = more
    return wanted
