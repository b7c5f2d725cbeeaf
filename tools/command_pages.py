# SPDX-License-Identifier: Apache-2.0
"""Commands as the pages show them: help texts, samples of what they print, the agent's settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import click
from click.testing import CliRunner

from agent.settings.agent_settings import AGENT_SETTINGS
from cli.main import main as gpuscape
from tools.explained import explained
from tools.markdown import code, quoted, table

_WIDTH = 100
_PAGE: Mapping[str, Any] = {
    "terminal_width": _WIDTH,
    "max_content_width": _WIDTH,
    "help_option_names": gpuscape.context_settings["help_option_names"],
}


def sample(*command: str) -> str:
    """A command and what it prints."""
    result = CliRunner().invoke(gpuscape, list(command))
    if result.exit_code:
        raise SystemExit(f"gpuscape {' '.join(command)} failed: {result.output}")
    return code(f"$ gpuscape {' '.join(command)}\n{result.output}")


def explain_sample() -> str:
    """What explains a pod's placement, and what it prints."""
    return code(f"$ gpuscape scheduler explain train-0\n{explained()}")


def command_pages() -> str:
    """The help text of every command."""
    return "\n\n".join(_command_pages(gpuscape, "gpuscape", None))


def _command_pages(
    command: click.Command, name: str, parent: click.Context | None
) -> Iterator[str]:
    """Help texts of a command and of the commands below it."""
    context = click.Context(command, info_name=name, parent=parent, **_PAGE)
    yield f"## {context.command_path}\n\n{code(command.get_help(context))}"
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            if subcommand := command.get_command(context, below):
                yield from _command_pages(subcommand, below, context)


def option_table() -> str:
    """Every setting in its spellings."""
    return table(
        ("key, `--flag`", "variable", "value", "default", "what it does"),
        (
            (
                f"`{option.name}`",
                ", ".join(f"`{name}`" for name in option.variables),
                option.spec.kind.expects,
                quoted(option.default_text) if option.has_default else option.default_text,
                option.spec.help,
            )
            for option in AGENT_SETTINGS.options
        ),
    )
