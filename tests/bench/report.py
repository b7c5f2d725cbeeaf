"""Run all benchmarks and write docs/benchmarks.md: ``python -m tests.bench.report``."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from tests.bench import exporters, faults, fleet, growth, memory, render, serving
from tests.bench.page import Section, page

BENCHMARKS: tuple[Callable[[], Section], ...] = (
    render.section,
    exporters.full,
    exporters.whole,
    growth.section,
    serving.section,
    memory.section,
    faults.section,
    fleet.section,
)
"""Each measures when called. A new one is a module with a ``section`` function, named here."""

PAGE = Path(__file__).parents[2] / "docs" / "benchmarks.md"


def machine() -> str:
    """What the figures depend on, said so that it names nobody's machine."""
    return (
        f"{os.cpu_count()} cores ({platform.machine()}), {platform.system()}, "
        f"Python {platform.python_version()}, prometheus_client {version('prometheus-client')}"
    )


def main() -> None:
    """Measure, write the page and show it."""
    text = page(machine(), [benchmark() for benchmark in BENCHMARKS])
    PAGE.write_text(text, encoding="utf-8")
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
