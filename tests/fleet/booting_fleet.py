# SPDX-License-Identifier: Apache-2.0
"""A cluster in virtual time some of whose changes need a boot of their node, and a model of kured.

kured has one lock for all nodes. It notes whether a node was cordoned, cordons it, has its pods
leave, boots it, and takes off a cordon that is its own. Source: kubereboot/kured 4687d88b,
internal/k8soperations/drain.go.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Final

from fleet.rollout_settings import RolloutSettings
from kube.api import Object
from tests.fleet.simulated_fleet import Cluster, SimulatedAgent

BEFORE_DRAIN: Final = "kured.dev/node-unschedulable-before-drain"
DRAIN_SECONDS: Final = 30.0
BACK_SECONDS: Final = 20.0
"""From a node's return to kured's next look at its own lock."""


@dataclass
class Kured:
    """The one that holds the lock, and what it does next."""

    period: float = 120.0
    boot_seconds: float = 400.0
    is_there: bool = True
    node: str = ""
    step: str = ""
    until: float = 0.0
    booted: list[str] = field(default_factory=list)
    other_reasons: set[str] = field(default_factory=set)
    """Nodes that it boots for somebody else's file."""


class BootingCluster(Cluster):
    """Nodes in ``need_boot`` set their mode with a boot."""

    def __init__(
        self,
        *,
        nodes: int,
        terms: RolloutSettings,
        need_boot: Collection[str] = (),
        deadline: float = 7200.0,
        seed: int = 0,
    ) -> None:
        self.need_boot = set(need_boot)
        self.deadline = deadline
        self.kured = Kured()
        self.files: dict[str, float] = {}
        """Nodes whose file asks for a boot, to when it was written."""
        self.has_booted: set[str] = set()
        """Nodes whose change goes on after its boot."""
        self.crossed: list[str] = []
        """Nodes that somebody uncordoned who had not cordoned them."""
        self.most_booting = 0
        super().__init__(nodes=nodes, terms=terms, seed=seed)

    def run_nodes(self) -> None:
        """Also kured."""
        self._to_run |= set(self.files)
        super().run_nodes()
        if self.kured.is_there:
            self._run_kured()

    def _run_agent(self, agent: SimulatedAgent, node: Object, on_node: list[Object]) -> None:
        """Where the change needs a boot, it waits for one in the middle."""
        name = agent.name
        if name in self.files:
            is_late = self.now - self.files[name] > self.deadline
            if is_late or agent.wish != agent.asked:
                del self.files[name]  # the mode that waits is taken back
                self._end(agent, "rolled-back")
            return
        is_due = bool(agent.changes_until) and self.now >= agent.changes_until
        if is_due and name in self.need_boot and name not in self.has_booted:
            agent.changes_until = 0.0
            self.files[name] = self.now
            self._publish(agent, "rebooting")
            return
        super()._run_agent(agent, node, on_node)

    def _end(self, agent: SimulatedAgent, end: str) -> None:
        super()._end(agent, end)
        self.has_booted.discard(agent.name)

    # kured

    def _run_kured(self) -> None:
        kured = self.kured
        if self.now < kured.until:
            return
        match kured.step:
            case "":
                asking = [*self.files, *sorted(kured.other_reasons)]
                kured.until = self.now + kured.period
                if asking:
                    self._drain(self.draw.choice(asking))
            case "drained":
                self._go_down(kured.node)
            case "down":
                self._come_back(kured.node)
            case "back":
                self._give_back(kured.node)

    def _next(self, step: str, seconds: float) -> None:
        self.kured.step, self.kured.until = step, self.now + seconds

    def _drain(self, name: str) -> None:
        self.kured.node = name
        was = "true" if self.is_cordoned(name) else "false"
        self.edit(name, {"metadata": {"annotations": {BEFORE_DRAIN: was}}})
        self.cordon(name)
        for pod in self.pods(name):
            if pod["metadata"]["namespace"] == "default":
                self.end_pod(pod["metadata"]["name"])
        self._next("drained", DRAIN_SECONDS)

    def _go_down(self, name: str) -> None:
        if not self.is_cordoned(name):
            self.crossed.append(name)
        self.agents[name].is_away = True
        self._ready(name, is_ready=False)
        self.kured.booted.append(name)
        self._next("down", self.kured.boot_seconds)

    def _come_back(self, name: str) -> None:
        agent = self.agents[name]
        agent.is_away = False
        self._ready(name, is_ready=True)
        self.kured.other_reasons.discard(name)
        if self.files.pop(name, None) is not None:  # the actuator goes on with the profiles
            self.has_booted.add(name)
            agent.changes_until = self.now + agent.change_seconds
            self._publish(agent, "changing")
        self._next("back", BACK_SECONDS)

    def _give_back(self, name: str) -> None:
        was = self.notes(name).get(BEFORE_DRAIN)
        patch: dict[str, Any] = {"metadata": {"annotations": {BEFORE_DRAIN: None}}}
        if was == "false":
            patch["spec"] = {"unschedulable": None}
        self.edit(name, patch)
        self._next("", self.kured.period)

    def _ready(self, name: str, *, is_ready: bool) -> None:
        status = "True" if is_ready else "Unknown"
        self._kubelet(name, {"conditions": [{"type": "Ready", "status": status}]})
