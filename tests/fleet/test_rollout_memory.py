# SPDX-License-Identifier: Apache-2.0
"""What is remembered of rollouts: each end once, within a bound, as long as it matters."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from api import limits
from fleet import rollout_memory
from fleet.rollout_memory import (
    EMPTY,
    FAILURES,
    FORGET_SECONDS,
    CountedEnd,
    counted,
    rollout_id,
    without_ended,
)

ENDS = st.lists(st.tuples(st.integers(0, 5), st.sampled_from(list(CountedEnd))), max_size=8)


@given(ENDS)
def test_each_request_counts_once_and_failures_in_a_row_end_with_a_success(
    ends: list[tuple[int, CountedEnd]],
) -> None:
    memory, seen, expected = EMPTY, set[int](), list[CountedEnd]()
    for at, (request, end) in enumerate(ends, start=1):
        memory = counted(memory, "a", f"{request:016x}", end, at)
        if end not in (CountedEnd.UNTOUCHED, CountedEnd.GONE) and request not in seen:
            seen.add(request)
            expected.append(end)
    counts = memory.rollouts.get(rollout_id("a"))
    if not expected:
        assert counts is None
        return
    assert counts is not None
    failed = [end in FAILURES for end in expected]
    assert (counts.failed, counts.applied) == (sum(failed), len(failed) - sum(failed))
    in_row = next((at for at, is_failed in enumerate(reversed(failed)) if not is_failed), None)
    assert counts.in_row == (len(failed) if in_row is None else in_row)
    assert bool(counts.proven_at) is (False in failed)
    assert rollout_memory.decode(rollout_memory.encode(memory)) == memory


def test_the_first_success_is_the_one_that_the_canary_waits_from() -> None:
    memory = counted(EMPTY, "a", f"{1:016x}", CountedEnd.APPLIED, 100)
    memory = counted(memory, "a", f"{2:016x}", CountedEnd.APPLIED, 200)
    assert memory.rollouts[rollout_id("a")].proven_at == 100


def test_any_number_of_rollouts_fits_and_the_oldest_goes_first() -> None:
    memory = EMPTY
    for rollout in range(100):
        for request in range(20):
            asked = f"annotation:{rollout:03}" + "\N{ROCKET}" * 300
            memory = counted(memory, asked, f"{request:016x}", CountedEnd.HELD, rollout)
    assert len(rollout_memory.encode(memory)) < limits.MOST_ROLLOUTS_CHARACTERS
    assert rollout_memory.decode(rollout_memory.encode(memory)) == memory
    assert {counts.at for counts in memory.rollouts.values()} == set(range(68, 100))


def test_a_rollout_that_failed_is_remembered_longer_than_any_that_did_not() -> None:
    """Once it is forgotten it goes on, and nobody has said that it may."""
    memory = EMPTY
    for request in range(3):
        memory = counted(memory, "stopped", f"{request:016x}", CountedEnd.PREVIOUS, 1)
    for rollout in range(100):
        memory = counted(memory, f"{rollout}", f"{0:016x}", CountedEnd.APPLIED, 2 + rollout)
    assert memory.rollouts[rollout_id("stopped")].failed == 3
    assert rollout_id("99") in memory.rollouts


def test_a_rollout_is_forgotten_when_it_is_over_and_not_before() -> None:
    memory = counted(EMPTY, "a", f"{1:016x}", CountedEnd.HELD, 1000)
    late = 1000 + FORGET_SECONDS
    assert without_ended(memory, {rollout_id("a")}, late) is memory
    assert without_ended(memory, set(), late - 1) is memory
    assert without_ended(memory, set(), late).rollouts == {}
