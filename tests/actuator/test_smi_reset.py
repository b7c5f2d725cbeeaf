# SPDX-License-Identifier: Apache-2.0
"""Where the driver does not reset a GPU, its own nvidia-smi does: once, alone, on an empty GPU, and
only where that is allowed."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

import actuator.nvml_world
import actuator.smi_reset
from actuator.change import ChangeResult, apply, begin, resume
from actuator.change_record import ChangeRecord
from actuator.journal import Journal, JournalUnusable
from actuator.mode_reset import read_back
from actuator.nvml_world import NvmlWorld
from actuator.smi_reset import PROGRAM, smi_answer
from actuator.worker_messages import ChangeRequest, Order
from api.mig_mode_change import NO_FALLBACK, MigReset, ModeChange, ResetFallback
from api.mig_outcome import Outcome
from discovery.nvml.session import close_session
from mig.gpu_layout import MIG_OFF, GpuLayout, has_layout, layout_from_counts
from mig.mode_permission import ModePermission
from simulator.smi.smi_server import served_smi
from simulator.state.machine_state import MachineState
from tests import machines
from tests.actuator import killed_worker
from tests.actuator.simulated_node import FIVE, SimulatedNode, node
from tests.actuator.test_nvml_world import opener
from tests.agent.agent_process import until
from tests.controlplane.lifetime import end_with_parent

BUS_ID, OTHER = machines.gpu(0).bus_id, machines.gpu(1).bus_id
ALLOWED = ResetFallback(reset=MigReset.ALLOW)
SEVEN = layout_from_counts({"1g.5gb": 7})


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Pauses of the world, which take no time here."""
    taken: list[float] = []
    monkeypatch.setattr(NvmlWorld, "pause", lambda _, seconds: taken.append(seconds))
    return taken


@pytest.fixture
def on(tmp_path: Path) -> Iterator[SimulatedNode]:
    """Two A100 with MIG off, which the driver does not reset, and each reset counts."""
    made = node(tmp_path, mig=False, count=2)
    made.simulation.set_resets(mode_change="reset-required", renumbers=True)
    with served_smi(made.simulation):
        yield made


def changed(
    on: SimulatedNode, layout: GpuLayout = SEVEN, fallback: ResetFallback = ALLOWED
) -> ChangeResult:
    """Bring the first GPU to a layout."""
    desired = {on.uuid(): layout}
    modes = ModePermission(by=ModeChange.DRIVER, fallback=fallback)
    with on.simulation, Journal(on.journal) as journal, NvmlWorld(on.start) as world:
        return apply(world, journal, desired, origin="a test", modes=modes)


def resumed(on: SimulatedNode) -> ChangeResult:
    """What a worker makes of the change that another one left."""
    with on.simulation, Journal(on.journal) as journal, NvmlWorld(on.start) as world:
        result = resume(world, journal)
    assert result is not None
    return result


def begun(on: SimulatedNode, fallback: ResetFallback = ALLOWED, **facts: object) -> None:
    """A change of the first GPU that a worker left open, with these facts in its entry."""
    uuid, modes = on.uuid(), ModePermission(by=ModeChange.DRIVER, fallback=fallback)
    with on.simulation, Journal(on.journal) as journal, NvmlWorld(on.start) as world:
        gpus = [gpu for gpu in world.observe() if gpu.uuid == uuid]
        (record,) = begin(world, journal, gpus, {uuid: SEVEN}, origin="a test", modes=modes)
        journal.write(msgspec.structs.replace(record, **facts))


def mode(on: SimulatedNode) -> tuple[bool, bool]:
    """The first GPU's mode, and the one that waits, in the state file."""
    gpu = on.simulation.state.gpus[BUS_ID]
    return gpu.mig, gpu.mig_pending


def resets(on: SimulatedNode) -> int:
    """How often the first GPU was reset."""
    return on.simulation.state.gpus[BUS_ID].renumbered


def unended(on: SimulatedNode) -> tuple[ChangeRecord, ...]:
    """Entries of changes that have not ended."""
    with Journal(on.journal) as journal:
        return journal.content().unended


def pending(state: MachineState) -> MachineState:
    """MIG of the first GPU is on from its next reset on."""
    gpu = replace(state.gpus[BUS_ID], mig_pending=True)
    return replace(state, gpus=state.gpus | {BUS_ID: gpu})


# what it does


def test_the_named_gpu_alone_is_reset_and_gets_its_layout(on: SimulatedNode) -> None:
    other = on.simulation.state.gpus[OTHER]

    result = changed(on)

    assert (result.outcome, mode(on), resets(on)) == (Outcome.APPLIED, (True, True), 1)
    assert has_layout(on.gpus()[0], SEVEN)
    assert on.simulation.state.gpus[OTHER] == other


def test_mig_is_turned_off_too(tmp_path: Path) -> None:
    on = node(tmp_path, *FIVE)
    on.simulation.set_resets(mode_change="reset-required")
    with served_smi(on.simulation):
        result = changed(on, MIG_OFF)

    assert (result.outcome, mode(on)) == (Outcome.APPLIED, (False, False))


def test_without_the_setting_no_gpu_is_reset(on: SimulatedNode) -> None:
    result = changed(on, fallback=NO_FALLBACK)

    assert (result.outcome, mode(on), resets(on)) == (Outcome.ROLLED_BACK, (False, False), 0)
    assert "&& reboot" in result.reason


def test_the_history_has_the_reset(on: SimulatedNode) -> None:
    changed(on)

    with Journal(on.journal) as journal:
        assert [record.reset for record in journal.content().ended] == [True]


def test_a_driver_that_resets_has_no_help(on: SimulatedNode, tmp_path: Path) -> None:
    on.simulation.set_resets(mode_change="resets")
    shutil.rmtree(tmp_path / "machine/host/usr", ignore_errors=True)

    assert changed(on).outcome is Outcome.APPLIED
    assert resets(on) == 1


# who is in the way


def test_a_program_that_has_the_gpu_open_is_waited_for_and_named(
    on: SimulatedNode, tmp_path: Path, pauses: list[float]
) -> None:
    """The driver has not found it in its way; nvidia-smi is not started."""
    program = tmp_path / "nvidia-persistenced"
    shutil.copy(shutil.which("sleep") or "", program)
    with opener(Path(on.start.host_root) / "dev/nvidia0", program=str(program)) as daemon:
        result = changed(on)

    assert result.outcome is Outcome.ROLLED_BACK
    assert f"process {daemon.pid} nvidia-persistenced (the persistence daemon)" in result.reason
    assert (mode(on), resets(on), unended(on)) == ((False, False), 0, ())
    assert sum(pauses) >= 30


def test_fabric_manager_is_not_in_the_way_of_the_reset_that_needs_it(
    on: SimulatedNode, tmp_path: Path
) -> None:
    program = tmp_path / "nv-fabricmanager"
    shutil.copy(shutil.which("sleep") or "", program)
    with opener(Path(on.start.host_root) / "dev/nvidia0", program=str(program)):
        assert changed(on).outcome is Outcome.APPLIED


def test_a_gpu_whose_programs_cannot_be_listed_is_not_reset(
    on: SimulatedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unlisted(*_: object, **__: object) -> bool:
        raise OSError("no /proc here")

    monkeypatch.setattr(actuator.smi_reset, "is_held", unlisted)

    result = changed(on)

    assert (result.outcome, mode(on), resets(on)) == (Outcome.ROLLED_BACK, (False, False), 0)
    assert "no /proc here" in result.reason


def test_a_client_that_comes_and_goes_in_between_is_waited_for(
    on: SimulatedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the look at the GPU's holders, and before the mode is asked for again."""
    looks = iter(range(9))

    def held(*_: object, **__: object) -> bool:
        if next(looks) == 0:
            on.simulation.add_process(BUS_ID, 71, kind="client")
        return False

    monkeypatch.setattr(actuator.smi_reset, "is_held", held)
    monkeypatch.setattr(NvmlWorld, "pause", lambda *_: on.simulation.remove_process(71))

    assert (changed(on).outcome, resets(on)) == (Outcome.APPLIED, 1)


def test_a_hidden_process_keeps_the_mode_as_it_was_and_is_spoken_of(
    on: SimulatedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody sees it but nvidia-smi, after everything was looked at."""

    def close() -> None:
        on.simulation.add_process(BUS_ID, 71, kind="client")
        close_session()

    monkeypatch.setattr(actuator.smi_reset, "close_session", close)

    result = changed(on)

    assert (result.outcome, mode(on), resets(on)) == (Outcome.ROLLED_BACK, (False, False), 0)
    assert "In use by another client" in result.reason
    assert "lsof /dev/nvidia*" in result.reason
    assert unended(on) == ()


# resets that do not bring the mode


def test_a_reset_that_fails_leaves_the_gpu_as_it_was_and_its_output_is_the_reason(
    on: SimulatedNode,
) -> None:
    on.simulation.set_resets(result="fails", renumbers=False)

    result = changed(on)

    assert (result.outcome, mode(on)) == (Outcome.ROLLED_BACK, (False, False))
    assert f"nvidia-smi --gpu-reset -i {BUS_ID} ended with 255" in result.reason
    assert "could not be reset" in result.reason


def test_a_gpu_that_is_passed_through_is_not_reset_by_it_either(tmp_path: Path) -> None:
    """Neither host nor guest is harmed by the question."""
    gpu = machines.gpu(0, virtualization=1)
    on = SimulatedNode(machines.simulation(tmp_path / "machine", gpu), tmp_path)
    with served_smi(on.simulation):
        result = changed(on, GpuLayout(mig=True))

    assert (result.outcome, mode(on)) == (Outcome.ROLLED_BACK, (False, False))
    assert "is not supported" in result.reason


def test_a_gpu_that_is_lost_in_it_is_stuck_with_the_output(
    on: SimulatedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = iter(range(1000))
    quick = {"clock": lambda: float(next(now)), "sleep": lambda _: None}
    monkeypatch.setattr(read_back, "__kwdefaults__", quick)
    on.simulation.set_resets(result="loses")

    result = changed(on)

    assert result.outcome is Outcome.STUCK
    assert "did not come back" in result.reason
    assert "ended with 15" in result.reason


def test_what_the_gpu_has_counts_and_not_what_the_program_says(
    on: SimulatedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may end well without a reset, and be killed after one."""
    monkeypatch.setattr(actuator.smi_reset, "smi_answer", lambda *_, **__: "ended with 0: done")
    without_effect = changed(on)

    def killed(*words: Any, **more: Any) -> str:
        smi_answer(*words, **more)
        return "ended with -9: "

    monkeypatch.setattr(actuator.smi_reset, "smi_answer", killed)
    with_effect = changed(on)

    assert (without_effect.outcome, with_effect.outcome) == (Outcome.ROLLED_BACK, Outcome.APPLIED)
    assert (mode(on), resets(on)) == ((True, True), 1)


def test_a_host_without_the_program_is_as_before(tmp_path: Path) -> None:
    on = node(tmp_path, mig=False)
    on.simulation.set_resets(mode_change="reset-required")

    result = changed(on)

    assert (result.outcome, mode(on)) == (Outcome.ROLLED_BACK, (False, False))
    assert f"no {PROGRAM}" in result.reason


def test_a_host_that_can_start_no_process_is_as_before(
    on: SimulatedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(*_: object, **__: object) -> None:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(actuator.smi_reset, "OwnProcess", none_left)

    result = changed(on)

    assert (result.outcome, mode(on), unended(on)) == (Outcome.ROLLED_BACK, (False, False), ())
    assert "cannot be started: Resource temporarily unavailable" in result.reason


# once


def test_a_reset_that_the_journal_cannot_have_is_not_made(
    on: SimulatedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Journal.write

    def failing(journal: Journal, *records: ChangeRecord) -> None:
        if any(record.reset for record in records):
            raise JournalUnusable("the disk is full")
        write(journal, *records)

    monkeypatch.setattr(Journal, "write", failing)

    result = changed(on)

    assert (result.outcome, mode(on), resets(on)) == (Outcome.ROLLED_BACK, (False, False), 0)
    assert "the disk is full" in result.reason


def test_a_reset_that_was_begun_once_is_not_begun_again(on: SimulatedNode) -> None:
    begun(on, reset=True)
    on.simulation.edit(pending)

    result = resumed(on)

    assert (result.outcome, mode(on), resets(on)) == (Outcome.ROLLED_BACK, (False, False), 0)
    assert "nvidia-smi was started once" in result.reason


def test_one_that_was_not_begun_is_made_by_the_next_worker(on: SimulatedNode) -> None:
    begun(on)
    on.simulation.edit(pending)

    assert (resumed(on).outcome, mode(on), resets(on)) == (Outcome.APPLIED, (True, True), 1)


def test_a_boot_in_the_middle_brings_the_mode_and_the_change_goes_on(on: SimulatedNode) -> None:
    begun(on, reset=True)
    on.simulation.edit(pending)
    on.simulation.reboot()

    assert (resumed(on).outcome, mode(on)) == (Outcome.APPLIED, (True, True))
    assert has_layout(on.gpus()[0], SEVEN)


def test_a_change_that_began_before_the_setting_was_known_resets_nothing(
    on: SimulatedNode,
) -> None:
    """Its entry has no such word, whatever the settings are by now."""
    begun(on, NO_FALLBACK)
    texts = [file.read_text() for file in on.journal.glob("*.json")]
    assert texts
    assert not any("fallback" in text or '"reset"' in text for text in texts)

    assert (resumed(on).outcome, resets(on)) == (Outcome.ROLLED_BACK, 0)


def test_a_gpu_whose_layout_does_not_come_after_all_is_stuck_and_not_reset_twice(
    tmp_path: Path,
) -> None:
    """The way back would take a second reset."""
    on = SimulatedNode(machines.simulation(tmp_path / "machine", machines.gpu(0)), tmp_path)
    on.simulation.set_resets(mode_change="reset-required", renumbers=True)
    with served_smi(on.simulation):
        result = changed(on, layout_from_counts({"2g.10gb": 1}))

    assert (result.outcome, mode(on), resets(on)) == (Outcome.STUCK, (True, True), 1)
    assert f"nvidia-smi -i {BUS_ID} -mig 0 && reboot" in result.reason


def test_wherever_the_worker_is_killed_the_gpu_is_reset_once_at_most(on: SimulatedNode) -> None:
    """Nothing waits on it afterwards, and its journal is empty."""
    layout = layout_from_counts({"7g.40gb": 1})
    order = Order(
        start=on.start, journal=str(on.journal), request=None, users=(), deadline_seconds=60
    )
    request = ChangeRequest(
        desired={on.uuid(): layout},
        origin="a test",
        mode_change=ModeChange.DRIVER,
        fallback=ALLOWED,
    )
    first = on.simulation.state
    names = killed_worker.run(replace(order, request=request)).effects
    ends = set()
    for moment in range(2 * names.index("nvmlDeviceSetMigMode"), 2 * names.index("smi_answer") + 4):
        on.simulation.edit(lambda _: first)
        shutil.rmtree(on.journal, ignore_errors=True)

        assert killed_worker.run(replace(order, request=request), moment).killed
        killed_worker.run(order)

        current, waiting = mode(on)
        assert current == waiting
        assert (resets(on), current) in ((0, False), (1, True))
        assert unended(on) == ()
        assert on.simulation.state.gpus[OTHER] == first.gpus[OTHER]
        ends.add(current)
    assert ends == {True, False}
    assert names.count("smi_answer") == 1


def test_one_that_hangs_makes_its_gpu_stuck_and_is_named(on: SimulatedNode) -> None:
    """The worker that waited for it was killed at its deadline."""
    begun(on, reset=True)

    with on.simulation, Journal(on.journal) as journal, NvmlWorld(on.start) as world:
        result = resume(world, journal, hung=[BUS_ID])

    assert result is not None
    assert result.outcome is Outcome.STUCK
    assert "nvidia-smi --gpu-reset" in result.reason
    assert [record.hung for record in unended(on)] == [True]


# the program


def script(folder: Path, text: str) -> Path:
    """A driver root whose nvidia-smi is this script of a shell."""
    program = folder / PROGRAM
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    return folder


def test_it_has_no_environment_and_what_it_prints_is_one_safe_line(tmp_path: Path) -> None:
    folder = script(tmp_path, r'/usr/bin/env; printf "%s|" "$@"; printf "\033[2Jno\n" >&2; exit 3')

    answer = smi_answer(folder, ("--gpu-reset", "-i", BUS_ID), simulated=True)

    assert answer.startswith(f"nvidia-smi --gpu-reset -i {BUS_ID} ended with 3: ")
    assert answer.endswith(rf"--gpu-reset|-i|{BUS_ID}|\x1b[2Jno")
    assert "PATH" not in answer
    assert "HOME" not in answer


def test_however_much_it_prints_little_of_it_is_kept(
    tmp_path: Path,
) -> None:
    """The worker's memory is that of the actuator, whose container has 256 MiB."""
    folder = script(tmp_path, "/usr/bin/head -c 60000000 /dev/zero; exit 3")
    call = f"smi_answer(Path({str(folder)!r}), (), simulated=True)"
    code = (
        "import resource\nfrom pathlib import Path\nfrom actuator.smi_reset import smi_answer\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        f"answer = {call}\n"
        "grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before\n"
        "print(grown, len(answer), 'ended with 3' in answer)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    grown_kib, length, ended = done.stdout.split()

    assert int(grown_kib) < 20_000
    assert int(length) < 1000
    assert ended == "True"


def test_it_is_started_in_the_drivers_own_root(tmp_path: Path) -> None:
    """Whose libraries are there and nowhere else; the program of this one may not be run."""
    folder = script(tmp_path, "exit 0")
    (folder / PROGRAM).chmod(0o644)
    answer = smi_answer(folder, (), simulated=False)
    expected = "Permission denied" if os.geteuid() == 0 else "Operation not permitted"
    assert "ended with 1" in answer
    assert expected in answer


def test_it_ends_with_the_worker_that_waits_for_it(tmp_path: Path) -> None:
    """Else a later reset could hit what the next worker has made."""
    folder = script(tmp_path, f'echo $$ > "{tmp_path}/pid"; exec /bin/sleep 600')
    call = f"smi_answer(Path({str(folder)!r}), (), simulated=True)"
    code = f"from pathlib import Path\nfrom actuator.smi_reset import smi_answer\n{call}"
    with subprocess.Popen([sys.executable, "-c", code], preexec_fn=end_with_parent()) as waiting:
        until(lambda: (tmp_path / "pid").exists() and bool((tmp_path / "pid").read_text()))
        pid = int((tmp_path / "pid").read_text())
        waiting.kill()

    until(lambda: not _runs(pid))


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(
    ("roots", "expected"),
    [(("", "run/nvidia/driver"), "run/nvidia/driver"), (("",), ""), ((), None)],
)
def test_the_driver_containers_root_comes_before_the_hosts(
    tmp_path: Path, roots: tuple[str, ...], expected: str | None
) -> None:
    """Also where the program is a link that leads elsewhere from outside."""
    for root in roots:
        (tmp_path / root / PROGRAM).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / root / PROGRAM).symlink_to("/etc/alternatives/nvidia-smi")

    found = actuator.smi_reset._driver_root(tmp_path)

    assert found == (None if expected is None else tmp_path / expected)
