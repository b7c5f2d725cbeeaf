# SPDX-License-Identifier: Apache-2.0
"""What a pod asks of GPUs, as scoring sees it and score table files have it."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Link(StrEnum):
    """The values of a pod's annotation ``gpuscape.io/link``."""

    ANY = "any"
    NUMA = "numa"
    NVLINK = "nvlink"


class ContainerRequest(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """One container that asks for whole GPUs; the kubelet serves containers in their order."""

    gpus: int
    """At least 1."""
    ends: bool = False
    """It ends before the pod's containers start, which then get its GPUs first: an init container
    that is not a sidecar."""


class GpuRequest(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """All of a pod that its score on a node depends on; a key for tables."""

    steps: tuple[ContainerRequest, ...]
    """Not empty."""
    link: Link = Link.ANY
    nic: bool = False
    """Close to an RDMA NIC, please."""

    @property
    def gpus(self) -> int:
        """How many the pod holds at most at one time."""
        most = lasting = 0
        for step in self.steps:
            most = max(most, lasting + step.gpus)
            lasting += 0 if step.ends else step.gpus
        return most

    @property
    def several(self) -> tuple[int, ...]:
        """GPUs of each container that has several and whose GPUs' quality counts."""
        staying = [step.gpus for step in self.steps if not step.ends]
        counted = staying or [step.gpus for step in self.steps]
        return tuple([gpus for gpus in counted if gpus > 1])

    @property
    def judged(self) -> tuple[bool, ...]:
        """For each step whether its GPUs' quality counts: of those that stay, if any does."""
        staying = tuple(not step.ends for step in self.steps)
        return staying if any(staying) else (True,) * len(staying)


def wish(*gpus: int, link: Link = Link.ANY, nic: bool = False) -> GpuRequest:
    """A wish of containers with so many GPUs each."""
    return GpuRequest(steps=tuple(ContainerRequest(gpus=each) for each in gpus), link=link, nic=nic)
