# SPDX-License-Identifier: Apache-2.0
"""A driver or GPU that is initialised has more time than one that has answered before."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from discovery.driver_errors import ReaderStuck
from discovery.model import Reason
from discovery.reader.ending import MOST_STUCK
from simulator.simulation import Delay, Hang, Simulation
from tests.discovery.reader.reader_bench import DEADLINE_SECONDS, SOON, ReaderBench, until

SLOW_SECONDS = 2 * DEADLINE_SECONDS
"""An initialisation takes longer than any other call may."""
OPEN = "nvmlDeviceGetHandleByPciBusId*"
"""The call that initialises a GPU."""

Benches = Callable[..., ReaderBench]


@pytest.fixture
def on(tmp_path: Path) -> Iterator[Benches]:
    """Makes a reader on a machine of the catalogue; ``prepare`` disturbs the machine before."""
    made: list[ReaderBench] = []

    def make(
        machine: str,
        prepare: Callable[[Simulation], object] = lambda _: None,
        init_seconds: float = SOON,
    ) -> ReaderBench:
        simulation = Simulation.create(machine, tmp_path)
        prepare(simulation)
        made.append(ReaderBench(simulation, init_seconds=init_seconds))
        return made[-1]

    yield make
    for bench in made:
        bench.close()


def why(bench: ReaderBench) -> list[str]:
    """Of each GPU, why it does not answer."""
    gaps = (gpu.gap("state") for gpu in bench.reader.discover().gpus)
    return ["" if gap is None else gap.detail for gap in gaps]


IN_TIME = f"no answer within {DEADLINE_SECONDS:g} s"


def test_a_slow_nvml_init_is_waited_for_by_each_reader(on: Benches) -> None:
    bench = on("a30-pair", lambda machine: machine.fault(Delay(seconds=SLOW_SECONDS), "nvmlInit*"))
    assert bench.states() == ["present", "present"]
    (child,) = bench.children()
    child.kill()
    until(lambda: child not in bench.children())
    assert len(bench.reader.sample()) == 2
    assert bench.reader.health().hangs == 0


def test_gpus_that_are_slow_at_their_first_answer_are_waited_for(on: Benches) -> None:
    slow = Delay(seconds=SLOW_SECONDS)
    bench = on("a30-pair", lambda machine: machine.fault(slow, OPEN, times=2))
    assert bench.states() == ["present", "present"]
    assert bench.reader.health().hangs == 0


def test_what_initialises_is_shown_meanwhile(on: Benches) -> None:
    bench = on("a30-pair")
    bench.simulation.fault(Delay(seconds=SLOW_SECONDS), "nvmlInit*")
    bench.simulation.fault(Delay(seconds=SLOW_SECONDS), OPEN, bus_id=bench.bus_ids[1])
    (child,) = bench.children()
    child.kill()
    shown: list[str | None] = []
    bench.on_news = lambda: shown.append(bench.reader.health().initialising)
    until(lambda: child not in bench.children())
    bench.reader.sample()
    assert shown == ["driver", bench.bus_ids[1]]
    assert bench.reader.health().initialising is None


def test_a_gpu_that_has_answered_before_has_the_short_deadline(on: Benches) -> None:
    bench = on("a30-pair")
    bench.simulation.fault(Hang(), "nvmlDeviceGetUUID", bus_id=bench.bus_ids[0])
    assert why(bench) == [IN_TIME, ""]


def test_a_gpu_that_a_stuck_reader_has_open_has_the_short_deadline(on: Benches) -> None:
    """The driver keeps it initialised: so a second hang shows as soon as the first."""
    bench = on("t4")
    for place in (0, 2):
        bench.simulation.fault(
            Hang(uninterruptible=True), "nvmlDeviceGetUUID", bus_id=bench.bus_ids[place]
        )
    assert why(bench) == [IN_TIME, "", IN_TIME, ""]


def test_a_driver_that_a_stuck_reader_has_open_has_the_short_deadline(on: Benches) -> None:
    bench = on("t4")
    bench.simulation.fault(Hang(uninterruptible=True), "nvmlDeviceGetUUID", bus_id=bench.bus_ids[0])
    bench.simulation.fault(Hang(uninterruptible=True), "nvmlInit*")
    with pytest.raises(ReaderStuck, match=IN_TIME):
        bench.reader.discover()


def test_a_gpu_that_nobody_has_open_any_more_has_the_long_deadline(on: Benches) -> None:
    """It may have to be initialised again: the reader that hung has ended."""
    bench = on("t4", init_seconds=SLOW_SECONDS)
    for place in (0, 2):
        bench.simulation.fault(Hang(), "nvmlDeviceGetUUID", bus_id=bench.bus_ids[place])
    assert why(bench) == [IN_TIME, "", f"no answer within {SLOW_SECONDS:g} s", ""]


def test_a_reader_that_ends_while_another_relied_on_it_makes_the_deadline_long(
    on: Benches,
) -> None:
    bench = on("t4")
    fault = bench.simulation.fault(
        Hang(uninterruptible=True), "nvmlDeviceGetUUID", bus_id=bench.bus_ids[0]
    )
    bench.simulation.fault(Delay(seconds=SLOW_SECONDS), OPEN, bus_id=bench.bus_ids[1], times=1)
    bench.on_news = lambda: bench.simulation.clear(fault)  # once the other one is stuck
    assert why(bench)[1:] == ["", "", ""]


def test_a_probe_waits_for_a_gpu_to_be_initialised_again(on: Benches) -> None:
    bench = on("a30-pair")
    fault = bench.simulation.fault(Hang(), "nvmlDeviceGetUUID", bus_id=bench.bus_ids[0])
    assert bench.states() == ["hung", "present"]
    bench.simulation.clear(fault)
    bench.simulation.fault(Delay(seconds=SLOW_SECONDS), OPEN, bus_id=bench.bus_ids[0])
    bench.now += SOON
    assert bench.probe() == (bench.bus_ids[0],)


def test_gpus_are_probed_side_by_side(on: Benches) -> None:
    """One that is well again does not wait for the deadlines of those that still hang."""
    bench = on("t4", init_seconds=SLOW_SECONDS)
    faults = [
        bench.simulation.fault(Hang(), "nvmlDeviceGetUUID", bus_id=bus_id)
        for bus_id in bench.bus_ids
    ]
    assert bench.states() == ["hung"] * 4
    for fault in faults[2:]:
        bench.simulation.clear(fault)
    before = len(bench.children())
    bench.now += SOON
    probes = bench.reader.probe()
    assert next(iter(probes)) in bench.bus_ids[2:]
    assert len(bench.children()) >= before + 2  # the two that hang are being tried
    assert len(list(probes)) == 1


def test_no_more_gpus_are_probed_at_once_than_may_hang(on: Benches) -> None:
    bench = on("hgx-16")
    for bus_id in bench.bus_ids[: MOST_STUCK + 1]:
        bench.simulation.fault(Hang(uninterruptible=True), "nvmlDeviceGetUUID", bus_id=bus_id)
    for bus_id in bench.bus_ids[: MOST_STUCK + 1]:
        bench.reader._children.quarantine.isolate(bus_id, Reason.HUNG, "stalled", bench.now)
    bench.now += SOON
    probing = threading.Thread(target=bench.probe)
    probing.start()
    until(lambda: bench.simulation.clients() == MOST_STUCK + 1)
    probing.join(SOON + SOON)
    assert len(bench.children()) == MOST_STUCK + 1


def test_a_first_missed_deadline_is_confirmed_by_a_probe_that_fails(on: Benches) -> None:
    bench = on("a30-pair", init_seconds=DEADLINE_SECONDS)
    bench.simulation.fault(Hang(), "nvmlDeviceGetUUID", bus_id=bench.bus_ids[0])
    assert bench.states() == ["hung", "present"]
    assert bench.reader.health().missed_once == {bench.bus_ids[0]}
    assert bench.probe() == ()  # none is due yet
    assert bench.reader.health().missed_once == {bench.bus_ids[0]}
    bench.now += SOON
    assert bench.probe() == ()
    assert bench.reader.health().missed_once == set()


def test_a_first_missed_deadline_is_confirmed_by_a_call_that_does_not_return(on: Benches) -> None:
    bench = on("a30-pair")
    bench.simulation.fault(Hang(uninterruptible=True), "nvmlDeviceGetUUID", bus_id=bench.bus_ids[0])
    assert bench.states() == ["hung", "present"]
    starts = bench.reader.health().starts
    assert bench.reader.health().missed_once == {bench.bus_ids[0]}
    bench.now += SOON
    assert bench.probe() == ()
    assert bench.reader.health().missed_once == set()
    assert bench.reader.health().starts == starts
