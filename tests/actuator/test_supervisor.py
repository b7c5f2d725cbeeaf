# SPDX-License-Identifier: Apache-2.0
"""One change in one worker process: its end, its errors and its death reach the caller as such."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from msgspec.structs import replace

from actuator import supervisor
from actuator.change import ChangeResult
from actuator.change_record import ChangeRecord
from actuator.journal import Journal, JournalBusy, JournalUnusable
from actuator.supervisor import WorkerDied, WorkerHung, run_change
from actuator.worker_messages import ChangeRequest
from api.actuator.actuator_messages import PodOnGpu
from api.mig_outcome import GpuOutcome, Outcome
from base.errors import BadInput
from discovery.driver_errors import DriverAbsent
from mig.gpu_layout import has_layout, layout_from_counts
from simulator.simulation import Crash, Hang, Return
from tests.actuator.simulated_node import FIVE, SimulatedNode, node

WANTED = layout_from_counts({"3g.20gb": 1, "1g.5gb": 3})


def changed(
    on: SimulatedNode, request: ChangeRequest | None, *users: PodOnGpu, seconds: float = 60
) -> ChangeResult:
    """Run it."""
    return run_change(replace(on.order(request, seconds=seconds), users=users))


def open_change(on: SimulatedNode) -> ChangeRecord | None:
    """What the journal has."""
    with Journal(on.journal) as journal:
        return next(iter(journal.content().unended), None)


def test_a_change_is_made_in_a_process_that_is_gone_afterwards(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The layout is there, the journal empty, NVML closed, and every step was logged here."""
    on = node(tmp_path, *FIVE)
    caplog.set_level(logging.INFO)

    result = changed(on, on.request(WANTED))

    done = GpuOutcome(gpu=on.uuid(), outcome=Outcome.APPLIED, index=0)
    assert result == ChangeResult(outcome=Outcome.APPLIED, gpus=(done,))
    assert has_layout(on.gpus()[0], WANTED)
    assert open_change(on) is None
    assert on.simulation.clients() == 0
    steps = [one for one in caplog.records if one.message == "MIG step"]
    assert len(steps) >= 4
    assert {one.name for one in steps} == {"actuator.layout_steps"}
    assert "3g.20gb" in " ".join(vars(one)["step"] for one in steps)


def test_new_instances_get_their_device_nodes(tmp_path: Path) -> None:
    """Also where the worker that made them died before it came to that."""
    on = node(tmp_path)
    folder = on.simulation.host_root / "dev/nvidia-caps"
    before = set(folder.iterdir())
    changed(on, on.request(layout_from_counts({"7g.40gb": 1})))
    made = set(folder.iterdir()) - before
    for one in made:
        one.unlink()

    assert len(made) == 2  # of the GPU instance and of its compute instance
    assert changed(on, None).outcome is Outcome.UNCHANGED
    assert set(folder.iterdir()) - before == made


def test_what_is_on_a_gpu_that_cannot_be_read_does_not_count_as_gone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A CDI file that names its devices is not called stale."""
    on = node(tmp_path, *FIVE, count=2)
    name = next(part.uuid for _, part in on.gpus()[0].devices())
    spec = on.simulation.host_root / "etc/cdi/nvidia.json"
    spec.parent.mkdir(parents=True)
    device = f'{{"name": "{name}", "containerEdits": {{}}}}'
    spec.write_text(f'{{"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [{device}]}}')
    on.simulation.fault(Return(code=999), "nvmlDeviceGetGpuInstances", bus_id="0000:10:00.0")

    assert changed(on, None).outcome is Outcome.UNCHANGED

    assert "MIG GPU not read" in caplog.messages
    assert "CDI specification stale" not in caplog.messages


def test_what_is_refused_says_who_is_in_the_way(tmp_path: Path) -> None:
    """A pod that was named and a program that the driver lists; nothing is touched."""
    on, nobody = node(tmp_path, *FIVE), 2**22 + 71  # above what Linux gives out, so without a name
    on.simulation.add_process("0000:10:00.0", nobody, gpu_instance_id=4, compute_instance_id=0)
    before = on.found()
    pod = PodOnGpu(gpu=on.uuid(), instance=5, kind="pod", name="ns/train")

    result = changed(on, on.request(layout_from_counts({"7g.40gb": 1})), pod)

    assert result.outcome is Outcome.REFUSED
    assert result.refusal is not None
    names = {str(one) for one in result.refusal.obstacles[0].users}
    assert names == {"pod ns/train", f"process {nobody}"}
    assert on.found() == before


@pytest.mark.parametrize("late", [False, True])
def test_a_worker_that_dies_is_an_error_that_names_the_signal_and_what_to_do(
    tmp_path: Path, late: bool
) -> None:
    """The next worker ends what it left, before it does what it was started for."""
    on = node(tmp_path, *FIVE)
    on.simulation.fault(
        Crash(ending="kill", prints="no luck"), "nvmlGpuInstanceDestroy", times=1, late=late
    )

    with pytest.raises(WorkerDied, match=r"SIGKILL.*no luck.*gpuscape mig restore"):
        changed(on, on.request(WANTED))
    left = open_change(on)
    assert left is not None
    assert left.outcome is None

    result = changed(on, on.request(layout_from_counts({"7g.40gb": 1}), asked="the next"))
    assert result.outcome is Outcome.APPLIED
    assert [one for one, *_ in on.found()] == ["7g.40gb"]
    with Journal(on.journal) as journal:
        assert [one.origin for one in journal.content().ended] == ["a test", "the next"]


def test_a_driver_that_hangs_hangs_the_worker_alone(tmp_path: Path) -> None:
    """It is killed at the deadline, deaf as it is; its GPU is stuck until a restore."""
    on = node(tmp_path, *FIVE)
    request = on.request(WANTED)
    on.simulation.fault(Hang(uninterruptible=True), "nvmlDeviceCreateGpuInstance*")

    result = changed(on, request, seconds=4)

    assert result.outcome is Outcome.STUCK
    assert "a call of the driver for this GPU did not return" in result.reason
    on.simulation.clear()
    assert changed(on, None).outcome is Outcome.ROLLED_BACK
    assert {one[:2] for one in on.found()} == {(one.profile, one.start) for one in FIVE}
    assert open_change(on) is None
    assert on.simulation.clients() == 0


def test_a_driver_that_hangs_before_the_first_gpu_is_an_error(tmp_path: Path) -> None:
    """There is no GPU to leave out."""
    on = node(tmp_path, *FIVE)
    request = on.request(WANTED)
    on.simulation.fault(Hang(uninterruptible=True), "nvmlInit*")

    with pytest.raises(WorkerHung, match="gpuscape mig restore"):
        changed(on, request, seconds=3)

    assert open_change(on) is None


def test_with_nothing_open_there_is_nothing_to_resume(tmp_path: Path) -> None:
    """Said as such."""
    on = node(tmp_path, *FIVE)

    assert changed(on, None) == ChangeResult(outcome=Outcome.UNCHANGED, reason="no change is open")


def test_what_is_held_is_tried_again_only_by_a_restore(tmp_path: Path) -> None:
    """Another change would hide it: it waits for a person."""
    on = node(tmp_path, *FIVE)
    on.simulation.fault(Return(code=999), "nvmlDeviceCreateGpuInstanceWithPlacement")
    held = changed(on, on.request(WANTED))
    on.simulation.clear()

    with pytest.raises(JournalUnusable, match="gpuscape mig restore"):
        changed(on, on.request(layout_from_counts({"7g.40gb": 1})))
    restored = changed(on, None)

    assert held.outcome is Outcome.STUCK
    assert restored.outcome is Outcome.ROLLED_BACK
    assert {one[:2] for one in on.found()} == {(one.profile, one.start) for one in FIVE}


def test_errors_arrive_under_their_names(tmp_path: Path) -> None:
    """No driver, a journal in use, a journal of others, a machine that is none."""
    on = node(tmp_path, *FIVE)
    request = on.request(WANTED)
    with Journal(on.journal), pytest.raises(JournalBusy):
        changed(on, request)
    on.journal.chmod(0o777)
    with pytest.raises(JournalUnusable, match="chmod"):
        changed(on, request)
    on.journal.chmod(0o700)
    on.simulation.set_driver("not-loaded")
    with pytest.raises(DriverAbsent):
        changed(on, request)
    on.simulation.state_file.write_text("{}")
    with pytest.raises(BadInput):
        changed(on, request)


def test_a_worker_that_cannot_be_run_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Python that does not get as far as the order says why on standard error."""
    on = node(tmp_path)
    monkeypatch.setattr(supervisor, "PROGRAM", tmp_path / "missing.py")
    files = len(list(Path("/proc/self/fd").iterdir()))

    with pytest.raises(WorkerDied, match=r"exit status 2.*missing\.py"):
        changed(on, None)

    assert len(list(Path("/proc/self/fd").iterdir())) <= files


def test_what_is_no_message_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever wrote it."""
    on = node(tmp_path)
    program = tmp_path / "other.py"
    program.write_text("print('hello', flush=True)\n")
    monkeypatch.setattr(supervisor, "PROGRAM", program)

    with pytest.raises(WorkerDied, match="nonsense"):
        changed(on, None)
