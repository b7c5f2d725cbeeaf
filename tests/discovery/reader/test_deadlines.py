# SPDX-License-Identifier: Apache-2.0
"""Which deadline a call has."""

from __future__ import annotations

import pytest

from discovery.reader.deadlines import Deadlines, slow_first_answer
from discovery.reader.protocol import Touching

GPU = "0000:10:00.0"


@pytest.mark.parametrize(
    ("answer_seconds", "init_seconds", "is_open", "first", "seconds"),
    [
        (5.0, 30.0, False, True, 30.0),
        (5.0, 30.0, False, False, 5.0),
        (5.0, 30.0, True, True, 5.0),
        (60.0, 30.0, False, True, 60.0),  # a first answer never has less time than another
    ],
)
def test_a_first_answer_has_the_longer_deadline_unless_another_reader_has_the_gpu_open(
    answer_seconds: float, init_seconds: float, is_open: bool, first: bool, seconds: float
) -> None:
    deadlines = Deadlines(answer_seconds, init_seconds, lambda _: is_open)
    assert deadlines.seconds_for(Touching(request=1, bus_id=GPU, first=first)) == seconds


def test_a_call_is_known_to_be_open_by_its_own_gpu_and_the_driver_by_none() -> None:
    deadlines = Deadlines(5.0, 30.0, lambda bus_id: bus_id is None)
    assert deadlines.seconds_for(Touching(request=1, bus_id=None, first=True)) == 5.0
    assert deadlines.seconds_for(Touching(request=1, bus_id=GPU, first=True)) == 30.0


def test_before_any_call_is_announced_a_frame_has_the_short_deadline() -> None:
    assert Deadlines(5.0, 30.0, lambda _: False).seconds_for(None) == 5.0


@pytest.mark.parametrize(
    ("waited_seconds", "left_seconds"),
    [(0.0, 1.0), (4.0, 1.0), (4.25, 0.75), (5.0, 0.0), (7.0, -2.0)],
)
def test_what_is_left_of_a_deadline_is_computed_anew_each_second(
    waited_seconds: float, left_seconds: float
) -> None:
    """The reader that has the GPU open may end meanwhile, which makes the deadline long."""
    assert (
        Deadlines(5.0, 30.0, lambda _: False).remaining_seconds(None, waited_seconds)
        == left_seconds
    )


@pytest.mark.parametrize(
    ("bus_id", "first", "waited_seconds", "shown"),
    [
        (GPU, True, 1.0, GPU),
        (None, True, 1.0, "driver"),
        (GPU, True, 0.99, None),
        (GPU, False, 20.0, None),
    ],
)
def test_a_first_answer_of_more_than_a_second_is_shown(
    bus_id: str | None, first: bool, waited_seconds: float, shown: str | None
) -> None:
    call = Touching(request=1, bus_id=bus_id, first=first)
    assert slow_first_answer(call, waited_seconds) == shown


def test_a_reader_that_has_announced_nothing_initialises_nothing() -> None:
    assert slow_first_answer(None, 20.0) is None
