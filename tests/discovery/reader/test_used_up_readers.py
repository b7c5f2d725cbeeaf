# SPDX-License-Identifier: Apache-2.0
"""A reader whose library leaks, or that is old, is replaced by one that answers before it ends."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from discovery.reader.own_use import FIRST_TO_END
from discovery.reader.protocol import ReaderLimits, Sample, SampleFrame, XidSeen
from simulator.simulation import Leak, Simulation
from tests.discovery.reader.reader_bench import SOON, ReaderBench, until

MIB = 1 << 20
AGE_SECONDS = 3600.0
READ_OFTEN = "nvmlDeviceGetPowerUsage"

Benches = Callable[..., ReaderBench]


@pytest.fixture
def on(tmp_path: Path) -> Iterator[Benches]:
    made: list[ReaderBench] = []

    def make(limits: ReaderLimits) -> ReaderBench:
        made.append(
            ReaderBench(
                Simulation.create("a30-pair", tmp_path),
                deadline_seconds=SOON,
                init_seconds=SOON,
                age_seconds=AGE_SECONDS,
                limits=limits,
            )
        )
        return made[-1]

    yield make
    for bench in made:
        bench.close()


@pytest.mark.parametrize(
    ("leak", "limits", "why"),
    [
        (Leak(memory_bytes=40 * MIB), ReaderLimits(memory_bytes=128 * MIB), "memory"),
        (Leak(descriptors=100), ReaderLimits(descriptors=256), "descriptors"),
    ],
)
def test_a_library_that_leaks_has_its_reader_replaced_and_every_sample_is_whole(
    on: Benches, leak: Leak, limits: ReaderLimits, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    bench = on(limits)
    (first,) = bench.children()
    bench.simulation.fault(leak, READ_OFTEN, bus_id=bench.bus_ids[0])
    with caplog.at_level(logging.WARNING):
        while first in bench.children():
            assert len(bench.reader.sample()) == 2
            # each by itself: how long a process takes to end is the machine's
            assert all(it.memory_info().rss < 300 * MIB for it in bench.children())
    health = bench.reader.health()
    assert (health.hangs, health.deaths, health.event_losses) == (0, 0, 0)
    assert set(health.replaced) == {why}
    replaced = [it for it in caplog.records if it.message == "device reader replaced"]
    assert replaced[0].__dict__["reader"] == first.pid
    assert replaced[0].__dict__["why"] == why
    assert replaced[0].__dict__["amount"] > replaced[0].__dict__["limit"]


def test_a_reader_reports_its_growth_in_the_middle_of_nothing(on: Benches) -> None:
    """So that the agent need not wait for the next sample."""
    bench = on(ReaderLimits(memory_bytes=128 * MIB))
    news: list[bool] = []
    bench.on_news = lambda: news.append(bench.reader.health().outgrown)
    bench.simulation.fault(Leak(memory_bytes=200 * MIB), READ_OFTEN, times=1)
    bench.reader.sample()
    until(lambda: True in news)
    assert bench.reader.health().outgrown
    bench.reader.sample()
    assert not bench.reader.health().outgrown


def test_a_reader_that_has_reached_its_age_is_replaced_at_the_next_request(on: Benches) -> None:
    bench = on(ReaderLimits())
    (first,) = bench.children()
    bench.now += AGE_SECONDS - 1
    bench.reader.sample()
    assert bench.reader.health().replaced == {}
    bench.now += 1
    assert len(bench.reader.sample()) == 2
    assert bench.reader.health().replaced == {"age": 1}
    until(lambda: first not in bench.children())
    bench.reader.sample()
    assert bench.reader.health().replaced == {"age": 1}


def test_the_old_reader_ends_only_when_the_new_one_has_answered(on: Benches) -> None:
    bench = on(ReaderLimits())
    (first,) = bench.children()
    bench.now += AGE_SECONDS
    clients = [
        bench.simulation.clients()
        for answer in bench.reader.answers(Sample(request=0))
        if isinstance(answer, SampleFrame)
    ]
    assert clients == [2, 2]
    until(lambda: first not in bench.children())


def test_an_xid_of_a_takeover_is_counted_once(on: Benches) -> None:
    bench = on(ReaderLimits())
    bench.now += AGE_SECONDS
    for answer in bench.reader.answers(Sample(request=0)):
        if isinstance(answer, SampleFrame) and answer.sample.bus_id == bench.bus_ids[1]:
            bench.simulation.xid(bench.bus_ids[0], 94)  # both have the GPU
            until(lambda: bench.simulation.state.events == ())
    expected = XidSeen(bus_id=bench.bus_ids[0], code=94)
    found: list[object] = []

    def came() -> bool:
        found.extend(bench.reader.events())
        return bool(found)

    until(came)
    bench.reader.sample()
    found.extend(bench.reader.events())
    assert found == [expected]


def test_readers_are_the_first_that_the_kernel_ends(on: Benches) -> None:
    bench = on(ReaderLimits())
    (child,) = bench.children()
    assert Path(f"/proc/{child.pid}/oom_score_adj").read_text() == f"{FIRST_TO_END}\n"
    own = int(Path("/proc/self/oom_score_adj").read_text())
    assert own < FIRST_TO_END
