# SPDX-License-Identifier: Apache-2.0
"""A change ends in the wanted layout, in the one before, or held; never anywhere else."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import actuator.layout_steps
from actuator.change import ChangeResult, apply, give_up, resume
from actuator.change_record import ChangeRecord, Direction
from actuator.journal import Journal, JournalUnusable
from actuator.mig_world import StepFailed
from actuator.restore import restore_layouts
from api.mig_outcome import Outcome
from api.mig_resources import MigStrategy
from discovery.mig_state import MigGpu
from mig.gpu_layout import GpuLayout, current_layout, has_layout, layout_from_counts
from mig.planner import MigPlan, MigRefusal, plan
from mig.steps import CreateInstance, DestroyCompute, DestroyInstance, MigStep
from mig.users.device_users import DeviceUser, DeviceUsers, UserKind
from tests.actuator.played_world import Effects, Hardware, Killed, PlayedWorld
from tests.mig.naive_gpu import mig_gpu

A100 = "a100-sxm4-40gb"
GPU = "GPU-0"
WANTED = layout_from_counts({"3g.20gb": 1, "1g.5gb": 3})


def before() -> MigGpu:
    """Five instances, of which the change keeps one or two."""
    return mig_gpu(
        A100, ("1g.5gb", 0), ("1g.5gb", 1), ("2g.10gb", 2), ("2g.10gb", 4), ("1g.5gb", 6)
    )


def changed(
    folder: Path, world: PlayedWorld, wanted: Mapping[str, GpuLayout] | None = None
) -> ChangeResult:
    """Apply in a process of its own, as far as the journal goes."""
    with Journal(folder) as journal:
        return apply(world, journal, wanted or {GPU: WANTED}, origin="a test")


def resumed(folder: Path, world: PlayedWorld) -> ChangeResult | None:
    """The next start."""
    with Journal(folder) as journal:
        return resume(world, journal)


def open_change(folder: Path) -> ChangeRecord | None:
    """What the journal still has."""
    with Journal(folder) as journal:
        return next(iter(journal.content().unended), None)


def test_a_change_reaches_the_layout_and_is_remembered(tmp_path: Path) -> None:
    """The journal is empty, the history has it."""
    hardware = Hardware.of([before()])

    result = changed(tmp_path / "mig", PlayedWorld(hardware))

    assert result.outcome is Outcome.APPLIED
    assert has_layout(hardware.seen()[0], WANTED)
    assert open_change(tmp_path / "mig") is None
    with Journal(tmp_path / "mig") as journal:
        [past] = journal.content().ended
    assert (past.origin, past.outcome) == ("a test", Outcome.APPLIED)
    assert past.previous == current_layout(before(), exact=True)


def test_nothing_is_written_where_all_is_as_wanted(tmp_path: Path) -> None:
    """Applying twice is applying once."""
    hardware = Hardware.of([before()])
    changed(tmp_path / "mig", PlayedWorld(hardware))
    second = PlayedWorld(hardware)

    result = changed(tmp_path / "mig", second)

    assert (result.outcome, second.taken) == (Outcome.UNCHANGED, [])
    with Journal(tmp_path / "mig") as journal:
        assert len(journal.content().ended) == 1


@pytest.mark.parametrize(
    ("wanted", "held"),
    [
        (layout_from_counts({"1g.5gb": 8}), {}),
        (layout_from_counts({"9g.80gb": 1}), {}),
        (layout_from_counts({"7g.40gb": 1}), {(GPU, "2g.10gb", 4): "ns/train"}),
    ],
)
def test_what_is_refused_is_refused_before_anything_is_touched(
    tmp_path: Path, wanted: GpuLayout, held: dict[tuple[str, str, int], str]
) -> None:
    """Not a step, not a file."""
    hardware = Hardware.of([before()])
    hardware.held |= held
    world = PlayedWorld(hardware)

    result = changed(tmp_path / "mig", world, {GPU: wanted})

    assert result.outcome is Outcome.REFUSED
    assert result.refusal is not None
    assert world.taken == []
    assert not (tmp_path / "mig" / "change.json").exists()


def test_what_the_device_plugin_cannot_serve_is_refused(tmp_path: Path) -> None:
    """Its strategy is the caller's to know."""
    world = PlayedWorld(Hardware.of([before()]))

    with Journal(tmp_path / "mig") as journal:
        result = apply(world, journal, {GPU: WANTED}, origin="", strategy=MigStrategy.SINGLE)

    assert result.refusal is not None
    assert world.taken == []


def test_the_state_from_before_is_on_the_disk_before_the_first_step(tmp_path: Path) -> None:
    """Whoever comes next can go back to it."""

    class Watched(PlayedWorld):
        def perform(self, step: MigStep) -> None:
            assert step.gpu == GPU
            assert (tmp_path / "mig" / "change.json").exists()
            raise Killed

    with pytest.raises(Killed):
        changed(tmp_path / "mig", Watched(Hardware.of([before()])))

    record = open_change(tmp_path / "mig")
    assert record is not None
    assert record.previous == current_layout(before(), exact=True)


MOMENTS = 20
"""At which a change that succeeds can be killed: before and after each effect."""


def ends_well(folder: Path, hardware: Hardware) -> Outcome:
    """Start again until nothing is open; the outcome, checked against the hardware."""
    result = resumed(folder, PlayedWorld(hardware))
    gpu = hardware.seen()[0]
    if result is None:
        with Journal(folder) as journal:
            past = journal.content().ended
        outcome = past[-1].outcome if past else Outcome.ROLLED_BACK
    else:
        outcome = result.outcome
    at_ends = {
        Outcome.APPLIED: WANTED,
        Outcome.ROLLED_BACK: current_layout(before(), exact=True),
    }
    assert outcome is not None
    assert has_layout(gpu, at_ends[outcome])
    assert resumed(folder, PlayedWorld(hardware)) is None
    return outcome


def test_all_moments_of_a_change_are_tried(tmp_path: Path) -> None:
    """A change with more effects needs more of them."""
    world = PlayedWorld(Hardware.of([before()]))

    changed(tmp_path / "mig", world)

    assert 2 * world.effects.count == MOMENTS


@pytest.mark.parametrize("moment", range(MOMENTS))
def test_killed_at_any_effect_it_ends_in_the_wanted_layout(tmp_path: Path, moment: int) -> None:
    """The next start goes on."""
    hardware = Hardware.of([before()])

    with pytest.raises(Killed):
        changed(tmp_path / "mig", PlayedWorld(hardware, effects=Effects(moment)))

    assert ends_well(tmp_path / "mig", hardware) is Outcome.APPLIED


@pytest.mark.parametrize("failing", range(MOMENTS // 2))
def test_a_step_that_fails_for_good_leads_back(tmp_path: Path, failing: int) -> None:
    """To the same places."""
    hardware = Hardware.of([before()])
    world = PlayedWorld(hardware, fails={failing: StepFailed("NVML_ERROR_UNKNOWN")})

    result = changed(tmp_path / "mig", world)

    assert result.outcome is Outcome.ROLLED_BACK
    assert "NVML_ERROR_UNKNOWN" in result.reason
    assert current_layout(hardware.seen()[0], exact=True) == current_layout(before(), exact=True)
    assert open_change(tmp_path / "mig") is None


@pytest.mark.parametrize(
    ("failing", "moment"),
    list(itertools.product(range(1, MOMENTS // 2, 3), range(0, 2 * MOMENTS, 3))),
)
def test_killed_on_the_way_back_it_ends_in_one_of_the_two(
    tmp_path: Path, failing: int, moment: int
) -> None:
    """What was recorded as going back goes back."""
    hardware = Hardware.of([before()])
    world = PlayedWorld(
        hardware, effects=Effects(moment), fails={failing: StepFailed("NVML_ERROR_UNKNOWN")}
    )
    try:
        changed(tmp_path / "mig", world)
    except Killed:
        record = open_change(tmp_path / "mig")
        assert record is not None
        back = record.direction is Direction.BACK
        assert back == (len(world.taken) > failing + 1)
        outcome = ends_well(tmp_path / "mig", hardware)
        assert outcome is (Outcome.ROLLED_BACK if back else Outcome.APPLIED)
    else:
        ends_well(tmp_path / "mig", hardware)


@pytest.mark.parametrize("first", range(0, MOMENTS, 4))
@pytest.mark.parametrize("second", range(0, MOMENTS, 4))
def test_killed_twice_it_ends_in_the_wanted_layout(tmp_path: Path, first: int, second: int) -> None:
    """The second time while the first is mended."""
    hardware = Hardware.of([before()])
    with pytest.raises(Killed):
        changed(tmp_path / "mig", PlayedWorld(hardware, effects=Effects(first)))
    try:
        resumed(tmp_path / "mig", PlayedWorld(hardware, effects=Effects(second)))
    except Killed:
        assert ends_well(tmp_path / "mig", hardware) is Outcome.APPLIED
    else:
        assert has_layout(hardware.seen()[0], WANTED)


def test_a_cause_that_passes_is_waited_for(tmp_path: Path) -> None:
    """A process that ends a second late is no reason to go back."""
    hardware = Hardware.of([before()])
    busy = StepFailed("NVML_ERROR_IN_USE", passes=True)
    world = PlayedWorld(hardware, fails={0: busy, 1: busy})

    assert changed(tmp_path / "mig", world).outcome is Outcome.APPLIED
    assert world.paused > 0


class Ending(PlayedWorld):
    """The kubelet removes what a pod has left after some seconds; None: it never does."""

    ends_after: float | None = None
    program: str = ""
    """It runs where the pod is."""

    def device_users(self) -> DeviceUsers:
        found = super().device_users()
        if not self.program:
            return found
        runs = frozenset({DeviceUser(UserKind.PROCESS, self.program)})
        return {part: held | runs for part, held in found.items()}

    def pause(self, seconds: float) -> None:
        super().pause(seconds)
        if self.ends_after is not None and self.paused >= self.ends_after:
            self.hardware.held.clear()


@pytest.mark.parametrize(("pod", "seconds"), [("ns/train", 3.0), ("0f2c-98", 60.0)])
def test_a_pod_that_has_just_ended_is_no_reason_to_refuse(
    tmp_path: Path, pod: str, seconds: float
) -> None:
    """One whose name is not known has left nothing but a line in the kubelet's checkpoint."""
    hardware = Hardware.of([before()])
    hardware.held[GPU, "2g.10gb", 2] = pod
    world = Ending(hardware)
    world.ends_after = seconds

    assert changed(tmp_path / "mig", world).outcome is Outcome.APPLIED
    assert world.paused == seconds


@pytest.mark.parametrize(
    ("pods", "program", "seconds"),
    [
        (["ns/train"], "", 5.0),
        (["0f2c-98"], "", 62.0),
        (["ns/train", "0f2c-98"], "", 5.0),
        (["ns/train"], "4711 python", 0.0),
        (["0f2c-98"], "4711 python", 0.0),
    ],
)
def test_whoever_stays_is_refused_in_a_while_and_a_program_at_once(
    tmp_path: Path, pods: list[str], program: str, seconds: float
) -> None:
    hardware = Hardware.of([before()])
    places = [("2g.10gb", 2), ("2g.10gb", 4)]
    hardware.held = {(GPU, *place): pod for place, pod in zip(places, pods, strict=False)}
    world = Ending(hardware)
    world.program = program

    result = changed(tmp_path / "mig", world)

    assert result.refusal is not None
    assert f"pod {min(pods)}" in result.reason
    assert (world.paused, world.taken) == (seconds, [])


def test_tries_are_counted_for_each_step_by_itself(tmp_path: Path) -> None:
    """Two steps that each have to wait are no reason to go back."""
    hardware = Hardware.of([before()])
    busy = StepFailed("NVML_ERROR_IN_USE", passes=True)
    world = PlayedWorld(hardware, fails=dict.fromkeys((0, 1, 2, 4, 5, 6), busy))

    assert changed(tmp_path / "mig", world).outcome is Outcome.APPLIED


def test_steps_that_lead_back_to_an_earlier_layout_end_in_the_previous_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the planner says: to go on would be for ever."""
    hardware = Hardware.of([before()])
    world, previous = PlayedWorld(hardware), current_layout(before(), exact=True)

    def astray(
        gpus: Sequence[MigGpu],
        wanted: Mapping[str, GpuLayout],
        users: DeviceUsers,
        **more: bool,
    ) -> MigPlan | MigRefusal:
        """Makes and destroys the same instance in turns; the way back is the right one."""
        found = plan(gpus, wanted, users, spare_busy=more["spare_busy"])
        if not isinstance(found, MigPlan) or wanted[GPU] == previous:
            return found
        last = next((one for one in gpus[0].instances if one.start == 6), None)
        step: MigStep = CreateInstance(gpu=GPU, profile="1g.5gb", start=6, size=1)
        if last is not None and last.compute:
            step = DestroyCompute(gpu=GPU, instance=last.id, compute=0)
        elif last is not None:
            step = DestroyInstance(gpu=GPU, instance=last.id, profile="1g.5gb", start=6)
        return replace(found, gpus=(replace(found.gpus[0], steps=(step,)),))

    monkeypatch.setattr(actuator.layout_steps, "plan", astray)

    result = changed(tmp_path / "mig", world)

    assert result.outcome is Outcome.ROLLED_BACK
    assert "lead back to a layout that was there before" in result.reason
    assert has_layout(hardware.seen()[0], previous)
    assert len(world.taken) < 10
    assert open_change(tmp_path / "mig") is None


def test_the_end_is_seen_in_a_fresh_session(tmp_path: Path) -> None:
    """What only the session that made it shows is not there."""

    class Forgetful(PlayedWorld):
        def reopen(self) -> None:
            for one in self.hardware.gpus:
                one.gpu = replace(one.gpu, instances=one.gpu.instances[1:])

    result = changed(tmp_path / "mig", Forgetful(Hardware.of([before()])))

    assert result.outcome is Outcome.STUCK
    assert "after all steps" in result.reason


def test_a_cause_that_does_not_pass_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    """A few tries, and back."""
    hardware = Hardware.of([before()])
    busy = StepFailed("NVML_ERROR_IN_USE", passes=True)
    world = PlayedWorld(hardware, fails=dict.fromkeys(range(4), busy))

    assert changed(tmp_path / "mig", world).outcome is Outcome.ROLLED_BACK
    assert len(world.taken) == 4
    assert world.paused == 0.5 + 1 + 2


@pytest.mark.parametrize("step", [0, 3, MOMENTS // 2 - 1])
def test_a_step_that_is_done_although_it_failed_counts_as_done(tmp_path: Path, step: int) -> None:
    """The state decides, not the return value."""
    hardware = Hardware.of([before()])
    world = PlayedWorld(hardware, lies={step: StepFailed("NVML_ERROR_UNKNOWN")})

    assert changed(tmp_path / "mig", world).outcome is Outcome.APPLIED


@pytest.mark.parametrize("step", [0, 3, MOMENTS // 2 - 1])
def test_success_without_effect_is_noticed(tmp_path: Path, step: int) -> None:
    """Upstream reports success with no device at all."""
    hardware = Hardware.of([before()])
    world = PlayedWorld(hardware, lies=dict.fromkeys(range(step, step + 4)))

    result = changed(tmp_path / "mig", world)

    assert result.outcome is Outcome.ROLLED_BACK
    assert "without effect" in result.reason


def test_an_instance_that_gets_a_device_user_in_the_middle_is_spared(tmp_path: Path) -> None:
    """They are read before every step; the played hardware ends the test if one is destroyed."""
    for step in range(MOMENTS // 2):
        for one in before().instances:
            hardware = Hardware.of([before()])
            world = PlayedWorld(hardware, grabs={step: (GPU, one.profile, one.start)})

            result = changed(tmp_path / f"{step}-{one.start}", world)

            assert result.has_begun


def three_gpus() -> list[MigGpu]:
    """Each with other instances."""
    return [
        before(),
        mig_gpu(A100, ("2g.10gb", 0), ("1g.5gb", 6), uuid="GPU-1", index=1),
        mig_gpu(A100, ("3g.20gb", 4), uuid="GPU-2", index=2),
    ]


ALL_THREE = {
    GPU: WANTED,
    "GPU-1": layout_from_counts({"1g.5gb": 2}),
    "GPU-2": layout_from_counts({"7g.40gb": 1}),
}


def lost_in_the_middle(folder: Path, moment: int) -> Hardware:
    """The process is killed at a moment, and the first GPU falls off the bus."""
    hardware = Hardware.of(three_gpus())
    with pytest.raises(Killed):
        changed(folder, PlayedWorld(hardware, effects=Effects(moment)), ALL_THREE)
    hardware.lost.add(GPU)
    return hardware


@pytest.mark.parametrize("moment", range(0, 30, 3))
def test_a_lost_gpu_holds_itself_and_the_others_get_the_desired_layout(
    tmp_path: Path, moment: int
) -> None:
    """Whether they were changed already or not yet; the entry of the lost one is stuck."""
    hardware = lost_in_the_middle(tmp_path / "mig", moment)

    result = resumed(tmp_path / "mig", PlayedWorld(hardware))

    assert result is not None
    outcomes = {one.gpu: one.outcome for one in result.gpus}
    with Journal(tmp_path / "mig") as journal:
        [record] = journal.content().unended or [None]
        ended = {one.gpu: one.outcome for one in journal.content().ended}
    if record is None:  # the first GPU had ended before it was lost
        assert ended == dict.fromkeys(ALL_THREE, Outcome.APPLIED)
        assert result.outcome is Outcome.APPLIED
    else:
        assert (record.gpu, record.outcome) == (GPU, Outcome.STUCK)
        assert outcomes[GPU] is result.outcome is Outcome.STUCK
        assert ended == dict.fromkeys(("GPU-1", "GPU-2"), Outcome.APPLIED)
    assert [has_layout(gpu, ALL_THREE[gpu.uuid]) for gpu in hardware.seen()] == [True, True]


@pytest.mark.parametrize("failing", ["GPU-0", "GPU-1", "GPU-2"])
def test_a_gpu_that_fails_goes_back_alone(tmp_path: Path, failing: str) -> None:
    """Those before it keep the new layout, those after it get it; the worst is the outcome."""

    class Failing(PlayedWorld):
        def perform(self, step: MigStep) -> None:
            back = any(one.gpu == failing for one in self.taken)
            if step.gpu == failing and not back:
                self.taken.append(step)
                raise StepFailed("NVML_ERROR_UNKNOWN")
            super().perform(step)

    hardware = Hardware.of(three_gpus())

    result = changed(tmp_path / "mig", Failing(hardware), ALL_THREE)

    assert result.outcome is Outcome.ROLLED_BACK
    assert result.reason == f"GPU {failing.removeprefix('GPU-')}: NVML_ERROR_UNKNOWN"
    assert [one.gpu for one in result.gpus] == list(ALL_THREE)
    for gpu, old, outcome in zip(hardware.seen(), three_gpus(), result.gpus, strict=True):
        is_back = gpu.uuid == failing
        assert outcome.outcome is (Outcome.ROLLED_BACK if is_back else Outcome.APPLIED)
        if is_back:
            assert current_layout(gpu, exact=True) == current_layout(old, exact=True)
        else:
            assert has_layout(gpu, ALL_THREE[gpu.uuid])
    assert open_change(tmp_path / "mig") is None


def test_the_table_has_gpus_that_needed_no_step(tmp_path: Path) -> None:
    hardware = Hardware.of(three_gpus())
    changed(tmp_path / "mig", PlayedWorld(hardware), {"GPU-1": ALL_THREE["GPU-1"]})

    result = changed(tmp_path / "mig", PlayedWorld(hardware), ALL_THREE)

    assert result.outcome is Outcome.APPLIED
    assert {one.gpu: str(one.outcome) for one in result.gpus} == {
        GPU: "applied",
        "GPU-1": "unchanged",
        "GPU-2": "applied",
    }
    with Journal(tmp_path / "mig") as journal:
        assert [one.gpu for one in journal.content().ended] == ["GPU-1", GPU, "GPU-2"]


def test_gpus_are_changed_one_after_the_other(tmp_path: Path) -> None:
    """In bus order; no step of one comes between those of another."""
    world = PlayedWorld(Hardware.of(three_gpus()))

    changed(tmp_path / "mig", world, dict(reversed(ALL_THREE.items())))

    assert [gpu for gpu, _ in itertools.groupby(step.gpu for step in world.taken)] == [
        "GPU-0",
        "GPU-1",
        "GPU-2",
    ]


def test_a_request_that_was_interrupted_has_one_result_for_all_its_gpus(tmp_path: Path) -> None:
    """Also for those that had ended before, and those that had not begun."""
    hardware = Hardware.of(three_gpus())
    killed = PlayedWorld(hardware, effects=Effects(MOMENTS + 2))
    with Journal(tmp_path / "mig") as journal, pytest.raises(Killed):
        apply(killed, journal, ALL_THREE, origin="a test", change="a-request")
    with Journal(tmp_path / "mig") as journal:
        assert {one.gpu for one in journal.content().ended} == {GPU}
        assert {one.gpu for one in journal.content().unended} == {"GPU-1", "GPU-2"}

        result = resume(PlayedWorld(hardware), journal, change="a-request", desired=ALL_THREE)

    assert result is not None
    assert [(one.gpu, one.outcome) for one in result.gpus] == [
        (uuid, Outcome.APPLIED) for uuid in ALL_THREE
    ]


def test_a_lost_gpu_is_in_no_other_gpus_way(tmp_path: Path) -> None:
    """A change of its own is refused; others go on, and are not taken back with it."""
    hardware = lost_in_the_middle(tmp_path / "mig", 5)
    resumed(tmp_path / "mig", PlayedWorld(hardware))

    later = changed(tmp_path / "mig", PlayedWorld(hardware), {"GPU-2": WANTED})
    with pytest.raises(JournalUnusable, match="stuck on GPU GPU-0; run gpuscape mig restore"):
        changed(tmp_path / "mig", PlayedWorld(hardware), {GPU: WANTED})
    again = resumed(tmp_path / "mig", PlayedWorld(hardware))

    assert later.outcome is Outcome.APPLIED
    assert again is not None
    assert again.outcome is Outcome.STUCK
    assert again.reason.count("the way back failed") == 1
    assert has_layout(hardware.seen()[1], WANTED)


def test_a_gpu_whose_call_hung_is_stuck_without_another_call(tmp_path: Path) -> None:
    """The others of its request go on; a restore tries it again."""
    hardware = Hardware.of(three_gpus())
    bus_id = three_gpus()[1].bus_id
    with pytest.raises(Killed):
        changed(tmp_path / "mig", PlayedWorld(hardware, effects=Effects(24)), ALL_THREE)
    world = PlayedWorld(hardware)

    with Journal(tmp_path / "mig") as journal:
        result = resume(world, journal, is_restore=False, hung=[bus_id])
        [left] = journal.content().unended

    assert result is not None
    assert [(one.gpu, str(one.outcome)) for one in result.gpus] == [
        ("GPU-1", "stuck"),
        ("GPU-2", "applied"),
    ]
    assert (left.gpu, left.hung, left.outcome) == ("GPU-1", True, Outcome.STUCK)
    assert left.reason == "a call of the driver for this GPU did not return"
    assert "GPU-1" not in {step.gpu for step in world.taken}
    again = resumed(tmp_path / "mig", PlayedWorld(hardware))
    assert again is not None
    assert again.outcome is Outcome.ROLLED_BACK
    assert current_layout(hardware.seen()[1], exact=True) == current_layout(
        three_gpus()[1], exact=True
    )


def test_two_gpus_may_be_held_by_changes_of_their_own(tmp_path: Path) -> None:
    """Each comes back by itself."""
    hardware = lost_in_the_middle(tmp_path / "mig", 5)
    resumed(tmp_path / "mig", PlayedWorld(hardware))
    second = changed(tmp_path / "mig", PlayedWorld(hardware, loses={0: "GPU-1"}), {"GPU-1": WANTED})
    assert second.outcome is Outcome.STUCK

    hardware.lost.remove("GPU-1")
    resumed(tmp_path / "mig", PlayedWorld(hardware))
    with Journal(tmp_path / "mig") as journal:
        assert [one.gpu for one in journal.content().unended] == [GPU]
    hardware.lost.clear()
    resumed(tmp_path / "mig", PlayedWorld(hardware))

    assert open_change(tmp_path / "mig") is None
    first, *others = hardware.seen()
    assert current_layout(first, exact=True) == current_layout(before(), exact=True)
    assert [has_layout(gpu, ALL_THREE[gpu.uuid]) for gpu in others] == [True, True]


@pytest.mark.parametrize("is_resumed", [False, True])
def test_a_gpu_that_is_given_up_ends_its_change_and_stays_in_the_history(
    tmp_path: Path, *, is_resumed: bool
) -> None:
    """Held or merely stopped; nothing is done to a GPU for it."""
    hardware = lost_in_the_middle(tmp_path / "mig", 5)
    if is_resumed:
        resumed(tmp_path / "mig", PlayedWorld(hardware))

    with Journal(tmp_path / "mig") as journal:
        given_up = give_up(journal, [GPU, "GPU-9"])
    result = resumed(tmp_path / "mig", PlayedWorld(hardware))

    assert given_up == (GPU,)
    assert result is None or result.outcome is Outcome.APPLIED
    assert (result is None) == is_resumed
    assert open_change(tmp_path / "mig") is None
    with Journal(tmp_path / "mig") as journal:
        past = journal.content().ended
    assert {one.gpu for one in past} == set(ALL_THREE)
    [gone] = [one for one in past if one.given_up]
    assert (gone.gpu, gone.outcome) == (GPU, Outcome.ROLLED_BACK)
    assert gone.previous == current_layout(before(), exact=True)
    assert gone.reason.endswith("given up")


def test_a_gpu_that_is_given_up_is_not_brought_back_after_a_reboot(tmp_path: Path) -> None:
    """Also one that no change holds: it is sent away, and nobody waits for it."""
    hardware = Hardware.of(three_gpus())
    changed(tmp_path / "mig", PlayedWorld(hardware), {GPU: WANTED, "GPU-1": WANTED})
    hardware.reboot()
    hardware.lost.add(GPU)

    with Journal(tmp_path / "mig") as journal:
        given_up = give_up(journal, [GPU])
        restored = restore_layouts(PlayedWorld(hardware), journal)

    assert given_up == (GPU,)
    assert [(one.gpu, one.why_not) for one in restored] == [("GPU-1", "")]
    assert has_layout(hardware.seen()[0], WANTED)


def test_a_reboot_brings_back_gpus_that_are_no_part_of_a_held_change(tmp_path: Path) -> None:
    """The GPU that holds it is still lost."""
    hardware = Hardware.of(three_gpus())
    changed(tmp_path / "mig", PlayedWorld(hardware), {"GPU-2": WANTED})
    with pytest.raises(Killed):
        changed(
            tmp_path / "mig",
            PlayedWorld(hardware, effects=Effects(5)),
            {GPU: WANTED, "GPU-1": WANTED},
        )
    hardware.lost.add(GPU)
    hardware.reboot()

    with Journal(tmp_path / "mig") as journal:
        result = resume(PlayedWorld(hardware), journal)
        restored = restore_layouts(PlayedWorld(hardware), journal)

    assert result is not None
    assert result.outcome is Outcome.STUCK
    assert [(one.gpu, one.why_not) for one in restored] == [("GPU-2", "")]
    assert [has_layout(gpu, WANTED) for gpu in hardware.seen()] == [True, True]


def test_a_gpu_on_which_a_change_is_held_is_left_to_that_after_a_reboot(tmp_path: Path) -> None:
    """It answers again, with a layout that came before the change; no step is taken on it."""
    hardware = Hardware.of(three_gpus())
    changed(
        tmp_path / "mig",
        PlayedWorld(hardware),
        {GPU: layout_from_counts({"1g.5gb": 2}), "GPU-1": WANTED},
    )
    again = PlayedWorld(hardware, loses={0: GPU})
    assert changed(tmp_path / "mig", again, {GPU: WANTED}).outcome is Outcome.STUCK
    hardware.lost.clear()
    hardware.reboot()
    world = PlayedWorld(hardware)

    with Journal(tmp_path / "mig") as journal:
        restored = restore_layouts(world, journal)

    assert [one.gpu for one in restored] == ["GPU-1"]
    assert {step.gpu for step in world.taken} == {"GPU-1"}


def _dies_at(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process dies at a write of the journal."""

    def die(*_: object) -> None:
        raise Killed

    monkeypatch.setattr(Journal, method, die)


def test_a_change_that_has_ended_is_not_taken_back_for_a_gpu_that_is_lost_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process died between the two files of the journal."""
    hardware = Hardware.of(three_gpus())
    with monkeypatch.context() as dying:
        _dies_at("_drop_ended", dying)
        with pytest.raises(Killed):
            changed(tmp_path / "mig", PlayedWorld(hardware), ALL_THREE)
    hardware.lost.add(GPU)

    assert resumed(tmp_path / "mig", PlayedWorld(hardware)) is not None

    assert [has_layout(gpu, ALL_THREE[gpu.uuid]) for gpu in hardware.seen()] == [True, True]
    with Journal(tmp_path / "mig") as journal:
        assert journal.content().unended == ()
        assert [past.outcome for past in journal.content().ended] == [Outcome.APPLIED] * 3
        journal.need_no_change([GPU])


def test_a_gpu_that_came_back_and_is_lost_again_is_not_held_by_the_change_that_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process died between the two files of the journal."""
    hardware = lost_in_the_middle(tmp_path / "mig", 5)
    resumed(tmp_path / "mig", PlayedWorld(hardware))
    hardware.lost.clear()
    with monkeypatch.context() as dying:
        _dies_at("_drop_ended", dying)
        with pytest.raises(Killed):
            resumed(tmp_path / "mig", PlayedWorld(hardware))
    hardware.lost.add(GPU)

    assert resumed(tmp_path / "mig", PlayedWorld(hardware)) is None

    with Journal(tmp_path / "mig") as journal:
        outcomes = {past.gpu: past.outcome for past in journal.content().ended}
        assert outcomes.pop(GPU) is Outcome.ROLLED_BACK
        assert set(outcomes.values()) == {Outcome.APPLIED}
        journal.need_no_change([GPU])


def test_what_is_held_goes_back_once_the_gpu_is_there_again(tmp_path: Path) -> None:
    """After its reset, with no instance on it."""
    hardware = Hardware.of([before()])
    changed(tmp_path / "mig", PlayedWorld(hardware, loses={2: GPU}))
    hardware.lost.clear()

    result = resumed(tmp_path / "mig", PlayedWorld(hardware))

    assert result is not None
    assert result.outcome is Outcome.ROLLED_BACK
    assert current_layout(hardware.seen()[0], exact=True) == current_layout(before(), exact=True)


def test_a_reboot_in_the_middle_changes_nothing_about_the_end(tmp_path: Path) -> None:
    """All instances are gone then. What was to be kept comes back at its old place: a pod that is
    still bound to the node holds its UUID, which follows from the place.
    """
    odd, wanted = (
        mig_gpu(A100, ("1g.5gb", 2), ("3g.20gb", 4)),
        layout_from_counts({"1g.5gb": 1, "2g.10gb": 1}),
    )
    undisturbed, hardware = Hardware.of([odd]), Hardware.of([odd])
    changed(tmp_path / "other", PlayedWorld(undisturbed), {GPU: wanted})
    with pytest.raises(Killed):
        changed(tmp_path / "mig", PlayedWorld(hardware, effects=Effects(3)), {GPU: wanted})
    hardware.gpus[0].gpu = mig_gpu(A100)

    result = resumed(tmp_path / "mig", PlayedWorld(hardware))

    assert result is not None
    assert result.outcome is Outcome.APPLIED
    assert hardware.seen()[0].instances == undisturbed.seen()[0].instances


def _fails_from(number: int, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    """Have the journal fail from one call on, as with a full disk."""
    calls = itertools.count()
    real: Callable[..., None] = getattr(Journal, method)

    def maybe(self: Journal, *records: ChangeRecord) -> None:
        if next(calls) >= number:
            raise JournalUnusable("No space left on device")
        real(self, *records)

    monkeypatch.setattr(Journal, method, maybe)


def test_a_full_disk_is_noticed_before_anything_is_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the state from before on the disk there is no first step."""
    world = PlayedWorld(Hardware.of([before()]))
    _fails_from(0, monkeypatch, "write")

    with pytest.raises(JournalUnusable):
        changed(tmp_path / "mig", world)

    assert world.taken == []


@pytest.mark.parametrize("method", ["write", "end"])
def test_a_disk_that_fills_in_the_middle_does_not_stop_the_way_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """It goes back; a later start finds the change open, sees where it is, and ends it."""
    hardware = Hardware.of([before()])
    with monkeypatch.context() as patched:
        _fails_from(1 if method == "write" else 0, patched, method)
        world = PlayedWorld(hardware, fails={3: StepFailed("NVML_ERROR_UNKNOWN")})
        assert changed(tmp_path / "mig", world).outcome is Outcome.ROLLED_BACK

    ends_well(tmp_path / "mig", hardware)
    assert open_change(tmp_path / "mig") is None
