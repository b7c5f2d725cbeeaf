# SPDX-License-Identifier: Apache-2.0
"""A program's settings become options of its command, whichever program it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from base.errors import BadInput
from cli import options
from tests.base.settings.tiny_program import TINY_SETTINGS, TinySettings


@click.command(cls=options.BySubject)
@options.program_settings(TINY_SETTINGS)
def every(load: Callable[[], TinySettings]) -> None:
    """Show a few settings."""
    settings = load()
    click.echo(f"{settings.node_name} {settings.standalone} {settings.deadline_seconds}")


@click.command()
@options.program_settings(TINY_SETTINGS, ("deadline",))
def one(load: Callable[[], TinySettings]) -> None:
    """Show a few settings, of which one is an option."""
    settings = load()
    click.echo(f"{settings.node_name} {settings.deadline_seconds}")


def printed(
    command: click.Command, *arguments: str, environ: Mapping[str, str] | None = None
) -> str:
    result = CliRunner().invoke(command, arguments, env=environ, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_flags_environment_and_file_give_one_value(tmp_path: Path) -> None:
    file = tmp_path / "tiny.yaml"
    file.write_text("node-name: a\ndeadline: 3s\n")
    environ = {"GPUSCAPE_DEADLINE": "2s"}

    assert printed(every, "--config", str(file), environ=environ) == "a False 2.0\n"
    assert printed(every, "--deadline", "1s", environ=environ) == "None False 1.0\n"
    assert printed(every, "--standalone") == "None True 5.0\n"
    assert printed(every, "--no-standalone", environ={"GPUSCAPE_STANDALONE": "true"}) == (
        "None False 5.0\n"
    )


def test_environment_applies_to_settings_that_the_command_has_no_flag_for() -> None:
    assert printed(one, "--deadline", "1s", environ={"NODE_NAME": "b"}) == "b 1.0\n"
    assert CliRunner().invoke(one, ["--node-name", "b"]).exit_code == 2


def test_help_has_every_option_once_with_its_variables_and_default() -> None:
    text = " ".join(printed(every, "--help").split())
    assert "Time to answer. [env var: GPUSCAPE_DEADLINE; default: 5s]" in text
    assert "[env var: GPUSCAPE_NODE_NAME, NODE_NAME; default: the host's name]" in text
    assert "Write labels to this file. [env var: GPUSCAPE_FEATURE_FILE]" in text
    assert "--standalone / --no-standalone" in text


def test_the_agents_variables_are_no_mistake_and_unknown_ones_are() -> None:
    assert printed(one, environ={"GPUSCAPE_SIMULATE": "t4"}) == "None 5.0\n"
    with pytest.raises(BadInput, match="GPUSCAPE_DEADLNE is not a setting: did you mean"):
        CliRunner().invoke(one, env={"GPUSCAPE_DEADLNE": "1s"}, catch_exceptions=False)
