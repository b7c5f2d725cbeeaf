# SPDX-License-Identifier: Apache-2.0
"""What device readers that have not ended yet allow: others to start, to leave and to probe."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator

import pytest

from discovery.reader.child import Child
from discovery.reader.ending import MOST_STUCK, EndingReaders
from discovery.reader.protocol import Start, Touching
from tests.discovery.reader.reader_bench import SOON

GPUS = tuple(f"0000:{number:02x}:00.0" for number in range(16))
UNTIL = 100.0

Starting = Callable[[], Child]


@pytest.fixture
def start() -> Iterator[Starting]:
    """Starts a reader that does not end at SIGTERM, as one that hangs in a driver call."""
    started: list[Child] = []

    def stopped() -> Child:
        started.append(Child(Start(), lambda _child, _event: None))
        os.kill(started[-1].pid, signal.SIGSTOP)
        return started[-1]

    yield stopped
    for child in started:
        end(child)


@pytest.fixture
def ending() -> EndingReaders:
    return EndingReaders()


def end(child: Child) -> None:
    child.kill()
    assert child.wait(SOON)


def on(bus_id: str | None) -> Touching:
    return Touching(request=1, bus_id=bus_id)


def test_where_none_is_ending_everything_is_allowed(ending: EndingReaders) -> None:
    assert ending.may_leave
    assert ending.why_start_none is None
    assert ending.probes_allowed == MOST_STUCK == 8
    assert (ending.children, ending.stuck_count, ending.stuck_bus_ids) == ((), 0, frozenset())


def test_one_reader_leaves_at_a_time_and_is_forgotten_when_it_has_ended(
    ending: EndingReaders, start: Starting
) -> None:
    child = start()
    ending.leave(child, UNTIL)
    ending.reap(UNTIL - 1)
    assert ending.children == (child,)
    assert (ending.may_leave, ending.stuck_count) == (False, 0)
    end(child)
    ending.reap(UNTIL - 1)
    assert len(ending.children) == 0
    assert ending.may_leave


def test_a_reader_that_ended_in_time_is_not_stuck_however_late_that_is_noticed(
    ending: EndingReaders, start: Starting
) -> None:
    child = start()
    ending.leave(child, UNTIL)
    end(child)
    ending.reap(UNTIL + 60)
    assert (ending.children, ending.stuck_count) == ((), 0)


def test_a_reader_that_is_too_slow_to_leave_is_terminated_and_stuck_until_it_ends(
    ending: EndingReaders, start: Starting
) -> None:
    child = start()
    ending.leave(child, UNTIL)
    ending.reap(UNTIL)
    assert ending.children == (child,)
    assert (ending.stuck_count, ending.stuck_bus_ids, ending.may_leave) == (1, frozenset(), False)
    os.kill(child.pid, signal.SIGCONT)
    assert child.wait(SOON)  # at the SIGTERM that it had got
    ending.reap(UNTIL)
    assert (ending.stuck_count, ending.may_leave) == (0, True)


def test_each_of_two_that_leave_has_its_own_time(ending: EndingReaders, start: Starting) -> None:
    early, late = start(), start()
    ending.leave(early, UNTIL)
    ending.leave(late, UNTIL + 5)
    ending.reap(UNTIL + 1)
    assert ending.children == (late, early)
    assert ending.stuck_count == 1


def test_a_second_reader_that_is_stuck_for_no_known_reason_ends_all_starts(
    ending: EndingReaders, start: Starting
) -> None:
    child = start()
    ending.hang(child, None)
    assert ending.why_start_none is None
    assert ending.probes_allowed == 7
    ending.hang(child, None)
    assert ending.why_start_none == (
        "2 device readers are stuck in driver calls; starting no other"
    )
    assert ending.probes_allowed == 0


def test_a_reader_that_hangs_in_the_driver_as_a_whole_ends_all_starts(
    ending: EndingReaders, start: Starting
) -> None:
    ending.hang(start(), on(None))
    assert ending.why_start_none == (
        "the NVIDIA driver does not answer at all; waiting for it to return"
    )
    assert (ending.probes_allowed, ending.stuck_bus_ids) == (0, frozenset())
    assert ending.may_leave  # its reason is known


def test_eight_stuck_on_their_gpus_leave_room_for_the_reader_and_for_no_probe(
    ending: EndingReaders, start: Starting
) -> None:
    child = start()
    for number, gpu in enumerate(GPUS[:8]):
        assert ending.probes_allowed == 8 - number
        ending.hang(child, on(gpu))
    assert ending.stuck_bus_ids == set(GPUS[:8])
    assert (ending.why_start_none, ending.probes_allowed, ending.may_leave) == (None, 0, True)
    ending.hang(child, on(GPUS[8]))
    assert ending.why_start_none == (
        "9 device readers are stuck in driver calls; starting no other"
    )


def test_the_driver_keeps_open_what_a_stuck_reader_has_open(
    ending: EndingReaders, start: Starting
) -> None:
    child = start()
    child.returned |= {None, GPUS[1]}
    ending.leave(child, UNTIL)
    assert not ending.keeps_open(GPUS[1])  # it is about to close it
    ending.hang(child, on(GPUS[2]))
    assert [ending.keeps_open(it) for it in (None, *GPUS[:3])] == [True, False, True, False]
    end(child)
    assert not ending.keeps_open(None)
