# SPDX-License-Identifier: Apache-2.0
"""The least that any plan costs, by a search through every final state.

Nothing is shared with the planner. Places of GPU instances are the published ones, those of compute
instances of ``nvidia-smi mig -lcip`` in the MIG user guide. The search is naive: it lays out the
desired instances in every way, arranges their compute instances in every way, and then tries every
set of device users that may be disturbed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, combinations, product
from typing import Final, NamedTuple

from tests.bench.mig_changes.published_places import NAMED, PUBLISHED, PublishedModel

MODELS: Final[Mapping[str, PublishedModel]] = {**PUBLISHED, **NAMED}
"""By the simulator's names of the models."""

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
            [(now[one.profile, start], kept) for kept in _kept(now[one.profile, start], one)]
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


def _kept(now: Placed, desired: Desired) -> set[frozenset[Place]]:
    """The compute instances that stay, for each way to arrange the desired ones."""
    slices = slices_of(now.profile)
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
    """Every way to lay out the desired instances on the empty GPU, each with its start."""
    model = MODELS[gpu.model]
    if not all(arrangements(slices_of(one.profile), one.sizes) for one in gpu.desired):
        return
    ordered = sorted(gpu.desired, key=str)

    def grow(done: tuple[tuple[Desired, int], ...]) -> Iterator[tuple[tuple[Desired, int], ...]]:
        if len(done) == len(ordered):
            yield done
            return
        one = ordered[len(done)]
        low = done[-1][1] if done and done[-1][0] == one else -1
        for start in model.profiles[one.profile].starts:
            grown = (*done, (one, start))
            placed = [(other.profile, at) for other, at in grown]
            if start > low and one.start in (None, start) and model.fits(placed):
                yield from grow(grown)

    yield from grow(())


def slices_of(profile: str) -> int:
    """Compute slices of a GPU instance: ``3g.20gb`` has three."""
    return int(profile.partition("g.")[0])
