# SPDX-License-Identifier: Apache-2.0
"""A fleet in virtual time, and a person who asks ``gpuscape mig why`` about its nodes."""

from __future__ import annotations

from typing import Final

from api import names
from cli.mig.cluster.change_facts_reader import ChangeFactsReader
from fleet.rollout_settings import RolloutSettings
from fleet.stages.layout_stages import layout_stages
from fleet.stages.node_change_facts import NodeChangeFacts
from fleet.stages.stage import Stage, StageName, StageState
from kube import lease as leases
from kube.api import DEPLOYMENTS, LEASES, Object
from tests.fakes.api import FakeApi
from tests.fleet.simulated_fleet import Cluster

_LABELS: Final = {
    "app.kubernetes.io/name": "gpuscape",
    "app.kubernetes.io/component": "coordinator",
}


def settings_of(terms: RolloutSettings) -> dict[str, str]:
    """The coordinator's arguments by which it has these terms."""
    return {
        "slots": f"{terms.slots}",
        "canary": f"{terms.canary_seconds:.0f}s",
        "failures-in-row": f"{terms.failures_in_row}",
        "failures-in-all": f"{terms.failures_in_all}",
        "unavailable-limit": f"{terms.most_away}",
        "drain": terms.drain.value,
        "cordoned-nodes": f"{terms.most_cordoned}",
        "settle": f"{terms.settle_seconds:.0f}s",
        "hold-deadline": f"{terms.hold_seconds:.0f}s",
        "change-deadline": f"{terms.end_seconds:.0f}s",
        "register-deadline": f"{terms.register_seconds:.0f}s",
        "retry": f"{terms.retry_seconds:.0f}s",
        "device-plugins": "app=device-plugin",
    }


def deployment(terms: RolloutSettings) -> Object:
    """The coordinator's Deployment with these terms."""
    arguments = [f"--{name}={text}" for name, text in settings_of(terms).items()]
    container = {"name": "coordinator", "args": ["coordinator", *arguments]}
    return {
        "metadata": {"name": "gpuscape-coordinator", "labels": _LABELS},
        "spec": {"template": {"spec": {"containers": [container]}}},
    }


class AskedFleet(Cluster):
    """The cluster, and a person who asks."""

    def __init__(self, *, nodes: int, terms: RolloutSettings, seed: int = 0) -> None:
        super().__init__(nodes=nodes, terms=terms, seed=seed)
        self.server.serve(DEPLOYMENTS)
        self.server.create(DEPLOYMENTS, deployment(terms), names.NAMESPACE)
        self.person = FakeApi(self.server, manager="kubectl")
        self._beat_agents()

    def _beat_agents(self) -> None:
        for name in self.agents:
            body = leases.lease_object(
                names.agent_lease(name),
                holder="pod",
                duration_seconds=180,
                wall_time=self.wall(),
                annotations={},
            )
            renewed = {"spec": {"renewTime": body["spec"]["renewTime"]}}
            try:
                self.server.create(LEASES, body, names.NAMESPACE)
            except Exception:
                self.server.patch(LEASES, names.agent_lease(name), renewed, names.NAMESPACE)

    def facts(self, node: str = "n0") -> NodeChangeFacts:
        """What the command reads now."""
        reader = ChangeFactsReader(self.person, names.NAMESPACE, wall=lambda: self.now)
        return reader.read(node)

    def stages(self, node: str = "n0") -> dict[StageName, Stage]:
        """The story of a node, as it is told now."""
        return {stage.name: stage for stage in layout_stages(self.facts(node), self.now)}

    def standing(self, node: str = "n0") -> Stage | None:
        """The stage at which the node stands."""
        return next((it for it in self.stages(node).values() if it.state is StageState.NOW), None)
