# SPDX-License-Identifier: Apache-2.0
"""Random requests on GPUs that are lost, hang, fail or get users in the middle, with processes that
are killed at any effect: :mod:`tests.actuator.gpu_judge` says what each GPU may have at the end."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pytest

from actuator.change import ChangeResult, apply, resume
from actuator.journal import Journal, JournalUnusable
from actuator.mig_world import StepFailed
from discovery.mig_state import MigGpu
from mig.gpu_layout import GpuLayout, layout_from_counts
from mig.steps import MigStep
from tests.actuator.gpu_judge import GpuCase, Instance, Shape, joint_mistakes, mistakes
from tests.actuator.played_world import Effects, Hardware, Killed, PlayedWorld
from tests.conftest import SCALE
from tests.mig.naive_gpu import mig_gpu
from tests.quick_folder import MEMORY

A100 = "a100-sxm4-40gb"
REQUEST: Final = "the-request"
SEED: Final = 20261128
BEFORE: Sequence[Sequence[tuple[str, int]]] = (
    (),
    (("1g.5gb", 0), ("1g.5gb", 1), ("2g.10gb", 2), ("2g.10gb", 4), ("1g.5gb", 6)),
    (("3g.20gb", 0), ("3g.20gb", 4)),
    (("2g.10gb", 0), ("1g.5gb", 6)),
    (("7g.40gb", 0),),
    (("4g.20gb", 0), ("1g.5gb", 5)),
)
DESIRED: Sequence[Mapping[str, int]] = (
    {},
    {"1g.5gb": 7},
    {"3g.20gb": 2},
    {"7g.40gb": 1},
    {"2g.10gb": 1, "1g.5gb": 1},
    {"3g.20gb": 1, "1g.5gb": 3},
    {"4g.20gb": 1, "2g.10gb": 1},
)
FAULTS: Final = ("", "", "", "passes", "fails", "fails twice", "user", "lost", "hung")


IN_MEMORY = MEMORY if MEMORY.is_dir() else None


class Hung(BaseException):
    """A call does not return, and the process is killed for it."""

    def __init__(self, bus_id: str) -> None:
        super().__init__(bus_id)
        self.bus_id = bus_id


@dataclass
class GpuFault:
    """What goes wrong on a GPU at its step of this number, whichever process takes it."""

    name: str
    at: int
    steps: int = 0
    met: bool = False


@dataclass
class FaultyWorld(PlayedWorld):
    """The world of one process; GPUs and their faults outlive it."""

    faults: Mapping[str, GpuFault] = field(default_factory=dict)
    hung: Sequence[str] = ()
    """Bus ids of GPUs that may not be touched."""

    def observe(self, gpus: Any = ()) -> Sequence[MigGpu]:
        """Without those that hung."""
        return tuple(gpu for gpu in super().observe(gpus) if gpu.bus_id not in self.hung)

    def perform(self, step: MigStep) -> None:
        """Let the GPU's fault happen at its step."""
        gpu = next(one.gpu for one in self.hardware.gpus if one.gpu.uuid == step.gpu)
        assert gpu.bus_id not in self.hung, "a GPU that hung was touched"
        fault, number = self.faults[step.gpu], len(self.taken)
        here, fault.steps = fault.steps - fault.at, fault.steps + 1
        if here == 0 or (here == 1 and fault.name == "fails twice"):
            fault.met = bool(fault.name)
            match fault.name:
                case "hung":
                    raise Hung(gpu.bus_id)
                case "lost":
                    self.loses[number] = step.gpu
                case "fails" | "fails twice":
                    self.fails[number] = StepFailed("NVML_ERROR_UNKNOWN")
                case "passes":
                    self.fails[number] = StepFailed("NVML_ERROR_IN_USE", passes=True)
                case "user":
                    self._come(gpu, step)
        super().perform(step)

    def _come(self, gpu: MigGpu, step: MigStep) -> None:
        """A pod gets an instance after this step, one that the step leaves as it is."""
        number = getattr(step, "instance", None)
        for instance in gpu.instances:
            if instance.id != number and instance.compute:
                key = (gpu.uuid, instance.profile, instance.start)
                self.grabs[len(self.taken)] = key


class CountedJournal(Journal):
    """Its writes are effects at which a process can be killed."""

    effects = Effects()

    def _replace(self, name: str, content: bytes) -> None:
        for _ in self.effects():
            super()._replace(name, content)


@dataclass
class Drawn:
    """One request, by a seed."""

    folder: Path
    hardware: Hardware
    desired: dict[str, GpuLayout]
    faults: dict[str, GpuFault]
    kill_at: int | None
    killed: bool = False

    @classmethod
    def of(cls, folder: Path, seed: int) -> Drawn:
        """GPUs, layouts for two or three of them, and what goes wrong."""
        draw = random.Random(seed)  # noqa: S311 - repeatable, not secret
        gpus = [
            mig_gpu(A100, *draw.choice(BEFORE), uuid=f"GPU-{index}", index=index)
            for index in range(3)
        ]
        hardware = Hardware.of(gpus)
        places = [(gpu.uuid, it.profile, it.start) for gpu in gpus for it in gpu.instances]
        if places and draw.random() < 0.3:
            hardware.held[draw.choice(places)] = "ns/early"
        chosen = draw.sample(gpus, draw.choice((2, 3, 3)))
        return cls(
            folder=folder,
            hardware=hardware,
            desired={gpu.uuid: layout_from_counts(draw.choice(DESIRED)) for gpu in chosen},
            faults={
                gpu.uuid: GpuFault(draw.choice(FAULTS), draw.choice((0, 1, 2, 3, 5)))
                for gpu in gpus
            },
            kill_at=draw.randrange(60) if draw.random() < 0.4 else None,
        )

    def run(self) -> ChangeResult | None:
        """Process after process, until one reports; None if the first died before it began."""
        hung: list[str] = []
        world = FaultyWorld(self.hardware, effects=Effects(self.kill_at), faults=self.faults)
        has_begun = False
        while True:
            with CountedJournal(self.folder) as journal:
                journal.effects = world.effects
                try:
                    return self._carry_out(world, journal, hung, has_begun=has_begun)
                except Killed:
                    self.killed = True
                except Hung as hang:
                    hung.append(hang.bus_id)
            has_begun = True
            world = FaultyWorld(self.hardware, faults=self.faults, hung=hung)

    def _carry_out(
        self, world: FaultyWorld, journal: Journal, hung: Sequence[str], *, has_begun: bool
    ) -> ChangeResult | None:
        if not has_begun:
            return apply(world, journal, self.desired, origin="a test", change=REQUEST)
        return resume(
            world, journal, change=REQUEST, desired=self.desired, is_restore=False, hung=hung
        )

    def instances(self) -> dict[str, frozenset[Instance]]:
        """Instances of all GPUs, also of lost ones."""
        return {one.gpu.uuid: _instances(one.gpu) for one in self.hardware.gpus}

    def unended(self) -> set[str]:
        """UUIDs of GPUs whose change has not ended."""
        with Journal(self.folder, lock=False) as journal:
            entries = journal.content().unended
        assert len(entries) == len({entry.gpu for entry in entries})
        return {entry.gpu for entry in entries}

    def cases(
        self, before: Mapping[str, frozenset[Instance]], outcomes: Mapping[str, str]
    ) -> dict[str, GpuCase]:
        """What happened on each GPU, for the judge."""
        after, unended = self.instances(), self.unended()
        gone = set(self.hardware.destroyed)
        in_use = {(uuid, profile, start) for uuid, profile, start in self.hardware.held}
        return {
            uuid: GpuCase(
                before=was,
                after=after[uuid],
                desired=_shape(self.desired.get(uuid)),
                fault=self.faults[uuid].name if self.faults[uuid].met else "",
                killed=self.killed,
                used=frozenset(it for it in was if (uuid, *it[:2]) in in_use),
                destroyed=frozenset(it for it in was if (uuid, it[1]) in gone),
                outcome=outcomes.get(uuid),
                unended=uuid in unended,
            )
            for uuid, was in before.items()
        }


def _shape(layout: GpuLayout | None) -> Shape | None:
    if layout is None:
        return None
    return tuple(sorted((it.profile, it.compute) for it in layout.instances))


def _instances(gpu: MigGpu) -> frozenset[Instance]:
    return frozenset(
        (
            instance.profile,
            instance.start,
            tuple(sorted((compute.slices for compute in instance.compute), reverse=True)),
        )
        for instance in gpu.instances
    )


def _later_changes_are_taken(drawn: Drawn) -> None:
    """Of every GPU that is not stuck, and of no other."""
    stuck = drawn.unended()
    for uuid, fault in drawn.faults.items():
        fault.name = ""
        world = FaultyWorld(drawn.hardware, faults=drawn.faults)
        desired = {uuid: layout_from_counts({"7g.40gb": 1})}
        with Journal(drawn.folder) as journal:
            if uuid in stuck:
                with pytest.raises(JournalUnusable, match=f"is stuck on GPU {uuid}"):
                    apply(world, journal, desired, origin="later", change=f"later-{uuid}")
                assert world.taken == []
            elif uuid not in drawn.hardware.lost:
                apply(world, journal, desired, origin="later", change=f"later-{uuid}")
    assert drawn.unended() == stuck


def _stuck_gpus_come_back(drawn: Drawn, before: Mapping[str, frozenset[Instance]]) -> None:
    """To the layout from before, once the cause is gone: the lost ones were reset."""
    stuck = drawn.unended()
    for one in drawn.hardware.gpus:
        if one.gpu.uuid in drawn.hardware.lost:
            one.gpu = replace(one.gpu, instances=())
    drawn.hardware.lost.clear()
    drawn.hardware.held.clear()
    others = {uuid: now for uuid, now in drawn.instances().items() if uuid not in stuck}
    with Journal(drawn.folder) as journal:
        resume(FaultyWorld(drawn.hardware, faults=drawn.faults), journal)
    assert drawn.unended() == set()
    assert {uuid: drawn.instances()[uuid] for uuid in stuck} == {u: before[u] for u in stuck}
    assert {uuid: drawn.instances()[uuid] for uuid in others} == others


def judged(seed: int, counts: Counter[str]) -> None:
    """Carry out one request, and judge each of its GPUs; ``counts`` gets how they ended."""
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as name:
        drawn = Drawn.of(Path(name) / "mig", seed)
        before = drawn.instances()
        result = drawn.run()
        gpus = () if result is None else result.gpus
        cases = drawn.cases(before, {gpu.gpu: str(gpu.outcome) for gpu in gpus})
        wrong = [f"{uuid}: {why}" for uuid, case in cases.items() for why in mistakes(case)]
        if result is not None:
            wrong += joint_mistakes(str(result.outcome), cases)
        assert not wrong, (seed, wrong, cases)
        _entries_agree(drawn, cases)
        for case in cases.values():
            counts[f"{case.outcome} {case.fault}".strip()] += 1
        counts["killed"] += drawn.killed
        _later_changes_are_taken(drawn)
        _stuck_gpus_come_back(drawn, before)


def _entries_agree(drawn: Drawn, cases: Mapping[str, GpuCase]) -> None:
    """The journal has each affected GPU once, with the outcome of the result."""
    with Journal(drawn.folder, lock=False) as journal:
        entries = journal.content().of(REQUEST)
    assert {entry.gpu: str(entry.outcome) for entry in entries} == {
        uuid: case.outcome
        for uuid, case in cases.items()
        if case.outcome not in (None, "unchanged")
    }
    assert len(entries) == len({entry.gpu for entry in entries})


def test_each_gpu_ends_as_its_own_faults_allow() -> None:
    """And every outcome of every fault is among them."""
    counts: Counter[str] = Counter()
    for number in range(150 * SCALE):
        judged(SEED + number, counts)

    expected = {
        "applied",
        "unchanged",
        "applied passes",
        "rolled-back fails",
        "rolled-back fails twice",
        "stuck fails twice",
        "rolled-back user",
        "stuck lost",
        "stuck hung",
        "killed",
    }
    assert expected <= counts.keys(), counts
