# SPDX-License-Identifier: Apache-2.0
"""``gpuscape scheduler``: its help, its subcommands, and mistakes on its command line."""

from __future__ import annotations

import subprocess
import sys

import pytest

from cli.scheduler.scheduler_command import COMMANDS
from tests.cli.conftest import Run


def test_variables_of_the_agent_may_be_there(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUSCAPE_SIMULATE", "t4")
    assert "there is no TLS" in run("scheduler", "--listen", ":8443").output

    monkeypatch.setenv("GPUSCAPE_SIMULATED", "t4")
    assert "GPUSCAPE_SIMULATED is not a setting" in run("scheduler", "--listen", ":8443").output


def test_help_tells_the_subcommands_and_what_the_scheduler_needs(run: Run) -> None:
    said = run("scheduler", "--help")
    assert said.exit_code == 0
    for words in (*COMMANDS, "prioritizeVerb: prioritize", "--client-ca-file", "/v1/explain"):
        assert words in said.output


def test_options_in_front_of_a_subcommand_are_refused(run: Run) -> None:
    said = run("scheduler", "--listen", ":1", "explain", "pod")
    assert said.exit_code == 2
    assert "--listen stands before explain" in said.output


def test_a_mistake_is_one_sentence(run: Run) -> None:
    said = run("scheduler", "--listen", ":8443")
    assert (said.exit_code, said.output.count("\n")) == (2, 1)


def test_settings_and_help_load_no_server() -> None:
    """It takes memory and time, which nobody else should pay for."""
    script = (
        "import sys; from cli.main import main\n"
        "try: main(['scheduler', '--help'])\n"
        "except SystemExit: pass\n"
        "print({'ssl', 'prometheus_client'} & set(sys.modules), file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stderr.strip() == "set()"
