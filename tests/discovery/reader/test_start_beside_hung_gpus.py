# SPDX-License-Identifier: Apache-2.0
"""A start next to GPUs that hang at their first touch: the others are read before any deadline.

Deadlines are longer than any test may take, so whatever waits for one fails here. What the readers
touch is judged by the simulator, which counts its clients and calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from discovery.known_node_gpus import KnownGpus
from discovery.mig_state import MigGpu, UnreadMigGpu
from discovery.model import GpuState, Reason
from discovery.reader.ending import MOST_STUCK
from discovery.reader.mig_reading import read_mig
from simulator.simulation import Delay, Hang, Simulation
from tests.discovery.reader.reader_bench import SOON, ReaderBench, until

OPEN = "nvmlDeviceGetHandleByPciBusId*"
"""The first call that names a GPU."""
LONG_SECONDS = 600.0
SLOW_SECONDS = 3.0
"""An initialisation without persistence mode."""

Benches = Callable[..., ReaderBench]


@pytest.fixture
def on(tmp_path: Path) -> Iterator[Benches]:
    """Makes a reader on a machine of which GPUs hang before it is read for the first time."""
    made: list[ReaderBench] = []

    def make(
        machine: str,
        hung: Sequence[int],
        *,
        call: str = OPEN,
        known_gpus: KnownGpus | None = None,
        init_seconds: float = LONG_SECONDS,
    ) -> ReaderBench:
        simulation = Simulation.create(machine, tmp_path)
        hang(simulation, hung, call)
        made.append(
            ReaderBench(
                simulation,
                deadline_seconds=min(SOON, init_seconds),
                init_seconds=init_seconds,
                leaves_slow_gpus=True,
                known_gpus=known_gpus,
            )
        )
        return made[-1]

    yield make
    for bench in made:
        bench.close()


def hang(simulation: Simulation, places: Sequence[int], call: str) -> list[int]:
    """Let this call hang on these GPUs, deaf to SIGTERM; the numbers that end it."""
    bus_ids = tuple(simulation.state.gpus)
    return [
        simulation.fault(Hang(uninterruptible=True), call, bus_id=bus_ids[place])
        for place in places
    ]


def states(count: int, hung: Sequence[int], of_hung: str = "initialising") -> list[str]:
    return [of_hung if place in hung else "present" for place in range(count)]


def reaches(bench: ReaderBench, expected: list[str]) -> bool:
    """Whether a discovery gives these states in the end, since a busy machine makes GPUs slow."""
    until(lambda: bench.states() == expected)
    return True


@pytest.mark.parametrize(
    ("machine", "hung"),
    [
        ("dgx-a100", (0,)),
        ("dgx-a100-mig-mixed", (3, 7)),
        ("dgx-a100", (0, 1, 2, 3)),
        ("dgx-a100-mig-mixed", (1, 2, 3, 4, 5, 6, 7)),
    ],
)
def test_the_other_gpus_are_read_before_any_deadline(
    on: Benches, machine: str, hung: tuple[int, ...]
) -> None:
    bench = on(machine, hung)
    well = [bench.bus_ids[place] for place in range(8) if place not in hung]
    assert reaches(bench, states(8, hung))
    assert [sample.bus_id for sample in bench.reader.sample()] == well
    health = bench.reader.health()
    assert (health.hangs, health.quarantined) == (0, ())
    assert health.awaited == {bench.bus_ids[place] for place in hung}
    until(lambda: len(bench.children()) == len(hung) + 1)


def test_layouts_of_the_other_gpus_are_read_before_any_deadline(on: Benches) -> None:
    hung = (1, 5)
    bench = on("dgx-a100-mig-mixed", hung)
    readings = read_mig(bench.reader)
    kinds = [UnreadMigGpu if place in hung else MigGpu for place in range(8)]
    assert [type(reading) for reading in readings] == kinds
    gaps = {reading.gaps[0].reason for reading in readings if isinstance(reading, UnreadMigGpu)}
    assert gaps == {Reason.PENDING}


def test_gpus_that_hang_in_their_readings_alone_delay_no_reading_of_the_others(
    on: Benches,
) -> None:
    bench = on("hgx-h100", (0, 2), call="nvmlDeviceGetPowerUsage")
    well = [bench.bus_ids[place] for place in range(8) if place not in (0, 2)]
    until(lambda: [sample.bus_id for sample in bench.reader.sample()] == well)
    assert bench.reader.health().hangs == 0


def test_eight_of_sixteen_that_hang_leave_the_others_and_one_child_each(on: Benches) -> None:
    hung = range(MOST_STUCK)
    bench = on("hgx-16", hung)
    assert reaches(bench, states(16, hung))
    until(lambda: len(bench.children()) == MOST_STUCK + 1)


def test_a_child_that_waits_for_one_gpu_goes_on_to_no_other(on: Benches) -> None:
    """Else two would be stuck on the second GPU."""
    bench = on("t4", (1, 2))
    (first, _second) = bench.faults
    bench.simulation.clear(first)
    until(lambda: bench.bus_ids[1] not in bench.reader.health().awaited)
    assert reaches(bench, states(4, (2,)))
    until(lambda: len(bench.children()) == 2)
    until(lambda: bench.simulation.clients() == 2)  # one that was left ends by itself


def test_a_gpu_that_answers_late_is_read_as_soon_as_it_does_and_the_others_wait_on(
    on: Benches,
) -> None:
    news: list[frozenset[str]] = []
    bench = on("t4", (0, 2))
    bench.on_news = lambda: news.append(bench.reader.health().awaited)
    bench.simulation.clear(bench.faults[1])
    until(lambda: frozenset({bench.bus_ids[0]}) in news)
    assert reaches(bench, states(4, (0,)))


def test_a_gpu_that_is_waited_for_and_misses_its_deadline_hangs(on: Benches) -> None:
    bench = on("t4", (3,), init_seconds=SLOW_SECONDS)
    until(lambda: bench.reader.health().quarantined == (bench.bus_ids[3],))
    assert reaches(bench, states(4, (3,), "hung"))
    assert bench.reader.health().stuck == 1


def test_gpus_that_have_answered_stay_open_until_the_working_reader_has_them_open(
    on: Benches,
) -> None:
    """Without persistence mode a process that is alone on a GPU has to initialise it."""
    bench = on("t4", range(4))
    bench.simulation.clear()
    until(lambda: not bench.reader.health().awaited)
    assert len(bench.children()) == 5
    assert reaches(bench, ["present"] * 4)
    until(lambda: len(bench.children()) == 1)
    assert bench.reader.health().hangs == 0


def test_a_gpu_that_no_reader_opens_is_not_kept_open_for_ever(on: Benches) -> None:
    bench = on("t4", (0,))
    bench.simulation.clear()
    until(lambda: not bench.reader.health().awaited)
    assert len(bench.children()) == 2
    bench.now += LONG_SECONDS
    bench.reader.health()
    until(lambda: len(bench.children()) == 1)


def test_without_a_thread_that_waits_all_wait_for_the_slow_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from base import threads
    from discovery.reader import device_reader

    class NoThreads:
        NoThread = threads.NoThread

        @staticmethod
        def started(*_: object) -> None:
            raise threads.NoThread("none")

    monkeypatch.setattr(device_reader, "threads", NoThreads)
    simulation = Simulation.create("t4", tmp_path)
    first = next(iter(simulation.state.gpus))
    simulation.fault(Delay(seconds=SLOW_SECONDS), OPEN, bus_id=first, times=1)
    bench = ReaderBench(
        simulation, deadline_seconds=SOON, init_seconds=LONG_SECONDS, leaves_slow_gpus=True
    )
    try:
        assert bench.states() == ["present"] * 4
        assert len(bench.children()) == 1
    finally:
        bench.close()


def test_gpus_that_hung_before_a_restart_are_probed_after_the_others_have_answered(
    on: Benches,
) -> None:
    hung = (0, 4)
    known = KnownGpus()
    before = on("dgx-a100", hung, known_gpus=known, init_seconds=SLOW_SECONDS)
    until(lambda: len(before.reader.health().quarantined) == 2)
    before.now += SOON
    before.probe()  # their calls have not returned: a second miss
    before.states()
    record = known.record
    assert record.hung == {before.bus_ids[place] for place in hung}
    before.reader.close()

    after = KnownGpus()
    after.restore(record, 0.0)
    bench = ReaderBench(
        before.simulation,
        deadline_seconds=SOON,
        init_seconds=LONG_SECONDS,
        leaves_slow_gpus=True,
        known_gpus=after,
    )
    try:
        assert reaches(bench, states(8, hung, "hung"))
        assert bench.reader.health().missed_once == frozenset()
        bench.simulation.clear()
        assert set(bench.probe()) == record.hung  # due at once
        assert reaches(bench, ["present"] * 8)
        assert after.record.hung == frozenset()
    finally:
        bench.close()


def test_a_release_ends_children_that_wait_for_a_gpu_too(on: Benches) -> None:
    bench = on("t4", (0, 1))
    assert bench.reader.release()
    until(lambda: bench.children() == [])
    bench.simulation.clear()
    bench.reader.resume()
    until(lambda: not bench.reader.health().awaited)
    assert reaches(bench, ["present"] * 4)


def test_a_gpu_is_shown_with_what_is_known_of_it_while_it_is_waited_for(on: Benches) -> None:
    bench = on("t4", ())
    uuids = [gpu.uuid for gpu in bench.reader.discover().gpus]
    hang(bench.simulation, (1,), OPEN)
    (child,) = bench.children()
    child.kill()
    until(lambda: bench.children() == [])
    gpu = bench.reader.discover().gpus[1]
    assert (gpu.state, gpu.uuid, gpu.index) == (GpuState.INITIALISING, uuids[1], 1)
