# SPDX-License-Identifier: Apache-2.0
"""``make test`` and ``make flaky`` themselves, on tests as small as can be."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests import flaky, suite
from tests.controlplane.builds import GIVEN
from tests.controlplane.programs import ROOT

TESTS = """
import pathlib, pytest

def test_unit():
    assert {unit}

@pytest.mark.cluster
def test_cluster():
    pathlib.Path({ran!r}).touch()
    assert {cluster}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project of its own, whose tests are marked as ours are."""
    monkeypatch.setenv(
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1"
    )  # none is needed, and it starts sooner
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  cluster: needs a cluster\n")
    return tmp_path


def arguments(folder: Path, *marks: str) -> list[str]:
    """Arguments of pytest for the tests there."""
    return [*marks, "-q", "-p", "no:cacheprovider", "--rootdir", str(folder), str(folder)]


@pytest.mark.parametrize(
    ("unit", "cluster", "code"), [(True, True, 0), (False, True, 1), (True, False, 1)]
)
def test_both_parts_run_and_the_worse_code_counts(
    folder: Path, unit: bool, cluster: bool, code: int
) -> None:
    ran, built = folder / "ran", folder / "built"
    text = TESTS.format(unit=unit, cluster=cluster, ran=str(ran))
    (folder / "test_parts.py").write_text(text)

    ended = suite.main(
        arguments(folder, "-m", "not cluster"),
        arguments(folder, "-m", "cluster"),
        [sys.executable, "-c", f"import pathlib; pathlib.Path({str(built)!r}).touch()"],
    )

    assert (ended, ran.exists(), built.exists()) == (code, True, True)


def test_a_part_that_never_got_to_its_tests_is_worse_than_failed_tests(folder: Path) -> None:
    (folder / "test_broken.py").write_text("def test_one(): assert False")
    ended = suite.main(
        arguments(folder), [*arguments(folder), "--no-such-option"], [sys.executable, "-c", ""]
    )
    assert ended == 4  # pytest's usage error


def test_why_there_is_no_control_plane_is_printed_last(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (folder / "test_one.py").write_text("def test_one(): pass")
    script = "import sys; sys.exit('no compiler')"
    suite.main(arguments(folder), arguments(folder), [sys.executable, "-c", script])
    assert capfd.readouterr().out.endswith("could not be prepared:\nno compiler\n")


WRITES = """
import pathlib
def test_one(tmp_path):
    (tmp_path / "written").touch()
    pathlib.Path({told!r}).write_text(str(tmp_path))
    assert {good}
"""


@pytest.mark.parametrize("good", [True, False])
def test_what_a_test_wrote_stays_where_it_failed_and_nothing_else(
    folder: Path, capfd: pytest.CaptureFixture[str], good: bool
) -> None:
    told = folder / "told"
    (folder / "test_one.py").write_text(WRITES.format(told=str(told), good=good))
    policy = ("-o", "tmp_path_retention_policy=failed")
    code = suite.main(arguments(folder, *policy), ["--version"], [sys.executable, "-c", ""])
    wrote = Path(told.read_text())
    assert (code, (wrote / "written").exists()) == ((0, False) if good else (1, True))
    _, said, place = capfd.readouterr().out.rpartition("until the next run: ")
    assert wrote.is_relative_to(place.strip()) == (not good) == bool(said)
    if not good:
        shutil.rmtree(place.strip())


def test_how_often_each_test_failed_is_counted(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    first = folder / "first"
    (folder / "test_some.py").write_text(f"""
import pathlib, pytest
first = pathlib.Path({str(first)!r})

@pytest.fixture
def broken():
    raise OSError

def test_good(): pass
def test_bad(): assert False
def test_without_its_fixture(broken): pass
def test_flaky():
    was_there = first.exists()
    first.touch()
    assert was_there
""")
    assert flaky.main(2, arguments(folder)) == 1
    lines = capfd.readouterr().out.splitlines()
    assert lines[-1] == "3 tests failed in 2 runs"
    assert lines[-2] == "1 of 2 runs: test_some::test_flaky"
    assert set(lines[-4:-2]) == {
        "2 of 2 runs: test_some::test_bad",
        "2 of 2 runs: test_some::test_without_its_fixture",
    }


def test_a_run_without_failures_is_a_success(folder: Path) -> None:
    (folder / "test_one.py").write_text("def test_one(): pass")
    assert flaky.main(1, arguments(folder)) == 0


def test_a_run_that_breaks_off_is_no_success(folder: Path) -> None:
    (folder / "test_one.py").write_text("import os\ndef test_one(): os._exit(3)")
    assert flaky.main(1, arguments(folder)) == 1


def test_cores_are_busy_while_it_runs_and_no_longer() -> None:
    me = psutil.Process()
    before = set(me.children())
    with flaky.every_core_busy():
        busy = set(me.children()) - before
        assert len(busy) == psutil.cpu_count()
        assert all(process.is_running() for process in busy)
    assert not set(me.children()) & busy


@pytest.mark.long
def test_every_module_is_loaded_where_nothing_is_built_yet(tmp_path: Path) -> None:
    """As on a fresh machine, where the first part begins while the control plane is built."""
    command = (sys.executable, "-m", "pytest", "--collect-only", "-qq", "-n", "0")
    environment = {**os.environ, GIVEN: str(tmp_path)}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout[-2000:]
