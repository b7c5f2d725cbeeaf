# SPDX-License-Identifier: Apache-2.0
"""Several GPUs of a simulated machine hang at once: each costs itself alone, up to a bound."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from discovery.driver_errors import ReaderStuck
from discovery.reader.ending import MOST_STUCK
from simulator.simulation import Hang, Return, Simulation
from tests.discovery.reader.reader_bench import ReaderBench, until

BACK_SECONDS = 60.0
"""The promise: a GPU whose hang has ended is read again within this time."""
WATCH_SECONDS = 5.0
"""How often the agent probes while a GPU is quarantined."""

Benches = Callable[[str], ReaderBench]


@pytest.fixture
def on(tmp_path: Path) -> Iterator[Benches]:
    """Makes a reader on a machine of the catalogue, all of whose GPUs have answered."""
    made: list[ReaderBench] = []

    def make(machine: str) -> ReaderBench:
        made.append(ReaderBench(Simulation.create(machine, tmp_path)))
        return made[-1]

    yield make
    for bench in made:
        bench.close()


def hang(
    bench: ReaderBench, places: Sequence[int], entry: str = "nvmlDeviceGetUUID", after: int = 0
) -> dict[int, int]:
    """Let calls on these GPUs hang, deaf to SIGTERM; place to the number that ends its hang."""
    return {
        place: bench.simulation.fault(
            Hang(uninterruptible=True), entry, bus_id=bench.bus_ids[place], after=after
        )
        for place in places
    }


def states(count: int, hung: Sequence[int]) -> list[str]:
    """What a discovery of that many GPUs shows while these hang."""
    return ["hung" if place in hung else "present" for place in range(count)]


def test_two_gpus_that_hang_at_the_same_call_cost_themselves_alone(on: Benches) -> None:
    bench = on("t4")
    hang(bench, (0, 1))
    for _ in range(2):
        assert bench.states() == states(4, (0, 1))
    assert [sample.bus_id for sample in bench.reader.sample()] == list(bench.bus_ids[2:])
    assert bench.reader.health().stuck == 2


def test_a_gpu_that_hangs_in_the_discovery_that_another_broke_costs_itself_alone(
    on: Benches,
) -> None:
    bench = on("t4")
    hang(bench, (1,))
    hang(bench, (0,), after=1)  # the first child reads it, the second hangs
    for _ in range(2):
        assert bench.states() == states(4, (0, 1))


def test_three_gpus_of_eight_that_hang_while_sampled_leave_the_readings_of_five(
    on: Benches,
) -> None:
    bench = on("hgx-h100")
    hang(bench, (1, 4, 7), "nvmlDeviceGetPowerUsage")
    left = [bench.bus_ids[place] for place in (0, 2, 3, 5, 6)]
    for _ in range(2):
        assert [sample.bus_id for sample in bench.reader.sample()] == left
    assert bench.states() == states(8, (1, 4, 7))


def test_gpus_that_hang_from_the_first_discovery_on_hide_no_other(tmp_path: Path) -> None:
    simulation = Simulation.create("hgx-h100", tmp_path)
    hung = range(2, 7)
    bus_ids = tuple(simulation.state.gpus)
    for place in hung:
        simulation.fault(Hang(), "nvmlDeviceGetUUID", bus_id=bus_ids[place])
    bench = ReaderBench(simulation)
    assert bench.states() == states(8, hung)
    bench.close()


def test_up_to_eight_gpus_that_hang_leave_the_others_and_the_ninth_ends_all_reading(
    on: Benches,
) -> None:
    """What a ninth would cost is not known, so no process is left to meet it."""
    bench = on("hgx-16")
    faults = hang(bench, range(MOST_STUCK))
    assert bench.states() == states(16, range(MOST_STUCK))
    assert len(bench.reader.sample()) == 16 - MOST_STUCK

    faults |= hang(bench, (MOST_STUCK,))
    for _ in range(2):
        with pytest.raises(ReaderStuck, match="9 device readers"):
            bench.reader.discover()
    with pytest.raises(ReaderStuck):
        bench.reader.sample()
    bench.now += BACK_SECONDS
    assert bench.probe() == ()
    assert len(bench.children()) == MOST_STUCK + 1

    bench.simulation.clear(faults[0])
    until(lambda: bench.reader.health().stuck == MOST_STUCK)
    assert bench.states() == states(16, range(MOST_STUCK + 1))


def test_one_gpu_that_ends_its_hang_comes_back_while_another_hangs_on(on: Benches) -> None:
    bench = on("t4")
    faults = hang(bench, (0, 2))
    assert bench.states() == states(4, (0, 2))
    bench.simulation.clear(faults[0])
    until(lambda: bench.reader.health().stuck == 1)
    bench.now += BACK_SECONDS
    assert bench.probe() == (bench.bus_ids[0],)
    assert bench.states() == states(4, (2,))


@pytest.mark.parametrize("tries", [0, 6], ids=["at-once", "after-a-while"])
def test_a_gpu_that_stalled_is_back_in_a_minute_while_another_hangs_for_good(
    on: Benches, tries: int
) -> None:
    """Its own calls end at SIGTERM; however many probes hung before, the next is soon enough."""
    bench = on("t4")
    hang(bench, (3,))
    bench.states()
    stall = bench.simulation.fault(Hang(), "nvmlDeviceGetUUID", bus_id=bench.bus_ids[1])
    assert bench.states() == states(4, (1, 3))
    for _ in range(tries):
        bench.now += 30.0
        assert bench.probe() == ()
    bench.simulation.clear(stall)
    ended = bench.now
    while bench.probe() == ():
        bench.now += WATCH_SECONDS
        assert bench.now - ended < BACK_SECONDS
    assert bench.states() == states(4, (3,))


def test_a_lost_gpu_is_looked_for_in_a_new_session_while_another_hangs_for_good(
    on: Benches,
) -> None:
    bench = on("t4")
    hang(bench, (3,))
    bench.simulation.fault(Return(code=15), bus_id=bench.bus_ids[0])
    assert bench.states() == ["lost", "present", "present", "hung"]
    before = bench.reader.health().starts
    bench.states()
    assert bench.reader.health().starts == before + 1


def test_a_gpu_has_one_stuck_child_and_is_not_probed_before_that_has_ended(on: Benches) -> None:
    bench = on("t4")
    hang(bench, (0, 1))
    bench.states()
    before = bench.reader.health().starts
    for _ in range(3):
        bench.now += 30.0
        assert bench.probe() == ()
    assert bench.reader.health().starts == before
    assert len(bench.children()) == 3


def test_a_driver_that_hangs_as_a_whole_after_a_gpu_blames_no_other_and_gets_no_child(
    on: Benches,
) -> None:
    bench = on("t4")
    hang(bench, (0,))
    init = bench.simulation.fault(Hang(uninterruptible=True), "nvmlInit*")
    for _ in range(2):
        with pytest.raises(ReaderStuck, match="driver"):
            bench.reader.discover()
    bench.now += BACK_SECONDS
    assert bench.probe() == ()
    assert len(bench.children()) == 2
    assert bench.reader.health().quarantined == bench.bus_ids[:1]
    bench.simulation.clear(init)
    until(lambda: bench.reader.health().stuck == 1)
    assert bench.states() == states(4, (0,))


def test_a_reader_that_works_is_kept_where_no_other_could_be_started(on: Benches) -> None:
    """One GPU is free again, but the probe of the next has met a driver that hangs as a whole."""
    bench = on("t4")
    for place in (0, 1):
        bench.simulation.fault(Hang(), "nvmlDeviceGetUUID", bus_id=bench.bus_ids[place])
    assert bench.states() == states(4, (0, 1))
    bench.simulation.clear()
    bench.now += WATCH_SECONDS
    # one of the two probes gets through, whichever is first
    init = bench.simulation.fault(Hang(uninterruptible=True), "nvmlInit*", after=1)
    (well,) = bench.probe()
    assert len(bench.reader.sample()) == 2
    bench.simulation.clear(init)
    until(lambda: bench.reader.health().stuck == 0)
    assert bench.states() == states(4, (1 - bench.bus_ids.index(well),))
