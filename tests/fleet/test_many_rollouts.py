# SPDX-License-Identifier: Apache-2.0
"""A thousand rollouts, many at a time, on nodes that fail and have pods: no node is stuck.

Wishes come every minute, for a few nodes or all, also for nodes whose last wish is not there yet.
When all has come to rest each node has its layout, or waits for a reason that is true, or its
change failed or is held; and nothing else of the coordinator's is anywhere.
"""

from __future__ import annotations

import pytest

from api import keys, mig_status_annotation
from fleet.slot_gate import WaitReason
from tests.fleet.random_fleet import PodKind, RandomFleet, RandomTerms


class BusyFleet(RandomFleet):
    """A fleet with rollouts all the time."""

    def __init__(self, seed: int, nodes: int, slots: int, *, modes: bool = False) -> None:
        super().__init__(seed, RandomTerms(nodes=nodes, slots=slots, step=4.0, modes=modes))
        self.begun = 0

    def begin(self) -> None:
        """A person asks some nodes for another layout, and may let what is stopped go on."""
        draw, names = self.luck, sorted(self.agents)
        many = len(names) if draw.random() < 0.02 else draw.randint(1, max(2, len(names) // 8))
        wish = f"{draw.choice(('sevenths', 'halves', 'whole'))}/{self.begun}"
        self.begun += 1
        for name in draw.sample(names, many):
            agent = self.agents[name]
            agent.retry_at = self.now
            self.wish(wish, agent.name)
            if draw.random() < 0.05:
                agent.ends = [draw.choice(("rolled-back", "rolled-back", "stuck", "refused"))]
        if draw.random() < 0.1:
            self.resume()
        for name in draw.sample(names, max(1, len(names) // 20)):
            if draw.random() < 0.3 and not self.is_cordoned(name):
                kind = draw.choice((PodKind.ENDS, PodKind.ENDS, PodKind.LEAVES))
                self._place(name, affected=draw.random() < 0.5, kind=kind)

    @property
    def mode_changes(self) -> int:
        """Permits to proceed for changes that switch modes."""
        return sum(self.judge.permits[name] for name in self.known.deploy)

    def forget(self) -> None:
        """Drop what nobody asks for any more: the log of hours."""
        seen = [self.nodes_seen, *(it.seen_version for it in self.replicas if it.seen_version)]
        self.server.drop_history(min(seen))
        for api in self.apis:
            api.calls.clear()
        for name, pod in list(self.of_pods.items()):
            if pod.is_gone:
                del self.of_pods[name]

    def unexplained(self) -> list[str]:
        """Nodes without their layout, where what is said of them is not so."""
        return [
            f"{name}: {why}" for name in self.agents if (why := self._unexplained(name)) is not None
        ]

    def _unexplained(self, name: str) -> str | None:
        agent, notes = self.agents[name], self.notes(name)
        if agent.layout == agent.wish and agent.closed:
            return "has a permit" if keys.MIG_PERMIT in notes else None
        status = mig_status_annotation.decode(notes[keys.MIG_STATUS])
        assert status is not None
        if agent.closed and agent.retry_at > self.now:
            return None if status.outcome in ("rolled-back", "refused", "stuck") else f"{status}"
        if keys.MIG_PERMIT in notes:
            return f"has the permit {notes[keys.MIG_PERMIT]} ({status.phase}, {status.outcome})"
        match self.waiting.get(name):
            case WaitReason.NOT_IDLE | WaitReason.RETRY | WaitReason.CORDONED:
                return None if self.is_blocked(name) else f"waits, and nothing blocks it: {status}"
            case WaitReason.BREAKER:
                return None if self._may_be_stopped(agent.wish) else "its rollout has not failed"
            case other:
                return f"{other}"


def many(seed: int, *, nodes: int, slots: int, rollouts: int, modes: bool = False) -> BusyFleet:
    """All of it, with both ends checked. ``modes``: half of the nodes switch MIG modes."""
    fleet = BusyFleet(seed, nodes, slots, modes=modes)
    next_at = fleet.now
    while fleet.begun < rollouts:
        if fleet.now >= next_at:
            fleet.begin()
            next_at = fleet.now + fleet.luck.expovariate(1 / 60)
            fleet.forget()
        fleet.step()
        assert fleet.judge.faults == [], f"seed {seed}, rollout {fleet.begun}"
    fleet.is_calm = True
    until = fleet.now + 2 * 3600
    while why := fleet.unexplained():
        assert fleet.now < until, f"seed {seed}: {why}\n{fleet.stuck()}"
        for _ in range(10):
            fleet.step()
    fleet.release()
    until = fleet.now + 3600
    while fleet.open_leases() or any(it.layout != it.wish for it in fleet.agents.values()):
        assert fleet.now < until, f"seed {seed}\n{fleet.stuck()}"
        fleet.step()
    for _ in range(5):
        fleet.step()
    assert fleet.left_behind() == []
    assert fleet.judge.faults == []
    return fleet


def test_no_node_is_stuck_after_many_rollouts() -> None:
    fleet = many(3, nodes=20, slots=3, rollouts=20)
    assert fleet.judge.permitted > 20


def test_no_node_is_stuck_where_half_of_the_changes_switch_modes() -> None:
    fleet = many(5, nodes=20, slots=3, rollouts=20, modes=True)
    assert fleet.judge.permitted > 20
    assert fleet.mode_changes > 5


@pytest.mark.long
def test_no_node_of_100_is_stuck_after_a_thousand_rollouts_with_modes() -> None:
    fleet = many(2, nodes=100, slots=10, rollouts=1000, modes=True)
    assert fleet.judge.permitted > 2500
    assert 0.4 < fleet.mode_changes / fleet.judge.permitted < 0.6


@pytest.mark.long
def test_no_node_of_200_is_stuck_after_a_thousand_rollouts() -> None:
    fleet = many(1, nodes=200, slots=10, rollouts=1000)
    assert fleet.judge.permitted > 5000
