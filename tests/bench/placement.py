# SPDX-License-Identifier: Apache-2.0
"""Where pods land: stock schedulers, ours and one that knows what will come, on the same days.

``python -m tests.bench.placement run FILE`` plays what docs/scheduler-quality.md shows and
keeps a line for each run; it may be stopped and goes on where it was. Delete FILE where the code
has changed since. ``... page FILE`` writes the page. The sets are handed out by go-gpuallocator,
never by our own prediction of it, and judged by tests/judge, never by the scheduler's own measure.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from base.errors import BadInput
from tests.bench import placement_cells, placement_page
from tests.bench.page import REAL_NODES, section_of, with_section
from tests.bench.placement_arms import ARMS
from tests.bench.placement_fleets import WORKLOADS, fleet_of
from tests.bench.placement_runs import Key, play, read

PAGE: Final = Path(__file__).parents[2] / "docs" / "scheduler-quality.md"


def main(words: Sequence[str] | None = None) -> None:
    """Play runs, or write the page of those that were played."""
    chosen = _arguments(words)
    if chosen.what == "page":
        before = PAGE.read_text("utf-8") if PAGE.exists() else ""
        other = section_of(before, REAL_NODES)
        runs = read(chosen.file)
        text = with_section(placement_page.page(runs), REAL_NODES, other)
        PAGE.write_text(text, encoding="utf-8")
        (PAGE.parent / placement_page.RAW).write_text(placement_page.raw(runs), encoding="utf-8")
        sys.stdout.write(text)
        return
    try:
        keys = list(_asked(chosen)) if chosen.fleet else list(placement_cells.plan())
        for each in {key.fleet for key in keys}:
            fleet_of(each)
    except BadInput as error:
        sys.exit(f"placement: {error}")
    until = time.monotonic() + chosen.minutes * 60
    done = {run.key for run in read(chosen.file)}
    count, whole = len(done & set(keys)), len(keys)
    _say(f"{whole} runs, of which {count} are in {chosen.file}")
    for run in play(keys, chosen.file, jobs=chosen.jobs, until=until):
        count += 1
        its = run.key
        _say(
            f"{count}/{whole} {its.fleet} {its.mix} {its.load:.2f} {its.arm} {its.seed}: "
            f"{run.took_seconds:.1f} s"
        )


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _asked(chosen: argparse.Namespace) -> Iterator[Key]:
    """Runs of every combination, the seeds in the outermost loop."""
    for seed in range(chosen.seeds):
        for fleet in chosen.fleet:
            for mix in chosen.mix or WORKLOADS:
                for load in chosen.load or placement_cells.LOADS:
                    for arm in chosen.arm or ARMS:
                        yield Key(
                            fleet=fleet, mix=mix, load=load, arm=arm, seed=seed, pods=chosen.pods
                        )


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.placement", description=__doc__)
    what = parser.add_subparsers(dest="what", required=True)
    run = what.add_parser("run", help="play the runs of the page, or those that are asked for")
    run.add_argument("file", type=Path, help="runs are read from here and added, one a line")
    run.add_argument("--jobs", type=int, default=1, help="so many at once")
    run.add_argument("--minutes", type=float, default=float("inf"), help="begin none after these")
    run.add_argument(
        "--fleet", action="append", help="such as 24*dgx1-v100+8*hgx-h100; else the page's"
    )
    run.add_argument("--mix", action="append", choices=[*WORKLOADS], help="with --fleet; else all")
    run.add_argument("--load", action="append", type=float, help="with --fleet; else the page's")
    run.add_argument("--arm", action="append", choices=ARMS, help="with --fleet; else all")
    run.add_argument("--seeds", type=int, default=1, help="with --fleet: so many")
    run.add_argument("--pods", type=int, default=placement_cells.PODS, help="with --fleet")
    page = what.add_parser("page", help=f"write docs/{PAGE.name}")
    page.add_argument("file", type=Path, help="the runs")
    return parser.parse_args(words)


if __name__ == "__main__":
    main()
