# SPDX-License-Identifier: Apache-2.0
"""``gpuscape mig why`` in each phase of one node's change, made by the coordinator's own code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

import pytest
from msgspec import structs

from api import keys, names
from api.mig_status_annotation import MigPhase
from base.text import rfc3339
from fleet.mig_node import DrainMode
from fleet.rollout_settings import PAUSED, RolloutSettings, parse_windows
from fleet.stages.layout_stages import layout_stages
from fleet.stages.node_change_facts import NodeEvent
from fleet.stages.stage import Stage, StageBlockerKind, StageName, StageState
from fleet.stages.stage_times import stage_ends
from kube.api import CONFIG_MAPS, EVENTS, LEASES, POD_DISRUPTION_BUDGETS, PODS, ApiResource
from kube.api_errors import Forbidden
from tests.fleet.stages.asked_fleet import AskedFleet, facts_of, standing_in

TERMS: Final = RolloutSettings(
    canary_seconds=10.0, retry_seconds=10.0, settle_seconds=10.0, end_seconds=100.0
)
EVICT: Final = replace(TERMS, drain=DrainMode.EVICT)


def fleet(terms: RolloutSettings = TERMS, nodes: int = 1) -> AskedFleet:
    """Some nodes, and a coordinator that leads."""
    made = AskedFleet(nodes=nodes, terms=terms)
    made.pass_time(4)
    return made


def reach(asked: AskedFleet, stage: StageName | None, node: str = "n0") -> Stage:
    """Until it stands there."""

    def stands() -> bool:
        standing = asked.standing(node)
        return (standing and standing.name) == stage

    asked.pass_until(stands, within=900)
    standing = asked.standing(node)
    return asked.story(node)[StageName.UNCORDONED] if standing is None else standing


def states(asked: AskedFleet, node: str = "n0") -> list[str]:
    """The states of all stages, in order."""
    return [stage.state.value for stage in asked.story(node).values()]


def test_nothing_is_desired() -> None:
    standing = fleet().standing()
    assert standing is not None
    assert standing.name is StageName.DESIRED
    assert standing.text.startswith("no layout is desired: ")
    assert standing.command == "gpuscape mig rollout plan all-balanced --node n0"


def test_a_change_goes_through_its_stages_one_by_one() -> None:
    asked = fleet()
    seen: list[StageName | None] = []
    asked.wish("sevenths")
    for _ in range(60):
        asked.pass_time(2)
        standing = asked.standing()
        name = None if standing is None else standing.name
        if not seen or seen[-1] != name:
            seen.append(name)
    assert [it for it in seen if it is not StageName.SLOT] == [
        StageName.DRAINED,
        StageName.CHANGED,
        StageName.ALLOCATABLE,
        None,
    ]
    assert states(asked) == [*["done"] * 6, "unknown", *["done"] * 4]


def test_the_times_of_a_change_that_is_over_are_those_of_its_events() -> None:
    asked = fleet()
    asked.wish("sevenths")
    begun = asked.now
    reach(asked, StageName.CHANGED)
    permitted = asked.now
    reach(asked, None)
    story = asked.story()
    assert story[StageName.SLOT].ended_at == pytest.approx(begun, abs=10)
    assert story[StageName.DRAINED].ended_at == pytest.approx(permitted, abs=4)
    assert story[StageName.UNCORDONED].ended_at == pytest.approx(asked.now, abs=4)
    for event in asked.server.objects(EVENTS):
        asked.server.delete(EVENTS, event["metadata"]["name"], "default")
    assert all(it.ended_at is None for it in list(asked.story().values())[1:])


def test_events_of_an_earlier_attempt_give_no_time() -> None:
    asked = fleet(replace(TERMS, hold_seconds=30.0))
    asked.wish("sevenths")
    reach(asked, StageName.DRAINED)
    asked.bind_pod("n0", "late", blocking=True)
    asked.pass_until(lambda: not asked.is_cordoned("n0"), within=100)
    asked.end_pod("late")
    reach(asked, StageName.DRAINED)
    story = asked.story()
    assert story[StageName.UNCORDONED].ended_at is None
    slot, cordon = story[StageName.SLOT].ended_at, story[StageName.CORDONED].ended_at
    assert slot == pytest.approx(asked.now, abs=4)
    assert slot is not None
    assert cordon is not None
    assert slot <= cordon


def test_events_about_another_layout_give_no_time() -> None:
    """The agent writes each reason seldom, so the newest may be of the change before."""
    asked = fleet()
    asked.wish("sevenths")
    reach(asked, None)
    about = "desired by annotation: {}: it waits"
    waiting = NodeEvent(reason="MigChangeWaiting", note="", at=asked.now - 90)
    slot = NodeEvent(reason="MigSlotTaken", note="", at=asked.now - 50)

    def times(desired: str) -> Mapping[StageName, float]:
        events = (replace(waiting, note=about.format(desired)), slot)
        facts = replace(facts_of(asked, "n0"), events=events, desired_at=asked.now - 60)
        return stage_ends(facts)

    assert times("sevenths")[StageName.REQUESTED] == asked.now - 90
    assert StageName.DESIRED not in times("sevenths")
    assert times("halves")[StageName.DESIRED] == asked.now - 60
    assert StageName.REQUESTED not in times("halves")


def test_events_of_the_change_before_give_no_time() -> None:
    """The coordinator writes each reason seldom, so this change may have none of its own."""
    asked = fleet()
    asked.wish("sevenths")
    reach(asked, None)
    facts = facts_of(asked, "n0")
    assert facts.node.status is not None
    since = rfc3339.whole_seconds(asked.now)
    status = structs.replace(facts.node.status, phase=MigPhase.UNCHANGED, since=since)
    facts = replace(facts, node=replace(facts.node, status=status))
    events = (
        NodeEvent(reason="MigSlotTaken", note="", at=asked.now - 90),
        NodeEvent(reason="MigChangeUndone", note="", at=asked.now - 60),
    )

    def times(desired_before: float) -> Mapping[StageName, float]:
        return stage_ends(replace(facts, events=events, desired_at=asked.now - desired_before))

    assert StageName.SLOT not in times(50)
    assert times(50)[StageName.DESIRED] == asked.now - 50
    assert times(100)[StageName.SLOT] == asked.now - 90


def test_times_that_do_not_fit_between_the_others_are_of_something_else() -> None:
    asked = fleet()
    asked.wish("sevenths")
    reach(asked, None)
    events = (
        NodeEvent(reason="MigSlotTaken", note="", at=asked.now - 50),
        NodeEvent(reason="MigChangeAllowed", note="", at=asked.now - 90),
        NodeEvent(reason="MigChangeUndone", note="", at=asked.now),
    )
    ends = stage_ends(replace(facts_of(asked, "n0"), events=events, desired_at=asked.now - 60))
    assert ends[StageName.DESIRED] == asked.now - 60
    assert ends[StageName.SLOT] == asked.now - 50
    assert ends[StageName.UNCORDONED] == asked.now
    late = replace(facts_of(asked, "n0"), events=events[:1], desired_at=asked.now)
    assert StageName.DESIRED not in stage_ends(late)


def undo_once(asked: AskedFleet, node: str, layout: str) -> None:
    """The node's first attempt is undone: a pod comes behind the cordon, and has no device."""
    asked.wish(layout, node)
    asked.pass_until(lambda: asked.is_cordoned(node), within=60)
    asked.bind_pod(node, f"late-{node}", blocking=False)
    asked.await_kubelet(f"late-{node}")
    asked.pass_until(lambda: not asked.is_cordoned(node), within=100)
    asked.end_pod(f"late-{node}")


def test_other_nodes_that_wait_do_not_stand_before_one_that_rests() -> None:
    """How long others rest is not read: a slot that is free is not counted as theirs."""
    asked = fleet(replace(TERMS, hold_seconds=30.0, retry_seconds=300.0), nodes=2)
    undo_once(asked, "n0", "halves")
    undo_once(asked, "n1", "sevenths")
    asked.pass_time(10)
    for node in ("n0", "n1"):
        standing = asked.standing(node)
        assert standing is not None
        assert "the last attempt was undone" in standing.text


def test_a_node_that_goes_on_without_a_slot_is_not_who_has_it() -> None:
    asked = fleet(nodes=3)
    for number, layout in enumerate(("sevenths", "halves", "sevenths/b")):
        asked.agents[f"n{number}"].change_seconds = 5_000
        asked.wish(layout, f"n{number}")
    asked.pass_until(lambda: len(asked.open_leases()) == 2, within=300)
    slots = [it for it in asked.open_leases() if it["spec"].get("holderIdentity")]
    (holder,) = (it["spec"]["holderIdentity"] for it in slots)
    (waiting,) = (
        name for name, it in asked.agents.items() if not it.changes_until and name != holder
    )
    assert in_the_way(asked.standing(waiting)) == {("node", holder)}


def test_an_attempt_that_was_undone_is_told_with_its_reason_and_the_next_time() -> None:
    asked = fleet(replace(TERMS, hold_seconds=30.0, retry_seconds=100.0))
    asked.wish("sevenths")
    reach(asked, StageName.DRAINED)
    asked.bind_pod("n0", "late", blocking=False)
    asked.await_kubelet("late")
    asked.pass_until(lambda: not asked.is_cordoned("n0"), within=100)
    undone = asked.now
    asked.end_pod("late")
    standing = reach(asked, StageName.SLOT)
    assert "the last attempt was undone at" in standing.text
    assert "not idle" in standing.text
    assert standing.retry_at == pytest.approx(undone + 100.0, abs=4)


def in_the_way(standing: Stage | None) -> set[tuple[str, str]]:
    """Kinds and names of what is in the way."""
    assert standing is not None
    return {(it.kind.value, it.name) for it in standing.blockers}


def test_pods_that_are_waited_for_are_named_with_the_command_that_evicts_them() -> None:
    asked = fleet()
    asked.bind_pod("n0", "job", blocking=True)
    asked.bind_pod("n0", "other", blocking=False)
    asked.wish("sevenths")
    asked.pass_time(20)
    standing = asked.standing()
    assert in_the_way(standing) == {("pod", "default/job")}
    assert standing is not None
    assert standing.command == "kubectl annotate --overwrite node n0 gpuscape.io/drain=evict"
    asked.annotate("n0", drain="evict")
    asked.pass_time(20)
    standing = asked.standing()
    assert standing is not None
    (blocker,) = standing.blockers
    assert (blocker.kind, blocker.name) == (StageBlockerKind.POD, "default/job")
    assert "no controller" in blocker.text


def test_a_budget_that_refuses_the_eviction_is_named() -> None:
    asked = fleet(EVICT)
    asked.bind_pod("n0", "web-0", blocking=True, owner="ReplicaSet", app="web")
    body = {
        "metadata": {"name": "web"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}},
        "status": {"disruptionsAllowed": 0, "observedGeneration": 1},
    }
    asked.people.create(POD_DISRUPTION_BUDGETS, body, namespace="default")
    asked.wish("sevenths")
    asked.pass_time(20)
    standing = asked.standing()
    assert standing is not None
    assert standing.name is StageName.SLOT
    budget = standing.blockers[0]
    assert (budget.kind, budget.name) == (StageBlockerKind.BUDGET, "default/web")
    assert "default/web-0" in budget.text
    assert standing.command == "kubectl -n default get poddisruptionbudget web"
    assert not asked.evicted


def test_a_pod_that_was_evicted_and_does_not_end_is_named() -> None:
    asked = fleet(EVICT)
    asked.bind_pod("n0", "web-0", blocking=True, owner="ReplicaSet")
    asked.lingering.add("web-0")
    asked.wish("sevenths")
    asked.pass_until(lambda: bool(asked.evicted), within=60)
    asked.pass_time(4)
    standing = asked.standing()
    assert standing is not None
    assert standing.name is StageName.DRAINED
    assert in_the_way(standing) == {("pod", "default/web-0")}
    assert "asked to leave" in standing.text
    assert "was deleted" in standing.blockers[0].text


def test_a_program_is_named() -> None:
    asked = fleet()
    asked.agents["n0"].programs = ("4242 python3",)
    asked.wish("sevenths")
    asked.pass_time(20)
    assert in_the_way(asked.standing()) == {("program", "4242 python3")}


def test_the_node_that_has_the_slot_is_named_with_the_question_about_it() -> None:
    asked = fleet(nodes=2)
    asked.wish("halves/a", "n0")
    asked.wish("sevenths", "n1")
    asked.pass_until(lambda: bool(asked.open_leases()), within=60)
    (holder,) = (it["spec"]["holderIdentity"] for it in asked.open_leases())
    other = {"n0": "n1", "n1": "n0"}[holder]
    standing = asked.standing(other)
    assert in_the_way(standing) == {("node", holder)}
    assert standing is not None
    assert standing.text == "all slots are taken"
    assert standing.command == f"gpuscape mig why {holder}"


def test_the_first_node_of_a_rollout_is_named_and_then_the_time_of_the_others() -> None:
    asked = fleet(replace(TERMS, slots=2, canary_seconds=300.0), nodes=2)
    asked.wish("sevenths")
    asked.pass_until(lambda: bool(asked.open_leases()), within=60)
    (holder,) = (it["spec"]["holderIdentity"] for it in asked.open_leases())
    other = {"n0": "n1", "n1": "n0"}[holder]
    assert in_the_way(asked.standing(other)) == {("node", holder)}
    asked.pass_until(lambda: not asked.open_leases(), within=200)
    standing = asked.standing(other)
    assert standing is not None
    assert standing.retry_at == pytest.approx(asked.now + 300, abs=10)


def pause(asked: AskedFleet) -> None:
    patch = {"metadata": {"annotations": {keys.MIG_PAUSED: "true"}}}
    asked.people.patch(LEASES, names.COORDINATOR_LEASE, patch, namespace=names.NAMESPACE)


def unready(asked: AskedFleet) -> None:
    asked.away("n0", ready=False)


def unknown_drain(asked: AskedFleet) -> None:
    asked.annotate("n0", drain="later")


@pytest.mark.parametrize(
    ("act", "kind", "command"),
    [
        (pause, StageBlockerKind.PAUSE, "gpuscape mig rollout resume -n gpuscape"),
        (unready, StageBlockerKind.NODE, "kubectl describe node n0"),
        (AskedFleet.cordon, StageBlockerKind.CORDON, "kubectl uncordon n0"),
        (
            unknown_drain,
            StageBlockerKind.SETTING,
            "kubectl annotate --overwrite node n0 gpuscape.io/drain=wait",
        ),
    ],
)
def test_what_a_person_can_end_has_its_command(
    act: Callable[..., None], kind: StageBlockerKind, command: str
) -> None:
    asked = fleet()
    act(asked, "n0") if act is AskedFleet.cordon else act(asked)
    asked.pass_time(12)
    asked.wish("sevenths")
    asked.pass_time(30)
    standing = asked.standing()
    assert standing is not None
    assert standing.name is StageName.SLOT
    assert [it.kind for it in standing.blockers] == [kind]
    assert standing.command == command


def test_a_maintenance_window_has_its_next_opening() -> None:
    asked = fleet(replace(TERMS, slots=0))
    asked.wish("sevenths")
    asked.pass_time(2)
    facts = asked_facts(asked, replace(TERMS, windows=parse_windows("22:00-23:00")))
    standing = standing_in({it.name: it for it in layout_stages(facts, asked.now)})
    assert standing is not None
    assert standing.blockers[0].kind is StageBlockerKind.WINDOW
    assert standing.retry_at == datetime(2026, 11, 20, 22, tzinfo=UTC).timestamp()


def asked_facts(asked: AskedFleet, terms: RolloutSettings) -> Any:
    """The facts where the coordinator has these terms."""
    return replace(facts_of(asked, "n0"), settings=terms)


def test_failures_that_stop_a_rollout_have_their_command() -> None:
    asked = fleet(replace(TERMS, failures_in_all=1, failures_in_row=1), nodes=2)
    for agent in asked.agents.values():
        agent.ends = ["rolled-back"]
    asked.wish("sevenths")
    asked.pass_until(lambda: any(it.done for it in asked.agents.values()), within=200)
    asked.pass_until(lambda: not asked.open_leases(), within=200)
    failed = next(name for name, it in asked.agents.items() if it.done)
    other = {"n0": "n1", "n1": "n0"}[failed]
    standing = asked.standing(other)
    assert in_the_way(standing) == {("rollout", "annotation:sevenths")}
    assert standing is not None
    assert standing.command == "gpuscape mig rollout resume --after-failures -n gpuscape"
    assert standing.text.endswith("1 nodes failed")
    failed_standing = asked.standing(failed)
    assert failed_standing is not None
    assert failed_standing.name is StageName.REQUESTED
    assert "rolled-back" in failed_standing.text


def test_a_stuck_change_has_the_command_that_goes_on() -> None:
    asked = fleet()
    asked.agents["n0"].ends = ["stuck"]
    asked.wish("sevenths")
    asked.pass_until(lambda: bool(asked.agents["n0"].done), within=100)
    asked.pass_time(10)
    standing = asked.standing()
    assert standing is not None
    assert standing.name is StageName.CHANGED
    assert standing.text.startswith("stuck: ")
    assert asked.story()[StageName.UNCORDONED].state is StageState.AHEAD


def test_a_change_without_an_end_is_late() -> None:
    asked = fleet()
    asked.agents["n0"].change_seconds = 10_000
    asked.wish("sevenths")
    reach(asked, StageName.CHANGED)
    asked.pass_time(TERMS.end_seconds + 20)
    standing = asked.standing()
    assert standing is not None
    assert standing.name is StageName.CHANGED
    assert "It is late" in standing.text
    assert standing.seconds == pytest.approx(TERMS.end_seconds + 20, abs=10)


def test_an_agent_that_does_not_answer_is_named() -> None:
    asked = fleet()
    asked.wish("sevenths")
    reach(asked, StageName.DRAINED)
    asked.agents["n0"].is_away = True
    reach(asked, StageName.CHANGED)
    assert {it.kind for it in reach(asked, StageName.CHANGED).blockers} == {StageBlockerKind.AGENT}
    asked.pass_time(200)
    standing = asked.standing()
    assert standing is not None
    assert any("has not renewed its Lease for 2" in it.text for it in standing.blockers)


def test_an_agent_counts_for_as_long_as_its_lease_says() -> None:
    """Its own duration, whatever others have."""
    asked = fleet()
    asked.agents["n0"].lease_seconds = 600
    asked.wish("sevenths")
    reach(asked, StageName.DRAINED)
    asked.agents["n0"].is_away = True
    reach(asked, StageName.CHANGED)
    asked.pass_time(200)
    standing = asked.standing()
    assert standing is not None
    assert not any("has not renewed its Lease" in it.text for it in standing.blockers)


def test_no_coordinator_is_named() -> None:
    asked = fleet()
    asked.wish("sevenths")
    reach(asked, StageName.DRAINED)
    asked.run_coordinator = lambda: None  # type: ignore[method-assign]  # it is gone
    asked.pass_time(130)
    standing = asked.standing()
    assert standing is not None
    assert standing.name is StageName.DRAINED
    assert standing.blockers[0].kind is StageBlockerKind.COORDINATOR
    assert "app.kubernetes.io/component=coordinator" in standing.command


def test_parts_of_the_gpu_operator_that_pause_are_a_stage_of_a_mode_change_alone() -> None:
    asked = fleet()
    label = "nvidia.com/gpu.deploy.device-plugin"
    asked.edit("n0", {"metadata": {"labels": {label: "true"}}})
    asked.agents["n0"].modes = True
    asked.wish("sevenths")
    asked.pass_until(
        lambda: asked.node("n0")["metadata"]["labels"][label] == PAUSED, within=100, step=0.5
    )
    story = asked.story()
    assert story[StageName.PAUSED].state in (StageState.NOW, StageState.DONE)
    reach(asked, StageName.CHANGED)
    assert asked.story()[StageName.PAUSED].state is StageState.DONE


def test_pods_of_paused_parts_that_have_not_gone_are_named() -> None:
    asked = fleet()
    label = "nvidia.com/gpu.deploy.dcgm-exporter"
    labels = {label: "true", "nvidia.com/gpu.deploy.device-plugin": "true"}
    asked.edit("n0", {"metadata": {"labels": labels}})
    container = {"name": "c", "resources": {"limits": {}}}
    spec = {"nodeName": "n0", "nodeSelector": {label: "true"}, "containers": [container]}
    asked.people.create(PODS, {"metadata": {"name": "exporter"}, "spec": spec}, namespace="default")
    asked.agents["n0"].modes = True
    asked.wish("sevenths")
    asked.pass_until(
        lambda: asked.node("n0")["metadata"]["labels"][label] == PAUSED, within=100, step=0.5
    )
    asked.pass_time(10)
    standing = asked.standing()
    assert standing is not None
    assert standing.name is StageName.PAUSED
    assert in_the_way(standing) == {("pod", "default/exporter")}
    assert standing.command == "kubectl -n default describe pod exporter"
    asked.server.delete(PODS, "exporter", "default")
    reach(asked, StageName.CHANGED)


def test_a_cordon_of_an_admin_who_keeps_it_is_no_stage() -> None:
    asked = fleet()
    asked.cordon("n0")
    asked.annotate("n0", keep_cordoned="")
    asked.wish("sevenths")
    asked.pass_until(lambda: bool(asked.open_leases()), within=60)
    reach(asked, None)
    assert asked.is_cordoned("n0")
    assert "keeps it cordoned" in asked.story()[StageName.UNCORDONED].text


@pytest.mark.parametrize(
    ("kind", "stage", "words"),
    [
        (LEASES, StageName.SLOT, "list and watch leases.coordination.k8s.io"),
        (PODS, StageName.DRAINED, "list and watch pods"),
        (CONFIG_MAPS, StageName.DESIRED, "get configmaps"),
    ],
)
def test_what_may_not_be_read_is_said_in_its_line_and_the_rest_is_shown(
    kind: ApiResource, stage: StageName, words: str
) -> None:
    asked = fleet()
    asked.bind_pod("n0", "job", blocking=True)
    asked.wish("sevenths")
    asked.pass_time(20)
    for verb in ("watch", "get"):
        asked.person.fail(verb, Forbidden("no"), resource=kind, times=99)
    story = asked.story()
    assert [words in text for text in story[stage].unread] == [True]
    assert all("you may not" in text for text in story[stage].unread)
    standing = standing_in(story)
    assert standing is not None
    assert standing.name is StageName.SLOT
