# SPDX-License-Identifier: Apache-2.0
"""Whole rollouts in virtual time: how many at once, in what order, and what is left behind."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest

from api import keys, names
from api.state_annotation import pod_key
from fleet.rollback_record import RollbackRecord
from fleet.rollout_settings import PAUSED, RolloutSettings, parse_windows
from fleet.slot_lease import is_slot
from kube.api import LEASES, POD_DISRUPTION_BUDGETS, PODS
from tests.fleet.simulated_fleet import OFFERS, Cluster, violations

QUICK = RolloutSettings(slots=3, canary_seconds=60.0, retry_seconds=10.0)


def all_applied(cluster: Cluster, layout: str) -> bool:
    return all(agent.layout == layout for agent in cluster.agents.values())


def is_at_rest(cluster: Cluster, layout: str) -> bool:
    """All nodes have it, and nothing of ours is left anywhere."""
    return all_applied(cluster, layout) and not cluster.open_leases()


def assert_clean(cluster: Cluster, *but: str, pods: Collection[str] = ()) -> None:
    """No node is cordoned or carries anything of the coordinator's; ``pods`` were evicted."""
    for name in cluster.agents:
        if name in but:
            continue
        notes = cluster.notes(name)
        assert not cluster.is_cordoned(name), name
        ours = {keys.MIG_PERMIT, keys.MIG_CORDON, *names.SCALE_DOWN_GUARDS}
        assert notes.keys().isdisjoint(ours), name
    assert list(violations(cluster, pods)) == []


def annotate_lease(cluster: Cluster, key: str, value: str | None) -> None:
    """As an admin, on the coordinators' Lease."""
    patch = {"metadata": {"annotations": {key: value}}}
    cluster.people.patch(LEASES, names.COORDINATOR_LEASE, patch, namespace=names.NAMESPACE)


def test_every_node_changes_and_all_is_as_it_was_before() -> None:
    cluster = Cluster(nodes=10, terms=QUICK)
    cluster.wish("sevenths")

    took = cluster.pass_until(lambda: is_at_rest(cluster, "sevenths"), within=900)

    assert_clean(cluster)
    assert took > QUICK.canary_seconds
    for name in cluster.agents:
        allocatable = cluster.node(name)["status"]["allocatable"]
        offered = {it: int(count) for it, count in allocatable.items() if count != "0"}
        assert offered == OFFERS["sevenths"]
    assert sorted(cluster.evicted) == sorted(f"plugin-{name}" for name in cluster.agents)


def test_a_node_with_pods_in_the_way_keeps_its_place_for_pods_until_they_have_gone() -> None:
    cluster = Cluster(nodes=1, terms=QUICK)
    cluster.bind_pod("n0", "job", blocking=True)
    cluster.bind_pod("n0", "other", blocking=False)
    cluster.wish("sevenths")

    cluster.pass_time(600)
    assert not cluster.is_cordoned("n0")
    assert keys.MIG_PERMIT not in cluster.notes("n0")
    assert not cluster.open_leases()

    cluster.end_pod("job")
    cluster.pass_until(lambda: is_at_rest(cluster, "sevenths"), within=120)
    assert_clean(cluster)


def test_a_pod_that_was_bound_meanwhile_is_waited_for_and_then_all_is_undone() -> None:
    cluster = Cluster(nodes=1, terms=QUICK)
    cluster.wish("sevenths")
    cluster.pass_until(lambda: cluster.is_cordoned("n0"), within=60)
    cluster.bind_pod("n0", "late", blocking=True)

    cluster.pass_time(60)
    assert cluster.is_cordoned("n0")
    assert '"phase":"proceed"' not in cluster.notes("n0")[keys.MIG_PERMIT]
    cluster.pass_until(lambda: not cluster.is_cordoned("n0"), within=QUICK.hold_seconds)
    cluster.pass_time(600)
    assert_clean(cluster)
    assert cluster.agents["n0"].layout == "whole"

    cluster.end_pod("late")
    cluster.pass_until(lambda: is_at_rest(cluster, "sevenths"), within=120)
    assert_clean(cluster)


@pytest.mark.parametrize("drain", ["wait", "evict"])
def test_a_pod_that_takes_the_place_of_one_of_its_name_is_waited_for_until_it_has_its_devices(
    drain: str,
) -> None:
    """As of a StatefulSet: the agent's list still has the name, for the devices of the one before.

    It comes behind the first look, and gets what the change would take: nothing may go.
    """
    cluster = Cluster(nodes=1, terms=QUICK)
    cluster.annotate("n0", drain=drain)
    cluster.bind_pod("n0", "x-0", blocking=False, owner="StatefulSet")
    cluster.wish("sevenths")
    cluster.pass_until(lambda: cluster.is_cordoned("n0"), within=60)
    cluster.end_pod("x-0")
    cluster.bind_pod("n0", "x-0", blocking=False, owner="StatefulSet")
    cluster.await_kubelet("x-0")

    cluster.pass_time(40)
    assert '"phase":"proceed"' not in cluster.notes("n0").get(keys.MIG_PERMIT, "")
    assert cluster.agents["n0"].layout == "whole"
    cluster.take_pod("x-0")
    cluster.agents["n0"].blocking.add(pod_key("default", "x-0"))
    cluster.pass_time(600)
    if drain == "wait":
        assert cluster.agents["n0"].layout == "whole"
        assert cluster.evicted == []
        cluster.end_pod("x-0")
    cluster.pass_until(lambda: is_at_rest(cluster, "sevenths"), within=300)
    assert_clean(cluster, pods=set() if drain == "wait" else {"x-0"})


def test_the_first_node_of_a_rollout_goes_alone_and_the_others_follow_later() -> None:
    cluster = Cluster(nodes=4, terms=QUICK)
    cluster.wish("sevenths")
    most = 0

    def first_done() -> bool:
        nonlocal most
        most = max(most, len(cluster.open_leases()))
        return any(agent.layout == "sevenths" for agent in cluster.agents.values())

    cluster.pass_until(first_done, within=120)
    assert most == 1
    cluster.pass_until(lambda: not cluster.open_leases(), within=60)
    waited = cluster.pass_until(lambda: bool(cluster.open_leases()), within=120)
    assert waited >= QUICK.canary_seconds - 30
    assert len(cluster.open_leases()) == 3


def test_three_nodes_that_failed_stop_a_rollout_until_a_person_says_go_on() -> None:
    cluster = Cluster(nodes=6, terms=QUICK)
    for agent in cluster.agents.values():
        agent.ends = ["rolled-back"]
    cluster.wish("sevenths")

    cluster.pass_time(1500, step=5)
    assert sum(len(agent.done) for agent in cluster.agents.values()) == 3
    assert not cluster.open_leases()
    assert_clean(cluster)

    for agent in cluster.agents.values():
        agent.ends = []
    annotate_lease(cluster, keys.MIG_ROLLOUTS, None)
    cluster.pass_until(lambda: is_at_rest(cluster, "sevenths"), within=1200)
    assert_clean(cluster)


def test_a_failed_rollout_does_not_stop_another_one() -> None:
    cluster = Cluster(nodes=6, terms=QUICK)
    for number in range(3):
        cluster.agents[f"n{number}"].ends = ["rolled-back"] * 5
    cluster.wish("sevenths", "n0", "n1", "n2")
    cluster.wish("halves", "n3", "n4", "n5")

    cluster.pass_until(
        lambda: all(cluster.agents[f"n{it}"].layout == "halves" for it in (3, 4, 5)), within=900
    )


def test_nothing_begins_while_an_admin_has_paused_it_and_what_runs_ends() -> None:
    cluster = Cluster(nodes=3, terms=QUICK)
    cluster.wish("sevenths")
    cluster.pass_until(lambda: bool(cluster.open_leases()), within=60)
    annotate_lease(cluster, keys.MIG_PAUSED, "true")

    cluster.pass_time(900)
    assert sum(agent.layout == "sevenths" for agent in cluster.agents.values()) == 1
    assert_clean(cluster)

    annotate_lease(cluster, keys.MIG_PAUSED, None)
    cluster.pass_until(lambda: is_at_rest(cluster, "sevenths"), within=600)


def test_nothing_begins_outside_of_the_window() -> None:
    terms = RolloutSettings(slots=3, windows=parse_windows("fri 09:00-10:00"), canary_seconds=60)
    cluster = Cluster(nodes=1, terms=terms)
    cluster.wish("sevenths")

    cluster.pass_time(3500, step=10)
    assert not cluster.open_leases()
    cluster.pass_until(lambda: is_at_rest(cluster, "sevenths"), within=300)
    assert_clean(cluster)


def test_nodes_that_are_not_available_are_left_out_and_too_many_stop_the_rollout() -> None:
    terms = RolloutSettings(slots=3, canary_seconds=60, most_away=2)
    cluster = Cluster(nodes=6, terms=terms)
    cluster.cordon("n0")
    cluster.edit("n1", {"metadata": {"labels": {"nvidia.com/gpu-driver-upgrade-state": "drain"}}})
    cluster.edit("n2", {"metadata": {"annotations": {"weave.works/kured-reboot-in-progress": "x"}}})
    cluster.wish("sevenths")

    cluster.pass_time(600)
    assert not any(agent.layout == "sevenths" for agent in cluster.agents.values())

    cluster.edit("n1", {"metadata": {"labels": {"nvidia.com/gpu-driver-upgrade-state": None}}})
    cluster.pass_time(900)
    done = {agent.name for agent in cluster.agents.values() if agent.layout == "sevenths"}
    assert done == {"n1", "n3", "n4", "n5"}
    assert cluster.is_cordoned("n0")
    assert_clean(cluster, "n0")


def test_a_node_whose_cordon_an_admin_keeps_is_changed_and_stays_cordoned() -> None:
    cluster = Cluster(nodes=1, terms=QUICK)
    cluster.cordon("n0")
    cluster.annotate("n0", keep_cordoned="")
    cluster.wish("sevenths")

    cluster.pass_until(lambda: is_at_rest(cluster, "sevenths"), within=120)
    assert cluster.is_cordoned("n0")
    assert_clean(cluster, "n0")


def test_a_node_that_was_cordoned_by_us_stays_so_where_an_admin_says_it_meanwhile() -> None:
    cluster = Cluster(nodes=1, terms=QUICK)
    cluster.wish("sevenths")
    cluster.pass_until(lambda: cluster.is_cordoned("n0"), within=60)
    cluster.annotate("n0", keep_cordoned="")

    cluster.pass_until(lambda: is_at_rest(cluster, "sevenths"), within=120)
    assert cluster.is_cordoned("n0")
    assert keys.MIG_PERMIT not in cluster.notes("n0")


def test_a_cordon_that_a_person_takes_off_and_puts_on_again_during_a_change_is_that_persons() -> (
    None
):
    cluster = Cluster(nodes=1, terms=QUICK)
    cluster.wish("sevenths")
    cluster.pass_until(lambda: bool(cluster.agents["n0"].changes_until), within=90)
    cluster.cordon("n0", on=False)
    cluster.pass_time(6)
    cluster.cordon("n0")

    cluster.pass_until(lambda: is_at_rest(cluster, "sevenths"), within=120)
    assert cluster.is_cordoned("n0")
    assert_clean(cluster, "n0")


def test_a_cordon_that_a_person_puts_on_again_just_before_the_undoing_is_that_persons() -> None:
    cluster = Cluster(nodes=1, terms=QUICK)
    cluster.wish("sevenths")
    cluster.pass_until(lambda: cluster.is_cordoned("n0"), within=60)
    cluster.cordon("n0", on=False)

    def put_on_again(verb: str, done: bool) -> None:
        if verb == "get" and not done and not cluster.is_cordoned("n0"):
            cluster.on_call = lambda _verb, _done: None
            cluster.cordon("n0")

    cluster.on_call = put_on_again
    cluster.pass_until(lambda: keys.MIG_PERMIT not in cluster.notes("n0"), within=300)
    cluster.pass_time(30)
    assert cluster.is_cordoned("n0")
    assert_clean(cluster, "n0")


def test_a_held_node_stays_cordoned_without_a_slot_until_its_agent_says_another_end() -> None:
    cluster = Cluster(nodes=3, terms=RolloutSettings(slots=1, canary_seconds=10))
    cluster.agents["n0"].ends = ["stuck"]
    cluster.agents["n0"].retry_at = 0
    cluster.wish("sevenths")

    cluster.pass_time(150)
    assert cluster.is_cordoned("n0")
    assert keys.MIG_PERMIT in cluster.notes("n0")
    cluster.pass_until(
        lambda: all(cluster.agents[it].layout == "sevenths" for it in ("n1", "n2")), within=240
    )
    assert cluster.is_cordoned("n0")
    cluster.pass_until(lambda: is_at_rest(cluster, "sevenths"), within=600)
    assert_clean(cluster)


def test_a_stuck_node_that_an_admin_keeps_cordoned_takes_another_layout_behind_its_cordon() -> None:
    """As the runbook says: a new request alone would have it uncordoned."""
    cluster = Cluster(nodes=1, terms=QUICK)
    cluster.agents["n0"].ends = ["stuck"]
    cluster.wish("sevenths")
    cluster.pass_until(lambda: cluster.agents["n0"].layout == "none", within=300)
    cluster.annotate("n0", keep_cordoned="")
    cordoned = set()

    def rests() -> bool:
        cordoned.add(cluster.is_cordoned("n0"))
        return is_at_rest(cluster, "halves")

    cluster.wish("halves")
    cluster.pass_until(rests, within=600)

    assert cordoned == {True}
    assert_clean(cluster, "n0")


def test_a_change_without_an_end_frees_its_slot_and_is_undone_when_the_end_is_told() -> None:
    terms = RolloutSettings(slots=1, canary_seconds=10, end_seconds=200)
    cluster = Cluster(nodes=2, terms=terms)
    cluster.agents["n0"].change_seconds = 500
    cluster.wish("sevenths")

    cluster.pass_until(lambda: cluster.agents["n1"].layout == "sevenths", within=400)
    assert cluster.is_cordoned("n0")
    cluster.pass_until(lambda: is_at_rest(cluster, "sevenths"), within=600)
    assert_clean(cluster)


def test_a_node_that_never_offers_what_it_should_is_given_back_after_three_restarts() -> None:
    cluster = Cluster(nodes=1, terms=QUICK)
    cluster.wish("sevenths")
    cluster.pass_until(lambda: cluster.is_cordoned("n0"), within=60)
    cluster.pass_until(lambda: bool(cluster.agents["n0"].changes_until), within=60)
    broken = OFFERS["sevenths"]
    try:
        OFFERS["sevenths"] = {"nvidia.com/mig-1g.10gb": 55}  # the request says 56
        cluster.pass_until(lambda: not cluster.open_leases(), within=400)
    finally:
        OFFERS["sevenths"] = broken
    assert len(cluster.evicted) == 3
    assert b'outcome="device-plugin-not-registered"} 1' in cluster.metrics.render()
    assert_clean(cluster)


def test_the_operators_parts_are_paused_for_a_change_of_mode_and_come_back() -> None:
    deploy = {
        "nvidia.com/gpu.deploy.device-plugin": "true",
        "nvidia.com/gpu.deploy.dcgm-exporter": "false",
        "nvidia.com/gpu.deploy.driver": "true",
        "nvidia.com/gpu.deploy.nvsm": "by-me",
    }
    cluster = Cluster(nodes=1, terms=QUICK)
    cluster.edit("n0", {"metadata": {"labels": deploy}})
    cluster.agents["n0"].modes = True
    cluster.wish("sevenths")

    cluster.pass_until(lambda: bool(cluster.agents["n0"].changes_until), within=90)
    labels = cluster.node("n0")["metadata"]["labels"]
    assert {name for name, value in labels.items() if value == PAUSED} == {
        "nvidia.com/gpu.deploy.device-plugin",
        "nvidia.com/gpu.deploy.nvsm",
    }
    assert not [pod for pod in cluster.pods("n0") if pod["metadata"]["name"] == "plugin-n0"]

    cluster.pass_until(lambda: is_at_rest(cluster, "sevenths"), within=120)
    assert deploy.items() <= cluster.node("n0")["metadata"]["labels"].items()
    assert_clean(cluster)


def test_a_way_of_draining_that_nobody_knows_is_waited_with() -> None:
    cluster = Cluster(nodes=1, terms=QUICK)
    cluster.annotate("n0", drain="gently")
    cluster.wish("sevenths")
    cluster.pass_time(300)
    assert not cluster.open_leases()
    assert b'waiting_nodes{reason="drain"} 1.0' in cluster.metrics.render()


def owned(cluster: Cluster, node: str, name: str, *, blocking: bool = True) -> None:
    """A pod that a ReplicaSet makes anew elsewhere."""
    cluster.bind_pod(node, name, blocking=blocking, owner="ReplicaSet")


def test_pods_in_the_way_are_evicted_and_others_stay() -> None:
    cluster = Cluster(nodes=1, terms=QUICK)
    cluster.annotate("n0", drain="evict")
    owned(cluster, "n0", "one")
    owned(cluster, "n0", "two")
    owned(cluster, "n0", "other", blocking=False)
    cluster.wish("sevenths")

    cluster.pass_until(lambda: is_at_rest(cluster, "sevenths"), within=180)
    assert_clean(cluster, pods={"one", "two"})
    assert {it for it in cluster.evicted if it != "plugin-n0"} == {"one", "two"}


def test_all_pods_of_the_node_leave_where_the_admin_says_so() -> None:
    cluster = Cluster(nodes=1, terms=QUICK)
    cluster.annotate("n0", drain="node")
    owned(cluster, "n0", "one")
    owned(cluster, "n0", "other", blocking=False)
    cluster.wish("sevenths")

    cluster.pass_until(lambda: is_at_rest(cluster, "sevenths"), within=180)
    assert_clean(cluster, pods={"one", "other"})
    assert {"one", "other"} <= set(cluster.evicted)


@pytest.mark.parametrize("drain", ["wait", "evict", "node"])
@pytest.mark.parametrize("placed", [True, False])
def test_a_pod_that_asks_for_0_gpus_neither_blocks_a_change_nor_leaves(
    drain: str, placed: bool
) -> None:
    cluster = Cluster(nodes=1, terms=QUICK)
    cluster.annotate("n0", drain=drain)
    cluster.bind_pod("n0", "for-cpus", blocking=False, gpus="0")
    if not placed:
        cluster.await_kubelet("for-cpus")
    cluster.wish("sevenths")

    cluster.pass_until(lambda: is_at_rest(cluster, "sevenths"), within=180)
    assert_clean(cluster)
    assert "for-cpus" not in cluster.evicted


@pytest.mark.parametrize("drain", ["evict", "node"])
def test_a_layout_that_somebody_changed_is_brought_back_without_any_eviction(drain: str) -> None:
    cluster = Cluster(nodes=1, terms=QUICK)
    cluster.annotate("n0", drain=drain)
    owned(cluster, "n0", "one")
    cluster.agents["n0"].drift = True
    cluster.wish("sevenths")

    cluster.pass_time(600)
    assert b'waiting_nodes{reason="drift"} 1.0' in cluster.metrics.render()
    assert not cluster.open_leases()
    cluster.end_pod("one")
    cluster.pass_until(lambda: is_at_rest(cluster, "sevenths"), within=120)
    assert_clean(cluster)


@pytest.mark.parametrize("drain", ["wait", "evict", "node"])
def test_a_program_that_is_no_pods_is_waited_for_without_a_slot_a_cordon_or_an_eviction(
    drain: str,
) -> None:
    cluster = Cluster(nodes=1, terms=QUICK)
    cluster.annotate("n0", drain=drain)
    if drain != "wait":
        owned(cluster, "n0", "one")
    cluster.agents["n0"].programs = ("4711 nv-hostengine",)
    cluster.wish("sevenths")

    cluster.pass_time(300)
    assert b'waiting_nodes{reason="program"} 1.0' in cluster.metrics.render()
    assert cluster.evicted == []
    assert not [it for it in cluster.server.since(0) if it.key[0] == LEASES and is_slot(it.object)]
    cluster.agents["n0"].programs = ()
    cluster.pass_until(lambda: is_at_rest(cluster, "sevenths"), within=120)
    assert_clean(cluster, pods={"one"})


@pytest.mark.parametrize("drain", ["wait", "evict"])
def test_a_program_that_comes_behind_the_cordon_has_all_undone(drain: str) -> None:
    cluster = Cluster(nodes=1, terms=QUICK)
    cluster.annotate("n0", drain=drain)
    if drain != "wait":
        owned(cluster, "n0", "one")
    cluster.wish("sevenths")
    cluster.pass_until(lambda: cluster.is_cordoned("n0"), within=60)
    cluster.agents["n0"].programs = ("4711 nv-hostengine",)

    cluster.pass_until(lambda: not cluster.is_cordoned("n0"), within=QUICK.hold_seconds + 30)
    assert cluster.agents["n0"].layout == "whole"
    assert cluster.evicted == []
    assert_clean(cluster)


CORDONING = replace(QUICK, most_cordoned=1, cordoned_seconds=900.0)


def test_pods_are_waited_for_behind_a_cordon_where_a_policy_says_so() -> None:
    cluster = Cluster(nodes=1, terms=CORDONING)
    cluster.annotate("n0", drain="cordon")
    cluster.bind_pod("n0", "job", blocking=True)
    cluster.wish("sevenths")

    cluster.pass_until(lambda: cluster.is_cordoned("n0"), within=60)
    cluster.pass_time(3 * QUICK.hold_seconds)
    assert cluster.is_cordoned("n0")
    cluster.end_pod("job")
    cluster.pass_until(lambda: is_at_rest(cluster, "sevenths"), within=120)
    assert_clean(cluster)


def test_a_node_waits_behind_a_cordon_for_a_bounded_time_and_is_free_for_as_long_then() -> None:
    cluster = Cluster(nodes=1, terms=CORDONING)
    cluster.annotate("n0", drain="cordon")
    cluster.bind_pod("n0", "job", blocking=True)
    cluster.wish("sevenths")

    cluster.pass_until(lambda: cluster.is_cordoned("n0"), within=60)
    held = cluster.pass_until(lambda: not cluster.is_cordoned("n0"), within=1000, step=5)
    assert 850 < held < 950
    assert not cluster.open_leases()
    free = cluster.pass_until(lambda: cluster.is_cordoned("n0"), within=1000, step=5)
    assert free > 850
    assert list(violations(cluster)) == []


def test_none_is_evicted_and_the_node_is_not_cordoned_where_one_may_not_go() -> None:
    cluster = Cluster(nodes=1, terms=QUICK)
    cluster.annotate("n0", drain="evict")
    owned(cluster, "n0", "one")
    cluster.bind_pod("n0", "alone", blocking=True)
    cluster.wish("sevenths")

    cordoned = []
    for _ in range(100):
        cluster.pass_time(4)
        cordoned.append(cluster.is_cordoned("n0"))
    assert cluster.evicted == []
    assert not any(cordoned)

    cluster.end_pod("alone")
    cluster.pass_until(lambda: is_at_rest(cluster, "sevenths"), within=1200)
    assert_clean(cluster, pods={"one"})


def test_a_pod_that_an_autoscaler_may_not_evict_for_ten_minutes_is_evicted_after_these() -> None:
    cluster = Cluster(nodes=1, terms=QUICK)
    cluster.annotate("n0", drain="evict")
    owned(cluster, "n0", "one")
    mark = {"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "10m"}}}
    cluster.people.patch(PODS, "one", mark, namespace="default")
    cluster.take_pod("one")
    cluster.wish("sevenths")

    cluster.pass_time(590)
    assert cluster.evicted == []
    cluster.pass_until(lambda: is_at_rest(cluster, "sevenths"), within=1200)
    assert_clean(cluster, pods={"one"})


def test_a_budget_that_lets_one_node_go_lets_no_part_of_another_nodes_pods_go() -> None:
    """Both nodes are judged before either one's pods are evicted."""
    cluster = Cluster(nodes=2, terms=replace(QUICK, drain_seconds=60))
    budget = {"metadata": {"name": "keep"}, "spec": {"selector": {"matchLabels": {"app": "a"}}}}
    cluster.people.create(POD_DISRUPTION_BUDGETS, budget, namespace="default")
    status = {"status": {"disruptionsAllowed": 1}}
    cluster.server.patch(POD_DISRUPTION_BUDGETS, "keep", status, "default", status=True)
    for node in ("n0", "n1"):
        cluster.annotate(node, drain="evict")
        owned(cluster, node, f"{node}-first")
        cluster.bind_pod(node, f"{node}-second", blocking=True, owner="ReplicaSet", app="a")
    cluster.wish("sevenths", "n0")
    cluster.wish("halves", "n1")

    cluster.pass_time(50)
    assert set(cluster.evicted) - {"plugin-n0", "plugin-n1"} in (
        {"n0-first", "n0-second"},
        {"n1-first", "n1-second"},
    )


def test_a_pod_that_does_not_end_is_waited_for_and_then_all_is_undone() -> None:
    cluster = Cluster(nodes=1, terms=replace(QUICK, drain_seconds=100))
    cluster.annotate("n0", drain="evict")
    owned(cluster, "n0", "one")
    cluster.lingering.add("one")
    cluster.wish("sevenths")

    cluster.pass_until(lambda: "one" in cluster.evicted, within=60)
    cluster.pass_time(90)
    assert cluster.is_cordoned("n0")
    cluster.pass_until(lambda: not cluster.is_cordoned("n0"), within=60)
    assert cluster.agents["n0"].layout == "whole"
    cluster.end_pod("one")
    cluster.pass_until(lambda: is_at_rest(cluster, "sevenths"), within=600)
    assert_clean(cluster, pods={"one"})


def test_a_pod_that_may_not_go_and_comes_behind_the_cordon_has_all_undone_at_once() -> None:
    cluster = Cluster(nodes=1, terms=QUICK)
    cluster.annotate("n0", drain="evict")
    owned(cluster, "n0", "one")
    cluster.wish("sevenths")
    cluster.pass_until(lambda: cluster.is_cordoned("n0"), within=60)
    cluster.bind_pod("n0", "alone", blocking=True)

    cluster.pass_until(lambda: not cluster.is_cordoned("n0"), within=40)
    assert cluster.evicted == []
    assert_clean(cluster)


def test_a_defect_with_one_node_leaves_the_others_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(nodes=3, terms=QUICK)
    taken = cluster.reports.taken

    def raises_for_one(record: RollbackRecord, number: int) -> None:
        taken(record, number)
        if record.node == "n0":
            raise RuntimeError("a defect")

    monkeypatch.setattr(cluster.reports, "taken", raises_for_one)
    cluster.wish("sevenths")
    cluster.pass_until(lambda: is_at_rest(cluster, "sevenths"), within=600)
    assert_clean(cluster)
