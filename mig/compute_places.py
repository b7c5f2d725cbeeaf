# SPDX-License-Identifier: Apache-2.0
"""Places of compute instances within one GPU instance. Pure and exact.

The compute slices of a GPU instance are a row; a compute instance takes some of them, at certain
starts. A driver names the starts only for a GPU instance that exists, and an old driver never does:
then multiples of the next power of two are assumed, as all known drivers have them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from discovery.mig_state import CurrentCompute, MigProfile


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class ComputePlace:
    """The slices of one compute instance."""

    first: int
    """Number of its first slice within the GPU instance."""
    slices: int


def compute_places(
    profile: MigProfile, sizes: Sequence[int], present: Sequence[CurrentCompute] = ()
) -> tuple[ComputePlace, ...] | None:
    """Disjoint places for compute instances of these sizes, ascending; None if there is no room.

    ``present``: compute instances that stay. A driver that always takes the first free place puts
    them at these places too, if they are made in this order.
    """
    taken = 0
    for compute in present:
        taken |= _mask(compute.start, compute.slices)
    places = _disjoint(profile, sorted(sizes, reverse=True), taken)
    return None if places is None else tuple(sorted(places))


def keepable(
    profile: MigProfile, present: Sequence[CurrentCompute], desired: Sequence[int]
) -> Iterator[tuple[CurrentCompute, ...]]:
    """The largest sets of present compute instances that can stay for the desired sizes.

    The missing sizes have places next to a set, and no set contains another one. There are none
    only where the desired sizes do not fit an empty GPU instance.
    """
    found: list[frozenset[int]] = []
    for number in range(min(len(present), len(desired)), -1, -1):
        for kept in combinations(present, number):
            ids = frozenset(compute.id for compute in kept)
            missing = missing_sizes(kept, desired)
            if (
                len(missing) == len(desired) - number
                and not any(ids <= larger for larger in found)
                and compute_places(profile, missing, kept) is not None
            ):
                found.append(ids)
                yield kept


def missing_sizes(present: Sequence[CurrentCompute], desired: Sequence[int]) -> tuple[int, ...]:
    """The desired sizes that no present compute instance has, the largest first."""
    missing = Counter(desired) - Counter(compute.slices for compute in present)
    return tuple(sorted(missing.elements(), reverse=True))


def chosen_places(profile: MigProfile, sizes: Sequence[int]) -> bool:
    """Whether the driver has named the starts of these sizes, so that one can be chosen."""
    named = {compute.slices for compute in profile.compute if compute.starts}
    return named.issuperset(sizes)


def _disjoint(
    profile: MigProfile, sizes: Sequence[int], taken: int
) -> tuple[ComputePlace, ...] | None:
    if not sizes:
        return ()
    size, *remaining = sizes
    for first in _starts(profile, size):
        if not _mask(first, size) & taken:
            rest = _disjoint(profile, remaining, taken | _mask(first, size))
            if rest is not None:
                return (ComputePlace(first=first, slices=size), *rest)
    return None


def _starts(profile: MigProfile, size: int) -> Sequence[int]:
    if not profile.compute or any(
        compute.slices == size and not compute.starts for compute in profile.compute
    ):
        return range(0, profile.slices - size + 1, 1 << (size - 1).bit_length())
    return next((compute.starts for compute in profile.compute if compute.slices == size), ())


def _mask(first: int, slices: int) -> int:
    return ((1 << slices) - 1) << first
