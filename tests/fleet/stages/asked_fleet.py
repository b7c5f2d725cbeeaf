# SPDX-License-Identifier: Apache-2.0
"""Fleets in virtual time, and a person who asks ``gpuscape mig why`` about their nodes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from api import keys, names
from cli.mig.cluster.change_facts_reader import ChangeFactsReader
from fleet.rollout_settings import RolloutSettings
from fleet.stages.layout_stages import layout_stages
from fleet.stages.node_change_facts import NodeChangeFacts
from fleet.stages.stage import Stage, StageName, StageState
from kube.api import DEPLOYMENTS, EVENTS, LEASES, NODES, Object
from kube.api_errors import NotFound
from kube.lease import micro_time
from tests.fakes.api import FakeApi
from tests.fleet.simulated_fleet import Cluster

_LABELS: Final = {
    "app.kubernetes.io/name": "gpuscape",
    "app.kubernetes.io/component": "coordinator",
}
AGENT_POD: Final = "gpuscape/agent-n0"


def deployment(terms: RolloutSettings) -> Object:
    """The coordinator's Deployment, with the arguments by which it has these terms."""
    settings = {
        "slots": terms.slots,
        "canary": f"{terms.canary_seconds:.0f}s",
        "failures-in-row": terms.failures_in_row,
        "failures-in-all": min(terms.failures_in_all, 1000),
        "unavailable-limit": terms.most_away,
        "drain": terms.drain.value,
        "cordoned-nodes": terms.most_cordoned,
        "settle": f"{terms.settle_seconds:.0f}s",
        "hold-deadline": f"{terms.hold_seconds:.0f}s",
        "change-deadline": f"{terms.end_seconds:.0f}s",
        "register-deadline": f"{terms.register_seconds:.0f}s",
        "retry": f"{terms.retry_seconds:.0f}s",
        "device-plugins": "app=device-plugin",
    }
    arguments = [f"--{name}={value}" for name, value in settings.items()]
    container = {"name": "coordinator", "args": ["coordinator", *arguments]}
    return {
        "metadata": {"name": "gpuscape-coordinator", "labels": _LABELS},
        "spec": {"template": {"spec": {"containers": [container]}}},
    }


def deploy_coordinator(cluster: Cluster) -> None:
    """Its Deployment stands in the cluster."""
    cluster.server.serve(DEPLOYMENTS)
    cluster.server.create(DEPLOYMENTS, deployment(cluster.terms), names.NAMESPACE)


def beat_agents(cluster: Cluster) -> None:
    """Each agent renews its Lease, unless it is away."""
    for name, agent in cluster.agents.items():
        if agent.is_away:
            continue
        lease = names.agent_lease(name)
        spec: dict[str, object] = {
            "renewTime": micro_time(cluster.wall()),
            "leaseDurationSeconds": agent.lease_seconds,
        }
        try:
            cluster.server.patch(LEASES, lease, {"spec": spec}, names.NAMESPACE)
        except NotFound:
            body = {"metadata": {"name": lease}, "spec": {**spec, "holderIdentity": "pod"}}
            cluster.server.create(LEASES, body, names.NAMESPACE)


def facts_of(cluster: Cluster, node: str, person: FakeApi | None = None) -> NodeChangeFacts:
    """What the command reads now; terms that no setting has are the fleet's own."""
    api = person or FakeApi(cluster.server, manager="kubectl")
    facts = ChangeFactsReader(api, names.NAMESPACE, wall=lambda: cluster.now).read(node)
    return replace(facts, settings=cluster.terms) if facts.has_settings else facts


def story_of(cluster: Cluster, node: str, person: FakeApi | None = None) -> dict[StageName, Stage]:
    """The story of a node as the command tells it now."""
    stages = layout_stages(facts_of(cluster, node, person), cluster.now)
    return {stage.name: stage for stage in stages}


def standing_in(story: dict[StageName, Stage]) -> Stage | None:
    """The stage at which the node stands."""
    (*now,) = (stage for stage in story.values() if stage.state is StageState.NOW)
    assert len(now) <= 1
    return now[0] if now else None


class WrittenEvents:
    """Writes the coordinator's Events into the API server."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._count = 0

    def record(self, regarding: Any, *, reason: str, note: str, **_: Any) -> None:
        """See :class:`kube.events.EventSink`."""
        self._count += 1
        body = {
            "metadata": {"name": f"e{self._count}-{self._cluster.starts}", "namespace": "default"},
            "eventTime": micro_time(self._cluster.wall()),
            "regarding": dict(regarding),
            "reason": reason,
            "note": note,
            "action": "ChangeMigLayout",
            "reportingController": names.COORDINATOR,
            "reportingInstance": "c",
            "type": "Normal",
        }
        self._cluster.server.create(EVENTS, body, "default")


class AskedFleet(Cluster):
    """A fleet whose agents obey the annotation alone, and whose coordinator writes its Events."""

    def __init__(self, *, nodes: int, terms: RolloutSettings, seed: int = 0) -> None:
        super().__init__(nodes=nodes, terms=terms, seed=seed)
        deploy_coordinator(self)
        beat_agents(self)
        self.person = FakeApi(self.server, manager="kubectl")

    def start_coordinator(self) -> None:
        """Start another one."""
        super().start_coordinator()
        self.reports._events = WrittenEvents(self)

    def run_nodes(self) -> None:
        """Agents see when no layout is desired any more: then the present one stays."""
        beat_agents(self)
        for name, agent in self.agents.items():
            if keys.MIG_LAYOUT not in self.notes(name) and not agent.changes_until:
                agent.wish = agent.layout
                self._to_run.add(name)
        super().run_nodes()

    def story(self, node: str = "n0") -> dict[StageName, Stage]:
        """The story of a node as it is told now."""
        return story_of(self, node, self.person)

    def standing(self, node: str = "n0") -> Stage | None:
        """The stage at which the node stands."""
        return standing_in(self.story(node))

    def away(self, node: str, *, ready: bool) -> None:
        """The kubelet's word on its Node."""
        status = "True" if ready else "False"
        conditions = {"conditions": [{"type": "Ready", "status": status}]}
        self.server.patch(NODES, node, {"status": conditions}, status=True)
