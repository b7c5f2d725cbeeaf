# SPDX-License-Identifier: Apache-2.0
"""Words of people in messages: which known word was meant, and how theirs is quoted."""

from __future__ import annotations

import pytest

from base.words import MOST_QUOTED, closest, did_you_mean, first_names, quoted

KNOWN = ("hgx-h100", "hgx-h200", "dgx1-v100", "GPUSCAPE_SIMULATE")


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("hgx-h100", "hgx-h100"),
        ("HGX-H100", "hgx-h100"),
        ("hgx_h20", "hgx-h200"),
        (" DGX1 V100", "dgx1-v100"),
        ("gpuscape_simulat", "GPUSCAPE_SIMULATE"),
        ("zebra", None),
        ("", None),
    ],
)
def test_the_nearest_word_is_found_whatever_its_capitals(word: str, meant: str | None) -> None:
    assert closest(word, KNOWN) == meant


@pytest.mark.parametrize(
    ("word", "meant"), [("dgx1", "dgx1-v100"), ("DGX", "dgx-a100"), ("dg", None)]
)
def test_a_word_that_was_cut_short_is_the_one_that_begins_so(word: str, meant: str | None) -> None:
    """By its letters alone, dgx1 is more like dgx-a100."""
    assert closest(word, [*KNOWN, "dgx-a100"]) == meant


@pytest.mark.parametrize("word", ["a_b_c_d", "a b c d", " A-B-C-D "])
def test_kinds_of_dashes_make_no_difference(word: str) -> None:
    """Letters alone are too few of these to be alike."""
    assert closest(word, ["a-b-c-d"]) == "a-b-c-d"


def test_nothing_is_near_where_nothing_is_known() -> None:
    assert closest("a", ()) is None


def test_a_guess_ends_a_message_and_without_one_nothing_is_added() -> None:
    assert did_you_mean("hgx-h10", KNOWN) == ": did you mean hgx-h100?"
    assert did_you_mean("zebra", KNOWN) == ""


def test_a_quoted_text_is_one_short_line_of_ascii() -> None:
    assert quoted("a\n\0ä") == r"'a\n\x00\xe4'"
    assert quoted("x" * MOST_QUOTED) == f"'{'x' * MOST_QUOTED}'"
    assert quoted("x" * (MOST_QUOTED + 1)) == f"'{'x' * MOST_QUOTED}\\u2026'"


@pytest.mark.parametrize(
    ("names", "most", "text"),
    [
        ([], 2, ""),
        (["a"], 2, "a"),
        (["a", "b"], 2, "a, b"),
        (["a", "b", "c"], 2, "a, b and 1 more"),
        (["a", "b", "c", "d"], 1, "a and 3 more"),
    ],
)
def test_of_many_names_the_first_are_named_and_the_others_counted(
    names: list[str], most: int, text: str
) -> None:
    assert first_names(names, most) == text
