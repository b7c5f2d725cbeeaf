# SPDX-License-Identifier: Apache-2.0
"""Changes, kills, faults, pods, reboots and other programs in any order, against what must always
hold: nothing busy is destroyed, nothing is touched before the journal has the way back, and every
change ends in one of three ways, of which each is what it says."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from actuator.change import ChangeResult, apply, resume
from actuator.change_record import ChangeRecord
from actuator.journal import Journal
from actuator.mig_world import StepFailed
from actuator.restore import restore_layouts
from api.mig_outcome import Outcome
from discovery.mig_state import CurrentInstance, MigGpu
from discovery.model import Mode
from mig.gpu_layout import GpuLayout, has_layout, layout_from_counts
from mig.planner import MigPlan, plan
from mig.steps import MigStep, SetMode
from tests.actuator.played_world import Effects, Hardware, Killed, PlayedWorld
from tests.conftest import SCALE
from tests.mig import plan_parts
from tests.mig.naive_gpu import mig_gpu
from tests.quick_folder import MEMORY

A100, H100 = "a100-sxm4-40gb", "h100-sxm5-80gb"
NAMES = {
    "GPU-0": ("1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"),
    "GPU-1": ("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"),
}

IN_MEMORY = MEMORY if MEMORY.is_dir() else None
"""Where a journal that waits for the disk does not wait."""

moments = st.integers(0, 16)
"""When the process dies: before or after an effect."""
faults = st.dictionaries(st.integers(0, 8), st.booleans(), min_size=1, max_size=2)
"""Which steps fail, and whether the cause passes."""
BOTH_WAYS = {1: False, 2: False}
"""A step there fails, and then the first one back: the change is held."""
lies = st.none() | st.integers(0, 8)
"""Which step succeeds without effect."""
uuids = st.sampled_from(sorted(NAMES))


@st.composite
def layouts(draw: st.DrawFn) -> dict[str, GpuLayout]:
    """What is asked for; some of it does not fit."""
    chosen = draw(st.lists(uuids, min_size=1, unique=True))
    return {
        uuid: layout_from_counts(Counter(draw(st.lists(st.sampled_from(NAMES[uuid]), max_size=3))))
        for uuid in chosen
    }


class WatchedWorld(PlayedWorld):
    """Refuses a step for which there is no way back on the disk."""

    folder: Path

    def perform(self, step: MigStep) -> None:
        """Look first."""
        if isinstance(step, SetMode):
            assert step.gpu not in self.hardware.used, "the mode of a GPU in use was changed"
        with Journal(self.folder, lock=False) as journal:
            records = journal.content().on([step.gpu])
        assert len(records) == 1, "a step without a way back"
        super().perform(step)


class AnyOrder(RuleBasedStateMachine):
    """One node: a GPU that keeps its MIG mode over a reboot, and one that does not."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(dir=IN_MEMORY))
        self.verified: dict[str, tuple[CurrentInstance, ...]] = {}
        """What a change left on a GPU, while nobody else touched it."""
        off = Mode(current=False, pending=False)
        self.hardware = Hardware.of(
            [
                mig_gpu(A100, ("1g.5gb", 0), ("2g.10gb", 2), uuid="GPU-0"),
                mig_gpu(H100, uuid="GPU-1", index=1, mode=off, resetless=True),
            ]
        )

    @rule(wanted=layouts())
    def ask(self, wanted: dict[str, GpuLayout]) -> None:
        """A change that nothing disturbs."""
        self._ask(wanted, self._world())

    @rule(wanted=layouts(), fails=faults, lies=lies)
    def ask_a_driver_that_fails(
        self, wanted: dict[str, GpuLayout], fails: dict[int, bool], lies: int | None
    ) -> None:
        """A change of which steps fail."""
        self._ask(wanted, self._world(None, fails, lies))

    @rule(wanted=layouts(), fails=st.just({}) | faults | st.just(BOTH_WAYS), data=st.data())
    def ask_while_a_pod_comes(
        self, wanted: dict[str, GpuLayout], fails: dict[int, bool], data: st.DataObject
    ) -> None:
        """An instance that is to go gets a device user after the first step."""
        world = self._world(None, fails)
        found = plan(self.hardware.seen(), wanted, world.device_users(), spare_busy=True)
        if isinstance(found, MigPlan) and plan_parts.destroyed(found)[1:]:
            uuid, one = data.draw(st.sampled_from(plan_parts.destroyed(found)[1:]))
            world.grabs[0] = (uuid, one.profile, one.start)
        self._ask(wanted, world)

    @rule(wanted=layouts(), dies=moments)
    def ask_and_die(self, wanted: dict[str, GpuLayout], dies: int) -> None:
        """A change whose process dies."""
        self._ask(wanted, self._world(dies))

    @rule(dies=moments, fails=faults)
    def start_and_fail(self, dies: int, fails: dict[int, bool]) -> None:
        """Steps fail, and the process dies."""
        self._start(self._world(dies, fails))

    @rule()
    def start(self) -> None:
        """What a process does first."""
        self._start(self._world())
        if self._open() is None:
            seen = {gpu.uuid: gpu.instances for gpu in self.hardware.seen()}
            for uuid, instances in self.verified.items():
                if uuid not in self.hardware.used:
                    assert seen.get(uuid, instances) == instances

    def _ask(self, wanted: dict[str, GpuLayout], world: PlayedWorld) -> None:
        with Journal(self._journal) as journal:
            if journal.content().on(wanted.keys()):
                return
        before = self.hardware.seen()
        with Journal(self._journal) as journal:
            try:
                result = apply(world, journal, wanted, origin="a test")
            except Killed:
                self._there_already(before, wanted)
                return
            if result.refusal is None:
                self._there_already(before, wanted)
            if result.has_begun:
                self._check(result, journal)
        if not result.has_begun:
            assert self.hardware.seen() == before
        for gpu in before:
            if gpu.uuid not in wanted:
                assert gpu in self.hardware.seen(), "another GPU was touched"

    def _there_already(self, before: Sequence[MigGpu], wanted: Mapping[str, GpuLayout]) -> None:
        for gpu in before:
            if gpu.uuid in wanted and has_layout(gpu, wanted[gpu.uuid]):
                self.verified[gpu.uuid] = gpu.instances

    def _start(self, world: PlayedWorld) -> None:
        with Journal(self._journal) as journal:
            try:
                result = resume(world, journal)
                if result is not None:
                    self._check(result, journal)
                destroyed = len(self.hardware.destroyed)
                before = set(self._instances())
                restore_layouts(world, journal)
                gone = {(u, at) for u, at in self.hardware.destroyed[destroyed:]}
                assert not {(u, at) for u, _, at in before} & gone, "restore destroyed"
            except Killed:
                return

    @rule(data=st.data())
    def bind(self, data: st.DataObject) -> None:
        """A pod gets an instance."""
        idle = [key for key in self._instances() if key not in self.hardware.held]
        if idle:
            self.hardware.held[data.draw(st.sampled_from(idle))] = "ns/pod"

    @precondition(lambda self: self.hardware.held)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        """A pod ends."""
        del self.hardware.held[data.draw(st.sampled_from(sorted(self.hardware.held)))]

    @rule()
    def reboot(self) -> None:
        """Instances are gone; pods that are bound stay bound."""
        self.hardware.reboot()

    @rule(uuid=uuids, data=st.data())
    def reboot_and_meddle(self, uuid: str, data: st.DataObject) -> None:
        """Another program is there first."""
        self.reboot()
        self._meddle(uuid, data)

    @rule()
    def reboot_into_use(self) -> None:
        """A program has a GPU that forgot that MIG was on."""
        self.reboot()
        self.hardware.used["GPU-1"] = "4711 python"

    @precondition(lambda self: self.hardware.used)
    @rule()
    def leave(self) -> None:
        """The program ends."""
        self.hardware.used.clear()

    @rule(uuid=uuids)
    def lose(self, uuid: str) -> None:
        """A GPU falls off the bus."""
        self.hardware.lost.add(uuid)

    @precondition(lambda self: self.hardware.lost)
    @rule()
    def find(self) -> None:
        """All that were lost are there again."""
        self.hardware.lost.clear()

    @rule(uuid=uuids, data=st.data())
    def meddle(self, uuid: str, data: st.DataObject) -> None:
        """Another program destroys what nobody holds, and makes one."""
        self._meddle(uuid, data)

    def _meddle(self, uuid: str, data: st.DataObject) -> None:
        one = next(gpu for gpu in self.hardware.gpus if gpu.gpu.uuid == uuid)
        kept = tuple(it for it in one.gpu.instances if self._key(one.gpu, it) in self.hardware.held)
        one.gpu = replace(one.gpu, instances=kept)
        self.verified.pop(uuid, None)
        name = data.draw(st.sampled_from(NAMES[uuid]))
        made = mig_gpu(one.gpu.model, (name, data.draw(st.sampled_from(_starts(one.gpu, name)))))
        taken = {unit for it in kept for unit in range(it.start, it.start + it.size)}
        (new,) = made.instances
        if one.gpu.mode == Mode(current=True, pending=True) and not taken & set(
            range(new.start, new.start + new.size)
        ):
            both = sorted((*kept, new), key=lambda it: it.id)
            one.gpu = replace(one.gpu, instances=tuple(both))

    @invariant()
    def a_change_that_is_open_can_be_read(self) -> None:
        """And no GPU has two."""
        with Journal(self._journal) as journal:
            gpus = [record.gpu for record in journal.content().unended]
        assert len(gpus) == len(set(gpus))

    def teardown(self) -> None:
        """With all GPUs back and nothing in the way every change has ended, and once is enough."""
        try:
            self.hardware.lost.clear()
            self.hardware.held.clear()
            self.hardware.used.clear()
            self.start()
            assert self._open() is None
            world = self._world()
            with Journal(self._journal) as journal:
                assert resume(world, journal) is None
                restore_layouts(world, journal)
            assert world.taken == []
        finally:
            shutil.rmtree(self.folder)

    @property
    def _journal(self) -> Path:
        return self.folder / "mig"

    def _open(self) -> ChangeRecord | None:
        with Journal(self._journal) as journal:
            return next(iter(journal.content().unended), None)

    def _world(
        self,
        dies: int | None = None,
        fails: Mapping[int, bool] | None = None,
        lies: int | None = None,
    ) -> WatchedWorld:
        failures = {
            at: StepFailed("NVML_ERROR_IN_USE", passes=passes)
            for at, passes in (fails or {}).items()
        }
        world = WatchedWorld(self.hardware, effects=Effects(dies), fails=failures)
        world.folder = self._journal
        if lies is not None:
            world.lies[lies] = None
        return world

    def _check(self, result: ChangeResult, journal: Journal) -> None:
        """Each GPU's outcome is what it says, and the result's is the worst."""
        seen = {gpu.uuid: gpu for gpu in self.hardware.seen()}
        content = journal.content()
        unended = content.on([gpu.gpu for gpu in result.gpus])  # others may be interrupted
        assert all(record.outcome is Outcome.STUCK for record in unended)
        stuck = {record.gpu for record in unended}
        worst = (Outcome.STUCK, Outcome.ROLLED_BACK, Outcome.APPLIED, Outcome.UNCHANGED)
        outcomes = [gpu.outcome for gpu in result.gpus]
        assert result.outcome is next(outcome for outcome in worst if outcome in outcomes)
        for gpu in result.gpus:
            if gpu.outcome is Outcome.UNCHANGED:
                continue
            assert (gpu.outcome is Outcome.STUCK) == (gpu.gpu in stuck)
            if gpu.gpu in stuck:
                assert gpu.reason
                self.verified.pop(gpu.gpu, None)
                continue
            record = next(one for one in content.ended[::-1] if one.gpu == gpu.gpu)
            assert record.outcome is gpu.outcome
            applied = gpu.outcome is Outcome.APPLIED
            assert has_layout(seen[gpu.gpu], record.desired if applied else record.previous)
            if applied:
                self.verified[gpu.gpu] = seen[gpu.gpu].instances

    def _instances(self) -> list[tuple[str, str, int]]:
        return [self._key(gpu, one) for gpu in self.hardware.seen() for one in gpu.instances]

    @staticmethod
    def _key(gpu: MigGpu, one: CurrentInstance) -> tuple[str, str, int]:
        return gpu.uuid, one.profile, one.start


def _starts(gpu: MigGpu, name: str) -> tuple[int, ...]:
    profile = gpu.profile(name)
    assert profile is not None
    return profile.starts


AnyOrder.TestCase.settings = settings(
    max_examples=25 * SCALE,
    stateful_step_count=40,
    derandomize=SCALE == 1,  # a plain run is the same each time; the long one looks further
)
TestAnyOrder = AnyOrder.TestCase
