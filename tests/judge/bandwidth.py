# SPDX-License-Identifier: Apache-2.0
"""All-reduce bandwidth of any set of GPUs of a machine, by the search that NCCL makes.

NCCL cuts the links into channels of one speed and looks for as many rings as fit, by kinds of
path: NVLinks alone, then steps by way of one other GPU of the set where two share no NVLink, then
PCIe as well, with room for one ring. It tries its speeds from the greatest down, no
further than to half of the best one's, and keeps the most rings times their speed. That product
is the bus bandwidth of all-reduce that nccl-tests reports. With an NVSwitch a ring may take the
GPUs in any order, so all NVLinks of a GPU count; from Hopper on the switches add up themselves
(NVLink SHARP), which is faster than rings where more than four GPUs take part.

Two sets are equal where NCCL finds the same for both; nothing decides between them.

Trees are left out: within a node NCCL makes them as chains, on as many channels as it has rings,
and reckons (n-1)/n of 92 % of those channels' speed, which is less than the rings.

Sources, all public: NCCL 2.30 (github.com/NVIDIA/nccl, commit 5067397c), src/graph/topo.h for
the rates, src/graph/search.cc for the search, src/graph/paths.cc for paths by way of a GPU,
src/graph/tuning.cc for trees; github.com/NVIDIA/nccl/issues/819 (rings by way of a GPU),
nccl/issues/672 (trees are chains), nccl-tests/issues/149 (20 GB/s of 25 per NVLink, and 230 GB/s
through an A100), nccl-tests/issues/212 (NVLink SHARP); doc/PERFORMANCE.md of nccl-tests (bus
bandwidth).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from math import inf
from typing import Final

from tests.judge.links import FARTHEST, Links
from tests.judge.rings import closes, most_rings, narrowest_cut

_SPEEDS: Final = (40.0, 30.0, 20.0, 18.0, 15.0, 12.0, 10.0, 9.0, 7.0, 6.0, 5.0, 4.0, 3.0)
_HOPPER_SPEEDS: Final = (60.0, 50.0, 40.0, 30.0, 24.0, 20.0, 15.0, 12.0, 11.0, 6.0, 3.0)
"""GB/s that NCCL tries for a channel. Source: src/graph/search.cc."""
_LEAST_PART = 0.49
"""A speed lower than this part of the best one's is not tried any more."""
_MOST_CHANNELS = 32
_THROUGH_CPU: Final = 3
"""From this PCIe level on the path leads through a CPU, at the farthest through two."""
_CPU_OVERHEAD = 6 / 5
"""Of traffic between GPUs through a CPU of Intel's."""
_SHARP_GPUS = 5
"""So many GPUs have more from NVLink SHARP than from rings.
Source: github.com/NVIDIA/nccl/issues/1455."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """What links of one generation of GPUs and their servers carry, in GB/s and one direction."""

    nvlink: float
    """One NVLink, without what its packets add."""
    gpu: float = inf
    """All NVLinks of one GPU together."""
    sharp: float = 0.0
    """Data that NVSwitches add up; 0 where they do not."""
    pcie: float = 12.0
    sockets: float = 6.0
    """Between two CPUs."""
    speeds: tuple[float, ...] = _SPEEDS


PASCAL: Final = Generation(nvlink=18.0)
"""P100 on PCIe 3 and Broadwell, as in the first DGX-1."""
VOLTA: Final = Generation(nvlink=20.0)
"""V100 on PCIe 3 and Broadwell, as in the DGX-1."""
AMPERE: Final = Generation(nvlink=20.0, gpu=230.0, pcie=24.0, sockets=10.0)
"""A100 on PCIe 4 and Intel's server CPUs from Skylake on."""
HOPPER: Final = Generation(
    nvlink=20.6, gpu=370.0, sharp=275.0, pcie=48.0, sockets=22.0, speeds=_HOPPER_SPEEDS
)
"""H100 and H200 on PCIe 5 and Sapphire Rapids."""


class _Path(IntEnum):
    """Kinds of path between two GPUs of a ring, in the order in which they are tried."""

    NVLINK = 0
    RELAYED = 1
    """NVLinks, by way of one other GPU of the set where there are none between two."""
    PCIE = 2


class Judge:
    """All-reduce bandwidths of the sets of one machine; keeps what it computed."""

    def __init__(self, links: Links, generation: Generation, *, relays: bool = True) -> None:
        """``relays``: rings may go by way of other GPUs, which NCCL does from 2.9 on."""
        self._links = links
        self._generation = generation
        self._relays = relays
        self.gbps = cache(self._gbps)
        self.best = cache(self._best)

    def _gbps(self, group: int) -> float:
        """GB/s of bus bandwidth of the set with these bits; 0 for fewer than two GPUs."""
        gpus = tuple(place for place in range(self._links.n) if group >> place & 1)
        if len(gpus) < 2:
            return 0.0
        return self._switched(gpus) if self._links.is_switched else self._ringed(gpus)

    def _best(self, size: int) -> float:
        """GB/s of the fastest set of so many GPUs; 0 where there is none."""
        groups = (group for group in range(1 << self._links.n) if group.bit_count() == size)
        return max(map(self.gbps, groups), default=0.0)

    def _switched(self, gpus: tuple[int, ...]) -> float:
        generation, n = self._generation, len(gpus)
        links = min(self._links.nvlinks[i][j] for i in gpus for j in gpus if i != j)
        ring = min(links * generation.nvlink, generation.gpu)
        if not ring:
            return self._pcie(gpus)
        return max(ring, generation.sharp * 2 * (n - 1) / n) if n >= _SHARP_GPUS else ring

    def _ringed(self, gpus: tuple[int, ...]) -> float:
        """The best of NCCL's speeds and kinds of path, in the order in which it tries them."""
        kinds = list(_Path) if self._relays and len(gpus) > 2 else [_Path.NVLINK, _Path.PCIE]
        enough = max(sum(self._rate(i, j) for j in gpus) for i in gpus)
        best = best_speed = 0.0
        best_kind = _Path.PCIE
        for speed in self._generation.speeds:
            if best and (best >= enough or speed <= _LEAST_PART * best_speed):
                break
            for kind in kinds:
                total = self._total(gpus, speed, kind, best)
                if total > best:
                    best, best_speed, best_kind = total, speed, kind
                if best and kind >= best_kind:
                    break
        return min(best, self._generation.gpu)

    def _total(self, gpus: tuple[int, ...], speed: float, kind: _Path, best: float) -> float:
        """GB/s of all rings of one speed; 0 where they cannot be more than ``best``."""
        if kind is _Path.PCIE:
            pcie = self._pcie(gpus)
            return pcie if pcie >= speed else 0.0
        rates = {(i, j): self._rate(i, j) for i in gpus for j in gpus}
        room = {arc: int(rate // speed) for arc, rate in rates.items() if rate >= speed}
        if narrowest_cut(gpus, room) * speed <= best:
            return 0.0
        apart = {arc for arc, rate in rates.items() if not rate} if kind is _Path.RELAYED else ()
        return min(most_rings(gpus, room, apart), _MOST_CHANNELS) * speed

    def _rate(self, i: int, j: int) -> float:
        """GB/s of the NVLinks of a pair."""
        return self._links.nvlinks[i][j] * self._generation.nvlink

    def _pcie(self, gpus: tuple[int, ...]) -> float:
        """GB/s of the one ring that PCIe has room for; NVLinks take its place where there are."""
        nvlinks, levels = self._links.nvlinks, self._links.levels

        def close(level: int) -> bool:
            return closes(gpus, lambda i, j: nvlinks[i][j] > 0 or levels[i][j] <= level)

        level = next(filter(close, range(FARTHEST + 1)))
        if level == FARTHEST:
            return min(self._generation.pcie, self._generation.sockets)
        return self._generation.pcie / (_CPU_OVERHEAD if level >= _THROUGH_CPU else 1)
