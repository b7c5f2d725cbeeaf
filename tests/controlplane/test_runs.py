# SPDX-License-Identifier: Apache-2.0
"""Whole test runs: one that is killed, and one that has no control plane."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.controlplane.builds import GIVEN
from tests.controlplane.programs import ROOT

SECONDS = 180.0

WAITS = """
import time

def test_that_never_ends(plane):
    print(plane.folder)
    with open({file!r}, "w") as file:
        file.write(str(plane.folder))
    time.sleep(600)
"""

WANTS = """
import pytest

from tests.controlplane.plane import Plane

def test_with_the_shared_one(plane):
    pass

def test_with_its_own(tmp_path):
    with Plane.start(tmp_path):
        pass

def test_with_none():
    pass
"""


@contextmanager
def run(tests: Path, *options: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """A test run of one file, with our fixtures and none of our options."""
    (tests.parent / "pytest.ini").write_text("[pytest]\nmarkers = cluster\n")
    command = [sys.executable, "-m", "pytest", "-p", "tests.controlplane.fixtures", *options]
    outer = {name: value for name, value in os.environ.items() if "PYTEST" not in name}
    with subprocess.Popen(
        [*command, f"--rootdir={tests.parent}", "-c", tests.parent / "pytest.ini", tests],
        cwd=ROOT,
        env={**outer, **environment},
        stdout=subprocess.PIPE,
        text=True,
    ) as started:
        try:
            yield started
        finally:
            started.kill()


def programs_of(folder: str) -> list[int]:
    """Processes whose command line names that folder."""
    found = psutil.process_iter(["pid", "cmdline"])
    return [p.pid for p in found if any(folder in part for part in p.info["cmdline"] or ())]


@pytest.mark.cluster
def test_a_killed_run_leaves_no_process_and_no_store(tmp_path: Path, plane: object) -> None:
    """With workers: the one that started the plane is not the one that is killed."""
    del plane  # so that this one is skipped as well where nothing is built
    tests, told = tmp_path / "test_waits.py", tmp_path / "told"
    tests.write_text(WAITS.format(file=str(told)))
    with run(
        tests, "-n", "1", f"--basetemp={tmp_path / 'run'}", "-p", "no:cacheprovider"
    ) as started:
        deadline = time.monotonic() + SECONDS
        while not (told.exists() and told.read_text()):
            assert time.monotonic() < deadline
            assert started.poll() is None
            time.sleep(0.1)
        folder = told.read_text()
        assert len(programs_of(folder)) == 3  # store, API server, controllers

        started.kill()

    while programs_of(folder) or Path(folder, "etcd").exists():
        assert time.monotonic() < deadline + SECONDS
        time.sleep(0.1)


def test_a_run_without_the_control_plane_says_so_last(tmp_path: Path) -> None:
    tests = tmp_path / "test_wants.py"
    tests.write_text(WANTS)

    with run(tests, **{GIVEN: str(tmp_path), "CI": ""}) as started:
        said, _ = started.communicate()

    assert started.returncode == 0
    assert "1 passed, 2 skipped" in said
    assert said.splitlines()[-2:] == [
        "2 tests skipped for want of what they run on: test_wants.py (2)",
        "  etcd is not built: make controlplane (once, docs/testing.md says more)",
    ]


def test_in_ci_a_run_without_the_control_plane_fails(tmp_path: Path) -> None:
    tests = tmp_path / "test_wants.py"
    tests.write_text(WANTS)

    with run(tests, **{GIVEN: str(tmp_path), "CI": "true"}) as started:
        said, _ = started.communicate()

    assert started.returncode == 1
    assert said.splitlines()[-2:] == [
        "2 tests failed for want of what they run on: test_wants.py (2)",
        "  etcd is not built: make controlplane (once, docs/testing.md says more)",
    ]
