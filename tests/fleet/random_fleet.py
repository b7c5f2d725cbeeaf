# SPDX-License-Identifier: Apache-2.0
"""Rollouts drawn by a seed: nodes half of which have pods, pods of all kinds, budgets, kills, calls
that fail, and two replicas of the coordinator, all in virtual time and in one log.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from api import keys, names
from api.state_annotation import pod_key
from fleet.rollout_settings import LONGEST_RETRY_SECONDS, PAUSED, RolloutSettings
from fleet.slot_gate import FleetView, GateDecision, WaitReason
from kube.api import LEASES, NODES, POD_DISRUPTION_BUDGETS, PODS, Object
from kube.api_errors import Busy, Conflict, NotFound, Unreachable
from tests.fleet.request_log import LoggedApi, LoggedRequest, LoggedServer
from tests.fleet.rollout_judge import KnownFleet, KnownPod, RolloutJudge
from tests.fleet.simulated_fleet import START, Cluster, Killed, Replica, SimulatedAgent

CHANGE_SECONDS: Final = 40.0
"""What a change takes beside the change of the GPUs and the pods' graces: docs/mig.md."""
RETRY_SECONDS: Final = 300.0
"""After which a simulated agent asks again for what has failed."""
NEVER_SECONDS: Final = 1e9
"""A part of the operator that does not end within any time."""
_DEPLOY: Final = "nvidia.com/gpu.deploy"
ASLEEP_SECONDS: Final = 45.0
"""How long a coordinator stands still that then goes on: the other one has the Lease by then."""


class PodKind(StrEnum):
    """What becomes of a pod."""

    LEAVES = "leaves"
    """It runs for ever, and ends when it is evicted."""
    ENDS = "ends"
    """By itself, some time; and when it is evicted."""
    STAYS = "stays"
    """It may not be evicted, and runs for ever."""
    LINGERS = "lingers"
    """It may be evicted, and does not end for all that."""


_REASONS: Final = ("unmanaged", "do-not-disrupt", "local-data", "daemon-set", "grace")
"""Why pods stay."""


@dataclass(slots=True, kw_only=True)
class RandomPod:
    """One pod of the fleet."""

    name: str
    node: str
    kind: PodKind
    affected: bool
    app: str = ""
    ends_at: float | None = None
    grace: float = 0.0
    """Seconds from its eviction to its end."""
    why: str = ""
    leaving_since: float | None = None
    is_gone: bool = False


@dataclass(slots=True, kw_only=True)
class OperatorClient:
    """A part of the GPU operator that keeps the GPUs of a node open: a DaemonSet's pod."""

    name: str
    label: str
    """Of the Node: while it is paused, the operator takes the pod away."""
    goes_seconds: float
    """From the pause to the pod's end."""
    is_there: bool = False
    goes_at: float | None = None


@dataclass(frozen=True, kw_only=True)
class RandomTerms:
    """What is drawn, and how wild it is."""

    nodes: int = 50
    slots: int = 3
    storm: bool = True
    """Coordinators are killed and stand still, calls fail, pods come behind the cordon."""
    blocked: bool = True
    """There are pods that never go, and budgets that never allow."""
    failing: bool = True
    """Some changes fail."""
    modes: bool = False
    """Half of the nodes have Ampere GPUs: their changes switch MIG modes by resets, for which parts
    of the GPU operator are paused."""
    step: float = 2.0
    pods: tuple[PodKind, ...] = field(default=tuple(PodKind))


class RandomFleet(Cluster):
    """All of it; :meth:`step` lets time pass."""

    def __init__(self, seed: int, how: RandomTerms) -> None:
        self.how = how
        self.luck = draw = random.Random(seed)  # noqa: S311  # a schedule, no secret
        terms = RolloutSettings(
            slots=how.slots,
            canary_seconds=60.0,
            retry_seconds=20.0,
            settle_seconds=5.0,
            hold_seconds=40.0,
            register_seconds=20.0,
            end_seconds=200.0,
            drain_seconds=120.0,
            failures_in_row=draw.choice((2, 1000)) if how.failing else 1000,
            row_seconds=600.0,  # so that the judge, who has to wait for counts, sees it too
            failures_in_all=draw.choice((3, 5)) if how.failing else 1000,
        )
        if terms.failures_in_row == 1000:
            terms = RolloutSettings(**{**_fields(terms), "failures_in_all": 10_000})
        self.log = LoggedServer(lambda: self.now)
        self.replicas: list[Replica] = []
        self.apis: list[LoggedApi] = []
        self.waiting: Mapping[str, WaitReason] = {}
        """Nodes that wait, with why, as the leader says."""
        self.asleep: dict[str, float] = {}
        self.kills = self.failed_calls = 0
        self.is_calm = not how.storm
        """Nothing is killed, and nothing fails."""
        self.known = KnownFleet(terms=terms, count_seconds=150.0 if how.storm else 10.0)
        self.judge = RolloutJudge(self.known)
        self.of_pods: dict[str, RandomPod] = {}
        self.placed = 0
        self.budgets: dict[str, int] = {}
        """Label's value to how many of its pods have to be ready."""
        self._counted: dict[str, dict[str, int]] = {}
        self.disturbed_at = START
        """When something last happened that a rollout has to wait for."""
        self.late: list[str] = []
        self.kept: set[str] = set()
        """Nodes that people have cordoned, and that stay so."""
        self.cordoned_until: dict[str, float] = {}
        self.opened: dict[str, float] = {}
        """When people took their cordons off."""
        self.clients: dict[str, list[OperatorClient]] = {}
        """By node."""
        super().__init__(nodes=how.nodes, terms=terms, seed=seed, server=self.log)
        self._populate()
        self.first_pods = [it for it in self.of_pods.values() if it.affected]
        self.rollouts = len({it.wish for it in self.agents.values()})

    # coordinators

    def start_coordinator(self) -> None:
        """Two of them at the start; later one for each that was killed."""
        for _ in range(1 if self.replicas else 2):
            self.starts += 1
            identity = f"coordinator-{self.starts}"
            api = LoggedApi(self.server, manager=identity)
            api.after("patch", self.ours, resource=NODES)
            api.before("*", lambda _call: self._weather(done=False))
            api.after("*", lambda _call: self._weather(done=True))
            self.apis.append(api)
            replica = Replica(self, api, identity)
            self._overhear(replica)
            self.replicas.append(replica)
        self.replica = self.replicas[0]

    def _overhear(self, replica: Replica) -> None:
        shows = replica.reports.shows

        def heard(view: FleetView, decision: GateDecision, terms: RolloutSettings) -> None:
            self.waiting = decision.waiting
            shows(view, decision, terms)

        replica.reports.shows = heard  # type: ignore[method-assign]  # a spy

    def resume(self) -> None:
        """A person lets all go on that failures have stopped."""
        patch = {"metadata": {"annotations": {keys.MIG_ROLLOUTS: None}}}
        with contextlib.suppress(NotFound):  # no coordinator has led yet
            self.people.patch(LEASES, names.COORDINATOR_LEASE, patch, namespace=names.NAMESPACE)
        self.judge.resumed()

    def run_coordinator(self) -> None:
        """Each replica that is not asleep."""
        if not self.is_calm and self.luck.random() < 0.002:
            self.asleep[self.luck.choice(self.replicas).identity] = self.now + ASLEEP_SECONDS
            self.disturbed_at = self.now + ASLEEP_SECONDS
        for replica in list(self.replicas):
            if self.now < self.asleep.get(replica.identity, 0.0):
                continue
            try:
                replica.work(beat_first=self.luck.random() < 0.5)
            except Killed:
                self.kills += 1
                self.disturbed_at = self.now
                self.replicas.remove(replica)
                self.start_coordinator()

    def _weather(self, *, done: bool) -> None:
        if self.is_calm:
            return
        chance = self.luck.random()
        if chance < 0.0015:
            raise Killed
        if chance < 0.006:
            self.failed_calls += 1
            self.disturbed_at = self.now
            raise (
                Unreachable("reset")
                if done
                else self.luck.choice((Unreachable("reset"), Busy("503"), Conflict("409")))
            )

    # nodes and pods

    def _populate(self) -> None:
        draw, how = self.luck, self.how
        self.known.pods |= {
            f"plugin-{name}": KnownPod(node=name, is_plugin=True) for name in self.agents
        }
        for number in range(draw.randint(1, 3)):
            most = 3 if how.blocked else 0
            self.budgets[f"app-{number}"] = draw.randint(0, most)
            self._make_budget(f"app-{number}")
        fails = draw.choice((0.03, 0.3, 0.8)) if how.failing else 0.0
        for name, agent in self.agents.items():
            agent.change_seconds = draw.uniform(4, 30)
            if draw.random() < 0.2:
                value = draw.choice(("true", "false"))
                guard = draw.choice(names.SCALE_DOWN_GUARDS)
                self.known.guards[name] = {guard: value}
                self.edit(name, {"metadata": {"annotations": {guard: value}}})
            if draw.random() < fails:
                agent.ends = [draw.choice(("rolled-back", "rolled-back", "stuck", "refused"))]
            self._cordon_some(name)
            drain = draw.choice(("", "", "evict", "evict", "node"))
            if drain:
                self.known.drains[name] = drain
                self.annotate(name, drain=drain)
            if draw.random() < 0.5:
                continue
            for _ in range(draw.randint(1, 3)):
                self._place(name, affected=True)
            for _ in range(draw.randint(0, 2)):
                self._place(name, affected=False)
        for name in sorted(self.agents)[::2] if how.modes else ():
            self._make_ampere(name)
        half = draw.random() < 0.4
        for agent in self.agents.values():
            self.wish("halves" if half and draw.random() < 0.5 else "sevenths", agent.name)

    def _make_ampere(self, name: str) -> None:
        """Changes that switch modes: resets take time, and may fail or lose a GPU."""
        draw, agent = self.luck, self.agents[name]
        agent.modes, agent.change_seconds = True, draw.uniform(10, 60)
        if self.how.failing and draw.random() < 0.2:
            agent.ends = [draw.choice(("rolled-back", "rolled-back", "stuck"))]
        labels = {
            f"{_DEPLOY}.device-plugin": "true",
            f"{_DEPLOY}.driver": "true",
            f"{_DEPLOY}.dcgm-exporter": draw.choice(("true", "true", "by-me")),
            f"{_DEPLOY}.nvsm": draw.choice(("true", "false")),
        }
        self.known.deploy[name] = labels
        self.edit(name, {"metadata": {"labels": labels}})
        stays = self.how.blocked and draw.random() < 0.06
        for part in ("dcgm-exporter", "nvsm"):
            label = f"{_DEPLOY}.{part}"
            if labels[label] != "false":
                goes = NEVER_SECONDS if stays else draw.choice((0.0, 2.0, 6.0, 12.0))
                client = OperatorClient(name=f"{part}-{name}", label=label, goes_seconds=goes)
                self.clients.setdefault(name, []).append(client)
                self.known.pods[client.name] = KnownPod(
                    node=name, of_daemon_set=True, paused_by=label
                )

    def _cordon_some(self, name: str) -> None:
        """People cordon nodes: some to stay so while they change, some for a while."""
        chance = self.luck.random()
        if chance < 0.12:
            self.cordon(name)
        if chance < 0.06:
            self.annotate(name, keep_cordoned="")
            self.kept.add(name)
        elif chance < 0.12:
            self.cordoned_until[name] = self.now + self.luck.uniform(10, 600)

    def _make_budget(self, app: str) -> None:
        body: dict[str, Any] = {
            "metadata": {"name": app},
            "spec": {"selector": {"matchLabels": {"app": app}}},
        }
        self.people.create(POD_DISRUPTION_BUDGETS, body, namespace="default")

    def _place(
        self, node: str, *, affected: bool, kind: PodKind | None = None, longest: float = 900.0
    ) -> RandomPod:
        draw, number = self.luck, self.placed
        self.placed += 1
        kinds = [it for it in self.how.pods if self.how.blocked or it.value in ("leaves", "ends")]
        weights = [{"stays": 1, "lingers": 1}.get(it.value, 8) for it in kinds]
        kind = kind or draw.choices(kinds, weights)[0]
        pod = RandomPod(
            name=f"p{number}",
            node=node,
            kind=kind,
            affected=affected,
            why=draw.choice(_REASONS) if kind is PodKind.STAYS else "",
            grace=draw.choice((0.0, 2.0, 20.0, 30.0)),
        )
        if kind is PodKind.ENDS:
            pod.ends_at = self.now + draw.uniform(10, longest)
        if pod.why != "unmanaged" and draw.random() < 0.3:
            pod.app = draw.choice(sorted(self.budgets))
        self.of_pods[pod.name] = pod
        self.known.pods[pod.name] = KnownPod(
            node=node,
            affected=affected,
            can_go=not pod.why,
            app=pod.app,
            of_daemon_set=pod.why == "daemon-set",
        )
        self._create(pod)
        if affected:
            self.agents[node].blocking.add(pod_key("default", pod.name))
        return pod

    def _create(self, pod: RandomPod) -> None:
        limits = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
        spec: Object = {"nodeName": pod.node, "containers": [{"name": "c", **limits}]}
        meta: Object = {"name": pod.name, "labels": {"app": pod.app or "none"}}
        kind = "DaemonSet" if pod.why == "daemon-set" else "ReplicaSet"
        if pod.why != "unmanaged":
            owner = {"apiVersion": "apps/v1", "kind": kind, "name": "x", "uid": "x"}
            meta["ownerReferences"] = [owner | {"controller": True}]
        if pod.why == "do-not-disrupt":
            meta["annotations"] = {keys.DO_NOT_DISRUPT: "true"}
        if pod.why == "local-data":
            spec["volumes"] = [{"name": "v", "emptyDir": {}}]
        if pod.why == "grace":
            spec["terminationGracePeriodSeconds"] = 100_000
        self.people.create(PODS, {"metadata": meta, "spec": spec}, namespace="default")
        ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        self.server.patch(PODS, pod.name, {"status": ready}, "default", status=True)

    def _run_plugin(self, agent: SimulatedAgent, node: Object, on_node: list[Object]) -> None:
        """Also the operator's other parts."""
        super()._run_plugin(agent, node, on_node)
        labels = node["metadata"]["labels"]
        for client in self.clients.get(agent.name, ()):
            is_paused = labels.get(client.label) == PAUSED
            if is_paused and client.is_there and client.goes_at is None:
                client.goes_at = self.now + client.goes_seconds
            if not is_paused:
                client.goes_at = None
            if client.goes_at is not None and self.now >= client.goes_at:
                self.server.delete(PODS, client.name, "kube-system")
                client.is_there, client.goes_at = False, None
            elif not is_paused and not client.is_there:
                client.is_there = True
                spec = {
                    "nodeName": agent.name,
                    "nodeSelector": {client.label: labels[client.label]},
                    "containers": [{"name": "c"}],
                }
                body = {"metadata": {"name": client.name}, "spec": spec}
                self.people.create(PODS, body, namespace="kube-system")

    def _is_due(self, agent: SimulatedAgent) -> bool:
        """Also where a part of the operator ends."""
        clients = self.clients.get(agent.name, ())
        return super()._is_due(agent) or any(
            client.goes_at is not None and self.now >= client.goes_at for client in clients
        )

    def may_end(self, pod: str) -> bool:
        """One that was evicted ends when its grace is over; one that lingers never."""
        of = self.of_pods[pod]
        if of.leaving_since is None:
            of.leaving_since = self.now
        return of.kind is not PodKind.LINGERS and self.now >= of.leaving_since + of.grace

    def end_pod(self, name: str) -> None:
        """The pod goes; what owns it makes another one elsewhere."""
        pod = self.of_pods[name]
        if pod.is_gone:
            return
        super().end_pod(name)
        pod.is_gone = True
        if pod.affected:
            self.disturbed_at = self.now
        if pod.leaving_since is not None:
            self._make_anew()

    def _make_anew(self) -> None:
        """On a node that takes pods and has the layout that it is to have, if there is one."""
        nodes = [
            it.name
            for it in self.agents.values()
            if it.layout == it.wish and it.closed and not self.is_cordoned(it.name)
        ]
        if nodes:
            self._place(self.luck.choice(nodes), affected=False, kind=PodKind.ENDS)

    def _run_budgets(self) -> None:
        """As the controller counts: how many of each may go."""
        ready = dict.fromkeys(self.budgets, 0)
        for pods in self.bound.values():
            for pod in pods.values():
                app = (pod["metadata"].get("labels") or {}).get("app")
                if app in ready and "deletionTimestamp" not in pod["metadata"]:
                    ready[app] += 1
        for app, least in self.budgets.items():
            status = {
                "disruptionsAllowed": max(0, ready[app] - least),
                "currentHealthy": ready[app],
                "desiredHealthy": least,
                "observedGeneration": 1,
            }
            if status != self._counted.get(app):
                self._counted[app] = status
                self.server.patch(
                    POD_DISRUPTION_BUDGETS, app, {"status": status}, "default", status=True
                )

    # time

    def step(self) -> None:
        """A moment passes; then all that was asked for in it is judged."""
        for pod in list(self.of_pods.values()):
            if pod.is_gone or pod.ends_at is None or pod.ends_at > self.now:
                continue
            self.end_pod(pod.name)
        for name, until in list(self.cordoned_until.items()):
            if self.now >= until:
                self.cordon(name, on=False)
                del self.cordoned_until[name]
                self.opened[name] = self.now
                self.disturbed_at = self.now
        self._run_budgets()
        self.pass_time(self.how.step, step=self.how.step)
        new, self.log.log = self.log.log, []
        self.judge.take_all(new)
        if not self.is_calm:
            self._come_late([it for it in new if it.by and it.resource == "nodes" and it.answer])

    def _come_late(self, written: list[LoggedRequest]) -> None:
        """A scheduler that had chosen a node binds its pod behind the cordon."""
        for request in written:
            name, node = request.name, request.answer or {}
            notes = node["metadata"].get("annotations", {})
            if '"phase":"cordoned"' in notes.get(keys.MIG_PERMIT, "") and name not in self.late:
                self.late.append(name)
                if self.luck.random() < 0.15:
                    kind = self.luck.choice((PodKind.ENDS, PodKind.LEAVES))
                    affected = self.luck.random() < 0.7
                    if kind is PodKind.LEAVES and name not in self.known.drains:
                        kind = PodKind.ENDS
                    self._place(name, affected=affected, kind=kind, longest=60.0)
                    self.disturbed_at = self.now

    # how it is to end

    def is_blocked(self, name: str) -> bool:
        """Whether something of the node itself keeps it, or may keep it, from changing."""
        mode = self.known.drains.get(name, "wait")
        if name in self.cordoned_until:
            return True
        if any(it.goes_seconds == NEVER_SECONDS for it in self.clients.get(name, ())):
            return True
        for pod in self.of_pods.values():
            if pod.node != name or pod.is_gone:
                continue
            if not pod.affected and (mode != "node" or pod.why == "daemon-set"):
                continue
            if pod.ends_at is None and (mode == "wait" or pod.why or self.budgets.get(pod.app, 0)):
                return True
            if pod.kind is PodKind.LINGERS:
                return True
        return False

    def unblocked(self) -> list[str]:
        """Nodes that do not have their layout yet, and that nothing blocks for good."""
        return [
            it.name
            for it in self.agents.values()
            if (it.layout != it.wish or not it.closed)
            and not self._may_be_stopped(it.wish)
            and not self.is_blocked(it.name)
        ]

    def _may_be_stopped(self, rollout: str) -> bool:
        """Whether so much has failed that the breaker stops it, whatever succeeded between."""
        terms = self.known.terms
        return self.judge.failures(rollout) >= min(terms.failures_in_row, terms.failures_in_all)

    @property
    def are_stopped(self) -> bool:
        """Whether there is such a rollout."""
        return any(self._may_be_stopped(it.wish) for it in self.agents.values())

    def bound_at(self) -> float:
        """When all of :meth:`unblocked` must have their layouts: see docs/mig.md.

        A change that failed is tried again by its agent after a while. A node that was blocked is
        tried again later, and takes a slot each time; each call that failed may cost its backoff.
        """
        terms, agents = self.terms, self.agents.values()
        longest = max(it.change_seconds for it in agents)
        graces = 0.0 if not self.known.drains else 30.0
        groups = self.rollouts - (self.rollouts - len(agents)) // terms.slots
        base = terms.canary_seconds + groups * (longest + graces + CHANGE_SECONDS)
        if not self.how.storm and not self.how.blocked and not self.how.failing:
            last = max((it.ends_at or START for it in self.first_pods), default=START)
            return max(last, *self.opened.values(), START) + base
        lingering = sum(it.kind is PodKind.LINGERS for it in self.of_pods.values())
        lingering += sum(it.goes_seconds > 0 for its in self.clients.values() for it in its)
        held = lingering * 8 * (terms.evictions.deadline_seconds + terms.hold_seconds)
        failed = RETRY_SECONDS * any(it.done for it in agents)
        return self.disturbed_at + base + failed + LONGEST_RETRY_SECONDS + held / terms.slots

    def release(self) -> None:
        """Nothing is in the way any more, and new coordinators start, which know nothing."""
        self.is_calm = True
        self.asleep.clear()
        self.cordoned_until = dict.fromkeys(self.cordoned_until, 0.0)
        self.budgets = dict.fromkeys(self.budgets, 0)
        for clients in self.clients.values():
            for client in clients:
                client.goes_seconds = 0.0
                client.goes_at = None if client.goes_at is None else self.now
        for agent in self.agents.values():
            agent.ends, agent.retry_at = [], 0.0
        for node, pods in self.bound.items():
            for _, name in list(pods):
                if name in self.of_pods and node in self.agents:
                    self.of_pods[name].leaving_since = None
                    self.end_pod(name)
        self.resume()
        self.replicas.clear()
        self.start_coordinator()

    def left_behind(self) -> list[str]:
        """What is of ours, or not as it was, now that all is over."""
        found = [lease["metadata"]["name"] for lease in self.open_leases()]
        for name in self.agents:
            notes = self.notes(name)
            guards = {it: notes[it] for it in names.SCALE_DOWN_GUARDS if it in notes}
            if self.is_cordoned(name) != (name in self.kept) or keys.MIG_PERMIT in notes:
                found.append(f"{name}: cordon or permit")
            if guards != self.known.guards.get(name, {}):
                found.append(f"{name}: {guards}")
            if not self.known.deploy.get(name, {}).items() <= self._labels(name).items():
                found.append(f"{name}: {self._labels(name)}")
            if not all(client.is_there for client in self.clients.get(name, ())):
                found.append(f"{name}: a part of the operator is missing")
        return found

    def _labels(self, name: str) -> Mapping[str, str]:
        return self.node(name)["metadata"].get("labels") or {}


def _fields(terms: RolloutSettings) -> dict[str, Any]:
    return {name: getattr(terms, name) for name in RolloutSettings.__dataclass_fields__}
