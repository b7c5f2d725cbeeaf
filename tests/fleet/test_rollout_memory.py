# SPDX-License-Identifier: Apache-2.0
"""What is remembered of rollouts: each end once, within a bound, as long as it matters."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from api import limits
from api.mig_outcome import Outcome
from fleet import rollout_memory
from fleet.rollout_memory import (
    EMPTY,
    FAILURES,
    FORGET_SECONDS,
    MOST_ROLLOUTS,
    REMEMBERED_REQUESTS,
    NodeEnd,
    RolloutCounts,
    RolloutMemory,
    UnreportedEnd,
    is_counted,
    is_full,
    rollout_id,
    with_end,
    without_ended,
)

COUNTING = [Outcome.APPLIED, *FAILURES]
ENDS = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 9), st.sampled_from([*Outcome, *UnreportedEnd])),
    max_size=12,
)
"""Node, request, end."""
A = rollout_id("a")


def an_end(
    outcome: Outcome,
    *,
    asked: str = "a",
    node: int = 0,
    request: int = 0,
    is_shown: bool = True,
) -> NodeEnd:
    """One end; the node's UID is made of its number."""
    return NodeEnd(
        rollout=asked,
        uid=f"uid-{node}",
        request=f"{request:016x}",
        outcome=outcome,
        is_shown=is_shown,
    )


def remembered(ends: Iterable[NodeEnd], memory: RolloutMemory = EMPTY) -> RolloutMemory:
    """All of these, one each second."""
    for at, end in enumerate(ends, start=1):
        memory = with_end(memory, end, at)
    return memory


@given(ENDS)
def test_each_node_counts_once_by_its_newest_end(ends: list[tuple[int, int, Outcome]]) -> None:
    newest: dict[int, Outcome] = {}
    seen = set[tuple[int, int]]()
    for node, request, end in ends:
        if end in COUNTING and (node, request) not in seen:
            seen.add((node, request))
            newest[node] = end
    made = remembered(an_end(end, node=node, request=number) for node, number, end in ends)
    counts = made.rollouts.get(A)
    if not newest:
        assert counts is None
        return
    assert counts is not None
    if len(seen) <= REMEMBERED_REQUESTS:
        assert counts.failed == sum(end in FAILURES for end in newest.values())
    assert 0 <= counts.in_row <= counts.failed <= len(newest)
    assert rollout_memory.decode(rollout_memory.encode(made)) == made


@given(
    st.lists(st.tuples(st.integers(1, 5), st.sampled_from(COUNTING)), max_size=8),
    st.lists(st.tuples(st.integers(0, 8), st.sampled_from(COUNTING)), max_size=12),
)
def test_whatever_one_agent_reports_moves_the_count_of_failed_nodes_by_one_at_most(
    honest: list[tuple[int, Outcome]], lies: list[tuple[int, Outcome]]
) -> None:
    """``lies``: each before so many of the honest ends."""
    ends = [an_end(end, node=node, request=at) for at, (node, end) in enumerate(honest)]
    without = remembered(ends).rollouts.get(A, RolloutCounts(desired="a"))
    mixed = list(ends)
    for number, (place, end) in enumerate(lies):
        lie = an_end(end, node=0, request=100 + number, is_shown=False)
        mixed.insert(min(place, len(mixed)), lie)

    found = remembered(mixed).rollouts.get(A, RolloutCounts(desired="a"))

    assert without.failed <= found.failed <= without.failed + 1
    assert found.in_row <= found.failed
    assert bool(found.proven_at) == bool(without.proven_at)


def test_a_failure_that_an_agent_makes_up_can_use_up_the_success_that_ends_a_row() -> None:
    """The rollout stops sooner than without it, which is the safe side, and for minutes."""
    bad, good = Outcome.ROLLED_BACK, Outcome.APPLIED
    lie = an_end(bad, node=0, is_shown=False)
    ends = [an_end(good, node=9, request=1), an_end(bad, node=1), an_end(bad, node=2)]
    ends.append(an_end(good, node=9, request=2))

    assert remembered(ends).rollouts[A].in_row == 0
    assert remembered([lie, *ends]).rollouts[A].in_row == 2


def test_a_row_of_failures_ends_with_the_success_of_another_node_and_once_for_each() -> None:
    bad, good = Outcome.ROLLED_BACK, Outcome.APPLIED
    ends = [an_end(bad, node=1), an_end(good, node=9, request=1)]
    assert remembered(ends).rollouts[A].in_row == 0
    ends += [an_end(bad, node=2), an_end(good, node=9, request=2)]
    assert remembered(ends).rollouts[A].in_row == 1
    ends += [an_end(good, node=8)]
    assert remembered(ends).rollouts[A].in_row == 0
    assert remembered(ends).rollouts[A].failed == 2


def test_the_first_success_is_the_one_that_the_canary_waits_from() -> None:
    ends = [an_end(Outcome.APPLIED, node=node) for node in (1, 2)]
    assert remembered(ends).rollouts[A].proven_at == 1


def test_a_success_that_only_agents_report_proves_a_layout_when_two_do() -> None:
    lie = [an_end(Outcome.APPLIED, request=at, is_shown=False) for at in range(5)]
    assert not remembered(lie).rollouts[A].proven_at
    lie.append(an_end(Outcome.APPLIED, node=1, is_shown=False))
    assert remembered(lie).rollouts[A].proven_at == 6


def test_a_request_of_another_node_with_the_same_id_is_another_one() -> None:
    made = remembered([an_end(Outcome.ROLLED_BACK, node=1, request=7)])
    assert is_counted(made, "a", "uid-1", f"{7:016x}")
    assert not is_counted(made, "a", "uid-2", f"{7:016x}")
    assert remembered([an_end(Outcome.STUCK, node=2, request=7)], made).rollouts[A].failed == 2


def test_any_number_of_rollouts_fits_and_the_oldest_goes_first() -> None:
    memory = EMPTY
    for rollout in range(100):
        asked = f"annotation:{rollout:03}" + '\N{ROCKET}"' * 300
        for node in range(40):
            for end in (Outcome.STUCK, Outcome.APPLIED, Outcome.STUCK):
                number = node % 20
                made = an_end(end, asked=asked, node=number, request=node, is_shown=False)
                memory = with_end(memory, made, 1_800_000_000 + rollout)
    assert len(rollout_memory.encode(memory)) < limits.MOST_ROLLOUTS_CHARACTERS
    assert rollout_memory.decode(rollout_memory.encode(memory)) == memory
    assert {counts.counted_at % 100 for counts in memory.rollouts.values()} == set(range(68, 100))


def test_a_rollout_that_failed_is_remembered_longer_than_any_that_did_not() -> None:
    """Once it is forgotten it goes on, and nobody has said that it may."""
    ends = [an_end(Outcome.ROLLED_BACK, asked="stopped", node=node) for node in range(3)]
    ends += [an_end(Outcome.APPLIED, asked=f"{rollout}") for rollout in range(100)]
    memory = remembered(ends)
    assert memory.rollouts[rollout_id("stopped")].failed == 3
    assert rollout_id("99") in memory.rollouts
    assert not is_full(memory)


def test_a_memory_of_rollouts_that_have_all_failed_is_full() -> None:
    ends = [an_end(Outcome.STUCK, asked=f"{rollout}") for rollout in range(MOST_ROLLOUTS)]
    assert not is_full(remembered(ends[1:]))
    assert is_full(remembered(ends))


def test_a_memory_of_a_coordinator_from_before_counts_on() -> None:
    before = (
        f'{{"v":2,"rollouts":{{"{A}":{{"desired":"a","failed":2,"in_row":1,"counted_at":5}}}}}}'
    )
    memory = rollout_memory.decode(before)
    assert memory is not None
    assert remembered([an_end(Outcome.STUCK)], memory).rollouts[A].failed == 3
    assert remembered([an_end(Outcome.APPLIED)], memory).rollouts[A].in_row == 0


def test_a_rollout_is_forgotten_when_it_is_over_and_not_before() -> None:
    memory = with_end(EMPTY, an_end(Outcome.STUCK), 1000)
    late = 1000 + FORGET_SECONDS
    assert without_ended(memory, {rollout_id("a")}, late) is memory
    assert without_ended(memory, set(), late - 1) is memory
    assert without_ended(memory, set(), late).rollouts == {}
