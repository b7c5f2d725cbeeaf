# SPDX-License-Identifier: Apache-2.0
"""A few changes of modes and of compute instances in parts: what each arm makes of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from simulator.simulation import Simulation
from simulator.state.edits import with_gpu_changed
from simulator.state.machine_state import GpuInstance
from tests.bench.mig_changes.arms import OURS, PARTED, SKIPPING
from tests.bench.mig_changes.compute_changes import MODELS, ComputeChange, compute_changes, shared
from tests.bench.mig_changes.durations import time_row
from tests.bench.mig_changes.gpu_start import GpuStart, InstanceStart
from tests.bench.mig_changes.mode_changes import AMPERE, GPUS, HOPPER, ModeChange, mode_changes
from tests.bench.mig_changes.mode_sections import (
    ModeResult,
    compute_results,
    mode_results,
    modes_section,
    parts_section,
)
from tests.bench.mig_changes.simulated_gpus import SimulatedGpus
from tests.conftest import SCALE
from tests.controlplane.builds import binaries
from tests.controlplane.families import NVIDIA
from tests.foreign.parted_node import MODELS as GPU_MODELS
from tests.foreign.parted_node import with_one
from tests.mig import exhaustive_plans as exhaustive

FEW = 12 * SCALE
HALVES = (
    InstanceStart(
        profile="3g.20gb", start=0, compute=((0, 1), (1, 1), (2, 1)), busy=frozenset({1})
    ),
    InstanceStart(profile="3g.20gb", start=4, compute=((0, 3),)),
)


# compute instances in parts


@pytest.mark.parametrize("model", MODELS)
def test_ours_destroys_the_fewest_of_the_ways_on_as_few_instances(model: str) -> None:
    """Programs first, then their neighbours, then all; the layout is reached each time."""
    played = compute_results(model, 2 * FEW, None)

    assert len(played) == 2 * FEW // len(MODELS)
    for change, found in played:
        ours, least = found[OURS], least_on_few(change)
        assert ours.reached
        assert ours.at_once == (least.disturbed == 0)
        cost = (ours.disturbed, ours.beside, ours.destroyed + ours.parts_destroyed)
        assert cost == least[:3], change


def least_on_few(change: ComputeChange) -> exhaustive.Cost:
    """The least over the ways to share as few GPU instances as these devices need."""
    ways = list(shared(change.devices))
    few = min(map(len, ways))
    [start] = change.starts
    there = tuple(exhaustive.Placed(i.profile, i.start, i.compute) for i in start.instances)
    users: dict[tuple[int, int | None], frozenset[str]] = {
        (i.start, at): frozenset({f"{i.start}/{at}"}) for i in start.instances for at in i.busy
    }
    costs = (
        exhaustive.least(
            [exhaustive.Gpu(change.model, there, users, tuple(exhaustive.Desired(*s) for s in way))]
        )
        for way in ways
        if len(way) == few
    )
    return min(filter(None, costs))


def test_devices_can_share_instances_in_more_than_one_way() -> None:
    """Two of one slice: on one GPU instance, or each on its own."""
    together, apart = ("2g.10gb", (1, 1)), ("2g.10gb", (1,))

    assert set(shared(Counter({"1c.2g.10gb": 2}))) == {(together,), (apart, apart)}
    assert set(shared(Counter({"2g.10gb": 1, "1c.2g.10gb": 1}))) == {(("2g.10gb", (2,)), apart)}


def test_the_drawn_parts_are_of_all_kinds() -> None:
    """Idle ones and busy ones; some that disturb somebody, and some that spare a neighbour."""
    drawn = compute_changes(90)

    assert drawn[:20] == compute_changes(20)
    assert Counter(one.model for one in drawn) == dict.fromkeys(MODELS, 30)
    costs = [one.least for one in drawn if one.least is not None]
    assert any(cost.disturbed for cost in costs)
    assert any(cost.beside for cost in costs)
    assert any(one.starts[0].programs and one.least and not one.least[0] for one in drawn)
    assert len(parts_section(compute_results("a30", 3, None)).rows) > 5


# modes


def check_reached(played: Sequence[ModeResult]) -> None:
    """Every node, with the least; nothing else is touched."""
    assert len(played) == FEW // 2
    for change, found in played:
        ours = found[OURS]
        assert ours.reached
        assert not ours.half_done
        assert (ours.disturbed, ours.destroyed) == change.least, change
        assert (ours.elsewhere, ours.waiting) == (0, 0)


@pytest.mark.parametrize("model", AMPERE)
def test_ours_resets_the_gpus_that_switch_and_no_other(model: str) -> None:
    played = mode_results(model, AMPERE, "resets", FEW, None)

    check_reached(played)
    for change, found in played:
        assert found[OURS].was_reset == change.switched


@pytest.mark.parametrize("model", HOPPER)
def test_no_gpu_is_reset_that_needs_none(model: str) -> None:
    played = mode_results(model, HOPPER, "resets", FEW, None)

    check_reached(played)
    assert not any(found[OURS].was_reset for _, found in played)


@pytest.mark.parametrize("model", AMPERE)
def test_ours_leaves_no_mode_waiting_where_the_driver_does_not_reset(model: str) -> None:
    """It does not get there, and the page says so."""
    for _, found in mode_results(model, AMPERE, "reset-required", FEW, None):
        ours = found[OURS]
        assert not ours.reached
        assert not ours.untrue
        assert (ours.was_reset, ours.elsewhere, ours.waiting) == (frozenset(), 0, 0)


@pytest.mark.cluster
@pytest.mark.timeout(300)
def test_mig_parted_gets_there_by_a_reset_of_the_whole_node() -> None:
    """What the page says of it, and of its way without a reset."""
    played = mode_results(AMPERE[0], AMPERE, "reset-required", 6, binaries(NVIDIA))

    assert len(played) == 3
    for _, found in played:
        assert found[PARTED].reached
        assert found[PARTED].was_reset == frozenset(range(GPUS))
        assert (found[SKIPPING].reached, found[SKIPPING].was_reset) == (False, frozenset())
        assert found[SKIPPING].waiting
    assert len(modes_section("", "", played).rows[0]) == 5


def test_the_drawn_nodes_are_of_all_kinds() -> None:
    """Each switches a mode; the same nodes whatever the driver answers."""
    drawn = mode_changes(60, AMPERE, "resets")

    again = mode_changes(20, AMPERE, "reset-required")
    assert [(one.starts, one.desired) for one in drawn[:20]] == [
        (one.starts, one.desired) for one in again
    ]
    assert all(one.switched for one in drawn)
    ways = {one.desired[index] is not None for one in drawn for index in one.switched}
    assert ways == {True, False}
    assert any(one.least[0] for one in drawn)
    unnamed = [gpu for one in drawn for gpu in _unnamed(one)]
    assert any(gpu.programs for gpu in unnamed)
    assert any(gpu.instances for gpu in unnamed)


def _unnamed(change: ModeChange) -> list[GpuStart]:
    return [gpu for index, gpu in enumerate(change.starts) if index not in change.desired]


# time


def test_times_are_medians_and_a_program_that_failed_once_has_none() -> None:
    """The ratio is that of the rounds, and not of the medians."""
    rounds = [{OURS: ours, PARTED: theirs} for ours, theirs in ((2, 1), (4, 4), (9, 3))]

    assert time_row("x", rounds) == ("x", "4.0 s", "3.0 s", "2.0")
    assert time_row("x", [*rounds, {OURS: None, PARTED: 3}]) == ("x", "not reached", "3.0 s", "")


# judges


@pytest.fixture
def gpus(tmp_path: Path) -> SimulatedGpus:
    """One A100 with two halves; a program runs on one of three parts of the first."""
    simulation = Simulation.create(with_one("a100-sxm4-40gb"), tmp_path, models=GPU_MODELS)
    made = SimulatedGpus(simulation)
    made.put((GpuStart(instances=HALVES),))
    return made


def test_nothing_is_found_where_nothing_was_done(gpus: SimulatedGpus) -> None:
    assert gpus.has({0: Counter({"1c.3g.20gb": 3, "3g.20gb": 1})})
    assert not gpus.has({0: Counter({"1c.3g.20gb": 3})})
    assert not gpus.has({0: None})
    assert (gpus.destroyed(), gpus.beside(), gpus.waiting()) == ((0, 0), 0, 0)
    assert gpus.was_reset() == frozenset()
    assert len(gpus.pids()) == 1


def test_instances_that_are_gone_are_counted_also_where_equal_ones_were_made(
    gpus: SimulatedGpus,
) -> None:
    """The second half is another one, and a neighbour of the program is gone."""
    [bus_id] = gpus.bus_ids
    first, second = gpus.simulation.state.gpus[bus_id].instances
    _edit(gpus, instances=(_with_parts(first, 2), _born_again(second)))

    assert gpus.destroyed() == (1, 2)
    assert gpus.destroyed(others_than={0}) == (0, 0)
    assert gpus.beside() == 1


def test_a_reset_and_a_mode_that_waits_are_seen(gpus: SimulatedGpus) -> None:
    [bus_id] = gpus.bus_ids
    gpus.end(gpus.pids())
    gpus.simulation.reset_gpu(bus_id)
    assert gpus.was_reset() == {0}
    assert gpus.destroyed() == (2, 4)

    _edit(gpus, mig_pending=False)
    assert gpus.waiting() == 1
    assert not gpus.has({0: None})


def _with_parts(instance: GpuInstance, count: int) -> GpuInstance:
    return replace(instance, compute=instance.compute[:count])


def _born_again(instance: GpuInstance) -> GpuInstance:
    """An equal one that was made later."""
    compute = tuple(replace(part, birth=part.birth + 50) for part in instance.compute)
    return replace(instance, birth=instance.birth + 50, compute=compute)


def _edit(gpus: SimulatedGpus, **values: object) -> None:
    gpus.simulation.edit(with_gpu_changed(gpus.bus_ids[0], **values))
