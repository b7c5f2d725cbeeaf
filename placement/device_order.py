# SPDX-License-Identifier: Apache-2.0
"""Orders in which a kubelet names a node's free GPUs to the device plugin, with their odds.

Kubelet and plugin keep devices in maps of Go. One with up to eight entries keeps them as they came
in, and is walked from a random one of its eight places on, round to the one before: so up to eight
GPUs are only ever named in the order of their numbers, from some GPU on. More than eight entries
lie by a hash with a random seed, and any order may come.
Source: Go 1.24 and later, internal/runtime/maps (Iter.Next, putSlotSmall); before, runtime/map.go
(mapiterinit) does the same. Which maps: Kubernetes 1.37, pkg/kubelet/cm/devicemanager/manager.go
(devicesToAllocate); k8s-device-plugin 0.19.0, internal/rm/devices.go (GetPluginDevices).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Final

from placement.masks import members

PLACES: Final = 8
"""Entries of the smallest map in Go; a map with more of them has no order."""


def first_named(free: int, n: int) -> dict[int, Fraction]:
    """Place of each free GPU to the odds that the kubelet names it first, of up to PLACES GPUs.

    The map of all ``n`` healthy GPUs is walked twice, by the plugin and then by the kubelet, which
    passes over those that are taken. So a GPU that comes after taken ones is the first one more
    often. What is free goes through two maps of its own.
    """
    odds = [Fraction(1), *[Fraction()] * (n - 1)]
    every = _walked(_walked(odds))
    free_odds: list[Fraction] = []
    passed = Fraction()
    for place, share in enumerate(every):
        passed += share
        if free >> place & 1:
            free_odds.append(passed)
            passed = Fraction()
    free_odds[0] += passed  # on from the last GPU round to the first
    return dict(zip(members(free), _walked(_walked(free_odds)), strict=True))


def named_from(free: int, first: int) -> Iterator[int]:
    """Places of the free GPUs in the kubelet's order, if it names ``first`` first."""
    places = members(free)
    middle = places.index(first)
    yield from (*places[middle:], *places[:middle])


def _walked(odds: Sequence[Fraction]) -> list[Fraction]:
    """Odds of each entry to come first, after a map was filled in such an order and walked.

    A walk that begins at an empty place begins with what came in first.
    """
    empty = Fraction(PLACES - len(odds), PLACES)
    return [share * empty + Fraction(1, PLACES) for share in odds]
