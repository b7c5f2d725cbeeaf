# SPDX-License-Identifier: Apache-2.0
"""Which deadline a call has."""

from __future__ import annotations

import pytest

from discovery.reader.deadlines import Deadlines
from discovery.reader.protocol import Touching


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
    assert deadlines.of(Touching(request=1, bus_id="0000:10:00.0", first=first)) == seconds
