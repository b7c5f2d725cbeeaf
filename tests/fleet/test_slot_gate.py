# SPDX-License-Identifier: Apache-2.0
"""Who gets a slot: within the number of slots, in order, and everybody else with a reason."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from api.mig_outcome import Outcome
from api.mig_permit_annotation import MigPermitAnnotation, PermitPhase, encode
from api.mig_request_annotation import MigRequestAnnotation
from api.mig_status_annotation import MigStatusAnnotation, RequestSource
from fleet.gpu_pod import GpuPod
from fleet.mig_node import DrainMode, MigNode, UnavailableReason
from fleet.rollback_record import RollbackRecord
from fleet.rollout_memory import EMPTY, NodeEnd, RolloutMemory, rollout_id, with_end
from fleet.rollout_settings import RolloutSettings
from fleet.slot_gate import FleetView, WaitReason, decide, drain_of, taking_part
from fleet.slot_lease import PARKING, SlotLease
from fleet.turns.node_turns import NodeTurns

NOW = 1_800_000_000.0
ASKED = ("a", "b")


def asking(name: str, asked: str = "a", **more: object) -> MigNode:
    """A node whose agent waits for leave."""
    request = name.encode().hex()[:16].rjust(16, "0")
    node = MigNode(
        name=name,
        uid=name,
        version="1",
        request=MigRequestAnnotation(v=2, request=request, plan=f"{0:016x}", gpus=(0,)),
        status=MigStatusAnnotation(
            v=2, phase="waiting", source=RequestSource.ANNOTATION, desired=asked, request=request
        ),
        rollout=f"annotation:{asked}",
    )
    return replace(node, **more)  # type: ignore[arg-type]


def record(node: str, asked: str = "a") -> RollbackRecord:
    return RollbackRecord(
        v=2, node=node, uid=node, request=f"{1:016x}", rollout=f"annotation:{asked}"
    )


def pod(node: str, number: int) -> GpuPod:
    name = f"{node}-{number}"
    return GpuPod(namespace="d", name=name, uid=name, node=node, key=f"{number:08x}", holds=True)


def view(
    *nodes: MigNode,
    slots: tuple[SlotLease, ...] = (),
    memory: RolloutMemory = EMPTY,
    pods: dict[str, tuple[GpuPod, ...]] | None = None,
) -> FleetView:
    return FleetView(
        nodes={node.name: node for node in nodes}, pods=pods or {}, slots=slots, memory=memory
    )


def an_end(asked: str, node: str, outcome: Outcome) -> NodeEnd:
    return NodeEnd(rollout=asked, uid=node, request="0" * 16, outcome=outcome, is_shown=True)


PROVEN = with_end(EMPTY, an_end("annotation:a", "x", Outcome.APPLIED), int(NOW) - 10_000)
NO_TURNS = NodeTurns(60.0)


def with_others(name: str, count: int) -> tuple[MigNode, tuple[GpuPod, ...]]:
    """A node whose pods are not in the way."""
    node = asking(name)
    assert node.request is not None
    others = tuple(f"{number:08x}" for number in range(count))
    request = msgspec.structs.replace(node.request, other_pods=others)
    return replace(node, request=request), tuple(pod(name, number) for number in range(count))


def test_nodes_without_pods_go_first_and_then_those_with_the_fewest() -> None:
    made = [with_others("many", 3), with_others("few", 1), with_others("none", 0)]
    pods = {node.name: found for node, found in made}
    decision = decide(
        view(*(node for node, _ in made), memory=PROVEN, pods=pods),
        RolloutSettings(slots=2),
        NO_TURNS,
        NOW,
    )
    assert [take.node for take in decision.take] == ["none", "few"]
    assert decision.waiting == {"many": WaitReason.SLOT}


def test_a_node_whose_pods_are_evicted_need_not_be_idle() -> None:
    found = (pod("n", 7),)
    for drain, taken in (("", []), ("wait", []), ("evict", ["n"]), ("node", ["n"])):
        decision = decide(
            view(asking("n", drain=drain), pods={"n": found}),
            RolloutSettings(slots=1),
            NO_TURNS,
            NOW,
        )
        assert [take.node for take in decision.take] == taken


def test_a_parked_record_takes_no_slot_and_its_node_gets_none() -> None:
    parked = SlotLease(number=PARKING, version="1", record=record("held"))
    decision = decide(
        view(asking("held"), asking("next"), slots=(parked,), memory=PROVEN),
        RolloutSettings(slots=1),
        NO_TURNS,
        NOW,
    )
    assert [(take.node, take.number) for take in decision.take] == [("next", 0)]


def test_slots_of_a_larger_number_count_while_they_are_in_use() -> None:
    slots = (SlotLease(number=2, version="1", holder="x", record=record("x", "b")),)
    decision = decide(view(asking("n"), slots=slots), RolloutSettings(slots=1), NO_TURNS, NOW)
    assert decision.take == ()
    assert decision.waiting == {"n": WaitReason.SLOT}


def test_a_go_without_a_record_takes_a_slot_until_it_is_undone() -> None:
    permit = MigPermitAnnotation(
        v=2, request=f"{1:016x}", phase=PermitPhase.PROCEED, owns_cordon=True
    )
    lost = asking("lost", permit=permit, permit_text=encode(permit))
    decision = decide(
        view(lost, asking("next"), memory=PROVEN), RolloutSettings(slots=1), NO_TURNS, NOW
    )
    assert decision.take == ()
    assert decision.waiting == {"next": WaitReason.SLOT}


def test_a_rollout_is_over_when_no_node_takes_part_any_more() -> None:
    a, b = rollout_id("annotation:a"), rollout_id("annotation:b")
    slot = SlotLease(number=0, version="1", holder="x", record=record("x", "b"))
    assert taking_part(view(asking("n"), slots=(slot,))) == {a, b}
    done = MigStatusAnnotation(
        v=2, phase="unchanged", desired="a", request=f"{1:016x}", outcome="applied"
    )
    assert taking_part(view(MigNode(name="n", uid="n", version="1", status=done))) == frozenset()


@st.composite
def fleets(draw: st.DrawFn) -> tuple[FleetView, RolloutSettings]:
    nodes = [
        asking(
            f"n{number}",
            draw(st.sampled_from(ASKED)),
            away=draw(st.sampled_from([None, None, None, *UnavailableReason])),
            unschedulable=draw(st.sampled_from([False, False, True])),
            keeps_cordon=draw(st.booleans()),
            drain=draw(st.sampled_from(["", "", "wait", "cordon", "evict", "node", "else"])),
        )
        for number in range(draw(st.integers(0, 8)))
    ]
    slots = tuple(
        SlotLease(
            number=number,
            version="1",
            holder=f"r{number}",
            record=record(f"r{number}", draw(st.sampled_from(ASKED))),
        )
        for number in draw(st.sets(st.integers(0, 3)))
    )
    memory = EMPTY
    for number, end in enumerate(draw(st.lists(st.sampled_from(list(Outcome)), max_size=4))):
        asked = f"annotation:{draw(st.sampled_from(ASKED))}"
        at = int(NOW) - draw(st.sampled_from([60, 130, 300, 700]))
        memory = with_end(memory, an_end(asked, f"{number}", end), at)
    terms = RolloutSettings(slots=draw(st.integers(0, 4)), most_away=draw(st.integers(0, 3)))
    return view(*nodes, slots=slots, memory=memory), terms


@given(fleets())
def test_whatever_the_fleet_looks_like_the_rules_hold(
    made: tuple[FleetView, RolloutSettings],
) -> None:
    fleet, terms = made
    decision = decide(fleet, terms, NO_TURNS, NOW)
    used = {slot.number for slot in fleet.slots}
    numbers = [take.number for take in decision.take]
    assert len(set(numbers)) == len(numbers)
    assert used.isdisjoint(numbers)
    assert all(number < terms.slots for number in numbers)
    assert len(used | set(numbers)) <= max(terms.slots, len(used))
    taken = {take.node for take in decision.take}
    assert taken.isdisjoint(decision.waiting)
    assert taken | decision.waiting.keys() == fleet.nodes.keys()
    for name in taken:
        node = fleet.nodes[name]
        assert node.away is None
        assert node.keeps_cordon or not node.unschedulable
        assert node.drain != "else"
    running = Counter(slot.record.rollout for slot in fleet.slots if slot.record is not None)
    for asked in {fleet.nodes[name].rollout for name in taken}:
        counts = fleet.memory.rollouts.get(rollout_id(asked))
        begun = running[asked] + sum(fleet.nodes[name].rollout == asked for name in taken)
        if counts is None or not counts.proven_at:
            assert begun == 1
        if counts is not None:
            if counts.in_row >= 2:  # stopped for a while, which is over: one is tried alone
                assert begun == 1
                assert NOW - counts.failed_at >= terms.row_seconds * 2 ** (counts.in_row - 2)
            assert counts.failed < 3
    if not fleet.nodes or decision.take or terms.slots <= len(used):
        return
    assert WaitReason.SLOT not in decision.waiting.values()


def test_pods_leave_by_the_annotation_then_the_fleet_policy_then_the_setting() -> None:
    bare, own = asking("bare"), asking("own", drain="wait")
    policed = replace(view(bare, own), drains=dict.fromkeys(("bare", "own"), DrainMode.EVICT))
    terms = RolloutSettings(drain=DrainMode.NODE)
    assert drain_of(policed, bare, terms) == "evict"
    assert drain_of(policed, own, terms) == "wait"
    assert drain_of(view(bare), bare, terms) == "node"


def test_a_repair_only_waits_and_a_word_that_is_none_is_still_reported() -> None:
    node, typo = asking("n", drain="evict"), asking("typo", drain="gently")
    assert node.request is not None
    assert typo.request is not None
    repair = replace(node, request=msgspec.structs.replace(node.request, drift=True))
    wrong = replace(typo, request=msgspec.structs.replace(typo.request, drift=True))
    pods: dict[str, tuple[GpuPod, ...]] = {"n": (pod("n", 7),)}
    assert drain_of(view(repair), repair, RolloutSettings(drain=DrainMode.NODE)) == "wait"
    decision = decide(view(repair, wrong, pods=pods), RolloutSettings(slots=2), NO_TURNS, NOW)
    assert decision.take == ()
    assert decision.waiting == {"n": WaitReason.DRIFT, "typo": WaitReason.DRAIN}


def test_no_more_nodes_wait_behind_a_cordon_than_may_and_idle_ones_do_not_count() -> None:
    held = msgspec.structs.replace(record("w"), drain="cordon")
    going = msgspec.structs.replace(held, proceed_at=int(NOW))
    nodes = [asking(name, drain="cordon") for name in ("a", "b", "c", "idle")]
    pods: dict[str, tuple[GpuPod, ...]] = {name: (pod(name, 7),) for name in ("a", "b", "c")}

    def taken(most: int, *slots: SlotLease) -> tuple[list[str], set[WaitReason]]:
        fleet = view(*nodes, slots=slots, memory=PROVEN, pods=pods)
        decision = decide(fleet, RolloutSettings(slots=8, most_cordoned=most), NO_TURNS, NOW)
        return [take.node for take in decision.take], set(decision.waiting.values())

    limit = {WaitReason.CORDONED_NODES}
    assert taken(0) == (["idle"], limit)
    assert taken(2) == (["idle", "a", "b"], limit)
    assert taken(2, SlotLease(number=0, version="1", record=held)) == (["idle", "a"], limit)
    assert taken(3, SlotLease(number=0, version="1", record=going)) == (
        ["idle", "a", "b", "c"],
        set(),
    )
