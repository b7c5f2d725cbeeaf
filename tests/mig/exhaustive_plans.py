# SPDX-License-Identifier: Apache-2.0
"""The least that any plan costs, by a search through every final state.

Nothing is shared with the planner. Profiles and places are NVIDIA's published ones once more: MIG
user guide, ``nvidia-smi mig -lgip``, ``-lgipp`` and ``-lcip``. The search is naive: it lays out the
desired instances in every way, arranges their compute instances in every way, and then tries every
set of device users that may be disturbed.
"""

from __future__ import annotations

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
    for layout in layouts(gpu):
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


def layouts(gpu: Gpu) -> Iterator[tuple[tuple[Desired, int], ...]]:
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
