# SPDX-License-Identifier: Apache-2.0
"""Where compute instances fit within one GPU instance. Pure and exact.

The compute slices of a GPU instance are a row; a compute instance takes some of them, at certain
starts. A driver names the starts only for a GPU instance that is there, and an old one never: then
multiples of the next power of two are assumed, as all known drivers have them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from discovery.mig_state import FoundCompute, MigProfile


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class ComputePlace:
    """The slices of one compute instance."""

    first: int
    """Within the GPU instance."""
    slices: int


def compute_places(
    profile: MigProfile, sizes: Sequence[int], present: Sequence[FoundCompute] = ()
) -> tuple[ComputePlace, ...] | None:
    """Disjoint places for compute instances of these sizes, in ascending order; None for no room.

    ``present``: compute instances that stay. A driver that takes the first free place by itself
    makes them in this order at these places too.
    """
    taken = 0
    for one in present:
        taken |= _mask(one.start, one.slices)
    places = _disjoint(profile, sorted(sizes, reverse=True), taken)
    return None if places is None else tuple(sorted(places))


def chosen_places(profile: MigProfile, sizes: Sequence[int]) -> bool:
    """Whether the driver has named the starts of these sizes, so that one can be chosen."""
    named = {one.slices for one in profile.compute if one.starts}
    return named.issuperset(sizes)


def _disjoint(
    profile: MigProfile, sizes: Sequence[int], taken: int
) -> tuple[ComputePlace, ...] | None:
    if not sizes:
        return ()
    size, *others = sizes
    for first in _starts(profile, size):
        if not _mask(first, size) & taken:
            rest = _disjoint(profile, others, taken | _mask(first, size))
            if rest is not None:
                return (ComputePlace(first=first, slices=size), *rest)
    return None


def _starts(profile: MigProfile, size: int) -> Sequence[int]:
    if not profile.compute or any(one.slices == size and not one.starts for one in profile.compute):
        return range(0, profile.slices - size + 1, 1 << (size - 1).bit_length())
    return next((one.starts for one in profile.compute if one.slices == size), ())


def _mask(first: int, slices: int) -> int:
    return ((1 << slices) - 1) << first
