# SPDX-License-Identifier: Apache-2.0
"""Nodes whose MIG layouts change, and the coordinator as a program, on a real API server.

Agents and kubelets are models: a thread that writes what they would, each agent with its own token.
"""

from __future__ import annotations

import contextlib
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from api import keys, mig_permit_annotation, names
from api.mig_permit_annotation import PermitPhase
from api.mig_request_annotation import new_request_id
from api.state_annotation import pod_key
from base.text import rfc3339
from kube.api import NODES, Api
from tests import exposition
from tests.agent.agent_process import GPUSCAPE, SOON
from tests.cluster.agents import Site
from tests.controlplane.components import free_port
from tests.controlplane.lifetime import end_with_parent
from tests.controlplane.plane import MERGE_PATCH, Plane
from tests.fleet.simulated_fleet import OFFERS, agent_notes
from tests.kube.clusters import client
from tools.access.coordinator import CoordinatorBounds
from tools.access.files import parts_of, text

SLOTS = 3
SETTLE_SECONDS, SLACK_SECONDS = 2.0, 1.3
"""Records have whole seconds, and a busy API server's log is late."""
LABEL = {"app": "device-plugin"}
SETTINGS = {
    "slots": str(SLOTS),
    "canary": "1s",
    "settle": f"{SETTLE_SECONDS:g}s",
    "retry": "1s",
    "device-plugins": "app=device-plugin",
    "log-format": "json",
}


def install_coordinator(site: Site) -> None:
    """Apply its account, roles and policies."""
    site.plane.account(site.namespace, names.COORDINATOR)
    objects = parts_of(site.namespace, bounds=CoordinatorBounds(slots=SLOTS))["coordinator"]
    site.plane.kubectl("apply", "-f", "-", stdin=text(objects))


def modelled_nodes(site: Site, count: int, prefix: str = "gpu") -> list[NodeModel]:
    """So many Nodes, whose names begin so, with a namespace for their pods."""
    plane, models = site.plane, []
    home = plane.namespace("pods")
    for number in range(count):
        name = plane.make_node(f"{prefix}-{number}")
        site.edit(name, annotations={keys.MIG_LAYOUT: "sevenths"})
        token = plane.bound_token(site.namespace, names.AGENT, name)
        api = client(names.AGENT, plane.kubeconfig(token=token))
        models.append(NodeModel(plane=plane, name=name, api=api, namespace=home))
    return models


def _set() -> threading.Event:
    """One that is set."""
    made = threading.Event()
    made.set()
    return made


@dataclass
class NodeModel:
    """One node: its agent, which has its own token, and its kubelet."""

    plane: Plane
    name: str
    api: Api
    namespace: str
    request: str = field(default_factory=new_request_id)
    since: str = field(default_factory=lambda: rfc3339.whole_seconds(time.time()))
    """When the request was made."""
    is_begun: bool = False
    is_changing: bool = False
    is_done: bool = False
    is_cancelled: bool = False
    """No layout was desired any more, so the request ended."""
    is_away: bool = False
    """The agent does nothing any more."""
    may_end: threading.Event = field(default_factory=_set)
    """Cleared: a change that has begun goes on."""
    plugin: str = ""
    holders: set[str] = field(default_factory=set)
    """Names of pods on GPUs that change."""
    others: set[str] = field(default_factory=set)
    """Names of pods on GPUs that stay as they are."""

    def work(self) -> None:
        """One look at the Node, as the agent and as the kubelet."""
        self._run_plugin()
        if self.is_done or self.is_away:
            return
        if self.is_cancelled:
            if keys.MIG_LAYOUT not in self._annotations():
                return
            self.is_cancelled, self.request = False, new_request_id()
            self.since = rfc3339.whole_seconds(time.time())
            self._publish("waiting")
        if not self.is_begun:
            self.is_begun = True
            self._publish("waiting")
            return
        gone = {it for it in (*self.holders, *self.others) if not self._is_there(it)}
        if gone:
            self.holders -= gone
            self.others -= gone
            self._publish("waiting")
        notes = self._annotations()
        permit = mig_permit_annotation.decode(notes.get(keys.MIG_PERMIT, '{"v":0}'))
        if keys.MIG_LAYOUT not in notes and not self.is_changing:
            self.is_cancelled = True
            self._publish("idle", end="cancelled")
            return
        is_ours = permit is not None and permit.request == self.request
        if (
            is_ours
            and permit is not None
            and permit.phase is PermitPhase.PROCEED
            and not self.is_changing
        ):
            self._publish("changing")
            self.is_changing = True
        if self.is_changing and self.may_end.is_set():
            self.is_done = True
            self._publish("unchanged", end="applied")

    def _annotations(self) -> dict[str, str]:
        return self.api.get(NODES, self.name)["metadata"].get("annotations") or {}

    def _publish(self, phase: str, end: str = "") -> None:
        pods, others = (
            [pod_key(self.namespace, it) for it in names] for names in (self.holders, self.others)
        )
        notes = agent_notes(
            self.request,
            "sevenths",
            phase,
            end=end,
            since=self.since,
            pods=pods,
            others=others,
        )
        self.api.patch(NODES, self.name, {"metadata": {"annotations": notes}})

    def hold(self, name: str, *, affected: bool = True, stays: bool = False) -> None:
        """Have a pod with a GPU, which somebody would make anew elsewhere.

        ``affected``: its GPU is one of those that change. ``stays``: nobody may disturb it.
        """
        (self.holders if affected else self.others).add(name)
        notes = {keys.DO_NOT_DISRUPT: ""} if stays else {}
        reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "x", "uid": "x"}
        pod = {
            "metadata": {
                "name": name,
                "annotations": notes,
                "ownerReferences": [reference | {"controller": True}],
            },
            "spec": {
                "nodeName": self.name,
                "terminationGracePeriodSeconds": 0,
                "containers": [
                    {"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
                ],
            },
        }
        path = f"/api/v1/namespaces/{self.namespace}/pods"
        self.plane.demand("POST", path, pod)
        running = {"status": {"phase": "Running", "startTime": "2026-11-25T08:00:00Z"}}
        self.plane.demand("PATCH", f"{path}/{name}/status", running, content_type=MERGE_PATCH)

    def end_pod(self, name: str) -> None:
        """Its work is over, and its owner deletes it."""
        self.plane.demand("DELETE", f"/api/v1/namespaces/{self.namespace}/pods/{name}")

    def _is_there(self, pod: str) -> bool:
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod}"
        return self.plane.request("GET", path).status == 200

    def _run_plugin(self) -> None:
        """As a DaemonSet makes its pod again, and the kubelet then offers what there is."""
        pods = f"/api/v1/namespaces/{self.namespace}/pods"
        name = f"plugin-{self.name}"
        found = self.plane.request("GET", f"{pods}/{name}")
        if found.status == 200 and found.body["metadata"]["uid"] == self.plugin:
            return
        pod = {
            "metadata": {"name": name, "labels": LABEL},
            "spec": {
                "nodeName": self.name,
                "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "c", "image": "none"}],
            },
        }
        self.plugin = self.plane.demand("POST", pods, pod)["metadata"]["uid"]
        ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        patch = {"status": ready}
        self.plane.demand("PATCH", f"{pods}/{name}/status", patch, content_type=MERGE_PATCH)
        offers: dict[str, str | None] = dict.fromkeys(OFFERS["whole"])
        if self.is_done:
            offers |= {it: str(count) for it, count in OFFERS["sevenths"].items()}
        else:
            offers = {it: str(count) for it, count in OFFERS["whole"].items()}
        self.plane.demand(
            "PATCH",
            f"/api/v1/nodes/{self.name}/status",
            {"status": {"capacity": offers, "allocatable": offers}},
            content_type=MERGE_PATCH,
        )


@contextlib.contextmanager
def working(models: list[NodeModel]) -> Iterator[None]:
    """All nodes work while the block lasts."""
    ended = threading.Event()
    failures: list[BaseException] = []

    def run() -> None:
        try:
            while not ended.wait(0.1):
                for model in models:
                    model.work()
        except BaseException as error:  # shown at the end
            failures.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(SOON)
        assert failures == []


@contextlib.contextmanager
def coordinator(site: Site, instance: str, folder: Path) -> Iterator[str]:
    """Its address, as a process with its account's token; SIGTERM at the end."""
    with coordinator_process(site, instance, folder) as (process, address):
        yield address
        process.terminate()
        assert process.wait(SOON) == 0


@contextlib.contextmanager
def coordinator_process(
    site: Site, instance: str, folder: Path, *, program: Path = GPUSCAPE, **settings: str
) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """The process, and its address; SIGKILL at the end, unless it has ended.

    ``program``: another state of the project's.
    """
    node = site.plane.make_node()
    token = site.plane.bound_token(site.namespace, names.COORDINATOR, node)
    options = (
        SETTINGS
        | settings
        | {
            "kubeconfig": str(site.plane.kubeconfig(token=token)),
            "namespace": site.namespace,
            "instance": instance,
            "listen": f"127.0.0.1:{free_port()}",
        }
    )
    argv = [str(program), "coordinator", *(f"--{it}={value}" for it, value in options.items())]
    with (folder / f"{instance}.log").open("wb") as log:
        process = subprocess.Popen(argv, stderr=log, preexec_fn=end_with_parent())
        try:
            yield process, options["listen"]
        finally:
            process.kill()
            process.wait()


def leader(site: Site) -> str:
    """Who holds the Lease."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{site.namespace}/leases"
    answer = site.plane.request("GET", f"{path}/{names.COORDINATOR_LEASE}")
    return str(answer.body["spec"]["holderIdentity"]) if answer.status == 200 else ""


def metrics(address: str) -> dict[str, float]:
    """The figures of a coordinator, by name and the values of their labels."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=SOON) as answer:
        found = exposition.series(answer.read())
    return {
        "/".join((name.removeprefix("gpuscape_coordinator_"), *(text for _, text in labels))): it
        for (name, labels), it in found.items()
    }


def slots_in_use(site: Site) -> list[str]:
    """Slots that somebody has."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{site.namespace}/leases"
    leases = site.plane.demand("GET", path)["items"]
    return [
        it["metadata"]["name"]
        for it in leases
        if it["metadata"]["name"].startswith(names.SLOT_LEASE_PREFIX)
        and it["spec"].get("holderIdentity")
    ]
