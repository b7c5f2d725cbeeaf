# SPDX-License-Identifier: Apache-2.0
"""A worker may be killed at any effect, forward and back: the next one ends the change in the
layout that was wanted or in the one from before, and what is busy is never touched.

Real processes over the simulator's state file; what came of it is read there, not by the driver.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from actuator.change_record import ChangeRecord
from actuator.journal import Journal
from actuator.worker_messages import ChangeRequest, Order
from api.mig_outcome import Outcome
from mig.gpu_layout import GpuLayout, layout_from_counts
from simulator.simulation import Return
from simulator.state.machine_state import MachineState
from tests import machines
from tests.actuator import killed_worker
from tests.actuator.killed_worker import CALLS, Run
from tests.actuator.simulated_node import FIVE, H100, Found, SimulatedNode, node

SEED = 20261123
BUSY = ("1g.5gb", 6)
"""Profile and start of the instance that a process uses."""
BUS_ID = machines.gpu(0).bus_id
Shape = frozenset[tuple[str, int, tuple[int, ...]]]
"""Profile, start and compute slices: an instance that was made anew is the same."""


@dataclass(slots=True)
class Place:
    """A node that is put back to how it was, as often as wanted."""

    on: SimulatedNode
    wanted: GpuLayout
    mig: bool
    first: MachineState
    before: Found
    request: ChangeRequest

    @classmethod
    def of(cls, on: SimulatedNode, wanted: GpuLayout, *, mig: bool = True) -> Place:
        return cls(on, wanted, mig, on.simulation.state, on.found(), on.request(wanted))

    def anew(self) -> None:
        """Nothing has happened."""
        first = self.first
        self.on.simulation.edit(lambda _: first)
        shutil.rmtree(self.on.journal, ignore_errors=True)

    def run(self, *, resume: bool = False, moment: int | None = None) -> Run:
        """One worker."""
        return killed_worker.run(
            Order(
                start=self.on.start,
                journal=str(self.on.journal),
                request=None if resume else self.request,
                users=(),
                deadline_seconds=60,
            ),
            moment,
        )

    def history(self) -> list[ChangeRecord]:
        """What the journal has of the past; nothing may be open."""
        with Journal(self.on.journal) as journal:
            assert journal.content().unended == ()
            return list(journal.content().ended)

    def ended(self) -> Outcome | None:
        """End what is open, and check where it ended; None where nothing had begun."""
        assert not self.run(resume=True).killed
        past = self.history()
        assert len(past) <= 1
        outcome = past[0].outcome if past else None
        found, gpu = self.on.found(), self.on.simulation.state.gpus[BUS_ID]
        if outcome is Outcome.APPLIED:
            assert as_wanted(found) == as_asked(self.wanted)
            assert (gpu.mig, gpu.mig_pending) == (True, True)
        else:
            assert outcome in (Outcome.ROLLED_BACK, None)
            assert shape(found) == shape(self.before)
            assert (gpu.mig, gpu.mig_pending) == (self.mig, self.mig)
        busy = {one for one in self.before if one[:2] == BUSY}
        assert busy <= found  # with its births: not even made anew
        return outcome


def shape(found: Found) -> Shape:
    return frozenset(
        (profile, start, tuple(slices for slices, _ in compute))
        for profile, start, _, compute in found
    )


def as_wanted(found: Found) -> list[tuple[str, tuple[int, ...]]]:
    return sorted((profile, compute) for profile, _, compute in shape(found))


def as_asked(layout: GpuLayout) -> list[tuple[str, tuple[int, ...]]]:
    return sorted((one.profile, one.compute) for one in layout.instances)


def busy_a100(folder: Path) -> Place:
    """Five instances; a running process, this one, uses the last of them."""
    on = node(folder, *FIVE)
    on.simulation.use_by(os.getpid(), BUS_ID, gpu_instance_id=13, compute_instance_id=0)
    return Place.of(on, layout_from_counts({"3g.20gb": 1, "1g.5gb": 2}))


def failing_a100(folder: Path) -> Place:
    """The second create fails for good, so the change goes back."""
    place = busy_a100(folder)
    place.on.simulation.fault(
        Return(code=999), "nvmlGpuInstanceCreateComputeInstanceWithPlacement", times=1
    )
    place.first = place.on.simulation.state
    return place


def h100_without_mig(folder: Path) -> Place:
    """The mode changes too."""
    on = node(folder, model=H100, mig=False)
    return Place.of(on, layout_from_counts({"3g.40gb": 2}), mig=False)


PLACES: dict[str, Callable[[Path], Place]] = {
    "forward": busy_a100,
    "back": failing_a100,
    "mode": h100_without_mig,
}


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return PLACES[request.param](tmp_path)


def killed_once(place: Place, moments: Iterator[int] | range) -> list[Outcome | None]:
    """The outcome after a kill at each of these moments."""
    outcomes = []
    for moment in moments:
        place.anew()
        assert place.run(moment=moment).killed, moment
        outcomes.append(place.ended())
    return outcomes


def effects(place: Place) -> tuple[str, ...]:
    """Of a change that nobody kills."""
    place.anew()
    found = place.run()
    assert found.result is not None
    assert place.ended() is found.result.outcome
    return found.effects


def test_killed_at_some_effects_a_change_ends_in_one_of_two_layouts(place: Place) -> None:
    """Some moments of each kind of change, among them the first and the last."""
    names = effects(place)
    last = 2 * len(names) - 1
    some = sorted({0, last, *random.Random(SEED).sample(range(1, last), 2)})  # noqa: S311 - repeatable, not secret

    outcomes = killed_once(place, iter(some))

    assert set(names) & set(CALLS)
    assert outcomes[0] is None
    assert outcomes[-1] is not None


@pytest.mark.long
def test_killed_at_every_effect_a_change_ends_in_one_of_two_layouts(place: Place) -> None:
    """Before and after every call that changes a GPU or the journal."""
    names = effects(place)

    outcomes = killed_once(place, range(2 * len(names)))

    print(f"\n{len(names)} effects, {len(outcomes)} kills: {counts(outcomes)}")  # noqa: T201 - figures for people
    assert Outcome.STUCK not in outcomes


@pytest.mark.long
def test_killed_twice_a_change_ends_in_one_of_two_layouts(place: Place) -> None:
    """The second time while the first is mended; seeded pairs."""
    names = effects(place)
    chance, outcomes, seconds = random.Random(SEED), list[Outcome | None](), 0  # noqa: S311 - as above
    for _ in range(60 * int(os.environ.get("SCALE", "1"))):
        place.anew()
        assert place.run(moment=chance.randrange(2 * len(names))).killed
        seconds += place.run(resume=True, moment=chance.randrange(2 * len(names))).killed
        outcomes.append(place.ended())

    print(f"\n{len(outcomes)} pairs, {seconds} with a second kill: {counts(outcomes)}")  # noqa: T201 - figures for people
    assert seconds > len(outcomes) / 4


def counts(outcomes: list[Outcome | None]) -> str:
    """For people."""
    kinds = sorted({str(one) for one in outcomes})
    return ", ".join(f"{kind} {sum(str(one) == kind for one in outcomes)}" for kind in kinds)
