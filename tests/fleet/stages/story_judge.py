# SPDX-License-Identifier: Apache-2.0
"""Judges stories of nodes by what is true in the simulation, and by what the coordinator decided.

The stories come from one reading of the API server. The judge reads none of that: it knows what
each simulated agent does, which pods are on which GPUs, what the leader's last decision was, and
when each thing happened first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from api import keys
from fleet.slot_gate import WaitReason
from fleet.slot_lease import slot_of
from fleet.stages.stage import Stage, StageBlockerKind, StageName, StageState
from tests.fleet.random_fleet import RandomFleet
from tests.fleet.stages.asked_fleet import standing_in

_ORDER: Final = list(StageName)
_BEHIND_THE_CORDON: Final = {StageName.DRAINED, StageName.PAUSED}


class StoryJudge:
    """Watches one fleet, moment after moment. ``seen`` counts what it has had to judge."""

    def __init__(self, fleet: RandomFleet) -> None:
        self.fleet = fleet
        self.seen: Counter[str] = Counter()
        self._taken: dict[tuple[str, str], float] = {}
        self._cordoned: dict[tuple[str, str], float] = {}
        self._went: dict[tuple[str, str], float] = {}

    def watch(self) -> None:
        """Note since when what is there is there; an attempt that was undone counts no more."""
        fleet = self.fleet
        records = [slot_of(lease).record for lease in fleet.open_leases()]
        permits = {
            name: (agent.request, fleet.notes(name).get(keys.MIG_PERMIT, ""))
            for name, agent in fleet.agents.items()
        }
        self._keep(self._taken, {(it.node, it.request) for it in records if it is not None})
        for first, words in ((self._cordoned, '"phase"'), (self._went, '"phase":"proceed"')):
            there = {(name, of) for name, (of, text) in permits.items() if words in text}
            self._keep(first, there)

    def _keep(self, first: dict[tuple[str, str], float], there: set[tuple[str, str]]) -> None:
        for key in first.keys() - there:
            del first[key]
        for key in there:
            first.setdefault(key, self.fleet.now)

    def check(self, name: str, story: Mapping[StageName, Stage]) -> None:
        """Whether what is told of a node is true."""
        assert list(story) == _ORDER
        self._check_order(story)
        self._check_times(name, story)
        standing = standing_in(dict(story))
        self._check_standing(name, standing, story)

    def _check_order(self, story: Mapping[StageName, Stage]) -> None:
        states = [
            stage.state
            for stage in story.values()
            if stage.state not in (StageState.NOT_NEEDED, StageState.UNKNOWN)
        ]
        ranks = [[StageState.DONE, StageState.NOW, StageState.AHEAD].index(it) for it in states]
        assert ranks == sorted(ranks), states
        assert states.count(StageState.NOW) <= 1

    def _check_times(self, name: str, story: Mapping[StageName, Stage]) -> None:
        ends = [it.ended_at for it in story.values() if it.ended_at is not None]
        assert ends == sorted(ends)
        assert all(it.seconds is None or it.seconds >= 0 for it in story.values())
        key = name, self.fleet.agents[name].request
        is_open = any(slot_of(it).holder == name for it in self.fleet.open_leases())
        for stage, first in (
            (StageName.SLOT, self._taken),
            (StageName.CORDONED, self._cordoned),
            (StageName.DRAINED, self._went),
        ):
            told = story[stage].ended_at
            if is_open and told is not None and key in first:
                self.seen[f"time of {stage}"] += 1
                assert abs(told - first[key]) <= 2 * self.fleet.how.step, (stage, told, first[key])

    def _check_standing(
        self, name: str, standing: Stage | None, story: Mapping[StageName, Stage]
    ) -> None:
        fleet, agent = self.fleet, self.fleet.agents[name]
        records = {
            record.node: record
            for lease in fleet.open_leases()
            if (record := slot_of(lease).record) is not None
        }
        permit = fleet.notes(name).get(keys.MIG_PERMIT, "")
        last = agent.done[-1][1] if agent.done else ""
        stage = None if standing is None else standing.name
        if agent.changes_until:
            self.seen["changing"] += 1
            assert stage is StageName.CHANGED, stage
        elif agent.closed and last == "stuck" and agent.done[-1][0] == agent.request:
            self.seen["stuck"] += 1
            assert stage is StageName.CHANGED, stage
            assert standing is not None
            assert "stuck" in standing.text
        elif not agent.closed and '"phase":"cordoned"' in permit:
            self.seen["cordoned"] += 1
            assert stage in _BEHIND_THE_CORDON, stage
            assert story[StageName.CORDONED].state in (StageState.DONE, StageState.NOT_NEEDED)
            self._check_users(name, standing)
        elif agent.closed and name in records and last in ("applied", "rolled-back"):
            self.seen["given back"] += 1
            assert stage in (StageName.ALLOCATABLE, StageName.UNCORDONED), stage
            assert story[StageName.CHANGED].text == last
        elif agent.closed and name not in records and agent.layout == agent.wish:
            self.seen["done"] += 1
            assert stage is None, stage
        elif not agent.closed and name in fleet.waiting and name not in records:
            self._check_wait(name, fleet.waiting[name], standing)

    def _check_users(self, name: str, standing: Stage | None) -> None:
        """Pods that are in the way are named where the change waits for them."""
        assert standing is not None
        if standing.name is not StageName.DRAINED or "nobody is in the way" in standing.text:
            assert not self._holders(name), standing
            return
        named = {it.name for it in standing.blockers}
        budgets = {it.kind for it in standing.blockers} & {StageBlockerKind.BUDGET}
        if not budgets:
            assert self._holders(name) <= named, standing

    def _holders(self, name: str) -> set[str]:
        """Pods on GPUs that change, as they are in truth."""
        return {
            f"default/{pod.name}"
            for pod in self.fleet.of_pods.values()
            if pod.node == name and pod.affected and not pod.is_gone
        }

    def _check_wait(self, name: str, reason: WaitReason, standing: Stage | None) -> None:
        """The leader's reason is the one that is told."""
        self.seen[f"waits: {reason}"] += 1
        assert standing is not None
        assert standing.name is StageName.SLOT, (reason, standing)
        kinds = {it.kind for it in standing.blockers}
        named = {it.name for it in standing.blockers}
        match reason:
            case WaitReason.NOT_IDLE:
                assert self._holders(name) <= named, standing
                assert named <= {f"default/{pod.name}" for pod in self.fleet.of_pods.values()}
            case WaitReason.SLOT:
                slots = [slot_of(it) for it in self.fleet.open_leases()]
                assert named == {it.holder for it in slots if not it.is_parked}, standing
                assert standing.command.startswith("gpuscape mig why ")
            case WaitReason.CORDONED:
                assert kinds == {StageBlockerKind.CORDON}, standing
                assert standing.command == f"kubectl uncordon {name}"
            case WaitReason.BREAKER:
                assert kinds == {StageBlockerKind.ROLLOUT}, standing
                assert "--after-failures" in standing.command
            case WaitReason.CANARY:
                assert kinds <= {StageBlockerKind.ROLLOUT, StageBlockerKind.NODE}
                assert kinds
            case WaitReason.RETRY:
                pass  # the leader's memory alone has it; what is told then keeps the node too
            case _:
                assert kinds
