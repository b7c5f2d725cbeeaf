# SPDX-License-Identifier: Apache-2.0
"""The coordinator as its Deployment starts it, with its token and policies, on a real API server.

Agents and kubelets are models: a thread that writes what they would, each agent with its own token.
"""

from __future__ import annotations

import contextlib
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from api import keys, mig_grant_annotation, mig_status_annotation, names
from api.mig_grant_annotation import GrantPhase
from api.mig_request_annotation import new_request_id
from api.mig_status_annotation import MigPhase, MigStatusAnnotation
from api.state_annotation import pod_key
from fleet.fleet_terms import FleetTerms
from fleet.policy.policy_keeper import KEY
from kube.api import NODES, Api
from tests import exposition
from tests.agent.agent_process import GPUSCAPE, SOON, until
from tests.cluster.agents import Site
from tests.cluster.logged_requests import logged
from tests.controlplane.components import free_port
from tests.controlplane.lifetime import end_with_parent
from tests.controlplane.plane import MERGE_PATCH, Plane
from tests.fleet.rollout_judge import KnownFleet, KnownPod, RolloutJudge
from tests.fleet.simulated_fleet import OFFERS, agent_notes
from tests.kube.clusters import client
from tools.access.files import parts_of, text

pytestmark = pytest.mark.cluster

NODE_COUNT = 10
SLOTS = 3
LABEL = {"app": "device-plugin"}
TAINTS = (f"{keys.MIG_LAYOUT_PENDING}:NoSchedule", "example.com/kept=x:NoExecute")
SETTINGS = {
    "slots": str(SLOTS),
    "canary": "1s",
    "settle": "500ms",
    "retry": "1s",
    "device-plugins": "app=device-plugin",
    "log-format": "json",
}


POLICY = """\
version: v1
layouts:
- {name: evicting, nodes: pool=policed, layout: all-1g.10gb, drain: evict}
"""


@dataclass
class NodeModel:
    """One node: its agent, which has its own token, and its kubelet."""

    plane: Plane
    name: str
    api: Api
    namespace: str
    request: str = field(default_factory=new_request_id)
    is_begun: bool = False
    is_done: bool = False
    plugin: str = ""
    holder: str = ""
    """Name of a pod on GPUs that change."""

    def work(self) -> None:
        """One look at the Node, as the agent and as the kubelet."""
        self._run_plugin()
        if self.is_done:
            return
        if not self.is_begun:
            self.is_begun = True
            self._publish("waiting")
            return
        if self.holder and not self._is_held():
            self.holder = ""
            self._publish("waiting")
        notes = self.api.get(NODES, self.name)["metadata"].get("annotations") or {}
        grant = mig_grant_annotation.decode(notes.get(keys.MIG_GRANT, '{"v":0}'))
        if grant is not None and grant.request == self.request and grant.phase is GrantPhase.GO:
            self._publish("changing")
            self.is_done = True
            self._publish("unchanged", end="applied")

    def _publish(self, phase: str, end: str = "") -> None:
        pods = [pod_key(self.namespace, self.holder)] if self.holder else []
        notes = agent_notes(self.request, "sevenths", phase, end=end, pods=pods)
        self.api.patch(NODES, self.name, {"metadata": {"annotations": notes}})

    def hold(self, name: str) -> None:
        """Have a pod on GPUs that change, which somebody would make anew elsewhere."""
        self.holder = name
        reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "x", "uid": "x"}
        pod = {
            "metadata": {"name": name, "ownerReferences": [reference | {"controller": True}]},
            "spec": {
                "nodeName": self.name,
                "terminationGracePeriodSeconds": 0,
                "containers": [
                    {"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
                ],
            },
        }
        self.plane.demand("POST", f"/api/v1/namespaces/{self.namespace}/pods", pod)

    def _is_held(self) -> bool:
        path = f"/api/v1/namespaces/{self.namespace}/pods/{self.holder}"
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
    node = site.plane.make_node()
    token = site.plane.bound_token(site.namespace, names.COORDINATOR, node)
    options = SETTINGS | {
        "kubeconfig": str(site.plane.kubeconfig(token=token)),
        "namespace": site.namespace,
        "instance": instance,
        "listen": f"127.0.0.1:{free_port()}",
    }
    argv = [str(GPUSCAPE), "coordinator", *(f"--{it}={value}" for it, value in options.items())]
    with (folder / f"{instance}.log").open("wb") as log:
        process = subprocess.Popen(argv, stderr=log, preexec_fn=end_with_parent)
        try:
            yield options["listen"]
        finally:
            process.terminate()
            assert process.wait(SOON) == 0


def leader(site: Site) -> str:
    """Who holds the Lease."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{site.namespace}/leases"
    answer = site.plane.request("GET", f"{path}/{names.COORDINATOR_LEASE}")
    return str(answer.body["spec"]["holderIdentity"]) if answer.status == 200 else ""


def test_ten_nodes_change_three_at_a_time_and_no_pod_is_deleted(site: Site, tmp_path: Path) -> None:
    plane = site.plane
    plane.account(site.namespace, names.COORDINATOR)
    plane.kubectl("apply", "-f", "-", stdin=text(parts_of(site.namespace)["coordinator"]))
    home = plane.namespace("plugins")
    models = []
    for number in range(NODE_COUNT):
        name = plane.make_node(f"gpu-{number}")
        token = plane.bound_token(site.namespace, names.AGENT, name)
        api = client(names.AGENT, plane.kubeconfig(token=token))
        models.append(NodeModel(plane=plane, name=name, api=api, namespace=home))
    foreign = models[0].name
    plane.kubectl("cordon", foreign)
    models[1].hold("in-the-way")
    # one waits for the layout that its admin asks for, one for its agent's word that none is
    site.edit(models[2].name, annotations={keys.MIG_LAYOUT: "sevenths"})
    idle = plane.make_node("gpu-idle")
    plane.kubectl("taint", "node", models[2].name, idle, *TAINTS)
    idle_api = client(
        names.AGENT,
        plane.kubeconfig(token=plane.bound_token(site.namespace, names.AGENT, idle)),
    )
    site.edit(models[1].name, labels={"pool": "policed"})
    policy = {"metadata": {"name": names.MIG_POLICY}, "data": {KEY: POLICY}}
    plane.demand("POST", f"/api/v1/namespaces/{site.namespace}/configmaps", policy)
    mark = plane.mark()

    def has_startup_taint(name: str) -> bool:
        taints = site.node(name)["spec"].get("taints") or []
        return any(it["key"] == keys.MIG_LAYOUT_PENDING for it in taints)

    def are_done(*left_out: str) -> bool:
        return all(
            keys.MIG_GRANT not in site.annotations(it.name) and it.is_done
            for it in models
            if it.name not in left_out
        )

    with working(models):
        with coordinator(site, "first", tmp_path):
            until(lambda: sum(it.is_done for it in models) >= 2)
            assert has_startup_taint(idle)
            says = mig_status_annotation.encode(MigStatusAnnotation(v=1, phase=MigPhase.IDLE))
            idle_api.patch(NODES, idle, {"metadata": {"annotations": {keys.MIG_STATUS: says}}})
            until(lambda: not has_startup_taint(idle))
        assert leader(site) == ""
        with coordinator(site, "second", tmp_path) as address:
            until(lambda: are_done(foreign))
            assert not models[0].is_done
            until(lambda: metrics(address)["oldest_wait_seconds/cordoned"] > 0)
            assert metrics(address)["waiting_nodes/cordoned"] == 1
            plane.kubectl("uncordon", foreign)
            until(are_done)
            until(lambda: not has_startup_taint(models[2].name))
            until(lambda: not slots_in_use(site))
            until(lambda: metrics(address)["slots_used"] == 0)
            figures = metrics(address)

    assert (figures["leader"], figures["slots"], figures["policy_nodes/written"]) == (1, SLOTS, 1)
    assert len([name for name in figures if name.startswith("policy_info/")]) == 1
    assert figures["changes_total/applied"] > 0
    for name in (models[2].name, idle):
        taints = site.node(name)["spec"]["taints"]
        assert [it["key"] for it in taints] == ["example.com/kept"]
    for model in models:
        node = site.node(model.name)
        assert not node["spec"].get("unschedulable")
        assert node["metadata"]["annotations"].keys().isdisjoint(names.SCALE_DOWN_GUARDS)
        assert node["status"]["allocatable"]["nvidia.com/mig-1g.10gb"] == "56"
    asked = [it.name for it in models if keys.MIG_LAYOUT in site.annotations(it.name)]
    assert asked == [models[1].name, models[2].name]
    account = names.username(names.COORDINATOR, site.namespace)
    judge = RolloutJudge(known_fleet(models))
    judge.take_all(logged(plane.audit(since=mark), account))
    assert judge.faults == []
    assert (judge.evicted, judge.granted) == (["in-the-way"], NODE_COUNT)
    assert judge.most_in_change == SLOTS
    events = plane.audit(since=mark, user=account)
    assert [it for it in events if it["verb"] in ("delete", "deletecollection")] == []
    evicted = {it["objectRef"]["name"] for it in events if it["objectRef"].get("subresource")}
    assert evicted == {"in-the-way", *(f"plugin-{it.name}" for it in models)}
    refused = [it for it in events if it["responseStatus"]["code"] in (403, 422)]
    assert refused == []


def known_fleet(models: list[NodeModel]) -> KnownFleet:
    """What is true of these nodes and their pods, of which the second one's has to leave."""
    terms = FleetTerms(slots=SLOTS, canary_seconds=1.0, settle_seconds=0.5)
    known = KnownFleet(terms=terms, slack=0.3, replicas_are_known=False)
    for model in models:
        plugin = KnownPod(node=model.name, is_plugin=True, grace=False)
        known.pods[f"plugin-{model.name}"] = plugin
    known.pods["in-the-way"] = KnownPod(node=models[1].name, affected=True, grace=False)
    known.drains[models[1].name] = "evict"
    return known


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
