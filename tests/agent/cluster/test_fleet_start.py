# SPDX-License-Identifier: Apache-2.0
"""Agents that start together: few requests a second in a large fleet, labels soon in a small one.

In virtual time; the budget is 250 requests a second, dry runs left out, as in docs/benchmarks.md.
"""

from __future__ import annotations

from collections import Counter

import pytest

from kube.api_errors import ApiError, Busy, Forbidden, Unreachable
from tests.agent.cluster.starting_fleet import ModelServer, StartingFleet, spread_over

BUDGET = 250
"""Requests in any second."""
TOGETHER_SECONDS = 30.0
SMALL_SECONDS = 15.0


@pytest.mark.parametrize("known", [False, True], ids=["new nodes", "labelled nodes"])
def test_five_thousand_agents_that_start_within_half_a_minute_stay_within_the_budget(
    known: bool,
) -> None:
    server = ModelServer(agents=5000)
    fleet = StartingFleet(server, spread_over(5000, TOGETHER_SECONDS), known=known)
    fleet.run(until=210.0)
    assert server.most(dry_runs=False) <= BUDGET
    assert server.most(dry_runs=True) <= 450
    assert fleet.slowest <= 131.0
    assert all(it.renewed is not None and it.renewed - it.started <= 131 for it in fleet.agents)
    asked = Counter(request.what for request in server.requests)
    assert asked["get daemonsets"] == asked["watch nodes"] == 5000


@pytest.mark.parametrize("agents", [2000, pytest.param(3000, marks=pytest.mark.long)])
def test_smaller_fleets_stay_within_the_budget_too_and_are_labelled_sooner(agents: int) -> None:
    server = ModelServer(agents=agents)
    fleet = StartingFleet(server, spread_over(agents, TOGETHER_SECONDS))
    fleet.run(until=TOGETHER_SECONDS + 90.0)
    assert server.most(dry_runs=False) <= BUDGET
    assert fleet.slowest <= 4.0 + 0.025 * agents + 4.0


@pytest.mark.parametrize("agents", [1, 3, 20, 100])
def test_a_small_cluster_has_its_labels_within_a_quarter_of_a_minute_of_each_start(
    agents: int,
) -> None:
    server = ModelServer(agents=agents)
    fleet = StartingFleet(server, [0.0] * agents)  # all in one instant
    fleet.run(until=30.0)
    assert fleet.slowest <= SMALL_SECONDS
    assert server.most(dry_runs=False) <= BUDGET


def test_a_daemonset_that_was_just_made_is_asked_again_until_its_nodes_are_counted() -> None:
    server = ModelServer(agents=3, counted_at=5.0)
    fleet = StartingFleet(server, [0.0, 0.5, 1.0])
    fleet.run(until=30.0)
    assert fleet.slowest <= SMALL_SECONDS
    assert Counter(it.what for it in server.requests)["get daemonsets"] <= 3 * 5


def test_one_agent_that_starts_again_in_a_large_cluster_opens_its_watch_and_renews_in_time() -> (
    None
):
    for number in range(40):  # draws of as many nodes
        server = ModelServer(agents=5000)
        fleet = StartingFleet(server, [float("inf")] * number + [0.0], known=True)
        fleet.run(until=140.0)
        watched = [it.at for it in server.requests if it.what == "watch nodes"]
        renewed = fleet.agents[-1].renewed
        assert len(watched) == 1
        assert watched[0] <= 95.0
        assert renewed is not None
        assert renewed <= 131.0


def test_five_hundred_agents_of_a_rolling_update_stay_far_below_the_budget() -> None:
    server = ModelServer(agents=5000)
    fleet = StartingFleet(server, [0.0] * 500, known=True)
    fleet.run(until=180.0)
    assert server.most(dry_runs=False) <= BUDGET
    assert all(it.renewed is not None and it.renewed <= 131.0 for it in fleet.agents)


def test_a_slow_server_is_asked_no_more_and_a_small_cluster_has_its_labels_all_the_same() -> None:
    server = ModelServer(agents=20, answer_seconds=0.5)
    fleet = StartingFleet(server, [0.0] * 20)
    fleet.run(until=60.0)
    assert fleet.slowest <= SMALL_SECONDS
    assert len([it for it in server.requests if it.at < 30.0]) <= 20 * 9


def test_a_server_that_refuses_what_is_too_much_is_not_asked_in_a_hot_loop_and_all_get_labels() -> (
    None
):
    server = ModelServer(agents=300, most_per_second=20)
    fleet = StartingFleet(server, [0.0] * 300)  # in one instant, and far more than it takes
    fleet.run(until=900.0)
    assert fleet.slowest < 600.0
    last = max(it.labelled or 0.0 for it in fleet.agents)
    refused = sum(it.refused for it in server.requests if it.at <= last)
    assert refused <= 300 * 25


def test_agents_that_started_in_an_outage_do_not_all_come_back_at_once() -> None:
    def away(now: float, _what: str) -> ApiError | None:
        return Unreachable("refused") if now < 180.0 else None

    server = ModelServer(agents=500, error=away)
    fleet = StartingFleet(server, spread_over(500, 10.0))
    fleet.run(until=420.0)
    after = ModelServer(agents=0, requests=[it for it in server.requests if it.at >= 180.0])
    assert after.most(dry_runs=False) <= 100  # of 500 agents that want three each
    assert fleet.slowest < 300.0


def test_agents_whose_policies_could_not_be_tried_in_an_outage_are_not_back_together() -> None:
    """They had counted themselves in time, so that all began to try within seconds."""

    def away(now: float, _what: str) -> ApiError | None:
        return Unreachable("refused") if 4.5 < now < 180.0 else None

    server = ModelServer(agents=500, error=away)
    fleet = StartingFleet(server, [0.0] * 500)
    fleet.run(until=420.0)
    after = ModelServer(agents=0, requests=[it for it in server.requests if it.at >= 180.0])
    assert after.most(dry_runs=False, seconds=10.0) <= 45  # 80 without jitter
    assert after.most(dry_runs=True, seconds=10.0) <= 120  # 235 without
    assert fleet.slowest < 250.0


@pytest.mark.parametrize("error", [Forbidden("no role"), Busy("429", retry_after_seconds=1.0)])
def test_where_the_daemonset_cannot_be_read_the_cluster_counts_as_the_largest(
    error: ApiError,
) -> None:
    def refuses(_now: float, what: str) -> ApiError | None:
        return error if what == "get daemonsets" else None

    server = ModelServer(agents=1, error=refuses)
    fleet = StartingFleet(server, [0.0] * 200)
    fleet.run(until=300.0)
    late = sorted(it.labelled or 0.0 for it in fleet.agents)
    assert late[100] > 60.0
    assert late[-1] < 60.0 + 131.0
