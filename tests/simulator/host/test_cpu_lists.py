# SPDX-License-Identifier: Apache-2.0
"""CPU lists and masks are read and written as the kernel does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.host.cpu_lists import cpu_list_text, cpu_mask, cpu_numbers


@given(st.sets(st.integers(0, 511)))
def test_a_list_reads_back_as_the_cpus_it_was_written_from(cpus: set[int]) -> None:
    assert cpu_numbers(cpu_list_text(cpus)) == tuple(sorted(cpus))


def test_neighbours_are_joined_to_ranges() -> None:
    assert cpu_list_text([5, 0, 1, 2, 4]) == "0-2,4-5"


@pytest.mark.parametrize("text", ["a", "1-", "-1", "1,,2", "3-1", " 1", "1-2-3"])
def test_what_is_no_cpu_list_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="CPU list"):
        cpu_numbers(text)


def test_a_mask_has_a_word_for_every_32_possible_cpus() -> None:
    assert cpu_mask([0, 33], possible=65) == "00000000,00000002,00000001"
