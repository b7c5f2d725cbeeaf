# SPDX-License-Identifier: Apache-2.0
"""Holders of each GPU, read from the kubelet once for the state on the Lease and for metrics."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from agent.pods.gpu_allocation import About, gpu_allocation, nothing_known
from base.errors import Transient
from base.log_once import LogOnce
from base.words import first_names
from discovery.model import NodeSnapshot
from exporters.gpuscape.agent_metrics import AgentMetrics
from exporters.gpuscape.node_view import GpuAllocation
from kubelet.allocated_devices import NodeAllocation, UnknownDevice, allocation
from kubelet.device_resolution import DeviceNames, Resolve, no_slices
from kubelet.podresources.allocation_model import PodDevices, ResourceDevices

log = logging.getLogger(__name__)

ASK_SECONDS = 5.0
KEEP_SECONDS = 60.0
"""How long device users are shown that the kubelet does not confirm.

A kubelet that restarts, for an upgrade or a new setting, is away for some ten seconds, and
nobody starts or ends on the node meanwhile: dropping the names would end all their series. Away
for longer, its Node is not ready, pods are moved, and its last answer is no longer known to hold.
"""
SOURCE: Final = "pod-resources"
_NAMED_AT_MOST = 5


class PodResourcesSource(Protocol):
    """The pod-resources socket, as far as the agent uses it. Raises Transient."""

    def list(self) -> tuple[PodDevices, ...]: ...
    def allocatable(self) -> tuple[ResourceDevices, ...]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """The kubelet's answers, and the monotonic time when they were asked for."""

    pods: tuple[PodDevices, ...]
    offered: tuple[ResourceDevices, ...]
    answered_at: float


def shown_nowhere(_snapshot: NodeSnapshot, _allocation: NodeAllocation) -> None:
    """Show the allocation nowhere: without a cluster there is no Lease for it."""


class KubeletPods:
    """Asks the kubelet which container has which device, for all who show it. One thread ticks."""

    def __init__(
        self,
        kubelet: PodResourcesSource,
        *,
        node: str,
        snapshot: Callable[[], NodeSnapshot | None],
        update_metrics: Callable[[Callable[[AgentMetrics], None]], None],
        show: Callable[[GpuAllocation | None], None] = lambda _allocation: None,
        allocated: Callable[[NodeSnapshot, NodeAllocation], None] = shown_nowhere,
        resolve: Resolve = no_slices,
        about: About = nothing_known,
        resources: Collection[str] = (),
        wall: Callable[[], float] = time.time,
    ) -> None:
        """``node``: its name in the cluster; ``resources``: names of GPUs that count like NVIDIA's.

        ``snapshot`` gives the newest; ``update_metrics`` gets changes of the metrics of the socket;
        ``show`` gets what is held at each poll, the same again too, and None where that is not
        known; ``allocated`` gets every answer of the kubelet, but not what is kept when it gives
        none. ``resolve`` names devices of DRA claims, ``about`` has what the API server knows of a
        pod. ``wall`` is Unix time, only shown.
        """
        self._kubelet = kubelet
        self._node = node
        self._snapshot = snapshot
        self._update_metrics = update_metrics
        self._show = show
        self._allocated = allocated
        self._resolve = resolve
        self._about = about
        self._resources = resources
        self._wall = wall
        self._answer: _Answer | None = None
        self._incomplete = LogOnce()

    def ask(self, now: float) -> float:
        """Ask once, at a monotonic time in seconds; the seconds until the next time."""
        snapshot = self._snapshot()
        if snapshot is None:
            return ASK_SECONDS
        try:
            self._answer = _Answer(
                pods=self._kubelet.list(), offered=self._kubelet.allocatable(), answered_at=now
            )
        except Transient as error:
            self._update_metrics(lambda own: own.source_failed(SOURCE))
            self._say(str(error))
            self._keep(snapshot, now)
            return ASK_SECONDS
        node_allocation = self._allocation(snapshot, self._answer)
        self._update_metrics(
            partial(_answered, unix_seconds=self._wall(), unknown=len(node_allocation.unknown))
        )
        self._say(_unknown(node_allocation.unknown))
        self._show(gpu_allocation(node_allocation, snapshot, self._about))
        self._allocated(snapshot, node_allocation)
        return ASK_SECONDS

    def _keep(self, snapshot: NodeSnapshot, now: float) -> None:
        """Show the last answer, by the devices as they are now, while that may still hold."""
        if self._answer is None or now - self._answer.answered_at > KEEP_SECONDS:
            self._answer = None
            self._show(None)
            return
        node_allocation = self._allocation(snapshot, self._answer)
        self._show(gpu_allocation(node_allocation, snapshot, self._about))

    def _allocation(self, snapshot: NodeSnapshot, answer: _Answer) -> NodeAllocation:
        names = DeviceNames(snapshot, pool=self._node, resolve=self._resolve)
        return allocation(answer.pods, answer.offered, names, resources=self._resources)

    def _say(self, problem: str) -> None:
        if self._incomplete.is_new(problem) and problem:
            log.warning("GPU to pod mapping incomplete", extra={"why": problem})


def _answered(own: AgentMetrics, *, unix_seconds: float, unknown: int) -> None:
    own.source_answered(SOURCE, unix_seconds)
    own.unknown_devices(SOURCE, unknown)


def _unknown(unknown: Iterable[UnknownDevice]) -> str:
    """Message about devices that this node does not have; empty where there are none."""
    names = sorted(f"{device.resource} {device.id}" for device in unknown)
    listed = first_names(names, _NAMED_AT_MOST)
    return f"devices that this node does not have: {listed}" if names else ""
