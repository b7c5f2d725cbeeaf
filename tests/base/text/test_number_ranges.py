# SPDX-License-Identifier: Apache-2.0
"""Numbers as ranges."""

from __future__ import annotations

import re
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from base.text.number_ranges import number_ranges


@given(numbers=st.sets(st.integers(0, 40)))
def test_each_number_is_named_once_in_order_and_neighbours_are_joined(numbers: set[int]) -> None:
    text = number_ranges(sorted(numbers))
    parts = re.findall(r"(\d+)(?:-(\d+))?(?:,|$)", text)
    spans = [range(int(first), int(last or first) + 1) for first, last in parts]
    assert [number for span in spans for number in span] == sorted(numbers)
    assert all(before[-1] + 1 < after[0] for before, after in pairwise(spans))
    assert not any(first == last for first, last in parts)
