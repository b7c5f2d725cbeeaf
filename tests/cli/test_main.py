# SPDX-License-Identifier: Apache-2.0
"""One sentence and one exit code for whatever goes wrong; only what is needed is loaded."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import BinaryIO, Final

import click
import pytest
from click.testing import CliRunner

from base.errors import BadInput, Permanent, Transient
from base.settings.version_skew import VARIABLE
from cli.main import COMMANDS, main
from discovery.driver_errors import DriverAbsent, DriverMismatch, ReaderStuck
from kube.api_errors import Forbidden, Unreachable
from tests import build
from tests.cli.conftest import Run

GPUSCAPE = Path(sys.executable).with_name("gpuscape")


def loaded(*arguments: str) -> set[str]:
    """Modules that are loaded after ``gpuscape`` ran with these arguments."""
    script = (
        "import sys\n"
        "from cli.main import main\n"
        "main(sys.argv[1:], standalone_mode=False)\n"
        "print('\\n' + ' '.join(sys.modules))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True
    )
    return set(ran.stdout.splitlines()[-1].split())


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (BadInput("the line is wrong"), 2),
        (Permanent("somebody must act"), 2),
        (Unreachable("get Pod a/b: connection refused"), 4),
        (Forbidden("list pods: 403"), 2),
        (DriverMismatch("versions differ"), 3),
        (ReaderStuck("no answer within 5 s"), 3),
        (Transient("NVML cannot be initialised"), 3),
    ],
)
@pytest.mark.parametrize("command", ["discover", "topo", "labels"])
def test_an_expected_error_is_its_sentence_and_an_exit_code(
    run: Run, command: str, error: Exception, code: int
) -> None:
    result = run(command, sees=error)
    assert (result.exit_code, result.stdout, result.stderr) == (code, "", f"Error: {error}\n")


def test_without_a_driver_the_sentence_tells_of_simulation(run: Run) -> None:
    result = run("discover", sees=DriverAbsent("no NVIDIA driver: install it"))
    assert (result.exit_code, result.stderr) == (
        3,
        "Error: no NVIDIA driver: install it, or read a simulated machine with "
        "--simulate dgx-a100\n",
    )


def test_a_bug_is_one_sentence_that_says_how_to_see_more(run: Run) -> None:
    result = run("discover", sees=ZeroDivisionError("division by zero"))
    assert (result.exit_code, result.stderr) == (
        1,
        "Error: unexpected ZeroDivisionError: division by zero (gpuscape --debug shows where)\n",
    )


@pytest.mark.parametrize(
    ("error", "code"),
    [(DriverAbsent("no driver"), 3), (BadInput("no"), 2), (ZeroDivisionError(), 1)],
)
def test_debug_shows_the_trace_and_changes_no_exit_code(
    run: Run, error: Exception, code: int
) -> None:
    result = run("--debug", "discover", sees=error)
    assert result.exit_code == code
    assert "Traceback (most recent call last)" in result.stderr
    assert "in take_snapshot" in result.stderr
    assert result.stderr.splitlines()[-1].startswith("Error: ")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["discovr"], "Error: No such command 'discovr'. Did you mean 'discover'?"),
        (["discover", "--simulat", "x"], "Did you mean '--simulate'?"),
        (["discover", "-o", "xml"], "'xml' is not one of 'table', 'wide', 'json', 'yaml'."),
        (["discover", "--deadline", "soon"], "Error: --deadline is 'soon': expected a duration"),
        (["discover", "--library", "/none"], "Error: there is no file /none: "),
        (["discover", "--config", "/none"], "Error: --config: cannot read /none: No such file"),
        (["completion", "tcsh"], "'tcsh' is not one of 'bash', 'zsh', 'fish'."),
        (["agent", "--kubeconfig", "none"], "none: no such file, or run without a cluster"),
        (["agent", "--standalone", "--jitter", "9"], "Error: --jitter is '9': expected a number"),
        (["simulate"], "Missing option '--list'"),
    ],
)
def test_bad_input_is_told_in_its_last_line(arguments: list[str], sentence: str) -> None:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert sentence in result.stderr.splitlines()[-1]


OWN: Final = version("gpuscape")
UNKNOWN: Final[dict[str, tuple[list[str], dict[str, str]]]] = {
    "a variable": (["coordinator"], {"GPUSCAPE_NEXT_THING": "1"}),
    "a flag": (["scheduler", "--next-thing=1"], {}),
    "a value": (["agent"], {"GPUSCAPE_SINK": "next-thing"}),
    "a command": (["next-thing"], {}),
    "a subcommand": (["scheduler", "next-thing"], {}),
}
"""What an image may be asked for by a chart of another version."""


@pytest.mark.parametrize("unknown", UNKNOWN)
def test_what_a_newer_chart_asks_for_is_refused_with_both_versions_and_what_to_change(
    unknown: str,
) -> None:
    arguments, environment = UNKNOWN[unknown]
    result = CliRunner().invoke(main, arguments, env={**environment, VARIABLE: "9.8.7"})
    assert result.exit_code == 2
    said = result.stderr.splitlines()[-1]
    assert (
        f"; perhaps because the image is gpuscape {OWN}, and its chart or manifests are 9.8.7"
        in said
    )
    assert "set the image to 9.8.7 (image.tag of the chart" in said


@pytest.mark.parametrize("unknown", UNKNOWN)
@pytest.mark.parametrize("manifests", ["", OWN])
def test_with_a_chart_of_its_own_version_no_other_is_spoken_of(
    unknown: str, manifests: str
) -> None:
    arguments, environment = UNKNOWN[unknown]
    result = CliRunner().invoke(main, arguments, env={**environment, VARIABLE: manifests})
    assert result.exit_code == 2
    assert "manifests" not in result.stderr


def test_a_variable_that_is_no_setting_is_told_by_every_command() -> None:
    result = CliRunner().invoke(main, ["topo"], env={"GPUSCAPE_SIMULAT": "dgx-a100"})
    assert (result.exit_code, result.stderr) == (
        2,
        "Error: GPUSCAPE_SIMULAT is not a setting: did you mean GPUSCAPE_SIMULATE?\n",
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_teaches_by_purpose_and_example(command: str) -> None:
    text = CliRunner().invoke(main, [command, "--help"]).output
    assert "Examples:" in text
    assert f"  gpuscape {command}" in text or f"(gpuscape {command}" in text


def test_the_version_is_that_of_the_package() -> None:
    ran = subprocess.run([GPUSCAPE, "--version"], capture_output=True, text=True, check=True)
    assert ran.stdout.startswith("gpuscape 0.")


def test_a_command_loads_no_other_command_and_no_terminal_library() -> None:
    modules = loaded("completion", "zsh")
    assert "cli.completion" in modules
    assert not modules & {
        "cli.discover",
        "cli.programs.agent_command",
        "rich",
        "yaml",
        "msgspec",
        "psutil",
    }


def test_the_agents_help_loads_neither_terminal_library_nor_cluster_client() -> None:
    modules = loaded("agent", "--help")
    assert "cli.programs.agent_command" in modules
    assert not modules & {"rich", "kubernetes", "pydantic", "yaml"}


def test_the_list_of_commands_loads_no_cluster_client_no_planner_and_no_agent() -> None:
    """All commands are loaded for it, also for each press of the completion key."""
    modules = loaded("--help")
    assert "cli.doctor.doctor_command" in modules
    heavy = {"kube.official", "urllib3", "apscheduler", "asyncio", "mig.planner"}
    assert not modules & {*heavy, "agent.cluster.join", "cli.config_check.config_checks"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_gives_the_shell_a_script_that_asks_gpuscape(shell: str) -> None:
    result = CliRunner().invoke(main, ["completion", shell])
    assert result.exit_code == 0
    assert f"_GPUSCAPE_COMPLETE={shell}_complete" in result.output


def test_simulated_machines_are_completed() -> None:
    environ = os.environ | {
        "_GPUSCAPE_COMPLETE": "bash_complete",
        "COMP_WORDS": "gpuscape topo --simulate dgx-",
        "COMP_CWORD": "3",
    }
    ran = subprocess.run([GPUSCAPE], env=environ, capture_output=True, text=True, check=True)
    assert "plain,dgx-a100" in ran.stdout.splitlines()
    assert not [line for line in ran.stdout.splitlines() if "hgx" in line]


PRINTING = [
    ["--help"],
    ["agent", "--help"],
    ["completion", "bash"],
    ["simulate", "--list", "-o", "json"],
    ["topo", "--simulate", "t4"],
    ["record", "-", "--simulate", "t4"],
]
"""Every way in which commands write."""


def written_to(output: BinaryIO, arguments: list[str]) -> subprocess.CompletedProcess[str]:
    """A command whose standard output is this."""
    return subprocess.run(
        [GPUSCAPE, *arguments], stdout=output, stderr=subprocess.PIPE, text=True, check=False
    )


@pytest.mark.parametrize("arguments", PRINTING, ids=" ".join)
def test_output_to_a_closed_pipe_ends_quietly_with_one_code_of_all_commands(
    arguments: list[str],
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as closed:
        ran = written_to(closed, arguments)
    assert (ran.returncode, ran.stderr) == (141, "")


@pytest.mark.parametrize("arguments", PRINTING, ids=" ".join)
def test_output_to_a_full_disk_is_a_sentence_with_the_fix(arguments: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        ran = written_to(full, arguments)
    assert (ran.returncode, ran.stderr) == (
        2,
        "Error: cannot write standard output: No space left on device: free some space,"
        " or name another place\n",
    )


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["label"], "Did you mean 'labels'?"),
        (["explain", "train"], "Did you mean 'mig explain' or 'scheduler explain'?"),
        (["nodes"], "Did you mean 'mig nodes'?"),
        (["serve", "t4"], "Did you mean 'simulate serve'?"),
        (["doctor", "pods", "train"], "Did you mean 'pod'?"),
        (["mig", "statu"], "Did you mean 'status'?"),
        (["mig", "rollout", "strat"], "Did you mean 'start'?"),
        (["scheduler", "explan"], "Did you mean 'explain'?"),
    ],
)
def test_a_command_that_does_not_exist_leads_to_the_one_that_was_meant(
    arguments: list[str], meant: str
) -> None:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1].endswith(meant)


def test_a_machine_in_capitals_is_suggested_as_it_is_written() -> None:
    for written in ("HGX-H100", "hgx_h100", "Hgx-H10"):
        result = CliRunner().invoke(main, ["discover", "--simulate", written])
        assert (result.exit_code, "did you mean 'hgx-h100'?" in result.stderr) == (2, True)


@pytest.mark.parametrize("folders", [["/proc/self"], ["/nonexistent"]])
def test_simulation_without_a_folder_to_write_into_says_what_it_needs(
    folders: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: folders)

    result = CliRunner().invoke(main, ["topo", "--simulate", "t4"])

    assert result.exit_code == 2
    assert "simulate needs a folder to write a few MiB into" in result.stderr
    assert "TMPDIR" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_machines_are_listed_with_what_they_are() -> None:
    result = CliRunner().invoke(main, ["simulate", "--list"])
    assert result.exit_code == 0
    assert "dgx-a100" in result.output


def test_no_color_leaves_no_style_at_all(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bold is one too."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    styled = run("discover", sees=build.node([build.gpu()])).output
    monkeypatch.setenv("NO_COLOR", "1")
    plain = run("discover", sees=build.node([build.gpu()])).output

    assert "\x1b[" in styled
    assert "\x1b" not in plain
    assert [line.rstrip() for line in click.unstyle(styled).splitlines()] == plain.splitlines()


def test_a_node_stays_plain_when_output_is_no_terminal(run: Run) -> None:
    assert "\x1b" not in run("discover", sees=build.node([build.gpu()])).output
