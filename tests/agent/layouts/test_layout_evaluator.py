# SPDX-License-Identifier: Apache-2.0
"""When a layout is judged anew, and what is known of a Node while parts of it do not answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from agent.layouts.enforced_layouts import EnforcePorts
from agent.layouts.layout_evaluator import (
    REREAD_SECONDS,
    UNREAD_SECONDS,
    Evaluation,
    LayoutEvaluator,
    LayoutInputs,
    NodeFacts,
)
from agent.layouts.layout_request import LayoutRequest
from api.actuator.actuator_messages import GpuUser, StateAnswer, UseAnswer
from api.mig_status_annotation import RequestSource
from base.errors import BadInput
from discovery.driver_errors import ReaderGone, Released
from discovery.gpu_part import GpuPart
from discovery.mig_state import MigReading, UnreadMigGpu
from discovery.model import GpuState, Mode, NodeSnapshot
from discovery.sample import Process, ProcessKind
from kubelet.allocated_devices import AllocatedDevice, GpuContainer, NodeAllocation
from mig.configs.mig_config_file import parse_mig_configs
from mig.configs.mig_configs import MigConfigs
from tests import build
from tests.mig.naive_gpu import mig_gpu

SPLIT = mig_gpu("a100-sxm4-40gb", ("1g.5gb", 0), ("3g.20gb", 4))
SMALL = next(it.id for it in SPLIT.instances if it.profile == "1g.5gb")
OFF = replace(
    mig_gpu("a100-sxm4-40gb", mode=Mode(current=False, pending=False), resetless=True),
    uuid=SPLIT.uuid,
    minor=3,
)
"""MIG is turned on for the layout, without a reset."""
WANTED = LayoutRequest(source=RequestSource.ANNOTATION, text='{"0": {"7g.40gb": 1}}')
THERE = LayoutRequest(source=RequestSource.ANNOTATION, text='{"0": {"1g.5gb": 1, "3g.20gb": 1}}')
ENFORCE = EnforcePorts(ask=lambda _: StateAnswer(), closed=lambda: True, load=lambda: "boot-1")


def snapshot(**facts: Any) -> NodeSnapshot:
    return build.node([build.gpu(0, bus_id=SPLIT.bus_id, uuid=SPLIT.uuid, **facts)])


def held(*pods: str) -> NodeAllocation:
    """These pods have the small instance."""
    device = AllocatedDevice(
        part=GpuPart(bus_id=SPLIT.bus_id, gpu_instance_id=SMALL), resource="r", id="MIG-0"
    )
    return NodeAllocation(
        pods=frozenset(f"team/{pod}" for pod in pods),
        containers=tuple(
            GpuContainer(namespace="team", pod=pod, container="main", devices=(device,))
            for pod in pods
        ),
    )


FACTS = NodeFacts(metadata={"name": "node-a"}, snapshot=snapshot(), allocation=NodeAllocation())


@dataclass
class EvaluatedNode:
    """A node with its evaluator, whose GPUs and files a test sets."""

    gpus: Sequence[MigReading] = (SPLIT,)
    failure: Exception | None = None
    configs: MigConfigs | BadInput | None = None
    kubelet: BadInput | None = None
    enforce: EnforcePorts | None = ENFORCE
    openers: tuple[GpuUser, ...] = ()
    facts: NodeFacts = FACTS
    reads: int = 0
    evaluator: LayoutEvaluator = field(init=False)

    def __post_init__(self) -> None:
        self.evaluator = LayoutEvaluator(
            LayoutInputs(
                read=self._read,
                snapshot=lambda: self.facts.snapshot,
                configs=lambda: _given(self.configs),
                kubelet=lambda: _given(self.kubelet),
                gpu_use=lambda: UseAnswer(users=self.openers),
                enforce=self.enforce,
            )
        )

    def at(self, now: float, request: LayoutRequest = WANTED, **facts: Any) -> Evaluation | None:
        """What is found at this time; None where the last finding still holds."""
        return self.evaluator.evaluate(request, replace(self.facts, **facts), now)

    def found(self, now: float = 0.0, request: LayoutRequest = WANTED, **facts: Any) -> Evaluation:
        judged = self.at(now, request, **facts)
        assert judged is not None
        return judged

    def _read(self) -> Sequence[MigReading]:
        self.reads += 1
        if self.failure is not None:
            raise self.failure
        return self.gpus


def _given(value: Any) -> Any:
    if isinstance(value, BadInput):
        raise value
    return value


def program(instance: int | None) -> Process:
    return Process(pid=7, kind=ProcessKind.COMPUTE, gpu_instance_id=instance)


@pytest.mark.parametrize(
    ("setting", "seconds"),
    [
        ({}, 300.0),
        ({"gpus": (UnreadMigGpu(bus_id=SPLIT.bus_id, gaps=()),)}, 30.0),
        ({"failure": ReaderGone("gone")}, 30.0),
        ({"gpus": (replace(SPLIT, processes=(program(SMALL),)),)}, 30.0),
        ({"gpus": (OFF,)}, 300.0),
        ({"gpus": (replace(OFF, processes=(program(None),)),)}, 30.0),
        ({"gpus": (OFF,), "openers": (GpuUser(minor=3, pid=7, name="x"),)}, 30.0),
        ({"gpus": (OFF,), "openers": (GpuUser(minor=4, pid=7, name="x"),)}, 300.0),
        ({"gpus": (OFF,), "openers": (GpuUser(minor=3, pid=7, name="x", pod="p"),)}, 300.0),
        ({"openers": (GpuUser(minor=3, pid=7, name="x"),)}, 300.0),
    ],
    ids=[
        *("read", "a GPU unread", "no reader", "in use by a program"),
        *("mode", "mode, in use", "mode, open", "mode, another one open"),
        *("mode, open in a pod", "no mode, open"),
    ],
)
def test_the_gpus_are_read_again_after_five_minutes_or_half_a_one_where_something_waits(
    setting: dict[str, Any], seconds: float
) -> None:
    assert (REREAD_SECONDS, UNREAD_SECONDS) == (300.0, 30.0)
    node = EvaluatedNode(**setting)
    first = node.found(now=1000.0)
    assert node.at(1000.0 + seconds - 0.001) is None
    assert node.found(now=1000.0 + seconds) == first
    assert node.reads == 2


@pytest.mark.parametrize(("sooner", "judged_at"), [(60.0, 60.0), (299.0, 299.0), (301.0, 300.0)])
def test_a_look_may_be_had_sooner_and_never_later(sooner: float, judged_at: float) -> None:
    node = EvaluatedNode()
    node.found(now=0.0)
    node.evaluator.evaluate_by(sooner)
    assert node.at(judged_at - 0.001) is None
    assert node.at(judged_at) is not None


CONFIGS = parse_mig_configs(
    "version: v1\nmig-configs: {mine: [{devices: all, mig-enabled: false}]}", "config.yaml"
)
CHANGES: dict[str, Callable[[EvaluatedNode], dict[str, Any]]] = {
    "another MIG mode": lambda _: {"snapshot": snapshot(mig=build.SPLIT)},
    "another device": lambda _: {"snapshot": snapshot(mig_devices=(build.mig_device(),))},
    "another state": lambda _: {
        "snapshot": build.node([build.silent(0, GpuState.LOST, bus_id=SPLIT.bus_id)])
    },
    "another pod": lambda _: {"allocation": held("job")},
    "the kubelet not asked": lambda _: {"allocation": None},
    "GPUs that changed": lambda _: {"changes": 1},
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_a_verdict_rests_on_has_it_judged_at_once_when_it_changes(what: str) -> None:
    node = EvaluatedNode()
    node.found(now=0.0)
    assert node.at(1.0) is None
    facts = CHANGES[what](node)
    assert node.at(1.0, **facts) is not None
    assert node.at(2.0, **facts) is None


def test_another_request_and_another_file_are_judged_at_once_and_the_heat_of_a_gpu_is_not() -> None:
    node = EvaluatedNode()
    node.found(now=0.0)
    assert node.at(1.0, snapshot=snapshot(model="NVIDIA A100")) is None
    assert node.at(1.0, THERE) is not None
    node.configs = CONFIGS
    assert node.at(1.0, THERE) is not None
    assert node.at(1.0, THERE) is None
    node.evaluator.forget()
    assert node.at(1.0, THERE) is not None


def test_other_managers_are_named_together_and_no_gpu_is_read() -> None:
    node = EvaluatedNode()
    node.facts = replace(
        FACTS,
        metadata={
            "name": "node-a",
            "labels": {"cloud.google.com/gke-gpu-partition-size": "1g.5gb"},
            "annotations": {"hami.io/node-nvidia-register": "x"},
        },
    )
    for _ in range(2):  # each time: it costs nothing, and they may go
        found = node.found()
        assert (found.foreign, found.status.phase, node.reads) == (True, "refused", 0)
        assert found.status.reason == (
            "GKE (label cloud.google.com/gke-gpu-partition-size=1g.5gb) and HAMi (annotation"
            " hami.io/node-nvidia-register) manages MIG on this node"
        )
        assert found.desired is not None
        assert found.desired.change is None


@pytest.mark.parametrize(
    ("setting", "phase"),
    [
        ({"configs": BadInput("config.yaml:3: wrong")}, "refused"),
        ({"kubelet": BadInput("the checkpoint is damaged")}, "unread"),
        ({"failure": ReaderGone("the reader is gone")}, "unread"),
    ],
)
def test_what_cannot_be_read_is_the_reason_and_nothing_is_changed(
    setting: dict[str, Any], phase: str
) -> None:
    found = EvaluatedNode(**setting).found()
    (error,) = setting.values()
    assert (found.status.phase, found.status.reason) == (phase, str(error))
    assert found.desired is None or found.desired.change is None
    assert (found.desired is None) is (phase == "unread"), "a request is kept while it is unread"
    assert not found.foreign


def test_released_handles_change_no_verdict() -> None:
    node = EvaluatedNode(failure=Released("released"))
    assert node.at(0.0) is None
    node.failure = None
    assert node.at(0.0) is not None


@pytest.mark.parametrize(
    ("request_", "change", "unchanged"), [(WANTED, True, False), (THERE, False, True)]
)
def test_whoever_carries_it_out_is_given_the_change_and_by_how_many_changes_it_was_read(
    request_: LayoutRequest, change: bool, unchanged: bool
) -> None:
    found = EvaluatedNode().found(request=request_, changes=3)
    assert found.desired is not None
    assert (found.desired.change is not None, found.desired.unchanged) == (change, unchanged)
    assert (found.desired.changes, found.desired.plan) == (3, found.status.plan)
    again = EvaluatedNode().found(1.0, request_, changes=4).desired
    assert again is not None
    assert found.desired.key == again.key
    assert EvaluatedNode(enforce=None).found(request=request_).desired is None


def test_until_the_kubelet_has_answered_there_is_a_plan_and_nobody_carries_it_out() -> None:
    enforced, observed = EvaluatedNode(), EvaluatedNode(enforce=None)
    for node in (enforced, observed):
        found = node.found(allocation=None)
        assert (found.status.phase, found.desired) == ("planned", None)
    assert "pod-resources socket" in enforced.found(400.0, allocation=None).status.reason
    assert enforced.found().status.reason == ""
    assert "nothing is changed by itself" in observed.found().status.reason
