# SPDX-License-Identifier: Apache-2.0
"""The folder of a run: where it is, and when it goes."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests import quick_folder as place
from tests.controlplane.lifetime import end_with_parent

HOLD = """
import sys, pathlib
from tests.quick_folder import quick_folder
with quick_folder(pathlib.Path(sys.argv[1])) as folder:
    print(folder.path, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place that is taken for one in memory, however small."""
    monkeypatch.setattr(place, "_ROOM_BYTES", 0)
    monkeypatch.setattr(place, "_FORBIDDEN", 0)
    return tmp_path


def test_it_is_in_memory_and_gone_afterwards(memory: Path) -> None:
    with place.quick_folder(memory) as folder:
        assert folder.path.parent == memory
        (folder.path / "file").touch()
    assert list(memory.iterdir()) == []


def test_what_is_kept_stays_until_the_next_run(memory: Path) -> None:
    with place.quick_folder(memory) as folder:
        folder.keep = True
    assert list(memory.iterdir()) == [folder.path]
    with place.quick_folder(memory):
        assert not folder.path.exists()


def test_a_killed_runs_folder_goes_and_a_running_ones_stays(
    memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(memory))  # for one that finds too little room
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(memory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=end_with_parent(),
    ) as running:
        assert running.stdout is not None
        theirs = Path(running.stdout.readline().strip())
        with place.quick_folder(memory):
            assert theirs.is_dir()
        running.kill()
        running.wait()
    assert theirs.is_dir()
    with place.quick_folder(memory):
        assert not theirs.exists()


def test_without_room_in_memory_it_is_where_temporary_files_are(
    memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, "_ROOM_BYTES", 1 << 62)
    monkeypatch.setattr(tempfile, "tempdir", str(memory / "tmp"))
    (memory / "tmp").mkdir()
    for missing in (memory, memory / "absent"):
        with place.quick_folder(missing) as folder:
            assert folder.path.parent == memory / "tmp"
