"""Which known word a person meant."""

from __future__ import annotations

import pytest

from base.words import closest, did_you_mean

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


@pytest.mark.parametrize("word", ["a_b_c_d", "a b c d", " A-B-C-D "])
def test_kinds_of_dashes_make_no_difference(word: str) -> None:
    """Letters alone are too few of these to be alike."""
    assert closest(word, ["a-b-c-d"]) == "a-b-c-d"


def test_nothing_is_near_where_nothing_is_known() -> None:
    assert closest("a", ()) is None


def test_a_guess_ends_a_message_and_without_one_nothing_is_added() -> None:
    assert did_you_mean("hgx-h10", KNOWN) == ": did you mean hgx-h100?"
    assert did_you_mean("zebra", KNOWN) == ""
