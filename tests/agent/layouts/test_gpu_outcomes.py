# SPDX-License-Identifier: Apache-2.0
"""The GPUs that failed, on the Node: from the actuator's table, through restarts and requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from agent.layouts.change_state import first_state
from agent.layouts.change_status import status_with_change
from agent.layouts.shown_request import ShownRequest
from api.actuator.actuator_messages import (
    ApplyRequest,
    ChangeAnswer,
    KnownChange,
    RestoreRequest,
    StateAnswer,
)
from api.mig_outcome import GpuOutcome, Outcome
from api.mig_permit_annotation import PermitPhase
from api.mig_status_annotation import (
    MOST_GPU_REASON,
    MOST_REASON,
    GpuOutcomeStatus,
    MigStatusAnnotation,
    retry_time,
)
from tests.agent.layouts.test_enforced_layouts import OTHER, WANTED, EnforcingScene

APPLIED, BACK, STUCK = Outcome.APPLIED, Outcome.ROLLED_BACK, Outcome.STUCK
LOST, BUSY = "the GPU is lost", "no room for 1g.5gb"
RESTORE = "kubectl exec POD -c actuator -- gpuscape mig restore"

Row = tuple[int | None, Outcome, str]
Shown = list[tuple[int, str, str]]


@pytest.fixture
def scene() -> EnforcingScene:
    return EnforcingScene()


def table(rows: Sequence[Row]) -> tuple[GpuOutcome, ...]:
    return tuple(
        GpuOutcome(gpu=f"GPU-{number}", outcome=outcome, reason=reason, index=index)
        for number, (index, outcome, reason) in enumerate(rows)
    )


def ends(scene: EnforcingScene, outcome: Outcome, reason: str, rows: Sequence[Row]) -> None:
    """The request is carried out, and ends so on these GPUs."""
    scene.asks()
    scene.how = ChangeAnswer(change="x", outcome=outcome, reason=reason, outcomes=table(rows))
    scene.state = StateAnswer(stuck=tuple(gpu for gpu in table(rows) if gpu.outcome is STUCK))
    scene.permit(PermitPhase.PROCEED)
    scene.run(10)


def shown(scene: EnforcingScene) -> Shown:
    return [(gpu.gpu, gpu.outcome, gpu.reason) for gpu in scene.status.outcomes]


@pytest.mark.parametrize(
    ("outcome", "rows", "expected"),
    [
        (APPLIED, [(0, APPLIED, ""), (1, APPLIED, "")], []),
        (APPLIED, [(0, APPLIED, ""), (None, Outcome.UNCHANGED, "")], []),
        (BACK, [(2, BACK, BUSY)], [(2, "rolled-back", BUSY)]),
        (
            BACK,
            [(3, BACK, BUSY), (0, APPLIED, ""), (None, Outcome.UNCHANGED, "")],
            [(0, "applied", ""), (3, "rolled-back", BUSY)],
        ),
        (
            STUCK,
            [(0, APPLIED, ""), (1, STUCK, LOST), (2, BACK, BUSY)],
            [(0, "applied", ""), (1, "stuck", LOST), (2, "rolled-back", BUSY)],
        ),
        (STUCK, [], []),  # an actuator of an earlier version
        (STUCK, [(1, STUCK, "r" * 500)], [(1, "stuck", "r" * (MOST_GPU_REASON - 1) + "…")]),
        (STUCK, [(1, STUCK, "a\nb\x1b")], [(1, "stuck", "a b\\x1b")]),
    ],
)
def test_where_a_gpu_failed_the_node_shows_the_outcome_of_each(
    scene: EnforcingScene, outcome: Outcome, rows: Sequence[Row], expected: Shown
) -> None:
    ends(scene, outcome, "no", rows)
    assert (scene.status.outcome, shown(scene)) == (str(outcome), expected)


@pytest.mark.parametrize("outcome", [BACK, STUCK])
def test_the_end_of_a_reason_is_never_cut(scene: EnforcingScene, outcome: Outcome) -> None:
    """The time of the next attempt, which tools read, and the command."""
    ends(scene, outcome, "GPU 0: " + "r" * 2000, [(0, outcome, "r" * 160)])
    reason = scene.status.reason
    assert reason.startswith("GPU 0: rrr")
    assert len(reason) <= MOST_REASON
    if outcome is BACK:
        assert retry_time(reason) is not None
    else:
        assert reason.endswith(f"…: remove the cause, then run {RESTORE}")


def known(scene: EnforcingScene, outcome: Outcome, rows: Sequence[Row]) -> KnownChange:
    """The newest request in the journal."""
    return KnownChange(
        change=scene.status.request,
        origin="",
        started="",
        gpus=(),
        outcome=outcome,
        reason="GPU 1: given up",
        outcomes=table(rows),
    )


@pytest.mark.parametrize("restarted", [False, True])
def test_a_stuck_gpu_stays_on_the_node_until_the_journal_says_otherwise(
    scene: EnforcingScene, *, restarted: bool
) -> None:
    """Also where the agent is another one by then."""
    rows: list[Row] = [(0, APPLIED, ""), (1, STUCK, LOST)]
    ends(scene, STUCK, f"GPU 1: {LOST}", rows)
    before = shown(scene)
    journal = known(scene, STUCK, rows)
    scene.state = StateAnswer(open=journal, named=journal, stuck=table(rows)[1:])
    if restarted:  # what the Node shows is all that the new one has, while nobody answers it
        scene.state = StateAnswer(problem="the journal cannot be read")
        scene.start()
        scene.run(60)
        assert shown(scene) == before
        scene.state = StateAnswer(open=journal, named=journal, stuck=table(rows)[1:])
    scene.run(400)
    assert (scene.status.phase, shown(scene)) == ("stuck", before)

    ended = known(scene, BACK, [(0, APPLIED, ""), (1, BACK, "given up")])
    scene.state = StateAnswer(last=ended, named=ended)
    scene.run(400)

    assert scene.status.outcome == "rolled-back"
    assert shown(scene) == [(0, "applied", ""), (1, "rolled-back", "given up")]


@pytest.mark.parametrize("restarted", [False, True])
def test_a_gpu_stuck_since_an_earlier_request_stops_no_other_and_stays_visible(
    scene: EnforcingScene, *, restarted: bool
) -> None:
    """Another layout, of other GPUs, is requested, permitted and applied beside it."""
    rows: list[Row] = [(0, APPLIED, ""), (5, STUCK, LOST)]
    ends(scene, STUCK, f"GPU 5: {LOST}", rows)
    stuck = KnownChange(
        change=scene.status.request, origin="", started="", gpus=("GPU-1",), outcome=STUCK
    )
    journal = StateAnswer(open=stuck, stuck=table(rows)[1:])
    scene.state = journal
    first = scene.status.request
    scene.ask(OTHER)
    scene.run(60)
    assert (scene.status.phase, scene.status.outcome) == ("waiting", "")
    assert scene.status.request != first
    assert shown(scene) == [(5, "stuck", LOST)]
    if restarted:
        scene.state = StateAnswer(problem="the journal cannot be read")
        scene.start()
        scene.run(60)
        assert shown(scene) == [(5, "stuck", LOST)]
        scene.state = journal

    scene.how = APPLIED
    scene.permit(PermitPhase.PROCEED)
    scene.run(400)

    carried_out = [task.change for task in scene.asked if isinstance(task, ApplyRequest)]
    assert carried_out[-1] != first
    assert stuck.change not in {
        task.change for task in scene.asked if isinstance(task, RestoreRequest)
    }
    assert scene.status.outcome == "applied"
    assert shown(scene) == [(5, "stuck", LOST)]
    assert scene.status.reason.startswith(f"GPU 5 is stuck: {LOST} (run {RESTORE})")

    scene.state = StateAnswer()
    scene.run(120)
    assert shown(scene) == []
    assert "stuck" not in scene.status.reason


def test_without_a_desired_layout_a_stuck_gpu_is_named_too(scene: EnforcingScene) -> None:
    ends(scene, STUCK, f"GPU 1: {LOST}", [(1, STUCK, LOST)])
    journal = known(scene, STUCK, [(1, STUCK, LOST)])
    scene.state = StateAnswer(open=journal, named=journal, stuck=journal.outcomes)
    scene.ask(None)
    scene.run(60)
    assert scene.status.phase == "idle"
    assert scene.status.reason == f"GPU 1 is stuck: {LOST} (run {RESTORE})"


@pytest.mark.parametrize(
    ("length", "begins"),
    [(100, f"GPU 5 is stuck: {LOST} (run {RESTORE}); r"), (375, "GPU 5 is stuck; r"), (395, "r")],
)
def test_the_reason_of_the_present_request_is_whole_beside_a_stuck_gpu(
    length: int, begins: str
) -> None:
    """It may end in a command, and half of one is another one."""
    state = first_state(ShownRequest(), now=0.0)
    stuck = GpuOutcomeStatus(gpu=5, outcome="stuck", reason=LOST)
    state = replace(state, stuck=(stuck,))
    evaluated = MigStatusAnnotation(v=2, phase="refused", reason="r" * length)
    status = status_with_change(state, evaluated, None, lambda _retry: "")
    assert status is not None
    assert status.reason.startswith(begins)
    assert status.reason.endswith("r" * length)
    assert len(status.reason) <= MOST_REASON
    assert status.outcomes == (stuck,)


def test_a_refusal_for_a_stuck_gpu_names_it_by_index(scene: EnforcingScene) -> None:
    """The actuator could not roll it back once more."""
    stuck = KnownChange(
        change="an-earlier-one",
        origin="",
        started="",
        gpus=(scene.gpu.uuid,),
        outcome=STUCK,
        reason=f"GPU 0: {LOST}",
        outcomes=table([(0, STUCK, LOST)]),
    )
    scene.asks(WANTED)
    scene.state = StateAnswer(open=stuck, stuck=stuck.outcomes)
    scene.permit(PermitPhase.PROCEED)
    scene.run(30)
    assert scene.status.phase == "refused"
    assert f"the change an-earlier-one is stuck: GPU 0: {LOST}" in scene.status.reason
    assert retry_time(scene.status.reason) is not None
    assert shown(scene) == [(0, "stuck", LOST)]
