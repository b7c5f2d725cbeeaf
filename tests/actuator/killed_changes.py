# SPDX-License-Identifier: Apache-2.0
"""Changes whose worker or actuator gets SIGKILL, as real processes on a simulated node;
:mod:`tests.actuator.drawn_changes` draws and judges them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

import psutil

from actuator.worker_messages import ChangeRequest, Order
from api.actuator.actuator_messages import (
    ActuatorAnswer,
    ApplyRequest,
    ChangeAnswer,
    RequestedInstance,
    RequestedLayout,
    RestoreRequest,
)
from api.mig_outcome import Outcome
from base.errors import Transient
from mig.gpu_layout import GpuLayout
from tests.actuator import killed_worker
from tests.actuator.actuator_process import ActuatorProcess, started, until
from tests.actuator.drawn_changes import GPUS, DrawnChange, DrawnChanges, KillFigures

MOST_EFFECTS: Final = 400
"""Of one worker: three GPUs take some sixty calls, and ten writes of the journal."""
ASKED: Final = "a drawn layout"


def kill_workers(folder: Path, seed: int, kills: int, lost_every: int = 4) -> Iterator[KillFigures]:
    """Kill the worker of so many changes before or after an effect, and every fifth time the next
    worker too; at every ``lost_every``-th kill a GPU is lost. The figures after each kill."""
    changes = DrawnChanges.of(folder, seed, lost_every)
    while changes.figures.kills < kills:
        change = changes.next()
        if not _worked(changes, change, changes.draw.randrange(120)).killed:
            continue  # it had ended by then
        begun = time.monotonic()
        changes.lose(change)
        if changes.draw.random() < 1 / 5:
            _worked(changes, None, changes.draw.randrange(60))
        assert not _worked(changes, None).killed
        is_held = changes.judge(change) is Outcome.STUCK
        changes.figures.took(time.monotonic() - begun)
        if change.lost is not None:
            _end_lost(changes, change, change.lost, is_held=is_held)
        yield changes.figures


def _end_lost(changes: DrawnChanges, change: DrawnChange, lost: int, *, is_held: bool) -> None:
    """A GPU that is well takes its next layout, then the lost one is given up or comes back."""
    later = _of_a_well_gpu(changes, lost)
    assert not _worked(changes, later).killed
    assert changes.judge_alone(later) is Outcome.APPLIED
    given_up = is_held and changes.draw.random() < 1 / 2
    if given_up:
        assert not _worked(changes, None, give_up=changes.uuids[lost]).killed
        changes.judge_the_lost(change, given_up=True)
    changes.bring_back(lost)
    if is_held and not given_up:
        assert not _worked(changes, None).killed
        changes.judge_the_lost(change, given_up=False)


def _of_a_well_gpu(changes: DrawnChanges, lost: int) -> DrawnChange:
    """A change of a GPU that is not lost."""
    well = next(index for index in range(GPUS) if index != lost)
    return DrawnChange(changes.new_name(), {well: changes.small(well)}, changes.shapes(), None)


def _worked(
    changes: DrawnChanges,
    change: DrawnChange | None,
    moment: int | None = None,
    give_up: str = "",
) -> killed_worker.Run:
    """One worker, killed at that moment; without a change it ends what is open."""
    request = None
    if change is not None:
        desired = {changes.uuids[index]: layout for index, layout in change.desired.items()}
        request = ChangeRequest(desired=desired, origin=ASKED, change=change.name)
    order = Order(
        start=changes.on.start,
        journal=str(changes.on.journal),
        request=request,
        users=(),
        give_up=(give_up,) if give_up else (),
        deadline_seconds=240,
    )
    ran = killed_worker.run(order, moment)
    assert len(ran.effects) < MOST_EFFECTS, ran.effects
    changes.figures.most_effects = max(changes.figures.most_effects, len(ran.effects))
    return ran


def kill_actuators(
    folder: Path, seed: int, kills: int, lost_every: int = 4
) -> Iterator[KillFigures]:
    """Kill the actuator of so many changes after some of its steps, every second time with its
    worker, as a container is; at every ``lost_every``-th kill a GPU is lost. The figures after each
    kill."""
    changes = DrawnChanges.of(folder, seed, lost_every)
    socket = folder / "run" / "a.sock"
    with ExitStack() as running:
        actuator = running.enter_context(started(changes.on, socket, gpu=changes.uuids[0]))
        while changes.figures.kills < kills:
            until(lambda actuator=actuator: _is_quiet(actuator))  # type: ignore[misc]
            change = changes.next()
            if not _is_killed_in_the_middle(changes, change, actuator):
                continue
            begun = time.monotonic()
            changes.lose(change)
            actuator = running.enter_context(started(changes.on, socket, gpu=changes.uuids[0]))
            until(lambda actuator=actuator: _is_quiet(actuator))  # type: ignore[misc]
            is_held = changes.judge(change) is Outcome.STUCK
            changes.figures.took(time.monotonic() - begun)
            if change.lost is not None:
                _end_lost_by(actuator, changes, change, change.lost, is_held=is_held)
            yield changes.figures


def _is_killed_in_the_middle(
    changes: DrawnChanges, change: DrawnChange, actuator: ActuatorProcess
) -> bool:
    """Ask for the change, and kill when some steps were taken; False: it had ended by then."""
    request = _request(changes, change)
    answers: list[ActuatorAnswer] = []

    def ask() -> None:
        with suppress(Transient):  # it is killed before it answers
            answers.append(actuator.ask(request))

    client = threading.Thread(target=ask, daemon=True)
    client.start()
    states, steps = [changes.instances()], changes.draw.randrange(10)
    while client.is_alive() and not (len(states) > steps and changes.is_open(change)):
        now = changes.instances()
        if now != states[-1]:
            states.append(now)
        time.sleep(0.005)
    if answers:
        assert isinstance(answers[0], ChangeAnswer), answers
        assert answers[0].outcome is Outcome.APPLIED, answers
        return False
    processes = [psutil.Process(actuator.process.pid)]
    if changes.draw.random() < 1 / 2:
        processes += processes[0].children(recursive=True)
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    actuator.process.wait()
    client.join()
    return True


def _is_quiet(actuator: ActuatorProcess) -> bool:
    """It does nothing, and nothing is open but what is held."""
    state = actuator.state()
    is_open = state.open is not None and state.open.outcome is not Outcome.STUCK
    return state.running is None and not is_open


def _end_lost_by(
    actuator: ActuatorProcess,
    changes: DrawnChanges,
    change: DrawnChange,
    lost: int,
    *,
    is_held: bool,
) -> None:
    """As :func:`_end_lost`, with an actuator that runs."""
    later = _of_a_well_gpu(changes, lost)
    answer = actuator.ask(_request(changes, later))
    assert isinstance(answer, ChangeAnswer), answer
    assert answer.outcome is Outcome.APPLIED, answer
    assert changes.judge_alone(later) is Outcome.APPLIED
    given_up = is_held and changes.draw.random() < 1 / 2
    if given_up:
        actuator.ask(RestoreRequest(change=change.name, give_up=(changes.uuids[lost],)))
        changes.judge_the_lost(change, given_up=True)
    changes.bring_back(lost)
    if is_held and not given_up:
        actuator.ask(RestoreRequest(change=change.name))
        changes.judge_the_lost(change, given_up=False)


def _request(changes: DrawnChanges, change: DrawnChange) -> ApplyRequest:
    desired = {changes.uuids[index]: _message(it) for index, it in change.desired.items()}
    return ApplyRequest(change=change.name, origin=ASKED, desired=desired)


def _message(layout: GpuLayout) -> RequestedLayout:
    return RequestedLayout(
        mig=True,
        instances=tuple(
            RequestedInstance(profile=it.profile, compute=it.compute) for it in layout.instances
        ),
    )
