# SPDX-License-Identifier: Apache-2.0
"""Run benchmarks and write their pages in docs/: ``python -m tests.bench.report [PAGE...]``."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Mapping
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
    memory,
    render,
    serving,
    throughput,
)
from tests.bench.mig_changes import side_by_side
from tests.bench.page import Section, page, table

DOCS = Path(__file__).parents[2] / "docs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One page of figures, measured in one run."""

    title: str
    sections: tuple[Callable[[], Section], ...]
    """Each measures when called. A new one is a function in a module here, named in PAGES."""


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
            fleet.section,
        ),
    ),
    "scheduler-benchmarks": Page(
        title="What the scheduler's helper costs kube-scheduler",
        sections=(
            throughput.hundreds,
            extender.answers,
            extender_memory.section,
            throughput.thousands,
        ),
    ),
    "mig-benchmarks": Page(
        title="Changes of MIG layouts, side by side",
        sections=(side_by_side.idle, side_by_side.busy),
    ),
}
"""By the names of their files in docs/."""


def machine() -> str:
    """What the figures depend on, said so that it names nobody's machine."""
    return (
        f"{os.cpu_count()} cores ({platform.machine()}), {platform.system()}, "
        f"Python {platform.python_version()}, prometheus_client {version('prometheus-client')}"
    )


def main() -> None:
    """Measure, show and write the pages named, else all."""
    for name in sys.argv[1:] or PAGES:
        asked = PAGES[name]
        sections: list[Section] = []
        for measure in asked.sections:
            sections.append(measure())
            sys.stdout.write(f"{table(sections[-1])}\n")
            sys.stdout.flush()
            # at once: all of them take a quarter of an hour and more, and a later one may fail
            text = page(asked.title, machine(), sections)
            (DOCS / f"{name}.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
