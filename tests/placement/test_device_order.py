# SPDX-License-Identifier: Apache-2.0
"""The orders in which a kubelet names free GPUs, beside maps of Go that are walked by hand."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

import pytest

from placement.device_order import PLACES, first_named, named_from
from placement.masks import members

WALKS = 4
"""Of the plugin's devices, the kubelet's healthy ones, a copy of the free ones, and its list."""


def walked(entries: Sequence[int], begin: int) -> list[int]:
    """A map that took these entries, from one of its places on, round to the one before."""
    places = [*entries, *[None] * (PLACES - len(entries))]
    turned = places[begin:] + places[:begin]
    return [each for each in turned if each is not None]


def orders(free: int, n: int) -> Counter[tuple[int, ...]]:
    """Every order in which the GPUs may be named, by how many ways lead to it."""
    found: Counter[tuple[int, ...]] = Counter()
    for plugin, kubelet, copy, listed in itertools.product(range(PLACES), repeat=WALKS):
        healthy = walked(range(n), plugin)
        left = [each for each in walked(healthy, kubelet) if free >> each & 1]
        found[tuple(walked(walked(left, copy), listed))] += 1
    return found


@pytest.mark.parametrize(
    ("free", "n"), [(0b1, 1), (0b101, 3), (0b1111, 4), (0b11010011, 8), (0b11111111, 8)]
)
def test_gpus_are_named_as_maps_of_go_are_walked(free: int, n: int) -> None:
    ways = orders(free, n)
    named = {tuple(named_from(free, first)): odds for first, odds in first_named(free, n).items()}
    assert named == {order: Fraction(count, PLACES**WALKS) for order, count in ways.items()}


def test_a_gpu_after_taken_ones_is_named_first_more_often() -> None:
    odds = first_named(0b11000001, 8)
    assert list(odds) == list(members(0b11000001))
    assert odds[6] > odds[0] == odds[7]
    assert sum(odds.values()) == 1
