# SPDX-License-Identifier: Apache-2.0
"""The agent's cluster side in this process, over a real API server, without GPUs to read."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from agent.cluster.gpus_before import GpusBefore
from agent.cluster.membership import Cluster, Member
from agent.cluster.startup_spread import StartupSpread
from agent.pods.kubelet_pods import KubeletPods
from agent.publish import NodeDecision
from api import names
from base.runtime import Tick
from discovery.known_node_gpus import KnownGpus
from discovery.model import NodeSnapshot
from exporters.gpuscape.agent_metrics import AgentMetrics
from kube.api import Api
from kube.client import ApiClient, Program
from kube.kubeconfig import Kubeconfig
from kube.request_limits import RequestLimits
from kubelet.podresources.allocation_model import ContainerDevices, PodDevices, ResourceDevices
from labelers.annotations import node_annotations
from labelers.compose import decide_labels
from labelers.label_settings import LabelSettings
from tests.cluster.agents import Site
from tests.observed import observed

MACHINE = "a30-pair"


@dataclass(kw_only=True)
class FakeKubelet:
    """A pod-resources socket whose pods a test sets."""

    snapshot: NodeSnapshot
    held: dict[str, int] = field(default_factory=dict)
    """Pod to the index of its GPU."""

    def list(self) -> tuple[PodDevices, ...]:
        """Every pod that has a GPU."""
        return tuple(
            PodDevices(
                namespace="jobs",
                name=name,
                containers=(ContainerDevices(name="main", resources=(self._gpus(at),)),),
            )
            for name, at in self.held.items()
        )

    def allocatable(self) -> tuple[ResourceDevices, ...]:
        """All GPUs."""
        return (self._gpus(*range(len(self.snapshot.gpus))),)

    def _gpus(self, *indices: int) -> ResourceDevices:
        ids = tuple(self.snapshot.gpus[at].uuid or "" for at in indices)
        return ResourceDevices(resource="nvidia.com/gpu", ids=ids)


class Publisher:
    """One node's labels, annotations, Lease and state, with the rights of its own bound token."""

    def __init__(
        self,
        site: Site,
        node: str,
        *,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
        trigger: Callable[[str], None],
        token: str | None = None,
        start_spread_seconds: float | None = 0.0,
        seed: int = 0,
    ) -> None:
        """``token``: its account's, bound to a pod on the node; a new one unless given."""
        self.node = node
        self.snapshot = observed(MACHINE).snapshot
        self.kubelet = FakeKubelet(snapshot=self.snapshot)
        self.causes: tuple[str, ...] = ()
        self.own = AgentMetrics("0", clock)
        token = token or site.plane.bound_token(site.namespace, names.AGENT, node)
        program = Program(name=names.AGENT, version="0")
        limits = RequestLimits(
            per_second=program.requests_per_second, burst=program.burst, clock=clock, sleep=sleep
        )
        access = Kubeconfig(str(site.plane.kubeconfig(token=token)))
        self.client = ApiClient(program, access, limits=limits)
        self.requests = 0
        api = cast(Api, _Counted(self.client, self._count))
        uniform = random.Random(seed).uniform  # noqa: S311  # spreads requests, no secret
        self.turn = StartupSpread(
            api,
            namespace=site.namespace,
            spread_seconds=start_spread_seconds,
            clock=clock,
            uniform=uniform,
        )
        self.cluster = Cluster(
            api,
            Member(node=node, namespace=site.namespace, pod=node, identity=node),
            sink="node",
            allow_unconfined=False,
            turn=self.turn,
            driver_ready_file=site.plane.folder / "none",
            update_metrics=self._tell,
            hold=self._hold,
            clear_xids=lambda _wish: False,
            trigger=trigger,
            before=GpusBefore(KnownGpus(), boot=""),
            clock=clock,
            uniform=uniform,
        )
        self.pods = KubeletPods(
            self.kubelet,
            node=node,
            snapshot=lambda: self.snapshot,
            update_metrics=self._tell,
            allocated=self.cluster.show_allocation,
        )

    @property
    def ticks(self) -> Mapping[str, Tick]:
        """What has to be run of this agent."""
        return {**self.cluster.ticks, "pods": self.pods.ask, "publish": self.publish}

    def publish(self, _now: float) -> float:
        """Decide from the snapshot, as the agent does each minute."""
        labels = decide_labels(self.snapshot, LabelSettings()).decisions
        annotations = node_annotations(self.snapshot)
        self.cluster.set_desired(NodeDecision(labels=labels, annotations=annotations))
        return 60.0

    def _tell(self, change: Callable[[AgentMetrics], None]) -> None:
        change(self.own)

    def _count(self) -> None:
        self.requests += 1

    def _hold(self, causes: tuple[str, ...]) -> None:
        self.causes = causes


class _Counted:
    """An API that counts what is asked of it."""

    def __init__(self, api: ApiClient, count: Callable[[], None]) -> None:
        self._api = api
        self._count = count

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        self._count()
        found: Callable[..., Any] = getattr(self._api, verb)
        return found
