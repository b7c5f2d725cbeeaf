# SPDX-License-Identifier: Apache-2.0
"""Reads all that is known of one Node's MIG change, with the rights of whoever runs a command.

What may not be read is named in the facts, with its verb and resource, and the rest is read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

from api import keys, names
from api.key_kinds import KeyLocation
from api.mig_permit_annotation import PermitPhase
from base.errors import BadInput
from base.text import rfc3339
from cli.failures import UNREADABLE, CommandFailure
from fleet.coordinator_settings import CoordinatorSettings
from fleet.drain.drain_plan import DrainPlan, plan_drain
from fleet.drain.drain_view import read_pods
from fleet.gpu_pod import gpu_pod_of
from fleet.mig_node import DrainMode, MigNode, node_of
from fleet.policy.assigned_layouts import assigned
from fleet.policy.fleet_policy import parse_fleet_policy
from fleet.policy.fleet_policy_sync import KEY
from fleet.slot_gate import FleetView, drain_of
from fleet.slot_lease import is_slot, slot_of
from fleet.stages.node_change_facts import (
    AgentFacts,
    NodeChangeFacts,
    NodeEvent,
    PolicyFacts,
    UnreadFact,
)
from fleet.stages.stage import StageName
from fleet.status.coordinator_view import CoordinatorView, coordinator_view
from fleet.status.node_layout import node_layout
from forecast.agent_terms import is_part
from forecast.coordinator_terms import deployed_settings
from kube.api import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    EVENTS,
    LEASES,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    Api,
    ApiResource,
    Object,
)
from kube.api_errors import Forbidden, NotFound
from kube.lease import Lease
from kube.objects.node import Node
from kube.objects.typed_object import Metadata
from kube.present_objects import present_object, present_objects
from labelers.node_patch import last_writer

T = TypeVar("T")
_AGENTS: Final = ("agent", "agent-canary")


class ChangeFactsReader:
    """Reads the facts of one Node at a time. One thread."""

    def __init__(self, api: Api, namespace: str, *, wall: Callable[[], float] = time.time) -> None:
        """``namespace``: the coordinator's; ``wall``: Unix time."""
        self._api = api
        self._namespace = namespace
        self._wall = wall
        self._unread: list[UnreadFact] = []

    @property
    def now(self) -> float:
        """Unix time."""
        return self._wall()

    def read(self, name: str, *, change_alone: bool = False) -> NodeChangeFacts:
        """Read the facts of this Node; with ``change_alone`` the Node and the Leases alone: how far
        a change is, without who is in the way.

        Raises BadInput where there is no such Node, CommandFailure where it may not be read, and
        ApiError where the API server does not answer.
        """
        self._unread = []
        is_whole = not change_alone
        seen = self._node(name)
        metadata = Metadata.from_object(seen["metadata"])
        settings = self._settings() if is_whole else None
        known = settings or CoordinatorSettings()
        node = node_of(seen, known.gpu_resources)
        leases = self._list(StageName.SLOT, LEASES, namespace=self._namespace)
        coordinator = self._coordinator(leases)
        policy = self._policy(metadata) if is_whole else PolicyFacts()
        fields = {"spec.nodeName": name}
        pods = self._list(StageName.DRAINED, PODS, fields=fields) if is_whole else None
        others = self._others(node, known) if is_whole else ()
        desired_by, desired_at = _writer(seen) or ("", None)
        gpu_pods = (gpu_pod_of(pod, known.pod_terms) for pod in pods or ())
        view = FleetView(
            nodes={other.name: other for other in others} | {name: node},
            pods={name: tuple(pod for pod in gpu_pods if pod.counts)},
            slots=tuple(slot_of(lease) for lease in leases or () if is_slot(lease)),
            memory=coordinator.memory,
            is_paused=coordinator.is_paused,
            drains={} if policy.drain is None else {name: policy.drain},
        )
        facts = NodeChangeFacts(
            node=node,
            metadata=metadata,
            layout=node_layout(Node.from_object(seen)),
            desired_by=desired_by,
            desired_at=rfc3339.unix_seconds(desired_at),
            fleet=view,
            coordinator=coordinator,
            namespace=self._namespace,
            settings=known,
            has_settings=settings is not None,
            agent=self._agent(name, leases, pods or ()),
            policy=policy,
            events=tuple(self._events(node)) if is_whole else (),
        )
        plan = self._drain_plan(facts) if is_whole else None
        return replace(facts, drain_plan=plan, unread=tuple(self._unread))

    # parts

    def _node(self, name: str) -> Object:
        try:
            return self._api.get(NODES, name)
        except NotFound as error:
            raise BadInput(f"there is no node {name}") from error
        except Forbidden as error:
            raise CommandFailure(f"you may not get nodes: {error}", UNREADABLE) from error

    def _try(
        self, stage: StageName, verb: str, resource: ApiResource, read: Callable[[], T]
    ) -> T | None:
        """The answer; None where it is refused, which is noted for this stage."""
        try:
            return read()
        except (Forbidden, NotFound) as error:
            fact = UnreadFact(
                stage=stage,
                verb=verb,
                resource=".".join(filter(None, (resource.plural, resource.group))),
                why=str(error),
                is_forbidden=isinstance(error, Forbidden),
            )
            self._unread.append(fact)
            return None

    def _list(self, stage: StageName, resource: ApiResource, **more: Any) -> list[Object] | None:
        """All such objects; None where they may not be listed."""
        read = partial(present_objects, self._api, resource, **more)
        return self._try(stage, "list and watch", resource, lambda: list(read()))

    def _others(self, node: MigNode, known: CoordinatorSettings) -> Iterator[MigNode]:
        """Other nodes by which the coordinator decides: not available, or without a record.

        Those that wait as well are left out: a slot that is free is taken within seconds.
        """
        if node.request is None:
            return
        for seen in self._list(StageName.SLOT, NODES) or ():
            other = node_of(seen, known.gpu_resources)
            is_permitted = other.permit is not None and other.permit.phase is PermitPhase.PROCEED
            if other.away is not None or other.unschedulable or is_permitted:
                yield other

    def _settings(self) -> CoordinatorSettings | None:
        found = self._list(StageName.SLOT, DEPLOYMENTS, namespace=self._namespace)
        return None if found is None else deployed_settings(found)

    def _coordinator(self, leases: list[Object] | None) -> CoordinatorView:
        if leases is None:
            return CoordinatorView(problem="its Lease could not be read")
        by_name = {lease["metadata"]["name"]: lease for lease in leases}
        lease = by_name.get(names.COORDINATOR_LEASE)
        return CoordinatorView() if lease is None else coordinator_view(lease)

    def _policy(self, metadata: Metadata) -> PolicyFacts:
        """What the fleet policy has for the Node, and how its pods leave by it."""
        name, namespace = names.MIG_POLICY, self._namespace
        read = partial(present_object, self._api, CONFIG_MAPS, name, namespace=namespace)
        config_map = self._try(StageName.DESIRED, "get", CONFIG_MAPS, read)
        if config_map is None:
            return PolicyFacts()
        text = (config_map.get("data") or {}).get(KEY, "")
        try:
            policy = parse_fleet_policy(text, names.MIG_POLICY)
        except BadInput as error:
            return PolicyFacts(problem=str(error))
        kept = {key: text for key, text in metadata.annotations.items() if key != keys.MIG_LAYOUT}
        without = Metadata(name=metadata.name, labels=metadata.labels, annotations=kept)
        now, then = assigned(policy, metadata), assigned(policy, without)
        return PolicyFacts(assigned=now, if_removed=then, paused=policy.paused)

    def _agent(self, name: str, leases: list[Object] | None, pods: Iterable[Object]) -> AgentFacts:
        agents = (Metadata.from_object(pod["metadata"]) for pod in pods if is_part(pod, *_AGENTS))
        found = map(Lease.from_object, leases or ())
        specs = (lease.spec for lease in found if lease.metadata.name == names.agent_lease(name))
        pod = next((agent.full_name for agent in agents), "")
        return AgentFacts(pod=pod, lease=next(specs, None), is_known=leases is not None)

    def _events(self, node: MigNode) -> Iterator[NodeEvent]:
        """Events of agent and coordinator about the Node."""
        fields = {"regarding.name": node.name}
        namespace = names.EVENT_NAMESPACE
        events = self._list(StageName.CHANGED, EVENTS, namespace=namespace, fields=fields)
        for event in events or ():
            if (event.get("regarding") or {}).get("uid") not in (node.uid, None):
                continue
            series = event.get("series") or {}
            at = rfc3339.unix_seconds(series.get("lastObservedTime") or event.get("eventTime"))
            if at is not None and str(event.get("reason", "")).startswith("Mig"):
                note = str(event.get("note", ""))
                yield NodeEvent(reason=event["reason"], note=note, at=at)

    def _drain_plan(self, facts: NodeChangeFacts) -> DrainPlan | None:
        """Who would leave; None where no pods are to be evicted."""
        request, record = facts.node.request, facts.record
        if request is None or (record is not None and record.proceed_at):
            return None
        mode = drain_of(facts.fleet, facts.node, facts.settings) if record is None else record.drain
        if mode not in (DrainMode.EVICT, DrainMode.NODE):
            return None
        pods = [(pod.namespace, pod.name) for pod in facts.pods if pod.holds]
        terms, whole = facts.settings.evictions, mode == DrainMode.NODE

        def read() -> DrainPlan:
            seen = read_pods(self._api, pods)
            return plan_drain(*seen, request, terms, whole_node=whole, now=self.now)

        return self._try(StageName.DRAINED, "list and watch", POD_DISRUPTION_BUDGETS, read)


def _writer(seen: Object) -> tuple[str, str] | None:
    """Field manager of the desired layout, and the time of its newest write."""
    meta = seen["metadata"]
    if keys.MIG_LAYOUT in (meta.get("annotations") or {}):
        return last_writer(meta, KeyLocation.NODE_ANNOTATION, keys.MIG_LAYOUT)
    return last_writer(meta, KeyLocation.NODE_LABEL, keys.MIG_CONFIG)
