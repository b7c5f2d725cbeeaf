# SPDX-License-Identifier: Apache-2.0
"""What ``make run`` shows, and what it says of its choices."""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

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
