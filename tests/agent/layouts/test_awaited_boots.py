# SPDX-License-Identifier: Apache-2.0
"""A request whose change waits for a boot of the node: what the agent shows, and when it has the
mode taken back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.layouts.actuator_answers import RUNNING_SECONDS, after_answer
from agent.layouts.change_state import ChangeState, first_state
from agent.layouts.change_status import state_label, status_with_change
from agent.layouts.desired_layout import DesiredLayout
from agent.layouts.layout_change import STUCK_SECONDS, StepInputs, next_task
from agent.layouts.shown_request import ShownRequest
from api import keys
from api.actuator.actuator_messages import (
    ChangeAnswer,
    KnownChange,
    RestoreRequest,
    StateAnswer,
    StateRequest,
)
from api.mig_outcome import Outcome
from api.mig_permit_annotation import PermitPhase
from api.mig_status_annotation import MigStatusAnnotation
from labelers.decision import Value
from tests.agent.layouts.change_steps import Steps
from tests.agent.layouts.played_actuator import wanted

FILE = "/run/gpuscape-reboot/required"


def known(change: str, file: str = FILE, outcome: Outcome | None = None) -> KnownChange:
    return KnownChange(
        change=change,
        origin="",
        started="",
        gpus=("GPU-0",),
        awaits_boot=file,
        outcome=outcome,
    )


def waiting(node: Steps, file: str = FILE) -> StateAnswer:
    """The actuator's answer while the change waits."""
    change = known(node.change.request, file)
    return StateAnswer(open=change, named=change)


def refusal(plan: str) -> MigStatusAnnotation:
    """The evaluation while a mode waits."""
    return MigStatusAnnotation(v=2, phase="refused", reason="a mode waits", plan=plan)


def shown(state: ChangeState, plan: str = "a") -> tuple[str, str, object]:
    """Phase, reason and label that the Node shows."""
    status = status_with_change(state, refusal(plan), None, lambda _retry: "")
    assert status is not None
    return status.phase, status.reason, state_label(status, {})[keys.MIG_CONFIG_STATE]


def begun() -> Steps:
    """A node whose change waits."""
    node = Steps()
    node.begin()
    node.change.answered(waiting(node), node.now)
    return node


def blind(node: Steps, plan: str, key: object = "a") -> object:
    """The next task; a mode that waits keeps the agent from a plan, and not from its digest."""
    desired = DesiredLayout(
        key=key, change=None, unchanged=False, changes=node.change.changes, plan=plan
    )
    request = ShownRequest(request=node.change.request, outcome=node.change.outcome)
    return node.change.step(
        node.now, desired, shown=request, permit=PermitPhase.PROCEED, load=node.load
    )


def test_the_node_shows_the_wait_and_its_file() -> None:
    node = begun()
    assert shown(node.change.state) == (
        "rebooting",
        f"waits for a boot of the node, which the file {FILE} requests",
        Value(text="rebooting"),
    )
    assert node.change.is_open
    assert not node.change.wants_gpus


def test_nothing_is_asked_for_anew_until_the_outcome_is_there() -> None:
    """Each few seconds the state is read; neither a restore nor a second change begins."""
    node = begun()
    for _ in range(5):
        node.now += RUNNING_SECONDS
        assert blind(node, "a") == StateRequest(change=node.change.request)
        node.change.answered(waiting(node), node.now)
    node.now += RUNNING_SECONDS
    blind(node, "a")
    done = known(node.change.request, "", Outcome.APPLIED)
    node.change.answered(StateAnswer(last=done, named=done), node.now)
    assert node.change.outcome == "applied"


@pytest.mark.parametrize(("plan", "key"), [("b", "b"), ("", None), ("", "a")])
def test_another_desired_layout_or_none_has_the_mode_taken_back(plan: str, key: object) -> None:
    node = begun()
    node.now += RUNNING_SECONDS

    assert blind(node, plan, key) == RestoreRequest(change=node.change.request)
    ended = ChangeAnswer(change=node.change.request, outcome=Outcome.ROLLED_BACK, reason="why")
    node.change.answered(ended, node.now)

    assert (node.change.outcome, node.change.outcome_reason) == ("rolled-back", "why")


@pytest.mark.parametrize("unchanged", [True, False])
def test_a_mode_that_waits_no_longer_has_the_actuator_go_on(unchanged: bool) -> None:
    """A person has reset the GPU, or taken the mode back: a boot would be for nothing."""
    node = begun()
    node.now += RUNNING_SECONDS
    change = None if unchanged else wanted("a")
    stale, newest = node.change.changes - 1, node.change.changes
    request = ShownRequest(request=node.change.request)

    def task(changes: int) -> object:
        desired = DesiredLayout(
            key="a", change=change, unchanged=unchanged, changes=changes, plan="a"
        )
        permit = PermitPhase.PROCEED
        return node.change.step(node.now, desired, shown=request, permit=permit, load=node.load)

    assert task(stale) == StateRequest(change=node.change.request)
    node.change.answered(waiting(node), node.now)
    node.now += RUNNING_SECONDS
    assert task(newest) == RestoreRequest(change=node.change.request)


def test_a_layout_that_is_not_known_now_takes_nothing_back() -> None:
    node = begun()
    node.now += RUNNING_SECONDS
    request = ShownRequest(request=node.change.request)
    task = node.change.step(node.now, None, shown=request, permit=None, load=node.load)
    assert task == StateRequest(change=node.change.request)


def test_an_agent_that_starts_while_it_waits_goes_on_waiting() -> None:
    """Also after the boot, before the actuator has gone on."""
    state = first_state(ShownRequest(request=f"{1:016x}", plan="a"), now=0.0)
    desired = DesiredLayout(key="a", change=None, unchanged=False, changes=0, plan="a")
    inputs = StepInputs(
        now=0.0,
        desired=desired,
        shown=ShownRequest(request=f"{1:016x}"),
        permit=PermitPhase.PROCEED,
        load="boot-2",
        new_id=f"{2:016x}",
    )
    asked = next_task(state, inputs)
    change = known(f"{1:016x}")
    after = after_answer(asked, StateAnswer(open=change, named=change), 0.0)
    assert after.request.awaits_boot == FILE
    assert next_task(after, inputs).pending_task is None
    later = next_task(after, replace(inputs, now=RUNNING_SECONDS)).pending_task
    assert isinstance(later, StateRequest)


def test_what_runs_after_the_boot_is_changing() -> None:
    node = begun()
    node.now += RUNNING_SECONDS
    blind(node, "a")
    change = known(node.change.request)
    running = StateAnswer(running=node.change.request, open=change, named=change)
    node.change.answered(running, node.now)
    assert shown(node.change.state)[0] == "changing"


# no boot can be requested


def with_resets(node: Steps) -> object:
    """The next task, where the change resets a GPU for its mode."""
    change = replace(wanted("a"), resets=True, modes=True)
    desired = DesiredLayout(
        key="a", change=change, unchanged=False, changes=node.change.changes, plan="a"
    )
    request = ShownRequest(request=node.change.request, outcome=node.change.outcome)
    permit = PermitPhase.PROCEED if node.change.is_open else None
    return node.change.step(node.now, desired, shown=request, permit=permit, load=node.load)


def _until_refused(node: Steps, why: str) -> None:
    for _ in range(4):
        match with_resets(node):
            case RestoreRequest(change=change):
                unchanged = ChangeAnswer(change=change, outcome=Outcome.UNCHANGED)
                node.change.answered(unchanged, node.now)
            case StateRequest():
                node.change.answered(StateAnswer(no_reboot=why), node.now)


def test_nobody_is_drained_for_a_boot_that_cannot_be_asked_for() -> None:
    node, why = Steps(), "no boot can be requested: /run/gpuscape-reboot is no folder"
    _until_refused(node, why)
    with_resets(node)

    assert node.change.request == ""
    status = status_with_change(
        node.change.state,
        MigStatusAnnotation(v=2, phase="planned", plan="a"),
        None,
        lambda _retry: "",
    )
    assert status is not None
    assert (status.phase, status.reason) == ("refused", why)


def test_once_the_folder_is_there_the_request_is_made() -> None:
    node = Steps()
    _until_refused(node, "no boot can be requested")
    node.change.answered(StateAnswer(no_reboot="no boot can be requested"), node.now)
    node.now += STUCK_SECONDS
    with_resets(node)
    node.change.answered(StateAnswer(), node.now)
    with_resets(node)
    assert node.change.is_open


def test_a_change_without_resets_is_requested_all_the_same() -> None:
    node = Steps()
    _until_refused(node, "no boot can be requested")
    node.change.answered(StateAnswer(no_reboot="no boot can be requested"), node.now)
    node.now += STUCK_SECONDS
    node.begin()
    assert node.change.is_open
