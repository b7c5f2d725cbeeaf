# SPDX-License-Identifier: Apache-2.0
"""What ``make run`` shows, and what it says of its choices."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.agent.agent_process import SOON, until
from tests.tools.conftest import ROOT


def command(path: Path, exit_code: int, message: str) -> Path:
    """A program in place of gpuscape that says this and ends so."""
    path.write_text(f"#!/bin/sh\necho '{message}' >&2\nexit {exit_code}\n")
    path.chmod(0o755)
    return path


@pytest.fixture(autouse=True)
def nothing_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SIMULATE", raising=False)
    monkeypatch.setattr("sys.argv", ["run.py"])


def test_without_a_driver_the_first_line_says_what_is_simulated_and_how_to_choose(
    run_tool: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    fake = command(tmp_path / "gpuscape", 3, "no NVIDIA driver")
    monkeypatch.setattr(run_tool, "GPUSCAPE", fake)
    assert run_tool.choose_machine() == "dgx-a100"
    first, *_ = capsys.readouterr().out.splitlines()
    assert "simulates a DGX A100" in first
    assert "SIMULATE=hgx-h100 make run" in first
    assert "(list: .venv/bin/gpuscape simulate --list)" in first


@pytest.mark.parametrize("exit_code", [0, 2])
def test_nothing_is_simulated_unless_the_driver_is_missing(
    run_tool: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, exit_code: int
) -> None:
    monkeypatch.setattr(run_tool, "GPUSCAPE", command(tmp_path / "gpuscape", exit_code, ""))
    assert run_tool.choose_machine() is None


@pytest.mark.parametrize(("argument", "variable"), [("hgx-h100", ""), ("", "hgx-h100")])
def test_the_machine_asked_for_is_simulated(
    run_tool: ModuleType, monkeypatch: pytest.MonkeyPatch, argument: str, variable: str
) -> None:
    monkeypatch.setattr("sys.argv", ["run.py", argument])
    monkeypatch.setenv("SIMULATE", variable)
    assert run_tool.choose_machine() == "hgx-h100"


def test_a_taken_port_is_replaced_and_that_is_said(
    run_tool: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        found = run_tool.free_port(taken)
    assert found != taken
    assert capsys.readouterr().out == (
        f"Port {taken} is taken by another program; using {found}.\n"
    )


def test_a_failing_command_ends_the_run_with_its_exit_code(
    run_tool: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(run_tool, "GPUSCAPE", command(tmp_path / "gpuscape", 2, "bad input"))
    assert run_tool.main() == 2


def test_ctrl_c_during_the_first_commands_ends_the_run_without_a_trace(tmp_path: Path) -> None:
    """The terminal sends it to the whole group; a command that takes long ends by itself."""
    began, ended = tmp_path / "began", tmp_path / "ended"
    slow = tmp_path / "gpuscape"
    slow.write_text(
        f"#!/bin/sh\ntrap 'sleep 1; touch {ended}; exit 1' INT\ntouch {began}\n"
        "while :; do sleep 0.1; done\n"
    )
    slow.chmod(0o755)
    # as in a terminal, also where the tests run in the background, which ignores SIGINT
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    code += "import runpy, sys; sys.argv[1:] = ['dgx-a100']; sys.executable = sys.argv[0] = {!r}; "
    code += "runpy.run_path('tools/run.py', run_name='__main__')"
    with subprocess.Popen(
        [sys.executable, "-c", code.format(str(tmp_path / "python"))],
        cwd=ROOT,
        process_group=0,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as run:
        until(began.exists)
        os.killpg(run.pid, signal.SIGINT)
        _, errors = run.communicate(timeout=SOON)
    assert (run.returncode, errors) == (130, "")
    assert ended.exists()


@pytest.mark.parametrize(
    ("python", "cause"),
    [
        ("no-such-python", "there is no no-such-python: install Python 3.11 or later, or name one"),
        ("old-python", "gpuscape needs Python 3.11 or later, old-python is older"),
    ],
)
def test_a_python_that_does_not_do_is_one_sentence_and_sets_up_nothing(
    tmp_path: Path, python: str, cause: str
) -> None:
    old = tmp_path / "old-python"
    code = "sys.version_info = (3, 9, 2)"
    old.write_text(f'#!/bin/sh\nexec {sys.executable} -c "import sys; {code}; $2"\n')
    old.chmod(0o755)
    ran = subprocess.run(
        ["make", "run", f"PYTHON={python}", f"VENV={tmp_path / 'venv'}"],
        cwd=ROOT,
        env=os.environ | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    sentence, _make = ran.stderr.splitlines()
    assert sentence.startswith(cause)
    assert sentence.endswith("run")
    assert not (tmp_path / "venv").exists()


@pytest.fixture
def alone() -> Iterator[None]:
    """No other test run of this user is at the same place: it would take the same ports."""
    path = Path(tempfile.gettempdir()) / f"gpuscape-make-run-{os.getuid()}.lock"
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.mark.usefixtures("alone")
def test_the_whole_run_shows_gpus_labels_links_and_metrics_and_ends() -> None:
    ran = subprocess.run(
        [sys.executable, "tools/run.py", "dgx-a100"],
        cwd=ROOT,
        env=os.environ | {"ONCE": "1"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("Simulating dgx-a100.\n")
    assert "NVIDIA A100-SXM4-40GB" in ran.stdout
    assert "nvidia.com/gpu.count" in ran.stdout
    assert "NV12" in ran.stdout
    assert "lines of metrics at http://127.0.0.1:" in ran.stdout
    assert "DCGM_FI_DEV_SM_CLOCK" in ran.stdout
