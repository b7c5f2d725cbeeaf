# SPDX-License-Identifier: Apache-2.0
"""500 SIGKILLs in the middle of MIG changes: ``python -m tests.actuator.kill_run`` writes
docs/mig-kills.md.

    --only worker,agent    these programs alone
    --parts 0-3            these parts of 25 kills alone; several runs may go on side by side
    --anew                 also parts of which build/mig-kills has all figures
    --page                 nothing is killed: the page of the figures that there are

Figures are kept in build/mig-kills after each kill. An assertion that fails ends the program.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from tests.actuator.drawn_changes import KillFigures, joined
from tests.actuator.killed_changes import kill_actuators, kill_workers
from tests.bench.page import Section, section_of, table, with_section
from tests.cluster.killed_programs import kill_programs

PAGE: Final = Path(__file__).parents[2] / "docs" / "mig-kills.md"
HEAD: Final = (
    "# MIG changes whose programs are killed\n\n"
    "Written by `.venv/bin/python -m tests.actuator.kill_run`, which `make long` calls. A "
    "simulated node has three A100. A seed draws layouts for two or three of them; eight of the "
    "fourteen layouts divide GPU instances into compute instances. Each change begins in the "
    "layout in which the one before ended. At every fourth kill one of its GPUs falls off the "
    "bus.\n\n"
    "The simulator's state file and the journal are the judges. Every change has to end: each GPU "
    "that is not lost has the desired layout. "
    "GPUs outside the change are as they were. The change is stuck on the lost GPU only: another "
    "GPU accepts a new layout meanwhile. Then the lost GPU gets its previous layout, or is given "
    "up. A worker that loops would make more than 400 calls. The run stops at the first change "
    "that ends otherwise, so these tables have none.\n"
)
MODES: Final = "Modes of Ampere GPUs"
"""Section that :mod:`tests.actuator.mode_run` writes, and this program leaves as it is."""
RESULTS: Final = PAGE.parents[1] / "build" / "mig-kills"
SEED: Final = 20261127
PART: Final = 25
"""Kills on one node."""

Kill = Callable[[Path, int, int], Iterator[KillFigures]]
"""Kills programs of one node, by its folder, a seed and how often; the figures after each kill."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KilledProgram:
    """A section of the page."""

    kills: int
    """As often as the page is to have."""
    text: str
    kill: Kill


PROGRAMS: Final = {
    "worker": KilledProgram(
        kills=300,
        text="The worker is the process that changes the GPUs. It is killed before or after one of"
        " its effects: a call that changes a GPU, or a write of the journal. In one of five"
        " changes the next worker is killed as well.",
        kill=kill_workers,
    ),
    "actuator": KilledProgram(
        kills=150,
        text="`gpuscape actuator` is killed when its journal has the change and up to nine steps"
        " were taken, every second time with its worker, as a container is. The next actuator ends"
        " the change by itself.",
        kill=kill_actuators,
    ),
    "agent": KilledProgram(
        kills=25,
        text="`gpuscape agent` is killed, with agent, actuator and coordinator as programs on an"
        " API server: after its request, after the permit, or while GPUs change. A lost GPU"
        " answers again after a while. At the end the Node is not cordoned.",
        kill=lambda folder, *how: kill_programs(folder, "agent", *how),
    ),
    "coordinator": KilledProgram(
        kills=25,
        text="`gpuscape coordinator` is killed at the same moments.",
        kill=lambda folder, *how: kill_programs(folder, "coordinator", *how),
    ),
}


def run(name: str, part: int) -> None:
    """Kill one of the programs on one node, and keep the figures after each kill."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="killed-") as folder:
        for figures in PROGRAMS[name].kill(Path(folder), SEED + part, PART):
            keep(name, part, figures)
    print_line(f"{name}, part {part}: {time.monotonic() - begun:.0f} s")


def keep(name: str, part: int, figures: KillFigures) -> None:
    """Put the figures of a part in the place of those before."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    new = RESULTS / f".{name}-{part}"
    new.write_bytes(msgspec.json.encode(figures))
    new.replace(RESULTS / f"{name}-{part}.json")


def kept(name: str, part: int) -> KillFigures:
    """What was kept of a part; nothing where it was not run."""
    file = RESULTS / f"{name}-{part}.json"
    return (
        msgspec.json.decode(file.read_bytes(), type=KillFigures) if file.exists() else KillFigures()
    )


def page() -> str:
    """The page, of what is kept."""
    sections, done, whole = [], 0, 0
    for name, program in PROGRAMS.items():
        figures = KillFigures()
        for part in range(program.kills // PART):
            figures = joined(figures, kept(name, part))
        done, whole = done + figures.kills, whole + program.kills
        if figures.kills:
            sections.append(table(section(name, figures)))
    return "\n".join((HEAD, f"This run has {done} SIGKILLs; a whole one has {whole}.\n", *sections))


def section(name: str, figures: KillFigures) -> Section:
    """One program's part of the page."""
    rows = {
        "SIGKILLs": figures.kills,
        "with GPU instances divided into compute instances": figures.parts,
        "with a GPU lost": figures.lost,
        "killed before the journal had the change": figures.unbegun,
        "applied": figures.applied,
        "rolled back": figures.previous,
        "stuck on the lost GPU only, the others applied": figures.held,
        "of these, given up; the rest got their previous layout": figures.given_up,
        "slowest outcome after the kill": f"{figures.slowest_seconds:.0f} s",
    }
    if figures.most_effects:
        rows["most effects of one worker"] = figures.most_effects
    return Section(
        title=f"The {name}",
        text=PROGRAMS[name].text,
        rows=tuple((label, str(figure)) for label, figure in rows.items()),
    )


def main(words: Sequence[str] | None = None) -> None:
    """Kill the programs and write what came of it into the page."""
    parser = argparse.ArgumentParser(prog="python -m tests.actuator.kill_run", description=__doc__)
    parser.add_argument("--only", default=",".join(PROGRAMS), metavar="PROGRAM,…")
    parser.add_argument("--parts", default="0-", metavar="FIRST-LAST")
    parser.add_argument("--anew", action="store_true")
    parser.add_argument("--page", action="store_true")
    options = parser.parse_args(words)
    names = options.only.split(",")
    if unknown := sorted(set(names) - PROGRAMS.keys()):
        parser.error(f"no program {', '.join(unknown)}; there are {', '.join(PROGRAMS)}")
    logging.disable(logging.CRITICAL)  # faults that are meant are logged too
    first, last = options.parts.split("-")
    for name in () if options.page else names:
        most = PROGRAMS[name].kills // PART - 1
        for part in range(int(first), min(int(last or most), most) + 1):
            if options.anew or kept(name, part).kills < PART:
                run(name, part)
    modes = section_of(PAGE.read_text("utf-8"), MODES)
    PAGE.write_text(with_section(page(), MODES, modes), encoding="utf-8")


def print_line(line: str) -> None:
    """Print at once, whatever takes the output."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
