# SPDX-License-Identifier: Apache-2.0
"""Kubelets of simulated nodes: they join Nodes, keep them ready, and run the pods bound to them.

Of a kubelet there is what the API server and the agent see: capacity and allocatable, the
Node's Lease, pods that run or are refused, deletions that end, and the pod-resources socket.
No container is ever started. Every write is the node's own, under its certificate.
Of a node of KWOK's there are the devices alone, and the pods that they refuse.
"""

from __future__ import annotations

import http.client
import logging
import queue
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from api.mig_resources import MigStrategy
from kube import lease
from kube.api import PODS, Object
from kube.informer import Informer, ObjectGone, ObjectSeen, WatchEvent
from labelers.groups.sharing import NOTHING_SHARED, Sharing
from simulator.simulation import Simulation
from tests.agent.agent_process import until
from tests.controlplane.own import KWOK_ANNOTATION, KWOK_GROUP
from tests.controlplane.plane import MERGE_PATCH, Plane
from tests.kube.clusters import client
from tests.kubelet_nodes.claims import Claims, claim_names, is_allocated
from tests.kubelet_nodes.devices import Policy, Refused
from tests.kubelet_nodes.node import Node
from tests.kubelet_nodes.pod_status import is_ended, is_running, refused, running

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.2
"""How often the machines are looked at, and what did not get through is tried again."""
RENEW_SECONDS = 10.0
GOOD_FOR_SECONDS = 40
"""A Node whose Lease is not renewed for so long is not ready."""

_STRATEGIC_PATCH = "application/strategic-merge-patch+json"
_CLAIMS = "/apis/resource.k8s.io/v1"
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_OVER = (http.client.NOT_FOUND, http.client.CONFLICT)
"""Answers about an object that is gone, or is another one by now."""


def is_ready(node: Object) -> bool:
    """Whether a Node's conditions say so."""
    conditions = (node.get("status") or {}).get("conditions") or []
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


class NotYetError(Exception):
    """It could not be done; the next try may succeed."""


@dataclass(kw_only=True)
class _Joined:
    """A node and what the API server has of it."""

    node: Node
    is_kwoks: bool
    """KWOK keeps it ready, and has its pods run and end."""
    told: Object | None = None
    """Capacity and allocatable."""
    renew_at: float = 0.0
    """Monotonic second at which the Lease is due."""


class Kubelets:
    """The kubelets of any number of nodes, within a block; one watch of pods serves them all."""

    def __init__(
        self,
        plane: Plane,
        policy: Policy,
        folder: Path,
        *,
        seed: int = 0,
        renew_seconds: float = RENEW_SECONDS,
    ) -> None:
        """``folder`` is where the sockets come; ``seed`` decides all random order."""
        self._plane = plane
        self._policy = policy
        self._folder = folder
        self._seed = seed
        self._renew_seconds = renew_seconds
        self._joined: dict[str, _Joined] = {}
        """By the node's name."""
        self._news: queue.SimpleQueue[WatchEvent | None] = queue.SimpleQueue()
        self._again: dict[str, Object] = {}
        """By UID: pods for which something could not be done, as they were seen last."""
        self._api = client("kubelets", plane.kubeconfig())
        self._informer = Informer(self._api, PODS, self._news.put)
        self._threads = [
            threading.Thread(target=run, daemon=True) for run in (self._informer.run, self._work)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._informer.close()
        self._news.put(None)
        for thread in self._threads:
            thread.join()
        self._api.close()
        for joined in self._joined.values():
            joined.node.server.stop()

    def join(
        self,
        simulation: Simulation,
        name: str | None = None,
        *,
        strategy: MigStrategy = MigStrategy.NONE,
        sharing: Sharing = NOTHING_SHARED,
        labels: Mapping[str, str] | None = None,
        is_kwoks: bool = False,
    ) -> Node:
        """Make a Node of this machine, of a random name unless given; ready when this returns.

        ``is_kwoks``: all but its devices is KWOK's, which runs on that control plane.
        """
        group = {KWOK_ANNOTATION: KWOK_GROUP} if is_kwoks else {}
        name = self._plane.make_node(name, labels=labels, annotations=group, ready=False)
        number = len(self._joined)
        node = Node(
            name,
            simulation,
            self._policy,
            self._folder / str(number),
            seed=f"{self._seed}/{number}",
            strategy=strategy,
            sharing=sharing,
        )
        node.server.start()
        path = f"/api/v1/nodes/{name}"
        if is_kwoks:
            until(lambda: is_ready(self._plane.demand("GET", path)))
        else:
            ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
            self._ask(node, "PATCH", f"{path}/status", {"status": {"conditions": [ready]}})
        joined = _Joined(node=node, is_kwoks=is_kwoks)
        self._tell(joined)
        self._joined[name] = joined
        self._plane.demand("PATCH", path, {"spec": {"taints": None}}, content_type=MERGE_PATCH)
        return node

    def _work(self) -> None:
        """Hear the news, and look after the nodes in between, until there is a None."""
        look_at = time.monotonic()
        while True:
            try:
                news = self._news.get(timeout=max(look_at - time.monotonic(), 0.0))
            except queue.Empty:
                pass
            else:
                if news is None:
                    return
                self._hear(news)
            if time.monotonic() >= look_at:
                self._look_after_all()
                look_at = time.monotonic() + LOOK_SECONDS

    def _look_after_all(self) -> None:
        for pod in list(self._again.values()):
            self._hear(ObjectSeen(object=pod))
        for joined in list(self._joined.values()):
            try:
                joined.node.look()
                self._tell(joined)
                self._renew(joined)
            except NotYetError as error:
                name = joined.node.name
                log.warning("to be tried again", extra={"node": name, "why": str(error)})

    def _hear(self, news: WatchEvent) -> None:
        match news:
            case ObjectSeen(object=pod):
                uid = pod["metadata"]["uid"]
                self._again.pop(uid, None)
                try:
                    self._see(pod)
                except NotYetError as error:
                    log.info("to be tried again", extra={"pod": uid, "why": str(error)})
                    self._again[uid] = pod
            case ObjectGone(uid=uid):
                self._again.pop(uid, None)
                for joined in list(self._joined.values()):
                    joined.node.remove(uid)

    def _see(self, pod: Object) -> None:
        joined = self._joined.get(pod["spec"].get("nodeName", ""))
        if joined is None:
            return
        node, meta = joined.node, pod["metadata"]
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
        if "deletionTimestamp" in meta:
            node.remove(meta["uid"])
            if not joined.is_kwoks:
                now = {"gracePeriodSeconds": 0, "preconditions": {"uid": meta["uid"]}}
                self._ask(node, "DELETE", path, now)
        elif is_ended(pod):
            node.remove(meta["uid"])
        elif joined.is_kwoks or not is_running(pod):  # KWOK may have been sooner
            status = self._taken(node, pod)
            if not joined.is_kwoks or status["phase"] == "Failed":
                told = {"metadata": {"uid": meta["uid"]}, "status": status}
                self._ask(node, "PATCH", f"{path}/status", told)

    def _taken(self, node: Node, pod: Object) -> Object:
        """The status of a pod that the node now runs, or has refused."""
        claims = self._claims(node, pod)
        at = datetime.now(UTC)
        try:
            node.admit(pod, claims)
        except Refused as refusal:
            return refused(str(refusal), at)
        return running(pod, at)

    def _claims(self, node: Node, pod: Object) -> Claims:
        """The pod's ResourceClaims. Raises NotYetError where one has no devices so far."""
        found = {}
        for name, claim in claim_names(pod).items():
            path = f"{_CLAIMS}/namespaces/{pod['metadata']['namespace']}/resourceclaims/{claim}"
            got = self._ask(node, "GET", path) if claim else None
            if got is None or not is_allocated(got):
                raise NotYetError(f"{pod['metadata']['name']}: claim {name} has no devices yet")
            found[name] = got
        return found

    def _tell(self, joined: _Joined) -> None:
        node, now = joined.node, joined.node.resources()
        if now != joined.told:
            self._ask(node, "PATCH", f"/api/v1/nodes/{node.name}/status", {"status": now})
            joined.told = now

    def _renew(self, joined: _Joined) -> None:
        node, at = joined.node, datetime.now(UTC)
        if joined.is_kwoks or time.monotonic() < joined.renew_at:
            return
        renewed = {"spec": {"renewTime": lease.micro_time(at)}}
        if self._ask(node, "PATCH", f"{_LEASES}/{node.name}", renewed) is None:
            new = lease.lease_object(
                node.name, holder=node.name, duration_seconds=GOOD_FOR_SECONDS, wall_time=at
            )
            if self._ask(node, "POST", _LEASES, new) is None:
                return  # the namespace comes a moment after the server
        joined.renew_at = time.monotonic() + self._renew_seconds

    def _ask(self, node: Node, method: str, path: str, body: Object | None = None) -> Object | None:
        """The API server's answer to this kubelet; None if there is no such object (any more).

        Raises NotYetError.
        """
        kind = _STRATEGIC_PATCH if method == "PATCH" else "application/json"
        who = self._plane.kubelet(node.name)
        try:
            answer = self._plane.request(method, path, body, certificate=who, content_type=kind)
        except (OSError, http.client.HTTPException) as error:
            raise NotYetError(f"{method} {path}: {error!r}") from error
        if answer.status in _OVER:
            return None
        if answer.status >= http.client.MULTIPLE_CHOICES:
            said = answer.body.get("message", answer.body)
            raise NotYetError(f"{method} {path}: {answer.status} {said}")
        return answer.body
