# SPDX-License-Identifier: Apache-2.0
"""Processes that a first process inherits are collected, and its own keep their exit status.

The first process of a real PID namespace is judged by /proc: who is a zombie, and whose child.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from base import threads
from base.process import orphans
from gpuscape import __main__ as program
from gpuscape.isolation import PACKAGES

ROOT = Path(__file__).resolve().parents[3]
SECONDS = 120.0
PROGRAMS = ("agent", "actuator", "coordinator", "dcgm-exporter", "scheduler")
COMMANDS = "cli"
"""The package of what a person runs, which starts programs too."""

SCENE = """
import json, os, subprocess, sys, time
from base.process import orphans
from base.process.orphans import OwnProcess
orphans.POLL_SECONDS = 0.05
how = sys.argv[1]
if how == "subreaper":
    import ctypes
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
def children(state=None):
    found = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = open(f"/proc/{name}/stat").read().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == os.getpid() and state in (None, fields[0]):
            found[int(name)] = fields[0]
    return found
def until(true):
    end = time.monotonic() + 60
    while not true() and time.monotonic() < end:
        time.sleep(0.02)
# each shell ends at once, and what it leaves behind is inherited and ends soon
own = [OwnProcess(["sh", "-c", f"exit {code}"]) for code in (3, 7)]
parents = [OwnProcess(["sh", "-c", "sleep 0.3 & exit 0"]) for _ in range(5)]
for each in parents:
    each.wait()
until(lambda: len(children("Z")) == 7)
before = len(children("Z"))
if how != "nobody":
    orphans.collect_in_background()
    until(lambda: len(children("Z")) == 2)
print(json.dumps({"before": before, "after": len(children()), "inherits": orphans.inherits(),
                  "own": [each.wait() for each in own]}))
"""


def scene(how: str, *under: str) -> dict[str, object]:
    """What a process with five inherited children and two of its own finds."""
    done = subprocess.run(
        [*under, sys.executable, "-c", SCENE, how],
        check=False,
        capture_output=True,
        cwd=ROOT,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


COLLECTED = {"before": 7, "after": 2, "inherits": True, "own": [3, 7]}


@pytest.mark.skipif(os.geteuid() != 0, reason="a PID namespace with its /proc takes root")
def test_the_first_process_of_a_pid_namespace_collects_what_it_inherits() -> None:
    under = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
    assert scene("collect", *under) == COLLECTED
    assert scene("nobody", *under) == COLLECTED | {"after": 7}


def test_a_subreaper_collects_what_it_inherits_and_its_own_keep_their_status() -> None:
    assert scene("subreaper") == COLLECTED


def test_a_process_that_inherits_nothing_has_no_thread_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[str] = []
    monkeypatch.setattr(threads, "started", lambda _run, name: started.append(name))
    assert not orphans.inherits()
    orphans.collect_in_background()
    assert started == []
    monkeypatch.setattr(os, "getpid", lambda: 1)
    orphans.collect_in_background()
    assert started == ["orphans"]


def test_nothing_is_collected_while_a_process_is_being_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may have ended before its number is known, and would look like an inherited one."""
    process = subprocess.Popen(["true"])  # not one that is known as our own
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    monkeypatch.setattr(orphans, "_being_started", 1)
    assert orphans.collect_inherited() == 0
    monkeypatch.setattr(orphans, "_being_started", 0)
    assert orphans.collect_inherited() == 1
    with pytest.raises(ChildProcessError):
        os.waitpid(process.pid, 0)
    process.returncode = 0


def test_a_process_that_cannot_be_started_leaves_nothing_behind() -> None:
    with pytest.raises(FileNotFoundError):
        orphans.OwnProcess(["/nonexistent/program"])
    assert orphans._being_started == 0
    assert orphans.collect_inherited() == 0


@pytest.mark.parametrize("name", [*PROGRAMS, "discover"])
def test_every_program_that_lives_on_collects_and_holds_its_signals(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    called: list[str] = []
    monkeypatch.setattr(sys, "argv", ["gpuscape", name])
    monkeypatch.setattr(program, "isolate", lambda: None)
    monkeypatch.setattr(orphans, "collect_in_background", lambda: called.append("collect"))
    monkeypatch.setattr("base.process.process_signals.hold_signals", lambda: called.append("hold"))
    signals = "base.process.process_signals"
    monkeypatch.setattr(f"{signals}.release_signals", lambda: called.append("release"))
    monkeypatch.setattr("cli.main.main", lambda: called.append("run"))
    program.main()
    expected = ["hold", "collect", "run"] if name in PROGRAMS else ["release", "run"]
    assert called == expected


def _starts_processes(file: Path) -> bool:
    """Whether a module starts a process by other means than OwnProcess."""
    names = {"Popen", "run", "call", "check_call", "check_output", "fork", "posix_spawn", "system"}
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        match node:
            case ast.Attribute(value=ast.Name(id="subprocess" | "os"), attr=attr) if attr in names:
                return True
            case ast.Import(names=found) if any(it.name == "multiprocessing" for it in found):
                return True
            case ast.ImportFrom(module="multiprocessing" | "subprocess"):
                return True
    return False


def test_whatever_a_program_starts_is_known_as_its_own() -> None:
    """Else its exit status could be taken by who collects what is inherited."""
    files = [it for name in PACKAGES if name != COMMANDS for it in (ROOT / name).rglob("*.py")]
    assert len(files) > 300
    others = {str(it.relative_to(ROOT)) for it in files if _starts_processes(it)}
    # a compiler, run by the command that makes the simulated library
    assert others == {"base/process/orphans.py", "simulator/clibrary/compiler.py"}
