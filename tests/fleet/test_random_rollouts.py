# SPDX-License-Identifier: Apache-2.0
"""Rollouts drawn by a seed, judged by the log of all requests: see ``rollout_judge``.

Whatever is drawn, each node that nothing blocks has its layout within the bound that docs/mig.md
states; and once nothing is in the way any more, all nodes have theirs, and nothing is left.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from tests.fleet.random_fleet import RandomFleet, RandomTerms
from tests.fleet.simulated_fleet import START

PARTS = 10
LAST_SECONDS = 3000.0
"""For what was left when everything was out of the way."""


@dataclass(slots=True)
class Figures:
    """What happened in runs."""

    runs: int = 0
    changes: int = 0
    evictions: int = 0
    kills: int = 0
    failed_calls: int = 0
    blocked: int = 0
    """Nodes that had to wait until something was out of the way."""
    most: int = 0
    hours: float = 0.0
    longest: float = 0.0
    """Of runs, the largest part of the page's bound that one took."""

    def add(self, fleet: RandomFleet, blocked: int, part: float) -> None:
        """Count one run, whose nodes that nothing blocked took this part of the bound."""
        self.runs += 1
        self.changes += fleet.judge.permitted
        self.evictions += len(fleet.judge.evicted)
        self.kills += fleet.kills
        self.failed_calls += fleet.failed_calls
        self.blocked += blocked
        self.most = max(self.most, fleet.judge.most_in_change)
        self.hours += (fleet.now - START) / 3600
        self.longest = max(self.longest, part)

    def join(self, other: Figures) -> None:
        """Add up those of other runs."""
        self.runs += other.runs
        self.changes += other.changes
        self.evictions += other.evictions
        self.kills += other.kills
        self.failed_calls += other.failed_calls
        self.blocked += other.blocked
        self.hours += other.hours
        self.most = max(self.most, other.most)
        self.longest = max(self.longest, other.longest)


def run(seed: int, how: RandomTerms, figures: Figures) -> None:
    """One fleet, until all is over."""
    fleet = RandomFleet(seed, how)
    while names := fleet.unblocked():
        if fleet.now > fleet.bound_at():
            pytest.fail(f"seed {seed}: {names} at {fleet.now - START:.0f} s\n{fleet.stuck()}")
        fleet.step()
        assert fleet.judge.faults == [], f"seed {seed}"
    part = (fleet.now - START) / (fleet.bound_at() - START)
    for _ in range(100 if fleet.are_stopped else 0):  # and what is stopped stays so
        fleet.step()
    left = [it.name for it in fleet.agents.values() if it.layout != it.wish]
    fleet.release()
    until = fleet.now + LAST_SECONDS
    while fleet.open_leases() or any(it.layout != it.wish for it in fleet.agents.values()):
        if fleet.now > until:
            pytest.fail(f"seed {seed}: never over\n{fleet.stuck()}")
        fleet.step()
        assert fleet.judge.faults == [], f"seed {seed}"
    for _ in range(10):
        fleet.step()
    assert fleet.judge.faults == [], f"seed {seed}"
    assert fleet.left_behind() == [], f"seed {seed}"
    figures.add(fleet, len(left), part)


STORM, FAILING = RandomTerms(), RandomTerms(storm=False)
QUIET = RandomTerms(storm=False, blocked=False, failing=False)


def test_no_rule_is_broken_whatever_is_drawn() -> None:
    figures = Figures()
    for seed in (0, 2, 6):
        run(seed, replace(STORM, nodes=16), figures)
    assert figures.changes >= 3 * 16
    assert min(figures.evictions, figures.kills, figures.failed_calls, figures.blocked) > 0


@pytest.mark.parametrize("seed", [2, 8])
def test_a_rollout_that_fails_too_often_stops(seed: int) -> None:
    run(seed, replace(FAILING, nodes=16), Figures())


def test_a_rollout_that_nothing_blocks_ends_within_the_bound_of_the_page() -> None:
    for seed in range(2):
        run(seed, replace(QUIET, nodes=16), Figures())


def fifty(part: int) -> Figures:
    """Fifty of the 500 runs: in one part with failures alone, in one with nothing of the kind."""
    figures = Figures()
    for seed in range(50 * part, 50 * (part + 1)):
        run(seed, terms_of(part), figures)
    return figures


def terms_of(part: int) -> RandomTerms:
    """What is drawn in a part."""
    return {0: FAILING, 1: QUIET}.get(part, STORM)


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
def test_no_rule_is_broken_in_500_runs_with_50_nodes(part: int) -> None:
    figures = fifty(part)
    assert figures.runs == 50
    assert figures.changes >= 50 * 50
    assert figures.evictions > 500
    assert figures.most == STORM.slots
