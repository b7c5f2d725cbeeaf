# SPDX-License-Identifier: Apache-2.0
"""Published matrices as the text that nvidia-smi prints, and as pasting changes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from tests.discovery.published_matrices import WORDS, Published

Draw = Callable[[st.SearchStrategy[Any]], Any]

_AFFINITIES = ("0-55,112-167", "0", "N/A")


def paste(of: Published, draw: Draw) -> str:
    """The whole matrix in one of the forms that issue trackers hold."""
    names = [f"GPU{at}" for at in range(of.gpus)]
    names += [f"NIC{at}" for at in range(of.devices - of.gpus)]
    gap: str = draw(st.sampled_from(("\t", "    ", "  \t ")))
    affinities = draw(st.booleans())
    header = gap.join(names)
    if affinities:
        header += gap + gap.join(("CPU Affinity", "NUMA Affinity", "GPU NUMA ID"))
    if draw(st.booleans()):
        header = f"\x1b[4m{header}\x1b[0m"
    lines = [gap + header]
    for i, name in enumerate(names):
        cells = [" X " if i == j else _word(of, i, j) for j in range(of.devices)]
        if affinities and i < of.gpus:
            cells += _AFFINITIES
        lines.append(gap.join((name, *cells)) + (gap * 3 if i >= of.gpus else ""))
    width = draw(st.sampled_from((None, 60, 80, 132)))
    lines = [piece for line in lines for piece in _wrapped(line, width)]
    lines += draw(st.sampled_from(([], ["", "Legend:", "", "  X    = Self"])))
    margin: str = draw(st.sampled_from(("", "> ", "    ")))
    ending: str = draw(st.sampled_from(("\n", "\r\n")))
    return ending.join(margin + line for line in ("root@node:~# nvidia-smi topo -m", *lines))


def _word(of: Published, i: int, j: int) -> str:
    return WORDS.get(of.cells[min(i, j), max(i, j)], "NV18")


def _wrapped(line: str, width: int | None) -> list[str]:
    """Pieces of at most so many characters, cut between words."""
    pieces: list[str] = []
    while width is not None and len(line) > width:
        cut = max(line.rfind(" ", 1, width), line.rfind("\t", 1, width))
        if cut < 1:
            break
        pieces, line = [*pieces, line[:cut]], line[cut:]
    return [*pieces, line]
