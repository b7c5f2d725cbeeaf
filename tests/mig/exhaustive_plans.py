# SPDX-License-Identifier: Apache-2.0
"""The least that any plan costs, by a search through every final state; and cases to plan.

Nothing is shared with the planner. Profiles and places are NVIDIA's published ones once more: MIG
user guide, ``nvidia-smi mig -lgip``, ``-lgipp`` and ``-lcip``. The search is naive: it lays out the
desired instances in every way, arranges their compute instances in every way, and then tries every
set of device users that may be disturbed.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, combinations, product
from typing import Final, NamedTuple


class Profile(NamedTuple):
    """A GPU instance profile."""

    slices: int
    units: int
    starts: tuple[int, ...]
    most: int
    engines: tuple[int, int, int] = (0, 0, 0)
    """Decoders, JPEG and OFA engines of one instance."""


class Model(NamedTuple):
    """A GPU model."""

    profiles: Mapping[str, Profile]
    engines: tuple[int, int, int]
    """All of the GPU; a large number where NVIDIA publishes none."""


_ANY = tuple(range(7))
_SEVEN: Final = (
    (1, 1, _ANY, 7),
    (1, 1, _ANY, 1),
    (1, 2, (0, 2, 4, 6), 4),
    (2, 2, (0, 2, 4), 3),
    (3, 4, (0, 4), 2),
    (4, 4, (0,), 1),
    (7, 8, (0,), 1),
)
"""The shape of all models with seven slices: 1g, 1g+me, 1g of twice the memory, 2g, 3g, 4g, 7g."""
_A100: Final = ((0, 0, 0), (1, 1, 1), (1, 0, 0), (1, 0, 0), (2, 0, 0), (2, 0, 0), (5, 1, 1))
_H100: Final = ((1, 1, 0), (1, 1, 1), (1, 1, 0), (2, 2, 0), (3, 3, 0), (4, 4, 0), (7, 7, 1))
_BLACKWELL: Final = (*[(0, 0, 0)], (0, 0, 1), *[(0, 0, 0)] * 4, (0, 0, 1))


def _seven(
    names: str, engines: Sequence[tuple[int, int, int]], total: tuple[int, int, int]
) -> Model:
    shapes = (Profile(*shape, has) for shape, has in zip(_SEVEN, engines, strict=True))
    return Model(dict(zip(names.split(), shapes, strict=True)), total)


_QUARTERS, _HALVES = (0, 3, 6, 9), (0, 6)
MODELS: Final[Mapping[str, Model]] = {
    "a30": Model(
        {
            "1g.6gb": Profile(1, 1, (0, 1, 2, 3), 4),
            "1g.6gb+me": Profile(1, 1, (0, 1, 2, 3), 1, (1, 1, 1)),
            "2g.12gb": Profile(2, 2, (0, 2), 2, (2, 0, 0)),
            "2g.12gb+me": Profile(2, 2, (0, 2), 1, (2, 1, 1)),
            "4g.24gb": Profile(4, 4, (0,), 1, (4, 1, 1)),
        },
        (4, 1, 1),
    ),
    "a100-sxm4-40gb": _seven(
        "1g.5gb 1g.5gb+me 1g.10gb 2g.10gb 3g.20gb 4g.20gb 7g.40gb", _A100, (5, 1, 1)
    ),
    "a100-sxm4-80gb": _seven(
        "1g.10gb 1g.10gb+me 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb", _A100, (5, 1, 1)
    ),
    "h100-sxm5-80gb": _seven(
        "1g.10gb 1g.10gb+me 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb", _H100, (7, 7, 1)
    ),
    "h200-sxm-141gb": _seven(
        "1g.18gb 1g.18gb+me 1g.35gb 2g.35gb 3g.71gb 4g.71gb 7g.141gb", _H100, (7, 7, 1)
    ),
    "gh200-96gb": _seven(
        "1g.12gb 1g.12gb+me 1g.24gb 2g.24gb 3g.48gb 4g.48gb 7g.96gb", _H100, (7, 7, 1)
    ),
    "b200-sxm-180gb": _seven(
        "1g.23gb 1g.23gb+me 1g.45gb 2g.45gb 3g.90gb 4g.90gb 7g.180gb", _BLACKWELL, (7, 7, 1)
    ),
    "gb200": _seven(
        "1g.23gb 1g.23gb+me 1g.47gb 2g.47gb 3g.93gb 4g.93gb 7g.186gb", _BLACKWELL, (7, 7, 1)
    ),
    "b300-sxm-270gb": _seven(
        "1g.34gb 1g.34gb+me 1g.67gb 2g.67gb 3g.135gb 4g.135gb 7g.269gb", _BLACKWELL, (7, 7, 1)
    ),
    "rtx-pro-6000": Model(
        {
            "1g.24gb": Profile(1, 3, _QUARTERS, 4, (1, 1, 0)),
            "1g.24gb+me": Profile(1, 3, _QUARTERS, 1, (1, 1, 1)),
            "1g.24gb+gfx": Profile(1, 3, _QUARTERS, 4, (1, 1, 0)),
            "1g.24gb+me.all": Profile(1, 3, _QUARTERS, 1, (4, 4, 1)),
            "1g.24gb-me": Profile(1, 3, _QUARTERS, 4),
            "2g.48gb": Profile(2, 6, _HALVES, 2, (2, 2, 0)),
            "2g.48gb+gfx": Profile(2, 6, _HALVES, 2, (2, 2, 0)),
            "2g.48gb+me.all": Profile(2, 6, _HALVES, 1, (4, 4, 1)),
            "2g.48gb-me": Profile(2, 6, _HALVES, 2),
            "4g.96gb": Profile(4, 12, (0,), 1, (4, 4, 1)),
            "4g.96gb+gfx": Profile(4, 12, (0,), 1, (4, 4, 1)),
        },
        (4, 4, 1),
    ),
}

SIZES: Final = {1: (1,), 2: (1, 2), 3: (1, 2, 3), 4: (1, 2, 4), 7: (1, 2, 3, 4, 7)}
"""Slices of a GPU instance to those of its compute instances."""
FIRST: Final = {1: range(7), 2: (0, 2, 4), 3: (0, 4), 4: (0,), 7: (0,)}
"""Slices of a compute instance to where it may start, as 4c and 3c share a 7g."""

Place = tuple[int, int]
"""First slice and slices of a compute instance."""


class Placed(NamedTuple):
    """A GPU instance that is there."""

    profile: str
    start: int
    compute: tuple[Place, ...]
    """In the order of their ids."""


class Desired(NamedTuple):
    """A GPU instance that is desired."""

    profile: str
    sizes: tuple[int, ...]
    """The largest first."""
    start: int | None = None


class Gpu(NamedTuple):
    """A GPU with what is on it and what is desired of it."""

    model: str
    instances: tuple[Placed, ...]
    users: Mapping[tuple[int, int | None], frozenset[str]]
    """Start of a GPU instance and index of its compute instance (None: not known) to users."""
    desired: tuple[Desired, ...]


class Cost(NamedTuple):
    """What a plan costs, in the order of its importance."""

    disturbed: int
    beside: int
    """Compute instances destroyed in a GPU instance on which a device user stays."""
    lost: int
    """GPU instances and compute instances destroyed."""
    steps: int


class Outcome(NamedTuple):
    """What one final state costs on one GPU."""

    disturbed: frozenset[str]
    shrunk: frozenset[tuple[frozenset[str], int, int]]
    """Device users of a GPU instance that stays, its start, and what is destroyed in it."""
    lost: int
    steps: int


def least(gpus: Sequence[Gpu], *, careless: bool = False) -> Cost | None:
    """The least cost over every final state; None if a GPU has none.

    ``careless``: without the second criterion, so of plans that are as good by the others the one
    that is the worst by it.
    """
    outcomes = [set(_outcomes(gpu)) for gpu in gpus]
    if not all(outcomes):
        return None
    names = sorted({name for gpu in gpus for whose in gpu.users.values() for name in whose})
    best = None
    for number in range(len(names) + 1):
        for chosen in combinations(names, number):
            gone = frozenset(chosen)
            costs = [_least_within(on_gpu, gone, careless) for on_gpu in outcomes]
            if None not in costs:
                sums = [sum(part) for part in zip(*filter(None, costs), strict=True)]
                cost = Cost(number, *sums)
                best = cost if best is None else min(best, cost, key=_order(careless))
        if best is not None:
            break  # more device users are never less
    return best


def _order(careless: bool) -> Callable[[Cost], tuple[int, ...]]:
    if careless:
        return lambda cost: (cost.disturbed, cost.lost, cost.steps, -cost.beside)
    return lambda cost: cost


def _least_within(
    outcomes: Iterable[Outcome], gone: frozenset[str], careless: bool
) -> tuple[int, int, int] | None:
    """The least on one GPU where these device users, and no others, may be disturbed."""
    costs = (
        Cost(
            0,
            sum(lost for whose, _, lost in outcome.shrunk if whose - gone),
            outcome.lost,
            outcome.steps,
        )
        for outcome in outcomes
        if outcome.disturbed <= gone
    )
    best = min(costs, key=_order(careless), default=None)
    return None if best is None else (best.beside, best.lost, best.steps)


def _outcomes(gpu: Gpu) -> Iterator[Outcome]:
    """What each final state costs; the same instance at the same place is the old one."""
    now = {(one.profile, one.start): one for one in gpu.instances}
    for layout in _layouts(gpu):
        at = {(one.profile, start) for one, start in layout}
        gone = [one for key, one in now.items() if key not in at]
        stays = [
            [(now[one.profile, start], kept) for kept in _kept(gpu, now[one.profile, start], one)]
            for one, start in layout
            if (one.profile, start) in now
        ]
        made = [one for one, start in layout if (one.profile, start) not in now]
        for arranged in product(*stays):
            yield _outcome(gpu, gone, arranged, layout, made)


def _outcome(
    gpu: Gpu,
    gone: Sequence[Placed],
    stays: Sequence[tuple[Placed, frozenset[Place]]],
    layout: Sequence[tuple[Desired, int]],
    made: Sequence[Desired],
) -> Outcome:
    disturbed = set(chain.from_iterable(_users(gpu, one) for one in gone))
    shrunk, kept_compute = [], 0
    for one, kept in stays:
        kept_compute += len(kept)
        lost = [at for at, place in enumerate(one.compute) if place not in kept]
        for at in [*lost, *[None] * bool(lost)]:
            disturbed |= gpu.users.get((one.start, at), frozenset())
        if lost:
            shrunk.append((frozenset(_users(gpu, one)), one.start, len(lost)))
    lost_compute = sum(len(one.compute) for one in gpu.instances) - kept_compute
    made_compute = sum(len(one.sizes) for one, _ in layout) - kept_compute
    all_lost = len(gone) + lost_compute
    return Outcome(
        frozenset(disturbed), frozenset(shrunk), all_lost, all_lost + len(made) + made_compute
    )


def _users(gpu: Gpu, one: Placed) -> set[str]:
    """All on a GPU instance."""
    return {name for (start, _), whose in gpu.users.items() if start == one.start for name in whose}


def _kept(gpu: Gpu, now: Placed, desired: Desired) -> set[frozenset[Place]]:
    """The compute instances that stay, for each way to arrange the desired ones."""
    slices = MODELS[gpu.model].profiles[now.profile].slices
    return {frozenset(places) & set(now.compute) for places in arrangements(slices, desired.sizes)}


def arrangements(slices: int, sizes: Sequence[int]) -> list[tuple[Place, ...]]:
    """Every way to arrange compute instances of these sizes in a GPU instance."""
    if any(size not in SIZES[slices] for size in sizes):
        return []
    ways: list[tuple[Place, ...]] = [()]
    for size in sizes:
        ways = [
            (*done, (first, size))
            for done in ways
            for first in FIRST[size]
            if first + size <= slices
            and all(first + size <= at or at + other <= first for at, other in done)
        ]
    return list(dict.fromkeys(tuple(sorted(done)) for done in ways))


def _layouts(gpu: Gpu) -> Iterator[tuple[tuple[Desired, int], ...]]:
    """Every way to lay out the desired instances on the empty GPU."""
    model = MODELS[gpu.model]
    if not fits(model, [one.profile for one in gpu.desired]) or any(
        not arrangements(model.profiles[one.profile].slices, one.sizes) for one in gpu.desired
    ):
        return
    ordered = sorted(gpu.desired, key=str)

    def grow(
        done: tuple[tuple[Desired, int], ...], units: frozenset[int]
    ) -> Iterator[tuple[tuple[Desired, int], ...]]:
        if len(done) == len(ordered):
            yield done
            return
        one = ordered[len(done)]
        profile = model.profiles[one.profile]
        low = done[-1][1] if done and done[-1][0] == one else -1
        for start in profile.starts:
            taken = frozenset(range(start, start + profile.units))
            if start > low and one.start in (None, start) and not taken & units:
                yield from grow((*done, (one, start)), units | taken)

    yield from grow((), frozenset())


def fits(model: Model, names: Sequence[str]) -> bool:
    """Whether numbers and engines suffice; places are another matter."""
    numbers = Counter(names)
    engines = [
        sum(has) for has in zip(*(model.profiles[name].engines for name in names), strict=True)
    ]
    return all(model.profiles[name].most >= count for name, count in numbers.items()) and all(
        needed <= there for needed, there in zip(engines, model.engines, strict=False)
    )


# cases


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
        if next(_layouts(gpu), None) is not None:
            break
    return gpu


def _drawn_rivals(some: random.Random, model: str, names: Sequence[str]) -> Gpu:
    """Equal GPU instances in single slices, of which some lose several: which of them?"""
    profiles = MODELS[model].profiles
    several = [name for name, its in profiles.items() if its.slices > 1 and its.most > 1]
    name = max(some.sample(several, min(2, len(several))), key=lambda name: profiles[name].slices)
    most, places = profiles[name].slices, profiles[name].starts
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
        (1,) * number if some.random() < 0.8 else _sizes(some, model, name) or (1,)
        for number in desired
    )
    return Gpu(model, tuple(instances), users, tuple(Desired(name, parts) for parts in sizes))


def _favourites(some: random.Random, model: str) -> list[str]:
    """Profiles of a GPU: all, or few with several slices, which share a GPU in many ways."""
    profiles = MODELS[model].profiles
    large = [name for name, profile in profiles.items() if profile.slices > 1]
    return some.choice([[*profiles], large, some.sample(large, 2), [some.choice(large)]])


def _drawn_instances(
    some: random.Random, model: str, favourites: Sequence[str]
) -> tuple[Placed, ...]:
    profiles = MODELS[model].profiles
    done: list[Placed] = []
    for _ in range(some.randint(1, 9)):
        name = some.choice(favourites)
        start = some.choice(profiles[name].starts)
        units = range(start, start + profiles[name].units)
        taken = {
            u for one in done for u in range(one.start, one.start + profiles[one.profile].units)
        }
        if taken.isdisjoint(units) and fits(MODELS[model], [*(one.profile for one in done), name]):
            places = some.choice(arrangements(profiles[name].slices, _sizes(some, model, name)))
            done.append(Placed(name, start, tuple(some.sample(places, len(places)))))
    return tuple(done)


def _sizes(some: random.Random, model: str, name: str) -> tuple[int, ...]:
    """Compute instances that fit a GPU instance; seldom none."""
    slices = MODELS[model].profiles[name].slices
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
        return tuple(Desired(name, _sizes(some, model, name) or (1,)) for name in names)
    desired = []
    for one in instances:
        sizes = tuple(sorted((size for _, size in one.compute), reverse=True)) or (1,)
        chance = some.random()
        if chance < 0.4:
            sizes = _sizes(some, model, one.profile) or (1,)
        elif chance < 0.75 and len(sizes) > 1:
            stay = some.randint(1, len(sizes) - 1)
            sizes = tuple(sorted(some.sample(sizes, stay), reverse=True))
        start = some.choice(MODELS[model].profiles[one.profile].starts)
        if some.random() < 0.85:
            desired.append(Desired(one.profile, sizes, start if some.random() < 0.1 else None))
    if some.random() < 0.3:
        name = some.choice(favourites)
        desired.append(Desired(name, _sizes(some, model, name) or (1,)))
    return tuple(desired)
