# SPDX-License-Identifier: Apache-2.0
"""Groups of commands whose modules are imported when they are used."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import ClassVar

import click
from click.core import ParameterSource
from click.exceptions import NoSuchCommand


class LazyCommands(click.Group):
    """A group that imports a subcommand's module when it is used."""

    modules: ClassVar[Mapping[str, str]] = {}
    """Subcommand to the module that holds it as ``command``; as ``name`` of ``module:name``."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # click's signature
        """Names of the subcommands, in the order of the table."""
        return list(self.modules)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The command of this name, if there is one."""
        if cmd_name not in self.modules:
            return None
        module, _, name = self.modules[cmd_name].partition(":")
        command: click.Command = getattr(importlib.import_module(module), name or "command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The subcommand that the arguments begin with. Raises UsageError, with those alike."""
        try:
            return super().resolve_command(ctx, args)
        except NoSuchCommand as error:
            message = self.elsewhere(args[0])
            raise NoSuchCommand(args[0], message, self.modules, ctx) from error

    def elsewhere(self, name: str) -> str | None:  # noqa: ARG002  # for groups that know more
        """Message about an unknown command that stands somewhere else; None for click's own."""
        return None


def refuse_options(ctx: click.Context, subcommand: str) -> None:
    """Raise UsageError for options in front of a subcommand, which would do nothing there."""
    for name in ctx.params:
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            flag = f"--{name.replace('_', '-')}"
            raise click.UsageError(
                f"{flag} stands before {subcommand} and does nothing there: put options behind it"
            )
