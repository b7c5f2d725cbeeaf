# SPDX-License-Identifier: Apache-2.0
"""Rollouts in virtual time in which nodes have to boot for their MIG mode, beside a kured."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from api import keys
from fleet.rollout_memory import rollout_id
from fleet.rollout_settings import RolloutSettings
from tests.conftest import SCALE
from tests.fleet.booting_fleet import BEFORE_DRAIN, BootingCluster
from tests.fleet.simulated_fleet import Killed
from tests.fleet.test_rollouts import all_applied, assert_clean, is_at_rest

QUICK = RolloutSettings(slots=2, canary_seconds=60.0, retry_seconds=10.0, most_away=0)


def slots_of(cluster: BootingCluster) -> list[str]:
    """Nodes whose records stand on slots, and not on Leases beside them."""
    leases = cluster.open_leases()
    return [
        it["spec"]["holderIdentity"]
        for it in leases
        if int(it["metadata"]["name"].rpartition("-")[2]) < 1000
    ]


def failures(cluster: BootingCluster, layout: str = "sevenths") -> int:
    """Failed nodes of a rollout, as the breaker counts them."""
    counts = cluster.leadership.memory.rollouts.get(rollout_id(f"annotation:{layout}"))
    return 0 if counts is None else counts.failed


def test_a_rollout_goes_through_boots_and_none_of_them_is_a_failure_or_an_absence() -> None:
    """A boot takes longer than a change may, and one node that is away would stop all others."""
    cluster = BootingCluster(nodes=6, terms=QUICK, need_boot=["n0", "n2", "n3"])
    cluster.kured.boot_seconds = QUICK.end_seconds + 100
    cluster.wish("sevenths")

    cluster.pass_until(lambda: is_at_rest(cluster, "sevenths"), within=9000)

    cluster.pass_time(600)
    assert_clean(cluster)
    assert sorted(cluster.kured.booted) == ["n0", "n2", "n3"]
    assert cluster.crossed == []
    assert failures(cluster) == 0


def test_the_slot_and_the_cordon_span_the_boot() -> None:
    cluster = BootingCluster(nodes=1, terms=QUICK, need_boot=["n0"])
    cluster.kured.period = 2000.0
    cluster.kured.until = cluster.now + 2000.0
    cluster.wish("sevenths")
    cluster.pass_until(lambda: "n0" in cluster.files, within=300)

    while "n0" not in cluster.has_booted:
        cluster.pass_time(10, step=10)
        assert cluster.is_cordoned("n0")
        assert slots_of(cluster) == ["n0"]
        assert cluster.now - cluster.files.get("n0", cluster.now) < 4000
    cluster.pass_until(lambda: is_at_rest(cluster, "sevenths"), within=600)
    cluster.pass_time(100)
    assert_clean(cluster)


def test_without_kured_the_change_ends_at_the_deadline_and_the_node_is_given_back() -> None:
    cluster = BootingCluster(nodes=3, terms=QUICK, need_boot=["n0"], deadline=1800.0)
    cluster.kured.is_there = False
    cluster.wish("sevenths", "n0")
    cluster.pass_until(lambda: cluster.agents["n0"].done != [], within=2400)
    assert cluster.agents["n0"].done[0][1] == "rolled-back"
    cluster.agents["n0"].retry_at = cluster.now + 9000
    cluster.pass_until(lambda: not cluster.open_leases(), within=300)
    assert_clean(cluster)
    assert failures(cluster) == 1


def test_a_node_that_never_comes_back_is_late_and_frees_its_slot() -> None:
    terms = replace(QUICK, slots=1, boot_seconds=1200.0)
    cluster = BootingCluster(nodes=2, terms=terms, need_boot=["n0"])
    cluster.kured.boot_seconds = 1e9
    cluster.wish("sevenths", "n0")
    cluster.pass_until(lambda: cluster.agents["n0"].is_away, within=600)
    cluster.wish("halves", "n1")

    cluster.pass_time(300)
    assert slots_of(cluster) == ["n0"]
    cluster.pass_until(lambda: cluster.agents["n1"].layout == "halves", within=2600)
    assert cluster.is_cordoned("n0")
    assert failures(cluster) == 1


def test_a_cordon_that_kured_counts_on_is_not_taken_off_before_it_has_booted_the_node() -> None:
    """Somebody desires another layout while kured drains: the mode is taken back, and the node
    boots all the same. kured leaves the cordon, since it was there before."""
    cluster = BootingCluster(nodes=1, terms=QUICK, need_boot=["n0"])
    cluster.wish("sevenths")
    cluster.pass_until(lambda: cluster.kured.step == "drained", within=600)
    cluster.wish("whole")

    cluster.pass_until(lambda: cluster.kured.step == "down", within=100)
    assert cluster.is_cordoned("n0")
    cluster.pass_until(lambda: cluster.kured.step == "", within=900)
    cluster.pass_until(lambda: not cluster.open_leases(), within=300)
    cluster.pass_time(300)
    assert_clean(cluster)
    assert cluster.crossed == []


def test_a_node_that_kured_boots_for_another_reason_gets_no_slot_meanwhile() -> None:
    cluster = BootingCluster(nodes=1, terms=QUICK)
    cluster.kured.other_reasons = {"n0"}
    cluster.pass_until(lambda: cluster.kured.step == "drained", within=300)
    cluster.wish("sevenths")
    cluster.pass_until(lambda: cluster.kured.step == "back", within=900)
    assert not cluster.open_leases()
    assert BEFORE_DRAIN in cluster.notes("n0")
    cluster.pass_until(lambda: is_at_rest(cluster, "sevenths"), within=900)
    assert_clean(cluster)
    assert cluster.crossed == []


@pytest.mark.parametrize("seed", range(6 * SCALE))
def test_whatever_is_drawn_all_nodes_have_their_layout_and_no_cordon_is_crossed(seed: int) -> None:
    """Boots of our own and others, killed coordinators, and layouts that change while one waits."""
    draw = random.Random(seed)  # noqa: S311  # a schedule, no secret
    nodes = 8
    names = [f"n{number}" for number in range(nodes)]
    cluster = BootingCluster(
        nodes=nodes,
        terms=replace(QUICK, slots=draw.choice((1, 2, 3)), failures_in_row=99, failures_in_all=99),
        need_boot=draw.sample(names, draw.randrange(1, nodes)),
        deadline=draw.choice((900.0, 7200.0)),
        seed=seed,
    )
    cluster.kured.period = draw.choice((10.0, 300.0))
    calls = draw.randrange(30, 200)

    def kill(_verb: str, _done: bool) -> None:
        nonlocal calls
        calls -= 1
        if calls == 0:
            calls = draw.randrange(30, 200)
            raise Killed

    cluster.on_call = kill
    cluster.wish("sevenths")
    for _ in range(draw.randrange(2, 6)):
        cluster.pass_time(draw.choice((60, 300, 900)), step=5)
        cluster.kured.other_reasons |= {draw.choice(names)}
        if draw.random() < 0.5:
            cluster.wish(draw.choice(("halves", "whole", "sevenths")), *draw.sample(names, 3))
    cluster.wish("halves")
    cluster.deadline = 7200.0

    cluster.pass_until(lambda: is_at_rest(cluster, "halves"), within=60_000, step=10)
    cluster.kured.other_reasons.clear()
    cluster.pass_until(lambda: cluster.kured.step == "", within=9000, step=10)
    cluster.pass_time(60, step=10)

    assert all_applied(cluster, "halves")
    assert cluster.crossed == []
    for name in names:
        assert not cluster.is_cordoned(name), name
        assert keys.MIG_PERMIT not in cluster.notes(name)
