# SPDX-License-Identifier: Apache-2.0
"""The whole list of faults against the real agent at default settings, and a page about it.

``python -m tests.faults.fault_run [GPUSCAPE...]`` writes docs/fault-run.md. Each argument is
gpuscape as installed for one Python, run at once with the others; without any it is this Python's.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.agent.agent_process import GPUSCAPE
from tests.bench.page import Section, table
from tests.cluster.agents import Site
from tests.controlplane.plane import Plane
from tests.faults.fault_list import FAULTS
from tests.faults.scene import DEFAULT, Pace, in_cluster, standalone
from tests.faults.trial import RECOVERY_SECONDS, SCRAPE_SECONDS, Outcome, trial

MACHINE: Final = "dgx-a100"
PAGE: Final = Path(__file__).parents[2] / "docs" / "fault-run.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRun:
    """What became of the list with one Python."""

    python: str
    outcomes: tuple[Outcome, ...]

    @property
    def failures(self) -> tuple[str, ...]:
        """All broken promises, in words."""
        return tuple(
            f"Python {self.python}: {', '.join(outcome.faults)}: {failure}"
            for outcome in self.outcomes
            for failure in outcome.failures
        )


def run(program: Path = GPUSCAPE, *, machine: str = MACHINE, pace: Pace = DEFAULT) -> FaultRun:
    """Each fault by itself: those of the node without a cluster, those of the API server in one."""
    outcomes = []
    with (
        tempfile.TemporaryDirectory() as folder,
        standalone(machine, pace, Path(folder), program=program) as scene,
    ):
        outcomes += [trial(scene, [it]) for it in FAULTS if not it.in_cluster]
    with (
        tempfile.TemporaryDirectory() as folder,
        tempfile.TemporaryDirectory() as plane_folder,
        Plane.start(Path(plane_folder), controller_manager=False) as plane,
        in_cluster(
            Site.create(plane, "gpuscape"), machine, pace, Path(folder), program=program
        ) as scene,
    ):
        outcomes += [trial(scene, [it]) for it in FAULTS if it.in_cluster]
    return FaultRun(python=_python(program), outcomes=tuple(outcomes))


def _python(program: Path) -> str:
    """The version of the Python that a program is installed for."""
    ask = [
        str(program.with_name("python")),
        "-c",
        "import platform as p; print(p.python_version())",
    ]
    return subprocess.run(ask, check=True, capture_output=True, text=True).stdout.strip()


def page(runs: Sequence[FaultRun], machine: str) -> str:
    """What came out, for people."""
    head = (
        "# A run of all faults\n\n"
        "Written by `make long`: `tests/faults/fault_run.py`. Each fault of "
        "`tests/faults/fault_list.py` befalls an agent at default intervals on a simulated "
        f"{MACHINE} for {DEFAULT.hold_seconds:g} s or more, those of the node without a cluster, "
        f"those of the API server in one. The agent is scraped every {SCRAPE_SECONDS:g} s, every "
        "other time compressed, each time with a liveness probe; a scrape is lost where either has "
        "no whole answer. All GPUs measure another power and energy every "
        f"{DEFAULT.sample_seconds / 4:g} s, no two the same; a value in a scrape that its GPU has "
        "not measured within the three sampling intervals before it is wrong. While a fault lasts, "
        "each GPU that it leaves alone must be read anew. Recovery is the time from a fault's end "
        "until every GPU was read anew, its pod is known again, and labels are as before; then "
        "descriptors, threads and children must come back to what they were. This run: "
        f"{machine}.\n"
    )
    return "\n".join([head, table(_promises(runs)), table(_recoveries(runs))])


def _promises(runs: Sequence[FaultRun]) -> Section:
    def row(what: str, counts: Iterable[object]) -> tuple[str, ...]:
        return (what, *(f"{count}" for count in counts))

    every = [run.outcomes for run in runs]
    return Section(
        title="Promises",
        text="Over all faults.",
        columns=("", *(f"Python {run.python}" for run in runs)),
        rows=(
            row("faults", (len(of) for of in every)),
            row("scrapes", (sum(it.scrapes for it in of) for of in every)),
            row("scrapes lost", (sum(len(it.lost) for it in of) for of in every)),
            row("wrong values shown", (sum(len(it.untrue) for it in of) for of in every)),
            row(
                f"slowest recovery (at most {RECOVERY_SECONDS:g} s)",
                (f"{max(it.recovery_seconds for it in of):.0f} s" for of in every),
            ),
            row(
                "descriptors, threads or children not as before, readings missing",
                (sum(len(it.broken) for it in of) for of in every),
            ),
        ),
    )


def _recoveries(runs: Sequence[FaultRun]) -> Section:
    rows = zip(*(run.outcomes for run in runs), strict=True)
    return Section(
        title="Recovery",
        text="By fault; scrapes during it are in brackets.",
        columns=("fault", *(f"Python {run.python}" for run in runs)),
        rows=tuple(
            (
                ", ".join(row[0].faults),
                *(f"{it.recovery_seconds:.1f} s ({it.scrapes})" for it in row),
            )
            for row in rows
        ),
    )


def main() -> int:
    """Run, write the page and name what broke."""
    programs = [Path(program) for program in sys.argv[1:]] or [GPUSCAPE]
    with ThreadPoolExecutor(len(programs)) as pool:
        runs = list(pool.map(run, programs))
    machine = f"{os.cpu_count()} cores ({platform.machine()}), {platform.system()}"
    PAGE.write_text(page(runs, machine), encoding="utf-8")
    failures = [failure for each in runs for failure in each.failures]
    sys.stdout.write("".join(f"{line}\n" for line in failures))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
