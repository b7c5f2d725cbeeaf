# SPDX-License-Identifier: Apache-2.0
"""The order in which kubelet and device plugin name devices: that of Go's maps, as they are walked.

Source: Go 1.24 and later, internal/runtime/maps: a map with up to eight entries has them in the
order in which they came, and is walked from one of its eight places on; for more there is no order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from random import Random
from typing import Final, TypeVar

PLACES: Final = 8

_Device = TypeVar("_Device")


def walked(entries: Iterable[_Device], chance: Random) -> list[_Device]:
    """A map that took these entries one after the other."""
    found = list(entries)
    if len(found) > PLACES:
        return chance.sample(found, len(found))
    begin = chance.randrange(PLACES)
    return found[begin:] + found[:begin]


def named(devices: Iterable[_Device], free: Collection[_Device], chance: Random) -> list[_Device]:
    """The free ones of a node's healthy devices, as the kubelet names them to the plugin.

    The plugin names all of them to the kubelet, which walks those and picks the free ones, copies
    them and makes a list of the copy. Source: Kubernetes 1.37, pkg/kubelet/cm/devicemanager.
    """
    healthy = walked(walked(devices, chance), chance)
    return walked(walked((it for it in healthy if it in free), chance), chance)
