# SPDX-License-Identifier: Apache-2.0
"""Tests in two sizes, the control plane being built meanwhile.

``make test`` runs ``python -m tests.suite``: the quick tests. ``make test-rest`` runs ``python -m
tests.suite rest``: all others (tests/sizes.py). Of each size first the tests that do without the
control plane, then, when it is ready, those that need it: each part runs whatever came of the
other. Where it cannot be built the latter are skipped, or fail with CI=true; the reason is printed
last.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.controlplane.builds import find
from tests.controlplane.families import ALL, Family
from tests.controlplane.lifetime import end_with_parent
from tests.quick_folder import quick_folder
from tests.sizes import QUICK, QUICK_FAMILIES, REST, Size

WORKERS: Final = 2 * (os.cpu_count() or 1)
"""More than cores: a test waits half of its time, for programs that it started."""
CLUSTER_WORKERS: Final = min(WORKERS, 4)
"""Each may have a control plane and nodes of its own, a gigabyte together."""
_UNIT_WORKERS: Final = ("-n", str(WORKERS), "--dist", "worksteal")
UNIT: Final = ("-m", "not cluster and not gpu and not long and not rest", *_UNIT_WORKERS)
ALL_OF_UNIT: Final = ("-m", "not cluster and not gpu and not long", *_UNIT_WORKERS)
REST_OF_UNIT: Final = ("-m", "rest and not cluster and not gpu and not long", *_UNIT_WORKERS)
# a module's tests stay together: some start a plane of their own for all of them; the modules
# come in the order that tests/conftest.py gives them
_CLUSTER_WORKERS: Final = (
    *("-n", str(CLUSTER_WORKERS), "--dist", "loadscope", "--no-loadscope-reorder"),
    *("-p", "no:schemathesis"),  # takes a second to load, in each worker, and nobody uses it here
)
CLUSTER: Final = ("-m", "cluster and not gpu and not long and not rest", *_CLUSTER_WORKERS)
REST_OF_CLUSTER: Final = ("-m", "cluster and rest and not gpu and not long", *_CLUSTER_WORKERS)
PREPARE_ALL: Final = (sys.executable, "-m", "tests.controlplane.prepare")
PREPARE: Final = (*PREPARE_ALL, "--only", ",".join(family.name for family in QUICK_FAMILIES))
_POLL_SECONDS: Final = 0.5
_KILLED: Final = 128
"""What a shell adds to the number of the signal that ended a program."""


def main(
    unit: Sequence[str] = UNIT, cluster: Sequence[str] = CLUSTER, prepare: Sequence[str] = PREPARE
) -> int:
    """Run both parts and return the worse exit code.

    ``unit`` and ``cluster`` are pytest's arguments, ``prepare`` is the command that builds what
    the second part needs.
    """
    with quick_folder() as folder:
        log = folder.path / "prepare.log"
        building = start(prepare, log)
        try:
            code = pytest(*unit, folder=folder.path)
            follow(building, log)
        finally:
            building.terminate()
            building.wait()
        code = max(code, pytest(*cluster, folder=folder.path))
        if code:
            folder.keep = True
            say(f"\nwhat the failed tests wrote, until the next run: {folder.path}")
        if building.returncode:
            say(f"\nthe control plane could not be prepared:\n{log.read_text().rstrip()}")
        return code


def start(command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """Start a program that writes into ``log``; it ends with us."""
    with log.open("w") as output:
        return subprocess.Popen(
            command, stdout=output, stderr=output, preexec_fn=end_with_parent(signal.SIGTERM)
        )


def follow(building: subprocess.Popen[bytes], log: Path) -> None:
    """Show what was built so far, and then its progress until it has ended."""
    with log.open() as lines:
        ended = False
        while not ended:
            ended = building.poll() is not None
            for line in lines:
                say(line.rstrip())
            time.sleep(0 if ended else _POLL_SECONDS)


def pytest(*arguments: str, folder: Path) -> int:
    """Run pytest, which writes into ``folder`` alone; its exit code, as a shell gives it."""
    base = tempfile.mkdtemp(dir=folder, prefix="")
    command = [sys.executable, "-m", "pytest", f"--basetemp={base}", *arguments]
    environment = {**os.environ, "TMPDIR": str(folder)}
    ended = subprocess.run(command, check=False, env=environment, preexec_fn=end_with_parent())
    code = ended.returncode
    return code if code >= 0 else _KILLED - code


def say(text: str) -> None:
    """One line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def announce(size: Size, families: Sequence[Family]) -> None:
    """Say how long a run takes, and what is built and downloaded before it."""
    say(f"{size.title}: about {size.minutes} minutes on two free cores")
    if missing := [family for family in families if find(family) is None]:
        minutes = sum(family.minutes for family in missing)
        say(
            f"and once {minutes} more: {len(missing)} of the {len(families)} parts of the control"
            f" plane are built, for which up to {size.megabytes} MB of sources are downloaded"
        )


if __name__ == "__main__":
    try:
        if sys.argv[1:] == ["rest"]:
            announce(REST, ALL)
            sys.exit(main(REST_OF_UNIT, REST_OF_CLUSTER, PREPARE_ALL))
        announce(QUICK, QUICK_FAMILIES)
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)  # pytest has said what there is to say
