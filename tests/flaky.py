# SPDX-License-Identifier: Apache-2.0
"""Which tests fail on a busy machine: ``make flaky`` runs ``python -m tests.flaky [N]``.

The tests that need no control plane run N times over (5 unless given) while other processes keep
every core busy. At the end: how often each test failed that ever did.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

from tests import suite
from tests.controlplane.lifetime import end_with_parent
from tests.quick_folder import quick_folder

RUNS: Final = 5
_BUSY: Final = (sys.executable, "-c", "while True: pass")
_ABOUT_TESTS: Final = (0, 1)
"""Exit codes of pytest that the tests decide; of others the run itself is at fault."""


def main(runs: int = RUNS, arguments: Sequence[str] = suite.ALL_OF_UNIT) -> int:
    """Run and report; 1 where any test or run failed. ``arguments`` are pytest's."""
    failures: Counter[str] = Counter()
    with every_core_busy(), quick_folder() as folder:
        for run in range(1, runs + 1):
            suite.say(f"run {run} of {runs}")
            report = folder.path / f"{run}.xml"
            code = suite.pytest(*arguments, f"--junitxml={report}", folder=folder.path)
            if code not in _ABOUT_TESTS:
                failures[f"pytest itself, with exit code {code}"] += 1
            if report.exists():
                failures.update(failed(report))
    for name, times in failures.most_common():
        suite.say(f"{times} of {runs} runs: {name}")
    suite.say(f"{len(failures)} tests failed in {runs} runs")
    return 1 if failures else 0


@contextlib.contextmanager
def every_core_busy() -> Iterator[None]:
    """A process for each core that computes for nothing, while the block lasts."""
    with contextlib.ExitStack() as running:
        for _ in range(os.cpu_count() or 1):
            process = running.enter_context(subprocess.Popen(_BUSY, preexec_fn=end_with_parent()))
            running.callback(process.kill)
        yield


def failed(report: Path) -> set[str]:
    """Tests of one run that failed, or whose fixtures did, from pytest's JUnit file."""
    cases = ElementTree.parse(report).iter("testcase")  # noqa: S314  # written by our own run
    return {
        f"{case.get('classname')}::{case.get('name')}"
        for case in cases
        if case.find("failure") is not None or case.find("error") is not None
    }


if __name__ == "__main__":
    try:
        sys.exit(main(int(sys.argv[1]) if sys.argv[1:] else RUNS))
    except KeyboardInterrupt:
        sys.exit(130)
