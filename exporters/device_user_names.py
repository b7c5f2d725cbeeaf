# SPDX-License-Identifier: Apache-2.0
"""Containers, pods and jobs that use a GPU or a GPU instance, as metrics name them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from discovery.gpu_part import GpuPart


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The claim through which a container has a device. Source: dynamic resource allocation."""

    namespace: str
    name: str
    driver: str
    pool: str
    device: str
    mig_profile: str | None = None
    """Profile of the MIG device; None: the device is a whole GPU."""
    mig_uuid: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerUser:
    """A container that uses a device, or a share of one."""

    namespace: str
    pod: str
    container: str
    uid: str | None = None
    """The pod's; known only where pods may be read."""
    share: str | None = None
    """The replica of a shared device: what stands behind ``::`` in its id."""
    claim: Claim | None = None
    labels: tuple[tuple[str, str], ...] = ()
    """Labels of the pod that the settings select, by names that Prometheus allows, sorted.

    A name may be one that a series has anyway, such as ``pod``: then the series' own is right.
    """


ContainerUsers = Mapping[GpuPart, tuple[ContainerUser, ...]]
"""Device users of each device that has any; a shared device has several, in a steady order."""

NO_USERS: ContainerUsers = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class PodUse:
    """Use of a GPU or GPU instance by all processes of one pod; None: not known."""

    memory_bytes: int | None = None
    busy_ratio: float | None = None
    """Share of the time for which their kernels ran."""


PodUses = Mapping[str, Mapping[tuple[int | None, str], PodUse]]
"""Bus id of a GPU to what pods have of it, by GPU instance, None without MIG, and the pod's UID.

A pod that is not in there has no process on it; of a GPU that is not in there nothing is known.
"""

NO_POD_USES: PodUses = {}

JobIds = Mapping[GpuPart, tuple[str, ...]]
"""The jobs of a batch system that run on it, in the order of their file; never empty."""

NO_JOBS: JobIds = {}
