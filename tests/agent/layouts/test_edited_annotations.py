# SPDX-License-Identifier: Apache-2.0
"""Annotations of a MIG change that are written in part, edited by hand, or asked for ten times a
second: each life still ends as wished, and no change is begun twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from agent.layouts.change_state import ActuatorTask
from agent.layouts.layout_watch import SETTLE_SECONDS, UNSETTLED_SECONDS
from agent.layouts.retry_times import REFUSED_SECONDS
from api import keys
from api.actuator.actuator_messages import (
    ActuatorAnswer,
    ApplyRequest,
    ChangeAnswer,
    KnownChange,
    StateAnswer,
    StateRequest,
)
from api.mig_outcome import Outcome
from api.mig_permit_annotation import PermitPhase
from fleet.mig_node import MigNode, node_of
from fleet.turns.change_progress import reported_end
from labelers.decision import Absent, Decisions, Value
from tests.agent.layouts.test_enforced_layouts import OTHER, SPLIT, WANTED, EnforcingScene

KEYS = (keys.MIG_STATUS, keys.MIG_REQUEST)


class CoordinatedScene(EnforcingScene):
    """With an actuator that remembers, and a coordinator that reads the Node as ours does."""

    def __init__(self) -> None:
        self.ended: dict[str, ChangeAnswer] = {}
        self.began: Counter[str] = Counter()
        self.requests: set[str] = set()
        super().__init__()

    def coordinate(self) -> None:
        """One look at the Node, and at most one answer."""
        node = self.seen()
        if node.permit is not None:
            if reported_end(node, node.permit.request) is not None:
                del self.node[keys.MIG_PERMIT]
                self.see()
            elif node.permit.phase is PermitPhase.CORDONED:
                self.permit(PermitPhase.PROCEED, node.permit.request)
        elif keys.MIG_PERMIT in self.node:  # damaged
            del self.node[keys.MIG_PERMIT]
            self.see()
        elif node.request is not None and reported_end(node, node.request.request) is None:
            self.permit(PermitPhase.CORDONED, node.request.request)

    def seen(self) -> MigNode:
        """The Node as the coordinator has it."""
        meta = {"name": "n", "uid": "u", "resourceVersion": "1", "annotations": dict(self.node)}
        node = node_of({"metadata": meta}, ("nvidia.com/",))
        if node.request is not None:
            self.requests.add(node.request.request)
        return node

    def work(self, seconds: float) -> None:
        """Everybody does, for a while."""
        until = self.runtime.now + seconds
        while self.runtime.now < until:
            self.run(2)
            self.coordinate()

    def ends_as(self, gpu: Any) -> None:
        """In the end nothing is left, and the GPUs are so."""
        self.work(40)
        node = self.seen()
        assert self.gpu.instances == gpu.instances
        assert (self.status.phase, self.status.outcome) == ("unchanged", "applied")
        assert (node.request, node.permit_text) == (None, None)
        assert max(self.began.values()) == 1
        assert self.watch.release_causes == ()

    def _ask(self, task: ActuatorTask) -> ActuatorAnswer:
        if isinstance(task, StateRequest):
            known = self.ended.get(task.change or "")
            named = None
            if known is not None and task.change is not None:
                named = KnownChange(
                    change=task.change, origin="", started="", gpus=(), outcome=known.outcome
                )
            self.state = StateAnswer(named=named, last=named)
        elif task.change in self.ended:
            super()._ask(StateRequest())
            self.looks = 0
            return self.ended[task.change]
        answer = super()._ask(task)
        if isinstance(task, ApplyRequest) and isinstance(answer, ChangeAnswer):
            if answer.outcome is not Outcome.REFUSED:
                self.began[task.change] += 1
                self.ended[task.change] = answer
            self.how = Outcome.APPLIED
        return answer


class SplitScene(CoordinatedScene):
    """Of one write that changes both keys, one is written; then the agent dies."""

    def __init__(self, at: int, only: str) -> None:
        self.at, self.only = at, only
        self.both = 0
        super().__init__()

    def _write(self) -> None:
        wanted = self.watch.annotations()
        if all(_changes(self.node, key, wanted) for key in KEYS):
            self.both += 1
            if self.both - 1 == self.at:
                self._put(self.only, wanted)
                for _ in range(3):
                    self.coordinate()
                self.start()
                return
        super()._write()

    def _put(self, key: str, wanted: Decisions) -> None:
        match wanted[key]:
            case Value(text=text):
                self.node[key] = text
            case Absent():
                self.node.pop(key, None)


def _changes(node: Mapping[str, str], key: str, wanted: Decisions) -> bool:
    match wanted.get(key):
        case Value(text=text):
            return node.get(key) != text
        case Absent():
            return key in node
        case _:
            return False


def life(scene: CoordinatedScene) -> None:
    """A wish that is changed before a permit, one that is refused once, and one that drifts."""
    scene.ask(WANTED)
    scene.run()
    scene.ask(OTHER)
    scene.run()
    scene.ask(WANTED)
    scene.how = Outcome.REFUSED
    scene.work(SETTLE_SECONDS + 20)
    scene.work(REFUSED_SECONDS[0] + 30)
    whole = scene.gpu
    assert whole.instances != SPLIT.instances
    scene.gpu = SPLIT
    drifted = False
    for _ in range(200):
        scene.run(2)
        request = scene.seen().request
        if request is not None:
            assert request.drift
            drifted = True
        scene.coordinate()
    assert drifted
    scene.ends_as(whole)


def test_a_life_changes_both_annotations_several_times() -> None:
    scene = SplitScene(-1, KEYS[0])
    life(scene)
    assert scene.both == WRITES_OF_BOTH


WRITES_OF_BOTH = 10


@pytest.mark.parametrize("only", KEYS)
@pytest.mark.parametrize("at", range(WRITES_OF_BOTH))
def test_an_agent_that_dies_with_one_of_two_annotations_written_does_no_harm(
    at: int, only: str
) -> None:
    scene = SplitScene(at, only)
    life(scene)
    assert scene.both >= at


def damage(scene: CoordinatedScene, key: str) -> None:
    scene.node[key] = "{"


def remove(scene: CoordinatedScene, key: str) -> None:
    scene.node.pop(key, None)


def rename(scene: CoordinatedScene, key: str) -> None:
    """Another request's id in it."""
    if scene.status.request and key in scene.node:
        scene.node[key] = scene.node[key].replace(scene.status.request, "0" * 16)


@pytest.mark.parametrize("edit", [damage, remove, rename])
@pytest.mark.parametrize("key", [*KEYS, keys.MIG_PERMIT])
def test_what_a_person_edits_by_hand_at_any_time_is_written_again_or_called_off(
    key: str, edit: Callable[[CoordinatedScene, str], None]
) -> None:
    for at in (12, 14, 16, 20):
        scene = CoordinatedScene()
        scene.ask(WANTED)
        scene.work(at)
        if keys.MIG_STATUS in scene.node:
            edit(scene, key)
            scene.see()
        scene.work(60)
        scene.ends_as(replace_whole(scene))


def replace_whole(scene: CoordinatedScene) -> Any:
    """What was wished: the GPU has one instance."""
    assert len(scene.gpu.instances) == 1
    return scene.gpu


@pytest.mark.parametrize("permit", [PermitPhase.CORDONED, PermitPhase.PROCEED])
def test_a_layout_that_flaps_ten_times_a_second_ends_its_request_and_the_last_one_wins(
    permit: PermitPhase,
) -> None:
    """A minute and a half of it, begun behind the cordon."""
    scene = CoordinatedScene()
    scene.asks(WANTED)
    scene.coordinate()
    if permit is PermitPhase.PROCEED:
        scene.waits = True  # the actuator has not been asked yet
    reads, written = 0, len(scene.history)
    read = scene.watch._inputs.read

    def counted() -> Any:
        nonlocal reads
        reads += 1
        return read()

    object.__setattr__(scene.watch._inputs, "read", counted)
    for at in range(int(UNSETTLED_SECONDS * 15)):
        scene.ask((OTHER, WANTED)[at % 2])
        scene.run(0.1)
        if at == 5:
            scene.waits = False
            if permit is PermitPhase.PROCEED:
                scene.coordinate()
    assert scene.status.outcome == "cancelled"
    assert scene.began == {}
    assert reads == 0
    assert len(scene.history) - written <= 4
    scene.coordinate()
    assert keys.MIG_PERMIT not in scene.node
    scene.ask(WANTED)
    scene.work(60)
    assert len(scene.requests) == 2
    scene.ends_as(replace_whole(scene))
