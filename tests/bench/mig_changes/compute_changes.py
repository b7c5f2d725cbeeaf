# SPDX-License-Identifier: Apache-2.0
"""Changes of a GPU whose GPU instances are shared by compute instances, drawn by a seed. Pure.

What is desired is a count of devices, as in mig-parted's format: ``1c.3g.20gb`` twice may be on one
GPU instance or on two. Programs run on some compute instances, and others next to them are idle.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

from tests.bench.mig_changes.gpu_start import Desired, GpuStart, InstanceStart
from tests.bench.mig_changes.published_places import PUBLISHED
from tests.mig import exhaustive_plans as exhaustive
from tests.mig.exhaustive_plans import SIZES, Cost, arrangements, slices_of

MODELS: Final = ("a100-sxm4-40gb", "h100-sxm5-80gb", "a30")
Shape = tuple[str, tuple[int, ...]]
"""Profile of a GPU instance, and the slices of its compute instances, the largest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeChange:
    """One GPU, and the devices that it is to have."""

    model: str
    starts: tuple[GpuStart, ...]
    devices: Counter[str]
    least: Cost | None
    """Over all ways to share GPU instances that make these devices."""

    @property
    def desired(self) -> Desired:
        """Of the only GPU."""
        return {0: self.devices}

    @property
    def is_possible(self) -> bool:
        """Whether a GPU can have it."""
        return self.least is not None


def compute_changes(count: int, seed: str = "parts") -> list[ComputeChange]:
    """So many, the models in turns; the first ones are the same whatever ``count`` is."""
    rng = random.Random(seed)  # noqa: S311  # the same each time
    found: list[ComputeChange] = []
    while len(found) < count:
        drawn = _drawn(rng, MODELS[len(found) % len(MODELS)])
        if drawn is not None:
            found.append(drawn)
    return found


def devices_of(shapes: Sequence[Shape]) -> Counter[str]:
    """How mig-parted's format counts them."""
    return Counter(
        profile if part == slices_of(profile) else f"{part}c.{profile}"
        for profile, parts in shapes
        for part in parts
    )


def shared(devices: Counter[str]) -> Iterator[tuple[Shape, ...]]:
    """Every way to share GPU instances that makes these devices, each once."""
    profiles = sorted({name.rpartition("c.")[2] for name in devices})
    ways = []
    for profile in profiles:
        sizes = [
            int(name.partition("c.")[0]) if "c." in name else slices_of(profile)
            for name in devices.elements()
            if name.rpartition("c.")[2] == profile
        ]
        groups = dict.fromkeys(_grouped(slices_of(profile), sorted(sizes, reverse=True)))
        ways.append([tuple((profile, group) for group in its) for its in groups])
    for chosen in product(*ways):
        yield tuple(shape for its in chosen for shape in its)


def _grouped(slices: int, sizes: Sequence[int]) -> Iterator[tuple[tuple[int, ...], ...]]:
    if not sizes:
        yield ()
        return
    first, rest = sizes[0], list(sizes[1:])
    for chosen in _subsets(rest):
        group = (first, *chosen)
        if sum(group) <= slices and arrangements(slices, group):
            left = list(rest)
            for size in chosen:
                left.remove(size)
            for others in _grouped(slices, left):
                yield tuple(sorted((group, *others), reverse=True))


def _subsets(sizes: Sequence[int]) -> set[tuple[int, ...]]:
    found: set[tuple[int, ...]] = {()}
    for size in sizes:
        found |= {(*done, size) for done in found}
    return found


def _drawn(rng: random.Random, model: str) -> ComputeChange | None:
    """None where it has no compute instance in part, or nothing is to be changed."""
    instances = _instances(rng, model)
    shapes = [(one.profile, tuple(size for _, size in one.compute)) for one in instances]
    devices = devices_of(shapes)
    wanted = devices_of(_wanted(rng, model, shapes))
    if wanted == devices or not any("c." in name for name in (*devices, *wanted)):
        return None
    users: dict[tuple[int, int | None], frozenset[str]] = {
        (one.start, at): frozenset({f"{one.start}/{at}"}) for one in instances for at in one.busy
    }
    there = tuple(exhaustive.Placed(one.profile, one.start, one.compute) for one in instances)
    costs = (
        exhaustive.least([exhaustive.Gpu(model, there, users, tuple(map(_desired, way)))])
        for way in shared(wanted)
    )
    least = min(filter(None, costs), default=None)
    if least is None:
        return None
    return ComputeChange(
        model=model, starts=(GpuStart(instances=instances),), devices=wanted, least=least
    )


def _desired(shape: Shape) -> exhaustive.Desired:
    return exhaustive.Desired(*shape)


def _instances(rng: random.Random, model: str) -> tuple[InstanceStart, ...]:
    """GPU instances at places drawn in turn, most of them shared, half of the GPUs idle."""
    table, done = PUBLISHED[model], list[tuple[str, int]]()
    places = [(name, at) for name, its in table.profiles.items() for at in its.starts]
    rng.shuffle(places)
    # most of the places are those of one slice, which nothing can share
    places.sort(key=lambda place: slices_of(place[0]) == 1)
    most = rng.randint(1, 4)
    for place in places:
        if len(done) < most and table.fits([*done, place]):
            done.append(place)
    busy = rng.choice((0.0, 0.5))
    found = []
    for profile, start in sorted(done, key=lambda place: place[1]):
        parts = rng.choice(arrangements(slices_of(profile), _sizes(rng, profile)))
        used = frozenset(at for at in range(len(parts)) if rng.random() < busy)
        found.append(InstanceStart(profile=profile, start=start, compute=parts, busy=used))
    return tuple(found)


def _sizes(rng: random.Random, profile: str) -> tuple[int, ...]:
    """Compute instances that fit a GPU instance; a quarter have it whole."""
    slices = slices_of(profile)
    if rng.random() < 0.25:
        return (slices,)
    sizes: tuple[int, ...] = ()
    for _ in range(rng.randint(1, slices)):
        more = tuple(sorted((*sizes, rng.choice(SIZES[slices])), reverse=True))
        if arrangements(slices, more):
            sizes = more
    return sizes


def _wanted(rng: random.Random, model: str, shapes: Sequence[Shape]) -> list[Shape]:
    """Some GPU instances stay as they are, some lose or get compute instances, some are new."""
    wanted: list[Shape] = []
    for profile, parts in shapes:
        kind = rng.random()
        if kind < 0.3:
            wanted.append((profile, parts))
        elif kind < 0.6 and len(parts) > 1:
            stay = rng.sample(parts, rng.randint(1, len(parts) - 1))
            wanted.append((profile, tuple(sorted(stay, reverse=True))))
        elif kind < 0.8:
            wanted.append((profile, _sizes(rng, profile)))
    if not wanted or rng.random() < 0.3:
        profile = rng.choice(list(PUBLISHED[model].profiles))
        wanted.append((profile, _sizes(rng, profile)))
    return wanted
