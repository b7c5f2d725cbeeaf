# SPDX-License-Identifier: Apache-2.0
"""In rollouts drawn by a seed, ``gpuscape mig why`` tells of each node what is true at the time."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

from tests.fleet.random_fleet import RandomFleet, RandomTerms
from tests.fleet.stages.asked_fleet import beat_agents, deploy_coordinator, story_of
from tests.fleet.stages.story_judge import StoryJudge

NODES, ASKED = 10, 3
QUIET = RandomTerms(nodes=NODES, storm=False, blocked=False, failing=False)
FAILING = RandomTerms(nodes=NODES, storm=False)
STORM = RandomTerms(nodes=NODES)


class PunctualDraw(random.Random):
    """Draws by which no watch lags: then the leader knows what a reading at that moment shows."""

    def random(self) -> float:
        """Never so much that a watch is passed over."""
        return super().random() * 0.79


def told(seed: int, how: RandomTerms, *, steps: int) -> Counter[str]:
    """Ask about some nodes at each moment; what there was to judge."""
    fleet = RandomFleet(seed, how)
    fleet.draw = PunctualDraw(seed)
    deploy_coordinator(fleet)
    judge = StoryJudge(fleet)
    for number in range(steps):
        fleet.step()
        beat_agents(fleet)
        judge.watch()
        for offset in range(ASKED):
            name = f"n{(number * ASKED + offset) % NODES}"
            judge.check(name, story_of(fleet, name))
    return judge.seen


def test_what_is_told_of_a_node_is_true_at_every_moment() -> None:
    seen = told(0, QUIET, steps=80) + told(8, FAILING, steps=140) + told(2, FAILING, steps=140)
    for situation in (
        *("changing", "stuck", "cordoned", "given back", "done"),
        *("waits: not-idle", "waits: slot", "waits: canary", "waits: cordoned", "waits: retry"),
        *("time of slot", "time of cordoned", "time of drained"),
    ):
        assert seen[situation] > 0, (situation, seen)


def test_it_is_true_also_where_coordinators_are_killed_and_calls_fail() -> None:
    seen = told(6, replace(STORM, slots=2), steps=100)
    assert seen["changing"] > 0, seen
