# SPDX-License-Identifier: Apache-2.0
"""Pictures of terminals: what stands where."""

from __future__ import annotations

import re

import pytest

from tools.terminal_svg import terminal_svg


@pytest.mark.parametrize("text", ["GPU0  0-19,40-59    0", "\x1b[1mGPU0  0-19,40-59    0\x1b[0m"])
def test_words_that_are_far_apart_stand_at_their_columns_of_the_terminal(text: str) -> None:
    """By no space of the picture: browsers make one of several, and stretch what is left."""
    picture = terminal_svg(text, title="a")
    found = re.findall(r'<text x="([\d.]+)" y="44" textLength="([\d.]+)"[^>]*>([^<]*)<', picture)

    wide = 8.4
    columns = [
        (round((float(x) - 14) / wide), round(float(it) / wide), words) for x, it, words in found
    ]
    assert columns == [(0, 4, "GPU0"), (6, 10, "0-19,40-59"), (20, 1, "0")]


def test_words_with_one_space_between_them_are_one_text() -> None:
    assert ">the device itself<" in terminal_svg("X  the device itself", title="a")
