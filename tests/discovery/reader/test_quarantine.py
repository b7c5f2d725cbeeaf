# SPDX-License-Identifier: Apache-2.0
"""A GPU is left alone after a hang or repeated deaths, and tried again ever more rarely."""

from __future__ import annotations

from discovery.model import Reason
from discovery.reader.quarantine import Quarantine


def test_an_isolated_gpu_is_skipped_and_first_due_after_five_seconds() -> None:
    quarantine = Quarantine()
    quarantine.isolate("a", Reason.HUNG, "why", now=100.0)
    assert quarantine.bus_ids == ("a",)
    assert (quarantine.due(104.9), quarantine.due(105.0)) == ((), ("a",))


def test_failed_probes_are_repeated_after_ten_then_twenty_then_thirty_seconds() -> None:
    quarantine = Quarantine()
    quarantine.isolate("a", Reason.HUNG, "why", now=0.0)
    waits, now = [], 5.0
    for _ in range(4):
        quarantine.postpone("a", now)
        due = next(second for second in range(int(now), 1000) if quarantine.due(second))
        waits.append(due - now)
        now = due
    assert waits == [10, 20, 30, 30]


def test_the_gpu_that_has_waited_longest_is_probed_first() -> None:
    """So that each has its turn, where every probe of another takes until its deadline."""
    quarantine = Quarantine()
    quarantine.isolate("a", Reason.HUNG, "why", now=0.0)
    quarantine.isolate("b", Reason.HUNG, "why", now=1.0)
    assert quarantine.due(20.0) == ("a", "b")
    quarantine.postpone("a", 20.0)
    assert quarantine.due(60.0) == ("b", "a")


def test_one_death_isolates_nobody_and_the_second_in_a_row_does() -> None:
    quarantine = Quarantine()
    quarantine.crashed("a", "why", now=0.0)
    assert quarantine.bus_ids == ()
    quarantine.crashed("a", "why", now=1.0)
    held = quarantine.held("a")
    assert held is not None
    assert held.reason is Reason.FAILED


def test_an_answer_between_two_deaths_starts_the_count_again() -> None:
    quarantine = Quarantine()
    quarantine.crashed("a", "why", now=0.0)
    quarantine.answered("a")
    quarantine.crashed("a", "why", now=1.0)
    assert quarantine.bus_ids == ()


def test_a_gpu_that_answers_is_free_again() -> None:
    quarantine = Quarantine()
    quarantine.isolate("a", Reason.HUNG, "why", now=0.0)
    quarantine.answered("a")
    assert (quarantine.bus_ids, quarantine.due(1000.0)) == ((), ())


def test_a_second_missed_deadline_confirms_the_first() -> None:
    quarantine = Quarantine()
    quarantine.isolate("a", Reason.HUNG, "why", now=0.0)
    quarantine.isolate("b", Reason.HUNG, "why", now=0.0)
    assert quarantine.missed_once == {"a", "b"}
    quarantine.missed("a")
    assert quarantine.missed_once == {"b"}
    quarantine.answered("b")
    assert quarantine.missed_once == set()


def test_a_gpu_that_stalls_again_within_a_minute_has_missed_twice_and_later_once() -> None:
    quarantine = Quarantine()
    for now, once in ((0.0, {"a"}), (59.0, set()), (120.0, {"a"})):
        quarantine.isolate("a", Reason.HUNG, "why", now=now)
        assert quarantine.missed_once == once
        quarantine.answered("a")


def test_a_gpu_that_readers_died_on_did_not_just_stall() -> None:
    quarantine = Quarantine()
    for _ in range(2):
        quarantine.crashed("a", "why", now=0.0)
    assert quarantine.missed_once == set()


def test_a_remembered_gpu_is_due_once_the_others_have_answered_and_has_missed_enough() -> None:
    quarantine = Quarantine()
    quarantine.remember("a", "it hung before")
    quarantine.isolate("b", Reason.HUNG, "why", now=0.0)
    assert quarantine.bus_ids == ("a", "b")
    assert quarantine.missed_once == {"b"}
    assert quarantine.due(1000.0) == ("b",)
    quarantine.try_remembered(3.0)
    assert quarantine.due(3.0) == ("a",)
    quarantine.postpone("a", 3.0)
    quarantine.try_remembered(4.0)
    assert quarantine.due(4.0) == ()


def test_only_gpus_that_hang_and_have_missed_twice_hang_for_good() -> None:
    quarantine = Quarantine()
    quarantine.isolate("a", Reason.HUNG, "why", now=0.0)
    quarantine.isolate("b", Reason.FAILED, "why", now=0.0)
    quarantine.isolate("c", Reason.HUNG, "why", now=0.0)
    quarantine.missed("c")
    assert quarantine.hung_for_good == {"c"}
