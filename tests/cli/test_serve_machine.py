# SPDX-License-Identifier: Apache-2.0
"""``gpuscape simulate serve``: a process that serves a machine until a signal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli.main import main
from simulator.simulation import Simulation
from tests.agent.agent_process import GPUSCAPE, SOON
from tests.controlplane.lifetime import end_with_parent

NAMES = """
import pynvml as nv
nv.nvmlInit()
for at in range(nv.nvmlDeviceGetCount()):
    print(nv.nvmlDeviceGetName(nv.nvmlDeviceGetHandleByIndex(at)))
"""


@contextmanager
def serving(*arguments: str | Path, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """The command, with ``folder`` for temporary files."""
    with subprocess.Popen(
        [GPUSCAPE, "simulate", "serve", *arguments],
        env={**os.environ, "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=end_with_parent(),
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    assert process.stderr
    return process.stdout.readline() or process.stderr.read()


def names(library_path: str) -> list[str]:
    """What a program that is not ours sees."""
    done = subprocess.run(
        [sys.executable, "-c", NAMES],
        env={**os.environ, "LD_LIBRARY_PATH": library_path},
        capture_output=True,
        text=True,
        check=False,
    )
    return (done.stdout or done.stderr).splitlines()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_until_a_signal_and_leaves_nothing(
    number: signal.Signals, tmp_path: Path
) -> None:
    with serving("a30-pair", "-o", "json", folder=tmp_path) as process:
        ready = json.loads(first_line(process))
        assert names(ready["library_path"]) == ["NVIDIA A30"] * 2
        assert ready["machine"] == "a30-pair"
        assert ready["library"] == f"{ready['library_path']}/libnvidia-ml.so.1"
        assert Path(ready["sysfs_root"], "bus/pci/devices").is_dir()
        assert Path(ready["driver_root"], "dev/nvidiactl").exists()

        process.send_signal(number)

        assert process.wait(SOON) == 0
        assert process.stderr
        assert process.stderr.read() == ""
    assert list(tmp_path.iterdir()) == []


def test_it_serves_the_machine_of_a_state_file(tmp_path: Path) -> None:
    """What gpuscape sees with --simulate and what others see is one machine."""
    kept = tmp_path / "kept"
    with serving("t4", "--directory", kept, "-o", "json", folder=tmp_path) as process:
        ready = json.loads(first_line(process))
        assert ready["state_file"] == str(kept / "state.json")
        process.terminate()
        process.wait(SOON)
    simulation = Simulation.open(kept / "state.json")
    simulation.remove_gpu(min(simulation.state.gpus))

    with serving(kept / "state.json", "-o", "json", folder=tmp_path) as process:
        ready = json.loads(first_line(process))

        assert names(ready["library_path"]) == ["Tesla T4"] * 3


def test_people_are_told_what_to_set(tmp_path: Path) -> None:
    with serving("t4", folder=tmp_path) as process:
        assert process.stdout
        lines = [process.stdout.readline() for _ in range(7)]

    text = "".join(lines)
    assert text.startswith("Serving t4 until SIGTERM or SIGINT (Ctrl-C). In another shell:\n")
    for what in ("export LD_LIBRARY_PATH=/", "driver root  /", "sysfs root   /", "state file   /"):
        assert what in text


def test_a_machine_without_a_driver_says_that_there_is_no_library(tmp_path: Path) -> None:
    with serving("no-driver", folder=tmp_path) as process:
        assert "no driver, so there is no library to load" in first_line(process)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["hgx-h10"], "there is no machine and no file 'hgx-h10'"),
        (["t4", "--directory", "{full}"], "is not empty and not a simulated host"),
        (["t4", "--directory", "{machine}"], "holds a machine already: serve"),
        (["t4", "--directory", "{file}/below"], "name another"),
    ],
)
def test_bad_input_names_cause_and_fix(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    (tmp_path / "full/root").mkdir(parents=True)
    (tmp_path / "full/root/file").touch()
    (tmp_path / "file").touch()
    Simulation.create("t4", tmp_path / "machine")
    places = {name: str(tmp_path / name) for name in ("full", "machine", "file")}

    result = CliRunner().invoke(
        main, ["simulate", "serve", *(each.format(**places) for each in arguments)]
    )

    assert (result.exit_code, message in result.stderr) == (2, True), result.stderr


def test_a_machine_that_is_served_is_not_served_twice(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    with serving("t4", "--directory", kept, "-o", "json", folder=tmp_path) as process:
        ready = json.loads(first_line(process))

        result = CliRunner().invoke(main, ["simulate", "serve", str(kept / "state.json")])

        assert result.exit_code == 2
        assert "another process serves the machine" in result.stderr
        assert names(ready["library_path"]) == ["Tesla T4"] * 4


def test_options_before_the_command_are_refused() -> None:
    result = CliRunner().invoke(main, ["simulate", "-o", "json", "serve", "t4"])

    assert result.exit_code == 2
    assert "--output stands before serve and does nothing there" in result.stderr
