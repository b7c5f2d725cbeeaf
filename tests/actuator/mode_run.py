# SPDX-License-Identifier: Apache-2.0
"""1,000 requests that switch MIG modes on Ampere: ``python -m tests.actuator.mode_run`` writes its
part of docs/mig-kills.md.

    --parts 0-3            these parts of 100 requests alone; several runs may go on side by side
    --page                 nothing is run: the page of the figures that there are

Figures are kept in build/mig-modes after each part. An assertion that fails ends the program.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from tests.actuator.kill_run import MODES, PAGE, print_line
from tests.actuator.mode_figures import ModeFigures
from tests.actuator.test_drawn_modes import SEED, many
from tests.bench.page import Section, table, with_section

RESULTS: Final = PAGE.parents[1] / "build" / "mig-modes"
PARTS, PART = 10, 100
"""Parts, and requests of each."""


def run(part: int) -> None:
    """Carry out the requests of a part, and keep its figures."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="modes-") as folder:
        figures = many(Path(folder), PART, first=SEED + PART * part)
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{part}.json").write_bytes(msgspec.json.encode(figures))
    print_line(f"modes, part {part}: {time.monotonic() - begun:.0f} s")


def kept() -> ModeFigures:
    """The figures of all parts that were run."""
    figures = ModeFigures()
    for file in sorted(RESULTS.glob("*.json")):
        figures.join(msgspec.json.decode(file.read_bytes(), type=ModeFigures))
    return figures


def section(figures: ModeFigures) -> Section:
    """The part of the page."""
    ends = {
        name: sum(count for end, count in figures.ends.items() if end.split()[0] == name)
        for name in ("applied", "unchanged", "rolled-back", "stuck", "refused")
    }
    rows = {
        "requests": figures.requests,
        "GPUs that were to have another mode": figures.switches,
        "kills of the worker": figures.kills,
        "boots in the middle": figures.boots,
        "GPUs whose mode came with a boot that was asked for": figures.brought,
        "resets that never ended": figures.hung,
        **{f"GPUs: {name}": count for name, count in ends.items()},
        "of the stuck ones, given up; the rest were restored": figures.given_up,
        "most effects of one worker": figures.most_effects,
        "longest worker, in simulated time": f"{figures.most_seconds:.0f} s",
    }
    return Section(
        title=MODES,
        text=(
            "Requests that a seed draws turn MIG on and off, and set layouts, on three simulated "
            "A100 (`tests/actuator/test_drawn_modes.py`). Clients hold GPUs for 1 to 60 s. Resets "
            "take up to 20 s, fail, lose the GPU, never end, or are left to nvidia-smi, where that "
            "is allowed. GPUs fall off the bus, the worker is killed, and the node is booted in "
            "the middle. Time is "
            "simulated. Each GPU has its desired layout, its previous one, or is named stuck with "
            "what waits on it. Other GPUs keep their instances. Once nothing is in the way, "
            "`gpuscape mig restore` ends what was stuck. A worker that loops would make more than "
            "400 effects."
        ),
        rows=tuple((label, str(figure)) for label, figure in rows.items()),
    )


def main(words: Sequence[str] | None = None) -> None:
    """Carry out the requests, and write what came of them into the page."""
    parser = argparse.ArgumentParser(prog="python -m tests.actuator.mode_run", description=__doc__)
    parser.add_argument("--parts", default="0-", metavar="FIRST-LAST")
    parser.add_argument("--page", action="store_true")
    options = parser.parse_args(words)
    logging.disable(logging.CRITICAL)  # faults that are meant are logged too
    first, last = options.parts.split("-")
    for part in () if options.page else range(int(first), int(last or PARTS - 1) + 1):
        run(part)
    its = section(kept())
    text = with_section(PAGE.read_text("utf-8"), its.title, table(its))
    PAGE.write_text(f"{text.rstrip()}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
