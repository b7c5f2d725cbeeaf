# SPDX-License-Identifier: Apache-2.0
"""Quality of a set of GPUs for one container, apart from what the set leaves for others."""

from __future__ import annotations

from typing import NamedTuple

from api.gpu_request import Link
from placement.masks import members
from placement.shape import Shape
from placement.speed import SetSpeeds

FAR = 5
"""The PCIe level of what is across CPUs, and of no NIC at all."""


class Grade(NamedTuple):
    """Quality of a set of GPUs; more is better in each field."""

    speed: int
    """Speed of the set, in hundredths of a GB/s (:meth:`SetSpeeds.speed`); ALONE for one GPU."""
    nvlink: bool
    """NVLinks alone lead around the set."""
    numa: bool
    """All are known to be on one NUMA node."""
    nic: int
    """Closeness of the best placed NIC to the GPU farthest from it: 5 less its PCIe level."""

    @property
    def several(self) -> int:
        """The speed; 0 for a single GPU."""
        return 0 if self.speed == ALONE else self.speed

    def grants(self, link: Link) -> bool:
        """Whether a pod's link wish is met."""
        return (link is not Link.NVLINK or self.nvlink) and (link is not Link.NUMA or self.numa)


ALONE = 1 << 30
"""Above any speed: a single GPU slows nothing down."""
BEST = Grade(speed=ALONE, nvlink=True, numa=True, nic=FAR)


def worse(a: Grade, b: Grade) -> Grade:
    """Grade of a pod with two such containers: in each field the lower of the two."""
    return Grade(
        speed=min(a.speed, b.speed),
        nvlink=a.nvlink and b.nvlink,
        numa=a.numa and b.numa,
        nic=min(a.nic, b.nic),
    )


def grade(shape: Shape, speeds: SetSpeeds, group: int) -> Grade:
    """The grade of a set of GPUs of a shape."""
    places = members(group)
    nodes = {shape.numa[place] for place in places}
    level = min((max(nic[place] for place in places) for nic in shape.nics), default=FAR)
    alone = len(places) == 1
    return Grade(
        speed=ALONE if alone else speeds.speed(group),
        nvlink=speeds.is_linked(group),
        numa=len(nodes) == 1 and (alone or -1 not in nodes),
        nic=FAR - level,
    )
