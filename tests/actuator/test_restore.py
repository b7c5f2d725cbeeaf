# SPDX-License-Identifier: Apache-2.0
"""After a reboot the verified layouts are there again, with the same MIG devices, or it is said why
they are not."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from actuator.change import apply, resume
from actuator.journal import Journal, JournalUnusable
from actuator.mig_world import StepFailed
from actuator.restore import restore_layouts
from actuator.verified_layouts import RestoredGpu
from api.mig_outcome import Outcome
from discovery.mig_state import CurrentCompute, MigGpu
from discovery.model import Mode
from mig.gpu_layout import MIG_OFF, DesiredInstance, GpuLayout, has_layout, layout_from_counts
from mig.steps import CreateCompute, MigStep, SetMode
from tests.actuator.played_world import Effects, Hardware, Killed, PlayedWorld
from tests.mig.naive_gpu import ON, mig_gpu

A100, H100 = "a100-sxm4-40gb", "h100-sxm5-80gb"
OFF = Mode(current=False, pending=False)
WANTED = layout_from_counts({"3g.20gb": 1, "1g.5gb": 2})
LARGE = layout_from_counts({"3g.40gb": 1, "1g.10gb": 2})
FIRST, SECOND = "GPU-0", "GPU-1"


def hopper(uuid: str, index: int = 0) -> MigGpu:
    """A GPU that forgets that MIG was on."""
    return mig_gpu(H100, uuid=uuid, index=index, mode=OFF, resetless=True)


def two() -> Hardware:
    """Two GPUs that forget that MIG was on, with it off."""
    return Hardware.of([hopper(FIRST), hopper(SECOND, 1)])


def changed(folder: Path, world: PlayedWorld, wanted: Mapping[str, GpuLayout]) -> None:
    """Apply; it must succeed."""
    with Journal(folder) as journal:
        assert apply(world, journal, wanted, origin="a test").outcome is Outcome.APPLIED


def started(folder: Path, world: PlayedWorld) -> tuple[RestoredGpu, ...]:
    """What a process does first: end what is open, then restore."""
    with Journal(folder) as journal:
        resume(world, journal)
        return restore_layouts(world, journal)


@pytest.mark.parametrize("resetless", [True, False])
def test_the_same_devices_are_there_after_a_reboot(tmp_path: Path, resetless: bool) -> None:
    """Ampere remembers that MIG is on, Hopper does not; neither keeps an instance."""
    gpu = mig_gpu(H100, mode=ON, resetless=resetless)
    hardware = Hardware.of([gpu])
    changed(tmp_path / "mig", PlayedWorld(hardware), {FIRST: LARGE})
    before = hardware.seen()
    hardware.reboot()

    assert started(tmp_path / "mig", PlayedWorld(hardware)) == (RestoredGpu(gpu=FIRST),)

    assert hardware.seen() == before
    second = PlayedWorld(hardware)
    assert started(tmp_path / "mig", second) == ()
    assert second.taken == []


def test_it_comes_back_after_every_reboot(tmp_path: Path) -> None:
    """What came back is verified too."""
    hardware = two()
    changed(tmp_path / "mig", PlayedWorld(hardware), {FIRST: LARGE, SECOND: LARGE})
    before = hardware.seen()
    for _ in range(3):
        hardware.reboot()
        started(tmp_path / "mig", PlayedWorld(hardware))
        assert hardware.seen() == before


def test_compute_instances_get_their_ids_again(tmp_path: Path) -> None:
    """A driver gives the lowest id that is free: in another order other pods' UUIDs come out."""
    hardware = Hardware.of([mig_gpu(A100, ("3g.20gb", 4, (1, 2)))])
    asked = GpuLayout(mig=True, instances=(DesiredInstance("3g.20gb", (2, 1)),))
    with Journal(tmp_path / "mig") as journal:
        apply(PlayedWorld(hardware), journal, {FIRST: asked}, origin="a test")
    before = hardware.seen()
    hardware.reboot()

    assert started(tmp_path / "mig", PlayedWorld(hardware)) == (RestoredGpu(gpu=FIRST),)

    assert hardware.seen() == before
    assert [part.slices for part in hardware.seen()[0].instances[0].compute] == [1, 2]


def test_devices_that_cannot_come_back_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A compute instance with id 1 whose 0 was destroyed before: ids cannot be chosen."""
    gpu = mig_gpu(A100, ("3g.20gb", 4, (1, 2)))
    hardware = Hardware.of([gpu])
    asked = GpuLayout(mig=True, instances=(DesiredInstance("3g.20gb", (2,), 4),))
    one = hardware.gpus[0].gpu.instances[0]
    hardware.gpus[0].gpu = _with_compute(gpu, one.compute[1:])
    with Journal(tmp_path / "mig") as journal:
        apply(PlayedWorld(hardware), journal, {FIRST: asked}, origin="a test")
    hardware.reboot()

    (told,) = started(tmp_path / "mig", PlayedWorld(hardware))

    assert has_layout(hardware.seen()[0], asked)
    assert told == RestoredGpu(gpu=FIRST, gone=("MIG-GPU-0-2-1",))
    assert "MIG devices gone" in caplog.messages


def test_a_gpu_in_use_is_left_alone_until_it_is_idle(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A program got the whole GPU, since MIG was off after the reboot."""
    hardware = two()
    changed(tmp_path / "mig", PlayedWorld(hardware), {FIRST: LARGE, SECOND: LARGE})
    before = hardware.seen()
    hardware.reboot()
    hardware.used[FIRST] = "4711 python"

    told = {one.gpu: one for one in started(tmp_path / "mig", PlayedWorld(hardware))}

    assert "4711 python" in told[FIRST].why_not
    assert told[SECOND].why_not == ""
    assert (hardware.seen()[0].mode, hardware.seen()[1]) == (OFF, before[1])
    assert "MIG layout not restored" in caplog.messages
    hardware.used.clear()
    assert started(tmp_path / "mig", PlayedWorld(hardware)) == (RestoredGpu(gpu=FIRST),)
    assert hardware.seen() == before


def test_instances_that_somebody_made_meanwhile_are_not_touched(tmp_path: Path) -> None:
    """Another tool was first."""
    hardware = Hardware.of([mig_gpu(A100)])
    changed(tmp_path / "mig", PlayedWorld(hardware), {FIRST: WANTED})
    hardware.reboot()
    hardware.gpus[0].gpu = made = mig_gpu(A100, ("7g.40gb", 0))

    (told,) = started(tmp_path / "mig", PlayedWorld(hardware))

    assert "since the driver was loaded" in told.why_not
    assert hardware.seen() == (made,)


@pytest.mark.parametrize(
    "other", [[("7g.40gb", 0)], [("3g.20gb", 0), ("1g.5gb", 4), ("1g.5gb", 5)], []]
)
def test_a_layout_that_another_program_changed_does_not_come_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, other: list[tuple[str, int]]
) -> None:
    """It was seen to be another one before the reboot: other instances, other places, or none."""
    hardware = Hardware.of([mig_gpu(A100)])
    changed(tmp_path / "mig", PlayedWorld(hardware), {FIRST: WANTED})
    hardware.gpus[0].gpu = mig_gpu(A100, *other)
    assert started(tmp_path / "mig", PlayedWorld(hardware)) == ()
    assert caplog.messages.count("MIG layout changed by another program") == 1
    hardware.reboot()

    assert started(tmp_path / "mig", PlayedWorld(hardware)) == ()

    assert hardware.seen()[0].instances == ()


def test_what_no_change_made_is_nobodys_to_restore(tmp_path: Path) -> None:
    """Installing this on a node changes nothing on it, also after a reboot."""
    hardware = Hardware.of([mig_gpu(A100, ("1g.5gb", 3)), mig_gpu(A100, uuid=SECOND, index=1)])
    changed(tmp_path / "mig", PlayedWorld(hardware), {SECOND: WANTED})
    hardware.reboot()

    assert started(tmp_path / "mig", PlayedWorld(hardware)) == (RestoredGpu(gpu=SECOND),)

    assert hardware.seen()[0].instances == ()


def test_a_layout_that_was_there_when_it_was_asked_for_comes_back(tmp_path: Path) -> None:
    """Nothing had to be done, and it is wanted all the same."""
    hardware = Hardware.of([mig_gpu(A100, ("3g.20gb", 4), ("1g.5gb", 0), ("1g.5gb", 2))])
    before = hardware.seen()
    with Journal(tmp_path / "mig") as journal:
        assert (
            apply(PlayedWorld(hardware), journal, {FIRST: WANTED}, origin="").outcome
            is Outcome.UNCHANGED
        )
    hardware.reboot()

    started(tmp_path / "mig", PlayedWorld(hardware))

    assert hardware.seen() == before


def test_a_layout_that_was_there_before_a_change_that_failed_is_not_verified(
    tmp_path: Path,
) -> None:
    """Nobody asked for it."""
    hardware = Hardware.of([mig_gpu(A100, ("1g.5gb", 3))])
    failing = PlayedWorld(hardware, fails={0: StepFailed("NVML_ERROR_UNKNOWN")})
    with Journal(tmp_path / "mig") as journal:
        result = apply(failing, journal, {FIRST: WANTED}, origin="a test")
    assert result.outcome is Outcome.ROLLED_BACK
    hardware.reboot()

    assert started(tmp_path / "mig", PlayedWorld(hardware)) == ()


def test_a_layout_that_somebody_else_brought_back_is_fine(tmp_path: Path) -> None:
    """It is verified again, and no step is taken."""
    hardware = two()
    changed(tmp_path / "mig", PlayedWorld(hardware), {FIRST: LARGE})
    before = hardware.gpus[0].gpu
    hardware.reboot()
    hardware.gpus[0].gpu = before
    world = PlayedWorld(hardware)

    assert started(tmp_path / "mig", world) == (RestoredGpu(gpu=FIRST),)
    assert started(tmp_path / "mig", world) == ()
    assert world.taken == []


def test_mig_that_was_turned_off_stays_off(tmp_path: Path) -> None:
    """The last change counts."""
    hardware = two()
    changed(tmp_path / "mig", PlayedWorld(hardware), {FIRST: LARGE})
    changed(tmp_path / "mig", PlayedWorld(hardware), {FIRST: MIG_OFF})
    hardware.reboot()

    assert started(tmp_path / "mig", PlayedWorld(hardware)) == ()


def test_a_gpu_that_is_away_gets_its_layout_when_it_answers(tmp_path: Path) -> None:
    """It is not forgotten, and the other one does not wait for it."""
    hardware = two()
    changed(tmp_path / "mig", PlayedWorld(hardware), {FIRST: LARGE, SECOND: LARGE})
    before = hardware.seen()
    hardware.reboot()
    hardware.lost.add(FIRST)
    told = {one.gpu: one.why_not for one in started(tmp_path / "mig", PlayedWorld(hardware))}
    assert "cannot be read" in told[FIRST]
    assert told[SECOND] == ""
    hardware.lost.clear()

    started(tmp_path / "mig", PlayedWorld(hardware))

    assert hardware.seen() == before


def test_a_gpu_that_fails_does_not_cost_the_other_one_its_layout(tmp_path: Path) -> None:
    """All come back together, or each by itself."""
    hardware = two()
    changed(tmp_path / "mig", PlayedWorld(hardware), {FIRST: LARGE, SECOND: LARGE})
    before = hardware.seen()
    hardware.reboot()
    world = _Broken(hardware)

    told = {one.gpu: one.why_not for one in started(tmp_path / "mig", world)}

    assert "NVML_ERROR_UNKNOWN" in told[FIRST]
    assert told[SECOND] == ""
    assert (hardware.seen()[0].instances, hardware.seen()[1]) == ((), before[1])


def test_after_a_step_that_failed_once_the_devices_are_the_same_all_the_same(
    tmp_path: Path,
) -> None:
    """What follows on that GPU is left to a new plan: a later compute instance would get the id of
    the one that failed. The other GPU is not held up."""
    gpus = [mig_gpu(A100), mig_gpu(A100, uuid=SECOND, index=1)]
    hardware = Hardware.of(gpus)
    asked = GpuLayout(mig=True, instances=(DesiredInstance("3g.20gb", (2, 1), 4),))
    changed(tmp_path / "mig", PlayedWorld(hardware), {FIRST: asked, SECOND: asked})
    before = hardware.seen()
    assert [part.slices for part in before[0].instances[0].compute] == [2, 1]
    hardware.reboot()
    world = PlayedWorld(hardware, fails={1: StepFailed("NVML_ERROR_IN_USE")})

    told = started(tmp_path / "mig", world)

    assert isinstance(world.taken[1], CreateCompute)
    assert told == (RestoredGpu(gpu=FIRST), RestoredGpu(gpu=SECOND))
    assert hardware.seen() == before
    in_order = [uuid for uuid, _ in itertools.groupby(step.gpu for step in world.taken)]
    assert in_order == [FIRST, SECOND]


class _Stuck(PlayedWorld):
    """The first GPU takes one step, and then none, back or forth."""

    def perform(self, step: MigStep) -> None:
        """On the hardware, but for the first GPU's later steps."""
        if step.gpu == FIRST and any(before.gpu == FIRST for before in self.taken):
            self.taken.append(step)
            raise StepFailed("NVML_ERROR_UNKNOWN")
        super().perform(step)


def test_a_gpu_that_is_held_is_not_tried_again_with_the_others(tmp_path: Path) -> None:
    """Neither its layout nor the way back can be reached: an admin decides."""
    hardware = two()
    changed(tmp_path / "mig", PlayedWorld(hardware), {FIRST: LARGE, SECOND: LARGE})
    before = hardware.seen()
    hardware.reboot()
    world = _Stuck(hardware)
    with Journal(tmp_path / "mig") as journal:
        found = {one.gpu: one.why_not for one in restore_layouts(world, journal)}
        held = journal.content().unended
    assert hardware.seen()[1] == before[1]
    assert found[SECOND] == ""
    assert found[FIRST] != ""
    assert [one.gpu for one in held] == [FIRST]

    assert SetMode(gpu=SECOND, on=False) not in world.taken
    in_order = [uuid for uuid, _ in itertools.groupby(step.gpu for step in world.taken)]
    assert in_order == [FIRST, SECOND]


class _Broken(PlayedWorld):
    """No instance can be made on the first GPU."""

    def perform(self, step: object) -> None:
        """As the world, but for that."""
        if type(step).__name__ == "CreateInstance" and getattr(step, "gpu", "") == FIRST:
            raise StepFailed("NVML_ERROR_UNKNOWN")
        super().perform(step)  # type: ignore[arg-type]


def test_killed_at_any_effect_it_ends_in_the_verified_layout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps and files alike; the next start goes on."""
    monkeypatch.setattr(Journal, "_replace", _with_effects(Journal._replace))
    for moment in itertools.count():
        folder, hardware = tmp_path / str(moment), two()
        changed(folder, PlayedWorld(hardware), {FIRST: LARGE, SECOND: LARGE})
        before = hardware.seen()
        hardware.reboot()
        killed = _started_and_killed(folder, hardware, moment)

        started(folder, PlayedWorld(hardware))

        assert hardware.seen() == before, moment
        if not killed:
            break
    assert moment > 30  # two modes, six instances with as many compute instances, four files


_effects = Effects()


def _started_and_killed(folder: Path, hardware: Hardware, moment: int) -> bool:
    global _effects
    _effects = Effects(moment)
    try:
        started(folder, PlayedWorld(hardware, effects=_effects))
    except Killed:
        return True
    finally:
        _effects = Effects()
    return False


def _with_effects(real: Callable[[Journal, str, bytes], None]) -> Callable[..., None]:
    def replaced(self: Journal, name: str, content: bytes) -> None:
        for _ in _effects():
            real(self, name, content)

    return replaced


def test_a_full_disk_costs_the_memory_and_not_the_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The layout is reached; it will not come back by itself, and the log says so."""

    def full(*_: object) -> None:
        raise JournalUnusable("No space left on device")

    monkeypatch.setattr(Journal, "verify", full)
    hardware = two()

    changed(tmp_path / "mig", PlayedWorld(hardware), {FIRST: LARGE})

    assert has_layout(hardware.seen()[0], LARGE)
    assert "MIG layouts not remembered" in caplog.messages


@pytest.mark.parametrize("content", [b"{", b'{"v":2,"gpus":{"GPU-0":{}}}', b'{"v":2}'])
def test_a_damaged_memory_is_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes
) -> None:
    """What it says is not guessed."""
    hardware = two()
    changed(tmp_path / "mig", PlayedWorld(hardware), {FIRST: LARGE})
    hardware.reboot()
    (tmp_path / "mig" / "verified.json").write_bytes(content)

    with caplog.at_level(logging.WARNING):
        assert started(tmp_path / "mig", PlayedWorld(hardware)) == ()

    assert hardware.seen()[0].mode == OFF
    if b'"v":2' not in content:
        assert "verified MIG layouts not read" in caplog.messages


def _with_compute(gpu: MigGpu, compute: tuple[CurrentCompute, ...]) -> MigGpu:
    (one,) = gpu.instances
    return replace(gpu, instances=(replace(one, compute=compute),))


def test_a_layout_that_was_there_already_comes_back_too(tmp_path: Path) -> None:
    """Asked for, seen in a fresh session, and no step needed; the second time nothing is read."""
    gpu = mig_gpu(H100, ("3g.40gb", 0), ("1g.10gb", 4), ("1g.10gb", 6), mode=ON, resetless=True)
    hardware = Hardware.of([gpu])
    world = Sessions(hardware)
    with Journal(tmp_path / "mig") as journal:
        for _ in range(2):
            assert (
                apply(world, journal, {FIRST: LARGE}, origin="a test").outcome is Outcome.UNCHANGED
            )
    assert (world.taken, world.begun) == ([], 1)
    before = hardware.seen()
    hardware.reboot()

    assert started(tmp_path / "mig", PlayedWorld(hardware)) == (RestoredGpu(gpu=FIRST),)

    assert hardware.seen() == before


@dataclass
class Sessions(PlayedWorld):
    """Counts sessions; each new one shows other GPUs, where there are some."""

    begun: int = 0
    others: tuple[MigGpu, ...] = ()

    def reopen(self) -> None:
        """Begin another."""
        self.begun += 1

    def observe(self, gpus: Collection[str] = ()) -> Sequence[MigGpu]:
        """The first session shows what there is."""
        return self.others if self.begun and self.others else super().observe(gpus)


def test_what_a_fresh_session_does_not_show_is_not_remembered(tmp_path: Path) -> None:
    gpu = mig_gpu(H100, ("3g.40gb", 0), ("1g.10gb", 4), ("1g.10gb", 6), mode=ON, resetless=True)
    world = Sessions(Hardware.of([gpu]), others=(mig_gpu(H100, mode=ON, resetless=True),))
    with Journal(tmp_path / "mig") as journal:
        with pytest.raises(StepFailed, match="shows another layout"):
            apply(world, journal, {FIRST: LARGE}, origin="a test")
        assert journal.verified() == {}


def test_who_expects_that_no_step_is_needed_gets_none(tmp_path: Path) -> None:
    world = PlayedWorld(Hardware.of([mig_gpu(H100, mode=ON, resetless=True)]))
    with (
        Journal(tmp_path / "mig") as journal,
        pytest.raises(StepFailed, match="not as they were when the plan was made"),
    ):
        apply(world, journal, {FIRST: LARGE}, origin="a test", as_is=True)
    assert world.taken == []


def test_a_gpu_with_mig_off_is_remembered_no_more(tmp_path: Path) -> None:
    """Asked for off while it is off, as after a reboot that took its layout."""
    hardware = two()
    changed(tmp_path / "mig", PlayedWorld(hardware), {FIRST: LARGE})
    hardware.reboot()
    world = Sessions(hardware)
    with Journal(tmp_path / "mig") as journal:
        assert apply(world, journal, {FIRST: MIG_OFF}, origin="a test").outcome is Outcome.UNCHANGED
        assert journal.verified() == {}
        apply(world, journal, {FIRST: MIG_OFF, SECOND: MIG_OFF}, origin="a test")
    assert world.begun == 1
