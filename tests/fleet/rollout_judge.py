# SPDX-License-Identifier: Apache-2.0
"""Judges coordinators by the log of all requests, and by what is known of pods and people.

Nothing that a coordinator says of itself counts, but for the Leases, which say who may act. One
rule each:

- ``slots``: never more nodes in change than slots; a node is in change while it carries a permit
  and its record does not stand on a Lease that is no slot;
- ``record``: no Node is held before its record stands on a Lease;
- ``leader``: Nodes, slots and pods are written by the holder of the Lease ``coordinator`` alone;
- ``cordon``: the permit comes with the cordon; proceed follows, on a Node that is cordoned;
- ``idle``: go comes after the time to settle, and then no pod holds a GPU that is to change, of
  those that were there when the node was cordoned or came within that time;
- ``end``: go is not taken back before its request has ended;
- ``cordon``: what people cordoned is not uncordoned;
- ``clients``: where GPUs are reset, proceed comes once every part of the GPU operator that keeps
  them open is gone;
- ``guards``: with the permit go the autoscalers' guards and paused labels, as they were before;
- ``delete``: no pod is deleted;
- ``evict``: only pods that hold what changes are evicted, or any with a GPU where the admin says
  ``node``, in none of the modes before the Node is held; the device plugin's only after the end;
- ``whole set``: none is evicted where one of the set could not go, or where a budget did not let
  all of them go;
- ``canary``: a rollout's nodes go one by one until one has succeeded, and for the time after it;
- ``breaker``: a rollout of which too many nodes have failed begins nothing: each counts once, by
  its newest end; after a row for a while, after as many in all at all.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from api import keys, mig_permit_annotation, mig_status_annotation, names
from api.mig_permit_annotation import PermitPhase
from fleet.rollout_settings import PAUSED, USAGE_SECONDS, RolloutSettings
from fleet.slot_lease import is_slot, slot_of
from kube.api import Object
from tests.fleet.request_log import LoggedRequest

_REGISTER_SECONDS = 150.0
"""From an end that is told to its count, where the device plugin has to register first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownPod:
    """What is true of a pod, whatever the API server has."""

    node: str
    affected: bool = False
    """It holds a GPU that a change of its node takes away."""
    can_go: bool = True
    app: str = ""
    """Value of its label, by which a budget selects it."""
    is_plugin: bool = False
    of_daemon_set: bool = False
    paused_by: str = ""
    """Label of its node by which the GPU operator takes it away: it keeps GPUs open until then."""
    grace: bool = True
    """It stays for a while once it was evicted."""


@dataclass(slots=True, kw_only=True)
class KnownFleet:
    """What the judge knows beside the log."""

    terms: RolloutSettings
    pods: dict[str, KnownPod] = field(default_factory=dict)
    """By name: no two have the same."""
    drains: dict[str, str] = field(default_factory=dict)
    """How pods leave, by node, where it is not ``wait``."""
    guards: dict[str, dict[str, str]] = field(default_factory=dict)
    """Autoscalers' annotations that people have set, by node."""
    deploy: dict[str, dict[str, str]] = field(default_factory=dict)
    """The GPU operator's labels of nodes whose changes reset GPUs, as people have set them."""
    count_seconds: float = 150.0
    """From an end that is told to its count: with killed coordinators and calls that fail between.
    """
    replicas_are_known: bool = True
    """The log says which of several coordinators made a request."""
    slack: float = 0.0
    """Seconds by which two entries of the log may stand too close: bodies of pods are not in it."""


@dataclass(slots=True)
class _Node:
    """A Node as it was answered last."""

    permit: str = ""
    phase: PermitPhase | None = None
    request: str = ""
    """Of the permit."""
    cordoned: bool = False
    cordoned_by: str = ""
    notes: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    told: str = ""
    """The request that the status names."""
    end: str = ""
    asked: str = ""
    held_for: str = ""
    """What was asked for when it was held."""
    cordoned_at: float = 0.0
    evicts: bool = False
    """Pods of the set were evicted since it is held."""

    def has_ended(self, request: str) -> bool:
        """Whether the agent has told an end of it."""
        return bool(self.told) and (self.told != request or bool(self.end))


class RolloutJudge:
    """Takes the log request by request; ``faults`` are the rules that were broken, with where."""

    def __init__(self, known: KnownFleet) -> None:
        self.known = known
        self.faults: list[str] = []
        self.evicted: list[str] = []
        """Pods whose eviction was done, the device plugin's left out."""
        self.most_in_change = 0
        self.permits: Counter[str] = Counter()
        """How often go was written, by node."""
        self._nodes: defaultdict[str, _Node] = defaultdict(_Node)
        self._slots: dict[int, str] = {}
        """Number of a Lease to the node that its record is for."""
        self._leader = ""
        self._pods: dict[str, float] = {}
        """Pods that are there, with when they were bound."""
        self._leaving: set[str] = set()
        self._budgets: dict[str, int] = {}
        """Value of the label to the pods that may go."""
        self._applied: defaultdict[str, list[float]] = defaultdict(list)
        self._failed: defaultdict[str, dict[str, float]] = defaultdict(dict)
        """Nodes whose newest end is a failure, by rollout, to when they told it."""
        self._ever_failed: defaultdict[str, set[str]] = defaultdict(set)
        self._resumed: set[str] = set()
        """Rollouts of which nobody knows what has been proven."""

    @property
    def permitted(self) -> int:
        """How often go was written."""
        return self.permits.total()

    def take_all(self, log: Iterable[LoggedRequest]) -> None:
        """Take requests, in the order of the log."""
        for request in log:
            self.take(request)

    def take(self, request: LoggedRequest) -> None:
        """Take one request."""
        match request.resource:
            case "nodes" if request.verb == "delete" and request.done:
                self._nodes.pop(request.name, None)
            case "nodes" if request.answer is not None and request.done:
                self._node(request, request.answer)
            case "leases" if request.answer is not None and request.done:
                self._lease(request, request.answer)
            case "pods":
                self._pod(request)
            case "poddisruptionbudgets" if request.answer is not None:
                budget = request.answer
                app = ((budget.get("spec") or {}).get("selector") or {}).get("matchLabels", {})
                allowed = (budget.get("status") or {}).get("disruptionsAllowed", 0)
                self._budgets[app.get("app", "")] = int(allowed)

    def resumed(self) -> None:
        """A person has all rollouts go on: what they have proven is forgotten too."""
        self._failed.clear()
        self._ever_failed.clear()
        self._resumed |= {it.asked for it in self._nodes.values()}

    def failures(self, rollout: str) -> int:
        """Nodes of the rollout whose agents told a failure, also where they succeeded later."""
        return len(self._ever_failed[rollout])

    def is_stopped(self, rollout: str, now: float) -> bool:
        """Whether the breaker has to hold a rollout, by the ends that agents told."""
        terms = self.known.terms
        counted = now - self.known.count_seconds
        failed = sorted(at for at in self._failed[rollout].values() if at < counted)
        if len(failed) >= terms.failures_in_all:
            return True
        last = failed[-terms.failures_in_row :]
        if len(last) < terms.failures_in_row or now > last[-1] + terms.row_seconds:
            return False
        return not any(at > last[0] - _REGISTER_SECONDS for at in self._applied[rollout])

    # what is written

    def _fault(self, request: LoggedRequest, rule: str, what: str) -> None:
        self.faults.append(f"{request.at:.0f} {rule}: {what}")

    def _lease(self, request: LoggedRequest, lease: Object) -> None:
        if lease["metadata"]["name"] == names.COORDINATOR_LEASE:
            self._leader = (lease.get("spec") or {}).get("holderIdentity") or ""
            return
        if not is_slot(lease):
            return
        self._leads(request, lease["metadata"]["name"])
        slot = slot_of(lease)
        self._slots.pop(slot.number, None)
        if slot.record is not None:
            self._slots[slot.number] = slot.record.node
            if not slot.is_parked and slot.number >= self.known.terms.slots:
                self._fault(request, "slots", f"slot {slot.number} is taken")
        elif slot.is_free:
            return
        self._count(request)

    def _leads(self, request: LoggedRequest, what: str) -> None:
        if self.known.replicas_are_known and request.by and request.by != self._leader:
            self._fault(
                request, "leader", f"{request.by} writes {what}, and {self._leader} has the Lease"
            )

    def _node(self, request: LoggedRequest, seen: Object) -> None:
        name = request.name
        before, after = self._nodes[name], self._seen(name, request, seen)
        self._nodes[name] = after
        if after.end and (after.told, after.end) != (before.told, before.end):
            self._ended(name, after, request.at)
        if not request.by:
            return
        self._leads(request, name)
        if before.cordoned and not after.cordoned and not before.cordoned_by:
            self._fault(request, "cordon", f"{name} was cordoned by people")
        if after.permit and not before.permit:
            self._held(request, name, after)
        if after.phase is PermitPhase.PROCEED and before.phase is not PermitPhase.PROCEED:
            self._went(request, name, before, after)
        took_back = before.phase is PermitPhase.PROCEED and (
            after.phase is not PermitPhase.PROCEED or after.request != before.request
        )
        if took_back and not before.has_ended(before.request):
            self._fault(request, "end", f"go was taken from {name}, whose request is open")
        if before.permit and not after.permit:
            self._undone(request, name, after)
        self._count(request)

    def _seen(self, name: str, request: LoggedRequest, seen: Object) -> _Node:
        before = self._nodes[name]
        meta = seen["metadata"]
        notes = meta.get("annotations") or {}
        permit = mig_permit_annotation.FORMAT.readable(notes.get(keys.MIG_PERMIT))
        status = mig_status_annotation.FORMAT.readable(notes.get(keys.MIG_STATUS))
        cordoned = bool((seen.get("spec") or {}).get("unschedulable"))
        by = before.cordoned_by if before.cordoned else request.by
        return _Node(
            permit=notes.get(keys.MIG_PERMIT, ""),
            phase=None if permit is None else permit.phase,
            request="" if permit is None else permit.request,
            cordoned=cordoned,
            cordoned_by=by if cordoned else "",
            notes=notes,
            labels=meta.get("labels") or {},
            told="" if status is None else status.request,
            end="" if status is None else status.outcome,
            asked="" if status is None else status.desired,
            held_for=before.held_for,
            cordoned_at=before.cordoned_at,
            evicts=before.evicts,
        )

    def _ended(self, name: str, node: _Node, at: float) -> None:
        if node.end == "applied":
            self._applied[node.asked].append(at)
            self._failed[node.asked].pop(name, None)
        elif node.end in ("rolled-back", "stuck"):
            self._failed[node.asked].setdefault(name, at)
            self._ever_failed[node.asked].add(name)

    def _held(self, request: LoggedRequest, name: str, node: _Node) -> None:
        node.cordoned_at, node.held_for, node.evicts = request.at, node.asked, False
        if name not in self._slots.values():
            self._fault(request, "record", f"{name} is held without a record")
        if node.phase is not PermitPhase.CORDONED or not node.cordoned:
            self._fault(request, "cordon", f"{name}: {node.permit}, cordoned: {node.cordoned}")
        if self.is_stopped(node.asked, request.at):
            self._fault(request, "breaker", f"{name} begins, and {node.asked} is stopped")
        if node.asked in self._resumed:
            return
        applied = self._applied[node.asked]
        beside = [
            it
            for it in self._in_change()
            if it != name and self._nodes[it].held_for == node.asked and not self._nodes[it].end
        ]
        # a success that was replaced by the next wish before anybody saw it has proven nothing
        if beside and (
            not applied or request.at < applied[0] + self.known.terms.canary_seconds - 1
        ):
            self._fault(request, "canary", f"{name} begins beside {sorted(beside)}: {applied[:1]}")

    def _went(self, request: LoggedRequest, name: str, before: _Node, after: _Node) -> None:
        self.permits[name] += 1
        if not after.cordoned:
            self._fault(request, "cordon", f"proceed on {name}, which is not cordoned")
        if before.phase is not PermitPhase.CORDONED or before.request != after.request:
            self._fault(request, "cordon", f"proceed on {name}, whose permit was not cordoned")
        settled = before.cordoned_at + self.known.terms.settle_seconds - self.known.slack
        if request.at < settled:
            self._fault(
                request, "idle", f"go on {name} {request.at - before.cordoned_at:.1f} s later"
            )
        if clients := [it for it in self._pods if self._keeps_open(it, name)]:
            self._fault(request, "clients", f"go on {name}, whose GPUs {clients} keep open")
        there = [
            it
            for it in self._set(name)
            if self.known.pods[it].affected and self._pods[it] <= settled
        ]
        if there:
            self._fault(request, "idle", f"go on {name}, whose GPUs are held by {there}")

    def _undone(self, request: LoggedRequest, name: str, node: _Node) -> None:
        wanted = self.known.guards.get(name, {})
        found = {it: node.notes[it] for it in names.SCALE_DOWN_GUARDS if it in node.notes}
        if found != wanted:
            self._fault(request, "guards", f"{name} keeps {found}, and had {wanted}")
        paused = [
            label
            for label, value in node.labels.items()
            if value == PAUSED and re.fullmatch(names.DEPLOY_LABELS, label)
        ]
        if paused:
            self._fault(request, "guards", f"{name} keeps {paused}")
        if not self.known.deploy.get(name, {}).items() <= node.labels.items():
            self._fault(request, "guards", f"{name} has other labels of the operator than before")
        if node.cordoned and node.cordoned_by and keys.KEEP_CORDONED not in node.notes:
            self._fault(request, "guards", f"{name} stays cordoned")

    def _keeps_open(self, pod: str, node: str) -> bool:
        known = self.known.pods[pod]
        is_client = known.is_plugin or bool(known.paused_by)
        return known.node == node and is_client and node in self.known.deploy

    def _in_change(self) -> set[str]:
        parked = {node for number, node in self._slots.items() if number >= 1000}
        return {name for name, node in self._nodes.items() if node.permit} - parked

    def _count(self, request: LoggedRequest) -> None:
        changing = self._in_change()
        self.most_in_change = max(self.most_in_change, len(changing))
        if len(changing) > self.known.terms.slots:
            self._fault(request, "slots", f"{sorted(changing)} are in change")

    # pods

    def _set(self, node: str) -> list[str]:
        """Pods that are there now, but for the device plugin's."""
        return [
            it
            for it in self._pods
            if self.known.pods[it].node == node and not self.known.pods[it].is_plugin
        ]

    def _pod(self, request: LoggedRequest) -> None:
        name = request.name
        if name not in self.known.pods:
            if request.by:
                self._fault(request, "evict", f"{name} is none that anybody knows")
            return
        if request.verb == "delete" and request.by:
            self._fault(request, "delete", name)
        if request.verb == "create" and request.done:
            self._pods[name] = request.at
        elif request.verb == "delete" and request.done:
            self._gone(name)
        elif request.verb == "evict" and request.by and not request.dry_run:
            self._leads(request, name)
            if request.done:
                self._eviction(request, name)

    def _gone(self, name: str) -> None:
        self._pods.pop(name, None)
        self._leaving.discard(name)

    def _eviction(self, request: LoggedRequest, name: str) -> None:
        pod = self.known.pods[name]
        node = self._nodes[pod.node]
        if pod.is_plugin:
            if not (node.permit and node.has_ended(node.request)):
                self._fault(request, "evict", f"{name}, before its node's change has ended")
        else:
            self.evicted.append(name)
            self._check_set(request, name, pod, node)
            node.evicts = True
        self._leaving.add(name)
        if not pod.grace:
            self._gone(name)

    def _check_set(self, request: LoggedRequest, name: str, pod: KnownPod, node: _Node) -> None:
        mode = self.known.drains.get(pod.node, "wait")
        if mode == "wait" or not (pod.affected or mode == "node"):
            self._fault(request, "evict", f"{name} holds nothing that changes ({mode})")
        if node.phase is not PermitPhase.CORDONED:
            self._fault(request, "evict", f"{name}, whose node is not held")
        of_set = [
            it
            for it in self._set(pod.node)
            if self._pods[it] < request.at - USAGE_SECONDS
            if self.known.pods[it].affected
            or (mode == "node" and not self.known.pods[it].of_daemon_set)
        ]
        cannot = [it for it in of_set if not self.known.pods[it].can_go]
        if cannot:
            self._fault(request, "whole set", f"{name} goes, and {cannot} cannot")
        if node.evicts:
            return
        staying = [it for it in {*of_set, name} if it not in self._leaving]
        for app, allowed in self._budgets.items():
            needed = sum(self.known.pods[it].app == app for it in staying)
            if needed > allowed:
                self._fault(
                    request, "whole set", f"{name} goes, and {app} lets {allowed} of {needed} go"
                )
