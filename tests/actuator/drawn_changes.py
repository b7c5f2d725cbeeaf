# SPDX-License-Identifier: Apache-2.0
"""Changes of MIG layouts drawn by a seed, and the judge of how each of them ended.

The judge reads the simulator's state file and the journal, and nothing of the planner. Some layouts
have compute instances that are parts of their GPU instance, and of some changes a GPU falls off the
bus.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from actuator.change_record import ChangeRecord
from actuator.journal import Journal
from api.mig_outcome import Outcome
from mig.gpu_layout import GpuLayout, layout_from_counts
from simulator.simulation import Return
from tests import machines
from tests.actuator.simulated_node import SimulatedNode, node

GPUS: Final = 3
LOST: Final = Return(code=15)
LAYOUTS: Final[Sequence[Mapping[str, int]]] = (
    {},
    {"1g.5gb": 7},
    {"3g.20gb": 2},
    {"7g.40gb": 1},
    {"4g.20gb": 1, "2g.10gb": 1, "1g.5gb": 1},
    {"3g.20gb": 1, "1g.5gb": 3},
    {"2c.4g.20gb": 2},
    {"1c.4g.20gb": 2, "2c.4g.20gb": 1, "3g.20gb": 1},
    {"1c.3g.20gb": 3, "2g.10gb": 1},
    {"2c.3g.20gb": 1, "1c.3g.20gb": 1, "4g.20gb": 1},
    {"1c.2g.10gb": 2, "2g.10gb": 2},
    {"3c.7g.40gb": 1, "2c.7g.40gb": 2},
    {"4c.7g.40gb": 1, "3c.7g.40gb": 1},
    {"3c.7g.40gb": 1, "2c.7g.40gb": 1, "1c.7g.40gb": 2},
)
"""Eight of the fourteen have compute instances in parts."""

WORST: Final = (Outcome.STUCK, Outcome.ROLLED_BACK, Outcome.APPLIED)
"""A change has the worst outcome of its GPUs."""

Shape = tuple[tuple[str, int, tuple[int, ...]], ...]
"""Profile, start and compute slices of each GPU instance, sorted."""


@dataclass
class KillFigures:
    """How the changes of one program ended."""

    kills: int = 0
    parts: int = 0
    """With compute instances in parts among the layouts before or after."""
    lost: int = 0
    """With a GPU lost at the kill."""
    unbegun: int = 0
    """The journal did not have the change yet."""
    applied: int = 0
    previous: int = 0
    """Begun, and taken back."""
    held: int = 0
    """By the lost GPU alone; the others in the desired layout."""
    given_up: int = 0
    """Of those that were held."""
    most_effects: int = 0
    """Of one worker."""
    slowest_seconds: float = 0.0
    """From the kill to the end."""

    def took(self, seconds: float) -> None:
        """Count the time of one end."""
        self.slowest_seconds = max(self.slowest_seconds, seconds)


def joined(first: KillFigures, second: KillFigures) -> KillFigures:
    """The figures of two nodes together."""
    counts = ("kills", "parts", "lost", "unbegun", "applied", "previous", "held", "given_up")
    return KillFigures(
        **{name: getattr(first, name) + getattr(second, name) for name in counts},
        most_effects=max(first.most_effects, second.most_effects),
        slowest_seconds=max(first.slowest_seconds, second.slowest_seconds),
    )


@dataclass
class DrawnChange:
    """One change, and how the GPUs were before it."""

    name: str
    """Identifies it in the journal."""
    desired: dict[int, GpuLayout]
    """By index."""
    before: dict[int, Shape]
    lost: int | None
    """Index of the GPU that falls off the bus."""


@dataclass
class DrawnChanges:
    """One node, on which a change begins where the one before has ended."""

    on: SimulatedNode
    draw: random.Random
    uuids: tuple[str, ...]
    lost_every: int
    figures: KillFigures = field(default_factory=KillFigures)

    @classmethod
    def of(cls, folder: Path, seed: int, lost_every: int) -> DrawnChanges:
        """Begin with GPUs that have MIG on and no instance."""
        on = node(folder, count=GPUS)
        uuids = tuple(gpu.uuid for gpu in on.gpus())
        return cls(on, random.Random(seed), uuids, lost_every)  # noqa: S311 - repeatable, not secret

    def shape(self, index: int) -> Shape:
        """A GPU in the state file."""
        return tuple(
            sorted(
                (profile, start, tuple(sorted((size for size, _ in compute), reverse=True)))
                for profile, start, _, compute in self.on.found(index)
            )
        )

    def instances(self) -> object:
        """All GPUs in the state file; equal where nothing was made or destroyed in between."""
        return tuple(self.on.found(index) for index in range(GPUS))

    def shapes(self) -> dict[int, Shape]:
        """All GPUs in the state file, by index."""
        return {index: self.shape(index) for index in range(GPUS)}

    def new_name(self) -> str:
        """A name that no other change has."""
        return f"change-{self.draw.randrange(1 << 60):016x}"

    def next(self) -> DrawnChange:
        """Other layouts for two GPUs or three; now and then one of these is to be lost."""
        chosen = sorted(self.draw.sample(range(GPUS), self.draw.choice((2, 3))))
        desired = {index: self._other_layout(index) for index in chosen}
        loses = self.figures.kills % self.lost_every == 0
        lost = self.draw.choice(chosen) if loses else None
        return DrawnChange(self.new_name(), desired, self.shapes(), lost)

    def small(self, index: int) -> GpuLayout:
        """Two or three small instances, whichever the GPU does not have."""
        two = layout_from_counts({"1g.5gb": 2})
        return (
            layout_from_counts({"1g.5gb": 3})
            if without_places(self.shape(index)) == sizes(two)
            else two
        )

    def lose(self, change: DrawnChange) -> None:
        """The GPU falls off the bus, if one is to."""
        if change.lost is not None:
            self.on.simulation.fault(LOST, bus_id=machines.gpu(change.lost).bus_id)

    def bring_back(self, index: int) -> None:
        """A reset: the GPU answers again, and has no instances."""
        self.on.simulation.clear()
        self.on.simulation.reset_gpu(machines.gpu(index).bus_id)

    def is_open(self, change: DrawnChange) -> bool:
        """The journal has it, and it has not ended."""
        with Journal(self.on.journal, lock=False) as journal:
            unended = journal.content().unended
        return any(record.change == change.name for record in unended)

    def held(self) -> tuple[ChangeRecord, ...]:
        """Changes that have not ended, a GPU each."""
        with Journal(self.on.journal, lock=False) as journal:
            return journal.content().unended

    def judge(self, change: DrawnChange, *, is_back: bool = False) -> Outcome | None:
        """How a change ended whose program was killed, as :meth:`judge_alone`; it counts."""
        outcome = self.judge_alone(change, is_back=is_back)
        assert {record.change for record in self.held()} <= {change.name}
        self.figures.kills += 1
        self.figures.lost += change.lost is not None
        self.figures.parts += is_in_parts(change)
        self.figures.unbegun += outcome is None
        self.figures.applied += outcome is Outcome.APPLIED
        self.figures.previous += outcome is Outcome.ROLLED_BACK
        self.figures.held += outcome is Outcome.STUCK
        return outcome

    def judge_alone(self, change: DrawnChange, *, is_back: bool = False) -> Outcome | None:
        """How a change ended, by the journal, where the state file shows no other end.

        Each GPU that is not lost has the desired layout if its own outcome is applied, and else its
        previous one at the same places; so has the lost one if it ``is_back``. None: the change
        never began.
        """
        outcomes, shapes = self._recorded(change), self.shapes()
        for index in shapes.keys() - (set() if is_back else {change.lost}):
            if outcomes.get(self.uuids[index]) is Outcome.APPLIED:
                assert without_places(shapes[index]) == sizes(change.desired[index]), shapes
            else:
                assert shapes[index] == change.before[index], shapes
        if not outcomes:
            return None
        assert outcomes.keys() <= {self.uuids[index] for index in change.desired}
        # all of them had no failure of their own, so nothing but the loss kept one from its layout
        lost = None if change.lost is None else self.uuids[change.lost]
        others = [outcome for uuid, outcome in outcomes.items() if uuid != lost]
        assert set(others) <= {Outcome.APPLIED}, outcomes
        return next((outcome for outcome in WORST if outcome in outcomes.values()), None)

    def _recorded(self, change: DrawnChange) -> dict[str, Outcome]:
        """How the change ended on each GPU, by UUID; empty where the journal does not have it."""
        with Journal(self.on.journal, lock=False) as journal:
            records = journal.content().of(change.name)
        outcomes: dict[str, Outcome] = {}
        for record in records:
            assert record.outcome is not None, "a change has not ended"
            assert record.gpu not in outcomes
            outcomes[record.gpu] = record.outcome
            if record.outcome is Outcome.STUCK:
                assert change.lost is not None
                assert record.gpu == self.uuids[change.lost]
        return outcomes

    def judge_the_lost(self, change: DrawnChange, *, given_up: bool) -> None:
        """The GPU is given up with its layout from before in the history, or has that layout."""
        assert change.lost is not None
        uuid, before = self.uuids[change.lost], change.before[change.lost]
        with Journal(self.on.journal, lock=False) as journal:
            content = journal.content()
        assert content.unended == ()
        record = next(past for past in content.of(change.name) if past.gpu == uuid)
        assert record.outcome is Outcome.ROLLED_BACK
        assert record.given_up is given_up
        assert as_shape(record.previous) == before
        if given_up:
            self.figures.given_up += 1
        else:
            assert self.shape(change.lost) == before

    def _other_layout(self, index: int) -> GpuLayout:
        """One of the layouts that the GPU does not have."""
        now = without_places(self.shape(index))
        layouts = map(layout_from_counts, LAYOUTS)
        return self.draw.choice([layout for layout in layouts if sizes(layout) != now])


def as_shape(layout: GpuLayout) -> Shape:
    """A layout with places, as the state file has it."""
    return tuple(sorted((it.profile, it.start, it.compute) for it in layout.instances))


def sizes(layout: GpuLayout) -> list[tuple[str, tuple[int, ...]]]:
    """Profiles and compute slices, wherever the instances are."""
    return sorted((it.profile, it.compute) for it in layout.instances)


def without_places(shape: Shape) -> list[tuple[str, tuple[int, ...]]]:
    """Profiles and compute slices of GPU instances, wherever they are."""
    return sorted((profile, compute) for profile, _, compute in shape)


def is_in_parts(change: DrawnChange) -> bool:
    """Whether a compute instance, before or after, has a part of its GPU instance."""
    shapes = (*change.before.values(), *map(as_shape, change.desired.values()))
    return any(compute != (int(profile[0]),) for shape in shapes for profile, _, compute in shape)
