# SPDX-License-Identifier: Apache-2.0
"""Run benchmarks and write their pages in docs/: ``python -m tests.bench.report [PAGE...]``."""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from tests.bench import (
    container,
    cpu,
    exporters,
    extender,
    extender_memory,
    faults,
    fleet,
    growth,
    hung_start,
    memory,
    render,
    serving,
    throughput,
)
from tests.bench.mig_changes import durations, mode_sections, side_by_side
from tests.bench.page import MEDIANS, Section, page, table

DOCS = Path(__file__).parents[2] / "docs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One page of figures, measured in one run."""

    title: str
    sections: tuple[Callable[[], Section], ...]
    """Each measures when called. A new one is a function in a module here, named in PAGES."""
    how: str = MEDIANS
    """How the figures come about, in whole sentences."""


PAGES: Mapping[str, Page] = {
    "benchmarks": Page(
        title="Benchmarks",
        sections=(
            render.section,
            exporters.full,
            exporters.whole,
            cpu.section,
            growth.section,
            serving.section,
            memory.section,
            container.section,
            faults.section,
            hung_start.section,
            fleet.section,
        ),
    ),
    "scheduler-benchmarks": Page(
        title="What the scheduler extender costs kube-scheduler",
        sections=(
            throughput.hundreds,
            extender.answers,
            extender_memory.section,
            throughput.thousands,
        ),
    ),
    "mig-benchmarks": Page(
        title="Changes of MIG layouts, side by side",
        sections=(
            side_by_side.idle,
            side_by_side.busy,
            mode_sections.parts,
            mode_sections.ampere_resets,
            mode_sections.ampere_reset_required,
            mode_sections.hopper,
            durations.section,
        ),
        how=side_by_side.HOW,
    ),
}
"""By the names of their files in docs/."""


def machine() -> str:
    """What the figures depend on, said so that it names nobody's machine."""
    return (
        f"{os.cpu_count()} cores ({platform.machine()}), {platform.system()}, "
        f"Python {platform.python_version()}, prometheus_client {version('prometheus-client')}"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, show and write the pages named, else all."""
    for name in _asked(arguments) or PAGES:
        asked = PAGES[name]
        sections: list[Section] = []
        for measure in asked.sections:
            sections.append(measure())
            sys.stdout.write(f"{table(sections[-1])}\n")
            sys.stdout.flush()
            # at once: all of them take a quarter of an hour and more, and a later one may fail
            text = page(asked.title, machine(), sections, asked.how)
            (DOCS / f"{name}.md").write_text(text, encoding="utf-8")


def _asked(arguments: Sequence[str] | None) -> list[str]:
    """The pages named; ends the program for one that is not known."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.report",
        description="Run benchmarks and write their pages in docs/; a page takes a quarter of an"
        " hour or more.",
    )
    known = ", ".join(PAGES)
    parser.add_argument("page", nargs="*", metavar="PAGE", help=f"{known}; all unless given")
    names: list[str] = parser.parse_args(arguments).page
    for name in names:
        if name not in PAGES:
            parser.error(f"there is no page {name}; the pages are {known}")
    return names


if __name__ == "__main__":
    main()
