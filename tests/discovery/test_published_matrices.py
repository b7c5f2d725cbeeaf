# SPDX-License-Identifier: Apache-2.0
"""Our matrix against the cells that people published from nvidia-smi."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.discovery.published_matrices import Published, machine, published

PAGE = Path(__file__).parents[2] / "docs/usage.md"


@pytest.mark.parametrize("of", published(), ids=lambda of: of.source.removeprefix("https://"))
def test_every_judged_cell_is_the_published_one(of: Published) -> None:
    assert machine(of).wrong() == []


def test_the_page_has_the_figures_of_the_corpus() -> None:
    machines = [machine(of) for of in published()]
    shown = [each for each in machines if each.published.gpu_levels_published]
    judged = sum(len(each.judged) for each in machines)
    cells = sum(len(of.cells) for of in published())
    figures = (
        f"{len(machines)} published matrices with {cells:,} cells, and the tests compare it with"
        f" them. {judged:,} cells can be compared, and all agree; with sysfs alone,"
        f" {sum(len(each.wrong(with_nvml=False)) for each in machines)} were wrong."
    )
    words = (
        f"In {len(shown)} of the matrices, with {sum(len(e.judged) for e in shown)} compared cells"
    )

    page = " ".join(PAGE.read_text().split())

    assert figures in page
    assert words in page
