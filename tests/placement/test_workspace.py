# SPDX-License-Identifier: Apache-2.0
"""What computing outcomes may take: memory that is measured, and work that is given up."""

from __future__ import annotations

import itertools
import random
import tracemalloc
from collections import Counter

import msgspec
import pytest

from api.gpu_request import GpuRequest, gpu_request
from labelers.annotations import topology_of
from placement.class_tables import ScoreTables
from placement.score_table import GIVEN_UP, PlacementOutcome, ScoreTable
from placement.turns import Turns
from placement.workspace import TooMuchWork, Workspace
from tests.observed import observed
from tests.scheduler.later import Later
from tests.scheduler.shapes import drawn, machine

MIB = 1 << 20
PAIRS = topology_of(observed("a100-pcie-pairs").snapshot)
CRAFTED = drawn(
    16, {pair: 100 + sum(pair) for pair in itertools.combinations(range(16), 2) if sum(pair) % 7}
)
"""Sixteen GPUs, most of them joined, and each pair by other points: as no machine is."""


def test_what_is_kept_is_dropped_when_it_is_more_than_the_budget() -> None:
    workspace = Workspace(most_bytes=1000)
    double = workspace.cache(lambda number: 2 * number, entry_bytes=100)
    for number in range(10):
        assert double(number) == 2 * number
        workspace.trim()
    assert workspace.bytes == 1000
    double(10)
    workspace.trim()
    assert workspace.bytes == 0


def test_results_count_by_their_own_size_where_they_differ() -> None:
    workspace = Workspace(most_bytes=1000)
    calls: Counter[int] = Counter()

    def zeros(count: int) -> bytes:
        calls[count] += 1
        return bytes(count)

    kept = workspace.cache(zeros, len)
    assert len(kept(400)) == len(kept(400)) == 400
    assert (calls[400], workspace.bytes) == (1, 400)
    kept(700)
    workspace.trim()
    assert workspace.bytes == 0
    kept(400)
    assert calls[400] == 2


def test_work_ends_where_it_is_more_than_it_may_be_and_memory_is_kept_to_within() -> None:
    workspace = Workspace(most_bytes=10_000, most_steps=100_000)
    same = workspace.cache(lambda number: number, entry_bytes=100)

    def work(number: int) -> int:
        same(number)
        workspace.spend()
        return workspace.bytes

    with workspace.counted():
        most = max(map(work, range(100_000)))
        with pytest.raises(TooMuchWork):
            work(100_000)
    assert most < 10_000 + 100 * 5000


def test_without_a_limit_and_after_it_work_is_free() -> None:
    workspace = Workspace(most_steps=10)
    with workspace.counted():
        workspace.spend(10)
    workspace.spend(10**9)
    with workspace.counted(20):
        workspace.spend(20)
        with pytest.raises(TooMuchWork):
            workspace.spend()


def test_the_bytes_of_a_table_are_about_those_that_it_takes() -> None:
    """By Python's own count of what was allocated: a budget that is wrong would be none."""
    table = ScoreTable(machine("dgx1-v100"))
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for free, asked in itertools.product(
            range(0, 256, 5), (gpu_request(1), gpu_request(3), gpu_request(1, 2))
        ):
            table.outcome(free, asked)
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert 0.6 * taken < table.bytes < 2.2 * taken


def test_outcomes_of_16_gpus_keep_to_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("placement.score_table._MOST_OUTCOME_BYTES", MIB // 8)
    table = ScoreTable(machine("hgx-16"))
    chance = random.Random(1)  # noqa: S311  # has to repeat
    asked = [
        (
            sum(1 << place for place in chance.sample(range(16), 9)),
            gpu_request(chance.choice([1, 2, 3]), chance.choice([1, 2])),
        )
        for _ in range(60)
    ]
    for free, wish in asked:
        table.outcome(free, wish)
    kept = [outcome for free, wish in asked if (outcome := table.kept(free, wish)) is not None]
    assert 0 < len(kept) < 60
    assert sum(700 + 100 * len(each.sets) for each in kept) < MIB // 8
    assert table.bytes < 17 * MIB


def test_a_topology_that_is_too_much_work_is_given_up_as_a_class(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("placement.workspace.MOST_STEPS", 2000)
    table = ScoreTable(CRAFTED)
    begun: list[int] = []
    outcome = table._outcome  # of which none is to be begun

    def counted(free: int, asked: GpuRequest) -> PlacementOutcome:
        begun.append(free)
        return outcome(free, asked)

    monkeypatch.setattr(table, "_outcome", counted)
    found = [table.outcome(0xFFFF >> at, gpu_request(6)) for at in range(6)]
    assert found == [GIVEN_UP] * 6
    assert len(begun) == 3
    assert [record.message for record in caplog.records] == ["outcome given up"] * 3
    assert table.likely(0xFFF0, gpu_request(2)) == 0b110000


def test_the_speed_of_one_set_is_never_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("placement.score_table._STEPS_OF_A_SET", 50)
    table = ScoreTable(CRAFTED)
    assert [table.gbps(group) > 0 for group in (0xFFFF, 0b11)] == [False, True]


def test_classes_take_turns() -> None:
    later, done = Later(), []
    turns = Turns(later)
    for gen, count in (("a", 3), ("b", 1), ("c", 2)):
        for at in range(count):
            turns.put(gen, lambda name=f"{gen}{at}": done.append(name))  # type: ignore[misc]
    later.run()
    assert done == ["a0", "b0", "c0", "a1", "c1", "a2"]


def test_jobs_of_a_class_that_is_gone_are_not_run() -> None:
    later, done = Later(), []
    turns = Turns(later)
    turns.put("a", lambda: done.append("a"))
    turns.put("b", lambda: done.append("b"))
    turns.drop("a")
    turns.drop("never there")
    assert later.run() == 2
    assert done == ["b"]


def test_a_class_that_is_slow_keeps_none_waiting() -> None:
    later = Later()
    tables = ScoreTables(later)
    slow = tables.find(tables.add(topology_of(observed("hgx-16").snapshot)))
    assert slow
    for free in range(100):
        slow.known(free, gpu_request(1))
    quick = tables.find(tables.add(PAIRS))
    assert quick
    quick.known(0xFF, gpu_request(2, 2))
    turn = later.first(2 * (PAIRS.n + 3))
    assert turn == 2 * (PAIRS.n + 3)
    assert quick.known(0xFF, gpu_request(2, 2)) is not None


def test_all_classes_together_keep_to_their_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that were not used for longest lose their outcomes, and compute them anew."""
    monkeypatch.setattr("placement.class_tables._CHECKED_EVERY", 1)
    tables = ScoreTables(most_bytes=MIB)
    gens = [tables.add(msgspec.structs.replace(PAIRS, lbw=(rate,))) for rate in range(50, 54)]
    first = tables.find(gens[0])
    assert first
    kept = first.outcome(0xFF, gpu_request(2))
    for gen in gens:
        table = tables.find(gen)
        assert table
        for free in range(0, 256, 2):
            table.outcome(free, gpu_request(2))
        assert tables.bytes < 1.5 * MIB
    assert first.kept(0xFF, gpu_request(2)) is None
    assert first.outcome(0xFF, gpu_request(2)) == kept


def test_no_more_classes_lose_their_outcomes_than_have_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that were used last keep theirs, as soon as the others' bytes are enough."""
    monkeypatch.setattr("placement.class_tables._CHECKED_EVERY", 1)
    one = filled(ScoreTables(), rate=50)
    tables = ScoreTables(most_bytes=5 * one.bytes // 2)
    made = [filled(tables, rate) for rate in (50, 51, 52)]
    assert [table.kept(0xFF, gpu_request(2)) is not None for table in made] == [False, True, True]


def filled(tables: ScoreTables, rate: int) -> ScoreTable:
    """The table of a class of its own, with all free sets for two GPUs."""
    table = tables.find(tables.add(msgspec.structs.replace(PAIRS, lbw=(rate,))))
    assert table
    table.fill(gpu_request(2))
    return table


def test_a_hundred_classes_are_all_there() -> None:
    tables = ScoreTables()
    gens = [tables.add(msgspec.structs.replace(PAIRS, lbw=(rate,))) for rate in range(1, 101)]
    assert all(tables.find(gen) for gen in gens)


def test_a_table_that_is_dropped_leaves_nothing_behind() -> None:
    """Also where something still holds on to it, as Python's collector may."""
    tables = ScoreTables(max_classes=1)
    table = tables.find(tables.add(PAIRS))
    assert table
    table.fill(gpu_request(2))
    assert table.bytes > 0
    tables.add(msgspec.structs.replace(PAIRS, lbw=(50,)))
    assert (table.bytes, table.kept(0xFF, gpu_request(2))) == (0, None)
