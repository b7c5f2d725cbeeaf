# SPDX-License-Identifier: Apache-2.0
"""When a request is judged, what the Node shows of it, and how seldom that is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from agent.layouts.layout_evaluator import REREAD_SECONDS, UNREAD_SECONDS, LayoutInputs
from agent.layouts.layout_watch import (
    SETTLE_SECONDS,
    UNSETTLED_SECONDS,
    LayoutWatch,
)
from agent.layouts.status_times import PODS_SECONDS
from api import keys, mig_status_annotation
from api.mig_resources import MigStrategy
from api.mig_status_annotation import MigStatusAnnotation
from base.errors import BadInput
from discovery.driver_errors import ReaderGone, Released
from discovery.gpu_part import GpuPart
from discovery.mig_state import MigReading, UnreadMigGpu
from discovery.model import GpuState, NodeSnapshot
from kubelet.allocated_devices import AllocatedDevice, GpuContainer, NodeAllocation
from labelers.decision import Absent, Value
from mig.configs.mig_config_file import parse_mig_configs
from mig.configs.mig_configs import MigConfigs
from tests import build
from tests.agent.virtual import VirtualRuntime
from tests.log_lines import log_lines
from tests.mig.naive_gpu import mig_gpu

SPLIT = mig_gpu("a100-sxm4-40gb", ("1g.5gb", 0), ("3g.20gb", 4))
WANTED, OTHER = '{"0": {"7g.40gb": 1}}', '{"0": {"3g.20gb": 2}}'
SMALL = next(one.id for one in SPLIT.instances if one.profile == "1g.5gb")


def snapshot(**facts: Any) -> NodeSnapshot:
    """The same GPU as a snapshot has it."""
    return build.node([build.gpu(0, bus_id=SPLIT.bus_id, uuid=SPLIT.uuid, **facts)])


class Scene:
    """A Node whose watch shows at once what the agent writes, in virtual time."""

    def __init__(self, *, label: str | None = None, status: str | None = None) -> None:
        self.labels = {} if label is None else {keys.MIG_CONFIG: label}
        self.node: dict[str, str] = {} if status is None else {keys.MIG_STATUS: status}
        self.snapshot: NodeSnapshot | None = snapshot()
        self.gpus: Sequence[MigReading] = (SPLIT,)
        self.failure: Exception | None = None
        self.configs: MigConfigs | BadInput | None = None
        self.strategy: MigStrategy | None = None
        self.reads = self.writes = 0
        self.news: list[tuple[str, str, bool]] = []
        self.runtime = VirtualRuntime({"layouts": self.tick}, now=0.0)
        self.start()

    def start(self) -> None:
        """An agent that starts; the one before it has ended."""
        self.watch = LayoutWatch(
            LayoutInputs(
                read=self._read,
                snapshot=lambda: self.snapshot,
                configs=self._configured,
                strategy=self.strategy,
            ),
            clock=self.runtime.clock,
            wall=lambda: 1_700_000_000.0 + self.runtime.now,
        )
        self.see()

    def see(self) -> None:
        self.watch.observe(
            {"name": "node-a", "labels": self.labels, "annotations": dict(self.node)}
        )
        self.runtime.trigger("layouts")
        self._write()

    def ask(self, text: str | None) -> None:
        """The admin writes the annotation, or removes it."""
        self.node.pop(keys.MIG_LAYOUT, None)
        if text is not None:
            self.node[keys.MIG_LAYOUT] = text
        self.see()

    def run(self, seconds: float = SETTLE_SECONDS + 1) -> MigStatusAnnotation | None:
        self.runtime.run(seconds)
        return self.status

    @property
    def status(self) -> MigStatusAnnotation | None:
        text = self.node.get(keys.MIG_STATUS)
        return None if text is None else mig_status_annotation.decode(text)

    @property
    def phase(self) -> str | None:
        return None if self.status is None else self.status.phase

    def tick(self, now: float) -> float:
        wait = self.watch.tick(now)
        self.news += [(it.reason, it.note, it.warning) for it in self.watch.take_events()]
        self._write()
        return wait

    def _write(self) -> None:
        for key, decided in self.watch.annotations().items():
            before = dict(self.node)
            match decided:
                case Value(text=text):
                    self.node[key] = text
                case Absent():
                    self.node.pop(key, None)
            if self.node != before:
                self.writes += 1
                self.see()

    def _read(self) -> Sequence[MigReading]:
        self.reads += 1
        if self.failure is not None:
            raise self.failure
        return self.gpus

    def _configured(self) -> MigConfigs | None:
        if isinstance(self.configs, BadInput):
            raise self.configs
        return self.configs


def held(*pods: str) -> NodeAllocation:
    """All of them have the small instance."""
    device = AllocatedDevice(
        part=GpuPart(bus_id=SPLIT.bus_id, gpu_instance_id=SMALL),
        resource="nvidia.com/mig-1g.5gb",
        id="MIG-0",
    )
    return NodeAllocation(
        pods=frozenset(f"team/{pod}" for pod in pods),
        containers=tuple(
            GpuContainer(namespace="team", pod=pod, container="main", devices=(device,))
            for pod in pods
        ),
    )


def test_a_node_that_asks_for_nothing_says_so_once_and_no_gpu_is_read() -> None:
    scene = Scene()
    scene.run(3600)
    assert (scene.phase, scene.writes, scene.reads) == ("idle", 1, 0)
    assert scene.news == []


def test_a_request_is_judged_when_it_has_settled_and_written_once() -> None:
    scene = Scene()
    scene.run()
    scene.ask(WANTED)
    scene.run(SETTLE_SECONDS - 1)
    assert (scene.phase, scene.reads) == ("idle", 0)
    found = scene.run(2)
    assert found is not None
    assert (found.phase, found.since) == ("planned", "2023-11-14T22:13:41Z")
    scene.run(REREAD_SECONDS - 10)
    assert (scene.writes, scene.reads) == (2, 1)
    scene.run(2 * REREAD_SECONDS)
    assert (scene.writes, scene.reads) == (2, 3)
    assert scene.news == [
        ("MigLayoutPlanned", f"desired by annotation: {WANTED}: {found.reason}", False)
    ]


def test_each_news_is_one_log_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    scene = Scene()
    for text in (WANTED, "no-such-config"):
        scene.ask(text)
        scene.run(2 * REREAD_SECONDS)
    assert [(level, line, facts["phase"]) for level, line, facts in log_lines(caplog)] == [
        ("INFO", "MIG layout evaluated", "planned"),
        ("WARNING", "MIG layout evaluated", "refused"),
    ]


def test_a_request_that_is_withdrawn_leaves_the_node_idle() -> None:
    scene = Scene()
    scene.ask(WANTED)
    scene.run()
    scene.ask(None)
    assert scene.phase == "idle"


def test_of_edits_in_a_row_the_last_is_judged() -> None:
    scene = Scene()
    for text in (WANTED, "{", OTHER):
        scene.ask(text)
        scene.run(SETTLE_SECONDS - 1)
    scene.run(2)
    assert scene.status is not None
    assert (scene.status.desired, scene.reads) == (OTHER, 1)


def test_a_request_that_flaps_is_refused_and_judged_once_it_stays() -> None:
    scene = Scene()
    before = scene.writes
    for at in range(int(UNSETTLED_SECONDS * 30)):
        scene.ask((WANTED, OTHER)[at % 2])
        scene.run(0.1)
    assert scene.reads == 0
    assert scene.status is not None
    assert (scene.status.phase, "keeps changing" in scene.status.reason) == (
        "refused",
        True,
    )
    assert scene.writes - before < 10
    scene.run()
    assert scene.phase == "planned"


@pytest.mark.parametrize("label", [None, "all-disabled"])
def test_a_restarted_agent_neither_writes_nor_tells_again(label: str | None) -> None:
    scene = Scene(label=label)
    scene.ask(WANTED)
    scene.run()
    before = dict(scene.node)
    scene.start()
    scene.run(60)
    assert (scene.node, scene.writes, len(scene.news)) == (before, 2, 1)


def test_a_label_from_before_is_shown_with_the_way_to_have_it_obeyed() -> None:
    scene = Scene(label="all-1g.5gb")
    scene.run(60)
    assert scene.status is not None
    assert (scene.status.phase, scene.status.unadopted) == ("unadopted", "all-1g.5gb")
    assert "gpuscape.io/mig-adopt" in scene.status.reason
    scene.start()
    scene.run(60)
    assert (scene.phase, scene.writes, scene.reads) == ("unadopted", 1, 0)
    scene.labels[keys.MIG_CONFIG] = "all-balanced"
    scene.see()
    scene.run()
    assert (scene.phase, scene.status.unadopted) == ("planned", "")
    scene.labels[keys.MIG_CONFIG] = "all-1g.5gb"
    scene.see()
    scene.run()
    assert scene.status.desired == "all-1g.5gb"


def test_a_status_that_somebody_damaged_is_written_again() -> None:
    scene = Scene(status="{")
    assert scene.phase == "idle"


def test_what_the_plan_rests_on_is_seen_to_change() -> None:
    """Drift of the GPUs, and another layout under the same name."""
    scene = Scene()
    scene.ask('{"0": {"1g.5gb": 1, "3g.20gb": 1}}')
    scene.run()
    assert scene.phase == "unchanged"
    scene.gpus = (replace(SPLIT, instances=SPLIT.instances[:1]),)
    scene.snapshot = snapshot(mig=build.SPLIT)
    scene.run(6)
    assert scene.phase == "planned"
    scene.ask("mine")
    text = (
        "version: v1\nmig-configs: {mine: [{devices: all, mig-enabled: true, mig-devices: {%s}}]}"
    )
    scene.configs = parse_mig_configs(text % '"3g.20gb": 2', "config.yaml")
    scene.run()
    assert scene.status is not None
    digest = scene.status.plan
    scene.configs = parse_mig_configs(text % '"3g.20gb": 1', "config.yaml")
    scene.run(6)
    assert scene.status.plan != digest
    before = scene.configs
    scene.configs = BadInput("config.yaml:3: mig-enable: unknown")
    scene.run(6)
    assert (scene.phase, scene.status.reason) == ("refused", "config.yaml:3: mig-enable: unknown")
    scene.configs = before
    scene.run(6)
    assert scene.phase == "unchanged"


def test_where_nothing_is_changed_no_resources_are_offered_since_any_time() -> None:
    """Nobody restarts the device plugin there, so what it offers is not known."""
    scene = Scene()
    scene.strategy = MigStrategy.MIXED
    scene.start()
    scene.ask('{"0": {"1g.5gb": 1, "3g.20gb": 1}}')
    status = scene.run()
    assert status is not None
    assert (status.phase, status.allocatable, status.current_since) == ("unchanged", {}, "")


def test_pods_come_and_go_with_a_write_a_minute_at_most() -> None:
    scene = Scene()
    scene.ask(WANTED)
    scene.run(PODS_SECONDS + SETTLE_SECONDS + 1)
    scene.watch.allocated(held("first"))
    scene.run(6)
    assert scene.status is not None
    assert scene.status.pods == ("team/first",)
    for at in range(60):
        scene.watch.allocated(held(f"job-{at}"))
        scene.run(5)
    assert scene.writes <= 3 + 300 / PODS_SECONDS + 1
    scene.run(PODS_SECONDS + 10)
    assert scene.status is not None
    assert scene.status.pods == ("team/job-59",)
    assert len(scene.news) == 1


def test_pods_that_change_again_within_the_minute_are_shown_at_its_end() -> None:
    """Not at the next reading, which may be five minutes away."""
    scene = Scene()
    scene.ask(WANTED)
    scene.run(PODS_SECONDS + SETTLE_SECONDS + 1)
    shown: list[str] = []
    for pod, seconds in (("first", 6), ("second", PODS_SECONDS - 12), ("second", 12)):
        scene.watch.allocated(held(pod))
        scene.run(seconds)
        assert scene.status is not None
        shown += scene.status.pods
    assert shown == ["team/first", "team/first", "team/second"]


def test_another_manager_is_named_and_no_gpu_is_read() -> None:
    scene = Scene()
    manager = "nvidia-mig-manager-x7k2p"
    scene.watch.allocated(replace(held(), pods=frozenset({f"gpu-operator/{manager}"})))
    scene.ask(WANTED)
    scene.run()
    assert scene.status is not None
    assert (scene.phase, scene.reads) == ("refused", 0)
    assert manager in scene.status.reason
    managed = replace(held(), pods=frozenset({f"gpu-operator/{manager}"}))
    for allocation, phase in ((held(), "planned"), (managed, "refused"), (held(), "planned")):
        scene.watch.allocated(allocation)
        scene.run(6)
        assert scene.phase == phase


def test_while_handles_are_released_the_status_stays() -> None:
    scene = Scene()
    scene.failure = Released("released")
    scene.ask(WANTED)
    scene.run(60)
    assert scene.phase == "idle"
    scene.failure = None
    scene.run(60)
    assert scene.phase == "planned"


def test_a_driver_that_does_not_answer_is_said_and_asked_again() -> None:
    scene = Scene()
    scene.failure = ReaderGone("the device reader ended 3 times in a row")
    scene.ask(WANTED)
    scene.run()
    assert scene.status is not None
    assert (scene.phase, scene.status.reason) == ("unread", str(scene.failure))
    scene.run(10 * UNREAD_SECONDS)
    assert scene.reads <= 11
    scene.failure, scene.gpus = None, (UnreadMigGpu(bus_id=SPLIT.bus_id, gaps=()),)
    scene.run(UNREAD_SECONDS + 6)
    assert (scene.phase, SPLIT.bus_id in scene.status.reason) == ("unread", True)
    scene.gpus = (SPLIT,)
    scene.run(UNREAD_SECONDS + 6)
    assert scene.phase == "planned"


def test_a_node_without_mig_says_nothing_and_one_that_is_not_read_keeps_what_it_says() -> None:
    status = mig_status_annotation.encode(MigStatusAnnotation(v=2, phase="idle"))
    scene = Scene(status=status)
    scene.snapshot = build.node([build.silent(0, GpuState.LOST)])
    scene.run(60)
    assert scene.node[keys.MIG_STATUS] == status
    scene.snapshot = snapshot(mig=None)
    scene.run(60)
    assert keys.MIG_STATUS not in scene.node
    scene.ask(WANTED)
    scene.run(60)
    assert (scene.status, scene.reads) == (None, 0)


def test_a_node_that_is_gone_is_left_alone() -> None:
    scene = Scene()
    scene.watch.observe(None)
    assert scene.watch.annotations() == {}
    assert scene.watch.tick(scene.runtime.now) > 0
