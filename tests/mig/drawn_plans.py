# SPDX-License-Identifier: Apache-2.0
"""Drawn cases for the planner: GPUs in use, and what is desired of them.

They are drawn so that each criterion decides often enough between plans.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from tests.mig.exhaustive_plans import (
    MODELS,
    SIZES,
    Desired,
    Gpu,
    Placed,
    arrangements,
    layouts,
    slices_of,
)


def drawn(seed: int) -> list[Gpu]:
    """One to three GPUs that hardware could be, and what is desired of them."""
    some = random.Random(seed)  # noqa: S311 - repeatable, not secret
    names = [f"ns/{letter}" for letter in "abcdef"[: some.randint(0, 6)]]
    model = some.choice([*MODELS])
    number = some.choice([1, 1, 2, 2, 3])
    return [
        _drawn_gpu(some, model if some.random() < 0.7 else some.choice([*MODELS]), names)
        for _ in range(number)
    ]


def crowded(seed: int) -> list[Gpu]:
    """Three to five GPUs in use, and most device users on several of them."""
    some = random.Random(f"crowded {seed}")  # noqa: S311 - repeatable, not secret
    names = [f"ns/{letter}" for letter in "abcdefghij"[: some.randint(3, 10)]]
    model = some.choice(["a100-sxm4-40gb", "h100-sxm5-80gb", "rtx-pro-6000"])
    draw = some.choice([_drawn_rivals, _drawn_row, None])
    return [
        (draw or some.choice([_drawn_rivals, _drawn_row]))(some, model, names)
        for _ in range(some.randint(3, 5))
    ]


def _drawn_row(some: random.Random, model: str, names: Sequence[str]) -> Gpu:
    """A GPU full of its smallest instances, of which some make room for a larger one."""
    profiles = MODELS[model].profiles
    small = next(iter(profiles))
    larger = some.choice([name for name in profiles if slices_of(name) in (2, 3)])
    instances = tuple(Placed(small, start, ((0, 1),)) for start in profiles[small].starts)
    users: dict[tuple[int, int | None], frozenset[str]] = {
        (one.start, 0): frozenset(some.choices(names, k=some.choice([1, 1, 2])))
        for one in instances
        if some.random() < 0.9
    }
    left = [Desired(small, (1,))] * some.randint(0, len(instances) * 4 // 7)
    whole = Desired(larger, (slices_of(larger),))
    return Gpu(model, instances, users, (*left, *[whole] * some.choice([0, 1, 1])))


def _drawn_gpu(some: random.Random, model: str, names: Sequence[str]) -> Gpu:
    if some.random() < 0.4:
        return _drawn_rivals(some, model, names)
    favourites = _favourites(some, model)
    instances = _drawn_instances(some, model, favourites)
    users: dict[tuple[int, int | None], frozenset[str]] = {}
    often = some.choice([0.2, 0.5, 0.8])
    for one in instances:
        for at in (*range(len(one.compute)), None):
            if names and some.random() < (often if at is not None else 0.05):
                users[one.start, at] = frozenset(some.choices(names, k=some.choice([1, 1, 1, 2])))
    gpu = Gpu(model, instances, users, ())
    for _ in range(some.choice([1, 4])):  # most draws at random are too much for one GPU
        gpu = gpu._replace(desired=_drawn_desired(some, model, instances, favourites))
        if next(layouts(gpu), None) is not None:
            break
    return gpu


def _drawn_rivals(some: random.Random, model: str, names: Sequence[str]) -> Gpu:
    """Equal GPU instances in single slices, of which some lose several: which of them?"""
    profiles = MODELS[model].profiles
    several = [name for name, its in profiles.items() if slices_of(name) > 1 and its.most > 1]
    name = max(some.sample(several, min(2, len(several))), key=slices_of)
    most, places = slices_of(name), profiles[name].starts
    counts = [some.randint(1, most) for _ in range(some.randint(2, len(places)))]
    desired = [some.randint(1, most) for _ in counts[some.choice([0, 0, 0, 1]) :]]
    instances = [
        Placed(name, start, tuple((at, 1) for at in some.sample(range(most), count)))
        for start, count in zip(places, counts, strict=False)
    ]
    users: dict[tuple[int, int | None], frozenset[str]] = {
        (one.start, some.randrange(len(one.compute))): frozenset({some.choice(names)})
        for one in instances
        if names and some.random() < 0.6
    }
    sizes = (
        (1,) * number if some.random() < 0.8 else _sizes(some, name) or (1,) for number in desired
    )
    return Gpu(model, tuple(instances), users, tuple(Desired(name, parts) for parts in sizes))


def _favourites(some: random.Random, model: str) -> list[str]:
    """Profiles of a GPU: all, or few with several slices, which share a GPU in many ways."""
    profiles = MODELS[model].profiles
    large = [name for name in profiles if slices_of(name) > 1]
    return some.choice([[*profiles], large, some.sample(large, 2), [some.choice(large)]])


def _drawn_instances(
    some: random.Random, model: str, favourites: Sequence[str]
) -> tuple[Placed, ...]:
    done: list[Placed] = []
    for _ in range(some.randint(1, 9)):
        name = some.choice(favourites)
        start = some.choice(MODELS[model].profiles[name].starts)
        if MODELS[model].fits([*((one.profile, one.start) for one in done), (name, start)]):
            places = some.choice(arrangements(slices_of(name), _sizes(some, name)))
            done.append(Placed(name, start, tuple(some.sample(places, len(places)))))
    return tuple(done)


def _sizes(some: random.Random, name: str) -> tuple[int, ...]:
    """Compute instances that fit a GPU instance; seldom none."""
    slices = slices_of(name)
    if some.random() < 0.25:
        return (slices,)
    sizes: list[int] = []
    for _ in range(some.randint(0 if some.random() < 0.1 else 1, slices)):
        size = some.choice(SIZES[slices][:3])
        if arrangements(slices, sorted([*sizes, size], reverse=True)):
            sizes.append(size)
    return tuple(sorted(sizes, reverse=True))


def _drawn_desired(
    some: random.Random, model: str, instances: Sequence[Placed], favourites: Sequence[str]
) -> tuple[Desired, ...]:
    """Any layout, or the current one with some compute instances or GPU instances changed."""
    if some.random() < 0.3:
        names = [some.choice(favourites) for _ in range(some.randint(0, 5))]
        return tuple(Desired(name, _sizes(some, name) or (1,)) for name in names)
    desired = []
    for one in instances:
        sizes = tuple(sorted((size for _, size in one.compute), reverse=True)) or (1,)
        chance = some.random()
        if chance < 0.4:
            sizes = _sizes(some, one.profile) or (1,)
        elif chance < 0.75 and len(sizes) > 1:
            stay = some.randint(1, len(sizes) - 1)
            sizes = tuple(sorted(some.sample(sizes, stay), reverse=True))
        start = some.choice(MODELS[model].profiles[one.profile].starts)
        if some.random() < 0.85:
            desired.append(Desired(one.profile, sizes, start if some.random() < 0.1 else None))
    if some.random() < 0.3:
        name = some.choice(favourites)
        desired.append(Desired(name, _sizes(some, name) or (1,)))
    return tuple(desired)
