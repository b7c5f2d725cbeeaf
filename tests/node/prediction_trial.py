# SPDX-License-Identifier: Apache-2.0
"""Pods that come and go on a real node, each compared with what the extender predicts for it.

What a pod got is read from the kubelet's own checkpoint of its device manager, which neither the
agent nor the extender reads.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from api import keys
from api.topology_annotation import TopologyAnnotation, decode
from kube.objects.pod import Pod
from placement.best_effort import LOST
from placement.kubelet_model import Policies, TopologyManager
from placement.score_table import ScoreTable
from placement.shape import shape
from scheduler.cluster.pod_gpu_request import Rules, ask
from tests.agent.agent_process import until
from tests.cluster.scheduling import PROFILE
from tests.controlplane.plane import Object
from tests.deploy.daemonset import container, daemonset
from tests.node import handed_out, numa_nodes
from tests.node.gpu_cluster import gpu_cluster
from tests.node.gpu_pods import gpu_pod, gpus
from tests.node.machine import LOGS
from tests.node.nvidia_plugin import NvidiaPlugin
from tests.node.predicted_gpus import GivenGpus
from tests.node.ranked_scheduling import RankedScheduling
from tests.node.real_node import SOON, RealNode

LANDED: Final = "GPUs allocated to pod"
FIRST: Final = "first"
"""The init container, which ends."""
SHAPES: Final = ((1,), (1,), (2,), (2,), (2,), (3,), (4,), (1, 2), (2, 2))
"""GPUs of the containers of a pod."""
HAS_FIRST: Final = 0.2
LEAVES: Final = 0.4
"""Odds that a pod leaves before the next one comes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guest:
    """A pod that runs."""

    gpus: int
    """All that the kubelet keeps for it."""
    reported: int
    """Those that containers have which run."""


@dataclass(kw_only=True)
class Trial:
    """One node, on which nobody else asks for GPUs."""

    scheduling: RankedScheduling
    node: RealNode
    machine: str
    policy: TopologyManager
    seed: int = 0
    guests: dict[str, Guest] = field(default_factory=dict)
    """By the pod's name."""
    _made: int = 0

    def __post_init__(self) -> None:
        self._plane = self.scheduling.cluster.plane
        self._random = random.Random(f"{self.machine} {self.policy} {self.seed}")  # noqa: S311
        self._namespace = self._plane.namespace("trial")
        self._pods = f"/api/v1/namespaces/{self._namespace}/pods"
        self._annotation = self._topology()
        self._table = ScoreTable(shape(self._annotation), Policies(tm=self.policy))

    @property
    def free(self) -> int:
        """Mask of the GPUs that no pod has."""
        taken = sum(guest.gpus for guest in self.guests.values())  # none is in two of them
        return ((1 << self._annotation.n) - 1) & ~taken

    def run(self, pods: int) -> Iterator[GivenGpus]:
        """Have so many pods come, and some of them leave."""
        for _ in range(pods):
            containers = self._random.choice(SHAPES)
            first = self._random.randint(1, 4) if self._random.random() < HAS_FIRST else 0
            needed = max(sum(containers), first)
            while self.guests and (
                needed > self.free.bit_count() or self._random.random() < LEAVES
            ):
                self.leave(self._random.choice(sorted(self.guests)))
            yield self.come(*containers, first=first)

    def come(self, *containers: int, first: int = 0) -> GivenGpus:
        """A pod whose containers ask for so many GPUs, ``first`` its init container."""
        free = self.free
        unreported = any(guest.gpus != guest.reported for guest in self.guests.values())
        made = self._plane.demand("POST", self._pods, self._pod(containers, first))
        name = made["metadata"]["name"]
        until(lambda: self._status(name)["phase"] in ("Failed", "Running"), SOON)
        status, asked = self._status(name), ask(Pod.from_object(made), Rules())
        assert asked is not None
        outcome = self._table.outcome(free, asked.wish)
        given = partial(
            GivenGpus,
            machine=self.machine,
            policy=self.policy,
            free=free,
            wish=asked.wish,
            predicted=outcome.sets,
            unreported=unreported,
        )
        if status["phase"] == "Failed":
            self._plane.demand("DELETE", f"{self._pods}/{name}")
            return given(actual=LOST, reason=str(status.get("reason", "")))
        guest = self.guests[name] = self._guest(made["metadata"]["uid"])
        until(lambda: self._landed(name) is not None, SOON)
        return given(
            actual=guest.gpus,
            expected=float(outcome.reported.get(guest.reported, 0)),
            published=(self._landed(name) or {}).get("odds"),
        )

    def leave(self, name: str) -> None:
        """Have a pod end; it is gone, and its GPUs are free, when this returns."""
        self._plane.demand("DELETE", f"{self._pods}/{name}")
        until(lambda: self._is_gone(name), SOON)
        del self.guests[name]

    def _is_gone(self, name: str) -> bool:
        return self._plane.request("GET", f"{self._pods}/{name}").status == http.client.NOT_FOUND

    def _status(self, name: str) -> Object:
        status: Object = self._plane.demand("GET", f"{self._pods}/{name}")["status"]
        return status

    def _pod(self, containers: Sequence[int], first: int) -> Object:
        """One for this node; its init container has ended by itself when it runs."""
        self._made += 1
        names = (f"main-{place}" for place in range(len(containers)))
        body = gpu_pod(f"pod-{self._made}", *map(gpus, names, containers), restart="Never")
        body["spec"]["schedulerName"] = PROFILE
        body["spec"]["nodeSelector"] = {"kubernetes.io/hostname": self.node.name}
        if first:
            own = container(daemonset())
            ends = {**gpus(FIRST, first).manifest(), "image": own["image"]}
            body["spec"]["initContainers"] = [{**ends, "command": [*own["command"], "--version"]}]
        return body

    def _guest(self, uid: str) -> Guest:
        """What a pod has."""
        its = [it for it in handed_out.grants(self.node) if it.pod_uid == uid]
        everything, running = set[str](), set[str]()
        for grant in its:
            everything |= grant.ids
            if grant.container != FIRST:
                running |= grant.ids
        return Guest(gpus=self._mask(everything), reported=self._mask(running))

    def _mask(self, ids: set[str]) -> int:
        return sum(1 << self._annotation.ids.index(each) for each in ids)

    def _landed(self, name: str) -> Object | None:
        """What an extender logged of the pod; of several the first one that did."""
        for line in self._lines_of_extenders():
            if LANDED in line:
                entry: Object = json.loads(line.split(" ", 3)[3])
                if entry["pod"] == f"{self._namespace}/{name}":
                    return entry
        return None

    def _lines_of_extenders(self) -> Iterator[str]:
        for node in self.scheduling.cluster.nodes.values():
            logs = node.folder / LOGS / "pods"
            for file in sorted(logs.glob("*_gpuscape-scheduler-*/*/*.log")):
                yield from file.read_text(errors="replace").splitlines()

    def _topology(self) -> TopologyAnnotation:
        found = decode(self.node.object()["metadata"]["annotations"][keys.TOPOLOGY])
        assert found is not None
        return found


@contextlib.contextmanager
def trials(folder: Path, policy: TopologyManager, *machines: str) -> Iterator[list[Trial]]:
    """A node for each machine, with two NUMA nodes where the policy goes by them, an extender that
    knows the policy, and no pod with a GPU."""
    prepare = _leave if policy is TopologyManager.NONE else partial(_align, policy=policy)
    with gpu_cluster(folder, *machines, prepare=prepare) as found:
        cluster = found.cluster
        for node in cluster.nodes.values():
            NvidiaPlugin.start(cluster.plane, node)
        scheduling = RankedScheduling.install(cluster, f"GPUSCAPE_TOPOLOGY_MANAGER={policy}")
        yield [
            Trial(scheduling=scheduling, node=node, machine=machine, policy=policy)
            for node, machine in zip(cluster.nodes.values(), machines, strict=True)
        ]


def _leave(_node: RealNode) -> None:
    """As it is."""


def _align(node: RealNode, policy: TopologyManager) -> None:
    node.stop("kubelet")
    numa_nodes.show(node)
    node.start_kubelet({"topologyManagerPolicy": policy.value})
