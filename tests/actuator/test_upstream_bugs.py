# SPDX-License-Identifier: Apache-2.0
"""What other programs do wrong when they change MIG, on a simulated node through NVML.

Each test is one fault of nvidia-mig-parted or NVIDIA's MIG manager, or a race that they lose; what
counts is the state file, and the calls that the simulated driver was asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pynvml as nv
import pytest

import actuator.journal
from actuator.change import ChangeResult, apply, resume
from actuator.journal import Journal, JournalUnusable
from actuator.nvml_world import NvmlWorld
from api.mig_outcome import Outcome
from mig.gpu_layout import GpuLayout, layout_from_counts
from mig.planner import ObstacleKind
from mig.steps import MigStep, SetMode
from simulator.description.machine_schema import MigInstanceSpec
from simulator.simulation import Return
from tests import machines
from tests.actuator.simulated_node import FIVE, H100, SimulatedNode, node
from tests.simulator.mig.mig_calls import create

BUS_ID = machines.gpu(0).bus_id
SECOND = machines.gpu(1).bus_id
WANTED = layout_from_counts({"3g.20gb": 1, "1g.5gb": 3})
CHANGES = ("SetMigMode", "CreateGpuInstance", "CreateComputeInstance", "InstanceDestroy")
BeforeStep = Callable[[int, MigStep], None]


class Watched(NvmlWorld):
    """Something happens right before a step, and waiting takes no time."""

    before: BeforeStep
    number = 0
    waited = 0.0

    def perform(self, step: MigStep) -> None:
        """The step, and what is to happen before it."""
        self.before(self.number, step)
        self.number += 1
        super().perform(step)

    def pause(self, seconds: float) -> None:
        """Counted."""
        self.waited += seconds


def changed(
    on: SimulatedNode,
    wanted: dict[int, GpuLayout] | None,
    before: BeforeStep = lambda _number, _step: None,
) -> ChangeResult:
    """Apply in this process, layouts by GPU index; with None what is open is ended."""
    uuids = [gpu.uuid for gpu in on.gpus()] if wanted else []
    with on.simulation, Journal(on.journal) as journal, Watched(on.start) as world:
        world.before = before
        if wanted is None:
            result = resume(world, journal)
            assert result is not None
            return result
        by_uuid = {uuids[at]: layout for at, layout in wanted.items()}
        return apply(world, journal, by_uuid, origin="a test")


def calls(on: SimulatedNode, bus_id: str = BUS_ID) -> list[str]:
    """The logged calls that change this GPU."""
    return [
        name
        for (name, at), number in on.simulation.calls().items()
        if at == bus_id and any(one in name for one in CHANGES)
        for _ in range(number)
    ]


def places(on: SimulatedNode, at: int = 0) -> set[tuple[str, int]]:
    """Profile and start of what is on a GPU."""
    return {one[:2] for one in on.found(at)}


def test_a_profile_that_the_gpu_has_not_is_refused_and_clears_nothing(tmp_path: Path) -> None:
    """Upstream clears the GPU, creates nothing, and reports success."""
    on = node(tmp_path, *FIVE)
    before = on.found()
    on.simulation.log_calls()

    result = changed(on, {0: layout_from_counts({"1g.6gb": 7})})

    assert result.outcome is Outcome.REFUSED
    assert result.refusal is not None
    assert on.found() == before
    assert calls(on) == []


def test_a_change_of_one_gpus_mode_leaves_the_others_alone(tmp_path: Path) -> None:
    """Upstream destroys the MIG devices of every GPU that is selected."""
    first = MigInstanceSpec(profile="3g.40gb", start=4, id=2)
    on = node(tmp_path, first, model=H100, count=2)
    uuid_of_second_off(on)
    before = on.found()
    on.simulation.log_calls()

    result = changed(
        on, {0: layout_from_counts({"3g.40gb": 1}), 1: layout_from_counts({"7g.80gb": 1})}
    )

    assert result.outcome is Outcome.APPLIED
    assert places(on, 1) == {("7g.80gb", 0)}
    assert on.found() == before
    assert calls(on) == []
    assert calls(on, SECOND).count("nvmlDeviceSetMigMode") == 1


def uuid_of_second_off(on: SimulatedNode) -> None:
    """Turn MIG off on the second GPU."""
    with on.simulation:
        nv.nvmlInit()
        nv.nvmlDeviceSetMigMode(nv.nvmlDeviceGetHandleByPciBusId(SECOND.encode()), 0)
        nv.nvmlShutdown()


def test_a_needed_reset_is_refused_with_its_command_and_nothing_is_asked_for(
    tmp_path: Path,
) -> None:
    """Upstream resets every GPU of the node; a mode that waits hides what the GPU will be."""
    on = node(tmp_path, mig=False, count=2)
    on.simulation.log_calls()

    result = changed(on, {0: WANTED})

    assert result.refusal is not None
    obstacle = result.refusal.obstacles[0]
    assert obstacle.kind is ObstacleKind.RESET_NEEDED
    assert obstacle.command is not None
    assert f"--gpu-reset -i {BUS_ID}" in obstacle.command
    assert calls(on) == []


def test_an_older_driver_that_chooses_places_is_not_tried_on(tmp_path: Path) -> None:
    """A wipe that then cannot make what was there before would end held: nothing is begun."""
    on = node(tmp_path, *FIVE)
    before = on.found()
    on.simulation.lack("nvmlDeviceCreateGpuInstanceWithPlacement")
    on.simulation.log_calls()

    result = changed(on, {0: WANTED})

    assert result.refusal is not None
    assert result.refusal.obstacles[0].kind is ObstacleKind.NO_PLACES
    assert (on.found(), calls(on)) == (before, [])
    assert not (on.journal / "change.json").exists()


def test_an_instance_without_a_device_is_seen(tmp_path: Path) -> None:
    """Upstream counts devices: such an instance blocks its place for ever. Here one that is wanted
    is completed, and another one makes room."""
    on = node(tmp_path)
    with machines.session(on.simulation) as handle:
        create(handle(0), 9, 4, 4)
        create(handle(0), 14, 0, 2)
        nv.nvmlShutdown()
    left = {one[:3] for one in on.found() if one[0] == "3g.20gb"}

    result = changed(on, {0: layout_from_counts({"3g.20gb": 1, "1g.5gb": 4})})

    assert result.outcome is Outcome.APPLIED
    assert left <= {one[:3] for one in on.found()}
    assert all(compute for *_, compute in on.found())


def test_what_is_there_already_is_asked_for_nothing(tmp_path: Path) -> None:
    """Upstream restarts all clients each time where it cannot compare."""
    on = node(tmp_path, *FIVE)
    on.simulation.log_calls()

    result = changed(on, {0: layout_from_counts({"1g.5gb": 3, "2g.10gb": 2, "7g.40gb": 0})})

    assert (result.outcome, calls(on)) == (Outcome.UNCHANGED, [])


def test_what_fails_leads_back_and_is_reported(tmp_path: Path) -> None:
    """Upstream leaves the GPU as the failure left it; the reason is in a log, if anywhere."""
    on = node(tmp_path, *FIVE)
    on.simulation.fault(
        Return(code=23), "nvmlGpuInstanceCreateComputeInstanceWithPlacement", times=1
    )

    result = changed(on, {0: WANTED})

    assert result.outcome is Outcome.ROLLED_BACK
    assert "nvmlGpuInstanceCreateComputeInstance" in result.reason
    assert places(on) == {(one.profile, one.start) for one in FIVE}


def test_without_the_right_nothing_is_tried_twice(tmp_path: Path) -> None:
    """It does not pass by itself, and the reason has what is needed."""
    on = node(tmp_path, *FIVE)
    before = on.found()
    on.simulation.revoke("mig-config")
    on.simulation.log_calls()

    result = changed(on, {0: WANTED})

    assert result.outcome is Outcome.ROLLED_BACK
    assert "NVIDIA_MIG_CONFIG_DEVICES" in result.reason
    assert on.found() == before
    assert len(calls(on)) == 1


# races


def test_a_program_that_comes_before_a_destroy_is_spared(tmp_path: Path) -> None:
    """It took its instance after the plan was made: the driver refuses, and the change goes back
    or around it."""
    on = node(tmp_path, *FIVE)
    taken: list[tuple[object, ...]] = []

    def before(number: int, step: MigStep) -> None:
        if number == 0:
            gone = getattr(step, "instance")  # noqa: B009  # the first step destroys
            on.simulation.add_process(BUS_ID, 71, gpu_instance_id=gone, compute_instance_id=0)
            ids = {one.id: one.start for one in FIVE}
            taken.extend(one for one in on.found() if one[1] == ids[gone])

    result = changed(on, {0: layout_from_counts({"7g.40gb": 1})}, before)

    assert result.outcome is Outcome.ROLLED_BACK
    assert "71" in result.reason
    assert set(taken) <= on.found()
    assert places(on) == {(one.profile, one.start) for one in FIVE}


def test_a_refusal_that_passes_is_waited_for(tmp_path: Path) -> None:
    """A program that has ended holds the GPU for a moment more, and is in no list."""
    on = node(tmp_path, model=H100, mig=False)
    on.simulation.fault(Return(code=nv.NVML_ERROR_IN_USE), "nvmlDeviceSetMigMode", times=2)

    assert changed(on, {0: layout_from_counts({"7g.80gb": 1})}).outcome is Outcome.APPLIED
    assert places(on) == {("7g.80gb", 0)}


def test_a_program_that_stays_cancels_a_change_of_the_mode(tmp_path: Path) -> None:
    """The mode that waits would come at the next reset, to everybody's surprise."""
    on = node(tmp_path, model=H100, mig=False)

    def before(number: int, step: MigStep) -> None:
        assert isinstance(step, SetMode)
        if number == 0:
            on.simulation.add_process(BUS_ID, 71)

    result = changed(on, {0: layout_from_counts({"7g.80gb": 1})}, before)

    assert result.outcome is Outcome.ROLLED_BACK
    assert "71" in result.reason
    gpu = on.simulation.state.gpus[BUS_ID]
    assert (gpu.mig, gpu.mig_pending) == (False, False)


def test_somebody_else_who_changes_mig_meanwhile_ends_the_change(tmp_path: Path) -> None:
    """Two that change a GPU in turn would never end; it has what it had when this one began."""
    on = node(tmp_path)

    def before(number: int, _step: MigStep) -> None:
        if number == 0:
            create(nv.nvmlDeviceGetHandleByPciBusId(BUS_ID.encode()), 0, 0, 8)

    result = changed(on, {0: layout_from_counts({"3g.20gb": 1})}, before)

    assert result.outcome is Outcome.ROLLED_BACK
    assert "somebody else" in result.reason
    assert places(on) == set()


@pytest.mark.parametrize("number", [0, 2, 6])
def test_a_gpu_that_is_lost_in_the_middle_is_held_until_it_is_back(
    tmp_path: Path, number: int
) -> None:
    """Its layout from before is in the journal; a restore after the reset brings it."""
    on = node(tmp_path, *FIVE, count=2)

    def before(step_number: int, _step: MigStep) -> None:
        if step_number == number:
            on.simulation.fault(Return(code=15), bus_id=BUS_ID)

    result = changed(on, {0: WANTED}, before)
    assert result.outcome is Outcome.STUCK
    assert "no such GPU" in result.reason or "GPU_IS_LOST" in result.reason.upper()

    on.simulation.clear()
    on.simulation.reset_gpu(BUS_ID)
    assert changed(on, None).outcome is Outcome.ROLLED_BACK
    assert places(on) == {(one.profile, one.start) for one in FIVE}


class _FullDisk:
    """The module os where nothing can be flushed from one call on."""

    def __init__(self, fails_from: int) -> None:
        self._left = fails_from

    def __getattr__(self, name: str) -> object:
        import os

        if name != "fsync":
            return getattr(os, name)
        if self._left:
            self._left -= 1
            return os.fsync
        return self._full

    def _full(self, _file: int) -> None:
        raise OSError(28, "No space left on device")


def test_a_full_disk_is_noticed_before_anything_is_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a way back there is no first step."""
    on = node(tmp_path, *FIVE)
    before = on.found()
    on.simulation.log_calls()
    monkeypatch.setattr(actuator.journal, "os", _FullDisk(0))

    with pytest.raises(JournalUnusable, match="free some space"):
        changed(on, {0: WANTED})

    assert (on.found(), calls(on)) == (before, [])


def test_a_disk_that_fills_in_the_middle_costs_nothing_but_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The layout is reached; the next start finds the change open, and ends it."""
    on = node(tmp_path, *FIVE)
    with monkeypatch.context() as patched:
        patched.setattr(actuator.journal, "os", _FullDisk(2))
        result = changed(on, {0: WANTED})

    after = on.found()
    assert result.outcome is Outcome.APPLIED
    assert changed(on, None).outcome is Outcome.APPLIED
    assert on.found() == after
