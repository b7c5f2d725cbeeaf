# SPDX-License-Identifier: Apache-2.0
"""Programs that are held for a test, and how they end."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.controlplane.programs import ROOT, ProgramError, Programs
from tests.controlplane.supervisor import Supervisor

SECONDS = 180.0
SLEEP = ("sleep", "600")

STARTER = """
import sys, time
from pathlib import Path
from tests.controlplane.programs import Programs
programs = Programs(Path(sys.argv[1]), until=int(sys.argv[2]) if sys.argv[2:] else None)
programs.remove(Path(sys.argv[1]))
print(programs.start("sleeper", ["sleep", "600"]), flush=True)
{then}
"""


def eventually(holds: Callable[[], bool]) -> bool:
    """Whether it holds before the time is up."""
    deadline = time.monotonic() + SECONDS
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


@contextmanager
def starter(
    folder: Path, then: str, *arguments: str
) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Another process that starts a program and goes on like that; it, and the program's id."""
    command = [sys.executable, "-c", STARTER.format(then=then), str(folder), *arguments]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            yield process, int(process.stdout.readline())
        finally:
            process.kill()


def test_a_program_ends_with_the_block(tmp_path: Path) -> None:
    with Programs(tmp_path) as programs:
        pid = programs.start("sleeper", SLEEP)
        assert psutil.Process(pid).cmdline() == list(SLEEP)

    assert not psutil.pid_exists(pid)


@pytest.mark.parametrize("then", ["time.sleep(600)", "programs.leave(); time.sleep(600)"])
def test_nothing_is_left_of_a_process_that_is_killed(tmp_path: Path, then: str) -> None:
    folder = tmp_path / "held"
    with starter(folder, then) as (killed, pid):
        assert folder.is_dir()

        killed.kill()

        assert eventually(lambda: not psutil.pid_exists(pid))
        assert eventually(lambda: not folder.exists())


def test_the_kernel_ends_programs_whose_supervisor_is_killed(tmp_path: Path) -> None:
    with starter(tmp_path / "held", "time.sleep(600)") as (_, pid):
        program = psutil.Process(pid)
        supervisor = program.parent()
        assert supervisor

        supervisor.kill()

        assert eventually(lambda: not program.is_running())


def test_what_is_left_lives_until_the_process_it_was_left_to_ends(tmp_path: Path) -> None:
    with subprocess.Popen(SLEEP) as run:
        try:
            with starter(tmp_path / "held", "programs.leave()", str(run.pid)) as (process, pid):
                process.wait()
            left = psutil.pid_exists(pid)
        finally:
            run.kill()

    assert left
    assert eventually(lambda: not psutil.pid_exists(pid))


def test_a_program_that_ends_is_explained_by_its_last_lines(tmp_path: Path) -> None:
    with Programs(tmp_path) as programs:
        programs.start("broken", ["sh", "-c", "echo no such flag; exit 3"])

        with pytest.raises(ProgramError, match=r"broken ended with 3; .*\n    no such flag"):
            programs.wait("broken", lambda: False)


def test_a_program_that_is_never_ready_is_given_up(tmp_path: Path) -> None:
    with Programs(tmp_path) as programs:
        programs.start("sleeper", SLEEP)

        with pytest.raises(ProgramError, match="sleeper is not ready"):
            programs.wait("sleeper", lambda: False, seconds=0)


def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    with Programs(tmp_path) as programs, pytest.raises(ProgramError, match="no-such-program"):
        programs.start("missing", ["no-such-program"])


def test_one_that_does_not_stop_when_asked_is_killed(tmp_path: Path) -> None:
    with Programs(tmp_path) as programs:
        programs.start("deaf", ["sh", "-c", "trap '' TERM; echo deaf; while :; do sleep 1; done"])
        assert eventually(lambda: "deaf" in programs.log("deaf").read_text())

        assert programs.stop("deaf", patience_seconds=0.1) == -signal.SIGKILL


def test_programs_end_in_the_reverse_order_of_their_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = list[str]()

    class Recorded:
        def __init__(self, command: list[str], **_: Any) -> None:
            self.pid, self.name = 1, command[0]

        def send_signal(self, how: int) -> None:
            assert how == signal.SIGKILL

        def wait(self, _: float | None) -> int:
            ended.append(self.name)
            return 0

    monkeypatch.setattr(subprocess, "Popen", Recorded)
    held = Supervisor()
    for name in ("etcd", "kube-apiserver", "kube-scheduler"):
        log = str(tmp_path / "log")
        held.obey({"start": name, "command": [name], "log": log, "cwd": "/", "environment": {}})

    held.end()

    assert ended == ["kube-scheduler", "kube-apiserver", "etcd"]


@pytest.mark.parametrize(("code", "started"), [(2, 3), (1, 1), (0, 1)])
def test_a_program_has_as_many_lives_as_it_is_given_and_loses_them_by_crashing(
    tmp_path: Path, code: int, started: int
) -> None:
    told = tmp_path / "told"
    with Programs(tmp_path) as programs:
        programs.start("crasher", ("sh", "-c", f"echo >> {told}; exit {code}"), lives=3)
        assert eventually(lambda: told.exists() and len(told.read_text()) == started)
        programs.start("later", ("sh", "-c", f"echo done > {tmp_path / 'later'}; exit {code}"))
        assert eventually((tmp_path / "later").exists)

        assert programs.code("crasher") == code
    assert len(told.read_text()) == started
