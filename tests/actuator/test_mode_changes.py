# SPDX-License-Identifier: Apache-2.0
"""MIG is turned on and off on Ampere by the driver's own reset, or the GPU is as it was before."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pynvml as nv
import pytest
from msgspec.structs import replace

from actuator.change import ChangeResult, apply, begin, resume
from actuator.journal import Journal
from actuator.mig_world import RESET_PATIENCE_SECONDS
from actuator.nvml_world import NvmlWorld
from actuator.worker_messages import ChangeRequest, Order
from api.mig_mode_change import ModeChange
from api.mig_outcome import Outcome
from mig.gpu_layout import MIG_OFF, GpuLayout, has_layout, layout_from_counts
from mig.mode_permission import ModePermission
from mig.planner import ObstacleKind
from simulator.simulation import Return
from simulator.state.machine_state import MachineState, RunningReset
from tests import machines
from tests.actuator import killed_worker
from tests.actuator.simulated_node import FIVE, SimulatedNode, node
from tests.actuator.test_nvml_world import opener

BUS_ID = machines.gpu(0).bus_id
BY_DRIVER = ModePermission(by=ModeChange.DRIVER)
SEVEN = layout_from_counts({"1g.5gb": 7})


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Pauses of the world, which take no time here."""
    taken: list[float] = []
    on_pause(monkeypatch, taken.append)
    return taken


def on_pause(monkeypatch: pytest.MonkeyPatch, call: Callable[[float], None]) -> None:
    """Have pauses of the world call this instead, with their seconds."""

    def pause(world: NvmlWorld, seconds: float) -> None:
        del world
        call(seconds)

    monkeypatch.setattr(NvmlWorld, "pause", pause)


def changed(
    on: SimulatedNode, layout: GpuLayout, by: ModeChange = ModeChange.DRIVER
) -> ChangeResult:
    """Bring the first GPU to a layout."""
    desired = {on.uuid(): layout}
    with on.simulation, Journal(on.journal) as journal, NvmlWorld(on.start) as world:
        return apply(world, journal, desired, origin="a test", modes=ModePermission(by=by))


def mode(on: SimulatedNode) -> tuple[bool, bool]:
    """The first GPU's mode, and the one that waits, in the state file."""
    gpu = on.simulation.state.gpus[BUS_ID]
    return gpu.mig, gpu.mig_pending


def unended(on: SimulatedNode) -> bool:
    """Whether the journal has a change that has not ended."""
    with Journal(on.journal) as journal:
        return bool(journal.content().unended)


@pytest.mark.parametrize("renumbers", [False, True])
def test_mig_is_turned_on_by_the_drivers_reset_and_the_layout_made(
    tmp_path: Path, renumbers: bool
) -> None:
    """Before it the driver reports no profiles, and after it other numbers. The other GPU is left
    alone."""
    on = node(tmp_path, mig=False, count=2)
    on.simulation.set_resets(seconds=0.2, renumbers=renumbers)
    other = on.simulation.state.gpus[machines.gpu(1).bus_id]

    result = changed(on, SEVEN)

    assert result.outcome is Outcome.APPLIED
    assert has_layout(on.gpus()[0], SEVEN)
    assert on.simulation.state.gpus[machines.gpu(1).bus_id] == other


def test_mig_is_turned_off_and_its_instances_go_first(tmp_path: Path) -> None:
    """The driver would refuse it with instances."""
    on = node(tmp_path, *FIVE)

    result = changed(on, MIG_OFF)

    assert (result.outcome, mode(on), on.found()) == (
        Outcome.APPLIED,
        (False, False),
        frozenset(),
    )


def test_without_permission_nothing_is_touched(tmp_path: Path) -> None:
    """The default, and the refusal says how the permission is called."""
    on = node(tmp_path, mig=False)

    result = changed(on, SEVEN, ModeChange.OFF)

    assert result.refusal is not None
    [obstacle] = result.refusal.obstacles
    assert obstacle.kind is ObstacleKind.RESET_NEEDED
    assert "mig-mode-change is off" in result.reason
    assert mode(on) == (False, False)


def test_a_mode_that_somebody_else_asked_for_is_theirs(tmp_path: Path) -> None:
    """Also where it is the desired one: they may be about to do more."""
    on = node(tmp_path, mig=False)
    on.simulation.edit(lambda state: _first(state, mig_pending=True))

    result = changed(on, SEVEN)

    assert result.refusal is not None
    assert [found.kind for found in result.refusal.obstacles] == [ObstacleKind.RESET_PENDING]
    assert mode(on) == (False, True)


def _first(state: MachineState, **values: object) -> MachineState:
    """The state with other values of the first GPU."""
    gpu = replace(state.gpus[BUS_ID], **values)
    return replace(state, gpus=state.gpus | {BUS_ID: gpu})


# in use


def _named(folder: Path, name: str) -> str:
    """A program that sleeps, by another name."""
    program = folder / name
    shutil.copy(shutil.which("sleep") or "", program)
    return str(program)


def test_a_client_in_the_way_is_named_and_the_mode_taken_back(
    tmp_path: Path, pauses: list[float]
) -> None:
    """The persistence daemon is in the way of a reset alone, so nobody sees it before."""
    on = node(tmp_path, mig=False)
    program = _named(tmp_path, "nvidia-persistenced")
    with opener(Path(on.start.host_root) / "dev/nvidia0", program=program) as daemon:
        on.simulation.use_by(daemon.pid, BUS_ID, kind="client")

        result = changed(on, SEVEN)

        assert result.outcome is Outcome.ROLLED_BACK
        assert f"process {daemon.pid} nvidia-persistenced (the persistence daemon)" in result.reason
        assert "(activation): In Use" in result.reason
        assert "could not be taken back" not in result.reason
    assert mode(on) == (False, False)
    assert not unended(on)
    assert 30 <= sum(pauses) <= RESET_PATIENCE_SECONDS


def test_a_client_that_goes_in_time_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends in the third pause."""
    on = node(tmp_path, mig=False)
    on.simulation.add_process(BUS_ID, 71, kind="client")
    waits = iter(range(9))

    def sleep(_seconds: float) -> None:
        if next(waits) == 2:
            on.simulation.remove_process(71)

    on_pause(monkeypatch, sleep)

    assert changed(on, SEVEN).outcome is Outcome.APPLIED


def test_a_program_with_the_device_file_open_refuses_it_before_anything(tmp_path: Path) -> None:
    """DCGM's host engine, which the driver lists nowhere."""
    on = node(tmp_path, *FIVE)
    before = on.found()
    program = _named(tmp_path, "nv-hostengine")
    with opener(Path(on.start.host_root) / "dev/nvidia0", program=program) as engine:
        result = changed(on, MIG_OFF)

    assert result.outcome is Outcome.REFUSED
    assert f"{engine.pid} nv-hostengine" in result.reason
    assert on.found() == before


def test_what_was_destroyed_for_a_mode_that_does_not_come_is_there_again(tmp_path: Path) -> None:
    """At its places."""
    on = node(tmp_path, *FIVE)
    before = {one[:2] for one in on.found()}
    on.simulation.add_process(BUS_ID, 71, kind="client")

    result = changed(on, MIG_OFF)

    assert (result.outcome, mode(on)) == (Outcome.ROLLED_BACK, (True, True))
    assert {one[:2] for one in on.found()} == before


def test_gpus_in_use_are_waited_for_together_and_each_is_as_before(
    tmp_path: Path, pauses: list[float]
) -> None:
    """One program that has all open must not keep the node for the sum of their waits."""
    on = node(tmp_path, mig=False, count=4)
    for number in range(4):
        on.simulation.add_process(machines.gpu(number).bus_id, 71, kind="client")
    desired = {gpu.uuid: SEVEN for gpu in on.gpus()}

    with on.simulation, Journal(on.journal) as journal, NvmlWorld(on.start) as world:
        result = apply(world, journal, desired, origin="a test", modes=BY_DRIVER)

    assert [gpu.outcome for gpu in result.gpus] == [Outcome.ROLLED_BACK] * 4
    assert sum(pauses) <= RESET_PATIENCE_SECONDS + 3 * 3.5
    assert {gpu.mig_pending for gpu in on.simulation.state.gpus.values()} == {False}


# GPUs that the driver does not reset


@pytest.mark.parametrize("answer", ["reset-required", "not-supported"])
def test_a_machine_whose_driver_cannot_reset_is_as_before_with_the_command(
    tmp_path: Path, answer: str
) -> None:
    """A virtual machine that the GPU is passed through to. The mode does not wait for a boot that
    somebody makes for another reason."""
    on = node(tmp_path, mig=False)
    on.simulation.set_resets(mode_change=answer)

    result = changed(on, SEVEN)

    assert result.outcome is Outcome.ROLLED_BACK
    assert f"run nvidia-smi -i {BUS_ID} -mig 1 && reboot" in result.reason
    assert mode(on) == (False, False)
    assert not unended(on)


def test_a_mode_that_cannot_be_taken_back_is_stuck(tmp_path: Path) -> None:
    """The next reset or boot brings it, so the GPU has neither layout for sure."""
    on = node(tmp_path, mig=False)
    on.simulation.set_resets(mode_change="reset-required")
    on.simulation.fault(Return(code=nv.NVML_ERROR_UNKNOWN), "nvmlDeviceSetMigMode", after=1)

    result = changed(on, SEVEN)

    assert result.outcome is Outcome.STUCK
    assert "the next reset or boot turns MIG on" in result.reason
    assert mode(on) == (False, True)


def test_a_reset_that_fails_leaves_the_gpu_as_it_was(tmp_path: Path) -> None:
    on = node(tmp_path, mig=False)
    on.simulation.set_resets(result="fails")

    result = changed(on, SEVEN)

    assert (result.outcome, mode(on)) == (Outcome.ROLLED_BACK, (False, False))


def test_a_gpu_that_is_lost_in_its_reset_is_stuck(tmp_path: Path) -> None:
    """No layout can be read on it; the other GPU takes changes."""
    on = node(tmp_path, mig=False, count=2)
    on.simulation.set_resets(result="loses")

    result = changed(on, SEVEN)

    assert result.outcome is Outcome.STUCK
    on.simulation.set_resets(result="done")
    with on.simulation, Journal(on.journal) as journal, NvmlWorld(on.start) as world:
        [other] = [gpu.uuid for gpu in world.observe()]
        second = apply(world, journal, {other: SEVEN}, origin="a test", modes=BY_DRIVER)
    assert second.outcome is Outcome.APPLIED


def test_profiles_that_the_driver_does_not_have_after_all_bring_mig_off_again(
    tmp_path: Path,
) -> None:
    """The table of known models is not the driver; this A100's has two profiles."""
    on = SimulatedNode(machines.simulation(tmp_path / "machine", machines.gpu(0)), tmp_path)

    result = changed(on, layout_from_counts({"2g.10gb": 1}))

    assert result.outcome is Outcome.ROLLED_BACK
    assert "2g.10gb" in result.reason
    assert mode(on) == (False, False)


# killed in the middle


def _order(on: SimulatedNode, request: ChangeRequest | None) -> Order:
    return Order(
        start=on.start,
        journal=str(on.journal),
        request=request,
        users=(),
        deadline_seconds=60,
    )


def _request(on: SimulatedNode, layout: GpuLayout) -> ChangeRequest:
    return ChangeRequest(
        desired={on.uuid(): layout}, origin="a test", mode_change=ModeChange.DRIVER
    )


def _moments(on: SimulatedNode, layout: GpuLayout) -> range:
    """The moments at which a worker of this change can be killed."""
    effects = killed_worker.run(_order(on, _request(on, layout))).effects
    return range(2 * len(effects))


@pytest.mark.parametrize(
    ("instances", "layout"), [((), layout_from_counts({"7g.40gb": 1})), (FIVE[:1], MIG_OFF)]
)
def test_a_killed_change_of_the_mode_goes_on_from_wherever_it_was(
    tmp_path: Path, instances: tuple[object, ...], layout: GpuLayout
) -> None:
    """Also between the request for the mode and its effect: that it waits is its own doing."""
    on = node(tmp_path, *FIVE[: len(instances)], mig=bool(instances), count=2)
    first, other = on.simulation.state, machines.gpu(1).bus_id
    request = _request(on, layout)
    moments = _moments(on, layout)
    outcomes = set()
    for moment in moments:
        on.simulation.edit(lambda _: first)
        shutil.rmtree(on.journal, ignore_errors=True)

        assert killed_worker.run(_order(on, request), moment).killed
        killed_worker.run(_order(on, None))

        outcomes.add(has_layout(on.gpus()[0], layout))
        assert not unended(on)
        assert on.simulation.state.gpus[other] == first.gpus[other]
    assert outcomes == {True, False}  # before the journal has it nothing goes on
    assert len(moments) > 10


def _begun(
    on: SimulatedNode, layout: GpuLayout, change: Callable[[MachineState], MachineState]
) -> None:
    """A change of the first GPU that a process left open, and what it left the GPU in."""
    uuid = on.uuid()
    desired: Mapping[str, GpuLayout] = {uuid: layout}
    with on.simulation, Journal(on.journal) as journal, NvmlWorld(on.start) as world:
        gpus = [gpu for gpu in world.observe() if gpu.uuid == uuid]
        begin(world, journal, gpus, desired, origin="a test", modes=BY_DRIVER)
    on.simulation.edit(change)


def test_a_mode_that_waits_since_the_kill_is_the_changes_own(tmp_path: Path) -> None:
    on = node(tmp_path, mig=False)
    _begun(on, SEVEN, lambda state: _first(state, mig_pending=True))

    with on.simulation, Journal(on.journal) as journal, NvmlWorld(on.start) as world:
        result = resume(world, journal)

    assert result is not None
    assert (result.outcome, mode(on)) == (Outcome.APPLIED, (True, True))


def test_a_mode_that_waits_on_a_stuck_gpu_is_named_with_the_command_that_takes_it_back(
    tmp_path: Path,
) -> None:
    """An earlier process asked for it, and the driver takes no request any more."""
    on = node(tmp_path, mig=False)
    _begun(on, SEVEN, lambda state: _first(state, mig_pending=True))
    on.simulation.fault(Return(code=nv.NVML_ERROR_UNKNOWN), "nvmlDeviceSetMigMode")

    with on.simulation, Journal(on.journal) as journal, NvmlWorld(on.start) as world:
        result = resume(world, journal)

    assert result is not None
    assert result.outcome is Outcome.STUCK
    assert result.reason.endswith(
        f"the next reset or boot turns MIG on, unless you run nvidia-smi -i {BUS_ID} -mig 0"
    )


def test_a_reset_that_outlives_its_caller_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The GPU does not answer until it is over, and is not given up for that."""
    on = node(tmp_path, mig=False)
    clock = [on.simulation.clock()]
    on.simulation.clock = lambda: clock[0]
    reset = RunningReset(ends=clock[0] + 20.0, result="done")
    _begun(on, SEVEN, lambda state: _first(state, mig_pending=True, reset=reset))

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    on_pause(monkeypatch, sleep)
    with on.simulation, Journal(on.journal) as journal, NvmlWorld(on.start) as world:
        result = resume(world, journal)

    assert result is not None
    assert result.outcome is Outcome.APPLIED
