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
    """GPUs that a container requests whole; the kubelet serves containers in their order."""

    gpus: int
    """At least 1."""
    ends: bool = False
    """The container ends before the pod's other containers start, which then get its GPUs first: an
    init container that is not a sidecar."""


class GpuRequest(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """The parts of a pod's request that its score on a node depends on; a key for tables."""

    steps: tuple[ContainerRequest, ...]
    """The containers that request GPUs, in the kubelet's order; at least one."""
    link: Link = Link.ANY
    nic: bool = False
    """GPUs close to an RDMA NIC are preferred."""

    @property
    def gpus(self) -> int:
        """GPUs that the pod holds at one time, at most."""
        peak = lasting = 0
        for step in self.steps:
            peak = max(peak, lasting + step.gpus)
            lasting += 0 if step.ends else step.gpus
        return peak

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


def gpu_request(*gpus: int, link: Link = Link.ANY, nic: bool = False) -> GpuRequest:
    """The request of a pod whose containers have these numbers of GPUs, in this order."""
    return GpuRequest(
        steps=tuple(ContainerRequest(gpus=count) for count in gpus), link=link, nic=nic
    )
