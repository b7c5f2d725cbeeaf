# SPDX-License-Identifier: Apache-2.0
"""A MIG mode that nobody can reset waits for a boot of the node, once, or is taken back."""

from __future__ import annotations

import math
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pynvml as nv
import pytest
from msgspec.structs import replace

import actuator.worker
from actuator.boots.reboot_sentinel import RebootSentinel
from actuator.change import ChangeResult
from actuator.change_record import ChangeRecord
from actuator.journal import Journal, JournalUnusable
from actuator.nvml_world import NvmlWorld
from actuator.service.transactions import LONGEST_RETRY_SECONDS, Transactions
from actuator.supervisor import WorkerDied
from actuator.worker import carry_out
from actuator.worker_messages import ChangeRequest, Order
from api.actuator.actuator_messages import (
    ActuatorAnswer,
    ApplyRequest,
    ChangeAnswer,
    RefusalAnswer,
    RequestedInstance,
    RequestedLayout,
    RestoreRequest,
    StateAnswer,
)
from api.mig_mode_change import NO_FALLBACK, MigReboot, ModeChange, ResetFallback
from api.mig_outcome import Outcome
from base import threads
from base.text import rfc3339
from discovery.driver_errors import DriverAbsent
from mig.gpu_layout import MIG_OFF, GpuLayout, has_layout, layout_from_counts
from simulator.simulation import Return
from simulator.state.machine_state import MachineState
from tests import machines
from tests.actuator.simulated_node import FIVE, SimulatedNode, node
from tests.agent.agent_process import SOON

SEVEN: Final = layout_from_counts({"1g.5gb": 7})
HOUR: Final = 3600.0
CHANGE: Final = "the-change"
BY_BOOT: Final = ResetFallback(reboot=MigReboot.SENTINEL)


@dataclass
class BootNode:
    """A pass-through machine of two A100 with a folder for the file, and its time."""

    on: SimulatedNode
    now: float = 1_800_000_000.0
    may_boot: bool = True
    fallback: ResetFallback = BY_BOOT

    @property
    def sentinel(self) -> RebootSentinel:
        """As the actuator's settings have it."""
        return RebootSentinel(folder=str(self.on.folder / "reboot"), seconds=HOUR)

    @property
    def asks(self) -> bool:
        """Whether the file is there."""
        return self.sentinel.file.exists()

    def work(
        self,
        *layouts: GpuLayout,
        change: str = "",
        give_up: tuple[str, ...] = (),
        requested: str = CHANGE,
        first: int = 0,
    ) -> ChangeResult:
        """One worker, with layouts for the GPUs from the ``first`` on, or without a request;
        ``requested``: the request's id."""
        uuids = [gpu.uuid for gpu in self.on.gpus()][first:]
        request = ChangeRequest(
            desired=dict(zip(uuids, layouts, strict=False)),
            origin="a test",
            change=requested,
            mode_change=ModeChange.DRIVER,
            fallback=self.fallback,
        )
        order = Order(
            start=self.on.start,
            journal=str(self.on.journal),
            request=request if layouts else None,
            users=(),
            change=change,
            give_up=give_up,
            sentinel=self.sentinel if self.may_boot else None,
            deadline_seconds=60,
        )
        with self.on.simulation:
            return carry_out(order)

    def boot(self) -> None:
        """The node boots; /run is not emptied."""
        self.on.simulation.reboot()

    def mode(self, index: int = 0) -> tuple[bool, bool]:
        """Mode of a GPU, and the one that waits."""
        gpu = self.on.simulation.state.gpus[machines.gpu(index).bus_id]
        return gpu.mig, gpu.mig_pending

    def unended(self) -> tuple[ChangeRecord, ...]:
        """Entries of the journal that have not ended."""
        with Journal(self.on.journal, lock=False) as journal:
            return journal.content().unended

    def ended(self) -> dict[int, tuple[Outcome | None, str]]:
        """Index to outcome and reason of the entries that have ended."""
        with Journal(self.on.journal, lock=False) as journal:
            return {it.index: (it.outcome, it.reason) for it in journal.content().ended}


def boot_node(folder: Path, *, mig: bool = False) -> BootNode:
    """The node; with MIG on its first GPU has instances."""
    on = node(folder, *(FIVE if mig else ()), mig=mig, count=2)
    on.simulation.set_resets(mode_change="reset-required")
    (folder / "reboot").mkdir()
    return BootNode(on)


@pytest.fixture
def vm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BootNode:
    """With MIG off."""
    made = boot_node(tmp_path)
    take_time(made, monkeypatch)
    return made


def take_time(made: BootNode, patch: pytest.MonkeyPatch) -> None:
    """Have the node's own time, in which pauses take none."""
    patch.setattr(NvmlWorld, "pause", lambda _world, _seconds: None)
    patch.setattr(NvmlWorld, "now", lambda _world: rfc3339.whole_seconds(made.now))


def test_the_mode_waits_for_the_boot_that_the_file_asks_for_and_the_change_goes_on_after_it(
    vm: BootNode,
) -> None:
    waiting = vm.work(SEVEN)
    assert vm.mode() == (False, True)
    assert vm.asks
    assert waiting.boot_seconds == HOUR
    [record] = vm.unended()
    assert record.outcome is None
    assert CHANGE in vm.sentinel.file.read_text()

    vm.boot()
    result = vm.work()

    assert result.outcome is Outcome.APPLIED
    assert has_layout(vm.on.gpus()[0], SEVEN)
    assert not vm.asks
    assert vm.unended() == ()


def test_mig_is_turned_off_by_a_boot_too_and_its_instances_go_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = boot_node(tmp_path, mig=True)
    take_time(made, monkeypatch)
    made.work(MIG_OFF)
    assert made.mode() == (True, False)
    assert made.on.found() == frozenset()

    made.boot()
    assert made.work().outcome is Outcome.APPLIED
    assert made.mode() == (False, False)


@pytest.mark.parametrize("restarts", [0, 1, 3])
def test_a_restart_before_the_boot_changes_nothing(vm: BootNode, restarts: int) -> None:
    vm.work(SEVEN)
    for _ in range(restarts):
        vm.now += 60
        waiting = vm.work()
        assert (vm.mode(), vm.asks) == ((False, True), True)
        assert waiting.boot_seconds > 0
    vm.boot()
    assert vm.work().outcome is Outcome.APPLIED


def test_a_request_that_comes_again_waits_on(vm: BootNode) -> None:
    """Only a restore takes the mode back by the change's id."""
    vm.work(SEVEN)

    vm.work(SEVEN)

    assert (vm.mode(), vm.asks) == ((False, True), True)


def test_a_file_that_was_not_written_before_the_worker_died_is_written_by_the_next(
    vm: BootNode,
) -> None:
    vm.work(SEVEN)
    vm.sentinel.remove()
    vm.work()
    assert vm.asks


def test_other_gpus_are_done_before_a_boot_is_asked_for(
    vm: BootNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one needs none; one file is for all."""
    vm.on.simulation.set_resets(mode_change="resets")
    first = machines.gpu(0).bus_id
    seen: list[tuple[bool, bool]] = []
    real = nv.nvmlDeviceSetMigMode

    def set_mode(handle: object, mode: int) -> int:
        bus_id = nv.nvmlDeviceGetPciInfo(handle).busId
        is_first = str(getattr(bus_id, "decode", lambda: bus_id)()).lower().endswith(first[4:])
        seen.append((is_first, vm.asks))
        kind = "reset-required" if is_first else "resets"
        vm.on.simulation.set_resets(mode_change=kind)
        return int(real(handle, mode))

    monkeypatch.setattr(nv, "nvmlDeviceSetMigMode", set_mode)
    vm.work(SEVEN, SEVEN)

    assert {is_first for is_first, _ in seen} == {True, False}
    assert not any(asks for _, asks in seen)
    assert vm.asks
    assert [record.index for record in vm.unended()] == [0]
    assert vm.ended()[1][0] is Outcome.APPLIED
    vm.boot()
    vm.work()
    assert vm.ended()[0][0] is Outcome.APPLIED


def test_after_a_boot_without_the_mode_the_gpu_goes_back_and_no_second_boot_is_asked_for(
    vm: BootNode,
) -> None:
    vm.work(SEVEN)
    vm.on.simulation.edit(_taken_back)
    vm.boot()

    vm.work()

    outcome, reason = vm.ended()[0]
    assert outcome is Outcome.ROLLED_BACK
    assert reason == "the node has booted, and MIG is still off"
    assert not vm.asks
    assert vm.mode() == (False, False)


def _taken_back(state: MachineState) -> MachineState:
    bus_id = machines.gpu(0).bus_id
    gpu = replace(state.gpus[bus_id], mig_pending=False)
    return replace(state, gpus=state.gpus | {bus_id: gpu})


def test_without_a_boot_in_time_the_mode_is_taken_back(vm: BootNode) -> None:
    """As where no kured runs. The file goes first."""
    vm.work(SEVEN)
    vm.now += HOUR - 10
    assert vm.work().boot_seconds == 10
    vm.now += 10
    vm.work()

    assert vm.ended()[0] == (Outcome.ROLLED_BACK, "the node did not boot within 3600 s")
    assert (vm.mode(), vm.asks) == ((False, False), False)


def test_a_change_is_taken_back_by_its_id_and_by_no_other(vm: BootNode) -> None:
    vm.work(SEVEN)
    vm.work(change="another-change")
    assert vm.asks

    result = vm.work(change=CHANGE)

    assert result.outcome is Outcome.ROLLED_BACK
    assert "the change was cancelled before the node booted" in result.reason
    assert (vm.mode(), vm.asks) == ((False, False), False)


def test_the_file_goes_before_the_mode_is_taken_back(
    vm: BootNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A boot that somebody begins in between would be for nothing."""
    vm.work(SEVEN)
    asks: list[bool] = []
    real = nv.nvmlDeviceSetMigMode

    def set_mode(handle: object, mode: int) -> int:
        asks.append(vm.asks)
        return int(real(handle, mode))

    monkeypatch.setattr(nv, "nvmlDeviceSetMigMode", set_mode)
    vm.work(change=CHANGE)

    assert asks == [False]


def test_a_mode_that_came_without_the_boot_is_taken_as_it_is(vm: BootNode) -> None:
    """A person has reset the GPU by hand."""
    vm.work(SEVEN)
    vm.on.simulation.change(_by_hand)
    assert vm.mode() == (True, True)

    assert vm.work().outcome is Outcome.APPLIED
    assert not vm.asks


def _by_hand(state: MachineState) -> MachineState:
    bus_id = machines.gpu(0).bus_id
    return replace(state, gpus=state.gpus | {bus_id: replace(state.gpus[bus_id], mig=True)})


def test_without_the_setting_nobody_is_asked_and_a_change_that_waits_goes_back(
    vm: BootNode,
) -> None:
    vm.may_boot = False
    assert vm.work(SEVEN).outcome is Outcome.ROLLED_BACK
    assert (vm.mode(), vm.asks) == ((False, False), False)


def test_a_change_that_began_without_the_setting_keeps_to_it(vm: BootNode) -> None:
    """The setting came later, and the change was interrupted."""
    vm.fallback = NO_FALLBACK
    assert vm.work(SEVEN).outcome is Outcome.ROLLED_BACK
    assert not vm.asks


def test_a_setting_that_was_taken_away_ends_the_wait(vm: BootNode) -> None:
    vm.work(SEVEN)
    vm.may_boot = False
    vm.work()
    assert vm.ended()[0] == (Outcome.ROLLED_BACK, "the setting mig-reboot is off now")


def test_a_folder_that_is_not_there_refuses_the_change_before_a_gpu_is_touched(
    vm: BootNode,
) -> None:
    (vm.on.folder / "reboot").rmdir()

    result = vm.work(SEVEN)

    assert result.outcome is Outcome.REFUSED
    assert f"no boot can be requested: {vm.on.folder / 'reboot'}" in result.reason
    assert vm.unended() == ()
    assert vm.work(MIG_OFF).outcome is Outcome.UNCHANGED  # what needs no boot goes on


def test_a_file_that_cannot_be_written_has_the_mode_taken_back(vm: BootNode) -> None:
    vm.sentinel.file.mkdir()  # somebody made a folder of it

    result = vm.work(SEVEN)

    assert result.outcome is Outcome.ROLLED_BACK
    assert "no boot can be requested" in result.reason
    assert vm.mode() == (False, False)


def test_a_file_that_could_not_be_filled_goes_before_the_mode_is_taken_back(
    vm: BootNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk it is there, empty: kured looks for no more than that it is there."""
    asks: list[bool] = []
    real = nv.nvmlDeviceSetMigMode

    def set_mode(handle: object, mode: int) -> int:
        asks.append(vm.asks)
        return int(real(handle, mode))

    def full(sentinel: RebootSentinel, _text: str) -> str:
        sentinel.file.touch()
        return "the disk is full"

    monkeypatch.setattr(nv, "nvmlDeviceSetMigMode", set_mode)
    monkeypatch.setattr(RebootSentinel, "write", full)

    result = vm.work(SEVEN)

    assert (result.outcome, result.reason) == (Outcome.ROLLED_BACK, "GPU 0: the disk is full")
    assert vm.mode() == (False, False)
    assert not any(asks)
    assert not vm.asks


def test_a_change_is_answered_with_its_own_end_where_another_one_cannot_wait(
    vm: BootNode,
) -> None:
    """The one that waited goes back, since the file cannot be written any more."""
    vm.work(SEVEN)
    vm.sentinel.remove()
    vm.sentinel.file.mkdir()

    result = vm.work(MIG_OFF, requested="its-own", first=1)

    assert vm.ended()[0][0] is Outcome.ROLLED_BACK
    assert [(gpu.gpu, gpu.outcome) for gpu in result.gpus] == [(vm.on.uuid(1), Outcome.UNCHANGED)]
    assert result.outcome is Outcome.UNCHANGED


def test_what_can_no_longer_be_taken_back_is_stuck_and_says_what_waits(vm: BootNode) -> None:
    vm.work(SEVEN)
    vm.on.simulation.fault(Return(code=nv.NVML_ERROR_UNKNOWN), "nvmlDeviceSetMigMode")

    result = vm.work(change=CHANGE)

    assert result.outcome is Outcome.STUCK
    assert "the next reset or boot turns MIG on" in result.reason
    assert not vm.asks


def test_a_gpu_that_is_given_up_asks_for_no_boot(vm: BootNode) -> None:
    vm.work(SEVEN)
    vm.work(give_up=(vm.on.uuid(),))
    assert not vm.asks
    assert vm.unended() == ()


def test_a_boot_for_another_reason_before_the_file_was_there_is_the_boot(vm: BootNode) -> None:
    """The worker died between journal and file, and the node was switched off."""
    vm.work(SEVEN)
    vm.sentinel.remove()
    vm.boot()
    assert vm.work().outcome is Outcome.APPLIED
    assert not vm.asks


def test_a_mode_that_somebody_has_taken_back_needs_no_boot(vm: BootNode) -> None:
    vm.work(SEVEN)
    vm.on.simulation.edit(_taken_back)

    vm.work()

    assert vm.ended()[0] == (
        Outcome.ROLLED_BACK,
        "the mode that waited for a boot was taken back by another program",
    )
    assert not vm.asks


def _write_nothing(patch: pytest.MonkeyPatch) -> None:
    """The disk is full from now on."""

    def full(*_: object) -> None:
        raise JournalUnusable("the disk is full")

    patch.setattr(Journal, "end", full)
    patch.setattr(Journal, "write", full)


def test_a_change_whose_end_cannot_be_written_asks_for_no_boot_any_more(
    vm: BootNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal has it as one that waits; the mode does not wait."""
    vm.work(SEVEN)
    _write_nothing(monkeypatch)

    vm.work(change=CHANGE)

    assert (vm.mode(), vm.asks) == ((False, False), False)
    assert len(vm.unended()) == 1


@pytest.mark.parametrize("years", [-10, 10])
def test_a_clock_that_is_set_ends_the_wait_rather_than_that_it_lasts_for_years(
    vm: BootNode, years: int
) -> None:
    vm.work(SEVEN)
    vm.now += years * 365 * 86400
    vm.work()
    assert vm.ended()[0][0] is Outcome.ROLLED_BACK
    assert (vm.mode(), vm.asks) == ((False, False), False)


def test_the_file_goes_with_the_last_gpu_that_waits_also_where_the_driver_is_gone(
    vm: BootNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the node boots for nothing."""
    vm.work(SEVEN)
    uuid = vm.on.uuid()
    monkeypatch.setattr(actuator.worker, "choose_library", _absent)
    with pytest.raises(DriverAbsent):
        vm.work(give_up=(uuid,))

    assert vm.unended() == ()
    assert not vm.asks


def test_the_file_goes_after_the_boot_also_where_the_driver_comes_late(
    vm: BootNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a folder that outlives the boot has the node boot again and again."""
    vm.work(SEVEN)
    vm.boot()
    assert vm.asks

    with monkeypatch.context() as patch:
        patch.setattr(actuator.worker, "choose_library", _absent)
        with pytest.raises(DriverAbsent):
            vm.work()
    assert not vm.asks

    assert vm.work().outcome is Outcome.APPLIED
    assert not vm.asks


def _absent(_start: object) -> None:
    raise DriverAbsent("the driver is gone")


def test_a_driver_that_is_gone_before_the_boot_takes_no_file_away(
    vm: BootNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    vm.work(SEVEN)
    monkeypatch.setattr(actuator.worker, "choose_library", _absent)
    with pytest.raises(DriverAbsent):
        vm.work()
    assert vm.asks


def test_a_process_that_may_ask_for_no_boot_removes_the_file_of_one_that_might(
    vm: BootNode,
) -> None:
    """The setting is off by now, or a person restores without an actuator; the folder is in the
    host's root."""
    usual = Path(vm.on.start.host_root, "run/gpuscape-reboot")
    usual.mkdir(parents=True)
    vm.work(SEVEN)
    file = usual / "required"
    file.touch()
    vm.may_boot = False

    vm.work()

    assert not file.exists()
    assert vm.mode() == (False, False)
    file.touch()
    vm.work()
    assert file.exists()  # no change of this journal has waited


def test_a_folder_that_others_may_write_to_is_refused(vm: BootNode) -> None:
    folder = vm.on.folder / "reboot"
    folder.chmod(0o777)

    result = vm.work(SEVEN)

    assert result.outcome is Outcome.REFUSED
    assert f"others may write to {folder}; run chmod go-w" in result.reason


def test_a_file_that_cannot_be_removed_is_logged_and_one_that_is_not_there_is_not(
    vm: BootNode, caplog: pytest.LogCaptureFixture
) -> None:
    """Else nobody knows why the node boots."""
    vm.sentinel.remove()
    assert not caplog.messages

    vm.sentinel.file.mkdir()
    vm.sentinel.remove()

    assert caplog.messages == ["boot request not removed"]
    assert vars(caplog.records[0])["file"] == str(vm.sentinel.file)


def test_a_pipe_in_the_place_of_the_file_is_waited_for_by_nobody(vm: BootNode) -> None:
    os.mkfifo(vm.sentinel.file)
    assert "no boot can be requested" in vm.sentinel.write("why")


# behind the socket


class Asked:
    """The actuator's transactions over the node, whose changes run in this thread's turn."""

    def __init__(self, vm: BootNode) -> None:
        self.vm = vm
        self.answers: list[ActuatorAnswer] = []
        self.ended = threading.Event()
        self.transactions = Transactions(
            self._run,
            vm.on.journal,
            self.ended.set,
            clock=lambda: vm.now,
            sentinel=vm.sentinel,
        )

    def _run(self, request: ApplyRequest | RestoreRequest | None) -> ChangeResult:
        if isinstance(request, ApplyRequest):
            return self.vm.work(SEVEN)
        return self.vm.work(change="" if request is None else request.change)

    def finish(self) -> None:
        """Wait for the change, and take its end."""
        assert self.ended.wait(SOON)
        self.ended.clear()
        self.transactions.finish()

    def ask(self, request: ApplyRequest | RestoreRequest) -> ActuatorAnswer:
        """A client's request, to its answer."""
        self.transactions.ask(request, self.answers.append)
        self.finish()
        return self.answers[-1]

    def apply(self) -> ActuatorAnswer:
        """The agent's request."""
        instances = (RequestedInstance(profile="1g.5gb", compute=(1,)),) * 7
        desired = {self.vm.on.uuid(): RequestedLayout(mig=True, instances=instances)}
        return self.ask(ApplyRequest(change=CHANGE, origin="a test", desired=desired))


def test_a_request_that_waits_is_answered_with_its_state_and_goes_back_when_it_is_due(
    vm: BootNode,
) -> None:
    asked = Asked(vm)
    answer = asked.apply()
    assert isinstance(answer, StateAnswer)
    assert answer.running is None
    assert answer.named is not None
    assert (answer.named.outcome, answer.named.awaits_boot) == (None, str(vm.sentinel.file))
    assert asked.transactions.due == vm.now + HOUR

    vm.now += HOUR - 1
    asked.transactions.tick()
    assert asked.transactions.running is None
    vm.now += 1
    asked.transactions.tick()
    asked.finish()

    named = asked.transactions.state(CHANGE).named
    assert named is not None
    assert (named.outcome, named.awaits_boot) == (Outcome.ROLLED_BACK, "")
    assert asked.transactions.due == math.inf


def test_a_change_that_has_not_ended_is_not_answered_as_done(
    vm: BootNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person takes the mode back while the worker still has other GPUs to change."""
    asked, real = Asked(vm), NvmlWorld.boot

    def boot(world: NvmlWorld) -> str:
        if vm.mode() == (False, True):
            vm.on.simulation.edit(_taken_back)
        return real(world)

    monkeypatch.setattr(NvmlWorld, "boot", boot)
    answer = asked.apply()
    assert isinstance(answer, StateAnswer)
    assert answer.named is not None
    assert answer.named.outcome is None

    vm.now += LONGEST_RETRY_SECONDS
    asked.transactions.tick()
    asked.finish()
    assert vm.ended()[0][0] is Outcome.ROLLED_BACK
    assert not vm.asks


def test_a_change_whose_end_cannot_be_written_is_tried_again_after_a_pause(
    vm: BootNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not at once, again and again."""
    asked = Asked(vm)
    asked.apply()
    _write_nothing(monkeypatch)
    asked.ask(RestoreRequest(change=CHANGE))
    assert asked.transactions.due == vm.now + LONGEST_RETRY_SECONDS


def test_a_restore_by_its_id_takes_it_back(vm: BootNode) -> None:
    asked = Asked(vm)
    asked.apply()
    answer = asked.ask(RestoreRequest(change=CHANGE))
    assert isinstance(answer, ChangeAnswer)
    assert answer.outcome is Outcome.ROLLED_BACK
    assert not vm.asks
    # or stuck changes, which wait for a person, would be tried again at the former deadline
    assert asked.transactions.due == math.inf


def test_the_actuator_that_starts_after_the_boot_goes_on_by_itself(vm: BootNode) -> None:
    Asked(vm).apply()
    vm.boot()
    asked = Asked(vm)
    asked.transactions.resume()
    asked.finish()
    named = asked.transactions.state(CHANGE).named
    assert named is not None
    assert named.outcome is Outcome.APPLIED


def test_one_that_starts_before_the_boot_keeps_the_deadline(vm: BootNode) -> None:
    Asked(vm).apply()
    vm.now += 600
    asked = Asked(vm)
    asked.transactions.resume()
    asked.finish()
    assert asked.transactions.due == vm.now + HOUR - 600


def test_a_worker_that_fails_at_the_deadline_is_followed_by_another(
    vm: BootNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Asked(vm)
    asked.apply()
    vm.now += HOUR
    with monkeypatch.context() as patch:
        patch.setattr(vm, "work", _dead)
        asked.transactions.tick()
        asked.finish()
    vm.now += LONGEST_RETRY_SECONDS
    asked.transactions.tick()
    asked.finish()
    assert vm.ended()[0][0] is Outcome.ROLLED_BACK


@pytest.mark.parametrize("fault", ["journal", "thread", "journal after the worker"])
def test_a_fault_that_passes_at_the_deadline_is_followed_by_another_try(
    vm: BootNode, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """Else the mode waits, and the file asks for a boot, until somebody asks the actuator."""
    asked = Asked(vm)
    asked.apply()
    vm.now += HOUR

    def unreadable(_journal: Journal) -> None:
        raise JournalUnusable("too many open files")

    def no_thread(*_: object) -> None:
        raise threads.NoThread("none is to be had")

    with monkeypatch.context() as patch:
        if fault == "journal":
            patch.setattr(Journal, "content", unreadable)
        elif fault == "thread":
            patch.setattr(threads, "started", no_thread)
        else:
            patch.setattr(vm, "work", _dead)
        asked.transactions.tick()
        if fault == "journal after the worker":
            assert asked.ended.wait(SOON)
            patch.setattr(Journal, "content", unreadable)
            asked.finish()
    assert vm.now < asked.transactions.due <= vm.now + LONGEST_RETRY_SECONDS

    vm.now += LONGEST_RETRY_SECONDS
    asked.transactions.tick()
    asked.finish()
    assert vm.ended()[0][0] is Outcome.ROLLED_BACK
    assert asked.transactions.due == math.inf


def test_a_file_that_a_dead_worker_did_not_write_is_written_soon(
    vm: BootNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else would start a worker before the next change."""
    asked, real = Asked(vm), vm.work

    def dying(*layouts: GpuLayout, change: str = "") -> ChangeResult:
        real(*layouts, change=change)
        vm.sentinel.remove()
        return _dead()

    with monkeypatch.context() as patch:
        patch.setattr(vm, "work", dying)
        assert isinstance(asked.apply(), RefusalAnswer)
    assert asked.transactions.due == vm.now + LONGEST_RETRY_SECONDS
    vm.now += LONGEST_RETRY_SECONDS
    asked.transactions.tick()
    asked.finish()

    assert vm.asks
    assert asked.transactions.due == vm.now + HOUR - LONGEST_RETRY_SECONDS


def _dead(*_: object, **__: object) -> ChangeResult:
    raise WorkerDied("the MIG worker gave no result")


def test_the_state_says_why_no_boot_can_be_asked_for(vm: BootNode) -> None:
    asked = Asked(vm)
    assert asked.transactions.state().no_reboot == ""
    (vm.on.folder / "reboot").rmdir()
    assert "no boot can be requested" in asked.transactions.state().no_reboot
