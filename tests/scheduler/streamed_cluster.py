# SPDX-License-Identifier: Apache-2.0
"""GPU nodes that change as fast as a test likes, as an API server's watches report them."""

from __future__ import annotations

import json
import queue
import random
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from api import keys, names, state_annotation, topology_annotation
from api.state_annotation import StateAnnotation, pod_key
from api.topology_annotation import TopologyAnnotation
from kube.api import Object
from placement.masks import members
from tests.cluster import gpu_fleet
from tests.fakes.scripted import Reply, Request, ScriptedServer, answer, status

LEASE_SECONDS = 600
NAMESPACE = "jobs"
QUIET_SECONDS = 20.0
"""Then a watch gets a bookmark, as a server sends them."""
_SIZES = (1, 1, 1, 1, 2, 2, 3, 4, 8, 16)
_MORE_LABELS = {f"feature.node.kubernetes.io/fact-{number}": "true" for number in range(40)}
"""Nodes have dozens of them, which nobody here reads."""
_END = {"annotations": {"k8s.io/initial-events-end": "true"}}


@dataclass(slots=True, kw_only=True)
class _Node:
    name: str
    machine: str
    topology: TopologyAnnotation
    pods: dict[str, int] = field(default_factory=dict)
    """Name to mask."""
    renewals: int = 0

    @property
    def free(self) -> int:
        taken = sum(self.pods.values())
        return (1 << self.topology.n) - 1 & ~taken


class StreamedCluster:
    """Nodes of these machines in turns, whose pods come and go by chance; for one thread.

    The server has no more than the three watches that the extender follows. A watch that asks to
    go on from a version has to begin anew.
    """

    def __init__(
        self, machines: Sequence[str], count: int, *, seed: int = 1, most_pods: int = 5
    ) -> None:
        """``most_pods``: bound to each node at first, at most."""
        self._chance = random.Random(seed)  # noqa: S311  # has to repeat
        self._lock = threading.Lock()
        self._watches: dict[str, list[queue.SimpleQueue[bytes]]] = defaultdict(list)
        self._objects: dict[str, dict[str, Object]] = {"nodes": {}, "leases": {}, "pods": {}}
        self._version = self._pods = self._renewed = 0
        self.free_sets: dict[str, set[int]] = {machine: set() for machine in machines}
        """All that any node of a machine ever had."""
        self._nodes = [
            _Node(name=f"gpu-{number:04}", machine=machine, topology=_topology(machine))
            for number in range(count)
            for machine in [machines[number % len(machines)]]
        ]
        for node in self._nodes:
            self._put("nodes", "ADDED", _node(node))
            for _ in range(self._chance.randrange(most_pods + 1)):
                self._bind(node)
            self._renew(node)

    @property
    def names(self) -> list[str]:
        """Of all nodes."""
        return [node.name for node in self._nodes]

    @property
    def free_gpus(self) -> int:
        """On all nodes, now."""
        return sum(node.free.bit_count() for node in self._nodes)

    def change(self) -> None:
        """On some node a pod ends or another one is bound, as the node's agent reports at once;
        the agent whose turn it is renews its Lease."""
        node = self._chance.choice(self._nodes)
        if node.pods and (not node.free or self._chance.random() < 0.5):
            name = self._chance.choice(list(node.pods))
            del node.pods[name]
            self._put("pods", "DELETED", self._objects["pods"][name])
        else:
            self._bind(node)
        self._renew(node)
        self._renewed += 1
        self._renew(self._nodes[self._renewed % len(self._nodes)])

    def serving(self) -> ScriptedServer:
        """Its API server, for a ``with`` statement."""
        return ScriptedServer(self._reply)

    def _bind(self, node: _Node) -> None:
        """A pod on any of the free GPUs."""
        free = members(node.free)
        gpus = min(self._chance.choice(_SIZES), len(free))
        if not gpus:
            return
        self._pods += 1
        name = f"pod-{self._pods:06}"
        node.pods[name] = sum(1 << at for at in self._chance.sample(free, gpus))
        made = gpu_fleet.pod(name, gpus, node.name)
        made["metadata"] |= {"namespace": NAMESPACE, "uid": f"uid-{name}"}
        self._put("pods", "ADDED", made)

    def _renew(self, node: _Node) -> None:
        node.renewals += 1
        self.free_sets[node.machine].add(node.free)
        self._put("leases", "ADDED" if node.renewals == 1 else "MODIFIED", _lease(node))

    def _put(self, kind: str, change: str, thing: Object) -> None:
        """An object is there, changed or gone; all watches of its kind get it."""
        name = thing["metadata"]["name"]
        with self._lock:
            self._version += 1
            thing["metadata"]["resourceVersion"] = str(self._version)
            if change == "DELETED":
                del self._objects[kind][name]
            else:
                self._objects[kind][name] = thing
            for watch in self._watches[kind]:
                watch.put(_line(change, thing))

    def _reply(self, request: Request) -> Reply:
        path, _, query = request.path.partition("?")
        kind = path.rpartition("/")[2]
        if request.method != "GET" or kind not in self._objects:
            return answer({}, 201)
        if "sendInitialEvents=true" not in query:
            return status(410, "too old resource version", "Expired")
        return Reply(lines=self._stream(kind))

    def _stream(self, kind: str) -> Iterator[bytes]:
        changes: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        with self._lock:
            there = list(self._objects[kind].values())
            self._watches[kind].append(changes)
            mark = self._bookmark(_END)
        for thing in there:
            yield _line("ADDED", thing)
        yield mark
        while True:
            try:
                yield changes.get(timeout=QUIET_SECONDS)
            except queue.Empty:
                with self._lock:
                    mark = self._bookmark({})
                yield mark

    def _bookmark(self, meta: Mapping[str, Any]) -> bytes:
        return _line("BOOKMARK", {"metadata": {**meta, "resourceVersion": str(self._version)}})


def kubeconfig(folder: Path, server: ScriptedServer) -> Path:
    """How to reach it."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
        "clusters": [{"name": "here", "cluster": {"server": server.url}}],
        "users": [{"name": "me", "user": {}}],
    }
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(content))
    return path


def _line(change: str, thing: Object) -> bytes:
    return json.dumps({"type": change, "object": thing}).encode() + b"\n"


def _topology(machine: str) -> TopologyAnnotation:
    return gpu_fleet.Written(name="", machine=machine).topology


def _node(node: _Node) -> Object:
    """Its metadata: the extender's watch asks for no more."""
    text = topology_annotation.encode(node.topology)
    meta = {"name": node.name, "uid": node.name, "annotations": {keys.TOPOLOGY: text}}
    return {"metadata": {**meta, "labels": {keys.GPU_PRODUCT: node.machine, **_MORE_LABELS}}}


def _lease(node: _Node) -> Object:
    digits = max(1, -(-node.topology.n // 4))
    masks = {pod_key(NAMESPACE, name): f"{mask:0{digits}x}" for name, mask in node.pods.items()}
    state = StateAnnotation(
        v=state_annotation.VERSION,
        gen=node.topology.gen,
        seq=node.renewals,
        ok=f"{(1 << node.topology.n) - 1:0{digits}x}",
        used=f"{sum(node.pods.values()):0{digits}x}",
        pods=masks,
    )
    annotations = {keys.STATE: state_annotation.encode(state)}
    return {
        "metadata": {
            "name": names.agent_lease(node.name),
            "uid": node.name,
            "annotations": annotations,
        },
        "spec": {
            "holderIdentity": node.name,
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": str(node.renewals),
        },
    }
