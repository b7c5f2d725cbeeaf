# SPDX-License-Identifier: Apache-2.0
"""How long is waited, for whom, and what is said meanwhile."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from cli.failures import REFUSED, CommandFailure
from cli.mig import mig_apply
from cli.mig.in_use.busy_wait import RETRY_SECONDS, BusyWait
from mig.gpu_layout import has_layout
from mig.planner import MigRefusal, Obstacle, ObstacleKind
from mig.users.device_users import DeviceUser, UserKind
from tests.actuator.simulated_node import FIVE, SimulatedNode, node
from tests.cli.mig.mig_process import journal
from tests.cli.mig.test_mig_apply import LAYOUT, WANTED, run


class Clock:
    """Time passes where somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def refusal(*names: str, kind: ObstacleKind = ObstacleKind.BUSY) -> MigRefusal:
    users = frozenset(DeviceUser(UserKind.POD, name) for name in names)
    return MigRefusal(obstacles=(Obstacle(kind=kind, gpu="GPU-0", detail="", users=users),))


def waiting(clock: Clock, seconds: float) -> BusyWait:
    return BusyWait(seconds, clock=clock, sleep=clock.sleep)


def test_it_looks_again_until_the_time_is_over_and_not_longer() -> None:
    clock = Clock()
    wait = waiting(clock, 12)

    assert [wait.wait_again(refusal("default/a")) for _ in range(4)] == [True, True, True, False]
    assert clock.slept == [RETRY_SECONDS, RETRY_SECONDS, 2]


@pytest.mark.parametrize("seconds", [0, 600])
def test_nobody_waits_for_what_does_not_pass(seconds: float) -> None:
    """Nor where there is a plan, nor where it was not asked for."""
    clock = Clock()
    wait = waiting(clock, seconds)
    both = refusal("default/a").obstacles + refusal(kind=ObstacleKind.PLUGIN).obstacles

    for found in (None, refusal(kind=ObstacleKind.INFEASIBLE), MigRefusal(obstacles=both)):
        assert not wait.wait_again(found)
    assert wait.wait_again(refusal("default/a")) == bool(seconds)


def test_who_is_in_the_way_is_said_when_that_changes_and_once_a_minute(
    capsys: pytest.CaptureFixture[str],
) -> None:
    wait = waiting(Clock(), 4000)
    for names in [("default/a", "default/b")] * 2 + [("default/b",)] * 13:
        wait.wait_again(refusal(*names))

    assert capsys.readouterr().err.splitlines() == [
        "Waiting, 1h06m left; in the way: pod default/a, pod default/b",
        "Waiting, 1h06m left; in the way: pod default/b",
        "Waiting, 1h05m left; in the way: pod default/b",
    ]


def test_ctrl_c_ends_the_waiting_with_nothing_changed() -> None:
    def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    wait = BusyWait(60, clock=Clock(), sleep=interrupted)

    with pytest.raises(CommandFailure, match="nothing was changed") as ended:
        wait.wait_again(refusal("default/a"))
    assert ended.value.exit_code == REFUSED


# on a simulated machine


@pytest.fixture
def on(tmp_path: Path) -> SimulatedNode:
    """One A100, full."""
    return node(tmp_path, *FIVE)


BUSY_GPU = "0000:10:00.0"


@pytest.fixture
def busy(on: SimulatedNode, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A program on an instance that has to go, which ends when it is waited for the second time.

    Gives how long it was waited each time.
    """
    on.simulation.add_process(BUSY_GPU, 71, gpu_instance_id=4, compute_instance_id=0)
    waited: list[float] = []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 2:
            on.simulation.remove_process(71)

    monkeypatch.setattr(mig_apply, "BusyWait", partial(BusyWait, sleep=sleep))
    return waited


def test_apply_waits_for_the_end_of_what_is_in_use_where_that_is_asked_for(
    on: SimulatedNode, busy: list[float]
) -> None:
    """It prints whom it waits for; the change is the one that was asked for."""
    result = run(on, "apply", WANTED, "--yes", "--wait", "1h", "-o", "json")

    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["outcome"] == "applied"
    assert busy == [RETRY_SECONDS] * 2
    assert result.stderr.count("Waiting") == 1
    assert "left; in the way: process 71\n" in result.stderr
    assert has_layout(on.gpus()[0], LAYOUT)


def test_without_the_option_nobody_waits(on: SimulatedNode, busy: list[float]) -> None:
    before = on.found()

    result = run(on, "apply", WANTED, "--yes")

    assert result.exit_code == REFUSED
    assert result.stdout.endswith("  in the way: process 71\n")
    assert (on.found(), journal(on).exists(), busy) == (before, False, [])


def test_who_is_there_after_the_hooks_is_waited_for_too(
    on: SimulatedNode, busy: list[float], tmp_path: Path
) -> None:
    """The worker finds him; the hook at the end runs once."""
    written = tmp_path / "written"
    hooks = tmp_path / "hooks.yaml"
    command = f'{{command: sh, args: ["-c", "echo over >> {written}"]}}'
    hooks.write_text(f"{{version: v1, hooks: {{apply-exit: [{command}]}}}}")

    result = run(on, "apply", WANTED, "--yes", "--wait", "1h", "-k", str(hooks))

    assert result.exit_code == 0, result.output
    assert busy == [RETRY_SECONDS] * 2
    assert written.read_text() == "over\n"


@pytest.mark.parametrize("words", ["soon", "0", "25h"])
def test_a_time_to_wait_that_is_none_is_refused(on: SimulatedNode, words: str) -> None:
    result = run(on, "apply", WANTED, "--yes", "--wait", words)

    assert result.exit_code == 2
    assert "--wait" in result.stderr
    assert "a duration from 1s to 24h" in result.stderr
