# SPDX-License-Identifier: Apache-2.0
"""What the Node shows of a change that is enforced, and when the agent's handles are closed."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from msgspec import structs

from agent.layouts import enforced_layouts
from agent.layouts.change_state import ActuatorTask
from agent.layouts.enforced_layouts import CAUSE, CLOSE_SECONDS, EnforcePorts
from agent.layouts.layout_evaluator import LayoutInputs
from agent.layouts.layout_watch import SETTLE_SECONDS, LayoutWatch
from agent.layouts.retry_times import FAILED_SECONDS, REFUSED_SECONDS
from agent.layouts.status_times import PODS_SECONDS
from api import keys, mig_permit_annotation, mig_request_annotation, mig_status_annotation, names
from api.actuator.actuator_messages import (
    ActuatorAnswer,
    ActuatorRefusal,
    ApplyRequest,
    ChangeAnswer,
    GpuUser,
    RefusalAnswer,
    StateAnswer,
    StateRequest,
    UseAnswer,
)
from api.mig_outcome import Outcome
from api.mig_permit_annotation import MigPermitAnnotation, PermitPhase
from api.mig_request_annotation import MOST_CHARACTERS, MigRequestAnnotation
from api.mig_resources import MOST_OFFERS, MigStrategy
from api.mig_status_annotation import MigStatusAnnotation
from api.state_annotation import pod_key
from base.errors import Transient
from base.local_socket import NoAnswer
from base.text import rfc3339
from discovery.driver_errors import Released
from discovery.gpu_part import GpuPart
from discovery.mig_state import MigGpu, MigReading
from discovery.model import Mode
from discovery.sample import Process, ProcessKind
from kubelet.allocated_devices import AllocatedDevice, GpuContainer, NodeAllocation
from kubelet.devices_checkpoint import NO_KUBELET, KubeletDevices
from labelers.decision import Absent, Value
from tests import build
from tests.agent.layouts.played_actuator import wanted
from tests.agent.virtual import VirtualRuntime
from tests.mig.naive_gpu import mig_gpu

SPLIT = mig_gpu("a100-sxm4-40gb", ("1g.5gb", 0), ("3g.20gb", 4))
WHOLE = mig_gpu("a100-sxm4-40gb", ("7g.40gb", 0))
WANTED, OTHER = '{"0": {"7g.40gb": 1}}', '{"0": {"3g.20gb": 2}}'


class EnforcingScene:
    """A Node, its agent's watch, and an actuator that ends each change as it is told, in virtual
    time; what the agent wants is on the Node at once."""

    def __init__(self) -> None:
        self.labels: dict[str, str] = {}
        self.node: dict[str, str] = {}
        self.gpu: MigGpu = SPLIT
        self.how: ActuatorAnswer | Exception | Outcome = Outcome.APPLIED
        self.state = StateAnswer()
        self.asked: list[ActuatorTask] = []
        self.jobs: list[Callable[[], None]] = []
        self.released: list[bool] = []
        """Whether the handles were to be closed, at each task that changes something."""
        self.news: list[str] = []
        self.ids = count(1)
        self.load = "boot-1"
        self.openers: tuple[GpuUser, ...] = ()
        self.together = ""
        """Who has GPUs open, as the actuator says."""
        self.wait_seconds = math.inf
        self.waits = False
        self.looks = 0
        """How often it was looked whether the handles are closed, for the present task."""
        self.strategy: MigStrategy | None = MigStrategy.MIXED
        self.wall = 1_700_000_000.0
        self.lag = 0
        """So often a reading still finds the handles closed."""
        self.history: list[tuple[str, str]] = []
        """Phase and end that the Node has shown."""
        self.allocation: NodeAllocation | None = NodeAllocation()
        """What an agent that starts knows at once of the kubelet's."""
        self.kubelet: KubeletDevices | None = None
        """What the kubelet's checkpoint has; None where that cannot be seen."""
        self.restored: MigGpu | None = None
        """What the GPU has once the actuator has restored what a boot took."""
        self.runtime = VirtualRuntime({"layouts": self.tick}, now=1000.0)
        self.start()

    def start(self, ports: EnforcePorts | None = None) -> None:
        """An agent that starts; the one before it has died."""
        self.jobs.clear()
        self.ports = ports or EnforcePorts(
            ask=self._ask,
            closed=self._closed,
            load=lambda: self.load,
            wait_seconds=self.wait_seconds,
            wake=lambda: self.runtime.trigger("layouts"),
            start=self.jobs.append,
        )
        self.watch = LayoutWatch(
            LayoutInputs(
                read=self._read,
                snapshot=lambda: build.node(
                    [build.gpu(0, bus_id=SPLIT.bus_id, uuid=SPLIT.uuid, mig=build.SPLIT)]
                ),
                strategy=self.strategy,
                gpu_use=lambda: UseAnswer(users=self.openers, together=self.together),
                kubelet=lambda: self.kubelet,
                enforce=self.ports,
            ),
            clock=self.runtime.clock,
            wall=lambda: self.wall + self.runtime.now,
        )
        if self.allocation is not None:
            self.watch.allocated(self.allocation)
        self.see()

    def see(self) -> None:
        fields: dict[str, object] = {f"f:{key}": {} for key in self.labels}
        owner = {
            "manager": names.AGENT,
            "operation": "Update",
            "fieldsV1": {"f:metadata": {"f:labels": fields}},
        }
        metadata = {
            "name": "node-a",
            "labels": dict(self.labels),
            "annotations": dict(self.node),
            "managedFields": [owner],
        }
        self.watch.observe(metadata)
        self.runtime.trigger("layouts")
        self._write()

    def ask(self, text: str | None) -> None:
        self.node.pop(keys.MIG_LAYOUT, None)
        if text is not None:
            self.node[keys.MIG_LAYOUT] = text
        self.see()

    def permit(self, phase: PermitPhase, request: str = "") -> None:
        permit = MigPermitAnnotation(v=2, request=request or self.status.request, phase=phase)
        self.node[keys.MIG_PERMIT] = mig_permit_annotation.encode(permit)
        self.see()

    def hold(self, *pods: str, part: int | None = SPLIT.instances[0].id) -> None:
        """These pods have an instance."""
        device = AllocatedDevice(
            part=GpuPart(bus_id=SPLIT.bus_id, gpu_instance_id=part), resource="r", id="MIG-0"
        )
        containers = tuple(
            GpuContainer(namespace="team", pod=pod, container="c", devices=(device,))
            for pod in pods
        )
        self.watch.allocated(NodeAllocation(containers=containers))

    def run(self, seconds: float = SETTLE_SECONDS + 5) -> MigStatusAnnotation:
        """Time goes by, and the actuator answers, unless it is to wait."""
        end = self.runtime.now + seconds
        while self.runtime.now < end:
            self.runtime.run(min(5.0 if seconds > 60 else 1.0, end - self.runtime.now))
            while self.jobs and not self.waits:
                self.jobs.pop(0)()
                self.runtime.run(0)
        return self.status

    def asks(self, text: str = WANTED) -> MigStatusAnnotation:
        """The layout is asked for, and the request is out."""
        self.ask(text)
        status = self.run()
        assert status.phase == "waiting", status
        return status

    @property
    def status(self) -> MigStatusAnnotation:
        found = mig_status_annotation.decode(self.node[keys.MIG_STATUS])
        assert found is not None
        return found

    @property
    def request(self) -> MigRequestAnnotation | None:
        text = self.node.get(keys.MIG_REQUEST)
        return None if text is None else mig_request_annotation.decode(text)

    @property
    def label(self) -> str | None:
        return self.labels.get(keys.MIG_CONFIG_STATE)

    def applied(self) -> list[str]:
        return [one.change for one in self.asked if isinstance(one, ApplyRequest)]

    def tick(self, now: float) -> float:
        wait = self.watch.tick(now)
        self.news += [it.reason for it in self.watch.take_events()]
        self._write()
        return wait

    def _write(self) -> None:
        before = dict(self.node), dict(self.labels)
        for where, decisions in (
            (self.node, self.watch.annotations()),
            (self.labels, self.watch.labels()),
        ):
            for key, decided in decisions.items():
                match decided:
                    case Value(text=text):
                        where[key] = text
                    case Absent():
                        where.pop(key, None)
        if (self.node, self.labels) != before:
            if keys.MIG_STATUS in self.node:
                self.history.append((self.status.phase, self.status.outcome))
            self.see()

    def _read(self) -> Sequence[MigReading]:
        self.lag -= 1
        if self.watch.release_causes or self.lag >= 0:
            raise Released("released")
        return (self.gpu,)

    def _closed(self) -> bool:
        self.looks += 1
        return self.looks == 2

    def _ask(self, task: ActuatorTask) -> ActuatorAnswer:
        self.asked.append(task)
        if isinstance(task, StateRequest):
            return self.state
        assert self.looks == 2, "asked before the handles were closed"
        self.looks, self.lag = 0, 2
        self.released.append(self.watch.release_causes == (CAUSE,))
        if not isinstance(task, ApplyRequest):
            self.gpu = self.restored or self.gpu
            return ChangeAnswer(change=task.change, outcome=Outcome.UNCHANGED)
        if isinstance(self.how, Exception):
            raise self.how
        if not isinstance(self.how, Outcome):
            return self.how
        if self.how is Outcome.APPLIED:
            self.gpu = replace(WHOLE, uuid=SPLIT.uuid, bus_id=SPLIT.bus_id)
        return ChangeAnswer(change=task.change, outcome=self.how, reason=f"it ended so: {self.how}")


@pytest.fixture
def scene() -> EnforcingScene:
    return EnforcingScene()


def test_a_node_that_asks_for_nothing_has_no_request_no_label_and_asks_nobody(
    scene: EnforcingScene,
) -> None:
    scene.run(600)
    assert (scene.status.phase, scene.request, scene.label) == ("idle", None, None)
    assert scene.asked == []


def test_the_request_says_what_it_is_about_and_waits_for_go(scene: EnforcingScene) -> None:
    """What a boot took is brought back before; a permit of another request counts for nothing."""
    scene.hold("in-the-way")
    status = scene.asks()
    request = scene.request
    assert request is not None
    assert (request.request, request.plan, request.gpus) == (status.request, status.plan, (0,))
    assert (request.modes, request.unlisted) == (False, 0)
    assert request.pods == (pod_key("team", "in-the-way"),)
    assert request.allocatable == {"nvidia.com/mig-7g.40gb": 1}
    assert "pods" in status.reason
    assert scene.label == "pending"
    assert [type(one).__name__ for one in scene.asked] == ["StateRequest", "RestoreRequest"]
    for phase, of in ((PermitPhase.CORDONED, ""), (PermitPhase.PROCEED, "0" * 16)):
        scene.permit(phase, of)
        scene.run(600)
        assert (scene.status.phase, scene.applied()) == ("waiting", [])
    assert scene.news == ["MigChangeWaiting"]


def test_with_go_it_is_changed_with_closed_handles_and_the_end_is_told(
    scene: EnforcingScene,
) -> None:
    request = scene.asks().request
    scene.waits = True
    scene.permit(PermitPhase.PROCEED)
    scene.run(2)
    scene.jobs.pop(0)()
    scene.run(2)
    assert (scene.status.phase, scene.label) == ("changing", "pending")
    assert scene.watch.release_causes == (CAUSE,)
    assert scene.request is not None
    scene.waits = False
    scene.run(2)
    assert (scene.status.phase, scene.status.request, scene.status.outcome) == (
        "unchanged",
        request,
        "applied",
    )
    assert (keys.MIG_REQUEST in scene.node, scene.label) == (False, "success")
    assert ("planned", "applied") not in scene.history
    assert not scene.watch.release_causes
    assert (scene.applied(), scene.released) == ([request], [True, True])
    scene.run(3600)
    assert (scene.applied(), scene.status.phase) == ([request], "unchanged")
    assert scene.news == ["MigChangeWaiting", "MigChangeChanging", "MigLayoutUnchanged"]


def test_an_actuator_that_does_not_answer_gives_the_handles_back_and_is_asked_what_became_of_it(
    scene: EnforcingScene,
) -> None:
    request = scene.asks().request
    scene.how = NoAnswer("no answer in time")
    scene.permit(PermitPhase.PROCEED)
    scene.run(1)
    assert scene.watch.release_causes == ()
    assert scene.applied() == [request]
    scene.state = StateAnswer(running=request)
    scene.run(10)
    assert scene.status.phase == "changing"
    assert CAUSE in scene.watch.release_causes
    known = build_known(request, Outcome.ROLLED_BACK)
    scene.state = StateAnswer(last=known, named=known)
    scene.run(20)
    assert (scene.status.phase, scene.status.outcome) == ("failed", "rolled-back")
    assert scene.applied() == [request]
    assert not scene.watch.release_causes


def build_known(change: str, end: Outcome) -> Any:
    from api.actuator.actuator_messages import KnownChange

    return KnownChange(
        change=change, origin="", started="", gpus=(), outcome=end, reason="the driver said no"
    )


def test_what_failed_is_tried_again_after_an_hour_then_two_and_another_wish_at_once(
    scene: EnforcingScene,
) -> None:
    """The time stands in the reason, and is the same until then."""
    scene.how = Outcome.ROLLED_BACK
    first = scene.asks().request
    scene.permit(PermitPhase.PROCEED)
    failed = scene.run(10)
    assert (failed.phase, scene.label, scene.request) == ("failed", "failed", None)
    assert re.search(
        r"it ended so: rolled-back; tried again at 2023-11-14T23:\d\d:\d\dZ", failed.reason
    )
    assert scene.run(FAILED_SECONDS[0] - 60) == failed
    second = scene.run(120).request
    assert second != first
    scene.permit(PermitPhase.PROCEED)
    scene.run(10)
    assert scene.run(2 * FAILED_SECONDS[0] - 60).request == second
    assert scene.run(120).request not in (first, second)
    scene.permit(PermitPhase.PROCEED)
    assert scene.run(10).phase == "failed"
    assert scene.asks(OTHER).phase == "waiting"


def test_what_the_actuator_refuses_is_asked_again_after_a_minute(scene: EnforcingScene) -> None:
    scene.how = Outcome.REFUSED
    first = scene.asks().request
    scene.permit(PermitPhase.PROCEED)
    refused = scene.run(10)
    assert (refused.phase, refused.outcome, scene.label) == ("refused", "refused", "failed")
    assert scene.run(REFUSED_SECONDS[0] + 5).request != first
    assert scene.news == [
        "MigChangeWaiting",
        "MigChangeChanging",
        "MigChangeRefused",
        "MigChangeWaiting",
    ]


def test_a_refusal_that_lasts_is_an_end_and_one_that_passes_is_none(scene: EnforcingScene) -> None:
    request = scene.asks().request
    busy = RefusalAnswer(refusal=ActuatorRefusal.BUSY, reason="change x is under way")
    scene.how = busy
    scene.permit(PermitPhase.PROCEED)
    scene.run(10)
    assert (scene.status.outcome, scene.status.request) == ("", request)
    scene.how = RefusalAnswer(refusal=ActuatorRefusal.FAILED, reason="no worker")
    scene.run(60)
    assert (scene.status.outcome, scene.status.reason.split(";")[0]) == ("refused", "no worker")


def test_a_held_change_waits_for_a_person_and_another_end_is_noticed(
    scene: EnforcingScene,
) -> None:
    scene.how = Outcome.STUCK
    request = scene.asks().request
    scene.permit(PermitPhase.PROCEED)
    scene.run(10)
    known = build_known(request, Outcome.STUCK)
    scene.state = StateAnswer(open=known, named=known)
    held = scene.run(3 * 3600)
    assert (held.phase, held.request, held.outcome, scene.label) == (
        "stuck",
        request,
        "stuck",
        "failed",
    )
    assert "gpuscape mig restore" in held.reason
    assert "the driver said no" in held.reason
    ended = build_known(request, Outcome.ROLLED_BACK)
    scene.state = StateAnswer(last=ended, named=ended)
    assert scene.run(60).outcome == "rolled-back"


def test_a_wish_that_is_withdrawn_or_changed_cancels_what_has_not_begun(
    scene: EnforcingScene,
) -> None:
    first = scene.asks().request
    scene.ask(None)
    cancelled = scene.run(5)
    assert (cancelled.phase, cancelled.request, cancelled.outcome) == ("idle", first, "cancelled")
    assert (scene.request, scene.label) == (None, None)
    second = scene.asks().request
    third = scene.asks(OTHER).request
    assert len({first, second, third}) == 3
    scene.permit(PermitPhase.PROCEED, second)
    scene.run(60)
    assert scene.applied() == []


def test_a_restarted_agent_goes_on_with_its_request(scene: EnforcingScene) -> None:
    """Nothing is told again; the actuator is asked what became of it before anything else."""
    request = scene.asks().request
    news = list(scene.news)
    scene.asked.clear()
    scene.start()
    scene.run(60)
    assert (scene.status.request, scene.status.outcome, scene.news) == (request, "", news)
    assert scene.asked == [StateRequest(change=request)]
    scene.permit(PermitPhase.PROCEED)
    scene.start()
    known = build_known(request, Outcome.APPLIED)
    scene.state = StateAnswer(last=known, named=known)
    scene.gpu = replace(WHOLE, uuid=SPLIT.uuid, bus_id=SPLIT.bus_id)
    scene.run(60)
    assert (scene.status.request, scene.status.outcome) == (request, "applied")
    assert scene.applied() == []


@pytest.mark.parametrize(("set_back", "waits"), [(0, 1800), (5 * 3600, 3600)])
def test_a_failure_that_the_node_shows_counts_after_a_restart(
    scene: EnforcingScene, set_back: float, waits: float
) -> None:
    """Where the clock was set back meanwhile it failed in the future: then it counts as of now."""
    scene.how = Outcome.ROLLED_BACK
    request = scene.asks().request
    scene.permit(PermitPhase.PROCEED)
    scene.run(1800)
    scene.wall -= set_back
    scene.start()
    assert scene.run(waits - 600).request == request
    assert scene.run(900).request != request


def test_drift_is_a_new_request_and_soon_another_only_after_a_while(
    scene: EnforcingScene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.asks()
    scene.permit(PermitPhase.PROCEED)
    first = scene.run(60).request
    scene.gpu = SPLIT
    second = scene.run(400).request
    assert second != first
    assert "MIG layout drifted" in caplog.messages
    scene.permit(PermitPhase.PROCEED)
    assert scene.run(60).phase == "unchanged"
    scene.gpu = SPLIT
    while scene.status.phase == "unchanged":
        scene.run(5)
    assert "another program changed the layout; tried again at" in scene.status.reason
    assert scene.status.request == second
    assert scene.run(REFUSED_SECONDS[0] + 10).request not in (first, second)


@pytest.mark.parametrize("anew", [(OTHER,), (None, WANTED)])
def test_a_change_that_waits_for_too_long_is_given_up_until_a_layout_is_asked_for_anew(
    scene: EnforcingScene, anew: tuple[str | None, ...]
) -> None:
    """An hour, in which the agent starts again; a cordon without a permit does not stop it."""
    scene.wait_seconds = 3600.0
    scene.start()
    scene.hold("job")
    first = scene.asks().request
    for _ in range(2):
        scene.run(1700)
        scene.start()
        scene.hold("job")
    scene.permit(PermitPhase.CORDONED)
    assert scene.run(100).outcome == ""
    for seconds in (200, 4000):
        given_up = scene.run(seconds)
        assert (given_up.phase, given_up.request, given_up.outcome) == ("refused", first, "expired")
        assert "given up" in given_up.reason
        assert (scene.request, scene.label) == (None, "failed")
        scene.start()
        scene.hold("job")
    for text in anew:
        scene.ask(text)
        scene.run()
    assert (scene.status.phase, scene.request is None) == ("waiting", False)
    assert scene.status.request != first


def test_a_change_that_has_leave_is_not_given_up(scene: EnforcingScene) -> None:
    scene.wait_seconds = 60.0
    scene.start()
    scene.asks()
    scene.waits = True
    scene.permit(PermitPhase.PROCEED)
    assert scene.run(600).outcome == ""
    scene.waits = False
    assert scene.run(30).outcome == "applied"


def program(pid: int, on: int) -> Process:
    return Process(pid=pid, kind=ProcessKind.COMPUTE, gpu_instance_id=on)


def test_a_program_that_is_no_pods_is_named_in_request_and_status_until_it_has_ended(
    scene: EnforcingScene,
) -> None:
    """One on what a pod has is that pod's, and goes with it."""
    first, second = (one.id for one in SPLIT.instances)
    scene.hold("job", part=first)
    scene.gpu = replace(SPLIT, processes=(program(7, first), program(0, second)))
    scene.asks()
    hidden = f"hidden (of another PID namespace, on GPU 0 instance {second})"
    assert scene.request is not None
    assert (scene.request.programs, len(scene.request.pods)) == ((hidden,), 1)
    assert hidden in scene.status.reason
    assert scene.status.pods == ("team/job",)
    scene.gpu = replace(SPLIT, processes=(program(7, first),))
    scene.run(PODS_SECONDS + 60)
    assert scene.request is not None
    assert scene.request.programs == ()
    assert "pods that use what would be destroyed" in scene.status.reason


def test_who_is_on_the_gpus_is_read_again_behind_the_cordon(scene: EnforcingScene) -> None:
    scene.asks()
    scene.gpu = replace(SPLIT, processes=(program(7, SPLIT.instances[0].id),))
    scene.permit(PermitPhase.CORDONED)
    scene.run(2)
    assert scene.request is not None
    assert scene.request.programs == ("7",)


def test_a_pod_that_was_given_a_device_last_is_named_to_the_actuator_which_refuses(
    scene: EnforcingScene,
) -> None:
    scene.asks()
    scene.permit(PermitPhase.CORDONED)
    scene.run(10)
    scene.hold("late")
    scene.how = Outcome.REFUSED
    scene.permit(PermitPhase.PROCEED)
    scene.run(10)
    [task] = [one for one in scene.asked if isinstance(one, ApplyRequest)]
    assert [one.name for one in task.pods] == ["team/late"]
    assert (scene.status.phase, scene.status.outcome) == ("refused", "refused")


def drifted(scene: EnforcingScene) -> MigRequestAnnotation:
    """Somebody changes the GPUs, and the agent asks to have the layout back."""
    scene.gpu = SPLIT
    before = scene.request
    while scene.request is None or scene.request == before:
        scene.run(5)
    return scene.request


def test_what_brings_a_layout_back_says_so_also_after_a_refusal_and_a_restart(
    scene: EnforcingScene,
) -> None:
    asked = scene.asks()
    assert scene.request is not None
    assert not scene.request.drift
    scene.permit(PermitPhase.PROCEED)
    assert scene.run(60).reached == ""
    scene.hold("job")
    repair = drifted(scene)
    assert repair.drift
    assert scene.status.reached == asked.plan
    assert "no pod is evicted" in scene.status.reason
    scene.start()
    scene.hold("job")
    scene.run(60)
    assert scene.request == repair
    scene.how = Outcome.REFUSED
    scene.permit(PermitPhase.PROCEED)
    assert scene.run(10).phase == "refused"
    scene.start()
    scene.hold("job")
    scene.run(REFUSED_SECONDS[0] + 30)
    assert scene.request is not None
    assert scene.request.request != repair.request
    assert scene.request.drift


@pytest.mark.parametrize("first", [OTHER, None])
def test_a_layout_that_is_asked_for_anew_is_no_repair(
    scene: EnforcingScene, first: str | None
) -> None:
    scene.asks()
    scene.permit(PermitPhase.PROCEED)
    scene.run(60)
    assert drifted(scene).drift
    scene.ask(first)
    scene.run()
    assert scene.request is None or not scene.request.drift
    scene.asks()
    assert scene.request is not None
    assert not scene.request.drift


def test_a_layout_that_was_there_from_the_start_is_brought_back_by_an_agent_that_starts(
    scene: EnforcingScene,
) -> None:
    scene.gpu = replace(WHOLE, uuid=SPLIT.uuid, bus_id=SPLIT.bus_id)
    scene.ask(WANTED)
    assert (scene.run(60).phase, scene.status.request) == ("unchanged", "")
    scene.gpu = SPLIT
    scene.start()
    scene.run(60)
    assert scene.request is not None
    assert scene.request.drift


def test_what_is_applied_and_is_not_there_is_not_tried_again_at_once(
    scene: EnforcingScene,
) -> None:
    """Else a driver that reads back something else would be changed for ever."""
    scene.asks()
    scene.how = ChangeAnswer(change="x", outcome=Outcome.APPLIED)
    scene.permit(PermitPhase.PROCEED)
    status = scene.run(1800)
    assert (status.phase, len(scene.applied())) == ("failed", 1)
    assert "the GPUs do not have it" in status.reason


def test_before_a_request_the_actuator_must_answer_once_for_each_load(
    scene: EnforcingScene,
) -> None:
    scene.state = StateAnswer(problem="the journal is damaged")
    scene.ask(WANTED)
    status = scene.run(60)
    assert (status.phase, status.reason, scene.request) == (
        "planned",
        "the journal is damaged",
        None,
    )
    scene.state = StateAnswer()
    scene.run(300)
    assert scene.status.phase == "waiting"
    restores = [one for one in scene.asked if not isinstance(one, StateRequest)]
    scene.ask(None)
    scene.asks(OTHER)
    assert [one for one in scene.asked if not isinstance(one, StateRequest)] == restores
    scene.ask(None)
    scene.load = "boot-2"
    scene.asks()
    assert len([one for one in scene.asked if not isinstance(one, StateRequest)]) == 2


def test_what_comes_back_after_a_boot_needs_no_leave(scene: EnforcingScene) -> None:
    """What was read before that does not count."""
    scene.restored = replace(WHOLE, uuid=SPLIT.uuid, bus_id=SPLIT.bus_id)
    scene.ask(WANTED)
    scene.run(600)
    assert (scene.status.phase, scene.status.request) == ("unchanged", "")
    assert "MigChangeWaiting" not in scene.news


def test_a_request_that_offers_much_still_names_as_many_pods_as_fit() -> None:
    offers = {f"nvidia.com/mig-{'x' * 40}-{at:02}": 7 for at in range(MOST_OFFERS)}
    many = frozenset(f"team/job-{at}" for at in range(60))
    change = replace(wanted("a"), plan="0" * 16, pods=many, allocatable=offers)
    found = change.annotation("0" * 16)
    length = len(mig_request_annotation.encode(found))
    assert MOST_CHARACTERS - 30 < length <= MOST_CHARACTERS
    assert len(found.pods) + found.unlisted == 60
    more = replace(change, allocatable={**offers, "one-more": 1}).annotation("0" * 16)
    assert (more.allocatable, len(more.pods)) == ({}, 60)


def test_pods_in_the_way_are_told_once_a_minute_and_at_once_when_they_are_gone(
    scene: EnforcingScene,
) -> None:
    scene.hold("job-0")
    scene.asks()
    told = set()
    began = scene.runtime.now
    for at in range(24):
        scene.hold(f"job-{at}")
        scene.run(5)
        assert scene.request is not None
        told.add(scene.request.pods)
    assert len(told) <= 2 + (scene.runtime.now - began) / PODS_SECONDS
    scene.hold()
    scene.run(6)
    assert scene.request is not None
    assert scene.request.pods == ()


def test_a_request_names_as_many_pods_as_there_is_room_for_and_counts_the_rest(
    scene: EnforcingScene,
) -> None:
    scene.hold(*(f"job-{at}" for at in range(40)))
    scene.asks()
    assert scene.request is not None
    assert (len(scene.request.pods), scene.request.unlisted) == (40, 0)
    scene.ask(None)
    scene.run(1)
    scene.hold(*(f"job-{at}" for at in range(200)))
    scene.asks()
    assert scene.request is not None
    found = scene.request
    assert len(found.pods) + found.unlisted == 200
    assert len(found.pods) > 40
    assert len(scene.node[keys.MIG_REQUEST]) <= mig_request_annotation.MOST_CHARACTERS


def test_until_the_kubelet_was_asked_nothing_is_requested(scene: EnforcingScene) -> None:
    """Who holds what is not known then, and that is not the same as nobody."""
    scene.start()
    scene.watch._allocation = None
    scene.ask(WANTED)
    status = scene.run(SETTLE_SECONDS + 1)
    assert status.phase == "planned"
    assert "the kubelet's pod-resources socket" in status.reason
    assert scene.run(600).reason == status.reason
    scene.hold()
    assert scene.run(10).phase == "waiting"


def test_a_socket_that_answers_late_counts_at_once_next_to_the_kubelets_own_list(
    scene: EnforcingScene,
) -> None:
    scene.kubelet = NO_KUBELET
    scene.allocation = None
    scene.start()
    scene.ask(WANTED)
    assert "pod-resources socket" in scene.run().reason
    scene.watch.allocated(NodeAllocation())
    assert scene.run(10).phase == "waiting"


def test_while_the_actuator_restores_the_node_says_so(scene: EnforcingScene) -> None:
    scene.waits = True
    scene.ask(WANTED)
    scene.run()
    scene.jobs.pop(0)()
    status = scene.run(10)
    assert (status.phase, scene.request) == ("planned", None)
    assert "the actuator restores what a boot took" in status.reason


class PlayedTime:
    """Time that passes where somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize(("closed_after", "waited"), [(0, 0.0), (3.0, 3.0), (1e9, CLOSE_SECONDS)])
def test_the_actuator_is_asked_once_the_handles_are_closed_or_after_ten_seconds(
    scene: EnforcingScene, monkeypatch: pytest.MonkeyPatch, closed_after: float, waited: float
) -> None:
    """The driver refuses a change that an open handle is in the way of; nothing waits for ever."""
    played = PlayedTime()
    asks: list[float] = []

    def closed() -> bool:
        return played.now >= 1000.0 + closed_after

    def ask(task: ActuatorTask) -> ActuatorAnswer:
        if not isinstance(task, StateRequest):
            asks.append(played.now - 1000.0)
        return StateAnswer()

    ports = replace(scene.ports, closed=closed, ask=ask)
    scene.start(ports)
    scene.ask(WANTED)
    monkeypatch.setattr(enforced_layouts, "time", played)
    scene.run()
    assert CLOSE_SECONDS == 10.0
    assert asks[0] == pytest.approx(waited, abs=0.2)


def test_an_error_of_any_kind_gives_the_handles_back(scene: EnforcingScene) -> None:
    scene.asks()
    scene.how = Transient("nonsense came")
    scene.permit(PermitPhase.PROCEED)
    scene.run(1)
    assert scene.watch.release_causes == ()
    scene.how = RuntimeError("a bug")
    with pytest.raises(RuntimeError):
        scene.run(60)
    scene.run(1)
    assert scene.watch.release_causes == ()


def test_another_program_s_state_is_left_alone(scene: EnforcingScene) -> None:
    """Where nothing is asked for; the label is removed only where the agent wrote it."""
    scene.watch.observe({"name": "node-a", "labels": {keys.MIG_CONFIG_STATE: "success"}})
    assert not isinstance(scene.watch.labels().get(keys.MIG_CONFIG_STATE), Absent | Value)


def test_metrics_say_how_far_the_wish_is_and_count_each_end_and_retry_once(
    scene: EnforcingScene,
) -> None:
    """The change fails, is tried again, and succeeds; then nothing is asked for any more."""
    assert scene.watch.desired_layout is None
    scene.how = Outcome.ROLLED_BACK
    scene.asks()
    scene.permit(PermitPhase.PROCEED)
    scene.run(60)
    failed = scene.watch.desired_layout
    assert failed is not None
    assert (failed.phase, failed.ends, failed.retries) == ("failed", {"rolled-back": 1}, {})
    scene.start()  # the agent is another one
    scene.run(3700)
    scene.how = Outcome.APPLIED
    scene.permit(PermitPhase.PROCEED)
    scene.run(60)
    applied = scene.watch.desired_layout
    assert applied is not None
    assert (applied.phase, applied.ends) == ("unchanged", {"applied": 1})
    assert (applied.retries, applied.enforced) == ({"rolled-back": 1}, True)
    assert applied.since_seconds > failed.since_seconds
    scene.ask(None)
    scene.run(60)
    assert scene.watch.desired_layout is None


def test_a_layout_that_is_there_says_what_the_node_is_to_offer_and_since_when(
    scene: EnforcingScene,
) -> None:
    assert scene.asks().allocatable == {}
    scene.permit(PermitPhase.PROCEED)
    applied = scene.run(60)
    assert (applied.phase, applied.allocatable) == ("unchanged", {"nvidia.com/mig-7g.40gb": 1})
    assert applied.current_since == applied.since
    assert scene.history.count(("unchanged", "applied")) == 1
    before = len(scene.history)
    scene.run(3600)
    assert (len(scene.history), scene.status) == (before, applied)


def test_an_agent_that_starts_says_when_it_has_found_the_layout(scene: EnforcingScene) -> None:
    """The layout may have come back a moment ago, after a device plugin's start."""
    scene.gpu = replace(WHOLE, uuid=SPLIT.uuid, bus_id=SPLIT.bus_id)
    scene.ask(WANTED)
    first = scene.run(60)
    scene.run(600)
    scene.start()
    second = scene.run(60)
    assert second == structs.replace(first, current_since=second.current_since)
    assert second.current_since > first.current_since


def test_where_the_strategy_is_not_known_nothing_is_offered_since_any_time(
    scene: EnforcingScene,
) -> None:
    scene.strategy = None
    scene.start()
    scene.asks()
    scene.permit(PermitPhase.PROCEED)
    applied = scene.run(60)
    assert (applied.phase, applied.allocatable, applied.current_since) == ("unchanged", {}, "")


def test_another_layout_that_is_there_already_is_found_when_it_is_asked_for(
    scene: EnforcingScene,
) -> None:
    """The device plugin may have to start anew for it, however long the one before was there."""
    there = {
        WANTED: WHOLE,
        OTHER: mig_gpu("a100-sxm4-40gb", ("3g.20gb", 0), ("3g.20gb", 4)),
    }
    shown = []
    for text, gpu in there.items():
        scene.gpu = replace(gpu, uuid=SPLIT.uuid, bus_id=SPLIT.bus_id)
        scene.ask(text)
        shown.append(scene.run(600))
    assert [status.phase for status in shown] == ["unchanged", "unchanged"]
    first, second = (rfc3339.unix_seconds(status.current_since) for status in shown)
    assert first is not None
    assert second is not None
    assert 600 <= second - first < 600 + 2 * SETTLE_SECONDS


def test_where_a_label_is_not_obeyed_no_layout_is_shown_as_lost(scene: EnforcingScene) -> None:
    """Not even until the next look at the GPUs."""
    scene.asks()
    scene.permit(PermitPhase.PROCEED)
    assert scene.run(60).phase == "unchanged"
    scene.node.pop(keys.MIG_LAYOUT)
    scene.labels |= {keys.MIG_CONFIG: "all-disabled", keys.MIG_ADOPT: "never"}
    scene.see()
    assert (scene.status.phase, scene.status.reached) == ("unadopted", "")


def test_a_layout_that_goes_takes_its_offers_along(scene: EnforcingScene) -> None:
    scene.gpu = replace(WHOLE, uuid=SPLIT.uuid, bus_id=SPLIT.bus_id)
    scene.ask(WANTED)
    assert scene.run(60).allocatable
    scene.gpu = SPLIT
    lost = scene.run(600)
    assert (lost.phase, lost.allocatable, lost.current_since) == ("waiting", {}, "")


def test_a_program_that_only_has_the_gpu_open_is_named_where_the_mode_is_to_change(
    scene: EnforcingScene,
) -> None:
    """No slot is given then; a pod's program may be paused, and is left to the driver."""
    off = mig_gpu("h100-sxm5-80gb", mode=Mode(current=False, pending=False), resetless=True)
    scene.gpu = replace(off, uuid=SPLIT.uuid, bus_id=SPLIT.bus_id, minor=3)
    scene.openers = (
        GpuUser(minor=3, pid=41, name="nv-hostengine"),
        GpuUser(minor=3, pid=42, name="nvidia-device-p", pod="a-pod"),
        GpuUser(minor=4, pid=43, name="other"),
    )
    status = scene.asks('{"0": {"3g.40gb": 2}}')
    assert scene.request is not None
    assert (scene.request.modes, scene.request.programs) == (True, ("41 nv-hostengine",))
    assert "process 41 nv-hostengine" in status.reason
    scene.openers = ()
    scene.run(60)
    assert scene.request.programs == ()


def test_gpus_that_the_actuator_can_only_reset_together_are_requested_together_or_not_at_all(
    scene: EnforcingScene,
) -> None:
    """Before a slot is given and anybody drained; once each can be reset alone it goes on."""
    off = mig_gpu("a100-sxm4-40gb", mode=Mode(current=False, pending=False))
    scene.gpu = replace(off, uuid=SPLIT.uuid, bus_id=SPLIT.bus_id, minor=3)
    scene.together = "no Fabric Manager"
    scene.node[keys.MIG_MODE_CHANGE] = "driver"
    scene.ask('{"0": "on"}')
    status = scene.run()
    assert (status.phase, scene.request) == ("refused", None)
    assert "no Fabric Manager, or allow mig-reset" in status.reason
    scene.together = ""
    scene.run(600)
    assert scene.request is not None


def test_a_program_that_only_has_the_gpu_open_is_in_no_way_of_instances(
    scene: EnforcingScene,
) -> None:
    scene.gpu = replace(SPLIT, minor=3)
    scene.openers = (GpuUser(minor=3, pid=41, name="nv-hostengine"),)
    scene.asks()
    assert scene.request is not None
    assert (scene.request.modes, scene.request.programs) == (False, ())
