# SPDX-License-Identifier: Apache-2.0
"""The rules of one change, tried on states of all kinds, also on those that should never be."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TypeVar

import msgspec
import pytest

from api import keys, names
from api.mig_outcome import Outcome
from api.mig_permit_annotation import MigPermitAnnotation, PermitPhase, encode
from api.mig_request_annotation import MigRequestAnnotation
from api.mig_status_annotation import MigStatusAnnotation
from base.text import rfc3339
from fleet import node_patches
from fleet.change_effects import (
    ChangeEffect,
    EvaluateDrain,
    EvictDeviceUsers,
    EvictPods,
    FreeSlot,
    NodeWrite,
    ParkRecord,
    PatchNode,
    WriteRecord,
)
from fleet.drain.drain_blocker import BlockerKind, DrainBlocker
from fleet.drain.drain_plan import DrainPlan
from fleet.drain.drain_pod import DrainPod
from fleet.drain.gpu_usage import GpuUsage, is_idle, usage_of
from fleet.gpu_pod import GpuPod
from fleet.mig_change import STILL_PAUSING, ChangeView, next_effect
from fleet.mig_node import KURED_CORDON, REBOOT, MigNode, UnavailableReason, node_of
from fleet.rollback_record import RollbackRecord
from fleet.rollout_settings import GUARD, PAUSED, USAGE_SECONDS, RolloutSettings
from fleet.slot_lease import PARKING, SlotLease
from kube.objects.pod import Pod
from kube.objects.typed_object import Metadata
from tests.fleet.cordoned_node import NOW, REQUEST, cordoned_view

R, OTHER = REQUEST, f"{2:016x}"
TERMS = RolloutSettings()
PLUGIN = "nvidia.com/gpu.deploy.device-plugin"
SLOT = SlotLease(number=0, version="1")
PARKED = SlotLease(number=PARKING, version="1")
EXPORTER = "nvidia.com/gpu.deploy.dcgm-exporter"

GUARDS = [None, GUARD, "false"]
LABELS = [(), ((PLUGIN, "true"),), ((PLUGIN, PAUSED),), ((PLUGIN, "false"),)]
OFFERS = [(), (("nvidia.com/gpu", 8),), (("nvidia.com/mig-1g.10gb", 7),)]
IDS = [R, R, R, OTHER]
TIMES = [0, NOW - 5000, NOW - 200, NOW - 60, NOW - 6, NOW - 1, NOW]
PODS = [(), ("aaaaaaaa",), ("bbbbbbbb",), ("aaaaaaaa", "bbbbbbbb")]
USER = DrainPod.owned(Pod(metadata=Metadata(namespace="d", name="h", uid="h")), {})
BLOCKER = DrainBlocker(kind=BlockerKind.BUDGET, name="d/h", text="It may not.")
PLANS = [
    DrainPlan(),
    DrainPlan(evict=(USER,)),
    DrainPlan(awaited=(USER,)),
    DrainPlan(blockers=(BLOCKER,)),
]
STATES = 4000
Value = TypeVar("Value")


class States:
    """Draws views of one change: of all kinds, and such as are in most changes."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311  # states, no secret

    def one(self, *values: Value) -> Value:
        """Any of these."""
        return self._random.choice(values)

    def usual(self, value: Value, other: Value) -> Value:
        """The first one, mostly."""
        return other if self._random.random() < 1 / 8 else value

    def permit(self) -> tuple[MigPermitAnnotation | None, str | None]:
        """A permit and its text; damaged, or none."""
        kind = self.one("none", "damaged", "permit", "permit", "permit")
        if kind != "permit":
            return None, None if kind == "none" else "{"
        permit = MigPermitAnnotation(
            v=2,
            request=self.one(*IDS),
            phase=self.one(*PermitPhase),
            owns_cordon=self.one(True, False),
        )
        return permit, encode(permit)

    def node(self) -> MigNode:
        """A Node in any state."""
        permit, text = self.permit()
        request = MigRequestAnnotation(
            v=2,
            request=self.one(*IDS),
            plan=R,
            gpus=(0,),
            pods=self.one((), (), ("cccccccc",)),
            other_pods=self.one(*PODS),
            unlisted=self.one(0, 0, 0, 1),
            drift=self.one(False, False, True),
            programs=self.one((), (), ("4711 nv-hostengine",)),
        )
        status = MigStatusAnnotation(
            v=2,
            phase=self.one("waiting", "changing", "rebooting", "failed"),
            request=self.one(*IDS, ""),
            outcome=self.one("", "", "", *Outcome, "later-word"),
        )
        return MigNode(
            name="n",
            uid=self.one("u", "u", "u", "v"),
            version="7",
            away=self.one(None, None, None, *UnavailableReason),
            unschedulable=self.one(True, False),
            keeps_cordon=self.one(False, False, True),
            rollout=self.usual("annotation:x", ""),
            request=self.one(request, request, None),
            status=self.one(status, status, None),
            status_damaged=self.one(False, False, True),
            permit=permit,
            permit_text=text,
            guards=(self.one(*GUARDS), self.one(*GUARDS)),
            deploy=self.one(*LABELS),
            allocatable=self.one(*OFFERS),
        )

    def view(self) -> ChangeView:
        """A change in any state."""
        guards = (self.one(*GUARDS), self.one(*GUARDS))
        record = RollbackRecord(
            v=2,
            node="n",
            uid="u",
            request=R,
            rollout="annotation:x",
            taken_at=self.one(*TIMES),
            cordon=self.one(True, False),
            guards=dict(zip(names.SCALE_DOWN_GUARDS, guards, strict=True)),
            labels=self.one({}, {PLUGIN: "true"}),
            allocatable=dict(self.one(*OFFERS)),
            allocatable_before=dict(self.one(*OFFERS)),
            drain=self.one("", "", "cordon", "evict", "node", "else"),
            drain_at=self.one(*TIMES),
            cordoned_at=self.one(*TIMES),
            proceed_at=self.one(*TIMES),
            outcome=self.one("", "", "applied", "rolled-back", "superseded"),
            restarts=self.one(0, 1, 2, 3),
            restarted_at=self.one(*TIMES),
            replaced=self.one((), ("p1",)),
            counted=self.one(True, False),
        )
        pod = GpuPod(
            namespace="default",
            name="pod",
            uid=self.one("p1", "p2"),
            node="n",
            key=self.one("aaaaaaaa", "dddddddd"),
            holds=self.one(True, False),
            is_plugin=self.one(True, False),
            paused_by=self.one("", PLUGIN, EXPORTER),
            is_ready=self.one(True, False),
            is_placed=self.one(True, True, False),
        )
        usage = GpuUsage(
            read_at=self.one(*TIMES),
            held=frozenset(self.one(*PODS)),
            all_placed=self.one(True, True, False),
        )
        return ChangeView(
            record=record,
            slot=self.one(SLOT, SLOT, SLOT, PARKED, PARKED, PARKED, None, None),
            node=self.one(self.node(), self.node(), self.node(), None),
            pods=self.one((), (pod,)),
            usage=self.one(usage, None),
            drain_plan=self.one(None, replace(self.one(*PLANS), evaluated_at=self.one(*TIMES))),
            is_counted=self.one(True, False),
        )

    def likely_view(self) -> ChangeView:
        """A change before its go as most are, but for what is drawn to be otherwise."""
        view, node, is_held = self.view(), self.node(), self.one(True, False)
        cordon = self.usual(True, view.record.cordon)
        permit = MigPermitAnnotation(v=2, request=R, phase=PermitPhase.CORDONED, owns_cordon=cordon)
        request = MigRequestAnnotation(
            v=2,
            request=R,
            plan=R,
            gpus=(0,),
            drift=self.usual(False, True),
            programs=self.usual((), ("4711 nv-hostengine",)),
            other_pods=("aaaaaaaa",),
        )
        status = MigStatusAnnotation(v=2, phase="waiting", request=R)
        node = replace(
            node,
            uid="u",
            away=self.usual(None, node.away),
            unschedulable=self.usual(is_held, node.unschedulable),
            request=self.usual(request, node.request),
            status=self.usual(status, node.status),
            permit=self.usual(permit if is_held else None, node.permit),
        )
        text = None if node.permit is None else encode(node.permit)
        text = self.usual(None, node.permit_text) if text is None else text
        guards = dict(zip(names.SCALE_DOWN_GUARDS, node.guards, strict=True))
        record = msgspec.structs.replace(
            view.record,
            taken_at=NOW - 60,
            cordon=cordon,
            guards=self.usual(guards, view.record.guards),
            drain_at=self.one(0, 0, NOW - 6),
            cordoned_at=self.usual(
                NOW - self.one(50, 6) if is_held else 0, view.record.cordoned_at
            ),
            proceed_at=self.usual(0, view.record.proceed_at),
            outcome=self.usual("", view.record.outcome),
        )
        usage = GpuUsage(
            read_at=NOW - self.usual(5, self.one(8, 45)),
            held=frozenset(self.one(*PODS)),
            all_placed=self.usual(True, False),
        )
        return replace(
            view,
            record=record,
            slot=SLOT,
            node=replace(node, permit_text=text),
            usage=self.usual(usage, view.usage),
            drain_plan=self.usual(replace(self.one(*PLANS), evaluated_at=NOW - 1), view.drain_plan),
        )


def is_after(effect: PatchNode) -> dict[str, str | None]:
    """The annotations that a patch writes."""
    return dict(effect.patch["metadata"].get("annotations", {}))


def test_no_state_leads_to_a_write_that_breaks_a_rule() -> None:
    states = States(1)
    written, evicted = set(), 0
    for number in range(STATES):
        view = states.likely_view() if number % 2 else states.view()
        effect = next_effect(view, TERMS, NOW)
        judge(view, effect)
        if isinstance(effect, PatchNode):
            written.add(effect.purpose)
        evicted += isinstance(effect, EvictDeviceUsers)
    assert written == set(NodeWrite)
    assert evicted


def judge(view: ChangeView, effect: ChangeEffect) -> None:
    """Whether the effect keeps to the rules in this state."""
    node, record = view.node, view.record
    if not view.has_lease:
        assert effect is None or isinstance(effect, PatchNode)
    if isinstance(effect, EvictPods):
        assert all(pod.is_plugin and pod.uid in record.replaced for pod in effect.pods)
    if isinstance(effect, EvictDeviceUsers):
        assert node is not None
        assert node.rollout
        assert node.unschedulable
        assert node.permit is not None
        assert (node.permit.request, node.permit.phase) == (R, PermitPhase.CORDONED)
        assert record.drain in ("evict", "node")
        assert node.request is not None
        assert not node.request.drift
        assert NOW - TERMS.evictions.deadline_seconds <= record.drain_at <= NOW
        assert view.drain_plan is not None
        assert (
            max(record.cordoned_at, record.drain_at, NOW - USAGE_SECONDS)
            <= view.drain_plan.evaluated_at
        )
        assert not view.drain_plan.blockers
        assert effect.pods == view.drain_plan.evict
    if isinstance(effect, EvaluateDrain):
        assert node is not None
        assert record.drain in ("evict", "node")
        assert node.request is not None
        assert not node.request.drift
    if isinstance(effect, ParkRecord):
        assert not view.parked
        assert record.counted or NOW - record.proceed_at > TERMS.slot_seconds
    if not isinstance(effect, PatchNode):
        return
    assert node is not None
    if not node.rollout:  # nothing is done for a layout that nobody desires any more
        assert effect.purpose in (NodeWrite.RESUME, NodeWrite.ROLL_BACK)
    assert node.uid == record.uid
    assert effect.patch["metadata"]["resourceVersion"] == node.version
    permit = node.permit if node.permit is not None and node.permit.request == R else None
    spec = effect.patch.get("spec", {})
    match effect.purpose:
        case NodeWrite.CORDON:
            assert node.permit_text is None
            assert node.away is None
            assert node.request is not None
            if record.drain in ("evict", "node") and not node.request.drift:
                assert view.drain_plan is not None
                assert not view.drain_plan.blockers
            elif record.drain != "cordon" or node.request.drift:
                held = [pod for pod in view.pods if pod.holds]
                assert is_idle(node.request, usage_of(held))
                assert all(pod.is_placed for pod in held)
            assert not node.request.programs
            assert node.keeps_cordon or not node.unschedulable
            assert bool(spec) is record.cordon
            assert record.cordon is not node.unschedulable
            assert node.guards == tuple(record.guards.values())
        case NodeWrite.PROCEED | NodeWrite.PAUSE:
            assert permit is not None
            assert permit.phase is PermitPhase.CORDONED
            assert node.unschedulable
            assert node.away is None
            assert view.usage is not None
            assert record.cordoned_at <= view.usage.read_at
            assert view.usage.read_at >= NOW - USAGE_SECONDS
            assert node.request is not None
            assert is_idle(node.request, view.usage)
            assert view.usage.all_placed
            if effect.purpose is NodeWrite.PROCEED and record.labels:
                assert not any(pod.is_plugin for pod in view.pods)
                assert not any(pod.paused_by in record.labels for pod in view.pods)
            if record.drain == "node" and not node.request.drift and view.usage.held:
                assert view.drain_plan is not None
                assert view.drain_plan.is_done
            assert not spec
        case NodeWrite.RESUME | NodeWrite.ROLL_BACK:
            labels = effect.patch["metadata"].get("labels", {})
            assert all(dict(node.deploy)[it] == PAUSED for it in labels)
            assert all(labels[it] == record.labels[it] for it in labels)
            if spec:
                assert spec == {"unschedulable": None}
                assert record.cordon
                assert not node.keeps_cordon
                assert '"owns_cordon":true' in (node.permit_text or "")
                assert is_after(effect)[keys.MIG_PERMIT] is None
            if keys.MIG_PERMIT in is_after(effect):
                # an open go is left alone, and so is the permit of another request
                is_open = node.status is None or node.status.request != OTHER
                assert node.permit is None or permit is not None
                if (
                    permit is not None
                    and permit.phase is PermitPhase.PROCEED
                    and not record.outcome
                ):
                    ended = node.status is not None and node.status.outcome
                    unnamed = node.request is None or node.request.request != R
                    assert ended or unnamed or not is_open
            for guard, value in zip(names.SCALE_DOWN_GUARDS, node.guards, strict=True):
                if guard in is_after(effect):
                    assert value == GUARD
                    assert is_after(effect)[guard] == record.guards[guard]


@pytest.mark.parametrize("seed", range(20))
def test_a_node_that_is_gone_or_another_one_gives_its_slot_back(seed: int) -> None:
    view = States(seed).view()
    gone = next_effect(
        ChangeView(record=view.record, slot=view.slot or SLOT, node=None), TERMS, NOW
    )
    assert gone == FreeSlot(outcome="gone")
    if view.node is not None and view.node.uid != view.record.uid and view.has_lease:
        assert next_effect(view, TERMS, NOW) == gone


def usage(*held: str, all_placed: bool = True) -> GpuUsage:
    return GpuUsage(read_at=NOW, held=frozenset(held), all_placed=all_placed)


def test_a_kubelets_pod_without_a_device_yet_is_in_the_way() -> None:
    request = MigRequestAnnotation(v=2, request=R, plan=R, gpus=(0,), other_pods=("aaaaaaaa",))
    assert is_idle(request, usage("aaaaaaaa"))
    assert is_idle(request, usage())
    assert not is_idle(request, usage("aaaaaaaa", "bbbbbbbb"))
    assert not is_idle(request, usage("aaaaaaaa", all_placed=False))
    assert not is_idle(msgspec.structs.replace(request, unlisted=1), usage())
    assert not is_idle(msgspec.structs.replace(request, programs=("1 dcgm",)), usage())
    assert not is_idle(msgspec.structs.replace(request, pods=("cccccccc",)), usage())


def paused_view(*pods: GpuPod, cordoned_at: int = NOW - 60) -> ChangeView:
    """A change of modes behind its cordon, whose two clients of the GPUs are paused."""
    return cordoned_view(
        request={"modes": True},
        node={"cordoned_for": R, "deploy": ((EXPORTER, PAUSED), (PLUGIN, PAUSED))},
        record={
            "rollout": "annotation:x",
            "taken_at": cordoned_at,
            "cordoned_at": cordoned_at,
            "proceed_at": NOW - 1,
            "guards": dict.fromkeys(names.SCALE_DOWN_GUARDS),
            "labels": {EXPORTER: "true", PLUGIN: "true"},
        },
        pods=pods,
        usage=usage(),
    )


def client(paused_by: str) -> GpuPod:
    """A pod that asks for no GPU and keeps all of them open."""
    return GpuPod(
        namespace="gpu-operator",
        name="x",
        uid="x",
        node="n",
        key="eeeeeeee",
        holds=False,
        paused_by=paused_by,
    )


def test_a_change_proceeds_once_every_paused_client_has_gone() -> None:
    """Each of them would keep the driver from resetting a GPU; others are not waited for."""
    gone, stranger = paused_view(), client("nvidia.com/gpu.deploy.nvsm")
    proceed = next_effect(gone, TERMS, NOW)
    assert isinstance(proceed, PatchNode)
    assert proceed.purpose is NodeWrite.PROCEED
    assert next_effect(replace(gone, pods=(client(EXPORTER),)), TERMS, NOW) is None
    assert next_effect(replace(gone, pods=(client(PLUGIN),)), TERMS, NOW) is None
    assert next_effect(replace(gone, pods=(stranger, client(""))), TERMS, NOW) == proceed


def test_a_client_that_does_not_go_gives_the_node_back_as_it_was() -> None:
    """In the time that the node may be cordoned: uncordoned, with its labels, and it is named."""
    late = NOW - int(TERMS.hold_seconds) - 1
    view = paused_view(client(EXPORTER), cordoned_at=late)
    view = replace(view, record=msgspec.structs.replace(view.record, proceed_at=0))

    effect = next_effect(view, TERMS, NOW)

    assert isinstance(effect, PatchNode)
    assert (effect.purpose, effect.why) == (NodeWrite.ROLL_BACK, STILL_PAUSING)
    assert effect.patch["metadata"]["labels"] == {EXPORTER: "true", PLUGIN: "true"}
    assert effect.patch["spec"] == {"unschedulable": None}


@pytest.mark.parametrize(
    ("outcome", "begins_anew"), [(Outcome.ROLLED_BACK, False), (Outcome.APPLIED, True)]
)
def test_a_node_of_which_one_gpu_was_rolled_back_is_given_back_with_what_it_offers(
    outcome: Outcome, begins_anew: bool
) -> None:
    """The others have the desired layout, so it offers neither what it did nor what it is to."""
    record = RollbackRecord(
        v=2,
        node="n",
        uid="u",
        request=R,
        rollout="annotation:x",
        taken_at=NOW - 5000,
        cordon=True,
        allocatable={"nvidia.com/mig-1g.10gb": 56},
        allocatable_before={"nvidia.com/gpu": 8},
        proceed_at=NOW - 5000,
        outcome=outcome,
        counted=True,
        restarts=1,
        restarted_at=NOW - 4000,
    )
    offers = (("nvidia.com/gpu", 1), ("nvidia.com/mig-1g.10gb", 49))
    node = replace(States(1).node(), uid="u", deploy=(), allocatable=offers, permit=None)
    view = replace(States(1).view(), record=record, node=node, pods=(), slot=SLOT)

    effect = next_effect(view, TERMS, NOW)

    assert (isinstance(effect, WriteRecord) and effect.record.restarts == 2) is begins_anew


def test_labels_are_paused_that_are_as_the_record_has_them_and_resumed_that_we_paused() -> None:
    exporter, mine = "nvidia.com/gpu.deploy.dcgm-exporter", "by-me"
    record = RollbackRecord(
        v=2, node="n", uid="u", request=R, labels={PLUGIN: "true", exporter: "true"}
    )
    node = MigNode(name="n", uid="u", version="1", deploy=((exporter, "true"), (PLUGIN, mine)))
    paused = replace(node, deploy=((exporter, PAUSED), (PLUGIN, mine)))

    assert node_patches.pause_patch(node, record)["metadata"]["labels"] == {exporter: PAUSED}
    assert node_patches.resume_patch(paused, record)["metadata"]["labels"] == {exporter: "true"}


HOUR = 3600


@pytest.mark.parametrize(
    ("notes", "is_held"),
    [
        ({}, False),
        ({REBOOT: rfc3339.whole_seconds(NOW - HOUR)}, True),
        # kured announces a boot before it has its lock, and leaves the annotation where the file
        # goes meanwhile, as after a cancelled change
        ({REBOOT: rfc3339.whole_seconds(NOW - 3 * HOUR)}, False),
        # a clock that was wrong by years
        ({REBOOT: rfc3339.whole_seconds(NOW + 8760 * HOUR)}, False),
        ({REBOOT: "yes"}, True),
        ({REBOOT: rfc3339.whole_seconds(NOW - 3 * HOUR), KURED_CORDON: "true"}, True),
    ],
)
def test_a_cordon_is_not_held_for_ever_for_a_boot_that_kured_has_only_announced(
    notes: dict[str, str], is_held: bool
) -> None:
    note = {"metadata": {"name": "n", "annotations": notes}}
    view = paused_view(client(EXPORTER), cordoned_at=NOW - int(TERMS.hold_seconds) - 1)
    assert view.node is not None
    announced = node_of(note, ()).boot_announced
    view = replace(
        view,
        record=msgspec.structs.replace(view.record, proceed_at=0),
        node=replace(view.node, boot_announced=announced),
    )

    effect = next_effect(view, TERMS, NOW)

    assert (effect is None) is is_held
    assert is_held or (isinstance(effect, PatchNode) and "spec" in effect.patch)
