# SPDX-License-Identifier: Apache-2.0
"""The coordinator killed, and the API server failing, at every call; people and clouds in between.

Whatever happens: the rules that ``violations`` checks hold in every version of every object, all
nodes end in the layout that is asked for, and nothing of ours is left.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from api import keys, names
from fleet.coordinator import Coordinator
from fleet.fleet_cache import FleetCache
from fleet.leadership import Leadership
from fleet.rollout_memory import RolloutMemory
from fleet.rollout_settings import RolloutSettings
from kube.api import LEASES, NODES
from kube.api_errors import ApiError, Busy, Conflict, Unreachable
from tests.fakes.api import FakeApi
from tests.fleet.simulated_fleet import START, Cluster, Killed, show, violations
from tests.fleet.simulated_fleet import TERMS as SIMULATED_PODS
from tests.fleet.test_rollouts import all_applied, assert_clean, is_at_rest

TERMS = RolloutSettings(slots=1, canary_seconds=10.0, retry_seconds=10.0, settle_seconds=3.0)
BOUND_SECONDS = 900
"""A new leader waits for 30 s, an attempt that is undone costs 120 s and more."""
GUARDS = {names.SCALE_DOWN_GUARDS[0]: "false"}
DEPLOY = {"nvidia.com/gpu.deploy.device-plugin": "true"}
_EVERY = 6
"""Of all calls one in so many is interrupted in a short run."""


def rollout(
    on_call: Callable[[str, bool], None], *, seed: int = 1, drains: bool = False
) -> Cluster:
    """Two nodes, of which one has pods and a guard of its own; until all is done.

    ``drains``: a pod of that node is evicted, and a part of the GPU operator is paused there.
    """
    cluster = Cluster(nodes=2, terms=TERMS, seed=seed)
    cluster.bind_pod("n1", "other", blocking=False)
    cluster.edit("n1", {"metadata": {"annotations": GUARDS}})
    if drains:
        cluster.bind_pod("n1", "one", blocking=True, owner="ReplicaSet")
        cluster.annotate("n1", drain="evict")
        cluster.edit("n1", {"metadata": {"labels": DEPLOY}})
        cluster.agents["n1"].modes = True
    cluster.on_call = on_call
    cluster.wish("sevenths")
    cluster.pass_until(lambda: is_at_rest(cluster, "sevenths"), within=BOUND_SECONDS)
    return cluster


def check(cluster: Cluster, *, drains: bool = False) -> None:
    """Nothing is left, and nothing was done against the rules."""
    if drains:
        assert DEPLOY.items() <= cluster.node("n1")["metadata"]["labels"].items()
        assert "one" in cluster.evicted
    assert GUARDS.items() <= cluster.notes("n1").items()
    cluster.edit("n1", {"metadata": {"annotations": dict.fromkeys(GUARDS)}})
    assert_clean(cluster, pods={"one"} if drains else ())


class Interruption:
    """Raises ``failure`` at one call, counted from 0, before it is made or after."""

    def __init__(self, at: int, failure: BaseException | None, *, after: bool) -> None:
        self._at, self._failure, self._after = at, failure, after
        self.calls = 0

    def __call__(self, _verb: str, done: bool) -> None:
        """Take one half of a call."""
        if done is self._after:
            self.calls += 1
            if self.calls == self._at + 1 and self._failure is not None:
                raise self._failure


def calls(*, drains: bool = False) -> int:
    """How many calls a rollout makes that nothing interrupts."""
    count = Interruption(0, None, after=False)
    check(rollout(count, drains=drains), drains=drains)
    return count.calls


FAILURES: dict[str, Callable[[], BaseException]] = {
    "killed": Killed,
    "conflict": lambda: Conflict("409"),
    "busy": lambda: Busy("429", retry_after_seconds=1),
    "broken": lambda: Busy("500"),
    "unreachable": lambda: Unreachable("connection reset"),
}


def interrupted(every: int, *, drains: bool) -> int:
    """Run all interruptions, or one in ``every``; how many there are."""
    runs = 0
    for number in range(calls(drains=drains)):
        for place, (name, failure) in enumerate(FAILURES.items()):
            for after in (False, True):
                if after and name not in ("killed", "unreachable"):
                    continue
                runs += 1
                if (number + place + after) % every == 0:
                    interruption = Interruption(number, failure(), after=after)
                    check(rollout(interruption, drains=drains), drains=drains)
    return runs


@pytest.mark.parametrize("drains", [False, True])
def test_the_coordinator_is_killed_or_its_calls_fail_at_any_place(drains: bool) -> None:
    assert interrupted(_EVERY * 3, drains=drains) > 100


@pytest.mark.long
@pytest.mark.parametrize("drains", [False, True])
def test_the_coordinator_is_killed_or_its_calls_fail_at_every_place(drains: bool) -> None:
    assert interrupted(1, drains=drains) > 100


def test_a_held_change_is_parked_once_wherever_the_coordinator_is_killed() -> None:
    for number in range(0, calls(), 3):
        for after in (False, True):
            interruption = Interruption(number, Killed(), after=after)
            cluster = Cluster(nodes=1, terms=TERMS, seed=number)
            cluster.on_call = interruption
            cluster.agents["n0"].ends = ["stuck"]
            cluster.wish("sevenths")
            cluster.pass_until(partial(is_at_rest, cluster, "sevenths"), within=BOUND_SECONDS)
            assert_clean(cluster)


def test_a_permit_that_a_person_deletes_while_the_coordinator_is_dead_leaves_nothing() -> None:
    cluster = Cluster(nodes=1, terms=TERMS)

    def kill(verb: str, done: bool) -> None:
        if verb == "patch" and done and keys.MIG_PERMIT in cluster.notes("n0"):
            cluster.on_call = lambda _verb, _done: None
            cluster.edit("n0", {"metadata": {"annotations": {keys.MIG_PERMIT: None}}})
            raise Killed

    cluster.on_call = kill
    cluster.wish("sevenths")
    cluster.pass_time(120)
    assert cluster.starts == 2
    assert_clean(cluster)
    assert not cluster.open_leases()


def test_a_cordon_that_comes_between_our_read_and_our_write_is_that_persons() -> None:
    cluster = Cluster(nodes=1, terms=TERMS)

    def cordon(verb: str, done: bool) -> None:
        if verb == "get" and done and cluster.open_leases():
            cluster.on_call = lambda _verb, _done: None
            cluster.cordon("n0")

    cluster.on_call = cordon
    cluster.wish("sevenths")
    cluster.pass_time(300)
    assert cluster.is_cordoned("n0")
    assert keys.MIG_PERMIT not in cluster.notes("n0")
    assert cluster.agents["n0"].layout == "whole"
    assert_clean(cluster, "n0")


def test_a_record_that_a_person_damages_keeps_no_slot() -> None:
    cluster = Cluster(nodes=1, terms=TERMS)
    cluster.wish("sevenths")
    cluster.pass_until(lambda: cluster.is_cordoned("n0"), within=60)
    (lease,) = cluster.open_leases()
    damaged = {"metadata": {"annotations": {keys.MIG_ROLLBACK_RECORD: "{"}}}
    cluster.people.patch(LEASES, lease["metadata"]["name"], damaged, namespace=names.NAMESPACE)
    cluster.pass_until(lambda: all_applied(cluster, "sevenths"), within=600)
    cluster.pass_until(lambda: not cluster.open_leases(), within=60)
    assert keys.MIG_PERMIT not in cluster.notes("n0")
    assert not cluster.is_cordoned("n0")


def test_a_go_that_a_person_deletes_before_its_agent_saw_it_is_undone_in_the_end() -> None:
    cluster = Cluster(nodes=1, terms=replace(TERMS, end_seconds=100, called_off_seconds=60))
    cluster.wish("sevenths")
    cluster.pass_until(lambda: cluster.is_cordoned("n0"), within=60)
    cluster.agents["n0"].is_away = True
    cluster.pass_until(
        lambda: '"phase":"proceed"' in cluster.notes("n0")[keys.MIG_PERMIT], within=60
    )
    cluster.edit("n0", {"metadata": {"annotations": {keys.MIG_PERMIT: None}}})
    cluster.cordon("n0", on=False)
    cluster.pass_time(50)
    assert cluster.open_leases()
    cluster.agents["n0"].is_away = False
    cluster.pass_until(lambda: is_at_rest(cluster, "sevenths"), within=400)
    assert_clean(cluster)


class AlwaysLeads(Leadership):
    """Believes to lead, whoever else does, and remembers for itself."""

    @property
    def leads(self) -> bool:
        """It does."""
        return True

    def remember(self, memory: RolloutMemory) -> None:
        """Nowhere but here."""
        self.memory = memory


@pytest.mark.parametrize("seed", range(3))
def test_two_coordinators_that_both_believe_to_lead_keep_to_the_rules(seed: int) -> None:
    """The slots' Leases and the Nodes' versions hold them together, whatever each has seen."""
    draw = random.Random(seed)  # noqa: S311  # a schedule, no secret
    cluster = Cluster(nodes=6, terms=replace(TERMS, slots=2), seed=seed)
    pairs = []
    for _ in range(2):
        api = FakeApi(cluster.server, manager=names.COORDINATOR)
        api.after("patch", cluster.ours, resource=NODES)
        cache = FleetCache(SIMULATED_PODS)
        of = Coordinator(
            api,
            cache,
            AlwaysLeads(api, identity="x"),
            terms=cluster.terms,
            reports=cluster.reports,
            wall=cluster.wall,
            uniform=draw.uniform,
        )
        pairs.append((cache, of))
    seen = [0, 0]
    cluster.wish("sevenths")
    while not is_at_rest(cluster, "sevenths"):
        assert cluster.now < START + 3 * BOUND_SECONDS, cluster.stuck()
        cluster.now += 2
        cluster.run_nodes()
        for _ in range(10):
            number = draw.randrange(2)
            cache, of = pairs[number]
            if draw.random() < 0.5 or not seen[number]:
                seen[number] = show(cluster.server, cache, seen[number])
            of.round()
    assert_clean(cluster)


class Storm:
    """Failures and kills at random, until it is over."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)  # noqa: S311  # a schedule, no secret
        self.is_over = False

    def __call__(self, _verb: str, done: bool) -> None:
        """Take one half of a call."""
        if self.is_over:
            return
        chance = self._draw.random()
        if chance < 0.02:
            raise Killed
        if chance < 0.06:
            failures: tuple[ApiError, ...] = (Unreachable("reset"), Busy("503"), Conflict("409"))
            raise failures[0] if done else self._draw.choice(failures)


def disturb(cluster: Cluster, draw: random.Random, bound: list[str], kept: set[str]) -> None:
    """People and schedulers do something."""
    name = draw.choice(sorted(cluster.agents))
    agent, notes = cluster.agents[name], cluster.notes(name)
    match draw.randrange(13):
        case 0 if keys.MIG_PERMIT not in notes and not cluster.is_cordoned(name):
            cluster.cordon(name)
            kept.add(name)
        case 1 if cluster.is_cordoned(name):
            cluster.cordon(name, on=False)
            kept.discard(name)
        case 2:
            cluster.wish(draw.choice(["whole", "sevenths", "halves"]), name)
        case 3 | 4 if not cluster.is_cordoned(name):
            bound.append(f"p{len(bound)}")
            owner = draw.choice(["", "ReplicaSet"])
            cluster.bind_pod(name, bound[-1], blocking=draw.random() < 0.5, owner=owner)
        case 5 if keys.MIG_PERMIT in notes:
            cluster.edit(name, {"metadata": {"annotations": {keys.MIG_PERMIT: None}}})
        case 6:
            agent.ends = [draw.choice(["rolled-back", "stuck", "refused", "applied"])]
        case 7:
            cluster.edit(name, {"metadata": {"annotations": {keys.MIG_REQUEST: "damaged"}}})
        case 8 if len(cluster.agents) > 3:
            cluster.delete_node(name)
            kept.discard(name)
        case 10:
            cluster.annotate(name, drain=draw.choice([None, "evict", "node"]))
        case 9:
            agent.is_away = not agent.is_away
        case 11:
            cluster.edit(name, {"metadata": {"annotations": {keys.MIG_STATUS: "damaged"}}})
        case _:
            for pod in cluster.pods(name):
                if pod["metadata"]["namespace"] == "default":
                    cluster.end_pod(pod["metadata"]["name"])


def storm(seed: int) -> None:
    """Six nodes in a storm of some minutes; then all is to come to rest."""
    draw = random.Random(seed)  # noqa: S311  # a schedule, no secret
    terms = RolloutSettings(
        slots=2,
        canary_seconds=10,
        retry_seconds=5,
        called_off_seconds=60,
        settle_seconds=3,
        end_seconds=120,
        hold_seconds=40,
        register_seconds=20,
        drain_seconds=60,
        failures_in_row=100,
        failures_in_all=1000,
    )
    cluster = Cluster(nodes=6, terms=terms, seed=seed)
    cluster.on_call = weather = Storm(seed)
    bound: list[str] = []
    kept: set[str] = set()
    for _ in range(80):
        disturb(cluster, draw, bound, kept)
        cluster.pass_time(6, step=3)
        assert list(violations(cluster, bound)) == []
    weather.is_over = True
    for agent in list(cluster.agents.values()):
        agent.is_away, agent.ends = False, []
        cluster.wish("sevenths", agent.name)
        for pod in cluster.pods(agent.name):
            if pod["metadata"]["namespace"] == "default":
                cluster.end_pod(pod["metadata"]["name"])
    for name in kept & cluster.agents.keys():
        assert cluster.is_cordoned(name), f"{name} was cordoned by people"
        cluster.cordon(name, on=False)
    cluster.pass_until(lambda: is_at_rest(cluster, "sevenths"), within=3600)
    assert_clean(cluster, pods=bound)


@pytest.mark.parametrize("seed", range(3))
def test_whatever_people_do_in_between_all_comes_to_rest(seed: int) -> None:
    storm(seed)


@pytest.mark.long
def test_whatever_people_do_in_between_all_comes_to_rest_in_many_runs() -> None:
    for seed in range(500):
        storm(seed)
