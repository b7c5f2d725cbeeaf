# SPDX-License-Identifier: Apache-2.0
"""A cluster in virtual time: agents that keep the contract, kubelets, people, and the coordinator.

The API server is the one in memory. Nobody but the coordinator is ours: agents and kubelets are
models of a few lines, as the annotations' contract has them, and do what they do at times that a
seed draws.
"""

from __future__ import annotations

import random
import zlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from api import (
    keys,
    mig_permit_annotation,
    mig_request_annotation,
    mig_status_annotation,
    names,
)
from api.mig_permit_annotation import PermitPhase
from api.mig_request_annotation import MigRequestAnnotation
from api.mig_status_annotation import MigStatusAnnotation, RequestSource, desired_digest
from api.state_annotation import pod_key
from base.errors import BadInput
from fleet.change_reports import ChangeReports
from fleet.coordinator import AGAIN_SECONDS, Coordinator
from fleet.figures.coordinator_metrics import CoordinatorMetrics
from fleet.fleet_cache import FleetCache, FleetSource
from fleet.gpu_pod import GpuPodSelector
from fleet.leadership import Leadership
from fleet.rollout_settings import PAUSED, RolloutSettings
from fleet.slot_lease import is_slot, slot_of
from kube.api import LEASES, NODES, PODS, Object
from tests.fakes.api import Call, FakeApi, Server

START: Final = datetime(2026, 11, 20, 8, tzinfo=UTC).timestamp()
TERMS: Final = GpuPodSelector(
    resources=("nvidia.com/gpu", "nvidia.com/mig-"), plugins=(("app", "device-plugin"),)
)
WHOLE: Final = {"nvidia.com/gpu": 8}
OFFERS: Final = {
    "whole": WHOLE,
    "sevenths": {"nvidia.com/mig-1g.10gb": 56},
    "halves": {"nvidia.com/mig-3g.40gb": 16},
}
"""What a node offers by the name of its layout; what follows a slash there makes another layout
that offers the same."""
HOME: Final = names.NAMESPACE
_ROUNDS: Final = 60
_REPAIR_SECONDS: Final = 10.0
"""After which an agent writes again what somebody else changed."""


class Killed(BaseException):
    """SIGKILL of the coordinator: nothing catches it."""


@dataclass
class SimulatedAgent:
    """One node's agent and actuator, and its kubelet; state that is not in the cluster."""

    name: str
    wish: str = "whole"
    layout: str = "whole"
    ends: list[str] = field(default_factory=list)
    """How the next changes end; then all are applied."""
    change_seconds: float = 20.0
    request: str = ""
    asked: str = ""
    """What the request is for."""
    closed: bool = True
    """The request has ended, or there is none."""
    changes_until: float = 0.0
    """While the actuator works; 0: it does not."""
    retry_at: float = 0.0
    done: list[tuple[str, str]] = field(default_factory=list)
    """Requests with their ends."""
    plugin: str = ""
    """UID of the device plugin's pod that the kubelet's figures are from."""
    blocking: set[str] = field(default_factory=set)
    """Keys of pods on GPUs that change; all other pods are on others."""
    pods: set[str] = field(default_factory=set)
    """Keys of all pods there."""
    published: dict[str, str | None] = field(default_factory=dict)
    published_at: float = 0.0
    modes: bool = False
    """Its changes set MIG modes."""
    programs: tuple[str, ...] = ()
    """That use what would go, and are no pod's."""
    drift: bool = False
    """Its requests bring back what somebody else has changed."""
    is_away: bool = False
    lease_seconds: int = 180
    """Duration of its Lease."""
    """Neither agent nor kubelet work."""
    shown_programs: tuple[str, ...] = ()
    repair_at: float | None = None
    """When it looks again whether what it published is still there; None: it has not to."""


class Cluster:
    """All of it. ``now``: seconds since 1970, which only :meth:`pass_time` moves."""

    def __init__(
        self, *, nodes: int, terms: RolloutSettings, seed: int = 0, server: Server | None = None
    ) -> None:
        self.server = server or Server()
        self.now = START
        self.terms = terms
        self.draw = random.Random(seed)  # noqa: S311  # a schedule, no secret
        self.people = FakeApi(self.server, manager="kubectl")
        self.agents = {f"n{number}": SimulatedAgent(f"n{number}") for number in range(nodes)}
        self.foreign_versions: set[str] = set()
        """Versions of Nodes that somebody other than the coordinator wrote."""
        self.our_versions: set[str] = set()
        self.on_call: Callable[[str, bool], None] = lambda _verb, _done: None
        """Called before and after each call of the coordinator; it may raise."""
        self.starts = 0
        self.lingering: set[str] = set()
        """Pods that do not end when they are evicted."""
        self.bound: defaultdict[str, dict[tuple[str, str], Object]] = defaultdict(dict)
        """Pods by node, as the nodes have seen them; not to be changed."""
        self._nodes_seen = 0
        self._to_run: set[str] = set()
        """Nodes of which something has changed since they last worked."""
        self.evictions: list[tuple[str, str]] = []
        """By coordinators that are no more."""
        self.api = FakeApi(self.server, manager=names.COORDINATOR)
        for agent in self.agents.values():
            self.make_node(agent.name)
            self._run_plugin(agent, self.node(agent.name), [])
        self.start_coordinator()

    # people

    def make_node(self, name: str) -> None:
        """A Node that is ready and offers whole GPUs."""
        self._foreign(
            self.people.create(NODES, {"metadata": {"name": name, "labels": {"pool": "a"}}})
        )
        self._kubelet(name, {"conditions": [{"type": "Ready", "status": "True"}]})
        self._kubelet(name, {"allocatable": {it: str(n) for it, n in WHOLE.items()}})

    def edit(self, name: str, patch: Object) -> None:
        """As a person at kubectl."""
        self._foreign(self.people.patch(NODES, name, patch))

    def annotate(self, name: str, **notes: str | None) -> None:
        """The same of annotations; ``_`` for what follows gpuscape.io/."""
        named = {f"gpuscape.io/{key.replace('_', '-')}": value for key, value in notes.items()}
        self.edit(name, {"metadata": {"annotations": named}})

    def cordon(self, name: str, *, on: bool = True) -> None:
        """As a person at kubectl."""
        self.edit(name, {"spec": {"unschedulable": True if on else None}})

    def delete_node(self, name: str) -> None:
        """As a cloud does."""
        self._foreign(self.server.delete(NODES, name))
        del self.agents[name]
        for pod in self.pods(name):
            self.server.delete(PODS, pod["metadata"]["name"], pod["metadata"]["namespace"])

    def wish(self, layout: str, *nodes: str) -> None:
        """Ask these nodes, or all, for a layout: the admin's annotation, which the agents read."""
        for name in nodes or tuple(self.agents):
            if self.agents[name].wish != layout or keys.MIG_LAYOUT not in self.notes(name):
                self.agents[name].wish = layout
                self.annotate(name, mig_layout=layout)

    def bind_pod(
        self,
        node: str,
        name: str,
        *,
        blocking: bool,
        owner: str = "",
        app: str = "",
        gpus: str = "1",
    ) -> None:
        """A pod that asks for GPUs is bound; ``blocking``: it gets one that the plan changes.

        ``app``: its label, by which a budget may select it; then it runs and is ready.
        """
        container = {"name": "c", "resources": {"limits": {"nvidia.com/gpu": gpus}}}
        reference = {"apiVersion": "apps/v1", "kind": owner, "name": "x", "uid": "x"}
        meta: Object = {"name": name, "labels": {"app": app}}
        if owner:
            meta["ownerReferences"] = [reference | {"controller": True}]
        self.people.create(
            PODS,
            {
                "metadata": meta,
                "spec": {"nodeName": node, "containers": [container]},
            },
            namespace="default",
        )
        if app:
            ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
            self.server.patch(PODS, name, {"status": ready}, "default", status=True)
        if blocking:
            self.agents[node].blocking.add(pod_key("default", name))

    def await_kubelet(self, name: str) -> None:
        """The node's kubelet has not taken the pod yet."""
        self.server.patch(PODS, name, {"status": {"phase": "Pending"}}, "default", status=True)

    def take_pod(self, name: str) -> None:
        """It has: the pod has its devices."""
        started = {"startTime": "2026-11-20T08:00:00Z"}
        self.server.patch(PODS, name, {"status": started}, "default", status=True)

    def end_pod(self, name: str) -> None:
        """The pod goes."""
        self.server.delete(PODS, name, "default")

    # what there is

    def node(self, name: str) -> Object:
        """The Node as it is."""
        return self.server.get(NODES, name)

    def notes(self, name: str) -> dict[str, str]:
        """Its annotations."""
        return dict(self.node(name)["metadata"].get("annotations") or {})

    def is_cordoned(self, name: str) -> bool:
        """Whether it is."""
        return bool(self.node(name).get("spec", {}).get("unschedulable"))

    def pods(self, node: str) -> list[Object]:
        """All pods bound to a node."""
        found = self.server.objects(PODS)
        return [pod for pod in found if pod["spec"].get("nodeName") == node]

    def open_leases(self) -> list[Object]:
        """Slots and parked records that are not free."""
        leases = [it for it in self.server.objects(LEASES) if is_slot(it)]
        return [it for it in leases if not slot_of(it).is_free]

    @property
    def evicted(self) -> list[str]:
        """Names of pods, for each eviction that was asked for."""
        return [name for _, name in (*self.evictions, *self.api.evictions())]

    # the coordinator

    def start_coordinator(self) -> None:
        """Start another one, which knows nothing but what is in the cluster."""
        self.starts += 1
        self.evictions += self.api.evictions()
        self.api = FakeApi(self.server, manager=names.COORDINATOR)
        self.api.after("patch", self.ours, resource=NODES)
        self.api.before("*", lambda call: self.on_call(call.verb, False))
        self.api.after("*", lambda call: self.on_call(call.verb, True))
        replica = Replica(self, self.api, f"coordinator-{self.starts}")
        self.replica, self.cache, self.leadership = replica, replica.cache, replica.leadership
        self.metrics, self.reports, self.coordinator = (
            replica.metrics,
            replica.reports,
            replica.coordinator,
        )

    def wall(self) -> datetime:
        """The wall clock."""
        return datetime.fromtimestamp(self.now, UTC)

    def run_coordinator(self) -> None:
        """Its rounds at this moment, until it waits; SIGKILL is answered by another one."""
        try:
            self.replica.work()
        except Killed:
            self.start_coordinator()

    # time

    def pass_time(self, seconds: float, *, step: float = 2.0) -> None:
        """Everybody works."""
        until = self.now + seconds
        while self.now < until:
            self.now += step
            self.run_nodes()
            self.run_coordinator()

    def pass_until(self, holds: Callable[[], bool], *, within: float, step: float = 2.0) -> float:
        """Let time pass until something holds; how long it took."""
        began = self.now
        while not holds():
            assert self.now - began <= within, self.stuck()
            self.pass_time(step, step=step)
        return self.now - began

    def stuck(self) -> str:
        """What is not as it should be, for the message of a test."""
        lines = [
            str(msgspec.json.encode(it["spec"] | it["metadata"]["annotations"]))
            for it in self.open_leases()
        ]
        lines += [
            f"{agent} cordoned={self.is_cordoned(agent.name)} {self.notes(agent.name)}"
            for agent in self.agents.values()
            if agent.layout != agent.wish or keys.MIG_PERMIT in self.notes(agent.name)
        ]
        return "\n".join(lines)

    def run_nodes(self) -> None:
        """All agents, kubelets and DaemonSets once, where there is something for them to do."""
        self._see()
        for agent in list(self.agents.values()):
            if agent.is_away or not (agent.name in self._to_run or self._is_due(agent)):
                continue
            self._to_run.discard(agent.name)
            node = self.node(agent.name)
            for pod in list(self.bound[agent.name].values()):
                meta = pod["metadata"]
                is_leaving = meta["namespace"] == "default" and "deletionTimestamp" in meta
                if is_leaving and self.may_end(meta["name"]):
                    self.end_pod(meta["name"])
            self._see()
            on_node = list(self.bound[agent.name].values())
            self._run_plugin(agent, node, on_node)
            self._run_agent(agent, node, on_node)

    @property
    def nodes_seen(self) -> int:
        """Up to which version the nodes know what happened."""
        return self._nodes_seen

    def may_end(self, pod: str) -> bool:
        """Whether a pod that was evicted ends now."""
        return pod not in self.lingering

    def _see(self) -> None:
        """Note what has happened to Nodes and pods."""
        for happened in self.server.since(self._nodes_seen):
            self._nodes_seen = happened.version
            resource, namespace, name = happened.key
            if resource == NODES:
                self._to_run.add(name)
            elif resource == PODS:
                node = happened.object["spec"].get("nodeName", "")
                self._to_run.add(node)
                if happened.type == "DELETED":
                    self.bound[node].pop((str(namespace), name), None)
                else:
                    self.bound[node][str(namespace), name] = happened.object

    def _is_due(self, agent: SimulatedAgent) -> bool:
        """Whether it has something to do although nothing has changed in the cluster."""
        if agent.changes_until:
            return self.now >= agent.changes_until
        if agent.repair_at is not None and self.now >= agent.repair_at:
            return True
        if agent.closed:
            return agent.wish != agent.layout and self.now >= agent.retry_at
        if agent.programs != agent.shown_programs:
            return True
        return agent.asked != agent.wish or any(
            "deletionTimestamp" in pod["metadata"] for pod in self.bound[agent.name].values()
        )

    def _run_agent(self, agent: SimulatedAgent, node: Object, on_node: list[Object]) -> None:
        permit = _permit(node)
        agent.pods = {
            pod_key(it["metadata"]["namespace"], it["metadata"]["name"])
            for it in on_node
            if it["metadata"]["namespace"] == "default" and _has_devices(it)
        }
        if agent.changes_until:
            if self.now >= agent.changes_until:
                self._end(agent, agent.ends.pop(0) if agent.ends else "applied")
            return
        is_open = not agent.closed
        if is_open and permit == (agent.request, PermitPhase.PROCEED):
            agent.changes_until = self.now + agent.change_seconds
            self._publish(agent, "changing")
        elif is_open and agent.asked != agent.wish:
            self._end(agent, "cancelled")
        elif is_open:
            self._publish(agent, "waiting")
        elif agent.wish != agent.layout and self.now >= agent.retry_at:
            agent.request, agent.closed = f"{self.draw.getrandbits(64):016x}", False
            agent.asked = agent.wish
            self._publish(agent, "waiting")

    def _end(self, agent: SimulatedAgent, end: str) -> None:
        agent.changes_until, agent.closed = 0.0, True
        agent.done.append((agent.request, end))
        if end == "applied":
            agent.layout = agent.asked
        else:
            agent.layout = "none" if end == "stuck" else agent.layout
            agent.retry_at = self.now + (0 if end == "cancelled" else 300)
        phases = {"applied": "unchanged", "rolled-back": "failed", "stuck": "stuck"}
        self._publish(agent, phases.get(end, "waiting"), end=end)

    def _publish(self, agent: SimulatedAgent, phase: str, end: str = "") -> None:
        notes = agent_notes(
            agent.request,
            agent.asked,
            phase,
            end=end,
            pods=agent.pods & agent.blocking,
            others=agent.pods - agent.blocking,
            modes=agent.modes,
            drift=agent.drift,
            programs=agent.programs,
        )
        agent.shown_programs = agent.programs
        if notes == agent.published and self.now - agent.published_at < _REPAIR_SECONDS:
            agent.repair_at = agent.published_at + _REPAIR_SECONDS
            return
        agent.published, agent.published_at, agent.repair_at = notes, self.now, None
        self._publish_notes(agent, notes)

    def _publish_notes(self, agent: SimulatedAgent, notes: dict[str, str | None]) -> None:
        patch = {"metadata": {"annotations": notes}}
        self._foreign(self.people.patch(NODES, agent.name, patch, manager=names.AGENT))

    def _run_plugin(self, agent: SimulatedAgent, node: Object, on_node: list[Object]) -> None:
        """The DaemonSet makes the pod again; a new one has the kubelet offer what is there."""
        name = f"plugin-{agent.name}"
        there = [it for it in on_node if it["metadata"]["name"] == name]
        labels = node["metadata"]["labels"]
        if labels.get("nvidia.com/gpu.deploy.device-plugin") == PAUSED:  # the operator sees to it
            if there:
                self.server.delete(PODS, name, "kube-system")
            return
        if there and "deletionTimestamp" in there[0]["metadata"]:
            self.server.delete(PODS, name, "kube-system")
            there = []
        if not there:
            made = self.people.create(
                PODS,
                {
                    "metadata": {"name": name, "labels": {"app": "device-plugin"}},
                    "spec": {"nodeName": agent.name, "containers": [{"name": "c"}]},
                },
                namespace="kube-system",
            )
            ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
            self.server.patch(PODS, name, {"status": ready}, "kube-system", status=True)
            there = [made]
        uid = there[0]["metadata"]["uid"]
        if agent.plugin != uid:
            agent.plugin = uid
            amounts: dict[str, str | None] = dict.fromkeys(
                (it for offer in OFFERS.values() for it in offer), "0"
            )
            amounts |= {it: str(count) for it, count in offers_of(agent.layout).items()}
            self._kubelet(agent.name, {"allocatable": amounts})

    def _kubelet(self, name: str, status: dict[str, Any]) -> None:
        self._foreign(self.server.patch(NODES, name, {"status": status}, status=True))

    def _foreign(self, written: Object) -> None:
        """One that changed nothing has the version of whoever wrote before."""
        version = written["metadata"]["resourceVersion"]
        if version not in self.our_versions:
            self.foreign_versions.add(version)

    def ours(self, call: Call) -> None:
        """A coordinator wrote a Node."""
        self.our_versions.add(
            self.server.get(call.resource, call.name or "")["metadata"]["resourceVersion"]
        )


def _permit(node: Object) -> tuple[str, PermitPhase] | None:
    """Request and phase of a Node's permit; None where there is none that can be read."""
    try:
        permit = mig_permit_annotation.decode(_permit_text(node))
    except BadInput:  # somebody's by hand, or none
        return None
    return None if permit is None else (permit.request, permit.phase)


def show(server: Server, cache: FleetCache, since: int) -> int:
    """Have a cache take all that happened after a version; the newest version."""
    for happened in server.since(since):
        since = happened.version
        resource, namespace, name = happened.key
        is_gone = happened.type == "DELETED"
        if resource == NODES:
            cache.node_gone(name) if is_gone else cache.node(happened.object)
        elif resource == PODS and namespace is not None:
            cache.pod_gone(namespace, name) if is_gone else cache.pod(happened.object)
        elif resource == LEASES and is_slot(happened.object):
            number = slot_of(happened.object).number
            cache.slot_gone(number) if is_gone else cache.slot(happened.object)
    for source in FleetSource:
        cache.mark_synced(source)
    return since


def offers_of(layout: str) -> dict[str, int]:
    """What a node with this layout offers; nothing where there is none of its name."""
    return OFFERS.get(layout.partition("/")[0], {})


def plan_of(layout: str) -> str:
    """Digest of a layout."""
    return f"{zlib.crc32(layout.encode()):016x}"


def _has_devices(pod: Object) -> bool:
    """A kubelet gives a container as many devices as its limit says: of 0 none."""
    limits = pod["spec"]["containers"][0]["resources"]["limits"]
    return any(amount != "0" for amount in limits.values())


def agent_notes(
    request: str,
    asked: str,
    phase: str,
    *,
    end: str = "",
    since: str = "",
    pods: Collection[str] = (),
    others: Collection[str] = (),
    modes: bool = False,
    drift: bool = False,
    programs: tuple[str, ...] = (),
    offers: Mapping[str, int] | None = None,
) -> dict[str, str | None]:
    """An agent's two annotations; ``pods`` and ``others`` are keys of pods.

    ``offers`` None: those of the layout.
    """
    status = MigStatusAnnotation(
        v=2,
        phase=phase,
        source=RequestSource.ANNOTATION,
        desired=asked,
        plan=plan_of(asked),
        desired_digest=desired_digest(RequestSource.ANNOTATION, asked),
        request=request,
        outcome=end,
    )
    wish = MigRequestAnnotation(
        v=2,
        request=request,
        plan=plan_of(asked),
        since=since,
        gpus=(0, 1),
        modes=modes,
        drift=drift,
        programs=programs,
        pods=tuple(sorted(pods)),
        other_pods=tuple(sorted(others)),
        allocatable=offers_of(asked) if offers is None else dict(offers),
    )
    return {
        keys.MIG_STATUS: mig_status_annotation.encode(status),
        keys.MIG_REQUEST: None if end else mig_request_annotation.encode(wish),
    }


class Replica:
    """One coordinator's process: its caches, what it believes of the Lease, and its rounds."""

    def __init__(self, cluster: Cluster, api: FakeApi, identity: str) -> None:
        """``identity``: no other one's; it knows nothing yet."""
        self.cluster = cluster
        self.identity = identity
        self.cache = FleetCache(TERMS)
        self.leadership = Leadership(
            api,
            identity=identity,
            clock=lambda: cluster.now,
            wall=cluster.wall,
            uniform=cluster.draw.uniform,
        )
        self.metrics = CoordinatorMetrics("test")
        self.reports = ChangeReports(NoEvents(), self.metrics, wall=cluster.wall)
        self.coordinator = Coordinator(
            api,
            self.cache,
            self.leadership,
            terms=cluster.terms,
            reports=self.reports,
            wall=cluster.wall,
            uniform=cluster.draw.uniform,
        )
        self._beat_at = cluster.now
        self._seen_version = 0

    def work(self, *, beat_first: bool = True) -> None:
        """Its rounds at this moment, until it waits; two threads, of which one may be first."""
        if beat_first:
            self._beat()
        self._rounds()
        if not beat_first:
            self._beat()

    def _beat(self) -> None:
        cluster = self.cluster
        if cluster.now >= self._beat_at:
            self._beat_at = cluster.now + self.leadership.beat(cluster.now)

    def _rounds(self) -> None:
        cluster = self.cluster
        for _ in range(_ROUNDS):
            if cluster.draw.random() < 0.8:  # watches lag behind
                self.sync()
            if self.coordinator.round() != AGAIN_SECONDS:
                return
        raise AssertionError("the coordinator writes and writes")

    @property
    def seen_version(self) -> int:
        """Up to which it knows what happened."""
        return self._seen_version

    def sync(self) -> None:
        """Take what there is, then what happened since the last time, as its watches do."""
        server = self.cluster.server
        if not self._seen_version:
            self._seen_version = int(server.version)
            for node in server.objects(NODES):
                self.cache.node(node)
            for pod in server.objects(PODS):
                self.cache.pod(pod)
            for lease in server.objects(LEASES, is_slot):
                self.cache.slot(lease)
        self._seen_version = show(self.cluster.server, self.cache, self._seen_version)


class NoEvents:
    """Takes Events, and forgets them."""

    def record(self, *_: Any, **__: Any) -> None:
        """See :class:`kube.events.EventSink`."""


def violations(cluster: Cluster, pods: Collection[str] = ()) -> Iterator[str]:
    """What was ever done in the cluster against the rules, from all that happened there.

    ``pods``: those that may have been evicted, device plugins apart.
    """
    cordons: dict[str, str] = {}
    unschedulable: dict[str, bool] = {}
    marks: dict[str, bool] = {}
    phases: dict[str, str] = {}
    slots: dict[int, str] = {}
    parked: dict[int, str] = {}
    for happened in cluster.server.since(0):
        resource, _, name = happened.key
        if resource == LEASES and is_slot(happened.object):
            slot = slot_of(happened.object)
            of = parked if slot.is_parked else slots
            of.pop(slot.number, None)
            if happened.type != "DELETED" and slot.record is not None:
                of[slot.number] = slot.record.node
            if len(set(parked.values())) < len(parked):
                yield f"{happened.version}: {sorted(parked.values())} are parked, one twice"
        if resource != NODES:
            continue
        if happened.type == "DELETED":
            for kept in (cordons, unschedulable, phases, marks):
                kept.pop(name, None)
            continue
        is_ours = happened.object["metadata"]["resourceVersion"] not in cluster.foreign_versions
        was, now = unschedulable.get(name, False), _is_cordoned(happened.object)
        unschedulable[name] = now
        says_ours, marks[name] = marks.get(name, False), _says_that_we_cordoned(happened.object)
        if was and not now and is_ours and not says_ours:
            yield f"{happened.version}: the policies do not let us uncordon {name}"
        if now and not was:
            cordons[name] = "coordinator" if is_ours else "people"
        if was and not now and is_ours and cordons[name] != "coordinator":
            yield f"{happened.version}: {name} was cordoned by people, and we uncordoned it"
        before, text = phases.get(name, ""), _permit_text(happened.object)
        phases[name] = text
        if is_ours and text and not before and name not in slots.values():
            yield f"{happened.version}: {name} was written without a record"
        if is_ours and '"phase":"proceed"' in text and '"phase":"proceed"' not in before:
            if not now:
                yield f"{happened.version}: go on {name}, which is not cordoned"
            if '"phase":"cordoned"' not in before:
                yield f"{happened.version}: go on {name} without a hold"
            notes = happened.object["metadata"]["annotations"]
            request = mig_request_annotation.decode(notes[keys.MIG_REQUEST])
            if request is None or request.pods or request.programs:
                yield f"{happened.version}: go on {name}, whose GPUs are held"
        changing = {it for it, permit in phases.items() if permit} - set(parked.values())
        if len(changing & set(slots.values())) > cluster.terms.slots:
            yield f"{happened.version}: {sorted(changing)} are in change"
    for name in cluster.evicted:
        if not name.startswith("plugin-") and name not in pods:
            yield f"{name} was evicted"


def _is_cordoned(node: Object) -> bool:
    return bool(node.get("spec", {}).get("unschedulable"))


def _says_that_we_cordoned(node: Object) -> bool:
    """As the admission policies read it."""
    notes = node["metadata"].get("annotations") or {}
    return keys.MIG_CORDON in notes or '"owns_cordon":true' in _permit_text(node)


def _permit_text(node: Object) -> str:
    return str((node["metadata"].get("annotations") or {}).get(keys.MIG_PERMIT, ""))
