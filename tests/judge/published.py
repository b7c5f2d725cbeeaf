# SPDX-License-Identifier: Apache-2.0
"""Bus bandwidths of all-reduce that others measured with nccl-tests and published.

Not found, and so not here: measured figures of a DGX-1 with V100 (the first DGX-1 has the same mesh
with one NVLink for each pair, and stands here for it) and of four A100 joined directly. Of V100
joined by two NVLinks each NCCL's own search was published, not a measurement; test_rings.py has
it.

Left out: seven GPUs of the first DGX-1, 34.7 GB/s. NCCL 2.0 ran two rings there. NCCL of today
tries half the speed of the links too, with which six rings fit, 54 GB/s together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tests.judge.bandwidth import AMPERE, HOPPER, PASCAL, Generation, Judge
from tests.judge.links import Links, drawn

_HALF = ((0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3))
_FIRST_DGX1 = drawn(
    8,
    {
        **dict.fromkeys(_HALF, 1),
        **{(i + 4, j + 4): 1 for i, j in _HALF},
        **{(i, i + 4): 1 for i in range(4)},
    },
)
_PAIRS = drawn(4, {(0, 1): 12, (2, 3): 12}, level=4)
"""Two bridged pairs on one socket, which PCIe host bridges keep apart."""
_ONE_PCIE_SWITCH = drawn(4, {}, level=1)


def _switched(links: int) -> Links:
    rows = tuple(tuple(links if i != j else 0 for j in range(8)) for i in range(8))
    levels = tuple(tuple(5 if i != j else 0 for j in range(8)) for i in range(8))
    return Links(nvlinks=rows, levels=levels, is_switched=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """Figures of one machine, by how many GPUs took part: the first ones."""

    machine: str
    source: str
    links: Links
    generation: Generation
    gbps: Mapping[int, float]
    relays: bool = True
    """Whether that NCCL makes rings by way of other GPUs."""

    def judge(self) -> Judge:
        """The judge of this machine."""
        return Judge(self.links, self.generation, relays=self.relays)


PUBLISHED: Final = (
    Published(
        machine="DGX-1 with P100, NCCL 2.0",
        source="github.com/uuudown/Tartan, commit e3166abc of 2018-09-12, "
        "microbenchmark/scale_up_cl/nccl-v2/bandwidth.txt (Li et al., IISWC 2018)",
        links=_FIRST_DGX1,
        generation=PASCAL,
        gbps={2: 17.28, 3: 34.56, 4: 52.09, 5: 5.57, 6: 34.70, 8: 62.24},
        relays=False,
    ),
    Published(
        machine="A100 PCIe, bridged in pairs",
        source="github.com/NVIDIA/nccl-tests/issues/178, 2023-11-17",
        links=_PAIRS,
        generation=AMPERE,
        gbps={2: 208.0, 3: 20.0},
    ),
    Published(
        machine="L40S on one PCIe 4 switch",
        source="github.com/NVIDIA/nccl/issues/1202, 2024-02-28",
        links=_ONE_PCIE_SWITCH,
        generation=AMPERE,
        gbps={2: 22.0, 3: 22.0, 4: 22.0},
    ),
    Published(
        machine="p4d.24xlarge, A100 with NVSwitch",
        source="github.com/NVIDIA/nccl/issues/527, 2022-07-25",
        links=_switched(12),
        generation=AMPERE,
        gbps={8: 230.77},
    ),
    Published(
        machine="eight A100 with NVSwitch",
        source="github.com/NVIDIA/nccl-tests/issues/175, 2023-10-29",
        links=_switched(12),
        generation=AMPERE,
        gbps={8: 232.54},
    ),
    Published(
        machine="H100 with NVSwitch",
        source="github.com/NVIDIA/nccl/issues/1455, 2024-09-19",
        links=_switched(18),
        generation=HOPPER,
        gbps={2: 367.0, 3: 367.0, 4: 367.0, 5: 420.0, 6: 440.0, 7: 460.0, 8: 480.0},
    ),
    Published(
        machine="H200 with NVSwitch",
        source="github.com/stas00/ml-engineering, commit 744d01e1 of 2026-08-22, network/README.md",
        links=_switched(18),
        generation=HOPPER,
        gbps={4: 363.3, 5: 414.2, 6: 435.6, 7: 460.0, 8: 473.1},
    ),
)
