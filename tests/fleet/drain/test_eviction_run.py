# SPDX-License-Identifier: Apache-2.0
"""Evictions of one plan in virtual time: all pods are gone within the deadline, or a reason is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fleet.drain.drain_plan import DrainTerms
from fleet.drain.drain_pod import drain_pod
from fleet.drain.eviction_run import EvictionRun, RunState
from kube.api import POD_DISRUPTION_BUDGETS, PODS
from kube.api_errors import (
    AdmissionRefused,
    ApiError,
    Busy,
    Forbidden,
    NamespaceTerminating,
    SeveralBudgets,
    Unreachable,
)
from tests.fakes.api import FakeApi
from tests.fleet.drain.drain_objects import PLACE, budget, pod, store

TERMS = DrainTerms()


class Scene:
    """Pods on a node, their evictions, and a clock."""

    def __init__(self, *names: str, grace: int = 30) -> None:
        self.api = FakeApi(manager="gpuscape-coordinator")
        self.api.server.add_namespace(PLACE)
        spec = {"terminationGracePeriodSeconds": grace}
        store(self.api, PODS, *(pod(name, spec=spec) for name in names))
        self.now = 1000.0
        self.run = self.anew()

    def anew(self) -> EvictionRun:
        """A run of all pods, as after a restart: the deadline counts from the first one."""
        pods = [drain_pod(it, {}) for it in self.api.server.objects(PODS)]
        return EvictionRun(
            self.api, pods, TERMS, started_at=1000.0, uniform=lambda _low, high: high / 2
        )

    def present(self) -> dict[tuple[str, str], str]:
        found = [it["metadata"] for it in self.api.server.objects(PODS)]
        return {(it["namespace"], it["name"]): it["uid"] for it in found}

    def tick(self) -> RunState:
        return self.run.tick(self.now, self.present())

    def end_pods(self) -> None:
        """What kubelets do when containers have ended."""
        for it in self.api.server.objects(PODS):
            if "deletionTimestamp" in it["metadata"]:
                self.api.server.delete(PODS, it["metadata"]["name"], PLACE)

    def play(
        self, most_seconds: float = 2000.0, each: Callable[[], None] = lambda: None
    ) -> RunState:
        """Tick when there is something to do, or a second later, until it has ended."""
        end = self.now + most_seconds
        while (state := self.tick()) is RunState.LEAVING and self.now < end:
            each()
            self.now += min(max(self.run.wait_seconds(self.now), 0.01), 1.0)
        return state


def test_all_leave_each_asked_once() -> None:
    it = Scene("a", "b", "c")

    assert it.play(each=it.end_pods) is RunState.GONE
    assert it.api.evictions() == [(PLACE, "a"), (PLACE, "b"), (PLACE, "c")]
    assert it.tick() is RunState.GONE


def test_one_tick_asks_for_one_eviction() -> None:
    it = Scene("a", "b")

    assert it.tick() is RunState.LEAVING
    assert it.api.evictions() == [(PLACE, "a")]
    assert it.run.wait_seconds(it.now) == 0.0


def test_a_pod_that_ignores_its_end_is_waited_for_until_the_deadline() -> None:
    it = Scene("a")

    assert it.play() is RunState.LATE
    assert 1900.0 <= it.now < 1902.0
    assert it.api.evictions() == [(PLACE, "a")]


def test_another_pod_under_the_name_is_another_pod() -> None:
    it = Scene("a", grace=0)
    it.tick()
    store(it.api, PODS, pod("a"))

    assert it.tick() is RunState.GONE
    assert len(it.api.server.objects(PODS)) == 1


def test_a_budget_that_refuses_is_asked_again_after_a_while_with_jitter() -> None:
    it = Scene("a")
    store(it.api, POD_DISRUPTION_BUDGETS, budget(0))

    assert it.play(60.0) is RunState.LEAVING
    assert 7 <= len(it.api.evictions()) <= 9  # each 5 s and a half of 5 s
    (blocker,) = it.run.blockers.values()
    assert (blocker.kind.value, blocker.name) == ("disruption-budget", f"{PLACE}/a")
    status = {"status": {"disruptionsAllowed": 1}}
    it.api.server.patch(POD_DISRUPTION_BUDGETS, "keep", status, PLACE, status=True)

    assert it.play(each=it.end_pods) is RunState.GONE
    assert it.run.blockers == {}


def test_a_pod_that_was_refused_and_goes_by_itself_is_no_blocker_any_more() -> None:
    it = Scene("a", "b")
    store(it.api, POD_DISRUPTION_BUDGETS, budget(0))
    it.play(10.0)
    assert len(it.run.blockers) == 2

    it.api.server.delete(PODS, "a", PLACE)
    it.tick()

    assert [blocker.name for blocker in it.run.blockers.values()] == [f"{PLACE}/b"]


def test_a_budget_that_never_allows_ends_at_the_deadline() -> None:
    it = Scene("a")
    store(it.api, POD_DISRUPTION_BUDGETS, budget(0))

    assert it.play() is RunState.LATE
    assert list(it.run.blockers)


def test_the_servers_wish_to_be_left_alone_counts() -> None:
    it = Scene("a")
    it.api.fail("evict", Busy("too many", retry_after_seconds=60.0))
    it.tick()

    assert it.run.wait_seconds(it.now) == 60.0


@pytest.mark.parametrize(
    "error", [Busy("too many"), Unreachable("reset"), NamespaceTerminating("it ends")]
)
def test_what_passes_is_tried_again(error: ApiError) -> None:
    it = Scene("a")
    it.api.fail("evict", error, times=3)

    assert it.play(each=it.end_pods) is RunState.GONE
    assert len(it.api.evictions()) == 4


def test_an_eviction_whose_answer_is_lost_is_asked_for_again() -> None:
    it = Scene("a", grace=0)
    it.api.lose_reply("evict")

    assert it.play() is RunState.GONE
    assert len(it.api.evictions()) == 1


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (SeveralBudgets("two"), "several-disruption-budgets"),
        (Forbidden("not yours"), "refused"),
        (AdmissionRefused("no", policy="p"), "refused"),
    ],
)
def test_what_does_not_pass_ends_the_run(error: ApiError, kind: str) -> None:
    it = Scene("a", "b")
    it.api.fail("evict", error)

    assert it.play() is RunState.REFUSED
    assert [blocker.kind.value for blocker in it.run.blockers.values()] == [kind]
    assert it.api.evictions() == [(PLACE, "a")]


@pytest.mark.parametrize("ticks", range(5))
def test_a_coordinator_killed_at_any_tick_is_followed_by_one_that_ends_it(ticks: int) -> None:
    it = Scene("a", "b", "c")
    for _ in range(ticks):
        it.tick()
    it.run = it.anew()

    assert it.play(each=it.end_pods) is RunState.GONE
    assert it.api.server.objects(PODS) == []


def test_a_second_run_has_no_more_time_than_the_first() -> None:
    it = Scene("a")
    it.play(800.0)
    it.run = it.anew()

    assert it.play() is RunState.LATE
    assert it.now < 1902.0
