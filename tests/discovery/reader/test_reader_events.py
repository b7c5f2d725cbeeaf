# SPDX-License-Identifier: Apache-2.0
"""XIDs that two readers deliver while one takes over from the other are counted once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from discovery.reader.protocol import EventsLost, XidSeen
from discovery.reader.reader_events import EVENTS_KEPT, ReaderEvents

FIRST, OTHER = XidSeen(bus_id="0000:1b:00.0", code=63), XidSeen(bus_id="0000:1b:00.0", code=94)


def opened(*names: str) -> ReaderEvents:
    sources = ReaderEvents()
    for name in names:
        sources.opened(name)
    return sources


def test_one_reader_s_events_all_count() -> None:
    sources = opened("old")
    assert all(sources.admits("old", FIRST) for _ in range(3))


def test_an_event_that_two_readers_deliver_counts_once_whichever_is_first() -> None:
    sources = opened("old", "new")
    assert [sources.admits(name, FIRST) for name in ("old", "new")] == [True, False]
    assert [sources.admits(name, FIRST) for name in ("new", "old")] == [True, False]
    assert sources.admits("new", OTHER)


def test_an_event_that_came_before_the_new_reader_had_its_gpus_takes_none_of_its_own() -> None:
    sources = opened("old", "new")
    assert sources.admits("old", FIRST)  # the new one has registered no GPU yet
    sources.closed("old")
    assert sources.admits("new", FIRST)


def test_of_two_that_are_left_each_counts_what_comes_from_then_on() -> None:
    """One keeps a GPU open, the other works; the one before them had counted errors alone."""
    sources = opened("old", "new", "holder")
    assert sources.admits("old", FIRST)
    sources.closed("old")
    assert [sources.admits(name, FIRST) for name in ("new", "holder")] == [True, False]


def test_the_newest_events_are_kept_and_each_is_taken_once() -> None:
    sources = opened("one")
    for code in range(EVENTS_KEPT + 2):
        assert sources.add("one", XidSeen(bus_id=FIRST.bus_id, code=code))
    assert not sources.add("never opened", FIRST)
    assert sources.taken()[0] == XidSeen(bus_id=FIRST.bus_id, code=2)
    assert (sources.overflows, sources.taken()) == (2, ())


def test_what_lost_events_is_reported_by_each_reader() -> None:
    sources = opened("old", "new")
    assert all(sources.admits(name, EventsLost(text="why")) for name in ("old", "new"))


def test_a_reader_that_is_over_or_unknown_counts_no_more() -> None:
    sources = opened("old", "new")
    sources.closed("old")
    assert not sources.admits("old", FIRST)
    assert not sources.admits("never opened", FIRST)


@given(before=st.integers(0, 3), both=st.lists(st.booleans(), max_size=12), after=st.integers(0, 3))
def test_whatever_the_order_each_error_of_a_takeover_counts_once(
    before: int, both: list[bool], after: int
) -> None:
    """``both``: in which order the copies of the common errors come; True is the old reader's."""
    sources = opened("old")
    counted = sum(sources.admits("old", FIRST) for _ in range(before))
    sources.opened("new")
    copies = [*both, *(not it for it in both)]  # as many of each
    counted += sum(sources.admits("old" if it else "new", FIRST) for it in copies)
    sources.closed("old")
    counted += sum(sources.admits("new", FIRST) for _ in range(after))
    assert counted == before + len(both) + after
