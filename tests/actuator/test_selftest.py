# SPDX-License-Identifier: Apache-2.0
"""A self-test ends in the layout from before, or held, wherever it is stopped; over a world in
memory."""

from __future__ import annotations

import itertools
import logging
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from actuator.change import ChangeResult, resume
from actuator.journal import Journal, JournalUnusable
from actuator.mig_world import StepFailed
from actuator.selftest import OfferedNow, SelftestEdge, SelftestEvent, TriedLayout, selftest
from api.mig_outcome import Outcome
from discovery.mig_state import MigGpu
from discovery.model import Mode
from mig.gpu_layout import current_layout
from mig.planner import ObstacleKind
from mig.steps import MigStep
from mig.trial_layouts import trial_layouts, trial_title
from tests.actuator.played_world import Effects, Hardware, Killed, PlayedWorld
from tests.log_lines import log_lines
from tests.mig.naive_gpu import mig_gpu

A30 = "a30"
GPU = "GPU-0"
OTHER = "GPU-1"
OFF = Mode(current=False, pending=False)


def before() -> MigGpu:
    """Two instances, one of them divided."""
    return mig_gpu(A30, ("1g.6gb", 3), ("2g.12gb", 0, (1, 1)))


class SelftestRun:
    """One run, and what it reported."""

    def __init__(self, *, most: int | None = None) -> None:
        """``most``: layouts after which it is asked to end."""
        self.events: list[SelftestEvent] = []
        self._most = most
        self._seconds = itertools.count()

    @property
    def layouts(self) -> list[TriedLayout]:
        """What was tried."""
        return [one for one in self.events if isinstance(one, TriedLayout)]

    def run(self, folder: Path, world: PlayedWorld, uuid: str = GPU) -> ChangeResult:
        edge = SelftestEdge(
            self.events.append,
            lambda: self._most is not None and len(self.layouts) >= self._most,
            lambda: float(next(self._seconds)),
        )
        with Journal(folder) as journal:
            return selftest(world, journal, uuid, edge)


def open_change(folder: Path) -> bool:
    with Journal(folder) as journal:
        return bool(journal.content().unended)


@pytest.mark.parametrize(
    "gpu",
    [
        before(),
        mig_gpu(A30, ("4g.24gb", 0, (1, 2))),  # a planner makes the larger part first
        mig_gpu(A30),
        mig_gpu(A30, mode=OFF, resetless=True),
    ],
    ids=["several", "divided", "empty", "off"],
)
def test_all_layouts_are_tried_and_the_one_from_before_is_there(
    tmp_path: Path, gpu: MigGpu
) -> None:
    """With the same ids and MIG devices; other GPUs are not touched; each step has a time."""
    other = mig_gpu(A30, ("4g.24gb", 0), uuid=OTHER, index=1)
    hardware = Hardware.of([gpu, other])
    tested = SelftestRun()

    result = tested.run(tmp_path / "mig", PlayedWorld(hardware))

    assert result == ChangeResult(outcome=Outcome.ROLLED_BACK)
    assert hardware.seen() == (gpu, other)
    assert {uuid for uuid, _ in hardware.destroyed} == {GPU}
    assert not open_change(tmp_path / "mig")
    wanted = [trial_title(one) for one in trial_layouts(gpu)]
    assert [one.name for one in tested.layouts] == ["MIG on, empty", *wanted]
    assert [one.failure for one in tested.layouts if one.failure] == []
    assert any(one.kept for one in tested.layouts)
    assert all(step.seconds > 0 for one in tested.layouts for step in one.steps)
    [offered] = [one for one in tested.events if isinstance(one, OfferedNow)]
    assert offered.profiles == gpu.profiles
    with Journal(tmp_path / "mig") as journal:
        [past] = journal.content().ended
    assert (past.origin, past.outcome, past.reason) == ("a self-test", "rolled-back", "")


@pytest.mark.parametrize("every", [13, pytest.param(1, marks=pytest.mark.long, id="each")], ids=str)
def test_killed_before_or_after_any_effect_it_ends_in_the_layout_from_before(every: int) -> None:
    """The next start brings it, whatever it was started for."""
    for moment in itertools.count(step=every):
        hardware = Hardware.of([before()])
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name) / "mig"
            try:
                SelftestRun().run(folder, PlayedWorld(hardware, Effects(moment)))
                break
            except Killed:
                pass
            with Journal(folder) as journal:
                result = resume(PlayedWorld(hardware), journal)
            assert result is not None
            assert result.outcome is Outcome.ROLLED_BACK
            assert result.reason == "GPU 0: a self-test was stopped in the middle"
            assert current_layout(hardware.seen()[0], exact=True) == current_layout(
                before(), exact=True
            )
            assert not open_change(folder)
    assert moment > 100


def test_asked_to_end_it_goes_back(tmp_path: Path) -> None:
    hardware = Hardware.of([before()])
    tested = SelftestRun(most=3)

    result = tested.run(tmp_path / "mig", PlayedWorld(hardware))

    assert result.outcome is Outcome.ROLLED_BACK
    assert result.reason == "no further layout was to be tried"
    assert len(tested.layouts) == 3
    assert hardware.seen() == (before(),)


def test_what_the_driver_refuses_is_a_failed_layout_and_the_next_one_is_tried(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A refusal, and a success that has no effect: one layout each."""
    caplog.set_level(logging.INFO)
    hardware = Hardware.of([before()])
    tested = SelftestRun()
    world = PlayedWorld(hardware)
    made = 5  # the first instance of the first layout, after what was there
    world.fails[made] = StepFailed("NVML_ERROR_NO_PERMISSION")

    result = tested.run(tmp_path / "mig", world)

    failed = [one for one in tested.layouts if one.failure]
    assert [one.failure for one in failed] == ["NVML_ERROR_NO_PERMISSION"]
    assert [step.failure for one in failed for step in one.steps] == ["NVML_ERROR_NO_PERMISSION"]
    assert len(tested.layouts) == 1 + len(list(trial_layouts(before())))
    tried = [{"layout": one.name} for one in tested.layouts]
    lines = log_lines(caplog)
    assert [fields for _, text, fields in lines if text == "MIG self-test layout"] == tried
    why = {"layout": failed[0].name, "why": "NVML_ERROR_NO_PERMISSION"}
    assert ("WARNING", "MIG self-test layout failed", why) in lines
    assert result == ChangeResult(outcome=Outcome.ROLLED_BACK)
    assert hardware.seen() == (before(),)


class Forgetful(PlayedWorld):
    """Its driver makes anew what was to stay."""

    def perform(self, step: MigStep) -> None:
        super().perform(step)
        gpu = self.hardware.gpus[0]
        gpu.gpu = renumbered(gpu.gpu)


def renumbered(gpu: MigGpu) -> MigGpu:
    """Other MIG devices on what was there before the last instance came."""
    return replace(
        gpu,
        instances=tuple(
            replace(
                one,
                compute=tuple(replace(part, uuid=f"{part.uuid}x") for part in one.compute),
            )
            for one in gpu.instances
        ),
    )


def test_what_was_to_stay_and_is_another_one_is_a_failure(tmp_path: Path) -> None:
    tested = SelftestRun()

    result = tested.run(tmp_path / "mig", Forgetful(Hardware.of([mig_gpu(A30)])))

    assert result.outcome is Outcome.ROLLED_BACK
    reasons = {one.failure.partition(":")[0] for one in tested.layouts if one.failure}
    assert reasons == {"these were to stay, and are others now"}


def test_a_pod_that_comes_in_the_middle_ends_it_and_keeps_its_instance(tmp_path: Path) -> None:
    """Then the way back is not free: held. The world refuses to destroy a busy instance."""
    hardware = Hardware.of([mig_gpu(A30)])
    world = PlayedWorld(hardware, grabs={7: (GPU, "1g.6gb", 0)})

    tested = SelftestRun()

    result = tested.run(tmp_path / "mig", world)

    assert result.outcome is Outcome.STUCK
    assert result.reason.startswith("somebody took the GPU: pod ns/late; the way back failed too")
    assert len(tested.layouts) == 2
    assert [(one.profile, one.start) for one in hardware.seen()[0].instances] == [("1g.6gb", 0)]


def test_a_gpu_that_is_lost_in_the_middle_is_held(tmp_path: Path) -> None:
    world = PlayedWorld(Hardware.of([before()]), loses={9: GPU})

    result = SelftestRun().run(tmp_path / "mig", world)

    assert result.outcome is Outcome.STUCK
    assert open_change(tmp_path / "mig")


def _held_instance(hardware: Hardware) -> None:
    hardware.held[(GPU, "1g.6gb", 3)] = "ns/train"


def _used_gpu(hardware: Hardware) -> None:
    hardware.used[GPU] = "4711 python"


@pytest.mark.parametrize(
    ("gpu", "busy", "kind"),
    [
        (before(), _held_instance, ObstacleKind.BUSY),
        (before(), _used_gpu, ObstacleKind.BUSY),
        (mig_gpu(A30), _used_gpu, ObstacleKind.BUSY),
        (mig_gpu(A30, mode=OFF), None, ObstacleKind.RESET_NEEDED),
        (
            mig_gpu(A30, mode=Mode(current=True, pending=False)),
            None,
            ObstacleKind.RESET_PENDING,
        ),
        (mig_gpu(A30, mode=None), None, ObstacleKind.NO_MIG),
    ],
    ids=["pod", "program", "program on an empty GPU", "reset", "reset pending", "no MIG"],
)
def test_what_is_refused_is_refused_before_anything_is_written(
    tmp_path: Path, gpu: MigGpu, busy: Callable[[Hardware], None] | None, kind: ObstacleKind
) -> None:
    hardware = Hardware.of([gpu])
    if busy is not None:
        busy(hardware)
    world = PlayedWorld(hardware)
    tested = SelftestRun()

    result = tested.run(tmp_path / "mig", world)

    assert result.outcome is Outcome.REFUSED
    assert result.refusal is not None
    assert result.refusal.obstacles[0].kind is kind
    assert result.reason == result.refusal.obstacles[0].detail
    if kind is ObstacleKind.BUSY:
        assert result.reason.removeprefix("the GPU is in use: ") in (
            "pod ns/train",
            "process 4711 python",
        )
    assert (world.taken, tested.events) == ([], [])
    assert not (tmp_path / "mig" / "change.json").exists()


def test_beside_an_open_change_nothing_is_tried(tmp_path: Path) -> None:
    world = PlayedWorld(Hardware.of([before()]), loses={9: GPU})
    SelftestRun().run(tmp_path / "mig", world)
    second = PlayedWorld(Hardware.of([before()]))

    with pytest.raises(JournalUnusable, match="a self-test is stuck on GPU GPU-0"):
        SelftestRun().run(tmp_path / "mig", second)
    assert second.taken == []


def test_a_gpu_that_is_not_there_is_not_tested(tmp_path: Path) -> None:
    with pytest.raises(StepFailed, match="lists no such GPU"):
        SelftestRun().run(tmp_path / "mig", PlayedWorld(Hardware.of([before()])), uuid=OTHER)


def test_mig_devices_that_do_not_come_back_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A compute instance whose neighbour with the lower id is gone: ids cannot be chosen."""
    whole = mig_gpu(A30, ("2g.12gb", 0, (1, 1)))
    (one,) = whole.instances
    gpu = replace(whole, instances=(replace(one, compute=one.compute[1:]),))

    result = SelftestRun().run(tmp_path / "mig", PlayedWorld(Hardware.of([gpu])))

    (gone,) = (compute.uuid for compute in one.compute[1:])
    assert result.outcome is Outcome.ROLLED_BACK
    assert result.problems == (
        f"the layout is there again, but these MIG devices are gone: {gone};"
        " delete the pods that use them",
    )
    line = ("WARNING", "MIG devices gone", {"gpu": GPU, "devices": gone})
    assert log_lines(caplog)[-1] == line


def test_a_driver_that_reports_no_profiles_ends_it_with_that_reason(tmp_path: Path) -> None:
    """Nothing but MIG on and empty can be tried then."""
    gpu = replace(mig_gpu(A30), profiles=())
    tested = SelftestRun()

    result = tested.run(tmp_path / "mig", PlayedWorld(Hardware.of([gpu])))

    reason = "the driver reports no profiles, also with MIG on"
    assert result == ChangeResult(outcome=Outcome.ROLLED_BACK, reason=reason)
    assert len(tested.layouts) == 1
