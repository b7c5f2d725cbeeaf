# SPDX-License-Identifier: Apache-2.0
"""Each word, time and reason that a Node shows of a change, and when it is written again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from agent.layouts.enforced_layouts import EnforcedLayouts
from agent.layouts.layout_events import LayoutEvent
from api import keys, names
from api.actuator.actuator_messages import ChangeAnswer, KnownChange, StateAnswer
from api.mig_outcome import Outcome
from api.mig_permit_annotation import PermitPhase
from api.mig_status_annotation import MigPhase, MigStatusAnnotation
from base.text import rfc3339
from base.threads import NoThread
from labelers.decision import Absent, Decision, Keep, Value
from tests.agent.layouts.test_enforced_layouts import OTHER, WANTED, EnforcingScene, drifted


@pytest.fixture
def scene() -> EnforcingScene:
    return EnforcingScene()


MANAGER_STATES = {
    MigPhase.WAITING: "pending",
    MigPhase.CHANGING: "pending",
    MigPhase.REBOOTING: "rebooting",
    MigPhase.UNCHANGED: "success",
    MigPhase.FAILED: "failed",
    MigPhase.STUCK: "failed",
    MigPhase.REFUSED: "failed",
}
"""As NVIDIA's MIG manager has them. Source: NVIDIA/mig-parted, README."""


def state_label(scene: EnforcingScene, phase: str, owner: str = names.AGENT) -> Decision | None:
    """What is decided on the label of a Node on which this owner has written it."""
    layouts = EnforcedLayouts(scene.ports)
    owned: dict[str, Any] = {"f:metadata": {"f:labels": {f"f:{keys.MIG_CONFIG_STATE}": {}}}}
    fields = [{"manager": owner, "operation": "Update", "fieldsV1": owned}]
    layouts.observe({"name": "node-a", "managedFields": fields}, None)
    status = MigStatusAnnotation(v=2, phase=phase)
    return layouts.labels(status).get(keys.MIG_CONFIG_STATE)


@pytest.mark.parametrize("phase", MigPhase)
def test_the_state_in_the_words_of_the_mig_manager(scene: EnforcingScene, phase: MigPhase) -> None:
    """It stays where nothing is known, and goes where nothing is asked for."""
    found = state_label(scene, phase)
    if phase in MANAGER_STATES:
        assert found == Value(text=MANAGER_STATES[phase])
    elif phase in (MigPhase.PLANNED, MigPhase.UNREAD):
        assert found is None
    else:
        assert phase in (MigPhase.IDLE, MigPhase.UNADOPTED)
        assert isinstance(found, Absent)
        assert isinstance(state_label(scene, phase, "nvidia-mig-manager"), Keep)


def test_before_the_node_is_seen_nothing_is_shown_asked_or_closed(scene: EnforcingScene) -> None:
    layouts = EnforcedLayouts(scene.ports)
    judged = MigStatusAnnotation(v=2, phase=MigPhase.PLANNED)
    layouts.step(0.0, None)
    layouts.take(0.0)
    assert (layouts.causes, layouts.changes, layouts.is_of("")) == ((), 0, False)
    assert layouts.annotations() == layouts.labels(None) == {}
    assert layouts.status(judged, None) == judged
    assert scene.jobs == []


COORDINATOR = "it waits for the coordinator"
PODS = "it waits until the pods that use what would be destroyed have ended"
DRIFT = "another program changed the layout, so no pod is evicted: "


def test_a_change_that_waits_says_for_whom(scene: EnforcingScene) -> None:
    assert scene.asks().reason == COORDINATOR
    scene.hold("job")
    assert scene.run(70).reason == PODS
    scene.hold()
    scene.permit(PermitPhase.PROCEED)
    assert scene.run(70).phase == "unchanged"
    drifted(scene)
    assert scene.status.reason == DRIFT + COORDINATOR
    scene.hold("job")
    assert scene.run(70).reason == DRIFT + PODS


@pytest.mark.parametrize(
    ("reason", "cause"),
    [("it is lost", "it is lost"), ("", "neither layout could be reached")],
)
def test_a_held_change_names_its_cause_and_the_command_for_its_own_layout_alone(
    scene: EnforcingScene, reason: str, cause: str
) -> None:
    scene.asks()
    scene.how = ChangeAnswer(change="x", outcome=Outcome.STUCK, reason=reason)
    scene.permit(PermitPhase.PROCEED)
    held = scene.run(10)
    assert (held.phase, held.reason) == (
        "stuck",
        f"{cause}: remove the cause, then run kubectl exec POD -c actuator -- gpuscape mig restore",
    )
    scene.ask(OTHER)
    assert scene.run(60).phase == "waiting"


def test_a_request_has_the_time_at_which_it_was_first_asked_for(scene: EnforcingScene) -> None:
    scene.hold("job")
    first = scene.asks()
    assert scene.request is not None
    since = rfc3339.unix_seconds(scene.request.since)
    assert since is not None
    assert 0 <= scene.wall + scene.runtime.now - since < 15
    scene.run(1800)
    scene.start()
    scene.hold("other")
    scene.run(120)
    assert scene.request.request == first.request
    assert rfc3339.unix_seconds(scene.request.since) == since
    scene.ask(OTHER)
    scene.run()
    assert scene.request.request != first.request
    later = rfc3339.unix_seconds(scene.request.since)
    assert later is not None
    assert later > since + 1800


def changed_at(scene: EnforcingScene, seen: Callable[[], object], seconds: int) -> float:
    """Seconds until what is seen differs."""
    before, began = seen(), scene.runtime.now
    for _ in range(seconds):
        scene.run(1)
        if seen() != before:
            return scene.runtime.now - began
    raise AssertionError("nothing differs")


def test_other_pods_in_the_way_are_written_exactly_a_minute_apart(scene: EnforcingScene) -> None:
    scene.hold("job-0")
    scene.asks()

    def pods() -> object:
        return scene.request and scene.request.pods

    scene.hold("job-1")
    changed_at(scene, pods, 65)
    for at in (2, 3):
        scene.hold(f"job-{at}")
        assert changed_at(scene, pods, 65) == 60.0


def test_the_end_of_a_request_is_shown_before_its_layout_is_judged_anew(
    scene: EnforcingScene,
) -> None:
    """An agent that starts judges after ten seconds, and the coordinator waits for the end."""
    request = scene.asks().request
    scene.permit(PermitPhase.PROCEED)
    scene.start()
    known = KnownChange(
        change=request, origin="", started="", gpus=(), outcome=Outcome.ROLLED_BACK, reason="no"
    )
    scene.state = StateAnswer(last=known, named=known)
    shown = scene.run(3)
    assert (shown.request, shown.outcome, shown.desired) == (request, "rolled-back", WANTED)
    assert shown.since
    assert scene.run(20).phase == "failed"
    assert scene.status.reason.startswith("no; tried again at ")


def test_a_machine_without_room_for_a_thread_is_asked_again_later(scene: EnforcingScene) -> None:
    started = []

    def start(job: Callable[[], None]) -> None:
        started.append(scene.runtime.now)
        if len(started) < 4:
            raise NoThread("no thread can be started")
        scene.jobs.append(job)

    scene.start(replace(scene.ports, start=start))
    scene.ask(WANTED)
    assert "no thread" in scene.run(12).reason
    assert scene.run(60).phase == "waiting"
    waited = [second - first for first, second in pairwise(started[:4])]
    assert waited == pytest.approx([2.0, 4.0, 8.0], abs=5.0)
    assert waited == sorted(waited)


def told(scene: EnforcingScene, monkeypatch: pytest.MonkeyPatch) -> list[LayoutEvent]:
    """The news of the scene's agent, as they come."""
    news: list[LayoutEvent] = []
    take = scene.watch.take_events

    def taken() -> list[LayoutEvent]:
        found = take()
        news.extend(found)
        return found

    monkeypatch.setattr(scene.watch, "take_events", taken)
    return news


def test_each_step_of_a_change_is_one_event_and_what_needs_a_person_is_a_warning(
    scene: EnforcingScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    news = told(scene, monkeypatch)
    scene.how = Outcome.STUCK
    scene.asks()
    scene.waits = True
    scene.permit(PermitPhase.PROCEED)
    scene.run(2)
    scene.waits = False
    scene.run(60)
    assert [(it.reason, it.warning) for it in news] == [
        ("MigChangeWaiting", False),
        ("MigChangeChanging", False),
        ("MigChangeStuck", True),
    ]
    start = f"desired by annotation: {WANTED}: "
    assert [it.note.startswith(start) for it in news] == [True] * 3
    assert news[0].note == start + COORDINATOR
    assert news[1].note == f"{start}changing"
    assert "gpuscape mig restore" in news[2].note


@pytest.mark.parametrize(
    ("end", "reason"),
    [(Outcome.ROLLED_BACK, "MigChangeFailed"), (Outcome.REFUSED, "MigChangeRefused")],
)
def test_a_change_that_fails_or_is_refused_is_a_warning(
    scene: EnforcingScene, monkeypatch: pytest.MonkeyPatch, end: Outcome, reason: str
) -> None:
    news = told(scene, monkeypatch)
    scene.how = end
    scene.asks()
    scene.permit(PermitPhase.PROCEED)
    scene.run(10)
    assert (news[-1].reason, news[-1].warning) == (reason, True)
    assert f"it ended so: {end}; tried again at " in news[-1].note


def test_the_handles_are_looked_at_at_once_whenever_they_are_to_be_closed_or_opened(
    scene: EnforcingScene,
) -> None:
    """Not at the next look, which may be seconds away."""
    closed: list[bool] = []

    def wake() -> None:
        closed.append(bool(scene.watch.release_causes))
        scene.runtime.trigger("layouts")

    scene.start(replace(scene.ports, wake=wake))
    scene.waits = True
    scene.ask(WANTED)
    scene.run()
    assert closed == []
    scene.jobs.pop(0)()
    scene.run(10)
    assert closed[-1], "the actuator is to restore, and waits in its thread"
    scene.jobs.pop(0)()
    scene.run(10)
    assert not closed[-1]


def test_where_others_manage_mig_the_state_may_be_theirs(scene: EnforcingScene) -> None:
    scene.asks()
    assert scene.label == "pending"
    scene.watch.observe(
        {"name": "node-a", "annotations": {**scene.node, "hami.io/node-nvidia-register": "x"}}
    )
    assert scene.watch.labels() == {}
